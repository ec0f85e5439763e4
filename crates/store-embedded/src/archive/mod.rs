//! The archive: sealed log segments, compressed in blocks, and kept as long as the operator wants.
//! `docs/internals/log-format.md` has every byte.
//!
//! The begin of a segment seals the one before it, which is never written again. A separate thread
//! (`worker`) then works in three steps:
//!
//! - It writes an archived copy beside the plain segment (`packer`).
//! - It reads the copy back and compares.
//! - Only then it removes the plain segment.
//!
//! Retention removes segments that are too old or too many, the oldest first (`retention`). Readers
//! (`reader`, `segment_reader.rs`) unpack one block, not the file.

mod format;
mod notifier;
mod packer;
mod reader;
mod retention;
mod worker;

pub(crate) use format::is_archived;
pub(crate) use notifier::Notifier;
pub(crate) use reader::Archive;
pub(crate) use worker::Archivist;
#[cfg(test)]
pub(crate) use {
    packer::Packer,
    worker::{ArchiveStep, ArchiveWork},
};

/// Ending of the name of an archived segment, after the revision.
pub(crate) const ENDING: &str = ".logz";
/// Bytes of records after which a block ends. Reading one change unpacks one block.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
