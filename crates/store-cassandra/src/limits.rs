//! Every limit of this store: its name, its value, and the reason for the value.

use std::time::Duration;

/// Changes of one group at most: they are decided and appended together.
pub(crate) const GROUP_CHANGES_MAX: usize = 2000;
/// Bytes of a group in the log beyond which no further change is added. A conditional batch is one
/// write of the log's partition. A node refuses writes above half a commit log segment: 16 MiB as
/// Cassandra is delivered, 8 MiB in small settings.
pub(crate) const COMMIT_GROUP_BYTES_MAX: usize = 2 << 20;
/// Bytes one change may need in the log. With the group before it the node still takes the write.
pub(crate) const CHANGE_BYTES_MAX: usize = 3 << 20;
/// Bytes of the changes or the after-images of a group once they are unpacked.
pub(crate) const GROUP_UNPACKED_MAX: usize = 256 << 20;
/// Groups of the log that are read together.
pub(crate) const GROUPS_PER_PAGE: i32 = 16;
/// Changes after which a server flushes: many together, because that makes each of them cheap.
pub(crate) const FLUSH_CHANGES: u64 = 32 << 10;
/// Bytes of after-images after which a server flushes.
pub(crate) const FLUSH_BYTES: usize = 32 << 20;
/// Multiple of these two that may be in the log and not in the tables. Beyond it nothing is
/// appended until the tables are written. A server that opens reads as much.
pub(crate) const UNFLUSHED_MAX: u64 = 4;
/// Time that changes may be in the log alone: idle, at the server that appended last.
pub(crate) const FLUSH_IDLE: Duration = Duration::from_secs(1);
/// The same while requests arrive, and at other servers; each multiplies it by 1 to 2 at random.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_secs(10);
/// Approximate changes of one log segment: some tens of megabytes in one partition.
pub(crate) const SEGMENT_CHANGES: u64 = 50_000;
/// Requests in the queue. Later ones wait before it.
pub(crate) const QUEUE_REQUESTS_MAX: usize = 4096;
/// Bytes of requests that wait or are being decided: several of the largest.
pub(crate) const QUEUE_BYTES_MAX: usize = 8 * exacat_model::limits::BATCH_BYTES_MAX;
/// Statements of one answer or one group in flight to the cluster.
pub(crate) const STATEMENTS_IN_FLIGHT: usize = 64;
/// Writes to the tables in flight: few, so that appends and reads do not wait behind them.
pub(crate) const FLUSHES_IN_FLIGHT: usize = 8;
/// Approximate number of rows noted as missing before a fetch: later ones would be guesses.
pub(crate) const NEEDS_MAX: usize = 4000;
/// Children of a directory per partition: beyond it the directory is given more partitions.
pub(crate) const PARTITION_ROWS_MAX: u64 = 100_000;
/// Bytes of the filter: enough for 50 million keys, which are 13 million files.
pub(crate) const FILTER_BYTES: usize = 64 << 20;
/// Keys of a file in the filter: its name, its GUID, its registration, and room to grow.
pub(crate) const FILTER_KEYS_PER_ENTRY: u64 = 4;
/// Names or GUIDs in one read of a partition.
pub(crate) const KEYS_PER_READ: usize = 100;
/// Approximate rows in the row cache. Beyond it flushed rows are evicted.
pub(crate) const CACHE_ROWS_MAX: usize = 1_000_000;
/// Rows in one page of a slice: 1000 of a listing, and one that shows whether there are more.
pub(crate) const SLICE_ROWS: i32 = 1001;
/// Children of a directory that are cached together once it was listed twice.
pub(crate) const LISTED_ROWS_MAX: usize = 10_000;
/// Directories remembered as listed once.
pub(crate) const LISTED_ONCE_MAX: usize = 10_000;
/// Rows of the cache's size per guess, the number of an evicted directory.
pub(crate) const ROWS_PER_GUESS: usize = 4;
/// Partitions of a slice that are begun at once, as long as they turn out to be empty.
pub(crate) const PARTS_AT_ONCE_MAX: usize = 16;
/// Rows of one unlogged batch into one partition.
pub(crate) const BATCH_ROWS_MAX: usize = 100;
/// Approximate bytes of one unlogged batch: nodes as delivered refuse 50 KiB.
pub(crate) const BATCH_BYTES_MAX: usize = 24 << 10;
/// Time limit of a statement. Its outcome is unknown then.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Multiple of the usual response time after which a statement is sent to another node as well. A
/// repeated statement does no harm.
pub(crate) const ELSEWHERE_TIMES: u32 = 4;
/// Lower bound of that time: a short pause means nothing.
pub(crate) const ELSEWHERE_AFTER_MIN: Duration = Duration::from_millis(50);
/// Upper bound of that time. It is well above what a loaded ring takes, so that it serves
/// unresponsive nodes and does not add to the load.
pub(crate) const ELSEWHERE_AFTER_MAX: Duration = Duration::from_millis(400);
/// The lower bound for a conditional batch: two at once disturb each other.
pub(crate) const CONDITIONAL_ELSEWHERE_AFTER_MIN: Duration = Duration::from_millis(200);
/// The upper bound for a conditional batch.
pub(crate) const CONDITIONAL_ELSEWHERE_AFTER_MAX: Duration = Duration::from_millis(1200);
/// Time without any answer after which a node is asked last.
pub(crate) const UNRESPONSIVE_AFTER: Duration = Duration::from_millis(500);
/// Interval of tries of such a node.
pub(crate) const UNRESPONSIVE_TRIED_EVERY: Duration = Duration::from_secs(5);
/// Other nodes that a statement is sent to at most.
pub(crate) const ELSEWHERE_MAX: usize = 2;
/// Interval of probes of an idle connection.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// Time for the answer to a probe. After it the node is left out.
pub(crate) const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a file of certificates or of a key.
pub(crate) const ACCESS_FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a file with a password.
pub(crate) const PASSWORD_BYTES_MAX: u64 = 4 << 10;
/// Attempts to read something.
pub(crate) const READ_ATTEMPTS_MAX: usize = 5;
/// Time limit of a statement that makes, empties or drops a table: all nodes take part.
pub(crate) const SCHEMA_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts at such a statement, where it can be repeated.
pub(crate) const SCHEMA_ATTEMPTS_MAX: usize = 4;
/// Nodes with metrics of their own.
pub(crate) const NODES_SHOWN_MAX: usize = 64;
/// Age of the row cache that suffices for a bounded-staleness answer, counted from the begin of the
/// read of the log head. Too short for a person to notice; long enough that such reads are few.
pub(crate) const STALE_MAX: Duration = Duration::from_secs(1);
/// Attempts to resolve an append, or to flush, before giving up.
pub(crate) const ATTEMPTS_MAX: usize = 12;
/// Time after another server's append during which it counts as still appending, so that servers
/// back off.
pub(crate) const OTHERS_SEEN_FOR: Duration = Duration::from_secs(1);
/// Time limit for connecting to another server.
pub(crate) const LINK_OPENED_WITHIN: Duration = Duration::from_secs(2);
/// Time limit for another server's answer to a request. Beyond it this server carries the request
/// out itself. Well above what an append takes with an unresponsive node.
pub(crate) const LINK_ANSWERED_WITHIN: Duration = Duration::from_secs(4);
/// Time before a server that did not accept this one, or did not answer, is tried again.
pub(crate) const LEFT_FOR: Duration = Duration::from_secs(10);
/// Servers remembered as such at once. Beyond it the first of them may be tried again.
pub(crate) const LEFT_MAX: usize = 64;
/// Connections of servers that forward to this one, or are being accepted.
pub(crate) const LINKS_MAX: usize = 256;
/// Requests that wait to be sent to another server, or there for their answers to be sent. Beyond
/// it no more are accepted.
pub(crate) const LINK_REQUESTS_MAX: usize = 4096;
/// Bytes of one such request, and of its answer.
pub(crate) const LINK_FRAME_BYTES_MAX: usize = exacat_model::limits::BATCH_BYTES_MAX + (1 << 20);
/// Time that the entry of a server which ended without a word stays in the table.
pub(crate) const SERVER_LISTED_FOR: Duration = Duration::from_secs(2 * 86_400);
/// Interval at which a server renews its entry.
pub(crate) const SERVER_LISTED_EVERY: Duration = Duration::from_secs(86_400 / 2);
/// Back-off as a multiple of the own append's time: others must see that they lost, decide again,
/// and append.
pub(crate) const BACKOFF_TIMES: u32 = 4;
/// Upper bound of the back-off.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// Interval of reads of the log head during a back-off.
pub(crate) const BACKOFF_POLL_EVERY: Duration = Duration::from_millis(5);
/// Pause between two attempts.
pub(crate) const ATTEMPT_PAUSE: Duration = Duration::from_millis(250);
/// Interval of reads of the log head while a client waits for a change.
pub(crate) const POLL_EVERY: Duration = Duration::from_millis(200);
/// Rounds of fetching for one answer: a path of the greatest depth, twice.
pub(crate) const ROUNDS_MAX: usize = 2 * exacat_model::limits::DEPTH_MAX;
/// Rounds after which half as many changes are tried together.
pub(crate) const ROUNDS_PER_SIZE: usize = 8;
/// Ranges of tables that an audit reads at once: few, so that it does not slow requests down.
pub(crate) const AUDIT_RANGES_AT_ONCE: usize = 4;
/// Approximate rows of one such range.
pub(crate) const AUDIT_RANGE_ROWS: u64 = 100_000;
/// Ranges of one table at most.
pub(crate) const AUDIT_RANGES_MAX: u64 = 16_384;
/// Rows an audit reads a second at most, unless the operator sets another rate.
pub(crate) const AUDIT_ROWS_PER_SECOND: u64 = 100_000;
/// Approximate rows of an entry in the tables: itself, its place, its replicas and their counters.
pub(crate) const AUDIT_ROWS_PER_ENTRY: u64 = 5;
/// Approximate rows of one partition of an audit's spill: so many are compared in memory together.
pub(crate) const AUDIT_PARTITION_ROWS: u64 = 250_000;
/// Partitions of a spill at most: each has a chunk in memory.
pub(crate) const AUDIT_PARTITIONS_MAX: usize = 4096;
/// Bytes of such a chunk.
pub(crate) const AUDIT_CHUNK_BYTES: usize = 32 << 10;
/// Pages of rows that wait to be spilled.
pub(crate) const AUDIT_BATCHES_WAITING: usize = 16;
/// Directories an audit adds up: some 250 bytes of memory each.
pub(crate) const AUDIT_DIRECTORIES_MAX: usize = 20_000_000;
/// Directories above one another beyond which an audit reports a loop: many times the depth that a
/// path may have.
pub(crate) const AUDIT_STEPS_UP_MAX: usize = 64 * exacat_model::limits::DEPTH_MAX;
