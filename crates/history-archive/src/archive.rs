//! The archive as the history uses it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use exacat_history::columns::Columns;
use exacat_history::run::{Elements, Fields, Wanted};
use exacat_history::sorted::SortedRows;
use exacat_history::{Archive, ArchiveOwner, ArchivedFile, NamedGroup, VisibleFile};
use exacat_model::element::ElementRows;
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use parking_lot::Mutex;

use crate::blocks::FileBytes;
use crate::delta::{CHECKPOINT_EVERY, DeltaLog, FOLDER, KEEP_REMOVED};
use crate::import::ParquetRows;
use crate::owner;
use crate::place::Place;
use crate::reader::{FileMetadata, FileScan, Source, may_have};
use crate::writer::{DayWriter, FILE_BYTES};

/// Time between two searches for old files.
const CLEAN_EVERY: Duration = Duration::from_secs(86_400);
/// Files whose metadata are kept in memory.
const METADATA_MAX: usize = 64;

/// Metadata of a file, filled in by its first read.
type Cached = Arc<Mutex<Option<FileMetadata>>>;

/// Old days as Parquet files beside a Delta log.
pub struct ParquetArchive {
    place: Arc<Place>,
    /// State of the log; none before it was read, and after an error.
    log: Mutex<Option<DeltaLog>>,
    /// Metadata of the files that were read last, the oldest first.
    metadata: Arc<Mutex<VecDeque<(String, Cached)>>>,
    /// Time of the last search for old files.
    cleaned: Mutex<Option<TimeMs>>,
    file_bytes: usize,
    checkpoint_every: u64,
}

impl ParquetArchive {
    /// Keeps the archive at a place.
    pub fn new(place: Place) -> Self {
        ParquetArchive {
            place: Arc::new(place),
            log: Mutex::default(),
            metadata: Arc::default(),
            cleaned: Mutex::default(),
            file_bytes: FILE_BYTES,
            checkpoint_every: CHECKPOINT_EVERY,
        }
    }

    /// Makes smaller files, for tests.
    #[cfg(test)]
    pub(crate) fn with_file_bytes(self, file_bytes: usize) -> Self {
        ParquetArchive { file_bytes, ..self }
    }

    /// Writes checkpoints after so many commits, for tests.
    #[cfg(test)]
    pub(crate) fn with_checkpoints(self, checkpoint_every: u64) -> Self {
        ParquetArchive { checkpoint_every, ..self }
    }
}

/// Returns the kept metadata of a file; room for them if they are not known.
fn cached(metadata: &Mutex<VecDeque<(String, Cached)>>, path: &str) -> Cached {
    let mut known = metadata.lock();
    if let Some(at) = known.iter().position(|(of, _)| of == path)
        && let Some(of) = known.remove(at)
    {
        let cached = Arc::clone(&of.1);
        known.push_back(of);
        return cached;
    }
    if known.len() >= METADATA_MAX {
        known.pop_front();
    }
    let cached = Cached::default();
    known.push_back((path.to_owned(), Arc::clone(&cached)));
    cached
}

impl Archive for ParquetArchive {
    fn write(
        &self,
        group: &Arc<dyn NamedGroup>,
        day: i32,
        complete: Option<u64>,
        rows: &mut dyn SortedRows,
    ) -> Result<Vec<ArchivedFile>> {
        DayWriter { place: &self.place, group, day, complete, file_bytes: self.file_bytes }.write(rows)
    }

    fn publish(&self, caller: &ArchiveOwner, now: TimeMs, files: &[ArchivedFile]) -> Result<()> {
        let mut log = self.log.lock();
        let mut state = match log.take() {
            Some(state) => state,
            None => DeltaLog::read(&self.place)?,
        };
        if files.is_empty() && state.live.is_empty() {
            *log = Some(state);
            return Ok(());
        }
        // After an error the log is read anew: the commit may have been made.
        state.publish(&self.place, caller, now, files, self.checkpoint_every)?;
        *log = Some(state);
        Ok(())
    }

    fn clean(&self, caller: &ArchiveOwner, now: TimeMs) -> Result<()> {
        let mut cleaned = self.cleaned.lock();
        let is_due =
            cleaned.is_none_or(|last| now.0.saturating_sub(last.0) >= CLEAN_EVERY.as_millis() as u64);
        let Some(log) = self.log.lock().clone().filter(|_| is_due) else { return Ok(()) };
        let before = i64::try_from(now.0).unwrap_or(i64::MAX).saturating_sub(KEEP_REMOVED.as_millis() as i64);
        let objects = self.place.list("")?;
        // A new owner may count files that this log does not have.
        owner::check(&self.place, caller)?;
        for object in objects {
            let is_file = object.path.ends_with(".parquet") && !object.path.starts_with(FOLDER);
            if !is_file || log.live.contains_key(&object.path) {
                continue;
            }
            // A file that no commit names is of a write that was cut off, or in progress.
            let since = log.removed.get(&object.path).map_or(object.written_ms, |file| file.since);
            if since < before {
                self.place.delete(&object.path)?;
            }
        }
        *cleaned = Some(now);
        Ok(())
    }

