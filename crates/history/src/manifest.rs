//! The manifest: the files that count, and the place in the log that they are complete up to.
//!
//! It is replaced as a whole, by a rename. A file that it does not name does not count, and opening
//! removes it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use exacat_disk::{Disk, cannot_read, cannot_write, corrupt, exists};
use exacat_log::chain::RecordPlace;
use exacat_model::codec::{Decode, Encode, Reader};
use exacat_model::{GroupSettings, Result, Revision, TimeMs, canonical_struct};

use crate::archive::ArchivedEntries;
use crate::checked_file::{FileHead, FileKind, HistoryId};

/// Name of the manifest in the directory of the history.
pub(crate) const FILE: &str = "manifest";

/// A run, as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunEntry {
    pub number: u64,
    /// Number of the newest flush whose rows it has: its own, or the largest of the runs it was merged
    /// from.
    pub newest: u64,
    /// UTC day of its rows, plus [`DAY_ZERO`], so that it is not negative.
    pub day: u32,
    /// Salt of its header: a run of this number with another content does not pass.
    pub salt: u64,
}

canonical_struct!(RunEntry { number, newest, day, salt });

/// Offset of days in the manifest. Times of 64 bits reach 106 752 days before and after 1970.
const DAY_ZERO: i32 = 106_752;

impl RunEntry {
    pub(crate) fn new(number: u64, day: i32, salt: u64) -> Self {
        // Days of 64-bit times are not below.
        RunEntry { number, newest: number, day: (day + DAY_ZERO).unsigned_abs(), salt }
    }

    pub(crate) fn day(&self) -> i32 {
        i32::try_from(self.day).unwrap_or(i32::MAX) - DAY_ZERO
    }
}

/// A group, as the manifest has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupEntry {
    pub id: u32,
    pub settings: GroupSettings,
    /// Files of names, in order.
    pub names: Vec<u64>,
    /// File of latest values. It has those of all runs whose `newest` is below its number.
    pub latest: Option<u64>,
    /// Runs, each day's in order of age.
    pub runs: Vec<RunEntry>,
}

canonical_struct!(GroupEntry { id, settings, names, latest, runs });

/// Content of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Last record of the log whose effects are in the files.
    pub revision: u64,
    /// Digest of all records up to that one.
    pub digest: [u8; 16],
    /// Time of that record.
    pub time: TimeMs,
    /// Number of the next file.
    pub next_file: u64,
    /// Number of the next group.
    pub next_group: u32,
    pub groups: Vec<GroupEntry>,
    pub archived: ArchivedEntries,
}

canonical_struct!(Manifest { revision, digest, time, next_file, next_group, groups, archived });

impl Manifest {
    /// Returns the place in the log that the files are complete up to.
    pub(crate) fn place(&self) -> RecordPlace {
        RecordPlace {
            revision: Revision(self.revision),
            digest: u128::from_le_bytes(self.digest),
            time: self.time,
        }
    }

    /// Takes the number of a new file.
    pub(crate) fn take_number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file - 1
    }

    pub(crate) fn set_place(&mut self, place: RecordPlace) {
        self.revision = place.revision.0;
        self.digest = place.digest.to_le_bytes();
        self.time = place.time;
    }

    /// Returns the paths of all files that count.
    pub(crate) fn files(&self, layout: &Layout) -> BTreeSet<PathBuf> {
        let mut files = BTreeSet::new();
        for group in &self.groups {
            files.extend(group.names.iter().map(|number| layout.names(*number)));
            files.extend(group.latest.map(|number| layout.latest(number)));
            files.extend(group.runs.iter().map(|run| layout.run(run.number)));
        }
        files
    }

    /// Reads the manifest; none if there is no file.
    pub(crate) fn read(disk: &dyn Disk, directory: &Path, history: HistoryId) -> Result<Option<Self>> {
        let path = directory.join(FILE);
        let name = path.display().to_string();
        if !exists(disk, &path).map_err(|error| cannot_read(&name, &error))? {
            return Ok(None);
        }
        let content = Self::head(history).read(disk, &path)?;
        let mut reader = Reader::new(&content);
        let manifest = Self::decode(&mut reader).and_then(|manifest| reader.finish().map(|()| manifest));
        manifest.map(Some).map_err(|error| corrupt(&name, 64, error))
    }

    /// Replaces the manifest, atomically and durably.
    pub(crate) fn write(&self, disk: &dyn Disk, directory: &Path, history: HistoryId) -> Result<()> {
        let mut content = Vec::new();
        self.encode(&mut content);
        let path = directory.join(FILE);
        let unfinished = directory.join(format!("{FILE}.unfinished"));
        Self::head(history).write(disk, &unfinished, &content)?;
        let renamed = disk.rename(&unfinished, &path).and_then(|()| disk.sync_directory(directory));
        renamed.map_err(|error| cannot_write(&path, &error))
    }

    fn head(history: HistoryId) -> FileHead {
        FileHead { history, kind: FileKind::Manifest, group: 0 }
    }
}

/// Places of the files of a history.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub root: PathBuf,
}

impl Layout {
    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.root.join("files")
    }

    pub(crate) fn run(&self, number: u64) -> PathBuf {
        self.files().join(format!("{number:020}.run"))
    }

    pub(crate) fn names(&self, number: u64) -> PathBuf {
        self.files().join(format!("{number:020}.names"))
    }

    pub(crate) fn latest(&self, number: u64) -> PathBuf {
        self.files().join(format!("{number:020}.latest"))
    }
}
