//! Every limit of this store: its name, its value, and why it is that value.

use std::time::Duration;

/// Changes of one group, at most: what is decided, put into the log and written to the tables together.
pub(crate) const GROUP_CHANGES_MAX: usize = 2000;
/// Bytes of a group in the log beyond which no further change is added. A conditional batch is one write of the log's partition; a
/// node refuses writes above half a commit log segment, 16 MiB as Cassandra is delivered, 8 MiB in small settings.
pub(crate) const GROUP_BYTES_MAX: usize = 2 << 20;
/// Bytes one change may need in the log, so that with the group before it the node still takes the write.
pub(crate) const CHANGE_BYTES_MAX: usize = 3 << 20;
/// Bytes the changes or the images of a group may have once they are unpacked.
pub(crate) const GROUP_UNPACKED_MAX: usize = 256 << 20;
/// Groups of the log that are read together.
pub(crate) const GROUPS_PER_PAGE: i32 = 16;
/// Changes after which they are written to the tables: many together, for that is what makes each of them cheap.
pub(crate) const SETTLE_CHANGES: u64 = 32 << 10;
/// Bytes of what they make of rows, after which the same is done.
pub(crate) const SETTLE_BYTES: usize = 32 << 20;
/// So often this many may be in the log and not in the tables: then nothing is appended until they are. A server that opens reads as much.
pub(crate) const UNSETTLED_MAX: u64 = 4;
/// How long changes may be in the log alone when nothing else is asked for, and when there is.
pub(crate) const SETTLE_IDLE: Duration = Duration::from_secs(1);
/// See there.
pub(crate) const SETTLE_AFTER: Duration = Duration::from_secs(10);
/// Changes of one stretch of the log, about: some tens of megabytes in one partition.
pub(crate) const STRETCH_CHANGES: u64 = 50_000;
/// Requests waiting to be decided: whoever comes then waits outside.
pub(crate) const QUEUE_REQUESTS_MAX: usize = 4096;
/// Bytes of requests that wait or are being decided: several of the largest.
pub(crate) const QUEUE_BYTES_MAX: usize = 8 * exacat_model::limits::BATCH_BYTES_MAX;
/// Statements of one answer or one group in flight to the cluster.
pub(crate) const STATEMENTS_IN_FLIGHT: usize = 64;
/// Writes to the tables in flight: few, so that appends and reads do not wait behind them.
pub(crate) const SETTLE_IN_FLIGHT: usize = 8;
/// Rows that are found to be needed before they are fetched, about: what is looked at after them would only guess.
pub(crate) const NEEDS_MAX: usize = 4000;
/// Children of a directory that one partition should have: beyond it the directory is given more partitions.
pub(crate) const PARTITION_ROWS_MAX: u64 = 100_000;
/// Bytes of the filter of what is in the tables: enough for 50 million keys, which are 13 million files.
pub(crate) const FILTER_BYTES: usize = 64 << 20;
/// Keys a file has in it: its name, its GUID, its registration, and room to grow.
pub(crate) const FILTER_KEYS_PER_ENTRY: u64 = 4;
/// Names or GUIDs that are asked for in one read of a partition.
pub(crate) const KEYS_PER_READ: usize = 100;
/// Rows known in memory, about; beyond it what is not of the last group is forgotten.
pub(crate) const ROWS_KNOWN_MAX: usize = 1_000_000;
/// Rows asked for in one page of a slice: those of a page of 1000 of a listing, and the one that says whether there are more.
pub(crate) const SLICE_ROWS: i32 = 1001;
/// Children of a directory that are kept together once it was listed twice.
pub(crate) const LISTED_ROWS_MAX: usize = 10_000;
/// Directories of which it is remembered that they were listed once.
pub(crate) const LISTED_ONCE_MAX: usize = 10_000;
/// Directories whose numbers are remembered as a guess, once their rows are forgotten: for each so many rows that may be known, one.
pub(crate) const ROWS_PER_GUESS: usize = 4;
/// Partitions of a slice that are begun at once, as long as they turn out to be empty.
pub(crate) const PARTS_AT_ONCE_MAX: usize = 16;
/// Rows of one unlogged batch into one partition.
pub(crate) const BATCH_ROWS_MAX: usize = 100;
/// Bytes of one unlogged batch, about: nodes as delivered refuse 50 KiB.
pub(crate) const BATCH_BYTES_MAX: usize = 24 << 10;
/// How long a statement may take. Its outcome is unknown then.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many times what nearly all statements took lately one may be without an answer before it is asked at another node as well: none of them is
/// harmed by being done twice.
pub(crate) const ELSEWHERE_TIMES: u32 = 4;
/// But no less, for a moment is no sign of anything.
pub(crate) const ELSEWHERE_AFTER_MIN: Duration = Duration::from_millis(50);
/// And no more: well above what a loaded ring takes, so that it is for nodes that are stuck, and does not add to the load.
pub(crate) const ELSEWHERE_AFTER_MAX: Duration = Duration::from_millis(400);
/// The same of a conditional batch, of which two at once get in each other's way.
pub(crate) const CONDITIONAL_ELSEWHERE_AFTER_MIN: Duration = Duration::from_millis(200);
/// See there.
pub(crate) const CONDITIONAL_ELSEWHERE_AFTER_MAX: Duration = Duration::from_millis(1200);
/// A node that was asked and answered nothing for so long is asked last.
pub(crate) const STUCK_AFTER: Duration = Duration::from_millis(500);
/// How often it is given a chance.
pub(crate) const STUCK_TRIED_EVERY: Duration = Duration::from_secs(5);
/// At how many other nodes, at most.
pub(crate) const ELSEWHERE_MAX: usize = 2;
/// How often a connection that says nothing is asked whether it is alive, and how long it has to answer: then its node is left out.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// See there.
pub(crate) const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a file of certificates or of a key.
pub(crate) const ACCESS_FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a file with a password.
pub(crate) const PASSWORD_BYTES_MAX: u64 = 4 << 10;
/// Attempts to read something.
pub(crate) const READ_ATTEMPTS_MAX: usize = 5;
/// How long a statement that makes, empties or drops a table may take: all nodes have to do it.
pub(crate) const SCHEMA_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts at such a statement, where it can be repeated.
pub(crate) const SCHEMA_ATTEMPTS_MAX: usize = 4;
/// Nodes that are told apart in what an operator is shown.
pub(crate) const NODES_SHOWN_MAX: usize = 64;
/// How old what is known may be for a relaxed answer: a look at the head that began within this time is enough. Short enough that a person does not notice,
/// long enough that looks are few beside answers.
pub(crate) const STALE_MAX: Duration = Duration::from_secs(1);
/// Attempts to find out what became of an append, or to write what is in the log to the tables, before giving up.
pub(crate) const ATTEMPTS_MAX: usize = 12;
/// How long after another server's append it is thought to append still: then servers take turns.
pub(crate) const OTHERS_SEEN_FOR: Duration = Duration::from_secs(1);
/// How long another server may take to let this one in.
pub(crate) const LINK_OPENED_WITHIN: Duration = Duration::from_secs(2);
/// How long it may take to answer a request: beyond it this server carries it out itself. Well above what an append takes where a node is stuck.
pub(crate) const LINK_ANSWERED_WITHIN: Duration = Duration::from_secs(4);
/// How long a server that did not let this one in, or did not answer, is not asked again.
pub(crate) const LEFT_FOR: Duration = Duration::from_secs(10);
/// Other servers that are left at once; then the first of them is tried again.
pub(crate) const LEFT_MAX: usize = 64;
/// Servers that hand requests to this one, and such that are being let in.
pub(crate) const LINKS_MAX: usize = 256;
/// Requests that wait to be sent to another server, or there for their answers to be sent: then none is taken on until there are fewer.
pub(crate) const LINK_REQUESTS_MAX: usize = 4096;
/// Bytes of one such request, and of its answer.
pub(crate) const LINK_FRAME_BYTES_MAX: usize = exacat_model::limits::BATCH_BYTES_MAX + (1 << 20);
/// How long others find a server that is gone without a word; and how often one says that it is there.
pub(crate) const SERVER_LISTED_FOR: Duration = Duration::from_secs(2 * 86_400);
/// See there.
pub(crate) const SERVER_LISTED_EVERY: Duration = Duration::from_secs(86_400 / 2);
/// How many times what the own append took others have for theirs: to see that they lost, to decide again, and to append.
pub(crate) const TURN_TIMES: u32 = 4;
/// But no longer.
pub(crate) const TURN_MAX: Duration = Duration::from_millis(500);
/// How often it is looked whether they are done.
pub(crate) const TURN_LOOK_EVERY: Duration = Duration::from_millis(5);
/// Between two attempts.
pub(crate) const ATTEMPT_PAUSE: Duration = Duration::from_millis(250);
/// How often who waits for a change of another server looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Rounds in which an answer finds that it needs more rows: a path of the greatest depth, twice.
pub(crate) const ROUNDS_MAX: usize = 2 * exacat_model::limits::DEPTH_MAX;
/// Rounds after which half as many changes are tried together.
pub(crate) const ROUNDS_PER_SIZE: usize = 8;
/// Ranges of tables that an audit reads at once: few, for it is not to be in the way of others.
pub(crate) const AUDIT_RANGES_AT_ONCE: usize = 4;
/// Rows of one such range, about.
pub(crate) const AUDIT_RANGE_ROWS: u64 = 100_000;
/// Ranges of one table, at most.
pub(crate) const AUDIT_RANGES_MAX: u64 = 16_384;
/// Rows an audit reads a second, at most, unless the operator says otherwise.
pub(crate) const AUDIT_ROWS_PER_SECOND: u64 = 100_000;
/// Rows an entry has in the tables, about: itself, its place, its replicas and what counts them.
pub(crate) const AUDIT_ROWS_PER_ENTRY: u64 = 5;
/// Rows of one partition of what an audit sets aside, about: so many are compared in memory together.
pub(crate) const AUDIT_PARTITION_ROWS: u64 = 250_000;
/// Partitions of it, at most: each has a chunk in memory.
pub(crate) const AUDIT_PARTITIONS_MAX: usize = 4096;
/// Bytes of such a chunk.
pub(crate) const AUDIT_CHUNK_BYTES: usize = 32 << 10;
/// Pages of rows that wait to be set aside.
pub(crate) const AUDIT_BATCHES_WAITING: usize = 16;
/// Directories an audit adds up: some 250 bytes of memory each.
pub(crate) const AUDIT_DIRECTORIES_MAX: usize = 20_000_000;
/// Directories above one another beyond which an audit says that they are a circle: many times the depth that a path may have.
pub(crate) const AUDIT_STEPS_UP_MAX: usize = 64 * exacat_model::limits::DEPTH_MAX;
