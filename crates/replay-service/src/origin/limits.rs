//! Limits of the origin: name, value, and reason for each value.

use std::time::Duration;

/// Connections at once. A cache has a few, an agent without a cache one for each read in flight.
pub const CONNECTIONS_MAX: usize = 4096;
/// Files that one connection has open. A cache opens all its files over one connection.
pub const FILES_OPEN_MAX: usize = 1 << 16;
/// Answers of one connection that wait for their time. A cache sends a request for each of its blocks.
pub const WAITING_MAX: usize = 4096;
/// Bytes of such answers, without the content of files, which is made when it is sent.
pub const WAITING_BYTES_MAX: usize = 1 << 20;
/// Bytes that are put together for one write to the network: about what the kernel takes at once.
pub const BATCH_BYTES: usize = 2 << 20;
/// Pieces of memory in one write to the network. The kernel takes 1024.
pub const PIECES_MAX: usize = 64;
/// Room for a read of requests, in bytes.
pub const READ_BYTES: usize = 4 << 10;
/// Longest time from the begin of a connection to its login.
pub const LOGIN_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest silence of a client that waits for nothing. Clients of the reference close after 20 minutes.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(1800);
/// Longest time for a client to take [`STALL_BYTES`] of its answers.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes that show that a client reads. A byte now and then does not.
pub const STALL_BYTES: u64 = 64 << 10;
/// Time for a client to read the last answer before its connection ends.
pub const LAST_ANSWER_TIME: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted: the process has too many files open.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that the kernel keeps until they are accepted.
pub const BACKLOG: u32 = 1024;
/// Bytes of one range of a vector read, as in the reference.
pub const RANGE_BYTES_MAX: u32 = (2 << 20) - 16;
/// Files whose bytes are counted one by one.
pub const FILES_COUNTED_MAX: usize = 1 << 20;
/// Longest delay on order.
pub const DELAY_MAX: Duration = Duration::from_secs(600);
/// Least and most bytes that are sent at once while a bandwidth is set.
pub const PACE_BYTES_MIN: u64 = 4 << 10;
/// See [`PACE_BYTES_MIN`].
pub const PACE_BYTES_MAX: u64 = 1 << 20;
/// Shares of a second that are sent at once while a bandwidth is set.
pub const PACES_PER_SECOND: u64 = 200;
/// Time that a sender may be behind its bandwidth and make up for. Timers are late by a millisecond.
pub const PACE_BEHIND_MAX: Duration = Duration::from_millis(50);
/// Least bandwidth on order, in bytes a second: with less, clients run into their own limits of time.
pub const BANDWIDTH_MIN: u64 = 1 << 10;
/// Patterns of files.
pub const PATTERNS_MAX: usize = 64;
/// Time of change that all files have: 2023-11-14. It stays the same when an origin starts again, so that
/// no cache takes its copies for old ones.
pub const MODIFIED: u64 = 1_700_000_000;
