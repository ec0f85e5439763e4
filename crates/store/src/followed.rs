//! The log and the files of a store, byte for byte, for followers: other stores that repeat it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use exacat_model::{Result, Revision};

/// Place in a log: behind a record of one of its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOffset {
    /// First revision of the segment.
    pub segment: Revision,
    /// Hash of the segment's header. Two logs with the same header have the same records up to the
    /// shorter end.
    pub header: u64,
    /// Offset in the plain segment.
    pub offset: u64,
    /// The last change before it.
    pub revision: Revision,
}

/// Records of a log after a place, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPiece {
    /// Frames: see `docs/internals/follow-protocol.md`. None at the end of the log.
    pub frames: Vec<u8>,
    /// The last change in the frames, or before them.
    pub up_to: Revision,
    /// The last durable change of the store.
    pub durable: Revision,
    /// Age of the change after which the next piece begins, or zero at the end of the log.
    pub age: Duration,
    /// Digest of the state after `up_to`, if the store has no later change now.
    pub digest: Option<u128>,
}

/// A file that never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedFile {
    /// Directory and name, as `runs/0000000012.run`.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// Hash of its first and last bytes. Two files of a catalogue with one name, length and hash are
    /// equal.
    pub ends: u64,
}

/// All files of a store as it was at one revision. They stay until this is dropped.
pub trait FixedFiles: Send + Sync {
    /// Returns the revision of the state in them.
    fn revision(&self) -> Revision;

    /// Returns the files.
    fn files(&self) -> &[FixedFile];

    /// Reads bytes of a file at an offset; fewer only at its end.
    fn read(&self, number: usize, offset: u64, into: &mut [u8]) -> Result<usize>;
}

/// A store that followers can repeat.
#[async_trait]
pub trait Followed: Send + Sync {
    /// Returns the identity of the catalogue with its timelines, as its file has it.
    fn identity(&self) -> String;

    /// Returns up to about `bytes_max` bytes of the log after a place. At the end of the log it waits for
    /// more, for `wait` at most. Notes that the follower has everything up to `reader.1` durably, once the
    /// place is known to be right. `NotFound` if the place is not kept any more, and `Conflict` if it is of
    /// another log.
    async fn log_after(
        &self,
        place: LogOffset,
        bytes_max: usize,
        wait: Duration,
        reader: Option<([u8; 16], Revision)>,
    ) -> Result<LogPiece>;

    /// Lets changes wait for standbys from now on, if the store has such. The server calls it before it
    /// listens, and after it has made what a standby needs to sign in.
    fn require_standbys(&self);

    /// Takes no more changes, if another server of the catalogue was promoted: `identity` is its identity,
    /// and `by` its address. Returns true if that is so, which is durable then. `Conflict` if both were
    /// promoted, or it is another catalogue.
    async fn supersede(&self, identity: &str, by: &str) -> Result<bool>;

    /// Fixes the present files.
    async fn fix_files(&self) -> Result<Arc<dyn FixedFiles>>;
}
