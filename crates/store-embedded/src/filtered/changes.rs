//! Translates changes of the source.

use std::collections::HashMap;

use exacat_model::{
    At, Body, Change, Checksums, Effect, Entry, EntryId, FieldChange, PurgeTarget, Record, RecordKey,
    Replica, Result, Revision,
};

use super::scope::Within;
use super::work::FilteredWork;

impl FilteredWork<'_> {
    /// Applies changes. Returns the entry that must be read before the rest of them, if there is such, and
    /// that rest.
    pub(super) fn changes(
        &mut self,
        changes: Vec<Change>,
        up_to: Revision,
        is_fetched: bool,
    ) -> Result<(Option<EntryId>, Vec<Change>)> {
        let (mut is_fetched, mut changes) = (is_fetched, changes.into_iter());
        while let Some(change) = changes.as_slice().first() {
            let revision = change.revision;
            if revision > self.mark.position {
                self.time = change.time;
                let fetch = self.change(&change.effect)?;
                // Once it was read, it is here, or no longer in the directory.
                if fetch.is_some() && !is_fetched {
                    return Ok((fetch, changes.collect()));
                }
                is_fetched = false;
                self.mark.position = revision;
            }
            changes.next();
        }
        self.mark.position = self.mark.position.max(up_to);
        Ok((None, Vec::new()))
    }

    fn change(&mut self, effect: &Effect) -> Result<Option<EntryId>> {
        match effect {
            Effect::Created { entry } | Effect::Committed { created: Some(entry), .. } => {
                self.created(entry)?;
            }
            Effect::Committed { guid, at, created: None, replica, checksums, .. } => {
                let fields = committed(replica, checksums);
                self.updated(at, EntryId::Object(*guid), &fields)?;
            }
            Effect::Updated { at, id, fields, .. } => self.updated(at, *id, fields)?,
            Effect::Moved { id, from, to, .. } => return self.moved(*id, from, to),
            Effect::Removed { id, at, .. } => self.removed(at, *id)?,
            // The removal of the directory above may have been skipped, because its row is from later.
            Effect::Purged { target: PurgeTarget::Below { at, .. }, entry } => {
                self.removed(at, entry.id())?
            }
            Effect::Restored { id, to, .. } => return self.arrived(*id, to),
            Effect::Recorded { key, after, .. } => self.recorded(*key, after.as_deref())?,
            // It has no trash, no deletion queues and no upload reservations.
            Effect::Purged { .. }
            | Effect::Reserved { .. }
            | Effect::Released { .. }
            | Effect::Dequeued { .. } => {}
        }
        Ok(None)
    }

    fn removed(&mut self, at: &At, id: EntryId) -> Result<()> {
        match self.standing(at, id)? {
            Some(entry) => self.depart(&entry),
            None => Ok(()),
        }
    }

    fn created(&mut self, entry: &Entry) -> Result<()> {
        if self.judge(&entry.at) == Within::Outside || self.find(entry.id())?.is_some() {
            return Ok(());
        }
        self.insert(entry)
    }

    /// Puts a new entry at its place. One that is there came later in the source, and its own change
    /// follows.
    pub(super) fn insert(&mut self, entry: &Entry) -> Result<()> {
        self.vacate(&entry.at)?;
        let mut entry = Entry { revision: self.next_revision(), ..entry.clone() };
        if let Body::Collection { members, .. } = &mut entry.body {
            *members = 0;
        }
        self.emit(&Effect::Created { entry: Box::new(entry) })
    }

    fn moved(&mut self, id: EntryId, from: &At, to: &At) -> Result<Option<EntryId>> {
        let Some(entry) = self.standing(from, id)? else { return self.arrived(id, to) };
        match (self.judge(from), self.judge(to)) {
            (_, Within::Outside) => {
                self.depart(&entry)?;
                Ok(None)
            }
            (was, is) => Ok((!self.relocate(&entry, to, was, is)?).then_some(id)),
        }
    }

    /// Moves an entry with everything below it; false if it was purged instead, and must be read.
    pub(super) fn relocate(&mut self, entry: &Entry, to: &At, was: Within, is: Within) -> Result<bool> {
        if let Some(directory) = entry.directory() {
            let mut is_below = false;
            self.read(|state, _| state.directories.climb(to.parent, |above| is_below |= above == directory));
            // Of a directory above only one child is here. And a row from later may have put the target
            // below the entry.
            if is_below || (was, is) != (Within::Inside, Within::Inside) {
                self.depart(entry)?;
                return Ok(false);
            }
        }
        let (id, from) = (entry.id(), &entry.at);
        self.vacate(to)?;
        // It may have been below the one that was there.
        let Some(entry) = self.standing(from, id)? else { return Ok(false) };
        self.emit(&Effect::Moved { id, from: from.clone(), to: to.clone(), previous: Some(entry.revision) })?;
        Ok(true)
    }

    /// Returns an entry that came to a place, if it must be read.
    fn arrived(&self, id: EntryId, to: &At) -> Result<Option<EntryId>> {
        let is_new = self.judge(to) != Within::Outside && self.find(id)?.is_none();
        Ok(is_new.then_some(id))
    }

    fn updated(&mut self, at: &At, id: EntryId, fields: &[FieldChange]) -> Result<()> {
        match self.standing(at, id)? {
            Some(entry) => self.update(&entry, fields),
            None => Ok(()),
        }
    }

    /// Changes the fields of an entry that differ.
    pub(super) fn update(&mut self, entry: &Entry, fields: &[FieldChange]) -> Result<()> {
        let mut fitting = Vec::with_capacity(fields.len());
        let mut checksums = entry.file().map(|file| file.checksums.clone()).unwrap_or_default();
        let mut members = HashMap::new();
        for field in fields {
            let fits = match (field, &entry.body) {
                (FieldChange::Checksum { after }, Body::File(_)) => {
                    checksums.get(after.algorithm()).is_none() && checksums.add(*after).is_ok()
                }
                (FieldChange::Job { .. } | FieldChange::Size { .. }, Body::File(_)) => true,
                (FieldChange::Replica { before, after, .. }, Body::File(_)) => {
                    let (before, after) = (before.clone(), after.clone());
                    // No copy is ever queued for deletion here.
                    fitting.push(FieldChange::Replica { before, after, deletion: None });
                    false
                }
                (FieldChange::Member { guid, added }, Body::Collection { guid: collection, .. }) => {
                    let is_member = match members.get(guid) {
                        Some(is_member) => *is_member,
                        None => self.read(|state, _| state.look().has_member(*collection, *guid))?,
                    };
                    members.insert(*guid, *added);
                    is_member != *added
                }
                (
                    FieldChange::Checksum { .. }
                    | FieldChange::Job { .. }
                    | FieldChange::Size { .. }
                    | FieldChange::Replica { .. }
                    | FieldChange::Member { .. },
                    _,
                ) => false,
                _ => true,
            };
            if fits {
                fitting.push(field.clone());
            }
        }
        if fitting.is_empty() {
            return Ok(());
        }
        let (id, at, previous) = (entry.id(), entry.at.clone(), Some(entry.revision));
        self.emit(&Effect::Updated { at, id, fields: fitting, previous })
    }

    fn recorded(&mut self, key: RecordKey, after: Option<&Record>) -> Result<()> {
        let name = after.and_then(Record::unique_name);
        let is_taken = name.is_some_and(|name| {
            self.read(|state, _| state.record_named(key.kind(), name).is_some_and(|other| other != key))
        });
        // Another record has the name in the source by now. So this one has lost it again, and its next
        // change follows.
        if is_taken { Ok(()) } else { self.set_record(key, after) }
    }

    /// Sets or drops a record, if it differs.
    pub(super) fn set_record(&mut self, key: RecordKey, after: Option<&Record>) -> Result<()> {
        let before = self.read(|state, _| state.record(key).map(|(record, _)| record.clone()));
        if before.as_ref() == after {
            return Ok(());
        }
        let (before, after) = (before.map(Box::new), after.cloned().map(Box::new));
        self.emit(&Effect::Recorded { key, before, after })
    }
}

/// Returns the fields that the commit of an upload changes in a file that existed.
fn committed(replica: &Replica, checksums: &Checksums) -> Vec<FieldChange> {
    let replica = FieldChange::Replica { before: None, after: Some(replica.clone()), deletion: None };
    let checksums = checksums.iter().map(|checksum| FieldChange::Checksum { after: *checksum });
    std::iter::once(replica).chain(checksums).collect()
}
