//! The log, where changes become durable: one writer appends commit groups.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exacat_disk::{Disk, DiskFile, cannot_write, random_u64};
use exacat_model::{Error, Revision, TimeMs};

use crate::chain::RecordPlace;
use crate::log_end::{self, EndFile, LogEnd, LogPosition, Witness};
use crate::prepared::{Blank, Preparation, Preparer};
use crate::record::{self, MARK_BYTES, Salt};
use crate::segment::{
    self, BegunFor, Ending, HEADER_BYTES, Header, RESERVED_UNIT, TAIL_ROOM, UNFINISHED, VERSION, seal_at,
};
use crate::segment_file::Segment;

/// A segment that was begun, and its file.
type Begun = (Arc<Segment>, Arc<dyn DiskFile>);

/// Returns the length of a segment: the configured one, or more if `bytes` of records need more
/// room.
fn length(segment_bytes: u64, bytes: usize) -> u64 {
    segment_bytes.max((HEADER_BYTES + bytes + TAIL_ROOM) as u64)
}

/// Error of a segment that could not be begun.
struct BeginError {
    /// True if the empty segment may have its final name by now.
    named: bool,
    error: Error,
}

/// LogPosition in the log that was assigned to a commit group.
pub struct LogPlace {
    file: Arc<dyn DiskFile>,
    segment: Arc<Segment>,
    salt: Salt,
    offset: u64,
    end: Arc<EndFile>,
}

impl LogPlace {
    /// Writes a group and makes it durable: one write, one sync. After an error the state of the
    /// bytes is unknown.
    pub fn write(&self, group: &[u8], first_revision: Revision) -> io::Result<()> {
        self.file.write_at(group, self.offset)?;
        self.file.sync()?;
        self.segment.note(first_revision, self.offset);
        Ok(())
    }

    /// Notes in `END` that a group of `bytes`, up to this change, is durable; at most once per
    /// `every`.
    pub fn note_durable(&self, bytes: usize, revision: Revision, every: Duration) {
        let (segment, salt, offset) = (self.segment.first_revision, self.salt, self.offset + bytes as u64);
        self.end.note(Witness { segment, salt, offset, revision }, every);
    }
}

/// The end of the log, where the one writer appends.
pub struct Log {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    begun_for: BegunFor,
    segment_bytes: u64,
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    salt: Salt,
    /// Offset of the next group.
    offset: u64,
    /// LogEnd of the reserved space.
    reserved: u64,
    /// True if the segment has an older format or timeline: then the next segment begins before
    /// anything is appended.
    is_old: bool,
    /// True if an end mark follows the last group, or the segment has no group.
    is_marked: bool,
    /// Prepares the next segment once this one is half full.
    preparer: Preparer,
    /// File `END`: evidence of how far the log goes.
    end: Arc<EndFile>,
}

/// Place of a log, and the size of its segments.
pub struct LogSettings {
    /// Disk of all files.
    pub disk: Arc<dyn Disk>,
    /// Directory of the segments.
    pub directory: PathBuf,
    /// Owner of new segments.
    pub begun_for: BegunFor,
    /// Bytes of one segment, reserved when it begins.
    pub segment_bytes: u64,
    /// Preparation of the next segment.
    pub preparation: Preparation,
}

/// A log that was opened to append.
pub struct OpenedLog {
    /// The log.
    pub log: Log,
    /// True if it ends with a mark, or is new.
    pub is_marked: bool,
    /// File with the bytes of a torn end that was cut off.
    pub kept_as: Option<String>,
}

impl Log {
    /// Opens a log that was replayed up to a place, to append after it; a new one if it has no segment.
    pub fn open_or_create(
        settings: LogSettings,
        place: &RecordPlace,
        end: Option<LogEnd>,
        segments: &[Arc<Segment>],
        now: TimeMs,
    ) -> Result<OpenedLog, Error> {
        let (Some(end), Some(last)) = (end, segments.last()) else {
            let log = Log::create(settings, Revision(1), now, place.digest)?;
            return Ok(OpenedLog { log, is_marked: true, kept_as: None });
        };
        let (is_torn, is_marked) = (matches!(end.ending, Ending::Torn(_)), end.is_marked);
        let (mut log, kept_as) = Log::open(settings, Arc::clone(last), end, place.revision)?;
        if is_torn {
            log.begin_anew();
        }
        Ok(OpenedLog { log, is_marked, kept_as })
    }

