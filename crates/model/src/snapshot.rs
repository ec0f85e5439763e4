//! Snapshots: the whole catalogue at one revision, kept under a name.

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
    /// Checks `text` and converts it to a name.
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

    /// Returns the name as text.
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

/// Description of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: SnapshotName,
    /// The last change in it.
    pub revision: Revision,
    /// Timeline of that change; none if it is not recorded.
    pub timeline: Option<TimelineId>,
    /// Time it was taken.
    pub time: TimeMs,
    /// Entries in the tree and the trash, the root not counted.
    pub entries: u64,
    /// Digest of the state; equal for equal states.
    pub digest: [u8; 16],
    /// Bytes of all its files.
    pub bytes: u64,
    /// Bytes of the files that only this snapshot has: the space that dropping it frees.
    pub own_bytes: u64,
    /// Reason why it is unusable, if it is damaged. The other fields may then be 0.
    pub problem: Option<String>,
    /// Values of elements in it; none if its server had no history of elements.
    pub elements: Option<SnapshotElements>,
}

canonical_struct!(Snapshot {
    name,
    revision,
    timeline,
    time,
    entries,
    digest,
    bytes,
    own_bytes,
    problem,
    elements
});

/// Part of a snapshot: the values of elements at its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotElements {
    /// Last record of the log of values.
    pub revision: Revision,
    /// Time of that record.
    pub time: TimeMs,
}

canonical_struct!(SnapshotElements { revision, time });

/// Result of reading every page and every record of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotCheck {
    /// The last change in it.
    pub revision: Revision,
    /// Sorted runs that the check read whole.
    pub runs: u64,
    /// Rows in these runs.
    pub rows: u64,
    /// Changes that the check read from its part of the log.
    pub changes: u64,
    /// Entries in the tree and the trash, the root not counted.
    pub entries: u64,
    /// Faults, each with file and place; empty if there are none.
    pub problems: Vec<String>,
}

canonical_struct!(SnapshotCheck { revision, runs, rows, changes, entries, problems });

/// An entry with its path.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryAt {
    /// Its path.
    pub lfn: Lfn,
    /// The entry.
    pub entry: Entry,
}

canonical_struct!(EntryAt { lfn, entry });

/// Difference of one entry between two states of the tree. Without `before` it was created, without
/// `after` removed. With both it changed, or moved, or both.
///
/// A directory that was removed, restored from the trash or moved represents everything below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The entry before.
    pub before: Option<EntryAt>,
    /// The entry after.
    pub after: Option<EntryAt>,
}

canonical_struct!(Difference { before, after });

/// Progress of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// Name in the directory of backups.
    pub name: String,
    /// The last change in it.
    pub revision: Revision,
    /// Files that are present and verified.
    pub files_done: u64,
    /// Number of all files.
    pub files: u64,
    /// Bytes of the files that are present.
    pub bytes_done: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that this backup copied; the other present files were there before.
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
