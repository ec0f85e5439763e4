//! Limits of the collector: name, value, and reason for each value.

use std::time::Duration;

/// Addresses that a collector listens at. One takes all kinds; some sites have one for each kind.
pub const ADDRESSES_MAX: usize = 16;
/// Bytes of datagrams that the kernel keeps, if it may: a cache sends its records in bursts of 32 KiB.
pub const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// Events that wait for their consumer. Further ones are dropped and counted.
pub const EVENTS_WAITING_MAX: usize = 1 << 16;
/// Datagrams that are taken before others have their turn.
pub const DATAGRAMS_PER_TURN: usize = 256;
/// Pause after an error of a socket.
pub const ERROR_PAUSE: Duration = Duration::from_millis(50);
/// Depth of directories of a cache.
pub const DEPTH_MAX: usize = 128;
/// Entries of directories of a cache that are read at once.
pub const ENTRIES_MAX: u64 = 50_000_000;
/// Damaged files that are named.
pub const DAMAGED_NAMED_MAX: usize = 10;