    fn name(&self) -> String {
        self.place.name().to_owned()
    }

    fn owner(&self) -> Result<Option<ArchiveOwner>> {
        owner::read(&self.place)
    }

    fn claim(&self, caller: &ArchiveOwner, files: &[ArchivedFile]) -> Result<()> {
        let state = DeltaLog::read(&self.place)?;
        state.check_history(&self.place, caller.history)?;
        let is_same = state.live.len() == files.len()
            && files.iter().all(|file| state.live.get(&file.path).is_some_and(|of| of.bytes == file.bytes));
        if !is_same {
            let what = "it has other files than this history names. Give the place that the history had \
                        before; or stop the server and run exacat history adopt";
            return Err(Error::new(ErrorKind::Conflict, format!("the archive {}: {what}", self.name())));
        }
        if owner::put_new(&self.place, caller)? { Ok(()) } else { owner::check(&self.place, caller) }
    }

    fn take_over(&self, caller: &ArchiveOwner, now: TimeMs) -> Result<()> {
        let mut log = self.log.lock();
        // The log is read anew whatever happens here.
        *log = None;
        let mut state = DeltaLog::read(&self.place)?;
        state.check_history(&self.place, caller.history)?;
        owner::replace(&self.place, caller)?;
        state.fence(&self.place, caller.history, now)
    }

    fn visible(&self, history: [u8; 16]) -> Result<Vec<VisibleFile>> {
        let state = DeltaLog::read(&self.place)?;
        state.check_history(&self.place, history)?;
        state.visible(&self.place)
    }

    fn has(&self, file: &ArchivedFile) -> Result<bool> {
        Ok(self.place.length(&file.path)? == Some(file.bytes))
    }

    fn named_rows(
        &self,
        file: &VisibleFile,
        give: &mut dyn FnMut(&[ElementRows]) -> Result<()>,
    ) -> Result<Option<u64>> {
        let name = self.place.name_of(&file.path);
        let bytes = self.place.read_all(&file.path)?;
        let (rows, complete) = ParquetRows::of_archive(name.clone(), bytes)?;
        for rows in rows {
            let rows = rows?;
            if let Some(reason) = rows.reason {
                return Err(Error::invalid(format!("{name}: {reason}")));
            }
            give(&rows.rows)?;
        }
        Ok(complete)
    }

    fn scan(
        &self,
        group: &Arc<dyn NamedGroup>,
        files: &[ArchivedFile],
        wanted: &Wanted,
    ) -> Box<dyn SortedRows> {
        let files = files.iter().filter(|file| may_have(wanted, file.elements, file.times));
        Box::new(DayScan {
            place: Arc::clone(&self.place),
            metadata: Arc::clone(&self.metadata),
            group: Arc::clone(group),
            wanted: wanted.clone(),
            files: files.cloned().collect(),
            open: None,
        })
    }
}

/// Says whether all of a file is wanted.
fn covers(wanted: &Wanted, file: &ArchivedFile) -> bool {
    matches!((&wanted.elements, &wanted.fields), (Elements::All, Fields::All))
        && *wanted.times.start() <= file.times.0
        && file.times.1 <= *wanted.times.end()
}

/// A read of the files of a day, one after the other.
struct DayScan {
    place: Arc<Place>,
    metadata: Arc<Mutex<VecDeque<(String, Cached)>>>,
    group: Arc<dyn NamedGroup>,
    wanted: Wanted,
    files: VecDeque<ArchivedFile>,
    open: Option<FileScan>,
}

impl SortedRows for DayScan {
    fn next_rows(&mut self) -> Result<Option<Columns>> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(rows) = open.next_rows()? {
                    return Ok(Some(rows));
                }
                self.open = None;
            }
            let Some(file) = self.files.pop_front() else { return Ok(None) };
            let name = self.place.name_of(&file.path);
            let known = cached(&self.metadata, &file.path);
            let bytes = match covers(&self.wanted, &file) {
                true => FileBytes::Memory(self.place.read_all(&file.path)?),
                false => {
                    let (place, length) = (Arc::clone(&self.place), file.bytes);
                    FileBytes::Object { place, path: file.path, length }
                }
            };
            let source = Source { name, bytes, digest: Some(file.digest), known: Some(&known) };
            self.open = Some(FileScan::open(source, &self.group, &self.wanted)?);
        }
    }
}
