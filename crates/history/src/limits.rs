//! Limits of the history.

use std::time::Duration;

/// Groups of one history.
pub const GROUPS_MAX: usize = 1024;
/// Elements of a group unless its settings say otherwise.
pub const ELEMENTS_MAX_DEFAULT: u32 = 2_000_000;
/// Elements that settings of a group may permit at most.
pub const ELEMENTS_MAX: u32 = 50_000_000;
/// Bytes of names of a group for each element that it may have: with the elements, the bytes are bounded too.
pub const NAME_BYTES_OF_ELEMENT: usize = 256;
/// Bytes of names that each group may have, however few elements it may have.
pub const NAME_BYTES_LEAST: usize = 64 << 20;
/// Percent of a bound of names from which on the group is told to be nearly full.
pub const NEARLY_FULL_PERCENT: u64 = 90;
/// Fields of a group: pairs of a measurement and a name.
pub const FIELDS_MAX: usize = 100_000;
/// Sets of fields that occur together in a row of a group.
pub const SHAPES_MAX: usize = 100_000;
/// Measurements of a group.
pub const MEASUREMENTS_MAX: usize = 100_000;
/// Bytes of rows at which a batch of lines is full: the rest of a request is a further batch.
pub const BATCH_BYTES: usize = 4 << 20;
/// Bytes of rows that one batch may have: a full one, and a row.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// Bytes of batches that wait for the log or are being written; a further batch is refused as busy.
pub const QUEUED_BYTES_MAX: usize = 64 << 20;
/// Largest lead of a row's time over the server's clock.
pub const FUTURE_MAX: Duration = Duration::from_secs(600);
/// Bytes of rows in memory after which they are written to sorted runs.
pub const MEMTABLE_BYTES: usize = 128 << 20;
/// Frozen memtables of all groups that may wait to be written; beyond it writers wait.
pub const FROZEN_MAX: usize = 2;
/// Elements whose latest values are copied for a file while writers wait.
pub const LATEST_PIECE: usize = 16_384;
/// Flushes after which the latest values are written to a file. Opening reads the runs of later flushes.
pub const LATEST_EVERY: u32 = 4;
/// Files of names of a group, beyond which a flush writes all names to one.
pub const NAME_FILES_MAX: usize = 16;
/// A run is merged with all newer runs of its day once these have so many times its rows.
pub const MERGE_RATIO: u64 = 3;
/// Runs of a day up to which a merge rests as long as it works. About as many are left on average.
pub const CALM_RUNS: usize = 6;
/// A past day is merged to one run if the rows outside of its largest run are at least this part of it.
pub const PAST_SHARE: u64 = 4;
/// Days that one commit of the archive takes at most.
pub const ARCHIVE_DAYS_OF_COMMIT: usize = 64;
/// Space of the log that is kept behind the place that the runs are complete up to.
pub const LOG_KEPT_BYTES_DEFAULT: u64 = 4 << 30;
