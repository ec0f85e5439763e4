//! Look-ups: by name, by GUID, by identity, in the tree and the trash.
//!
//! A look-up reads the state of one moment: directories, accounts and records in memory, everything
//! else in the table. It waits for the disk where it must. A caller that holds the lock passes a
//! [`Held`], and the look-up does not wait.

use exacat_model::codec::Encode;
use exacat_model::{At, DirId, Edit, Entry, EntryId, Guid, Mutation, PurgeTarget, Revision, TrashId};

use exacat_store::rules::FoundEntry;

use super::{Above, State};
use crate::defect::Defect;
use crate::keyspace;
use crate::page::{Row, Trashed};
use crate::run::{Held, Reading};
use crate::table::{From, View};

/// Context of look-ups in a state.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'s> {
    pub state: &'s State,
    pub view: View<'s>,
}

/// An answer, and the revision since which it has been true. It may be returned once that revision
/// is durable, whatever came after it.
pub(crate) type AsOf<T> = (T, Revision);

/// Answers that are only useful together: if one is not in memory, the look-up of the others still
/// notes their pages.
pub(super) struct AllOrNote<T> {
    answers: Vec<T>,
    missing: bool,
}

impl<T> AllOrNote<T> {
    pub(crate) fn with_room(count: usize) -> Self {
        AllOrNote { answers: Vec::with_capacity(count), missing: false }
    }

    pub(crate) fn take(&mut self, answer: Result<T, Defect>) -> Result<(), Defect> {
        match answer {
            Ok(answer) => self.answers.push(answer),
            Err(Defect::NotInMemory) => self.missing = true,
            Err(other) => return Err(other),
        }
        Ok(())
    }

    pub(crate) fn end(self) -> Result<Vec<T>, Defect> {
        if self.missing { Err(Defect::NotInMemory) } else { Ok(self.answers) }
    }
}

fn entry_of(row: Option<&Row<'_>>) -> Result<Option<Entry>, Defect> {
    match row {
        Some(row) => Ok(row.entry()?),
        None => Ok(None),
    }
}

impl State {
    /// Returns a context for look-ups. With `held` they do not wait for the disk.
    pub(crate) fn look_with<'s>(&'s self, held: Option<&'s Held>) -> Lookup<'s> {
        Lookup { state: self, view: self.table.view(held) }
    }

    /// Returns a context for look-ups that wait for the disk.
    pub(crate) fn look(&self) -> Lookup<'_> {
        self.look_with(None)
    }

    /// Returns a context for reading everything once.
    pub(crate) fn look_in_passing(&self) -> Lookup<'_> {
        Lookup { state: self, view: self.table.view_by(Reading::in_passing()) }
    }
}

