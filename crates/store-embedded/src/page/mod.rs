//! Pages: some 128 rows of one or a few directories, packed together, found and read without unpacking the others.
//!
//! A page stands for itself: it says what it holds, and its checksum that it is whole. Byte by byte in
//! `docs/internals/engine-format.md`.
//!
//! ```text
//! head 104 bytes · marks · shapes · directories · names · records · rest · 8 zeros
//!
//! marks:        one byte per row, of the hash of its key: most rows that are not looked for are passed over by it
//! shapes:       where each ends, then each shape once
//! directories:  each: its number less the one before it, how many rows
//! names:        front-coded: bytes shared with the name before, length of what follows, what follows; whole every 16th.
//!               What all names of the page end with is in the head's count and stands once, before them.
//! records:      one per row, all of one length: shape, identity, size, job, created, modified, revision, digest, each of
//!               one width in the page; numbers less the smallest of the page
//! rest:         where each row's ends, and the bytes; nothing if no row has any
//! ```

mod build;
mod read;
mod row;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use build::PageBuilder;
pub(crate) use read::{Page, PageHead, Walk};
pub(crate) use row::{Row, RowRoom, Trashed};

use crate::record::{part, u32_at, u64_at};

/// Rows of a page, at most. More make pages smaller and look-ups slower.
pub(crate) const ROWS_MAX: usize = 128;
/// A page that has so many bytes is full, if rows are long; one row alone may have more.
pub(crate) const FULL_BYTES: usize = 32 << 10;
/// Bytes of a page, at most: the longest row has 1.4 MiB.
pub(crate) const PAGE_BYTES_MAX: usize = 2 << 20;
/// Names from one that is whole to the next.
const WHOLE_EVERY: usize = 16;
/// Bytes before the marks.
pub(crate) const HEAD_BYTES: usize = 104;
/// Zeros at the end, so that a number at the very end can be read as eight bytes.
const TAIL_BYTES: usize = 8;

/// A page is not what was written: its bytes fail their checksum, or contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged(pub &'static str);

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// The numbers of a record: size, job, created, modified, revision.
const NUMBERS: usize = 5;
const CREATED: usize = 2;
const MODIFIED: usize = 3;

/// The head of a page, as numbers.
///
/// ```text
/// 0 checksum u32 · 4 length u32 · 8 rows u16 · 10 shapes u16 · 12 directories u16 · 14 suffix u8 · 15 width of shape u8
/// 16 widths of the five numbers u8 · 21 width of digest u8 · 22 1 if any row has a rest u8 · 23 width of identity u8
/// 24 directories at u32 · 28 names at u32 · 32 whole names at u32 · 36 records at u32 · 40 rest at u32
/// 44 width of where a shape ends u8 · 45 zeros
/// 48 smallest of the five numbers u64 · 88 first directory u64 · 96 zeros u64
/// ```
/// Whole names: where each stands after the start of the names, u16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    length: u32,
    rows: u16,
    shapes: u16,
    directories: u16,
    suffix: u8,
    shape_width: u8,
    /// 2 or 4: of where a shape ends.
    shape_end_width: u8,
    widths: [u8; NUMBERS],
    digest_width: u8,
    has_rest: bool,
    /// 16, or 0 if no row has an identity.
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

    /// Bytes of a record.
    fn record_bytes(&self) -> usize {
        let numbers: usize = self.widths.iter().map(|width| usize::from(*width)).sum();
        usize::from(self.shape_width) + usize::from(self.id_width) + numbers + usize::from(self.digest_width)
    }
}

/// The mark of a row, by the hash of its key.
fn mark(hash: u64) -> u8 {
    (hash >> 24) as u8
}

/// The checksum of a page's bytes, which stands in its first four. `salt` is the run's, and mixes in where in it
/// the page stands: no page passes for another.
fn checksum(salt: u64, place: u64, page: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&place.to_le_bytes());
    hasher.update(&page[4..]);
    hasher.finalize()
}
