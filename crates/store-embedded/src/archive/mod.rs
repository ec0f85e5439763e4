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
//! unpack one block, not the file (`exacat_log::archive`).

mod notifier;
mod packer;
mod retention;
mod worker;

pub(crate) use notifier::Notifier;
pub(crate) use worker::Archivist;
#[cfg(test)]
pub(crate) use {
    packer::Packer,
    worker::{ArchiveStep, ArchiveWork},
};
