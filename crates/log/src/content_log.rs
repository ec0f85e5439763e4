//! Log of contents with one writer: opened by a replay, then appended to, one durable record at a time.
//! The index of a writer's volume and the journal of a replay run are such logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exacat_disk::{Disk, cannot_write};
use exacat_model::{Error, ErrorKind, Result, Revision, TimeMs, TimelineId};

use crate::chain::RecordPlace;
use crate::log_end::{self, LogEnd};
use crate::record::{Head, split_head};
use crate::replay::{Receiver, list_segments, replay, undecodable};
use crate::segment::{BegunFor, CatalogueId, Ending, Header};
use crate::{Log, LogSettings, OpenedLog, Preparation, Segment};

/// Time between two notes of the log's end without a sync.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// Receives the content of a record: the file, the place in it, the content.
pub type TakeContent<'t> = &'t mut dyn FnMut(&str, u64, &[u8]) -> Result<()>;

/// Place of such a log, and its owner.
#[derive(Clone)]
pub struct ContentLogSettings {
    /// Disk of its files.
    pub disk: Arc<dyn Disk>,
    /// Directory of its segments, which exists.
    pub directory: PathBuf,
    /// Identity of its owner: a log of another owner is refused.
    pub owner: CatalogueId,
    /// Bytes of one segment.
    pub segment_bytes: u64,
}

/// Log of contents, opened to append.
pub struct ContentLog {
    log: Log,
    last: RecordPlace,
    /// Reason why nothing more is written: the state of the log is unknown.
    failed: Option<String>,
}

/// Log that was read to its end.
pub struct ReadContents {
    /// Last record.
    pub last: RecordPlace,
    /// Bytes of the records that were passed on.
    pub bytes: u64,
    segments: Vec<Arc<Segment>>,
    end: Option<LogEnd>,
}

impl ReadContents {
    /// Says whether the log ends with a torn write, which the next opening cuts off.
    pub fn is_torn(&self) -> bool {
        self.end.as_ref().is_some_and(|end| matches!(end.ending, Ending::Torn(_)))
    }
}

/// State of a replay.
struct Contents<'t> {
    last: RecordPlace,
    bytes: u64,
    take: TakeContent<'t>,
}

impl Receiver for Contents<'_> {
    fn segment(&mut self, file: &str, header: &Header) -> Result<()> {
        self.last.check_begin(file, header)
    }

    fn record(&mut self, file: &str, offset: u64, head: Head, body: &[u8]) -> Result<()> {
        self.last.check_next(file, offset, &head)?;
        let (_, content) = split_head(body).map_err(|error| undecodable(file, offset, &error))?;
        (self.take)(file, offset, content)?;
        self.last = self.last.after(head.time, content);
        self.bytes += body.len() as u64;
        Ok(())
    }
}

/// Reads a log after a place, and passes the contents on. It changes files only if the log is to be opened.
///
/// # Errors
/// Says which file is damaged, or cannot be read.
pub fn read_contents(
    settings: &ContentLogSettings,
    after: RecordPlace,
    opens: bool,
    take: TakeContent<'_>,
) -> Result<ReadContents> {
    let disk = &*settings.disk;
    let segments = list_segments(disk, &settings.directory, opens)?;
    if segments.is_empty() && after.revision.0 > 0 {
        let what = format!("{}: there is a checkpoint, but no log: restore it", settings.directory.display());
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    // A replay that opens the log goes on from its end.
    if let Some(last) = segments.last().filter(|_| opens) {
        last.make_durable(disk)?;
    }
    let mut contents = Contents { last: after, bytes: 0, take };
    let end = replay(disk, settings.owner, &segments, after.revision, &mut contents)?;
    let Contents { last, bytes, .. } = contents;
    log_end::check_followed(end.as_ref(), last.revision)?;
    log_end::check_witness(disk, &settings.directory, settings.owner, end.as_ref(), last.revision)?;
    log_end::check_length(&settings.directory, end.as_ref())?;
    Ok(ReadContents { last, bytes, segments, end })
}

impl ContentLog {
    /// Opens a log that was read to its end; a new one if there is none.
    ///
    /// # Errors
    /// Says which file cannot be written.
    pub fn open(settings: &ContentLogSettings, read: ReadContents, now: TimeMs) -> Result<Self> {
        let ReadContents { last, segments, end, .. } = read;
        let log_settings = LogSettings {
            disk: Arc::clone(&settings.disk),
            directory: settings.directory.clone(),
            begun_for: BegunFor {
                catalogue: settings.owner,
                timeline: TimelineId::of_catalogue(settings.owner),
            },
            segment_bytes: settings.segment_bytes,
            // A segment is small, and begins rarely.
            preparation: Preparation::Never,
        };
        let OpenedLog { log, kept_as, .. } = Log::open_or_create(log_settings, &last, end, &segments, now)?;
        if let Some(kept_as) = kept_as {
            tracing::warn!(
                directory = %settings.directory.display(),
                file = kept_as,
                "the log ended with a torn write; its bytes were kept"
            );
        }
        Ok(ContentLog { log, last, failed: None })
    }

    /// Returns the last record.
    pub fn last(&self) -> &RecordPlace {
        &self.last
    }

    /// Says whether a write failed, so that nothing more is written.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Makes a content durable. Returns its bytes in the log.
    ///
    /// # Errors
    /// After a failure nobody knows whether the content is durable, and nothing more is written.
    pub fn append(&mut self, content: &[u8], now: TimeMs) -> Result<u64> {
        if let Some(reason) = &self.failed {
            return Err(Error::new(ErrorKind::Unavailable, reason.clone()));
        }
        let appended = self.append_next(content, now);
        if let Err(error) = &appended {
            self.failed = Some(format!("the log cannot be written: {}", error.message));
        }
        appended
    }

    fn append_next(&mut self, content: &[u8], now: TimeMs) -> Result<u64> {
        let time = now.max(self.last.time);
        let next = self.last.next_revision();
        let needed = RecordPlace::bytes_of(content.len());
        if !self.log.fits(needed) {
            self.log.roll(next, time, self.last.digest, needed)?;
        }
        let mut group = Vec::with_capacity(needed);
        let last = self.last.put(&mut group, self.log.salt(), time, content);
        let place = self.log.place(group.len());
        place.write(&group, next).map_err(|error| cannot_write(&self.log.segment().path, &error))?;
        self.last = last;
        place.note_durable(group.len(), next, NOTE_EVERY);
        Ok(group.len() as u64)
    }

    /// Begins a segment, unless the last one is empty. Returns the revision of its first record.
    ///
    /// # Errors
    /// Says which file cannot be written; nothing is lost.
    pub fn begin_segment(&mut self, now: TimeMs) -> Result<Revision> {
        let next = self.last.next_revision();
        if !self.log.is_empty() {
            self.log.roll(next, now.max(self.last.time), self.last.digest, 0)?;
        }
        Ok(next)
    }
}

/// Removes the segments before a revision, which begins one.
///
/// # Errors
/// Says which file cannot be removed.
pub fn remove_before(disk: &dyn Disk, directory: &Path, next: Revision) -> Result<()> {
    for segment in list_segments(disk, directory, false)? {
        if segment.first_revision < next {
            disk.remove(&segment.path).map_err(|error| cannot_write(&segment.path, &error))?;
        }
    }
    disk.sync_directory(directory).map_err(|error| cannot_write(directory, &error))
}
