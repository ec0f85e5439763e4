//! The log: where changes become durable. One writer appends groups of records; opening replays them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Change, Error, ErrorKind, Revision, TimeMs};

use crate::disk::{Disk, DiskFile, read_whole};
use crate::history::{Segment, cannot_read};
use crate::record::{self, Head, Salt};
use crate::segment::{self, CatalogueId, Ending, HEADER_BYTES, Header, Records, corrupt};

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The segment, by its first revision.
    pub segment: Revision,
    /// Bytes from its start.
    pub offset: u64,
}

/// Random bits, from the machine.
pub(crate) fn random_u64() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no random numbers: {error}")))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Where the records of a segment are begun with an unfinished name, until their header is durable.
const UNFINISHED: &str = ".unfinished";

/// The segments in the log's directory, in order. Unfinished ones are removed: nothing was ever in them.
pub(crate) fn list_segments(
    disk: &dyn Disk,
    directory: &Path,
    clean: bool,
) -> Result<Vec<Arc<Segment>>, Error> {
    let names =
        disk.list(directory).map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    let mut segments = Vec::new();
    for name in names {
        if let Some(first_revision) = segment::parse_file_name(&name) {
            segments.push(Arc::new(Segment::new(directory, first_revision)));
        } else if clean && name.ends_with(UNFINISHED) {
            let path = directory.join(&name);
            disk.remove(&path).map_err(|error| cannot_write(&path, &error))?;
        }
    }
    segments.sort_by_key(|segment| segment.first_revision);
    Ok(segments)
}

/// What a replay found at the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub position: Position,
    pub ending: Ending,
    /// Of the last segment.
    pub salt: Salt,
}

/// What wants to know what a log holds.
pub(crate) trait Replay {
    /// A segment begins here; `digest` is that of the state before it.
    fn segment(&mut self, file: &str, header: &Header) -> Result<(), Error>;

    /// A record, with so many bytes of changes.
    fn record(&mut self, file: &str, offset: u64, head: Head, bytes: usize) -> Result<(), Error>;

    /// A change of it.
    fn change(&mut self, file: &str, offset: u64, change: Change) -> Result<(), Error>;
}

/// Reads the log after a change to its end. That change is the last of a record, or 0.
pub(crate) fn replay(
    disk: &dyn Disk,
    catalogue: CatalogueId,
    segments: &[Arc<Segment>],
    after: Revision,
    into: &mut impl Replay,
) -> Result<Option<End>, Error> {
    let next = Revision(after.0 + 1);
    let first = segments.partition_point(|segment| segment.first_revision <= next);
    let first = match first.checked_sub(1) {
        Some(first) => first,
        None if segments.is_empty() => return Ok(None),
        None => {
            let what = format!("the log begins after change {}, from which on it is needed", next.0);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
    };
    let mut end = None;
    for (at, segment) in segments.iter().enumerate().skip(first) {
        let name = segment.name();
        let file = disk.open_to_read(&segment.path).map_err(|error| cannot_read(&name, &error))?;
        let bytes = read_whole(&*file).map_err(|error| cannot_read(&name, &error))?;
        let header = Header::decode(&name, &bytes)?;
        if header.catalogue != catalogue || header.first_revision != segment.first_revision {
            return Err(corrupt(&name, 16, "the segment is another catalogue's, or has another's name"));
        }
        if header.first_revision >= next {
            into.segment(&name, &header)?;
        }
        let mut records = Records::new(&bytes, header.salt, HEADER_BYTES);
        while let Some((offset, body)) = records.next_record() {
            replay_record(&name, offset as u64, body, segment, next, into)?;
        }
        let ending = records.ending(&name, at + 1 == segments.len())?;
        let position = Position { segment: segment.first_revision, offset: records.offset() as u64 };
        end = Some(End { position, ending, salt: header.salt });
    }
    Ok(end)
}

fn replay_record(
    name: &str,
    offset: u64,
    body: &[u8],
    segment: &Segment,
    next: Revision,
    into: &mut impl Replay,
) -> Result<(), Error> {
    let undecodable =
        |error| corrupt(name, offset, format!("a valid record holds what is no change: {error}"));
    let head = record::read_head(body).map_err(undecodable)?;
    segment.note(head.first_revision, offset);
    if head.first_revision < next {
        return Ok(());
    }
    into.record(name, offset, head, body.len())?;
    record::read_changes(body, Revision(0), |change| {
        into.change(name, offset, change)?;
        Ok(true)
    })
    .map_err(|why| match why {
        Why::Refused(error) => error,
        Why::Undecodable(error) => undecodable(error),
    })
}

/// Why the changes of a record were not all taken.
enum Why {
    Refused(Error),
    Undecodable(exacat_model::codec::DecodeError),
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Why::Refused(error)
    }
}

impl From<exacat_model::codec::DecodeError> for Why {
    fn from(error: exacat_model::codec::DecodeError) -> Self {
        Why::Undecodable(error)
    }
}

/// A file could not be written: the disk's matter.
pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot write {}: {error}", path.display()))
}

/// A segment that was begun: its file, and up to where space is reserved.
type Begun = (Arc<Segment>, Arc<dyn DiskFile>, u64);

/// A segment could not be begun.
struct BeginError {
    /// It may have its name by now, with nothing in it.
    named: bool,
    error: Error,
}

/// A place in the log that a group was given.
pub(crate) struct Place {
    file: Arc<dyn DiskFile>,
    segment: Arc<Segment>,
    offset: u64,
}

impl Place {
    /// Writes a group and makes it durable: one write, one sync. After an error nothing is known of it.
    pub fn write(&self, group: &[u8], first_revision: Revision) -> io::Result<()> {
        self.file.write_at(group, self.offset)?;
        self.file.sync()?;
        self.segment.note(first_revision, self.offset);
        Ok(())
    }
}

