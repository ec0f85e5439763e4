//! The archived form of a sealed segment: compressed in blocks. `docs/internals/log-format.md` has
//! every byte.
//!
//! A reader unpacks one block, not the file. The store that owns the log decides when to archive, and
//! checks the copy before it removes the plain segment.

pub mod format;
mod reader;

pub use format::is_archived;
pub use reader::Archive;

/// Ending of the name of an archived segment, after the revision.
pub const ENDING: &str = ".logz";
/// Bytes of records after which a block ends. Reading one change unpacks one block.
pub const BLOCK_BYTES: usize = 256 << 10;