    /// Opens the last segment, which ends with change `last`, to append to it. Cuts off an end that
    /// forms no whole commit group, and returns the name of the file that has the bytes.
    pub fn open(
        settings: LogSettings,
        segment: Arc<Segment>,
        end: LogEnd,
        last: Revision,
    ) -> Result<(Self, Option<String>), Error> {
        let LogSettings { disk, directory, begun_for, segment_bytes, preparation } = settings;
        let wrong = |error: &io::Error| cannot_write(&segment.path, error);
        let (file, kept_as) = match log_end::cut_off(&*disk, &directory, &segment, &end)? {
            Some(cut) => (cut.file, Some(cut.kept_as)),
            None => (disk.open_to_write(&segment.path).map_err(|error| wrong(&error))?, None),
        };
        let file: Arc<dyn DiskFile> = Arc::from(file);
        // On a full disk this fails, and the segment just ends here.
        if let Err(error) = file.preallocate(segment_bytes).and_then(|()| file.sync()) {
            tracing::warn!(file = segment.name(), %error, "cannot reserve space for the log");
        }
        let reserved = file.length().map_err(|error| wrong(&error))?;
        let preparer = Preparer::new(Arc::clone(&disk), &directory, segment_bytes, preparation);
        let witness = Arc::new(EndFile::open(&*disk, &directory, begun_for.catalogue));
        let log = Log {
            disk,
            preparer,
            end: witness,
            directory,
            begun_for,
            segment_bytes,
            salt: end.header.salt,
            offset: end.position.offset,
            reserved,
            is_old: end.header.version < VERSION,
            is_marked: end.is_marked,
            segment,
            file,
        };
        log.write_end(last);
        Ok((log, kept_as))
    }

    /// Writes to `END` that everything up to this change is durable.
    fn write_end(&self, revision: Revision) {
        let (segment, salt, offset) = (self.segment.first_revision, self.salt, self.offset);
        self.end.write(Witness { segment, salt, offset, revision });
    }

    /// Says whether the segment has no record.
    pub fn is_empty(&self) -> bool {
        self.offset == HEADER_BYTES as u64
    }

    /// Returns the end of the records.
    pub fn position(&self) -> LogPosition {
        LogPosition { segment: self.segment.first_revision, offset: self.offset }
    }

    /// Makes a segment of `length` durable, from the `blank` one if it is given.
    fn begin_segment(
        disk: &dyn Disk,
        directory: &Path,
        header: Header,
        length: u64,
        blank: Option<Blank>,
    ) -> Result<Begun, BeginError> {
        let segment = Arc::new(Segment::new(directory, header.first_revision));
        let unfinished = match &blank {
            Some(blank) => blank.path.clone(),
            None => directory.join(format!("{}{UNFINISHED}", segment::file_name(header.first_revision))),
        };
        let mut named = false;
        let begin = || -> io::Result<Box<dyn DiskFile>> {
            let file = match blank {
                Some(blank) => blank.file,
                None => {
                    let file = disk.create(&unfinished)?;
                    file.preallocate(length)?;
                    file
                }
            };
            // The header is durable before the name: a segment with its name has a whole header.
            file.write_at(&header.encode(), 0)?;
            file.sync()?;
            named = true;
            disk.rename(&unfinished, &segment.path)?;
            disk.sync_directory(directory)?;
            Ok(file)
        };
        match begin() {
            Ok(file) => Ok((segment, Arc::from(file))),
            Err(error) => {
                if let Err(error) = disk.remove(&unfinished) {
                    tracing::debug!(file = %unfinished.display(), %error, "cannot remove an unfinished segment");
                }
                Err(BeginError { named, error: cannot_write(&segment.path, &error) })
            }
        }
    }

    /// Creates the first segment of a log. The log is new, or continues with this change after a
    /// state with this digest.
    pub fn create(
        settings: LogSettings,
        first_revision: Revision,
        created: TimeMs,
        digest: u128,
    ) -> Result<Self, Error> {
        let LogSettings { disk, directory, begun_for, segment_bytes, preparation } = settings;
        let salt = random_u64()?;
        let BegunFor { catalogue, timeline } = begun_for;
        let reserved = length(segment_bytes, 0);
        let version = VERSION;
        let header = Header { version, catalogue, timeline, first_revision, created, salt, digest, reserved };
        let begun = Self::begin_segment(&*disk, &directory, header, reserved, None);
        let (segment, file) = begun.map_err(|begin| begin.error)?;
        let preparer = Preparer::new(Arc::clone(&disk), &directory, segment_bytes, preparation);
        let end = Arc::new(EndFile::open(&*disk, &directory, begun_for.catalogue));
        let offset = HEADER_BYTES as u64;
        let log = Log {
            disk,
            end,
            directory,
            begun_for,
            segment_bytes,
            segment,
            file,
            salt,
            offset,
            reserved,
            is_old: false,
            is_marked: true,
            preparer,
        };
        log.write_end(Revision(first_revision.0.saturating_sub(1)));
        Ok(log)
    }

    /// Stops appending to the last segment, because the next one begins on another timeline.
    pub fn begin_anew(&mut self) {
        self.is_old = true;
    }

