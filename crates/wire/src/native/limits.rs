//! Limits of the native protocol; [`exacat_model::limits`] has those of the whole catalogue.

pub use exacat_model::limits::FRAME_BYTES_MAX;

/// Bytes of a frame's header: length, type, flags, request id.
pub const HEADER_BYTES: usize = 14;
/// Bytes of the header that the length field counts: all but the field itself.
pub const COUNTED_HEADER_BYTES: usize = HEADER_BYTES - 4;
/// Bytes of one frame, its length field included, until the client has authenticated. Bounds the
/// memory that a stranger can make the server hold.
pub const HANDSHAKE_FRAME_BYTES_MAX: usize = 8 << 10;
/// Smallest maximum frame that a peer may announce; every operation on one entry fits.
pub const FRAME_BYTES_MAX_LEAST: usize = 64 << 10;
/// Bytes of the program name of a client or server in the handshake.
pub const PEER_NAME_BYTES_MAX: usize = 255;
/// Bytes of a token's secret.
pub const SECRET_BYTES_MAX: usize = 4096;
/// Bytes of the reason in a goodbye.
pub const REASON_BYTES_MAX: usize = 1024;
/// Operations in one batch frame.
pub const BATCH_OPERATIONS_MAX: usize = 1024;
/// Parts of one stream that may be granted at once, and so the maximum outstanding.
pub const CREDIT_MAX: u32 = 1024;
