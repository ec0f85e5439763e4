//! Facts behind a permission decision. With them the store can tell at the commit whether the
//! decision still holds.
//!
//! The catalogue judges permission on a state read a moment before, and another change may come
//! between. A request therefore carries the facts that it was judged by: owner, group and mode of
//! the entries read, and the versions of the account and the token. The store compares them with
//! the state on which it decides the request (clause A11).

use exacat_model::{Entry, EntryId, GroupId, Mode, RecordKey, Revision, UserId, canonical_struct};

use crate::Ancestor;

/// Facts that a request's permission was judged by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Revision of the oldest fact or an earlier one. The store need not compare what has not
    /// changed since.
    pub since: Revision,
    /// Revisions of the account and token records that identified the caller.
    pub records: Vec<(RecordKey, Revision)>,
    /// Entries that were read, sorted by id, each once. None if the caller may do everything on any
    /// entry.
    pub entries: Option<Vec<JudgedEntry>>,
}

canonical_struct!(Judged { since, records, entries });

/// The attributes of an entry that permission depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedEntry {
    /// The entry.
    pub id: EntryId,
    /// Its owner.
    pub owner: UserId,
    /// Its group.
    pub group: GroupId,
    /// Its mode.
    pub mode: Mode,
}

canonical_struct!(JudgedEntry { id, owner, group, mode });

impl From<&Ancestor> for JudgedEntry {
    fn from(ancestor: &Ancestor) -> Self {
        let Ancestor { id, owner, group, mode } = *ancestor;
        JudgedEntry { id: EntryId::Directory(id), owner, group, mode }
    }
}

impl From<&Entry> for JudgedEntry {
    fn from(entry: &Entry) -> Self {
        JudgedEntry { id: entry.id(), owner: entry.owner, group: entry.group, mode: entry.mode }
    }
}

impl Judged {
    /// Returns the judged attributes of an entry; none if it was not read.
    pub fn entry(&self, id: EntryId) -> Option<&JudgedEntry> {
        let entries = self.entries.as_ref()?;
        entries.binary_search_by_key(&id, |entry| entry.id).ok().map(|place| &entries[place])
    }

    /// Says whether a directory above a changed entry was read and still has the same attributes.
    pub fn passes(&self, directory: JudgedEntry) -> bool {
        self.entry(directory.id) == Some(&directory)
    }

    /// Says whether the changed entry still has the same attributes, if it was read.
    pub fn allows(&self, entry: JudgedEntry) -> bool {
        self.entry(entry.id).is_none_or(|known| *known == entry)
    }
}
