//! The history of one entry: follows its own changes backwards, and reports them oldest first.
//!
//! A page costs what the entry's changes cost, however long the log is. Only changes of an older
//! release do not name their predecessor. For those each page reads a bounded part of the earlier
//! log.

mod former;
mod older;
mod position;
mod shown;

use std::collections::VecDeque;

use exacat_model::answer::ChangeInfo;
use exacat_model::limits::PAGE_MEMORY_MAX;
use exacat_model::{Answer, Change, Cursor, Effect, Error, Lfn, Measured, Result, Revision};
use exacat_store::{EntryLocation, Located, TrailEnd};

use crate::Catalogue;
use crate::caller::{Caller, READ};
use crate::cursor::{self, CursorOf};
use crate::resolve::{Spot, check_passage};

use position::{Chain, LogCursor, Position, READ_CHANGES, Subject, never_there};

impl Catalogue {
    /// Returns the changes of the entry under the name, also from before it had this name. Takes r
    /// on the entry. For a free name, returns those of the last entry there, if the caller may
    /// still see it. A moved entry is judged at its present path. A trashed or purged one is shown
    /// to its owner and to operators.
    pub(crate) async fn log(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        let position = match self.log_position(cursor)? {
            Some(position) => position,
            None => match self.spot(caller, lfn, false).await? {
                Spot::Taken(found) => {
                    let subject = Subject { id: found.entry.id(), purged: None };
                    Position::at_last(subject, found.entry.revision)
                }
                Spot::Vacant(vacancy) => self.former(&vacancy.lfn).await?.ok_or_else(|| never_there(lfn))?,
            },
        };
        match position {
            Position::Seeking { up_to, until, stood } => {
                // A caller who may not pass the existing directories has no right to their former
                // entries.
                let Spot::Vacant(vacancy) = self.spot(caller, lfn, false).await? else {
                    return Err(Error::invalid(format!(
                        "{lfn} is there by now: start again without the cursor"
                    )));
                };
                self.seek(caller, (lfn, &vacancy.lfn), up_to, until, stood).await
            }
            Position::Walking { subject, next, chain } => {
                self.check_may_tell(caller, lfn, subject).await?;
                self.follow_back(caller, lfn, (subject, next, chain), limit).await
            }
            Position::Older { subject, up_to, until, chain } => {
                self.tell_older(caller, lfn, (subject, up_to, until, chain), limit).await
            }
            Position::Telling { subject, after, chain } => {
                self.tell_chain(caller, lfn, (subject, after, chain), limit).await
            }
        }
    }

    /// Returns the position in a cursor, unless its revisions were replaced.
    fn log_position(&self, cursor: &Cursor) -> Result<Option<Position>> {
        let Some(LogCursor { timeline, position }) = cursor::read(CursorOf::Log, cursor)? else {
            return Ok(None);
        };
        self.store.timelines().check(position.newest(), timeline)?;
        Ok(Some(position))
    }

    /// Makes a page of a log, with the position where the log continues.
    fn log_page(&self, items: Vec<ChangeInfo>, next: Option<Position>, up_to: Revision, cut: bool) -> Answer {
        let timeline = self.store.timelines().current();
        let next = next.map(|position| {
            cursor::write(CursorOf::Log, &LogCursor { timeline: timeline.whole(), position })
        });
        Answer::Changes { items, next, up_to, timeline, cut }
    }

