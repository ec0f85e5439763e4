//! The archive as the history uses it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use exacat_history::columns::Columns;
use exacat_history::run::Wanted;
use exacat_history::sorted::SortedRows;
use exacat_history::{Archive, ArchivedFile, NamedGroup};
use exacat_model::{Result, TimeMs};
use parking_lot::Mutex;

use crate::blocks::FileBytes;
use crate::delta::{CHECKPOINT_EVERY, DeltaLog, FOLDER, KEEP_REMOVED};
use crate::place::Place;
use crate::reader::{FileMetadata, FileScan, may_have};
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
        rows: &mut dyn SortedRows,
    ) -> Result<Vec<ArchivedFile>> {
        DayWriter { place: &self.place, group, day, file_bytes: self.file_bytes }.write(rows)
    }

    fn publish(&self, history: [u8; 16], now: TimeMs, files: &[ArchivedFile]) -> Result<()> {
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
        state.publish(&self.place, history, now, files, self.checkpoint_every)?;
        *log = Some(state);
        Ok(())
    }

    fn clean(&self, now: TimeMs) -> Result<()> {
        let mut cleaned = self.cleaned.lock();
        let is_due =
            cleaned.is_none_or(|last| now.0.saturating_sub(last.0) >= CLEAN_EVERY.as_millis() as u64);
        let Some(log) = self.log.lock().clone().filter(|_| is_due) else { return Ok(()) };
        let before = i64::try_from(now.0).unwrap_or(i64::MAX).saturating_sub(KEEP_REMOVED.as_millis() as i64);
        for object in self.place.list("")? {
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
            let (place, length) = (Arc::clone(&self.place), file.bytes);
            let bytes = FileBytes::Object { place, path: file.path, length };
            self.open = Some(FileScan::open(name, bytes, &self.group, &self.wanted, Some(&known))?);
        }
    }
}
