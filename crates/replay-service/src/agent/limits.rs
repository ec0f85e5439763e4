//! Limits of an agent: name, value, and reason for each value.

use std::time::Duration;

/// Items in one request. The service answers with fewer if fewer are due soon.
pub const ITEMS_PER_REQUEST_MAX: usize = 1000;
/// Items that wait in an agent for their time.
pub const PREFETCH_MAX: usize = 100_000;
/// Accesses of an agent at once: each has a connection or a process.
pub const IN_FLIGHT_MAX: usize = 16_384;
/// Results in one message to the service.
pub const RESULTS_PER_MESSAGE_MAX: usize = 1000;
/// Longest time that a result waits for others to go with it. Short, because the service hands out a bounded
/// number of items without results; while a message is under way, results gather anyhow.
pub const RESULTS_WAIT_MAX: Duration = Duration::from_millis(5);
/// Results that wait for the service, above which the agent takes no items: a minute at 1600/s.
pub const RESULTS_WAITING_MAX: usize = 100_000;
/// First pause before a request to the service is sent again; it doubles.
pub const AGAIN_FIRST: Duration = Duration::from_millis(100);
/// Longest such pause.
pub const AGAIN_MAX: Duration = Duration::from_secs(5);
/// Shortest pause behind an answer without items, whatever the service says.
pub const EMPTY_PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause between two requests for items, whatever the service says.
pub const EMPTY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time without an answer of the service after which an agent without room for items asks for the state of
/// the run, with a request for 0 items.
pub const STATE_ASKED_EVERY: Duration = Duration::from_secs(5);
/// Longest time for an answer of the service.
pub const SERVICE_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of an answer of the service: items with names and ranges at their longest, for a usual share.
pub const SERVICE_ANSWER_BYTES_MAX: usize = 64 << 20;
/// Lateness from which an access counts as late.
pub const LATE_FROM: Duration = Duration::from_millis(5);
/// Longest time for a connection, its TLS and its login.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(20);
/// Idle time after which the system asks whether the other side is there.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time after which a connection that nobody used is not used again. Servers end idle ones, too.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// Connections that wait to be used again, for each access at once: to a manager, a cache, and two further
/// servers to which they redirect.
pub const IDLE_PER_ACCESS: usize = 4;
/// Redirections of one access, as the reference client follows.
pub const REDIRECTS_MAX: u32 = 16;
/// Shortest pause before a request is sent again that the server asked to wait with.
pub const WAIT_MIN: Duration = Duration::from_millis(100);
/// Bytes of one read.
pub const READ_BYTES_MAX: u32 = 16 << 20;
/// Reads that are under way at once for one access.
pub const READS_AHEAD_MAX: usize = 64;
/// Bytes that one vector read asks for: the server holds them in memory.
pub const VECTOR_BYTES_MAX: u64 = 8 << 20;
/// Vector reads that are under way at once for one access.
pub const VECTORS_AHEAD: usize = 2;
/// Room for one receive, in bytes: more calls below it, more memory for each connection above it.
pub const RECEIVE_BYTES_MAX: usize = 256 << 10;
/// Room for one receive where short answers are expected.
pub const RECEIVE_BYTES_MIN: usize = 4 << 10;
/// Bytes that the agent keeps of the messages of a program.
pub const MESSAGES_BYTES_MAX: usize = 4 << 10;
/// Characters of a failure's text in the summary.
pub const EXAMPLE_CHARS_MAX: usize = 200;
/// Largest value of a histogram in microseconds: an hour. Longer times count as an hour.
pub const HISTOGRAM_US_MAX: u64 = 3_600_000_000;
/// Bytes of a page with a checksum: reads of pages begin and end at multiples of them.
pub const PAGE_BYTES: u32 = 4096;
/// Bytes of the text that comes with an error of HTTP. A longer one ends the connection.
pub const REFUSAL_BYTES_MAX: usize = 64 << 10;
