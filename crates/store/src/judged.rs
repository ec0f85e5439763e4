//! Facts that a request's permission was judged by, so that the store can tell at the instant of
//! commit whether it would be judged the same.
//!
//! The catalogue judges on a state read a moment before, and another change may come between. A
//! request therefore carries the facts it was judged by: owner, group and mode of the entries that
//! were looked at, and the versions of the account and the token. The store compares them with the
//! state that the request is decided on (clause A11).

use exacat_model::{Entry, EntryId, GroupId, Mode, RecordKey, Revision, UserId, canonical_struct};

use crate::Gate;

/// The facts that a request was judged by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// A revision that all of the facts are not older than: what did not change since need not be
    /// compared.
    pub since: Revision,
    /// The versions of the accounts and the token that the caller was known by.
    pub records: Vec<(RecordKey, Revision)>,
    /// The entries that were looked at, sorted by id, each once. None if the caller may do
    /// everything, whatever the entries are.
    pub entries: Option<Vec<JudgedEntry>>,
}

canonical_struct!(Judged { since, records, entries });

/// Attributes of an entry that permission depends on.
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

impl From<&Gate> for JudgedEntry {
    fn from(gate: &Gate) -> Self {
        let Gate { id, owner, group, mode } = *gate;
        JudgedEntry { id: EntryId::Directory(id), owner, group, mode }
    }
}

impl From<&Entry> for JudgedEntry {
    fn from(entry: &Entry) -> Self {
        JudgedEntry { id: entry.id(), owner: entry.owner, group: entry.group, mode: entry.mode }
    }
}

impl Judged {
    /// Judged attributes of an entry; none if it was not looked at.
    pub fn entry(&self, id: EntryId) -> Option<&JudgedEntry> {
        let entries = self.entries.as_ref()?;
        entries.binary_search_by_key(&id, |entry| entry.id).ok().map(|place| &entries[place])
    }

    /// Was this directory, on the way to what is changed, looked at, and is it as it was?
    pub fn passes(&self, directory: JudgedEntry) -> bool {
        self.entry(directory.id) == Some(&directory)
    }

    /// Is the entry to be changed as it was, if it was looked at?
    pub fn allows(&self, entry: JudgedEntry) -> bool {
        self.entry(entry.id).is_none_or(|known| *known == entry)
    }
}
