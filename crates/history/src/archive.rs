//! The archive of old days, as the history sees it. Another crate writes and reads its files.
//!
//! A day goes to the archive in this order: its files are written; a commit of the archive names them; the
//! manifest names them in place of the runs. Before the last step the runs count, and the archive forgets
//! unnamed files by its next commit. So no step can lose or double a row.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::{Error, ErrorKind, GroupSettings, Result, TimeMs, canonical_struct};
use parking_lot::{Mutex, RwLockReadGuard};

use crate::names::Names;
use crate::run::{Elements, Wanted};
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
    /// XXH3-128 of its bytes.
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

/// Files of the archive. All methods wait for the place of the archive; none runs on an async thread.
pub trait Archive: Send + Sync {
    /// Writes the rows of a day to new files and makes them durable. No reader of the archive sees them yet.
    /// Files are in the order of their rows, and rows of one element and time are in one file.
    fn write(
        &self,
        group: &Arc<dyn NamedGroup>,
        day: i32,
        rows: &mut dyn SortedRows,
    ) -> Result<Vec<ArchivedFile>>;

    /// Makes exactly these files visible to the readers of the archive, in one commit. `history` is the
    /// identity of the caller: an archive has one history only.
    fn publish(&self, history: [u8; 16], now: TimeMs, files: &[ArchivedFile]) -> Result<()>;

    /// Deletes the files that no reader of the archive sees any more, after a delay.
    fn clean(&self, now: TimeMs) -> Result<()>;

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

/// Archived days of a group.
#[derive(Clone, Default)]
pub(crate) struct ArchivedDays {
    pub days: BTreeMap<i32, Arc<[ArchivedFile]>>,
    /// Reads them; none if the history was opened without the archive.
    pub archive: Option<Arc<dyn Archive>>,
}

impl ArchivedDays {
    /// Returns the sources of the wanted rows of some days.
    pub(crate) fn scan(
        &self,
        group: &Arc<dyn NamedGroup>,
        days: std::ops::RangeInclusive<i32>,
        wanted: &Wanted,
    ) -> Result<Vec<Box<dyn SortedRows>>> {
        let mut days = self.days.range(days).peekable();
        let Some((day, _)) = days.peek() else { return Ok(Vec::new()) };
        let Some(archive) = &self.archive else {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "day {day} since 1970 is in the archive of the history: serve with --history-archive"
                ),
            ));
        };
        let scans = days.map(|(_, files)| archive.scan(group, files, wanted));
        // The days of one element follow each other, so one is open at a time.
        let is_one = matches!(&wanted.elements, Elements::Range(range) if range.start() == range.end());
        Ok(match is_one {
            true => vec![Box::new(Chain { sources: scans.rev().collect() })],
            false => scans.collect(),
        })
    }
}

/// Sources whose rows follow each other.
struct Chain {
    /// The last first.
    sources: Vec<Box<dyn SortedRows>>,
}

impl SortedRows for Chain {
    fn next_rows(&mut self) -> Result<Option<crate::columns::Columns>> {
        while let Some(source) = self.sources.last_mut() {
            if let Some(rows) = source.next_rows()? {
                return Ok(Some(rows));
            }
            self.sources.pop();
        }
        Ok(None)
    }
}
