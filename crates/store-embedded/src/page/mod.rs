//! Pages: some 128 rows of one or a few directories, packed together. A reader finds one row
//! without unpacking the others.
//!
//! A page is self-contained: it describes its content, and its checksum proves that it is whole.
//! `docs/internals/engine-format.md` has every byte.
//!
//! ```text
//! head 104 bytes · marks · shapes · directories · names · records · rest · 8 zeros
//!
//! marks:        one byte per row, of the hash of its key: a look-up passes most other rows over by it
//! shapes:       the end of each, then each shape once
//! directories:  each: its number less the one before it, its number of rows
//! names:        front-coded: bytes shared with the name before, length of the rest, the rest;
//!               whole every 16th. The common end of all names of the page has its length in
//!               the head and stands once, before them.
//! records:      one per row, all of one length: shape, identity, size, job, created, modified,
//!               revision, digest, each of one width in the page; numbers less the smallest
//! rest:         the end of each row's bytes, then the bytes; absent if no row has any
//! ```

mod build;
mod read;
mod row;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use build::PageBuilder;
pub(crate) use read::{Page, PageHead, Walk};
pub(crate) use row::{Row, RowRoom, Trashed};

use exacat_disk::fixed::{part, u32_at, u64_at};

/// Maximum rows of a page. More rows make pages smaller and look-ups slower.
pub(crate) const ROWS_MAX: usize = 128;
/// Bytes at which a page is full, if its rows are long. One row alone may have more.
pub(crate) const FULL_BYTES: usize = 32 << 10;
/// Maximum bytes of a page: the longest row has 1.4 MiB.
pub(crate) const PAGE_BYTES_MAX: usize = 2 << 20;
/// Distance in rows from one whole name to the next.
const WHOLE_EVERY: usize = 16;
/// Bytes before the marks.
pub(crate) const HEAD_BYTES: usize = 104;
/// Zeros at the end, so that a number at the very end can be read as eight bytes.
const TAIL_BYTES: usize = 8;

/// Error of a page that is not what was written: its checksum fails, or its bytes contradict each
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged(pub &'static str);

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Number of numeric fields of a record: size, job, created, modified, revision.
const NUMBERS: usize = 5;
const CREATED: usize = 2;
const MODIFIED: usize = 3;

/// Head of a page, as numbers.
///
/// ```text
/// 0 checksum u32 · 4 length u32 · 8 rows u16 · 10 shapes u16 · 12 directories u16
/// 14 suffix u8 · 15 width of shape u8 · 16 widths of the five numbers u8 · 21 width of digest u8
/// 22 1 if any row has a rest u8 · 23 width of identity u8
/// 24 directories at u32 · 28 names at u32 · 32 whole names at u32 · 36 records at u32 · 40 rest at u32
/// 44 width of where a shape ends u8 · 45 zeros
/// 48 smallest of the five numbers u64 · 88 first directory u64 · 96 zeros u64
/// ```
/// Whole names: the offset of each from the start of the names, u16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    length: u32,
    rows: u16,
    shapes: u16,
    directories: u16,
    suffix: u8,
    shape_width: u8,
    /// Width of the end of a shape: 2 or 4.
    shape_end_width: u8,
    widths: [u8; NUMBERS],
    digest_width: u8,
    has_rest: bool,
    /// Width of an identity: 16, or 0 if no row has one.
    id_width: u8,
    directories_at: u32,
    names_at: u32,
    whole_at: u32,
    records_at: u32,
    rest_at: u32,
    bases: [u64; NUMBERS],
    first_directory: u64,
}

impl Head {
    fn put(&self, out: &mut [u8]) {
        // Every field has a fixed place, so that a reader locates any part without a scan. Bytes 45
        // to 47 and 96 to 103 stay zero.
        out[4..8].copy_from_slice(&self.length.to_le_bytes());
        out[8..10].copy_from_slice(&self.rows.to_le_bytes());
        out[10..12].copy_from_slice(&self.shapes.to_le_bytes());
        out[12..14].copy_from_slice(&self.directories.to_le_bytes());
        (out[14], out[15]) = (self.suffix, self.shape_width);
        out[16..21].copy_from_slice(&self.widths);
        (out[21], out[22], out[23]) = (self.digest_width, u8::from(self.has_rest), self.id_width);
        let places = [self.directories_at, self.names_at, self.whole_at, self.records_at, self.rest_at];
        for (at, place) in (24..).step_by(4).zip(places) {
            out[at..at + 4].copy_from_slice(&place.to_le_bytes());
        }
        out[44] = self.shape_end_width;
        for (at, base) in (48..).step_by(8).zip(self.bases) {
            out[at..at + 8].copy_from_slice(&base.to_le_bytes());
        }
        out[88..96].copy_from_slice(&self.first_directory.to_le_bytes());
    }

    fn read(bytes: &[u8; HEAD_BYTES]) -> Self {
        let u16_at = |at: usize| u16::from_le_bytes(part(bytes, at));
        let u32_at = |at: usize| u32_at(bytes, at);
        let u64_at = |at: usize| u64_at(bytes, at);
        // The type of `bytes` proves its length, so no offset below can be out of bounds.
        let mut bases = [0; NUMBERS];
        bases.iter_mut().zip((48..).step_by(8)).for_each(|(base, at)| *base = u64_at(at));
        Head {
            length: u32_at(4),
            rows: u16_at(8),
            shapes: u16_at(10),
            directories: u16_at(12),
            suffix: bytes[14],
            shape_width: bytes[15],
            shape_end_width: bytes[44],
            widths: part(bytes, 16),
            digest_width: bytes[21],
            has_rest: bytes[22] != 0,
            id_width: bytes[23],
            directories_at: u32_at(24),
            names_at: u32_at(28),
            whole_at: u32_at(32),
            records_at: u32_at(36),
            rest_at: u32_at(40),
            bases,
            first_directory: u64_at(88),
        }
    }

    /// Returns the bytes of one record.
    fn record_bytes(&self) -> usize {
        // All records of a page have one length: the number of a row gives its place.
        let numbers: usize = self.widths.iter().map(|width| usize::from(*width)).sum();
        usize::from(self.shape_width) + usize::from(self.id_width) + numbers + usize::from(self.digest_width)
    }
}

/// Returns the mark of a row, one byte of the hash of its key.
fn mark(hash: u64) -> u8 {
    (hash >> 24) as u8
}

/// Returns the checksum of a page's bytes, which its first four bytes hold. It includes the run's
/// `salt` and the place in the run, so that no page passes for another.
fn checksum(salt: u64, place: u64, page: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    // Salt and place come first: a page of another run, or from another place, fails even if its
    // bytes are whole.
    hasher.update(&salt.to_le_bytes());
    hasher.update(&place.to_le_bytes());
    // Bytes 0 to 3 hold the checksum itself.
    hasher.update(&page[4..]);
    hasher.finalize()
}