    /// Seals the segment and begins the next with space for `bytes`. Its first record will have
    /// this revision. A failure loses nothing, and the caller may retry.
    pub fn roll(
        &mut self,
        first_revision: Revision,
        created: TimeMs,
        digest: u128,
        bytes: usize,
    ) -> Result<(), Error> {
        let is_empty = first_revision == self.segment.first_revision;
        if is_empty && !self.is_old {
            // This segment is empty: it has no room because it never got any. The disk may have
            // more by now.
            let length = length(self.segment_bytes, bytes);
            let more = self.file.preallocate(length).and_then(|()| self.file.sync());
            more.map_err(|error| cannot_write(&self.segment.path, &error))?;
            self.reserved = length;
            return Ok(());
        }
        let salt = random_u64()?;
        let BegunFor { catalogue, timeline } = self.begun_for;
        let reserved = length(self.segment_bytes, bytes);
        let version = VERSION;
        let header = Header { version, catalogue, timeline, first_revision, created, salt, digest, reserved };
        let blank = self.preparer.take(reserved);
        self.begin(header, reserved, blank)
    }

    /// Seals the segment and begins the one that a followed log has next, with the same header. It
    /// replaces an empty segment of the same first revision. A failure loses nothing, and the caller may
    /// retry.
    pub fn begin_as(&mut self, header: Header) -> Result<(), Error> {
        // The header has the reservation rounded down, and the records of the other log may fill all of it.
        let reserved = (header.reserved + RESERVED_UNIT).max(length(0, 0));
        self.begin(header, reserved, None)
    }

    /// Begins a segment with so many bytes of reserved space.
    fn begin(&mut self, header: Header, reserved: u64, blank: Option<Blank>) -> Result<(), Error> {
        let Header { first_revision, salt, .. } = header;
        let is_empty = first_revision == self.segment.first_revision;
        let begun = Self::begin_segment(&*self.disk, &self.directory, header, reserved, blank);
        let (segment, file) = begun.map_err(|begin| {
            if begin.named {
                // The next change must go into the new segment, so nothing more fits here.
                self.reserved = self.offset;
            }
            begin.error
        })?;
        // The seal follows the new name, because it promises that another segment exists. An empty
        // segment of an older format has lost its name to the new one, and needs no seal.
        if !is_empty {
            self.seal(first_revision)?;
        }
        self.segment = segment;
        (self.file, self.salt) = (file, salt);
        (self.offset, self.reserved) = (HEADER_BYTES as u64, reserved);
        (self.is_old, self.is_marked) = (false, true);
        self.write_end(Revision(first_revision.0.saturating_sub(1)));
        Ok(())
    }

    /// Writes into the segment that another follows, before anything is written to that one.
    fn seal(&mut self, next: Revision) -> Result<(), Error> {
        let end = seal_at(self.offset as usize) as u64;
        let seal = segment::seal(self.salt, next);
        if let Err(error) = self.file.write_at(&seal, end).and_then(|()| self.file.sync()) {
            self.reserved = self.offset;
            return Err(cannot_write(&self.segment.path, &error));
        }
        // Returns reserved space that was not needed. Losing this change of length does no harm.
        if let Err(error) = self.file.set_length(end + seal.len() as u64) {
            tracing::debug!(file = self.segment.name(), %error, "cannot trim a sealed segment");
        }
        Ok(())
    }

    /// Says whether space is reserved for a group of `bytes`.
    pub fn fits(&self, bytes: usize) -> bool {
        // `TAIL_ROOM` is always left for an end mark and a seal.
        !self.is_old && self.offset + (bytes + TAIL_ROOM) as u64 <= self.reserved
    }

    /// Says whether the segment has an older format or timeline, so that the next must begin.
    pub fn is_old(&self) -> bool {
        self.is_old
    }

    /// Returns the salt of records written now.
    pub fn salt(&self) -> Salt {
        self.salt
    }

    /// Assigns the position of the next group, which has `bytes`. Groups placed before must be
    /// durable before this one is written.
    pub fn place(&mut self, bytes: usize) -> LogPlace {
        let (file, segment) = (Arc::clone(&self.file), Arc::clone(&self.segment));
        let end = Arc::clone(&self.end);
        let place = LogPlace { file, segment, salt: self.salt, offset: self.offset, end };
        self.offset += bytes as u64;
        // An empty group writes nothing behind the end mark.
        self.is_marked &= bytes == 0;
        // Early preparation, so that the begin of the next segment does not wait for space
        // (decision 0035).
        if self.offset > self.segment_bytes / 2 {
            self.preparer.begin();
        }
        place
    }

    /// Writes an end mark behind the last group and makes it durable; `last` is the revision of its
    /// last change. False if no mark is needed or there is no room. All groups must be durable.
    /// After an error the end of the file is unknown.
    pub fn mark(&mut self, last: Revision) -> io::Result<bool> {
        // `fits` leaves room for the mark, except where the segment was given up.
        if self.is_marked || self.is_old || self.offset + TAIL_ROOM as u64 > self.reserved {
            return Ok(false);
        }
        self.file.write_at(&record::mark(self.salt, last), self.offset)?;
        self.file.sync()?;
        self.offset += MARK_BYTES as u64;
        self.is_marked = true;
        // Zeros can erase the end mark together with the group, so `END` repeats it (decision
        // 0046).
        self.write_end(last);
        Ok(true)
    }

    /// Returns the segment being written.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }
}
