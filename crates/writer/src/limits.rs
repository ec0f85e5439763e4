//! Limits of the writer service and of its producers.

/// Blocks that one part may hold at once. More would not make one file faster.
pub const PART_BLOCKS_MAX: usize = 8;
/// Blocks that every open part may hold: one being filled or written, and one more.
pub const PART_BLOCKS_MIN: usize = 2;
/// Chunks of one part. The index of a part stays below 2 MiB; a file with more continues in another.
pub const PART_CHUNKS_MAX: usize = 32 << 10;
/// Bytes of the index log between two checkpoints.
pub const CHECKPOINT_EVERY_BYTES: u64 = 32 << 20;
/// Bytes of items in one commit group of the index.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;
/// Opens of one service that wait for the catalogue's permission.
pub const AUTHORIZATIONS_MAX: usize = 1024;
/// Milliseconds that an open waits for the catalogue's permission. It is refused then, to be retried.
pub const AUTHORIZATION_MS_MAX: u64 = 10_000;
/// Connections of one service.
pub const CONNECTIONS_MAX: usize = 4096;
/// Files of one producer that are not certified yet.
pub const PRODUCER_FILES_MAX: usize = 256;
