//! Every limit of this store: its name, its value, and why it is that value.

use std::time::Duration;

/// Changes of one group, at most: what is decided, put into the log and written to the tables together.
pub(crate) const GROUP_CHANGES_MAX: usize = 2000;
/// Bytes of a group in the log beyond which no further change is added. A conditional batch is one write of the log's partition; a
/// node refuses writes above half a commit log segment, 16 MiB as Cassandra is delivered, 8 MiB in small settings.
pub(crate) const GROUP_BYTES_MAX: usize = 1 << 20;
/// Bytes one change may need in the log, so that with the group before it the node still takes the write.
pub(crate) const CHANGE_BYTES_MAX: usize = 3 << 20;
/// Changes of one stretch of the log, about: some tens of megabytes in one partition.
pub(crate) const STRETCH_CHANGES: u64 = 50_000;
/// Requests waiting to be decided: whoever comes then waits outside.
pub(crate) const QUEUE_REQUESTS_MAX: usize = 4096;
/// Statements of one answer or one group in flight to the cluster.
pub(crate) const STATEMENTS_IN_FLIGHT: usize = 64;
/// Rows known in memory, about; beyond it what is not of the last group is forgotten.
pub(crate) const ROWS_KNOWN_MAX: usize = 1_000_000;
/// Rows asked for in one page of a slice.
pub(crate) const SLICE_ROWS: i32 = 1000;
/// Rows of one unlogged batch into one partition.
pub(crate) const BATCH_ROWS_MAX: usize = 50;
/// Bytes of one unlogged batch, about: nodes as delivered refuse 50 KiB.
pub(crate) const BATCH_BYTES_MAX: usize = 24 << 10;
/// How long a statement may take. Its outcome is unknown then.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts to find out what became of an append, or to write what is in the log to the tables, before giving up.
pub(crate) const ATTEMPTS_MAX: usize = 12;
/// Between two attempts.
pub(crate) const ATTEMPT_PAUSE: Duration = Duration::from_millis(250);
/// How often who waits for a change of another server looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Rounds in which an answer finds that it needs more rows: a path of the greatest depth, twice.
pub(crate) const ROUNDS_MAX: usize = 2 * exacat_model::limits::DEPTH_MAX;
/// Rows an audit reads into memory; a catalogue with more is too large for it.
pub(crate) const AUDIT_ROWS_MAX: usize = 20_000_000;
