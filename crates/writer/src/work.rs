//! Work for a volume, and its outcome: the only things that pass between the service and its disks.

use exacat_wire::writer::FileId;

use crate::block::Block;
use crate::item::Item;
use crate::origin::PartKey;

/// Bytes of one block of a part to be written.
#[derive(Debug)]
pub struct BlockWrite {
    /// Memory of the block.
    pub block: Block,
    /// Place of the block in the file.
    pub offset: u64,
    /// First byte of the block to write; aligned.
    pub from: usize,
    /// Place behind the last one; aligned.
    pub to: usize,
}

/// Seal of a part: its exact length, and its items for the file beside it.
#[derive(Debug)]
pub struct PartSeal {
    /// Bytes of the part.
    pub length: u64,
    /// The part, with all its chunks.
    pub items: Vec<Item>,
}

/// Work on one part: its blocks are written in order, then synced once. Works of a part on their way
/// together write different pages.
#[derive(Debug)]
pub struct PartWork {
    /// The part.
    pub part: PartKey,
    /// Number among the works of the part.
    pub number: u64,
    /// True for the first work: the file is made, and its name made durable.
    pub create: bool,
    /// Blocks to write.
    pub writes: Vec<BlockWrite>,
    /// Seal, after the writes.
    pub seal: Option<PartSeal>,
}

/// Work for a volume. A service has at most [`crate::limits::PART_WORKS_MAX`] works of a part on their way,
/// and one commit.
#[derive(Debug)]
pub enum Work {
    /// Bytes of a part.
    Part(PartWork),
    /// Items for the index.
    Commit(Vec<Item>),
    /// A checkpoint of the index: the next start is shorter. Commits go on meanwhile.
    Checkpoint,
    /// Removal of the bytes of a file.
    Remove {
        /// The file.
        file: FileId,
        /// Its parts here.
        parts: Vec<PartKey>,
    },
}

/// Failure of some work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// True if the disk has no space.
    pub is_full: bool,
    /// Reason, for a person.
    pub reason: String,
}

/// Outcome of some work.
#[derive(Debug)]
pub enum Done {
    /// End of work on a part, with the memory of its blocks.
    Part {
        /// The part.
        part: PartKey,
        /// Number of the work.
        number: u64,
        /// The blocks, in any state.
        blocks: Vec<Block>,
        /// Outcome: everything is durable, or nobody knows.
        outcome: Result<(), Fault>,
    },
    /// End of a commit. After a failure the volume takes no more.
    Commit {
        /// Outcome.
        outcome: Result<(), Fault>,
        /// True if a checkpoint is due.
        wants_checkpoint: bool,
    },
    /// End of a checkpoint. After a failure the log stays longer.
    Checkpoint(Result<(), Fault>),
    /// End of a removal.
    Remove {
        /// The file.
        file: FileId,
        /// Outcome.
        outcome: Result<(), Fault>,
    },
}
