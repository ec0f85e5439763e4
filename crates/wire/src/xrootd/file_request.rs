//! Requests about files that are open: a data server answers them, a redirector has no such files.

use exacat_model::{Error, Result};

use super::limits::{SEGMENT_HEADER_BYTES, SEGMENTS_MAX};
use super::numbers::request as id;
use super::request::RequestHeader;

/// Number of an open file on a connection, chosen by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileHandle(pub [u8; 4]);

/// Bytes of a file that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub handle: FileHandle,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; fewer are sent at the end of the file.
    pub length: u32,
}

impl FileRange {
    /// Reads a range as a vector read has it, in its request and in its answer; none if its place or length
    /// is negative.
    pub fn read(bytes: &[u8; SEGMENT_HEADER_BYTES]) -> Option<Self> {
        let [h0, h1, h2, h3, l0, l1, l2, l3, offset @ ..] = *bytes;
        range([h0, h1, h2, h3], offset, [l0, l1, l2, l3])
    }

    /// Writes a range as a vector read has it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.0);
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
    }
}

/// Request about an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRequest<'a> {
    /// Reads.
    Read(FileRange),
    /// Reads pages, each with a checksum.
    PageRead(FileRange),
    /// Reads several ranges.
    VectorRead(Chunks<'a>),
    /// Returns the stat of the file.
    Stat(FileHandle),
    /// Closes the file.
    Close(FileHandle),
    /// Changes the file, or makes its changes durable.
    Write,
}

/// Ranges of a vector read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks<'a> {
    list: &'a [u8],
}

impl<'a> Chunks<'a> {
    /// Reads the list of a vector read.
    ///
    /// # Errors
    /// The list is empty, too long or cut off, or a range is negative.
    pub fn parse(list: &'a [u8]) -> Result<Self> {
        if list.is_empty() || !list.len().is_multiple_of(SEGMENT_HEADER_BYTES) {
            return Err(Error::invalid("the list of a vector read is empty or cut off"));
        }
        let count = list.len() / SEGMENT_HEADER_BYTES;
        if count > SEGMENTS_MAX {
            return Err(Error::limit("the number of ranges of a vector read", count, SEGMENTS_MAX));
        }
        let chunks = Chunks { list };
        match (0..count).all(|at| chunks.get(at).is_some()) {
            true => Ok(chunks),
            false => Err(Error::invalid("a range of a vector read has a negative place or length")),
        }
    }

    /// Returns the number of ranges.
    pub fn count(&self) -> usize {
        self.list.len() / SEGMENT_HEADER_BYTES
    }

    /// Returns a range; none behind the last.
    pub fn get(&self, at: usize) -> Option<FileRange> {
        let (list, _) = self.list.as_chunks();
        FileRange::read(list.get(at)?)
    }
}

fn range(handle: [u8; 4], offset: [u8; 8], length: [u8; 4]) -> Option<FileRange> {
    Some(FileRange {
        handle: FileHandle(handle),
        offset: u64::try_from(i64::from_be_bytes(offset)).ok()?,
        length: u32::try_from(i32::from_be_bytes(length)).ok()?,
    })
}