/// The end of the log, where one writer appends.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    catalogue: CatalogueId,
    segment_bytes: u64,
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    salt: Salt,
    /// Where the next group goes.
    offset: u64,
    /// Up to where space is reserved.
    reserved: u64,
}

impl Log {
    /// Opens the last segment to append to. A torn end is cut off and its bytes made zeros again: a record of
    /// it, left lying behind new ones, would one day pass for one of theirs.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        catalogue: CatalogueId,
        segment_bytes: u64,
        segment: Arc<Segment>,
        end: End,
    ) -> Result<Self, Error> {
        let wrong = |error: &io::Error| cannot_write(&segment.path, error);
        let file: Arc<dyn DiskFile> =
            Arc::from(disk.open_to_write(&segment.path).map_err(|error| wrong(&error))?);
        if end.ending == Ending::Torn {
            file.set_length(end.position.offset).map_err(|error| wrong(&error))?;
            file.sync().map_err(|error| wrong(&error))?;
        }
        // If the disk is full this fails, and the segment just ends here.
        if let Err(error) = file.preallocate(segment_bytes).and_then(|()| file.sync()) {
            tracing::warn!(file = segment.name(), %error, "cannot reserve space for the log");
        }
        let reserved = file.length().map_err(|error| wrong(&error))?;
        Ok(Log {
            disk,
            directory: directory.to_owned(),
            catalogue,
            segment_bytes,
            salt: end.salt,
            offset: end.position.offset,
            reserved,
            segment,
            file,
        })
    }

    /// Makes a segment durable, with space for its own size or for `bytes` of records if that is more.
    fn begin_segment(
        disk: &dyn Disk,
        directory: &Path,
        header: Header,
        segment_bytes: u64,
        bytes: usize,
    ) -> Result<Begun, BeginError> {
        let segment = Arc::new(Segment::new(directory, header.first_revision));
        let unfinished = directory.join(format!("{}{UNFINISHED}", segment::file_name(header.first_revision)));
        let length = segment_bytes.max((HEADER_BYTES + bytes) as u64);
        let mut named = false;
        let mut begin = || -> io::Result<Box<dyn DiskFile>> {
            let file = disk.create(&unfinished)?;
            file.preallocate(length)?;
            file.write_at(&header.encode(), 0)?;
            file.sync()?;
            named = true;
            disk.rename(&unfinished, &segment.path)?;
            disk.sync_directory(directory)?;
            Ok(file)
        };
        match begin() {
            Ok(file) => Ok((segment, Arc::from(file), length)),
            Err(error) => {
                if let Err(error) = disk.remove(&unfinished) {
                    tracing::debug!(file = %unfinished.display(), %error, "cannot remove an unfinished segment");
                }
                Err(BeginError { named, error: cannot_write(&segment.path, &error) })
            }
        }
    }

    /// The log of a new catalogue: its first segment.
    pub fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        catalogue: CatalogueId,
        segment_bytes: u64,
        created: TimeMs,
        digest: u128,
    ) -> Result<Self, Error> {
        let first_revision = Revision(1);
        let salt = random_u64()?;
        let header = Header { catalogue, first_revision, created, salt, digest };
        let begun = Self::begin_segment(&*disk, directory, header, segment_bytes, 0);
        let (segment, file, reserved) = begun.map_err(|begin| begin.error)?;
        let directory = directory.to_owned();
        let offset = HEADER_BYTES as u64;
        Ok(Log { disk, directory, catalogue, segment_bytes, segment, file, salt, offset, reserved })
    }

    /// Seals the segment and begins the next, whose first record will have this revision, with space for `bytes`. If
    /// that fails nothing is lost, and it can be tried again.
    pub fn roll(
        &mut self,
        first_revision: Revision,
        created: TimeMs,
        digest: u128,
        bytes: usize,
    ) -> Result<(), Error> {
        if first_revision == self.segment.first_revision {
            // Nothing is in this segment: it has no room because it never got any. More may be had by now.
            let length = self.segment_bytes.max((HEADER_BYTES + bytes) as u64);
            let more = self.file.preallocate(length).and_then(|()| self.file.sync());
            more.map_err(|error| cannot_write(&self.segment.path, &error))?;
            self.reserved = length;
            return Ok(());
        }
        let salt = random_u64()?;
        let header = Header { catalogue: self.catalogue, first_revision, created, salt, digest };
        let begun = Self::begin_segment(&*self.disk, &self.directory, header, self.segment_bytes, bytes);
        let (segment, file, reserved) = begun.map_err(|begin| {
            if begin.named {
                // The next change must go there and nowhere else, so nothing more goes here.
                self.reserved = self.offset;
            }
            begin.error
        })?;
        // What was reserved and not needed is given back; it does no harm if this is lost.
        if let Err(error) = self.file.set_length(self.offset) {
            tracing::debug!(file = self.segment.name(), %error, "cannot trim a sealed segment");
        }
        (self.segment, self.file, self.salt) = (segment, file, salt);
        (self.offset, self.reserved) = (HEADER_BYTES as u64, reserved);
        Ok(())
    }

    /// Is space reserved for a group of so many bytes?
    pub fn fits(&self, bytes: usize) -> bool {
        self.offset + bytes as u64 <= self.reserved
    }

    /// What records written now are salted with.
    pub fn salt(&self) -> Salt {
        self.salt
    }

    /// The place of the next group, of so many bytes. What was placed before must be durable before it is written.
    pub fn place(&mut self, bytes: usize) -> Place {
        let place =
            Place { file: Arc::clone(&self.file), segment: Arc::clone(&self.segment), offset: self.offset };
        self.offset += bytes as u64;
        place
    }

    /// The segment being written.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }
}
