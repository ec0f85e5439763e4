//! Settings of an embedded store, and every limit of the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exacat_log::Preparation;
use exacat_model::limits::OPERATIONS_REMEMBERED;
use exacat_model::{Error, Lfn, Result};

use crate::companion::Companion;
use crate::standbys::StandbySettings;

/// Mutations applied per acquisition of the write lock: bounds the time that a reader waits for the
/// writer.
pub(crate) const MUTATIONS_PER_LOCK: usize = 32;
/// Maximum log space reserved before a request begins: more than any one effect takes. A request
/// that needs more reserves it on the way.
pub(crate) const RESERVE_BYTES_MAX: usize = 64 << 20;
/// Maximum number of requests answered by one sync.
pub(crate) const COMMIT_GROUP_REQUESTS_MAX: usize = 4096;
/// Idle time before the end mark is written. From then on damage to the last group is
/// distinguishable from a power cut.
pub(crate) const MARK_IDLE: Duration = Duration::from_millis(100);
/// Preparation of the log's next segment. Tests count disk operations.
pub(crate) const PREPARATION: Preparation =
    if cfg!(test) { Preparation::InPlace } else { Preparation::Ahead };
/// Minimum bytes of a segment; small segments are for tests.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4096;
/// Maximum bytes of a segment: recovery holds the last segment in memory.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of items read for one page of a listing that skips some. Then the page ends
/// early, and the next one continues.
pub(crate) const SCANNED_PER_PAGE_MAX: usize = 50_000;
/// Minimum bytes of the page cache: one request's pages fit into it several times.
pub(crate) const CACHE_BYTES_MIN: u64 = 1 << 20;
/// Number of frozen memtables that may wait for the compactor; beyond it the writer waits.
pub(crate) const MEMTABLES_FROZEN_MAX: usize = 2;
/// Factor by which a memtable may outgrow its size while the disk has no space for earlier ones;
/// beyond it changes are refused.
pub(crate) const MEMTABLE_GROWTH_MAX: usize = 4;
/// Number of runs, beyond those that compaction leaves, at which the writer is slowed down the
/// most.
pub(crate) const MERGE_DEBT_RUNS: usize = 24;
/// Maximum delay of a commit group while compaction lags behind.
pub(crate) const MERGE_PAUSE_MAX: Duration = Duration::from_millis(40);
/// Delay before the compactor retries what the disk refused.
pub(crate) const MERGE_RETRY: Duration = Duration::from_millis(500);
/// Number of times that a reader retries for pages that are not in memory; then it reads them under
/// the lock.
pub(crate) const ASK_AGAIN_MAX: usize = 64;
/// Maximum number of losses that a repair lists one by one; it counts the rest.
pub(crate) const LOSSES_LISTED_MAX: usize = 10_000;
/// Maximum number of snapshots of a catalogue.
pub(crate) const SNAPSHOTS_MAX: usize = 256;
/// Number of requests to take or drop a snapshot whose answers can be repeated.
pub(crate) const SNAPSHOT_REQUESTS_REMEMBERED: usize = 64;
/// Maximum number of attempts to take a snapshot while compaction removes runs.
pub(crate) const SNAPSHOT_TRIES_MAX: usize = 100;
/// Maximum number of catalogues that a clone descends from, by clones of clones: it may have runs
/// of each.
pub(crate) const ORIGINS_MAX: usize = 256;
/// Maximum number of rows read for one page of differences; then the page ends early, and the next
/// one continues.
pub(crate) const DIFF_ROWS_PER_PAGE_MAX: usize = 1 << 20;
/// Maximum number of comparisons of states kept open for their next page. Each holds the
/// directories of both states in memory.
pub(crate) const DIFFS_OPEN_MAX: usize = 2;
/// Bytes of page cache for a snapshot that is compared or checked.
pub(crate) const SNAPSHOT_CACHE_BYTES: u64 = 64 << 20;
/// Maximum number of changes read to make a past state. Reading takes about a second for 400 000 changes, so
/// that this many are made within the time limit of a request. Memory does not grow with it: rows beyond a
/// memtable go to sorted runs.
pub(crate) const PAST_CHANGES_MAX: u64 = if cfg!(test) { 700 } else { 10_000_000 };
/// Maximum number of attempts to fix the files of a past state while snapshots are dropped, segments are
/// archived, or compaction removes runs.
pub(crate) const PAST_TRIES_MAX: usize = 20;
/// Bytes copied in one step of a backup, approximately.
pub(crate) const BACKUP_STEP_BYTES: u64 = 64 << 20;
/// Maximum number of files in one backup.
pub(crate) const BACKUP_FILES_MAX: usize = 1 << 20;
/// Time (ms) after the last step of a backup before another backup may begin.
pub(crate) const BACKUP_IDLE_MS: u64 = 600_000;
/// Changes per record of a bulk load: about as many as a batch of an import has.
pub(crate) const LOAD_CHANGES_PER_RECORD: u32 = 1024;
/// Bytes of rows that a bulk load passes to the compactor at once, approximately.
pub(crate) const LOAD_BLOCK_BYTES: usize = 256 << 10;
/// Number of such blocks that may wait for the compactor.
pub(crate) const LOAD_BLOCKS_MAX: usize = 16;
/// Answer to every request during a bulk load.
pub(crate) const LOAD_SWITCHED_OFF: &str = "files are being loaded: nothing is answered until that is done";
/// Maximum number of files in a copy for a follower, as in a backup.
pub(crate) const FIXED_FILES_MAX: usize = BACKUP_FILES_MAX;
/// Bytes at each end of a file that its hash covers: headers and footers with their random salts.
pub(crate) const FILE_ENDS_BYTES: usize = 4096;
/// Maximum bytes of the address of a source.
pub(crate) const SOURCE_BYTES_MAX: usize = 1024;
/// Rows that a filtered follower reads under one lock, and changes of members in one change.
pub(crate) const FILTERED_ROWS_AT_ONCE: usize = if cfg!(test) { 5 } else { 512 };
/// Ids per sorted run of forgotten operation ids; the store makes such a run when a request needs
/// it.
pub(crate) const OLDER_RUN_IDS: usize = 1 << 17;

