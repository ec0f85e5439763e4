//! Limits of the writer protocol.

/// Bytes of a block. A chunk lies within one block of its file, so the service writes each block once.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Bytes of one chunk.
pub const CHUNK_BYTES_MAX: usize = BLOCK_BYTES;
/// Bytes of a file. Offsets beyond it are refused.
pub const FILE_BYTES_MAX: u64 = 1 << 44;
/// Bytes of a frame's header: length and type.
pub const HEADER_BYTES: usize = 5;
/// Bytes of a chunk's head, which follows the header of its frame.
pub const CHUNK_HEAD_BYTES: usize = 76;
/// Bytes of a frame that is no chunk, without its header. A full report of a part fits.
pub const BODY_BYTES_MAX: usize = 256 << 10;
/// Bytes of a frame before the hello is answered, without its header.
pub const HANDSHAKE_BODY_BYTES_MAX: usize = 8 << 10;
/// Bytes of the name of a producer or service, for logs.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of the secret of a token.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Bytes of the name of a run or stream.
pub const LABEL_BYTES_MAX: usize = 64;
/// Tags of a file.
pub const TAGS_MAX: usize = 32;
/// Bytes of the value of a tag.
pub const TAG_VALUE_BYTES_MAX: usize = 1024;
/// Bytes of the reason of a refusal or goodbye.
pub const REASON_BYTES_MAX: usize = 1024;
/// Ranges in one acknowledgement.
pub const RANGES_MAX: usize = 1024;
/// Parts of a file. A producer that needs more gives the file up.
pub const PARTS_MAX: usize = 64;
/// Chunks in one report of a part.
pub const REPORT_CHUNKS_MAX: usize = 4096;
/// Services in a table.
pub const SERVICES_MAX: usize = 64;
/// Bytes of the address of a service.
pub const ADDRESS_BYTES_MAX: usize = 255;
/// Bytes of an announcement. It fits into one packet of any network.
pub const ANNOUNCEMENT_BYTES_MAX: usize = 1400;
/// Bytes of the name of an installation.
pub const CLUSTER_BYTES_MAX: usize = 64;
