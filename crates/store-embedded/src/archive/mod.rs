//! The archive: segments of the log that are sealed, compressed in blocks, and kept as long as the operator says. Byte by
//! byte in `docs/internals/log-format.md`.
//!
//! A segment is sealed when the next is begun; nothing is written to it any more. A thread of its own (`worker`) then
//! writes it again as an archived one beside it (`packer`), reads that back, and only then removes the plain one. What is
//! too old or too much is removed, oldest first (`retention`). Readers (`reader`, `segment_reader.rs`) unpack one block, not
//! the file.

mod format;
mod packer;
mod reader;
mod retention;
mod worker;

pub(crate) use format::is_archived;
pub(crate) use reader::Archive;
pub(crate) use worker::{Archivist, Bell};
#[cfg(test)]
pub(crate) use {
    packer::Packer,
    worker::{Step, Work},
};

/// What comes after the revision in the name of an archived segment.
pub(crate) const ENDING: &str = ".logz";
/// Bytes of records after which a block ends: what reading one change unpacks.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
