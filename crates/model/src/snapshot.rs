//! Snapshots: the whole catalogue as it was at one revision, kept under a name.

use std::fmt;

use crate::entry::{Entry, Revision};
use crate::error::{Error, Result};
use crate::lfn::Lfn;
use crate::limits::SNAPSHOT_NAME_BYTES_MAX;
use crate::time::TimeMs;
use crate::timeline::TimelineId;
use crate::{canonical_struct, canonical_text};

/// A snapshot's name: 1 to 64 of `A-Z a-z 0-9 . _ -`, neither `.` nor `-` first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotName(Box<str>);

impl SnapshotName {
    /// Checks `text` and makes it a name.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > SNAPSHOT_NAME_BYTES_MAX {
            let what = "the length of a snapshot's name in bytes";
            return Err(Error::limit(what, text.len(), SNAPSHOT_NAME_BYTES_MAX));
        }
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if text.is_empty() || text.starts_with(['.', '-']) || !text.bytes().all(good) {
            return Err(Error::invalid(format!(
                "not a valid name of a snapshot (letters, digits, . _ -, neither . nor - first): {text:.100?}"
            )));
        }
        Ok(SnapshotName(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

canonical_text!(SnapshotName, "not a valid name of a snapshot");

/// What is known of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: SnapshotName,
    /// The last change in it.
    pub revision: Revision,
    /// The timeline of that change; none if nothing says.
    pub timeline: Option<TimelineId>,
    /// When it was taken.
    pub time: TimeMs,
    /// Entries in the tree and the trash, the root not counted.
    pub entries: u64,
    /// Of the state: equal for equal states.
    pub digest: [u8; 16],
    /// Bytes of all files it is made of.
    pub bytes: u64,
    /// Bytes of those among them that nothing else has: what dropping it frees.
    pub own_bytes: u64,
    /// Why it is of no use, if it is damaged. Then what else stands here may be 0.
    pub problem: Option<String>,
}

canonical_struct!(Snapshot { name, revision, timeline, time, entries, digest, bytes, own_bytes, problem });

/// What reading every page and every record of a snapshot found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotCheck {
    /// The last change in it.
    pub revision: Revision,
    /// Runs that were read whole.
    pub runs: u64,
    /// Rows in them.
    pub rows: u64,
    /// Changes that were read from its part of the log.
    pub changes: u64,
    /// Entries in the tree and the trash, the root not counted.
    pub entries: u64,
    /// What is wrong, each with file and place; empty if all is well.
    pub problems: Vec<String>,
}

canonical_struct!(SnapshotCheck { revision, runs, rows, changes, entries, problems });

/// An entry, and where it is in the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryAt {
    /// Its path.
    pub lfn: Lfn,
    /// The entry.
    pub entry: Entry,
}

canonical_struct!(EntryAt { lfn, entry });

/// How one entry differs between two states of the tree. What has no `before` was created, what has no `after` removed; what
/// has both changed, or moved, or both.
///
/// A directory that was removed, or came back from the trash, stands for all that is below it; one that moved as well.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The entry as it was.
    pub before: Option<EntryAt>,
    /// The entry as it is.
    pub after: Option<EntryAt>,
}

canonical_struct!(Difference { before, after });

/// How far a backup is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// What it is called in its directory.
    pub name: String,
    /// The last change in it.
    pub revision: Revision,
    /// Files that are there, and verified.
    pub files_done: u64,
    /// All files.
    pub files: u64,
    /// Bytes of what is there.
    pub bytes_done: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Of those that are there, what was copied now; the others were there before.
    pub bytes_copied: u64,
}

canonical_struct!(BackupProgress { name, revision, files_done, files, bytes_done, bytes, bytes_copied });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Decode, Encode};
    use crate::error::ErrorKind;

    #[test]
    fn names_are_checked_at_their_edges() {
        for good in ["a", "before-upgrade_2.1", "0", "_", &"n".repeat(SNAPSHOT_NAME_BYTES_MAX)] {
            let name = SnapshotName::parse(good).unwrap();
            assert_eq!(name.as_str(), good);
            assert_eq!(SnapshotName::from_bytes(&name.to_bytes()).unwrap(), name);
        }
        for bad in ["", ".", "..", ".hidden", "-x", "a/b", "a b", "ż", "a\0"] {
            assert_eq!(SnapshotName::parse(bad).unwrap_err().kind, ErrorKind::Invalid, "{bad:?}");
        }
        let long = "n".repeat(SNAPSHOT_NAME_BYTES_MAX + 1);
        assert_eq!(SnapshotName::parse(&long).unwrap_err().kind, ErrorKind::Limit);
        assert!(SnapshotName::from_bytes(&"../x".to_owned().to_bytes()).is_err());
    }
}