    /// Returns the present path of the subject, if the caller may see its history.
    async fn check_may_tell(&self, caller: &Caller, lfn: &Lfn, subject: Subject) -> Result<Option<Lfn>> {
        if let Some(purged) = subject.purged {
            let page = self.store.changes(Revision(purged.0.saturating_sub(1)), 1).await?;
            return match page.changes.first().map(|change| (change.revision, &change.effect)) {
                Some((revision, Effect::Purged { entry, .. }))
                    if revision == purged
                        && entry.id() == subject.id
                        && (caller.is_operator() || caller.owns(entry)) =>
                {
                    Ok(None)
                }
                _ => Err(never_there(lfn)),
            };
        }
        match self.store.locate(&[subject.id]).await?.pop().flatten() {
            Some(Located { entry, place: EntryLocation::Tree(stands), ancestors }) => {
                let open =
                    caller.check_scope(&stands).and_then(|()| check_passage(caller, &ancestors, &stands));
                if open.is_err() {
                    return Err(never_there(lfn));
                }
                if !caller.has_entry(&entry, READ) {
                    return Err(Error::denied(format!("you may not read {lfn} (no r)")));
                }
                Ok(Some(stands))
            }
            Some(Located { entry, .. }) if caller.is_operator() || caller.owns(&entry) => Ok(None),
            _ => Err(never_there(lfn)),
        }
    }

    /// Follows the chain to its beginning, a bounded part per page; then starts to report.
    async fn follow_back(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        (subject, mut next, mut chain): (Subject, Revision, Chain),
        limit: usize,
    ) -> Result<Answer> {
        let mut reads_left = self.settings.find_scan_entries.max(1);
        loop {
            let trail = self.store.trail(subject.id, next, READ_CHANGES.min(reads_left)).await?;
            reads_left = reads_left.saturating_sub(trail.changes.len().max(1));
            match trail.end {
                TrailEnd::More(earlier) => {
                    next = earlier;
                    chain.read_part(next);
                    if reads_left == 0 {
                        let next = Position::Walking { subject, next, chain };
                        return Ok(self.log_page(Vec::new(), Some(next), Revision(0), false));
                    }
                }
                TrailEnd::Unlinked(until) => {
                    let at = (subject, Revision(0), Revision(until.0.saturating_sub(1)), chain);
                    return self.tell_older(caller, lfn, at, limit).await;
                }
                TrailEnd::NotKept | TrailEnd::Beginning => {
                    let mut answer =
                        self.tell_chain(caller, lfn, (subject, Revision(0), chain), limit).await?;
                    // The root was made with the catalogue, without a change.
                    if let Answer::Changes { cut, .. } = &mut answer {
                        *cut = trail.end == TrailEnd::NotKept && next != Revision(0);
                    }
                    return Ok(answer);
                }
            }
        }
    }

    /// Returns a page of the chain: the oldest changes after `after`.
    async fn tell_chain(
        &self,
        caller: &Caller,
        lfn: &Lfn,
        (subject, after, mut chain): (Subject, Revision, Chain),
        limit: usize,
    ) -> Result<Answer> {
        let stands = self.check_may_tell(caller, lfn, subject).await?;
        // Drop the marks of parts that were reported in full.
        while chain.marks.last().is_some_and(|mark| *mark <= after) {
            chain.marks.pop();
        }
        let Some(mark) = chain.marks.last().copied() else {
            return Ok(self.log_page(Vec::new(), None, after, false));
        };
        let limit = limit.clamp(1, READ_CHANGES);
        // Newest first; changes outside of this page are dropped at once.
        let (mut page, mut bytes): (VecDeque<Change>, usize) = (VecDeque::new(), 0);
        let mut from = mark;
        'parts: loop {
            let trail = self.store.trail(subject.id, from, READ_CHANGES).await?;
            for change in trail.changes {
                if change.revision <= after {
                    break 'parts;
                }
                bytes += change.bytes();
                page.push_back(change);
                while page.len() > limit || (bytes > PAGE_MEMORY_MAX && page.len() > 1) {
                    bytes -= page.pop_front().map_or(0, |newest| newest.bytes());
                }
            }
            match trail.end {
                TrailEnd::More(earlier) if earlier > after => from = earlier,
                _ => break,
            }
        }
        let up_to = page.front().map_or(after, |change| change.revision);
        let told_all = chain.marks.first().is_none_or(|first| up_to >= *first) || page.is_empty();
        let items = self.shown(caller, stands, page.into_iter().rev().collect()).await?;
        let next = (!told_all).then_some(Position::Telling { subject, after: up_to, chain });
        Ok(self.log_page(items, next, up_to, false))
    }
}
