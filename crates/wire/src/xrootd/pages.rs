//! Pages: bytes of a file, each 4 KiB with a checksum (CRC-32C) before it, behind a header with one, too.

use super::limits::{CHECKSUM_BYTES, PAGE_BYTES, RESPONSE_HEADER_BYTES};
use super::numbers::{request, status};
use super::request::StreamId;

/// Bytes of the header of pages, behind that of the response.
pub const PAGE_HEADER_BYTES: usize = 24;
/// Number of the first kind of requests; the header of pages has the distance from it.
const FIRST_REQUEST: u16 = 3000;
/// Kind of an answer: nothing follows it, or another part does.
const FINAL: u8 = 0;
const PARTIAL: u8 = 1;

/// Header of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// Id of the request.
    pub stream: StreamId,
    /// True if no other answer to the request follows.
    pub is_last: bool,
    /// Bytes that follow: those of the file, and their checksums.
    pub bytes: u32,
    /// Place of the first byte in the file.
    pub offset: u64,
}

/// Reason why bytes are no header of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The checksum of the header is wrong.
    #[error("the header of an answer has another checksum than its bytes")]
    Checksum,
    /// It is the header of another answer.
    #[error("an answer with checksums that is none to a read of pages")]
    Other,
}

impl PageHeader {
    /// Reads a header.
    ///
    /// # Errors
    /// It is none, or damaged.
    pub fn read(bytes: &[u8; PAGE_HEADER_BYTES]) -> Result<Self, PageError> {
        let [c0, c1, c2, c3, checked @ ..] = bytes;
        if crc32c::crc32c(checked) != u32::from_be_bytes([*c0, *c1, *c2, *c3]) {
            return Err(PageError::Checksum);
        }
        let [s0, s1, kind, part, _, _, _, _, b0, b1, b2, b3, offset @ ..] = *checked;
        let bytes = u32::try_from(i32::from_be_bytes([b0, b1, b2, b3])).map_err(|_| PageError::Other)?;
        let offset = u64::try_from(i64::from_be_bytes(offset)).map_err(|_| PageError::Other)?;
        if u16::from(kind) != request::PGREAD - FIRST_REQUEST || !matches!(part, FINAL | PARTIAL) {
            return Err(PageError::Other);
        }
        Ok(PageHeader { stream: StreamId([s0, s1]), is_last: part == FINAL, bytes, offset })
    }

    /// Writes a header, behind that of the response.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.stream.0);
        out.extend_from_slice(&status::STATUS.to_be_bytes());
        out.extend_from_slice(&(PAGE_HEADER_BYTES as u32).to_be_bytes());
        let from = out.len();
        out.extend_from_slice(&[0; CHECKSUM_BYTES]);
        out.extend_from_slice(&self.stream.0);
        out.push((request::PGREAD - FIRST_REQUEST) as u8);
        out.push(if self.is_last { FINAL } else { PARTIAL });
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.bytes.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        let checksum = crc32c::crc32c(&out[from + CHECKSUM_BYTES..]);
        out[from..from + CHECKSUM_BYTES].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Returns the bytes of the page at a place: to the next multiple of 4 KiB, or to the end of the data.
pub fn page_bytes(offset: u64, left: usize) -> usize {
    (PAGE_BYTES - (offset % PAGE_BYTES as u64) as usize).min(left)
}

/// Returns the number of pages that a range touches.
fn pages(offset: u64, length: u64) -> u64 {
    match offset.checked_add(length) {
        Some(end) if length > 0 => end.div_ceil(PAGE_BYTES as u64) - offset / PAGE_BYTES as u64,
        _ => 0,
    }
}

/// Returns the bytes of a range with a checksum before each of its pages. A page begins at a multiple of
/// [`PAGE_BYTES`] in the file; the first and last may be a part of one.
pub fn paged_bytes(offset: u64, length: u64) -> u64 {
    length.saturating_add(pages(offset, length).saturating_mul(CHECKSUM_BYTES as u64))
}

/// Writes an answer with pages: the bytes of a file from a place on.
pub fn write_pages(out: &mut Vec<u8>, stream: StreamId, is_last: bool, offset: u64, data: &[u8]) {
    let bytes = u32::try_from(paged_bytes(offset, data.len() as u64)).unwrap_or(u32::MAX);
    out.reserve(RESPONSE_HEADER_BYTES + PAGE_HEADER_BYTES + bytes as usize);
    PageHeader { stream, is_last, bytes, offset }.write(out);
    let (mut rest, mut at) = (data, offset);
    while !rest.is_empty() {
        let (page, behind) = rest.split_at(page_bytes(at, rest.len()));
        out.extend_from_slice(&crc32c::crc32c(page).to_be_bytes());
        out.extend_from_slice(page);
        at += page.len() as u64;
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_a_checksum_for_each_page_that_it_touches() {
        let cases =
            [(0, 0, 0), (0, 1, 5), (0, 4096, 4100), (0, 4097, 4105), (4095, 2, 10), (4096, 4096, 4100)];
        for (offset, length, bytes) in cases {
            assert_eq!(paged_bytes(offset, length), bytes, "{offset} {length}");
        }
        assert_eq!(paged_bytes(u64::MAX, u64::MAX), u64::MAX);
    }
}
