//! After a restore: tells a sink where the timelines part, and sends the changes that were undone.

use std::sync::Arc;

use exacat_model::{ErrorKind, Result, Revision};
use exacat_store::Replaced;

use crate::batch::Op;
use crate::cursor::{Cursor, Undone};
use crate::event::EventWriter;
use crate::json::{put_number, put_shown};
use crate::limits::{BATCH_BYTES, PAGE_CHANGES};
use crate::runner::{Ended, Outlet, Runner};
use crate::sink::{Sink, SinkAddress, next_generation};

/// Turns damage of a replaced copy into none: it is no reason to stop a feed.
fn undamaged<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.kind == ErrorKind::Corrupt => {
            tracing::warn!(%error, "a replaced copy is damaged: a feed cannot send all undone changes");
            Ok(None)
        }
        other => other.map(Some),
    }
}

impl Runner {
    /// Tells the sink where the timelines part, and goes on from there.
    pub(crate) async fn pass_parting(&self) -> std::result::Result<(), Ended> {
        let timelines = self.context.store.timelines();
        let before = self.entry.cursor();
        let current = timelines.current();
        if before.timeline == current {
            return Ok(());
        }
        let point = timelines.parting_point(before.timeline.whole());
        if point.is_some_and(|point| before.revision <= point) {
            let mut progress = self.entry.progress.lock();
            progress.cursor.timeline = current;
            progress.is_unsaved = true;
            return Ok(());
        }
        let after = point.unwrap_or(Revision(0));
        let mut cursor = Cursor { timeline: current, revision: after, window: Revision(0), ..before.clone() };
        let after_restore = before.spec.after_restore;
        // Entries that were changed on the other timeline are only right again in a copy.
        cursor.must_copy = before.must_copy || after_restore.copies();
        if after_restore.sends_undone() {
            cursor.must_send(Undone { timeline: before.timeline, after, up_to: before.revision });
        }
        if let SinkAddress::Directory(path) = SinkAddress::parse(&cursor.spec.sink)? {
            cursor.generation = next_generation(&path, before.generation)?;
        }
        let (sink, _) = Sink::open(&cursor, &self.context.sink)?;
        let mut outlet = Outlet::new(sink);
        let mut fields = b",\"old_timeline\":".to_vec();
        put_shown(&mut fields, before.timeline);
        fields.extend_from_slice(b",\"undone_up_to\":");
        put_number(&mut fields, before.revision.0);
        let at = (after, 0, self.now());
        self.maker(&cursor)?.writer.notice(&mut outlet.batch, Op::Parted, at, &fields);
        outlet.batch.mark_last();
        outlet.sink.put(&outlet.batch, Some(after), self.now()).await?;
        outlet.sink.publish()?;
        let mut progress = self.entry.progress.lock();
        progress.cursor = cursor;
        progress.events += 1;
        drop(progress);
        self.entry.save()?;
        Ok(())
    }

    /// Sends the changes that restores undid, as far as they are kept.
    pub(crate) async fn send_undone(&self) -> std::result::Result<(), Ended> {
        while let Some(undone) = self.entry.cursor().undone.first().copied() {
            self.send_timeline(undone).await?;
            self.entry.progress.lock().cursor.undone.retain(|one| one.timeline != undone.timeline);
            self.entry.save()?;
        }
        Ok(())
    }

    async fn send_timeline(&self, undone: Undone) -> std::result::Result<(), Ended> {
        // The ids of these events have the timeline that the changes were on.
        let cursor = Cursor { timeline: undone.timeline, ..self.entry.cursor() };
        let (sink, _) = Sink::open(&cursor, &self.context.sink)?;
        let mut outlet = Outlet::new(sink);
        let opened = self.context.replaced.open(&*self.context.store, undone.timeline).await;
        let is_complete = match undamaged(opened)?.flatten() {
            Some(replaced) => self.send_changes(&cursor, undone, &replaced, &mut outlet).await?,
            None => false,
        };
        let complete: &[u8] = if is_complete { b",\"complete\":true" } else { b",\"complete\":false" };
        let at = (cursor.revision, 0, self.now());
        self.maker(&cursor)?.writer.notice(&mut outlet.batch, Op::UndoneEnds, at, complete);
        outlet.batch.mark_last();
        self.pass_undone(&mut outlet, undone.after).await
    }

    /// Sends the undone changes of one timeline. False if some are not kept.
    async fn send_changes(
        &self,
        cursor: &Cursor,
        undone: Undone,
        Replaced { store, up_to }: &Replaced,
        outlet: &mut Outlet,
    ) -> std::result::Result<bool, Ended> {
        let writer = EventWriter::of_undone(self.context.sink.catalogue, undone.timeline, cursor.revision);
        let mut maker = self.maker_of(cursor, Arc::clone(store), writer)?;
        let (mut read, mut request) = (undone.after, None);
        if undamaged(maker.begin().await)?.is_none() {
            return Ok(false);
        }
        while read < *up_to {
            let Some(page) = undamaged(store.changes(read, PAGE_CHANGES).await)? else { return Ok(false) };
            if page.oldest.0 > read.0.saturating_add(1) || page.up_to <= read {
                return Ok(false);
            }
            for change in page.changes.iter().take_while(|change| change.revision <= *up_to) {
                if request.is_some_and(|request| request != change.operation) {
                    outlet.batch.mark_last();
                    if outlet.batch.bytes.len() >= BATCH_BYTES {
                        self.pass_undone(outlet, Revision(change.revision.0.saturating_sub(1))).await?;
                    }
                }
                request = Some(change.operation);
                if undamaged(maker.change(&mut outlet.batch, change, false).await)?.is_none() {
                    return Ok(false);
                }
            }
            read = page.up_to;
        }
        outlet.batch.mark_last();
        self.pass_undone(outlet, *up_to).await?;
        Ok(*up_to >= undone.up_to)
    }

    /// Sends whole requests of undone changes, and notes that the sink has them.
    async fn pass_undone(&self, outlet: &mut Outlet, whole: Revision) -> std::result::Result<(), Ended> {
        let at = self.entry.cursor().revision;
        self.put(outlet, Some(at)).await?;
        let has = outlet.sink.publish()?;
        self.acknowledged(outlet, has);
        if let Some(undone) = self.entry.progress.lock().cursor.undone.first_mut() {
            undone.after = undone.after.max(whole);
        }
        self.entry.save()?;
        Ok(())
    }
}
