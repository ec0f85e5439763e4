//! Answer to a vector read: ranges of a file, each with a header before its bytes.

use super::file_request::FileRange;
use super::limits::SEGMENT_HEADER_BYTES;

/// Reason why the answer to a vector read is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer to a vector read has other segments than the request")]
pub struct WrongSegment;

/// Takes the answer to a vector read apart, in any pieces: the segments of the request, in its order, each
/// with a header before its bytes.
#[derive(Clone, Debug)]
pub struct VectorAnswer {
    segments: Vec<FileRange>,
    /// Number of the segment that is read.
    at: usize,
    header: [u8; SEGMENT_HEADER_BYTES],
    /// Bytes of the header that came.
    filled: usize,
    /// Place of the next byte of data, and bytes that follow.
    offset: u64,
    left: u32,
    is_short: bool,
}

impl VectorAnswer {
    /// Expects the answer to a request for these segments.
    pub fn new(segments: Vec<FileRange>) -> Self {
        let header = [0; SEGMENT_HEADER_BYTES];
        VectorAnswer { segments, at: 0, header, filled: 0, offset: 0, left: 0, is_short: false }
    }

    /// Takes some bytes of the answer. Calls `data` with those of the file, and their place in it.
    ///
    /// # Errors
    /// The bytes are of no segment that was asked for.
    pub fn feed(&mut self, mut bytes: &[u8], mut data: impl FnMut(u64, &[u8])) -> Result<(), WrongSegment> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let count = bytes.len().min(self.left as usize);
                let (now, later) = bytes.split_at(count);
                data(self.offset, now);
                self.offset += count as u64;
                self.left -= count as u32;
                bytes = later;
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(SEGMENT_HEADER_BYTES - self.filled));
            self.header[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == SEGMENT_HEADER_BYTES {
                let segment = FileRange::read(&self.header).ok_or(WrongSegment)?;
                let asked = self.segments.get(self.at).ok_or(WrongSegment)?;
                if (segment.handle, segment.offset) != (asked.handle, asked.offset)
                    || segment.length > asked.length
                {
                    return Err(WrongSegment);
                }
                self.is_short |= segment.length < asked.length;
                (self.offset, self.left) = (segment.offset, segment.length);
                self.at += 1;
                self.filled = 0;
            }
        }
        Ok(())
    }

    /// Says whether all segments came, each with all of its bytes.
    pub fn is_complete(&self) -> bool {
        self.at == self.segments.len() && self.left == 0 && self.filled == 0 && !self.is_short
    }

    /// Returns the segments of the request.
    pub fn segments(&self) -> &[FileRange] {
        &self.segments
    }
}