impl Lookup<'_> {
    /// Returns the revision since which the direct content of a directory is unchanged, absent
    /// names included.
    pub(crate) fn content_of(&self, directory: DirId) -> Revision {
        self.state.directory(directory).map_or(self.state.revision, |directory| directory.content)
    }

    /// Returns the entry at this place, in the tree or below an item of the trash.
    pub(crate) fn find(&self, at: &At) -> Result<Option<Entry>, Defect> {
        self.at(at, entry_of)?
    }

    /// Passes the row at this place to `take`.
    pub(crate) fn at<T>(&self, at: &At, take: impl FnOnce(Option<&Row<'_>>) -> T) -> Result<T, Defect> {
        if !keyspace::is_directory(at.parent) {
            return Ok(take(None));
        }
        self.view.find(keyspace::directory_of(at), at.name.as_str().as_bytes(), take)
    }

    /// Says whether there is an entry at this place.
    pub(crate) fn has(&self, at: &At) -> Result<bool, Defect> {
        self.at(at, |row| row.is_some())
    }

    /// Returns the file, collection or link with this GUID, wherever it is.
    pub(crate) fn find_guid(&self, guid: Guid) -> Result<Option<FoundEntry>, Defect> {
        self.view.find_guid(guid, |row| {
            let Some(row) = row else { return Ok(None) };
            let trash = if row.parent == keyspace::TRASH { keyspace::trash_id(row.name) } else { None };
            Ok(row.entry()?.map(|entry| FoundEntry { entry, trash }))
        })?
    }

    /// Says whether anything has this GUID.
    pub(crate) fn has_guid(&self, guid: Guid) -> Result<bool, Defect> {
        self.view.has_guid(guid)
    }

    /// Returns the entry with this identity, wherever it is.
    pub(crate) fn find_id(&self, id: EntryId) -> Result<Option<FoundEntry>, Defect> {
        let id = match id {
            EntryId::Object(guid) => return self.find_guid(guid),
            EntryId::Directory(id) => id,
        };
        let Some(directory) = self.state.directory(id) else { return Ok(None) };
        let name = directory.name.as_bytes();
        let (entry, trash) = match directory.above {
            Above::Nothing => (self.view.find(keyspace::ROOT_IN, b"/", entry_of)??, None),
            Above::Directory(parent) => (self.view.find(parent, name, entry_of)??, None),
            Above::Trash(item) => {
                (self.view.find(keyspace::TRASH, &keyspace::trash_key(item), entry_of)??, Some(item))
            }
        };
        let missing = || Defect::new(format!("the entry of directory {} is missing", id.0));
        Ok(Some(FoundEntry { entry: entry.ok_or_else(missing)?, trash }))
    }

    /// Returns an item of the trash.
    pub(crate) fn trashed(&self, id: TrashId) -> Result<Option<(Entry, Trashed)>, Defect> {
        self.view.find(keyspace::TRASH, &keyspace::trash_key(id), |row| {
            let Some(row) = row else { return Ok(None) };
            let item = row.trashed()?;
            Ok(row.entry()?.zip(item))
        })?
    }

    pub(crate) fn has_member(&self, collection: Guid, member: Guid) -> Result<bool, Defect> {
        self.view.has(keyspace::MEMBERS, &keyspace::member_key(collection, member))
    }

    /// Passes the rows of one directory or table to `take`, whose names begin with `prefix` and
    /// follow `after`, until `take` returns false.
    pub(crate) fn scan(
        &self,
        directory: DirId,
        prefix: &[u8],
        after: Option<&[u8]>,
        mut take: impl FnMut(&Row<'_>) -> Result<bool, Defect>,
    ) -> Result<(), Defect> {
        let (name, after) = after.map_or((prefix, false), |name| (name, true));
        let mut rows = self.view.within(From { directory, name, after })?;
        while let Some(row) = rows.next_there()? {
            if !row.name.starts_with(prefix) || !take(&row)? {
                break;
            }
        }
        Ok(())
    }

    /// Looks up everything that deciding a mutation will, so that its pages are in memory then.
    /// Names to be created are skipped: most do not exist, and the filters reveal that without any
    /// page.
    pub(crate) fn rehearse(&self, mutation: &Mutation) -> Result<(), Defect> {
        fn seen<T>(answer: Result<T, Defect>) -> Result<(), Defect> {
            match answer {
                Ok(_) | Err(Defect::NotInMemory) => Ok(()),
                Err(other) => Err(other),
            }
        }
        match mutation {
            Mutation::Create(_) | Mutation::SetRecord { .. } | Mutation::DropRecord { .. } => Ok(()),
            Mutation::Update { at, edits, .. } => {
                seen(self.has(at))?;
                edits.iter().try_for_each(|edit| match edit {
                    Edit::AddMember(guid) => seen(self.has_guid(*guid)),
                    _ => Ok(()),
                })
            }
            Mutation::Remove { at, .. } => seen(self.has(at)),
            Mutation::Move { from, to, .. } | Mutation::RestoreBelow { from, to, .. } => {
                seen(self.has(from)).and_then(|()| seen(self.has(to)))
            }
            Mutation::Restore { trash, to } => seen(self.trashed(*trash)).and_then(|()| seen(self.has(to))),
            Mutation::Purge(PurgeTarget::Item(trash)) => seen(self.trashed(*trash)),
            Mutation::Purge(PurgeTarget::Below { at, .. }) => seen(self.has(at)),
            Mutation::Reserve(reservation) => seen(self.has_guid(reservation.guid)),
            Mutation::Commit { guid, at, .. } => seen(self.has_guid(*guid)).and_then(|()| seen(self.has(at))),
            Mutation::Release { guid, .. } => seen(self.has_guid(*guid)),
            Mutation::Dequeue { se, done } => {
                let mut keys = done.iter().map(|id| keyspace::deletion_key(*se, *id));
                keys.try_for_each(|key| seen(self.view.has(keyspace::DELETIONS, &key)))
            }
        }
    }

    /// Returns the approximate maximum of bytes that log and memory may need for a mutation. These
    /// are its own bytes twice (a value can return as a before), and those of the entries in it.
    pub(crate) fn bytes_at_most(&self, mutation: &Mutation) -> Result<usize, Defect> {
        /// Bytes for an effect's numbers, and around it.
        const AROUND: usize = 256;
        let state = self.state;
        let bytes = |row: Option<&Row<'_>>| row.map_or(0, Row::bytes);
        let named = match mutation {
            Mutation::Update { at, .. } | Mutation::Remove { at, .. } => self.at(at, bytes)?,
            Mutation::Move { from, .. } | Mutation::RestoreBelow { from, .. } => self.at(from, bytes)?,
            Mutation::Restore { trash, .. } | Mutation::Purge(PurgeTarget::Item(trash)) => {
                self.view.find(keyspace::TRASH, &keyspace::trash_key(*trash), bytes)?
            }
            Mutation::Purge(PurgeTarget::Below { at, .. }) => self.at(at, bytes)?,
            Mutation::Commit { guid, .. } => self.view.find_guid(*guid, bytes)?,
            _ => 0,
        };
        let kept = match mutation {
            Mutation::Commit { guid, .. } | Mutation::Release { guid, .. } => {
                state.reservation(*guid).map(Encode::to_bytes)
            }
            Mutation::Reserve(reservation) => state.reservation(reservation.guid).map(Encode::to_bytes),
            Mutation::SetRecord { record, .. } => {
                state.record(record.key()).map(|(record, _)| record.to_bytes())
            }
            Mutation::DropRecord { key, .. } => state.record(*key).map(|(record, _)| record.to_bytes()),
            _ => None,
        };
        let edits = match mutation {
            Mutation::Update { edits, .. } => edits.len() * 64,
            _ => 0,
        };
        Ok(AROUND + edits + 2 * named + kept.map_or(0, |bytes| bytes.len()))
    }
}
