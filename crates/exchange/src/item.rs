//! Request of a row: the entry or the membership that it asks for.

use exacat_model::operation::NewFile;
use exacat_model::{AccountName, FileRef, Lfn, Mode, Tag, TimeMs};

/// Request of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A file, and the collection that it becomes a member of.
    File(Box<NewFile>, Option<Lfn>),
    /// A directory, collection or link.
    Other(Other),
    /// A file becomes a member of a collection.
    Member {
        /// The collection.
        collection: Lfn,
        /// The file.
        file: FileRef,
    },
}

/// A directory, collection or link to create, with its given attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    /// Its path.
    pub lfn: Lfn,
    /// Its kind.
    pub what: OtherKind,
    /// Its owner.
    pub owner: Option<AccountName>,
    /// Its group.
    pub group: Option<AccountName>,
    /// Its mode.
    pub mode: Option<Mode>,
    /// Time its content was made.
    pub modified: Option<TimeMs>,
    /// Time at which it goes to the trash.
    pub expires: Option<TimeMs>,
    /// Its tags, sorted by key.
    pub tags: Vec<Tag>,
}

/// Kinds other than files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherKind {
    /// A directory.
    Directory,
    /// A collection.
    Collection,
    /// A link to this path.
    Link(Lfn),
}
