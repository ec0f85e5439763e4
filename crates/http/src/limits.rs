//! Limits of a listener: name, value, and reason for each value.

use std::time::Duration;

/// Longest time until a client has read an answer's bytes.
pub const SEND_TIME_MAX: Duration = Duration::from_secs(20);
/// Longest time for a TLS handshake.
pub const TLS_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time from one request to the next, headers included.
pub const HEADER_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of the headers of a request.
pub const HEADER_BYTES_MAX: usize = 32 << 10;
/// Headers of a request.
pub const HEADERS_MAX: usize = 64;
/// Longest time for the body of a request.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(10);
/// Time until a connection is accepted again after a failure, which lasts: descriptors are used up.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(5);
/// Bytes of an answer of JSON that a client takes.
pub const JSON_BYTES_MAX: usize = 16 << 20;
