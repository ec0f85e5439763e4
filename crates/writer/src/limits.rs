//! Limits of the writer service and of its producers.

use exacat_wire::writer::limits::PARTS_MAX;

/// Blocks that one part may hold at once. More would not make one file faster.
pub const PART_BLOCKS_MAX: usize = 32;
/// Blocks that all parts together have, beyond the least of each. More bytes on their way would only wait
/// longer: 96 MiB are a tenth of a second of a fast disk.
pub const SHARED_BLOCKS: usize = 96;
/// Works of one part on their way: one writes while another syncs.
pub const PART_WORKS_MAX: usize = 2;
/// Works of parts that a service does at once. More do not make a disk faster.
pub const WORKS_AT_ONCE: usize = 4;
/// Works of parts on their way at which a disk is busy: eight for each that is done at once.
pub const BUSY_WORKS: usize = 8 * WORKS_AT_ONCE;
/// Age in milliseconds at which bytes are written that fill no block, while the disk is busy: small writes
/// would take from it.
pub const BUSY_FLUSH_MS: u64 = 1_000;
/// Blocks that every open part may hold: one being filled or written, and one more.
pub const PART_BLOCKS_MIN: usize = 2;
/// Chunks of one part. The index of a part stays below 2 MiB; a file with more continues in another.
pub const PART_CHUNKS_MAX: usize = 32 << 10;
/// Bytes of the index log between two checkpoints.
pub const CHECKPOINT_EVERY_BYTES: u64 = 32 << 20;
/// Bytes of items in one commit group of the index.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;
/// Pieces that a certified file may be in. A producer that changes services makes one more each time.
pub const SEGMENTS_MAX: usize = 4096;
/// Removals of one service that are on their way to the disks.
pub const REMOVALS_AT_ONCE_MAX: usize = 16;
/// Faults of a volume that one check lists; it counts all.
pub const CHECK_FAULTS_MAX: usize = 10_000;
/// Parts of a volume that fail, with none sealed in order between, before the volume rests.
pub const PART_FAULTS_MAX: u32 = 3;
/// Time in milliseconds for which such a volume takes no new parts. Without it, the volume would have the
/// fewest parts and be chosen again and again. The next parts show whether the disk has recovered.
pub const VOLUME_REST_MS: u64 = 10_000;
/// Files that one page of a list has.
pub const PAGE_FILES_MAX: usize = 1000;
/// Files that are looked at for one page of a list.
pub const PAGE_EXAMINED_MAX: usize = 10_000;
/// Open parts whose share of the memory is adapted in one tick.
pub const GRANTS_PER_TICK: usize = 64;
/// Longest back-off of a question to another service, or of a removal, as a multiple of the shortest.
pub const BACKOFF_MAX: u64 = 16;
/// Opens of one service that wait for the catalogue's permission.
pub const AUTHORIZATIONS_MAX: usize = 1024;
/// Milliseconds that an open waits for the catalogue's permission. It is refused then, to be retried.
pub const AUTHORIZATION_MS_MAX: u64 = 10_000;
/// Doublings of the time before a file is tried again whose parts end without a durable byte.
pub const FRUITLESS_DOUBLINGS_MAX: u32 = 3;
/// Connections of one service.
pub const CONNECTIONS_MAX: usize = 4096;
/// Files of one producer that are not certified yet.
pub const PRODUCER_FILES_MAX: usize = 256;
/// Bytes of one event.
pub const EVENT_BYTES_MAX: usize = 16 << 20;
/// Bytes of the smallest buffer in which a producer fills a chunk.
pub const BUFFER_BYTES_MIN: usize = 64 << 10;
/// Buffers for which a stream needs memory: one being filled, and one on its way.
pub const STREAM_BUFFERS_MIN: usize = 2;
/// Chunks after which a file ends, whatever its settings. They fit into half of the parts that it may have.
pub const FILE_CHUNKS_MAX: u64 = (PART_CHUNKS_MAX * PARTS_MAX / 2) as u64;
/// Parts at which a file ends, if another may follow: the rest are for failures before it is closed.
pub const FILE_PARTS_END: usize = PARTS_MAX / 4 * 3;
