//! Finding what there is: by name, by GUID, by identity, in the tree and the trash.
//!
//! A look-up reads the state of a moment: directories, accounts and records in memory, everything else in the table. It
//! waits for the disk where it must - or, for who holds the lock, it does not, see [`Held`].

use exacat_model::{At, DirId, Edit, Entry, EntryId, Guid, Mutation, PurgeTarget, Revision, TrashId};

use super::{Above, State};
use crate::defect::Defect;
use crate::keyspace;
use crate::page::{Row, Trashed};
use crate::run::{Held, Reading};
use crate::table::{From, View};

/// What looks things up in a state.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'s> {
    pub state: &'s State,
    pub view: View<'s>,
}

/// An answer, and the revision from which on it has been true: what it tells of has not changed since. So it may be given as
/// soon as that is durable, whatever came after it.
pub(crate) type AsOf<T> = (T, Revision);

/// An entry that was found by what it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub entry: Entry,
    /// The item of the trash that it is itself.
    pub trash: Option<TrashId>,
}

/// Answers to many that are only good if all are: one that is not in memory lets the others be noted.
pub(super) struct AllOrNote<T> {
    answers: Vec<T>,
    missing: bool,
}

impl<T> AllOrNote<T> {
    pub fn with_room(count: usize) -> Self {
        AllOrNote { answers: Vec::with_capacity(count), missing: false }
    }

    pub fn take(&mut self, answer: Result<T, Defect>) -> Result<(), Defect> {
        match answer {
            Ok(answer) => self.answers.push(answer),
            Err(Defect::NotInMemory) => self.missing = true,
            Err(other) => return Err(other),
        }
        Ok(())
    }

    pub fn end(self) -> Result<Vec<T>, Defect> {
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
    /// To look things up; who gives what to hold does not wait for the disk.
    pub fn look_with<'s>(&'s self, held: Option<&'s Held>) -> Lookup<'s> {
        Lookup { state: self, view: self.table.view(held) }
    }

    /// To look things up, waiting for the disk.
    pub fn look(&self) -> Lookup<'_> {
        self.look_with(None)
    }

    /// To look everything up once.
    pub fn look_in_passing(&self) -> Lookup<'_> {
        Lookup { state: self, view: self.table.view_by(Reading::in_passing()) }
    }
}

impl Lookup<'_> {
    /// Since when what is directly in a directory, and what is not, is as it is.
    pub fn content_of(&self, directory: DirId) -> Revision {
        self.state.directory(directory).map_or(self.state.revision, |directory| directory.content)
    }

    /// What stands there, in the tree or below an item of the trash.
    pub fn find(&self, at: &At) -> Result<Option<Entry>, Defect> {
        self.at(at, entry_of)?
    }

    /// Gives `take` the row of what stands there.
    pub fn at<T>(&self, at: &At, take: impl FnOnce(Option<&Row<'_>>) -> T) -> Result<T, Defect> {
        if !keyspace::is_directory(at.parent) {
            return Ok(take(None));
        }
        self.view.find(keyspace::directory_of(at), at.name.as_str().as_bytes(), take)
    }

    /// Does anything stand there?
    pub fn has(&self, at: &At) -> Result<bool, Defect> {
        self.at(at, |row| row.is_some())
    }

    /// The file, collection or link of this identity, wherever it is.
    pub fn find_guid(&self, guid: Guid) -> Result<Option<Found>, Defect> {
        self.view.find_guid(guid, |row| {
            let Some(row) = row else { return Ok(None) };
            let trash = if row.parent == keyspace::TRASH { keyspace::trash_id(row.name) } else { None };
            Ok(row.entry()?.map(|entry| Found { entry, trash }))
        })?
    }

    /// Has anything this identity?
    pub fn has_guid(&self, guid: Guid) -> Result<bool, Defect> {
        self.view.has_guid(guid)
    }

    /// The entry of this identity, wherever it is.
    pub fn find_id(&self, id: EntryId) -> Result<Option<Found>, Defect> {
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
        Ok(Some(Found { entry: entry.ok_or_else(missing)?, trash }))
    }

    /// An item of the trash.
    pub fn trashed(&self, id: TrashId) -> Result<Option<(Entry, Trashed)>, Defect> {
        self.view.find(keyspace::TRASH, &keyspace::trash_key(id), |row| {
            let Some(row) = row else { return Ok(None) };
            let item = row.trashed()?;
            Ok(row.entry()?.zip(item))
        })?
    }

    pub fn has_member(&self, collection: Guid, member: Guid) -> Result<bool, Defect> {
        self.view.has(keyspace::MEMBERS, &keyspace::member_key(collection, member))
    }

    /// Goes through the rows of one directory or table whose names begin with `prefix`, after `after`, until `take` says
    /// no.
    pub fn scan(
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

    /// Is it in the tree, that is not in the trash nor below an item of it?
    pub fn is_in_tree(&self, found: &Found) -> bool {
        found.trash.is_none() && self.state.is_alive(found.entry.at.parent)
    }

    /// Looks up what deciding a mutation will, so that its pages are in memory then. What is created is not looked up: most
    /// often nothing is there, and that is known without any page.
    pub fn rehearse(&self, mutation: &Mutation) -> Result<(), Defect> {
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
            Mutation::Book(booking) => seen(self.has_guid(booking.guid)),
            Mutation::Commit { guid, at, .. } => seen(self.has_guid(*guid)).and_then(|()| seen(self.has(at))),
            Mutation::Release { guid, .. } => seen(self.has_guid(*guid)),
            Mutation::Dequeue { se, done } => {
                let mut keys = done.iter().map(|id| keyspace::deletion_key(*se, *id));
                keys.try_for_each(|key| seen(self.view.has(keyspace::DELETIONS, &key)))
            }
        }
    }
}
