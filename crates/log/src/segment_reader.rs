//! Reads records of one segment by their offset, whether it is plain or archived. The offset is
//! always that in the plain segment.

use exacat_disk::{Disk, DiskFile, cannot_read, corrupt};
use exacat_model::{Error, Revision};

use crate::archive::Archive;
use crate::record::{self, FRAME_BYTES, HEAD_BYTES_MAX, Head, Salt};
use crate::segment::{CatalogueId, HEADER_BYTES, Header, SEAL_ROOM, begun_seal_in, seal_in};
use crate::segment_file::{Form, Segment};

/// Bytes per read.
const READ_BYTES: usize = 256 << 10;
/// Bytes of a record that tell which changes it has.
const FRONT_BYTES: usize = FRAME_BYTES + HEAD_BYTES_MAX;

/// Proves that the front also covers the seal that ends the records.
const _: () = assert!(FRONT_BYTES >= SEAL_ROOM);

/// Open file of a segment.
enum Source {
    Plain(Box<dyn DiskFile>),
    Archived(Box<Archive>),
}

/// Reads records of one segment, by offset, in large pieces.
pub struct SegmentReader {
    source: Source,
    name: String,
    header: Header,
    buffer: Vec<u8>,
    /// Offset of the buffer in the plain segment.
    start: u64,
}

impl SegmentReader {
    /// Opens a segment in its present form; none if retention has removed it.
    pub fn open(disk: &dyn Disk, segment: &Segment, catalogue: CatalogueId) -> Result<Option<Self>, Error> {
        // The lock is held until the file is open. Afterwards the name may go, but the open file
        // stays readable.
        let form = segment.form();
        let name = segment.name_in(*form);
        let unreadable = |error: std::io::Error| cannot_read(&name, &error);
        let (source, header) = match *form {
            Form::Gone => return Ok(None),
            Form::Plain => {
                let file = disk.open_to_read(&segment.path).map_err(unreadable)?;
                let mut header = [0; HEADER_BYTES];
                let read = file.read_at(&mut header, 0).map_err(unreadable)?;
                let header = Header::decode(&name, &header[..read])?;
                (Source::Plain(file), header)
            }
            Form::Archived => {
                let file = disk.open_to_read(&segment.archived_path()).map_err(unreadable)?;
                let archive = Archive::open(file, name.clone())?;
                let header = *archive.header();
                (Source::Archived(Box::new(archive)), header)
            }
        };
        drop(form);
        if header.catalogue != catalogue || header.first_revision != segment.first_revision {
            return Err(corrupt(&name, 16, "the segment is another catalogue's, or has another's name"));
        }
        Ok(Some(SegmentReader { source, name, header, buffer: Vec::new(), start: 0 }))
    }

    /// Returns the name for errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the salt of its records.
    pub fn salt(&self) -> Salt {
        self.header.salt
    }

    /// Returns the archived segment, if this reads one.
    pub fn archive(&self) -> Option<&Archive> {
        match &self.source {
            Source::Plain(_) => None,
            Source::Archived(archive) => Some(archive),
        }
    }

    /// Returns the offset from which to search for the change of this revision.
    pub fn start_for(&self, segment: &Segment, revision: Revision) -> u64 {
        match self.archive() {
            None => segment.start_for(revision),
            Some(archive) => {
                let block = archive.blocks().get(archive.block_of(revision));
                block.map_or(archive.offset_end(), |block| block.offset)
            }
        }
    }

    /// Returns up to `count` of the segment's bytes from `offset`; fewer if the segment, or its
    /// block, ends before.
    pub fn bytes(&mut self, offset: u64, count: usize) -> Result<&[u8], Error> {
        let inside = offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        let skip = match (inside, &mut self.source) {
            (Some(skip), _) if skip + count <= self.buffer.len() => skip,
            // A block has whole records: a record never continues beyond its block.
            (Some(skip), Source::Archived(_)) if skip < self.buffer.len() => skip,
            (_, Source::Plain(file)) => {
                self.buffer.resize(count.max(READ_BYTES), 0);
                let read = file.read_at(&mut self.buffer, offset);
                let read = read.map_err(|error| cannot_read(&self.name, &error))?;
                self.buffer.truncate(read);
                self.start = offset;
                0
            }
            (_, Source::Archived(archive)) => {
                self.buffer.clear();
                let number = archive.block_at(offset);
                let Some(block) = archive.blocks().get(number) else { return Ok(&[]) };
                let start = block.offset;
                archive.unpack(number, &mut self.buffer)?;
                self.start = start;
                offset.checked_sub(start).and_then(|skip| usize::try_from(skip).ok()).unwrap_or(usize::MAX)
            }
        };
        let end = skip.saturating_add(count).min(self.buffer.len());
        Ok(self.buffer.get(skip..end).unwrap_or_default())
    }

    fn frame(&mut self, offset: u64) -> Result<Option<record::Frame>, Error> {
        let salt = self.salt();
        let front = self.bytes(offset, FRONT_BYTES)?;
        if front.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // Offsets of records are within a file that was read.
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        if seal_in(salt, at, front).or_else(|| begun_seal_in(at, front)).is_some() {
            return Ok(None);
        }
        match record::read_frame(front) {
            Some(frame) => Ok(Some(frame)),
            None => Err(corrupt(&self.name, offset, "a log record is damaged")),
        }
    }

    /// Returns offset and head of the record of changes there, or behind end marks there. None at
    /// the end.
    pub fn next_head(&mut self, offset: u64) -> Result<Option<(u64, Head)>, Error> {
        let mut at = offset;
        while let Some(frame) = self.frame(at)? {
            if !frame.is_mark {
                return Ok(self.head(at)?.map(|head| (at, head)));
            }
            at += frame.stride() as u64;
        }
        Ok(None)
    }

    /// Returns the checked bytes of an end mark there; none if there is something else.
    pub fn mark(&mut self, offset: u64) -> Result<Option<&[u8]>, Error> {
        match self.frame(offset)? {
            Some(frame) if frame.is_mark => self.record(offset).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the head of the record of changes there.
    fn head(&mut self, offset: u64) -> Result<Option<Head>, Error> {
        let front = self.bytes(offset, FRONT_BYTES)?;
        match front.get(FRAME_BYTES..).map(record::read_head) {
            Some(Ok(head)) => Ok(Some(head)),
            _ => Err(corrupt(&self.name, offset, "a log record is cut off")),
        }
    }

    /// Returns the bytes from the record there to the next; 0 at the end.
    pub fn stride(&mut self, offset: u64) -> Result<u64, Error> {
        Ok(self.frame(offset)?.map_or(0, |frame| frame.stride() as u64))
    }

    /// Returns all bytes of the record there, checked, with its padding.
    pub fn record(&mut self, offset: u64) -> Result<&[u8], Error> {
        let stride = self.stride(offset)?;
        let (salt, name) = (self.salt(), self.name.clone());
        let bytes = self.bytes(offset, usize::try_from(stride).unwrap_or(usize::MAX))?;
        match record::read(salt, bytes) {
            Some(_) => Ok(bytes),
            None => Err(corrupt(&name, offset, "a log record is damaged")),
        }
    }

    /// Returns the body of the record there, checked.
    pub fn body(&mut self, offset: u64) -> Result<&[u8], Error> {
        let salt = self.salt();
        let body = record::read(salt, self.record(offset)?).map(|(_, body)| body);
        Ok(body.unwrap_or_default())
    }
}
