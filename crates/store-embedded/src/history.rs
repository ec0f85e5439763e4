//! Reading the history: the changes of the log, from any revision on.
//!
//! Segments are never deleted, so all of the catalogue's own history is there. Which segment has a revision is in the files' names;
//! where in it, an index finds that is made while writing and while reading.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Change, Error, ErrorKind, Revision};
use parking_lot::{Mutex, RwLock};

use crate::disk::{Disk, DiskFile};
use crate::record::{self, FRAME_BYTES, Head};
use crate::segment::{self, CatalogueId, HEADER_BYTES, Header, corrupt};
use crate::settings::{CHANGES_PAGE_BYTES_MAX, INDEX_EVERY_BYTES};

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Bytes of a record that say which changes are in it.
const FRONT_BYTES: usize = FRAME_BYTES + 40;

/// One segment, as far as reading it needs.
pub(crate) struct Segment {
    pub first_revision: Revision,
    pub path: PathBuf,
    /// Some records of it: their first revisions and where they begin, in order.
    index: Mutex<Vec<(Revision, u64)>>,
}

impl Segment {
    pub fn new(log_directory: &Path, first_revision: Revision) -> Self {
        let path = log_directory.join(segment::file_name(first_revision));
        Segment { first_revision, path, index: Mutex::new(Vec::new()) }
    }

    /// The name in errors.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Notes where a record begins, if none near it is noted.
    pub fn note(&self, first_revision: Revision, offset: u64) {
        let mut index = self.index.lock();
        if index.last().is_none_or(|(_, last)| *last + INDEX_EVERY_BYTES <= offset) {
            index.push((first_revision, offset));
        }
    }

    /// Where to begin to look for the change of this revision.
    fn start_for(&self, revision: Revision) -> u64 {
        let index = self.index.lock();
        let before = index.partition_point(|(first, _)| *first <= revision);
        before.checked_sub(1).map_or(HEADER_BYTES as u64, |at| index[at].1)
    }
}

/// The segments of a log, and how to read them.
pub(crate) struct History {
    disk: Arc<dyn Disk>,
    catalogue: CatalogueId,
    segments: RwLock<Vec<Arc<Segment>>>,
}

impl History {
    pub fn new(disk: Arc<dyn Disk>, catalogue: CatalogueId, segments: Vec<Arc<Segment>>) -> Self {
        History { disk, catalogue, segments: RwLock::new(segments) }
    }

    /// A further segment was begun.
    pub fn push(&self, segment: Arc<Segment>) {
        self.segments.write().push(segment);
    }

    pub fn segments(&self) -> usize {
        self.segments.read().len()
    }

    /// The first change that is kept, or would be if there were any.
    pub fn oldest(&self) -> Revision {
        self.segments.read().first().map_or(Revision(1), |segment| segment.first_revision)
    }

    /// The segment that has this revision, and its place among all.
    fn segment_of(&self, revision: Revision) -> Option<usize> {
        let segments = self.segments.read();
        segments.partition_point(|segment| segment.first_revision <= revision).checked_sub(1)
    }

    /// Changes after `after` up to `up_to`, in order, at most `limit` and a bounded number of bytes, but one at least
    /// if there is one.
    pub fn changes(&self, after: Revision, up_to: Revision, limit: usize) -> Result<Vec<Change>, Error> {
        // The log of a clone, or of a snapshot, does not begin with the first change.
        let after = after.max(Revision(self.oldest().0.saturating_sub(1)));
        let mut changes = Vec::new();
        let mut bytes = 0;
        if limit == 0 || after >= up_to {
            return Ok(changes);
        }
        self.read_records(Revision(after.0 + 1), up_to, |name, offset, body| {
            bytes += body.len();
            let from = Revision(after.0 + 1);
            record::read_changes(body, from, |change| {
                if change.revision <= up_to && changes.len() < limit {
                    changes.push(change);
                }
                Ok(changes.len() < limit)
            })
            .map_err(|Undecodable(what)| corrupt(name, offset, what))?;
            Ok(changes.len() < limit && bytes < CHANGES_PAGE_BYTES_MAX)
        })?;
        Ok(changes)
    }

