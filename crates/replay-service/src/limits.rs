//! Limits of the replay on a machine: name, value, and reason for each value.

use std::time::Duration;

/// Connections of HTTP: agents have one for each request.
pub const HTTP_CONNECTIONS_MAX: usize = 1024;
/// Connections of HTTP from one address. Agents behind one address are common.
pub const HTTP_CONNECTIONS_PER_ADDRESS_MAX: usize = 512;
/// Bytes of the body of a request: the most results that one has, as JSON.
pub const HTTP_BODY_BYTES_MAX: usize = 4 << 20;
/// Bodies in memory at once; further requests wait.
pub const HTTP_BODIES_MAX: usize = 64;
/// Requests that wait for the disk: more than there are connections, so that none is turned away.
pub const JOURNAL_WAITING_MAX: usize = 2 * HTTP_CONNECTIONS_MAX;
/// Bytes of requests that become durable together.
pub const JOURNAL_GROUP_BYTES_MAX: usize = 1 << 20;
/// Bytes of a segment of a run's journal.
pub const JOURNAL_SEGMENT_BYTES: u64 = 4 << 20;
/// Time between two looks at leases and stop conditions.
pub const TICK: Duration = Duration::from_secs(1);
/// Runs of a service.
pub const RUNS_MAX: usize = 256;
/// Age up to which a report is shown again: it is made of millions of results.
pub const REPORT_AGE_MAX: Duration = Duration::from_millis(500);
/// Time after the end of a run for which records of caches still count for it: a cache tells of a file up to
/// 30 s after it was closed.
pub const SIDES_AFTER_US: u64 = 60_000_000;
/// Connections to the control of an origin.
pub const CONTROL_CONNECTIONS_MAX: usize = 16;
/// Seconds for which an origin can be ordered away: an hour.
pub const GONE_SECONDS_MAX: u64 = 3600;
