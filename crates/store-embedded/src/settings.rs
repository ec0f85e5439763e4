//! What can be set on an embedded store, and every limit that is the engine's own.

use std::path::PathBuf;
use std::time::Duration;

use exacat_model::limits::OPERATIONS_REMEMBERED;
use exacat_model::{Error, Result};

/// Mutations applied under one taking of the write lock: bounds how long a reader waits for the writer.
pub(crate) const MUTATIONS_PER_LOCK: usize = 32;
/// Bytes of one log record, at most: beyond [`RECORD_SPLIT_BYTES`] a request's changes go on in a further record,
/// and no single effect has more than some 20 MiB (an update's befores and afters).
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// A record that has grown this long is ended; the request goes on in the next one.
pub(crate) const RECORD_SPLIT_BYTES: usize = 8 << 20;
/// Log space reserved before a request is begun, at most: more than any one effect takes. A request that comes to need
/// more gets it on the way.
pub(crate) const RESERVE_BYTES_MAX: usize = 64 << 20;
/// Log bytes written and synced together, at most (one more request may begin below it).
pub(crate) const GROUP_BYTES_MAX: usize = 8 << 20;
/// Log bytes of one commit group, at most: one record of a further request may come to it, and its
/// last effect may be large. A longer end that forms no whole group is damage.
pub(crate) const GROUP_WRITTEN_BYTES_MAX: usize = GROUP_BYTES_MAX + RECORD_SPLIT_BYTES + (32 << 20);
/// Files with ends of the log that were cut off, at most; the oldest goes, and the server logs
/// that.
pub(crate) const CUTS_KEPT_MAX: usize = 16;
/// Bytes of a segment copied at once.
pub(crate) const COPY_PIECE_BYTES: usize = 1 << 20;
/// Requests answered by one sync, at most.
pub(crate) const GROUP_REQUESTS_MAX: usize = 4096;
/// Idle time after which the end of the log is marked: from then on damage to the last group is
/// told from a power cut.
pub(crate) const MARK_IDLE: Duration = Duration::from_millis(100);
/// The smallest segment there may be; small ones are for tests.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4096;
/// The largest: recovery holds the last one in memory.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Log bytes between two points of the index from revision to place.
pub(crate) const INDEX_EVERY_BYTES: u64 = 256 << 10;
/// Log bytes read for one page of changes, at most (but at least one record).
pub(crate) const CHANGES_PAGE_BYTES_MAX: usize = 8 << 20;
/// Items looked at for one page of a listing that has to skip some; then the page ends early and goes on.
pub(crate) const SCANNED_PER_PAGE_MAX: usize = 50_000;
/// The smallest cache there may be: what one question needs at once fits into it several times.
pub(crate) const CACHE_BYTES_MIN: u64 = 1 << 20;
/// Memtables that may wait to be written: then the writer waits.
pub(crate) const MEMTABLES_FROZEN_MAX: usize = 2;
/// How often a memtable may outgrow its size while there is no space to write those before it; then changes are refused.
pub(crate) const MEMTABLE_STRETCH: usize = 4;
/// Runs beyond those that merging leaves at which the writer is slowed down the most.
pub(crate) const MERGE_DEBT_RUNS: usize = 24;
/// How long a group of changes is held up then.
pub(crate) const MERGE_PAUSE_MAX: Duration = Duration::from_millis(40);
/// How long the merger waits before it tries again what the disk refused.
pub(crate) const MERGE_RETRY: Duration = Duration::from_millis(500);
/// Times that a reader asks again for pages that are not in memory; then it waits for them with the lock.
pub(crate) const ASK_AGAIN_MAX: usize = 64;
/// Losses that a repair lists one by one; of more it says how many.
pub(crate) const LOSSES_LISTED_MAX: usize = 10_000;
/// Snapshots of a catalogue, at most.
pub(crate) const SNAPSHOTS_MAX: usize = 256;
/// Requests to take or drop a snapshot whose answers may be asked for again.
pub(crate) const SNAPSHOT_REQUESTS_REMEMBERED: usize = 64;
/// Times that a snapshot is begun again because a merge took a run away meanwhile.
pub(crate) const SNAPSHOT_TRIES_MAX: usize = 100;
/// Catalogues that a clone goes back to, by clones of clones: it may have runs of each.
pub(crate) const ORIGINS_MAX: usize = 256;
/// Rows looked at for one page of differences, at most; then the page ends early and goes on.
pub(crate) const DIFF_ROWS_PER_PAGE_MAX: usize = 1 << 20;
/// Comparisons of states that are kept open for the next page, at most: each holds the directories of both in memory.
pub(crate) const DIFFS_OPEN_MAX: usize = 2;
/// Bytes of pages kept in memory for reading a snapshot that is compared, or checked.
pub(crate) const SNAPSHOT_CACHE_BYTES: u64 = 64 << 20;
/// Bytes copied in one step of a backup, about.
pub(crate) const BACKUP_STEP_BYTES: u64 = 64 << 20;
/// Files of one backup, at most.
pub(crate) const BACKUP_FILES_MAX: usize = 1 << 20;
/// How long the next step of a backup is waited for, before another may begin.
pub(crate) const BACKUP_IDLE_MS: u64 = 600_000;
/// Changes of one record of a load: as many as a batch of an import has, about.
pub(crate) const LOAD_CHANGES_PER_RECORD: u32 = 1024;
/// Bytes of rows that a load gives to the merger at once, about.
pub(crate) const LOAD_BLOCK_BYTES: usize = 256 << 10;
/// Such blocks that may wait for the merger.
pub(crate) const LOAD_BLOCKS_MAX: usize = 16;
/// What is answered meanwhile.
pub(crate) const LOAD_SWITCHED_OFF: &str = "files are being loaded: nothing is answered until that is done";
/// Ids of one sorted run of those that only the log knows: it is made when one of them is asked for.
pub(crate) const OLDER_RUN_IDS: usize = 1 << 17;
/// Bytes a block of a checkpoint may claim: a block's last item may be an entry of the largest kind.
pub(crate) const CHECKPOINT_BLOCK_BYTES_MAX: usize = 64 << 20;