impl<'a> FileRequest<'a> {
    /// Parses a request from its header and the bytes that it carries; none for a request of another
    /// kind, which [`Request::parse`](super::Request::parse) knows.
    ///
    /// # Errors
    /// A place or length is negative, or the list of a vector read is none.
    pub fn parse(header: &RequestHeader, carried: &'a [u8]) -> Result<Option<Self>> {
        let [h0, h1, h2, h3, offset @ .., l0, l1, l2, l3] = header.body;
        let (first, last) = ([h0, h1, h2, h3], [l0, l1, l2, l3]);
        let range = || {
            let negative = || Error::invalid("the place or length of a read is negative");
            range(first, offset, last).ok_or_else(negative)
        };
        Ok(Some(match header.request {
            // Hints for reading ahead may follow, and a connection for the answer. There is one only.
            id::READ => FileRequest::Read(range()?),
            id::PGREAD => FileRequest::PageRead(range()?),
            id::READV => FileRequest::VectorRead(Chunks::parse(carried)?),
            id::STAT if carried.is_empty() => FileRequest::Stat(FileHandle(last)),
            id::CLOSE => FileRequest::Close(FileHandle(first)),
            id::WRITE | id::WRITEV | id::PGWRITE | id::SYNC | id::CHKPOINT | id::TRUNCATE => {
                FileRequest::Write
            }
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xrootd::StreamId;

    fn header(request: u16, body: [u8; 16]) -> RequestHeader {
        RequestHeader { stream: StreamId([0, 1]), request, body, bytes: 0 }
    }

    fn body(handle: u32, offset: i64, length: i32) -> [u8; 16] {
        let bytes = [&handle.to_be_bytes()[..], &offset.to_be_bytes(), &length.to_be_bytes()].concat();
        bytes.try_into().unwrap()
    }

    fn chunk(handle: u32, length: i32, offset: i64) -> Vec<u8> {
        [&handle.to_be_bytes()[..], &length.to_be_bytes(), &offset.to_be_bytes()].concat()
    }

    /// Property: the ranges of reads are those that a client of the reference sends.
    #[test]
    fn reads_have_the_ranges_of_their_bodies() {
        let range = FileRange { handle: FileHandle([0, 0, 0, 7]), offset: 1 << 33, length: 1 << 23 };
        let body = body(7, 1 << 33, 1 << 23);
        assert_eq!(FileRequest::parse(&header(id::READ, body), &[]), Ok(Some(FileRequest::Read(range))));
        let parsed = FileRequest::parse(&header(id::PGREAD, body), &[0, 0]);
        assert_eq!(parsed, Ok(Some(FileRequest::PageRead(range))));
        let list = [chunk(7, 1 << 23, 1 << 33), chunk(8, 0, 0)].concat();
        let Ok(Some(FileRequest::VectorRead(chunks))) =
            FileRequest::parse(&header(id::READV, [0; 16]), &list)
        else {
            panic!()
        };
        assert_eq!((chunks.count(), chunks.get(0), chunks.get(2)), (2, Some(range), None));
        assert_eq!(chunks.get(1).unwrap().handle, FileHandle([0, 0, 0, 8]));
    }

    #[test]
    fn requests_of_other_kinds_are_left_to_others() {
        let close = FileRequest::parse(&header(id::CLOSE, body(9, 0, 0)), &[]);
        assert_eq!(close, Ok(Some(FileRequest::Close(FileHandle([0, 0, 0, 9])))));
        let stat = FileRequest::parse(&header(id::STAT, body(0, 0, 9)), &[]);
        assert_eq!(stat, Ok(Some(FileRequest::Stat(FileHandle([0, 0, 0, 9])))));
        assert_eq!(FileRequest::parse(&header(id::STAT, body(0, 0, 9)), b"/a"), Ok(None));
        assert_eq!(FileRequest::parse(&header(id::OPEN, [0; 16]), b"/a"), Ok(None));
        let write = FileRequest::parse(&header(id::PGWRITE, [0; 16]), b"...");
        assert_eq!(write, Ok(Some(FileRequest::Write)));
    }

    /// Property: a negative place or length, and a list that is none, are errors and no huge numbers.
    #[test]
    fn bad_ranges_are_refused_at_their_edges() {
        for body in [body(1, -1, 1), body(1, i64::MIN, 1), body(1, 0, -1), body(1, 0, i32::MIN)] {
            for request in [id::READ, id::PGREAD] {
                assert!(FileRequest::parse(&header(request, body), &[]).is_err());
            }
        }
        let most = chunk(1, 1, 1).repeat(SEGMENTS_MAX);
        assert_eq!(Chunks::parse(&most).unwrap().count(), SEGMENTS_MAX);
        assert!(Chunks::parse(&[&most[..], &chunk(1, 1, 1)].concat()).is_err());
        assert!(Chunks::parse(&[]).is_err());
        assert!(Chunks::parse(&most[..SEGMENT_HEADER_BYTES + 15]).is_err());
        assert!(Chunks::parse(&chunk(1, -1, 0)).is_err());
        assert!(Chunks::parse(&chunk(1, 0, -1)).is_err());
    }
}
