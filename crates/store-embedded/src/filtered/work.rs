//! Writes effects of a filtered follower into log and state, and purges entries that leave its directory.

use std::sync::atomic::Ordering;

use exacat_log::record::{Head, RecordWriter};
use exacat_log::{COMMIT_GROUP_BYTES_MAX, RECORD_SPLIT_BYTES};
use exacat_model::{
    At, DirId, Effect, Entry, EntryId, Error, ErrorKind, Expect, Lfn, PurgeTarget, Result, Revision,
    SeNumber, TimeMs, TrashId, UserId,
};
use exacat_store::rules::{FoundEntry, Stamp};

use super::mark::FilteredMark;
use super::scope::{Scope, Within};
use crate::changes::encode_effect;
use crate::keyspace;
use crate::settings::FILTERED_ROWS_AT_ONCE;
use crate::writer::Writer;

/// Work on one step.
pub(super) struct FilteredWork<'w> {
    pub writer: &'w mut Writer,
    pub scope: &'w Scope,
    pub mark: FilteredMark,
    /// Time of the next record.
    pub time: TimeMs,
    pub record: Option<OpenRecord>,
}

/// A record that takes further effects.
pub(super) struct OpenRecord {
    writer: RecordWriter,
    /// Time and index of the next change in it.
    time: TimeMs,
    index: u32,
}

pub(super) fn unavailable(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}

