//! The archive of old days, as the history sees it. Another crate writes and reads its files.
//!
//! A day goes to the archive in this order: its files are written; a commit of the archive names them; the
//! manifest names them in place of the runs. Before the last step the runs count, and the archive forgets
//! unnamed files by its next commit. So no step can lose or double a row.
//!
//! An archive has one owner, an [`ArchiveOwner`]: each commit is refused to all others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::element::ElementRows;
use exacat_model::{GroupSettings, Result, TimeMs, canonical_struct};
use parking_lot::{Mutex, RwLockReadGuard};

use crate::names::Names;
use crate::run::Wanted;
use crate::sorted::SortedRows;

/// A file of the archive. It has rows of one group and one UTC day, and never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedFile {
    /// Path below the place of the archive.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Rows by identity.
    pub rows: u64,
    /// Rows as the file counts them.
    pub records: u64,
    /// XXH3-128 by which its archive notices damage: of the end of the file, which has the digests of all
    /// other bytes; of all bytes in files of earlier releases.
    pub digest: [u8; 16],
    /// Smallest and largest element.
    pub elements: (u32, u32),
    /// Smallest and largest time.
    pub times: (i64, i64),
}

canonical_struct!(ArchivedFile { path, bytes, rows, records, digest, elements, times });

/// A group as the archive needs it: its name, and the names of its elements and fields.
pub trait NamedGroup: Send + Sync {
    /// Returns its settings.
    fn settings(&self) -> GroupSettings;
    /// Locks its names to read them. New names wait meanwhile.
    fn names(&self) -> RwLockReadGuard<'_, Names>;
}

/// Owner of an archive: one incarnation of a history. Copies of a history share its identity, and each
/// restored one or clone draws an incarnation of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveOwner {
    /// Identity of the history.
    pub history: [u8; 16],
    /// Random number that the history drew when it took the archive.
    pub incarnation: [u8; 16],
    /// Time at which it took the archive.
    pub since: TimeMs,
    /// Its directory, for people.
    pub directory: String,
    /// Name of its machine, for people.
    pub host: String,
}

impl ArchiveOwner {
    /// Says whether both are the same incarnation of the same history.
    pub fn is(&self, other: &ArchiveOwner) -> bool {
        (self.history, self.incarnation) == (other.history, other.incarnation)
    }
}

/// A file that readers of the archive see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleFile {
    /// Path below the place of the archive.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Name of its group.
    pub group: String,
    /// Its UTC day, as days since 1970.
    pub day: i32,
}

/// Files of the archive. All methods wait for the place of the archive; none runs on an async thread.
pub trait Archive: Send + Sync {
    /// Writes the rows of a day to new files and makes them durable. No reader of the archive sees them yet.
    /// Files are in the order of their rows, and rows of one element and time are in one file. The files note
    /// `complete`: they have all rows of the records up to that one; none if that is unknown.
    fn write(
        &self,
        group: &Arc<dyn NamedGroup>,
        day: i32,
        complete: Option<u64>,
        rows: &mut dyn SortedRows,
    ) -> Result<Vec<ArchivedFile>>;

    /// Makes exactly these files visible to the readers of the archive, in one commit. Refused with
    /// `Conflict` unless the caller owns the archive, also if it lost the archive a moment ago.
    fn publish(&self, caller: &ArchiveOwner, now: TimeMs, files: &[ArchivedFile]) -> Result<()>;

    /// Deletes the files that no reader of the archive sees any more, after a delay. Only for the owner.
    fn clean(&self, caller: &ArchiveOwner, now: TimeMs) -> Result<()>;

    /// Returns the place of the archive, as the operator gave it.
    fn name(&self) -> String;

    /// Returns the owner; none if nobody has taken the archive yet.
    fn owner(&self) -> Result<Option<ArchiveOwner>>;

    /// Makes the caller the owner of an archive without one. Refused with `Conflict` if the archive has an
    /// owner, belongs to another history, or its readers do not see exactly `files`.
    fn claim(&self, caller: &ArchiveOwner, files: &[ArchivedFile]) -> Result<()>;

    /// Makes the caller the owner, whoever was it before. From then on no commit of the former owner counts.
    /// Refused with `Conflict` if the archive belongs to another history.
    fn take_over(&self, caller: &ArchiveOwner, now: TimeMs) -> Result<()>;

    /// Returns the files that readers of the archive see. Refused with `Conflict` if the archive belongs to
    /// another history.
    fn visible(&self, history: [u8; 16]) -> Result<Vec<VisibleFile>>;

    /// Says whether a file is there, with its length.
    fn has(&self, file: &ArchivedFile) -> Result<bool>;

    /// Passes the rows of a file to `give`, with the keys of their elements instead of numbers: another
    /// incarnation may have given numbers of its own. Returns the record up to which the file is complete.
    fn named_rows(
        &self,
        file: &VisibleFile,
        give: &mut dyn FnMut(&[ElementRows]) -> Result<()>,
    ) -> Result<Option<u64>>;

    /// Reads the wanted rows of a day's files. A file is opened when its first row is asked for.
    fn scan(
        &self,
        group: &Arc<dyn NamedGroup>,
        files: &[ArchivedFile],
        wanted: &Wanted,
    ) -> Box<dyn SortedRows>;
}

/// Settings of the archive.
#[derive(Clone)]
pub struct ArchiveSettings {
    /// Its files.
    pub archive: Arc<dyn Archive>,
    /// Age in whole UTC days after which a day is archived, on trusted time.
    pub after_days: u32,
}

/// Counters of the archive since the history was opened.
#[derive(Debug, Default)]
pub struct ArchiveMetrics {
    /// Days that were archived.
    pub days: AtomicU64,
    /// Rows of these days.
    pub rows: AtomicU64,
    /// Bytes of their files.
    pub bytes: AtomicU64,
    /// Attempts that failed. The runs stayed, and a later attempt repeats them.
    pub failures: AtomicU64,
    /// Reason why the last attempt failed; none if it did not.
    failed: Mutex<Option<Arc<str>>>,
}

impl ArchiveMetrics {
    /// Returns the reason why the last attempt failed; none if it did not.
    pub fn failed(&self) -> Option<Arc<str>> {
        self.failed.lock().clone()
    }

    pub(crate) fn note(&self, done: &Result<()>) {
        *self.failed.lock() = done.as_ref().err().map(|error| error.message.as_str().into());
        self.failures.fetch_add(u64::from(done.is_err()), Ordering::Relaxed);
    }
}

/// An archived day, as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArchivedEntry {
    pub group: u32,
    pub day: i64,
    pub files: Vec<ArchivedFile>,
}

canonical_struct!(ArchivedEntry { group, day, files });

/// Archived days at the end of the manifest. A manifest of an earlier release ends before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArchivedEntries(pub Vec<ArchivedEntry>);

impl Encode for ArchivedEntries {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl Decode for ArchivedEntries {
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        if reader.is_empty() {
            return Ok(ArchivedEntries::default());
        }
        let entries: Vec<ArchivedEntry> = Vec::decode(reader)?;
        if entries.iter().any(|entry| i32::try_from(entry.day).is_err()) {
            return Err(reader.error("an archived day out of range"));
        }
        Ok(ArchivedEntries(entries))
    }
}
