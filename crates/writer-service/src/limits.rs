//! Limits of the writer service on a machine.

use std::time::Duration;

/// Threads that write bytes of parts. More do not make this kind of disk faster.
pub const WRITE_THREADS: usize = 4;
/// Bytes of frames that wait to be sent on one connection. A peer that lets more pile up is cut off.
pub const OUTGOING_BYTES_MAX: usize = 4 << 20;
/// Longest time for a peer to take bytes.
pub const SEND_TIME_MAX: Duration = Duration::from_secs(20);
/// Longest time for a TLS handshake.
pub const TLS_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of one read that is not into the bytes of a chunk. Small, because they are copied.
pub const READ_BYTES: usize = 16 << 10;
/// Commits on their way to the catalogue.
pub const COMMITS_MAX: usize = 64;
/// Bookings on their way to the catalogue.
pub const BOOKINGS_MAX: usize = 64;
/// Producers whose connections to the catalogue are kept.
pub const CALLERS_MAX: usize = 256;
/// Time between two looks at the clock of the service.
pub const TICK: Duration = Duration::from_millis(5);
/// Time between two looks at the free space of volumes.
pub const FREE_SPACE_EVERY: Duration = Duration::from_secs(1);