/// What can be set on an embedded store.
#[derive(Clone, Debug)]
pub struct EmbeddedSettings {
    /// Where everything is kept; made if missing.
    pub directory: PathBuf,
    /// Bytes of one log segment, reserved when it is begun.
    pub segment_bytes: u64,
    /// Rows after which a memtable is written to a run. More make look-ups and opening slower, fewer make more merges.
    pub memtable_rows: usize,
    /// Memory for pages that were read, in bytes.
    pub cache_bytes: u64,
    /// Requests that may wait for the writer. Further ones wait for a place.
    pub queue_requests_max: usize,
    /// Bytes of requests that may wait for the writer or be worked on.
    pub queue_bytes_max: usize,
    /// Applied requests whose ids are in memory. Older ones are found in the log, as long as the
    /// catalogue takes them.
    pub operations_remembered: usize,
    /// A group of records shorter than this is committed by the writer itself, if nothing else is being committed: its
    /// sync takes no longer than waking another thread would.
    pub commit_at_once_bytes: usize,
    /// Idle time after which the end of the log is marked, with one write and one sync.
    /// `Duration::MAX`: only at closing.
    pub mark_idle: Duration,
    /// How much of the history is kept.
    pub history: HistoryKept,
    /// Are sealed segments of the log archived, and removed as `history` says, in the background? If not they stay as
    /// they are, and what is archived is read.
    pub archive: bool,
    /// In tests: what is merged when, and where that is interrupted, is chosen at random, from this seed.
    #[cfg(test)]
    pub(crate) merges_from_seed: Option<u64>,
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
            #[cfg(test)]
            merges_from_seed: None,
        }
    }
}

/// How much of the history is kept: the changes in the log. Whole segments of it go, the oldest first; what opening needs
/// is never among them, nor is the one being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryKept {
    /// All of it, for ever.
    #[default]
    All,
    /// Every change for at least so many days, at least 1; a segment goes when its last change is older.
    Days(u32),
    /// As much as fits into log files of so many bytes together, at least two segments' worth. Segments that wait to be
    /// compressed do not count.
    Bytes(u64),
}

impl HistoryKept {
    /// Refuses what would keep nothing.
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
    /// The defaults, in this directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        EmbeddedSettings { directory: directory.into(), ..Default::default() }
    }

    /// Refuses what cannot work.
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
        self.history.check(self.segment_bytes)
    }
}