impl FilteredWork<'_> {
    // ---- reading ----

    /// Reads the state, and waits for pages.
    pub(super) fn read<T>(&self, read: impl FnOnce(&crate::state::State, &Scope) -> T) -> T {
        read(&self.writer.shared.state.read(), self.scope)
    }

    pub(super) fn judge(&self, at: &At) -> Within {
        self.read(|state, scope| scope.judge(state, at))
    }

    /// Returns the entry with this identity, if it is at this place.
    pub(super) fn standing(&self, at: &At, id: EntryId) -> Result<Option<Entry>> {
        let found = self.read(|state, _| match state.directory(at.parent) {
            None => Ok(None),
            Some(_) => state.look().find(at),
        })?;
        Ok(found.filter(|entry| entry.id() == id))
    }

    /// Returns the entry with this identity.
    pub(super) fn find(&self, id: EntryId) -> Result<Option<FoundEntry>> {
        Ok(self.read(|state, _| state.look().find_id(id))?)
    }

    /// Returns the path of a place.
    pub(super) fn path_of(&self, at: &At) -> Lfn {
        self.read(|state, _| {
            let mut names = state.directories.path_of(at.parent);
            names.push(at.name.as_str());
            Lfn::from_names(names)
        })
    }

    /// Returns up to [`FILTERED_ROWS_AT_ONCE`] children of a directory after a name.
    pub(super) fn children(&self, directory: DirId, after: Option<&[u8]>) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        self.read(|state, _| {
            state.look().scan(directory, b"", after, |row| {
                found.extend(row.entry()?);
                Ok(found.len() < FILTERED_ROWS_AT_ONCE)
            })
        })?;
        Ok(found)
    }

    /// Returns children of a directory after a name as far as a page has them, and the name to continue
    /// after; none at the end of the page.
    pub(super) fn covered_children(
        &self,
        directory: DirId,
        after: Option<&[u8]>,
        is_covered: impl Fn(&str) -> bool,
    ) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
        let mut children = self.children(directory, after)?;
        let is_full = children.len() >= FILTERED_ROWS_AT_ONCE;
        let next = children.last().map(|child| child.at.name.as_str());
        let next = next.filter(|name| is_full && is_covered(name)).map(|name| name.as_bytes().to_vec());
        children.retain(|child| is_covered(child.at.name.as_str()));
        Ok((children, next))
    }

    // ---- writing ----

    /// Returns the revision of the next change here.
    pub(super) fn next_revision(&self) -> Revision {
        Revision(self.writer.shared.state.read().revision.0 + 1)
    }

    /// Logs and applies an effect.
    pub(super) fn emit(&mut self, effect: &Effect) -> Result<()> {
        encode_effect(effect, &mut self.writer.effect);
        let bytes = RecordWriter::EMPTY_BYTES + RecordWriter::bytes_of(self.writer.effect.len());
        let group = &self.writer.group.bytes;
        let is_long =
            self.record.as_ref().is_some_and(|record| record.writer.bytes(group) >= RECORD_SPLIT_BYTES);
        if is_long || !self.writer.log.fits(group.len() + bytes) || self.is_memtable_full() {
            self.end_record();
            self.make_room(bytes)?;
        }
        let mut record = match self.record.take() {
            Some(record) => record,
            None => self.begin_record(),
        };
        record.writer.add(&mut self.writer.group.bytes, record.index, &self.writer.effect);
        record.index += 1;
        let stamp = Stamp { revision: self.next_revision(), time: record.time, who: UserId(0) };
        self.record = Some(record);
        // Checked against the state, unlike an effect that was decided here.
        let applied = self.writer.shared.state.write().apply(stamp, effect, None);
        if matches!(effect, Effect::Recorded { .. }) {
            self.writer.shared.records_followed.fetch_add(1, Ordering::Release);
        }
        applied.map_err(|defect| {
            let why = format!("a translated change does not fit the state: {defect}");
            // Half a change may have been applied, and no reader may see it.
            self.writer.shared.fail(&why);
            self.writer.shared.close(&why);
            unavailable(why)
        })
    }

    fn is_memtable_full(&self) -> bool {
        let rows = self.writer.shared.state.read().table.active().rows();
        rows >= self.writer.settings.memtable_rows.max(FILTERED_ROWS_AT_ONCE)
    }

    /// Makes room in log and memory, between two records.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.writer.group.bytes.len() >= COMMIT_GROUP_BYTES_MAX {
            self.writer.flush();
        }
        if self.is_memtable_full() {
            self.writer.freeze_if_due();
            let rows = self.writer.shared.state.read().table.active().rows();
            self.writer.bound_memtable(rows).map_err(unavailable)?;
        }
        match self.writer.log.fits(self.writer.group.bytes.len() + bytes) {
            true => Ok(()),
            false => self.writer.make_space(bytes).map_err(unavailable),
        }
    }

    fn begin_record(&mut self) -> OpenRecord {
        let (first_revision, time) = {
            let state = self.writer.shared.state.read();
            (Revision(state.revision.0 + 1), self.time.max(state.time))
        };
        if self.writer.group.bytes.is_empty() {
            self.writer.group.first_revision = first_revision;
        }
        let (operation, fingerprint) = (self.mark.operation(), self.mark.fingerprint());
        let head = Head { first_revision, time, operation, fingerprint, who: UserId(0), count: 0 };
        let writer = RecordWriter::begin(&mut self.writer.group.bytes, head);
        OpenRecord { writer, time, index: 0 }
    }

    /// Ends the record, with the position that it leads to.
    pub(super) fn end_record(&mut self) {
        if let Some(record) = self.record.take() {
            let bytes = &mut self.writer.group.bytes;
            record.writer.set_operation(bytes, self.mark.operation());
            record.writer.end(bytes, self.writer.log.salt());
        }
    }

    /// Notes the position durably, by a change that changes nothing.
    pub(super) fn note(&mut self) -> Result<()> {
        self.emit(&Effect::Dequeued { se: SeNumber::NONE, done: Vec::new() })
    }

    // ---- entries that leave ----

    /// Purges an entry with everything below it. Readers see at once that it is gone.
    pub(super) fn depart(&mut self, entry: &Entry) -> Result<()> {
        let (id, at, lfn) = (entry.id(), entry.at.clone(), self.path_of(&entry.at));
        self.emit(&Effect::Removed { id, at, lfn, previous: Some(entry.revision) })?;
        self.purge_with_below(id)
    }

    /// Purges the entry at a place, if there is one.
    pub(super) fn vacate(&mut self, at: &At) -> Result<()> {
        match self.read(|state, _| state.look().find(at))? {
            Some(entry) => self.depart(&entry),
            None => Ok(()),
        }
    }

    /// Purges what an interrupted process left in the trash.
    pub(super) fn sweep(&mut self) -> Result<()> {
        loop {
            let mut first: Option<EntryId> = None;
            self.read(|state, _| {
                state.look().scan(keyspace::TRASH, b"", None, |row| {
                    first = row.entry()?.map(|entry| entry.id());
                    Ok(false)
                })
            })?;
            match first {
                Some(id) => self.purge_with_below(id)?,
                None => return Ok(()),
            }
        }
    }

    /// Purges an item of the trash with everything below it.
    fn purge_with_below(&mut self, item: EntryId) -> Result<()> {
        let mut levels: Vec<(EntryId, Option<Vec<u8>>)> = vec![(item, None)];
        while let Some((id, after)) = levels.last_mut() {
            let id = *id;
            let children = match id {
                EntryId::Directory(directory) => {
                    let after = after.clone();
                    self.children(directory, after.as_deref())?
                }
                EntryId::Object(_) => Vec::new(),
            };
            if children.is_empty() {
                self.purge(id)?;
                levels.pop();
            }
            for child in children {
                let name = child.at.name.as_str().as_bytes().to_vec();
                if let Some(level) = levels.last_mut() {
                    level.1 = Some(name);
                }
                match child.directory() {
                    Some(_) => {
                        levels.push((child.id(), None));
                        break;
                    }
                    None => self.purge(child.id())?,
                }
            }
        }
        Ok(())
    }

    fn purge(&mut self, id: EntryId) -> Result<()> {
        let Some(FoundEntry { entry, trash }) = self.find(id)? else { return Ok(()) };
        let target = match trash {
            Some(TrashId(item)) => PurgeTarget::Item(TrashId(item)),
            None => PurgeTarget::Below { at: entry.at.clone(), expect: Expect::ANY },
        };
        self.emit(&Effect::Purged { target, entry: Box::new(entry) })
    }
}