    /// The changes of the record that begins with this revision.
    pub fn record(&self, first_revision: Revision) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::new();
        self.read_records(first_revision, first_revision, |name, offset, body| {
            record::read_changes(body, first_revision, |change| {
                changes.push(change);
                Ok(true)
            })
            .map_err(|Undecodable(what)| corrupt(name, offset, what))?;
            Ok(false)
        })?;
        Ok(changes)
    }

    /// Gives the bodies of the records from the one with revision `from` to the one with `up_to`, which must be
    /// there, until `give` says no.
    fn read_records(
        &self,
        from: Revision,
        up_to: Revision,
        mut give: impl FnMut(&str, u64, &[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let gone = |revision: Revision| {
            Error::new(ErrorKind::Corrupt, format!("the log has no change {}, but a later one", revision.0))
        };
        let mut at = self.segment_of(from).ok_or_else(|| gone(from))?;
        let mut wanted = from;
        loop {
            let Some(segment) = self.segments.read().get(at).cloned() else { return Err(gone(wanted)) };
            let mut reader = SegmentReader::open(&*self.disk, &segment, self.catalogue)?;
            let mut offset = segment.start_for(wanted);
            while let Some(head) = reader.head(offset)? {
                let last = head.last_revision();
                if head.first_revision > wanted || last < head.first_revision {
                    return Err(corrupt(&reader.name, offset, format!("change {} is missing", wanted.0)));
                }
                segment.note(head.first_revision, offset);
                if last >= wanted {
                    let body = reader.body(offset)?;
                    if !give(&segment.name(), offset, body)? || last >= up_to {
                        return Ok(());
                    }
                    wanted = Revision(last.0 + 1);
                }
                offset += reader.stride(offset)?;
            }
            at += 1;
        }
    }
}

/// Why a record's changes could not be read.
struct Undecodable(String);

impl From<exacat_model::codec::DecodeError> for Undecodable {
    fn from(error: exacat_model::codec::DecodeError) -> Self {
        Undecodable(format!("a valid record holds what is no change: {error}"))
    }
}

/// Reads records of one segment, by offset, in large pieces.
struct SegmentReader {
    file: Box<dyn DiskFile>,
    name: String,
    salt: record::Salt,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    start: u64,
}

impl SegmentReader {
    fn open(disk: &dyn Disk, segment: &Segment, catalogue: CatalogueId) -> Result<Self, Error> {
        let name = segment.name();
        let file = disk.open_to_read(&segment.path).map_err(|error| cannot_read(&name, &error))?;
        let mut header = [0; HEADER_BYTES];
        let read = file.read_at(&mut header, 0).map_err(|error| cannot_read(&name, &error))?;
        let header = Header::decode(&name, &header[..read])?;
        if header.catalogue != catalogue || header.first_revision != segment.first_revision {
            return Err(corrupt(&name, 16, "the segment is another catalogue's, or has another's name"));
        }
        Ok(SegmentReader { file, name, salt: header.salt, buffer: Vec::new(), start: 0 })
    }

    /// The file's bytes from `offset`, `count` of them unless it ends before.
    fn bytes(&mut self, offset: u64, count: usize) -> Result<&[u8], Error> {
        let inside = offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        let skip = match inside {
            Some(skip) if skip + count <= self.buffer.len() => skip,
            _ => {
                self.buffer.resize(count.max(READ_BYTES), 0);
                let read = self.file.read_at(&mut self.buffer, offset);
                let read = read.map_err(|error| cannot_read(&self.name, &error))?;
                self.buffer.truncate(read);
                self.start = offset;
                0
            }
        };
        let end = (skip + count).min(self.buffer.len());
        Ok(&self.buffer[skip..end])
    }

    fn frame(&mut self, offset: u64) -> Result<Option<record::Frame>, Error> {
        let front = self.bytes(offset, FRONT_BYTES)?;
        if front.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        match record::read_frame(front) {
            Some(frame) => Ok(Some(frame)),
            None => Err(corrupt(&self.name, offset, "a log record is damaged")),
        }
    }

    /// What is in the record there; none at the end.
    fn head(&mut self, offset: u64) -> Result<Option<Head>, Error> {
        if self.frame(offset)?.is_none() {
            return Ok(None);
        }
        let front = self.bytes(offset, FRONT_BYTES)?;
        match front.get(FRAME_BYTES..).map(record::read_head) {
            Some(Ok(head)) => Ok(Some(head)),
            _ => Err(corrupt(&self.name, offset, "a log record is cut off")),
        }
    }

    fn stride(&mut self, offset: u64) -> Result<u64, Error> {
        Ok(self.frame(offset)?.map_or(0, |frame| frame.stride() as u64))
    }

    /// The body of the record there, checked.
    fn body(&mut self, offset: u64) -> Result<&[u8], Error> {
        let stride = self.stride(offset)?;
        let (salt, name) = (self.salt, self.name.clone());
        let bytes = self.bytes(offset, usize::try_from(stride).unwrap_or(usize::MAX))?;
        let (_, body) =
            record::read(salt, bytes).ok_or_else(|| corrupt(&name, offset, "a log record is damaged"))?;
        Ok(body)
    }
}

/// A file could not be read: the disk's matter.
pub(crate) fn cannot_read(file: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot read {file}: {error}"))
}