/// Settings of an embedded store.
#[derive(Clone, Debug)]
pub struct EmbeddedSettings {
    /// Directory of the catalogue; created if missing.
    pub directory: PathBuf,
    /// Bytes of one log segment, reserved when the segment begins.
    pub segment_bytes: u64,
    /// Rows after which a memtable is written to a run. More rows slow down look-ups and opening,
    /// fewer cause more compactions.
    pub memtable_rows: usize,
    /// Bytes of memory for the page cache.
    pub cache_bytes: u64,
    /// Maximum number of requests that wait for the writer. Further ones wait for a place.
    pub queue_requests_max: usize,
    /// Maximum bytes of requests that wait for the writer or are in work.
    pub queue_bytes_max: usize,
    /// Number of applied requests whose ids are in memory. Older ids are found in the log, as long
    /// as the catalogue accepts them.
    pub operations_remembered: usize,
    /// Bytes of records below which the writer commits a group itself if no other commit is in
    /// flight: the sync takes no longer than waking another thread.
    pub commit_at_once_bytes: usize,
    /// Idle time before the end mark is written, with one write and one sync. `Duration::MAX`: only
    /// at closing.
    pub mark_idle: Duration,
    /// Retention of the history.
    pub history: HistoryKept,
    /// Archives sealed segments in the background, and removes them by `history`. If false,
    /// segments stay as they are; archived ones stay readable.
    pub archive: bool,
    /// Address of the source that this store follows; none if it takes changes itself.
    pub follows: Option<String>,
    /// Directory to which a follower is limited; none for the whole catalogue.
    pub under: Option<Lfn>,
    /// Followers that must have a change before it is answered.
    pub standbys: StandbySettings,
    /// State beside the catalogue that takes part in its snapshots and restores.
    pub companion: Option<Arc<dyn Companion>>,
    /// For tests: seed for a random choice of what is compacted when, and where compaction is
    /// interrupted.
    #[cfg(test)]
    pub(crate) compaction_seed: Option<u64>,
}

impl Default for EmbeddedSettings {
    fn default() -> Self {
        EmbeddedSettings {
            directory: PathBuf::from("data"),
            segment_bytes: 64 << 20,
            memtable_rows: 250_000,
            cache_bytes: 1 << 30,
            queue_requests_max: 4096,
            queue_bytes_max: 64 << 20,
            operations_remembered: OPERATIONS_REMEMBERED,
            commit_at_once_bytes: 64 << 10,
            mark_idle: MARK_IDLE,
            history: HistoryKept::All,
            archive: true,
            follows: None,
            under: None,
            standbys: StandbySettings::default(),
            companion: None,
            #[cfg(test)]
            compaction_seed: None,
        }
    }
}

/// Retention of the history, the changes in the log. Whole segments are removed, the oldest first.
/// Segments that opening needs stay, and so does the one being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryKept {
    /// All changes, for ever.
    #[default]
    All,
    /// Every change for at least this many days (at least 1). A segment is removed once its last
    /// change is older.
    Days(u32),
    /// Changes that fit into log files of this many bytes in all (at least two segments). Segments
    /// that wait for compression do not count.
    Bytes(u64),
}

impl HistoryKept {
    /// Refuses a retention that would keep nothing.
    pub(crate) fn check(self, segment_bytes: u64) -> Result<()> {
        match self {
            HistoryKept::Days(0) => Err(Error::invalid("a history of 0 days keeps nothing: keep 1 at least")),
            HistoryKept::Bytes(bytes) if bytes < 2 * segment_bytes => Err(Error::invalid(format!(
                "a history of {bytes} bytes: the log's segments have {segment_bytes}, keep two of them at least"
            ))),
            HistoryKept::All | HistoryKept::Days(_) | HistoryKept::Bytes(_) => Ok(()),
        }
    }
}

impl EmbeddedSettings {
    /// Returns the defaults for this directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        EmbeddedSettings { directory: directory.into(), ..Default::default() }
    }

    /// Says whether the log is that of a source, byte for byte.
    pub(crate) fn repeats_log(&self) -> bool {
        self.follows.is_some() && self.under.is_none()
    }

    /// Refuses settings that cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            return Err(Error::invalid(format!(
                "segments of {} bytes: they have {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}",
                self.segment_bytes
            )));
        }
        if self.memtable_rows == 0 {
            return Err(Error::invalid("a memtable has no room for a row"));
        }
        if self.cache_bytes < CACHE_BYTES_MIN {
            return Err(Error::invalid(format!(
                "a cache of {} bytes is too small: give {CACHE_BYTES_MIN} at least",
                self.cache_bytes
            )));
        }
        if self.operations_remembered == 0 {
            return Err(Error::invalid("0 requests are remembered: remember 1 at least"));
        }
        if self.queue_requests_max == 0 || self.queue_bytes_max == 0 {
            return Err(Error::invalid("the queue of requests has no place"));
        }
        if self.under.as_ref().is_some_and(|under| self.follows.is_none() || under.is_root()) {
            return Err(Error::invalid("only a follower is limited to a directory, which is not the root"));
        }
        self.history.check(self.segment_bytes)
    }
}
