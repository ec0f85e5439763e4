//! Steps of a filtered follower, and the answers of its store.

use exacat_model::{Change, DirId, Entry, EntryId, Guid, Name, Record, RecordKey, RecordKind, Revision};

/// A step of a filtered follower. Its answer is durable.
#[derive(Clone, Debug)]
pub enum FilteredStep {
    /// Changes of the source after the position, in order.
    Changes {
        /// The changes.
        changes: Vec<Change>,
        /// Position after them.
        up_to: Revision,
        /// True if the entry that the first change needs was read.
        is_fetched: bool,
    },
    /// Rows of the source. They begin a walk, unless one goes on.
    Rows(Vec<FilteredRows>),
    /// Compare rows of the source with the state, and change nothing.
    Compare(Vec<FilteredRows>),
    /// The walk is complete.
    Walked {
        /// Position and hash of the identity of the source, if the walk was through the whole directory:
        /// all changes up to it are in the rows.
        whole: Option<(Revision, u64)>,
    },
    /// Note the position in the log, so that it outlives the process.
    Note,
}

/// Rows of the source, later than the position of the follower.
#[derive(Clone, Debug)]
pub enum FilteredRows {
    /// An entry.
    Entry(Box<Entry>),
    /// A page of a directory.
    Children {
        /// The directory.
        directory: DirId,
        /// The page has the names after this one.
        after: Option<Name>,
        /// The page has this name only.
        only: Option<Name>,
        /// Its entries.
        entries: Vec<Entry>,
        /// True if more names may follow.
        more: bool,
    },
    /// A page of the members of a collection.
    Members {
        /// The collection.
        collection: Guid,
        /// The page has the members after this one.
        after: Option<Guid>,
        /// The members.
        members: Vec<Guid>,
        /// True if more may follow.
        more: bool,
    },
    /// A page of the records of a kind.
    Records {
        /// The kind.
        kind: RecordKind,
        /// The page has the records after this one.
        after: Option<RecordKey>,
        /// The records.
        records: Vec<Record>,
        /// True if more may follow.
        more: bool,
    },
}

/// Answer to a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilteredReached {
    /// Position: all changes of the source up to it are applied.
    pub position: Revision,
    /// Entry to be read from the source before the rest of the changes.
    pub fetch: Option<EntryId>,
    /// Changes that wait for it.
    pub rest: Vec<Change>,
    /// Directories and collections among the rows whose content is to be read.
    pub inside: Vec<FilteredInside>,
    /// Differences from the rows that were compared.
    pub differing: Vec<FilteredDifference>,
}

/// A difference from a row of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilteredDifference {
    /// Path or name, for a person.
    pub what: String,
    /// Hash of what differs, of its row at the source, and of its revision here.
    pub hash: u64,
}

/// A directory or collection whose content is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilteredInside {
    /// Its identity.
    pub id: EntryId,
    /// The only name that counts in it, if it is above the directory of the follower.
    pub only: Option<Name>,
}
