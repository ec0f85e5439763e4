//! The limits of the protocol.

use exacat_model::limits::LFN_BYTES_MAX;

/// Bytes of a client's handshake.
pub const HANDSHAKE_BYTES: usize = 20;
/// Bytes of a request's header.
pub const REQUEST_HEADER_BYTES: usize = 24;
/// Bytes of a response's header.
pub const RESPONSE_HEADER_BYTES: usize = 8;
/// Bytes that a request carries, once the client is authenticated: two paths, each with a token
/// behind it, and lists of paths.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Bytes of a token, as announced to clients.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Bytes that a request carries before the client is authenticated: a login, or a token.
pub const LOGIN_BYTES_MAX: usize = 2 * TOKEN_BYTES_MAX;
/// Paths of one request.
pub const PATHS_MAX: usize = 1024;
/// Names in one query of the configuration.
pub const CONFIG_NAMES_MAX: usize = 64;
/// Bytes of a path and the fields after its `?`: the longest LFN, escaped, and the fields that a
/// redirection adds.
pub const PATH_BYTES_MAX: usize = 8 * LFN_BYTES_MAX;
/// Values of one field, such as hosts that a client tried; further ones are ignored.
pub const VALUES_MAX: usize = 64;
/// Bytes of an error's sentence.
pub const ERROR_BYTES_MAX: usize = 2048;
/// Bytes of a directory listing that are collected before a part of it is sent. A shorter listing
/// is sent whole.
pub const PART_BYTES: usize = 256 << 10;
/// Bytes kept of a client's description of itself.
pub const ABOUT_BYTES_MAX: usize = 128;
/// Bytes that one answer carries to a client, apart from those of pages: more than the longest read, and
/// than all that the reference server puts into one answer.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of an answer that a client keeps whole: errors, redirections, lists, texts.
pub const SHORT_ANSWER_BYTES_MAX: usize = 64 << 10;
/// Bytes of a page that has a checksum of its own.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of such a checksum.
pub const CHECKSUM_BYTES: usize = 4;
/// Bytes of a segment of a vector read before its data, in the request and in the answer.
pub const SEGMENT_HEADER_BYTES: usize = 16;
/// Segments of one vector read, as the reference server permits.
pub const SEGMENTS_MAX: usize = 1024;
/// Bytes of one segment of a vector read, as the reference server permits.
pub const SEGMENT_BYTES_MAX: u32 = (2 << 20) - 16;
