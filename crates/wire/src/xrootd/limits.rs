//! The limits of the protocol.

use exacat_model::limits::LFN_BYTES_MAX;

/// Bytes of what a client says first.
pub const HANDSHAKE_BYTES: usize = 20;
/// Bytes before what a request carries.
pub const REQUEST_HEADER_BYTES: usize = 24;
/// Bytes before what a response carries.
pub const RESPONSE_HEADER_BYTES: usize = 8;
/// Bytes that a request carries, once the client is known: two paths, each with a token behind it, and lists of paths.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Bytes of a token, as it is told to clients.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Bytes that a request carries before the client is known: a login, or a token.
pub const LOGIN_BYTES_MAX: usize = 2 * TOKEN_BYTES_MAX;
/// Paths of one request.
pub const PATHS_MAX: usize = 1024;
/// Names asked for by one query of the configuration.
pub const CONFIG_NAMES_MAX: usize = 64;
/// Bytes of a path and what follows its `?`: the longest LFN, escaped, and what a redirection adds.
pub const PATH_BYTES_MAX: usize = 8 * LFN_BYTES_MAX;
/// Values of one field, as hosts that a client tried; further ones are not looked at.
pub const VALUES_MAX: usize = 64;
/// Bytes of the sentence of an error.
pub const ERROR_BYTES_MAX: usize = 2048;
/// Bytes of a directory that are gathered before a part of it is sent. A directory below is sent whole.
pub const PART_BYTES: usize = 256 << 10;
/// Bytes of what a client says of itself that are kept.
pub const ABOUT_BYTES_MAX: usize = 128;
