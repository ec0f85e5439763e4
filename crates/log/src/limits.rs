//! Limits of the log.

/// Maximum bytes of one log record. Beyond [`RECORD_SPLIT_BYTES`] a request continues in another
/// record. No single effect has more than some 20 MiB (the befores and afters of an update).
pub const RECORD_BYTES_MAX: usize = 64 << 20;
/// Length at which a record ends; the request continues in the next one.
pub const RECORD_SPLIT_BYTES: usize = 8 << 20;
/// Maximum log bytes written and synced together (one more request may begin below it).
pub const COMMIT_GROUP_BYTES_MAX: usize = 8 << 20;
/// Maximum log bytes of one commit group. One record of a further request may be added to
/// [`COMMIT_GROUP_BYTES_MAX`], and its last effect may be large. A longer end that forms no whole group is
/// damage.
pub const GROUP_WRITTEN_BYTES_MAX: usize = COMMIT_GROUP_BYTES_MAX + RECORD_SPLIT_BYTES + (32 << 20);
/// Maximum number of files with ends that were cut off the log. Opening removes the oldest, and logs
/// that.
pub const CUTS_KEPT_MAX: usize = 16;
/// Bytes of a segment copied per read.
pub const COPY_PIECE_BYTES: usize = 1 << 20;
/// Log bytes between two points of the index from revision to offset.
pub const INDEX_EVERY_BYTES: u64 = 256 << 10;
