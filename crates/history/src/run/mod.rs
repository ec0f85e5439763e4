//! Sorted runs: the rows of one group and day, in a file that never changes once it is whole.
//!
//! ```text
//! header 64 bytes · chunks · index · footer 128 bytes
//! chunk: head · pages of column 1 · pages of column 2 · …
//! ```
//! A chunk has up to 128 Ki rows, and its head has what its pages share. A page has up to 4096 rows of
//! one column and is decoded alone. Readers keep the index in memory, and read heads and pages on
//! demand. Each part has a checksum with the run's salt and the part's place, so nothing else passes
//! for it. `docs/internals/history-format.md` draws every byte.

mod check;
mod chunk;
mod encode;
mod index;
mod latest;
mod numbers;
mod open;
mod reader;
mod scan;
mod texts;
mod verify;
mod wanted;
mod writer;

#[cfg(test)]
mod tests;

pub use index::{FieldCount, RunHead, RunSummary};
pub use latest::Latest;
pub use reader::Run;
pub use scan::Scan;
pub use wanted::{Elements, Fields, Wanted};
pub use writer::{COMPACTION_LEVEL, FLUSH_LEVEL, RunWriter};

/// Bytes before the chunks.
const HEADER_BYTES: usize = 64;
/// Bytes at the end.
const FOOTER_BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"exacatHR";
const FOOTER_MAGIC: [u8; 8] = *b"exacatHE";
/// Version of the format that this release writes.
const VERSION: u16 = 1;

/// Rows of a page. Bounds the work to read one row.
pub const PAGE_ROWS: usize = 4096;
/// Rows of a chunk. Its pages share the tables of their columns.
pub const CHUNK_ROWS_MAX: usize = 128 << 10;
/// Bytes of values at which a chunk ends although it could have more rows. Bounds the memory of writers
/// and readers when rows are wide or have large texts.
pub const CHUNK_BYTES: usize = 16 << 20;
/// Nanoseconds of a day.
pub const DAY_NANOSECONDS: i64 = 86_400_000_000_000;

/// Returns the UTC day of a time, in days since 1970.
pub fn day_of(time: i64) -> i32 {
    time.div_euclid(DAY_NANOSECONDS) as i32
}

/// Returns the first and the last time of a UTC day.
pub fn span_of(day: i32) -> (i64, i64) {
    let from = i64::from(day).saturating_mul(DAY_NANOSECONDS);
    (from, from.saturating_add(DAY_NANOSECONDS - 1))
}

/// Returns the checksum of a part of the run with this salt, whose first byte is at `at`.
fn checksum(salt: u64, at: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&at.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Splits the checksum from the end of a part; none if it does not fit.
fn checked(salt: u64, at: u64, bytes: &[u8]) -> Option<&[u8]> {
    let (content, sum) = bytes.split_last_chunk::<4>()?;
    (checksum(salt, at, content).to_le_bytes() == *sum).then_some(content)
}
