//! The compactor: the thread that writes frozen memtables into sorted runs, and merges runs.
//!
//! ```text
//!  writer ── frozen memtable ──► written: a run of tier 0 ──► enough of one size: merged
//!     ▲                            │                             into one of the next tier
//!     └── slowed down by debt ─────┘                             (interrupted for urgent work)
//! ```
//! A waiting memtable goes before any compaction, and a small compaction before a large one. A
//! compaction checks after every row whether something more urgent came, and does it in between. So
//! neither memtables nor small runs pile up while a large run is made.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use exacat_model::{Error, ErrorKind, Revision};
use parking_lot::{Condvar, Mutex};

use crate::keyspace;
use crate::load::{Piece, rows_of};
use crate::metrics::Work;
use crate::page::Row;
use crate::run::Run;
use crate::settings::{
    EmbeddedSettings, LOAD_BLOCKS_MAX, MEMTABLES_FROZEN_MAX, MERGE_DEBT_RUNS, MERGE_PAUSE_MAX, MERGE_RETRY,
};
use crate::shared::Shared;
use crate::state::Frozen;
use crate::table::{Begun, RunSet, merge_runs, write_memtable};

const RUNS_SPACE: &str = "space for runs";

/// Returns the delay of a commit group while compaction lags by so many runs.
fn pause_for(owed: usize) -> Duration {
    // Squared: a small debt costs almost nothing, and the pause grows before the debt is full.
    MERGE_PAUSE_MAX.mul_f64((owed as f64 / MERGE_DEBT_RUNS as f64).powi(2).min(1.0))
}

/// Returns a note for the operator if compaction lags behind.
pub(crate) fn debt_warning(owed: usize) -> Option<String> {
    let ms = pause_for(owed).as_secs_f64() * 1e3;
    (owed > 0).then(|| {
        format!(
            "compaction is behind by {owed} sorted runs: each commit group waits {ms:.1} ms, so that it catches up"
        )
    })
}

/// State shared by the writer and the compactor thread.
struct CompactionQueue {
    slot: Mutex<QueueState>,
    changed: Condvar,
    /// Number of memtables in the slot, readable without its lock.
    waiting: AtomicUsize,
    /// Set while a bulk load is in the slot.
    loading: AtomicBool,
    /// Number of runs beyond those that compaction leaves when it keeps up.
    owed: AtomicUsize,
    ended: AtomicBool,
}

/// Rows of a bulk load, on their way into a run.
struct LoadJob {
    rows_max: u64,
    pieces: Receiver<Piece>,
    done: SyncSender<Result<(), Error>>,
}

/// Handle of the writer on a run that a bulk load makes. Dropped before `end`, it makes no run.
pub(crate) struct RunLoad {
    pieces: SyncSender<Piece>,
    done: Receiver<Result<(), Error>>,
}

impl RunLoad {
    /// Sends rows, once there is room for them.
    pub(crate) fn give(&mut self, piece: Piece) -> Result<(), Error> {
        // A failed compactor takes no more rows; its outcome has the reason.
        self.pieces.send(piece).or_else(|_| self.outcome())
    }

    /// Sends the last piece, and waits until the run counts.
    pub(crate) fn end(mut self, piece: Piece) -> Result<(), Error> {
        self.give(piece)?;
        self.outcome()
    }

    fn outcome(&self) -> Result<(), Error> {
        let gone = || Error::new(ErrorKind::Unavailable, "the compactor is gone");
        self.done.recv().unwrap_or_else(|_| Err(gone()))
    }
}

#[derive(Default)]
struct QueueState {
    /// Bulk load that waits to be made a run.
    load: Option<LoadJob>,
    /// Frozen memtables, the oldest first. Each stays until it is a run.
    frozen: VecDeque<Arc<Frozen>>,
    /// Reason why the oldest could not be written.
    trouble: Option<String>,
    /// Set once the thread is gone.
    gone: bool,
    /// Set while the thread has nothing to do.
    #[cfg(test)]
    resting: bool,
}

impl CompactionQueue {
    /// Says whether there is work that goes before a compaction.
    fn is_urgent(&self) -> bool {
        // Relaxed suffices: a late look delays urgent work by a few rows.
        self.waiting.load(Ordering::Relaxed) > 0 || self.loading.load(Ordering::Relaxed)
    }
}

/// Handle of the writer on the thread.
pub(crate) struct Compactor {
    queue: Arc<CompactionQueue>,
    thread: Option<JoinHandle<()>>,
}

/// Guard that releases every waiter, however the thread ends.
struct Leaving(Arc<CompactionQueue>, Arc<Shared>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.0.ended.load(Ordering::Acquire) {
            self.1.close("internal error: the compactor ended by a defect");
        }
        {
            let mut slot = self.0.slot.lock();
            slot.gone = true;
            // Dropping the load tells the writer that feeds it.
            slot.load = None;
        }
        self.0.changed.notify_all();
    }
}

impl Compactor {
    pub(crate) fn start(
        shared: Arc<Shared>,
        run_set: RunSet,
        settings: &EmbeddedSettings,
    ) -> Result<Self, Error> {
        let schedule = Schedule::of(settings);
        let queue = Arc::new(CompactionQueue {
            slot: Mutex::default(),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            loading: AtomicBool::new(false),
            owed: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        });
        let leaving = Leaving(Arc::clone(&queue), Arc::clone(&shared));
        let mut work =
            CompactorThread { shared, run_set, queue: Arc::clone(&queue), merging: HashSet::new(), schedule };
        let thread = std::thread::Builder::new().name("exacat-compact".to_owned()).spawn(move || {
            let _leaving = leaving;
            work.run();
        });
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot start the compactor: {error}"))
        })?;
        Ok(Compactor { queue, thread: Some(thread) })
    }

    /// Passes a memtable to the thread.
    pub(crate) fn submit(&self, frozen: Frozen) {
        let mut slot = self.queue.slot.lock();
        slot.frozen.push_back(Arc::new(frozen));
        self.queue.waiting.store(slot.frozen.len(), Ordering::Release);
        self.queue.changed.notify_all();
    }

    /// Begins a run of at most `rows_max` rows from a bulk load.
    pub(crate) fn load(&self, rows_max: u64) -> RunLoad {
        let (pieces, taken) = sync_channel(LOAD_BLOCKS_MAX);
        let (done, outcome) = sync_channel(1);
        let mut slot = self.queue.slot.lock();
        // Without the thread `taken` is dropped here, and the writer fails at its first piece.
        if !slot.gone {
            slot.load = Some(LoadJob { rows_max, pieces: taken, done });
            self.queue.loading.store(true, Ordering::Release);
            self.queue.changed.notify_all();
        }
        RunLoad { pieces, done: outcome }
    }

    /// Waits until there is room for a further memtable. The error has the reason why there is
    /// none.
    pub(crate) fn wait_for_room(&self) -> Result<(), String> {
        self.wait_until(MEMTABLES_FROZEN_MAX - 1)
    }

    /// Waits until every memtable passed to the thread is a run.
    pub(crate) fn wait_until_written(&self) -> Result<(), String> {
        self.wait_until(0)
    }

    fn wait_until(&self, left: usize) -> Result<(), String> {
        let mut slot = self.queue.slot.lock();
        self.queue
            .changed
            .wait_while(&mut slot, |slot| slot.frozen.len() > left && slot.trouble.is_none() && !slot.gone);
        match &slot.trouble {
            // Room counts more than trouble: an earlier failure is over once there is room.
            _ if slot.frozen.len() <= left => Ok(()),
            Some(trouble) => Err(trouble.clone()),
            None => Err("the compactor is gone".to_owned()),
        }
    }

    /// Returns a handle that waits, on another thread, until every memtable passed so far is a run.
    pub(crate) fn pending(&self) -> Pending {
        let slot = self.queue.slot.lock();
        // Later memtables are not waited for. Under load an audit would never begin otherwise.
        let up_to = slot.frozen.back().map(|frozen| frozen.revision);
        Pending { queue: Arc::clone(&self.queue), up_to }
    }

    /// Delays a commit group so that compaction keeps up: the larger its debt, the longer.
    pub(crate) fn slow_down(&self) {
        let owed = self.queue.owed.load(Ordering::Relaxed);
        if owed == 0 {
            return;
        }
        let until = Instant::now() + pause_for(owed);
        let mut slot = self.queue.slot.lock();
        while self.queue.owed.load(Ordering::Relaxed) >= owed && !slot.gone {
            // Any smaller debt ends the pause early.
            if self.queue.changed.wait_until(&mut slot, until).timed_out() {
                return;
            }
        }
    }
}

/// Handle that waits until some memtables are runs.
pub(crate) struct Pending {
    queue: Arc<CompactionQueue>,
    /// Last change in the newest of them.
    up_to: Option<Revision>,
}

impl Pending {
    /// Waits until the thread has nothing to do at all.
    #[cfg(test)]
    pub(crate) fn wait_until_resting(&self) {
        let mut slot = self.queue.slot.lock();
        let busy = |slot: &mut QueueState| !slot.frozen.is_empty() || !slot.resting;
        let waited = self.queue.changed.wait_while_for(&mut slot, busy, Duration::from_secs(60));
        assert!(!waited.timed_out(), "the compactor does not come to rest");
    }

    /// Waits until they are runs. The error has the reason why they are not.
    pub(crate) fn wait(&self) -> Result<(), String> {
        let Some(up_to) = self.up_to else { return Ok(()) };
        let waits = |slot: &QueueState| slot.frozen.front().is_some_and(|frozen| frozen.revision <= up_to);
        let mut slot = self.queue.slot.lock();
        self.queue.changed.wait_while(&mut slot, |slot| waits(slot) && slot.trouble.is_none() && !slot.gone);
        match &slot.trouble {
            _ if !waits(&slot) => Ok(()),
            Some(trouble) => Err(trouble.clone()),
            None => Err("the compactor is gone".to_owned()),
        }
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Compactor {
    /// Ends the thread. Memtables that are no run yet stay in the log.
    pub(crate) fn stop(&mut self) {
        self.queue.ended.store(true, Ordering::Release);
        {
            // Taking the lock closes a gap: a thread that just checked `ended` under it is waiting
            // by now.
            let _slot = self.queue.slot.lock();
            self.queue.changed.notify_all();
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the compactor panicked");
        }
    }
}

/// State of the thread.
struct CompactorThread {
    shared: Arc<Shared>,
    run_set: RunSet,
    queue: Arc<CompactionQueue>,
    /// Numbers of runs that are being merged.
    merging: HashSet<u64>,
    schedule: Schedule,
}

/// Order and interruptions of compactions: the run set's choice, and whether urgent work waits. Tests
/// have a random one (`tests::schedules`).
#[cfg(not(test))]
struct Schedule;

#[cfg(not(test))]
impl Schedule {
    fn of(_: &EmbeddedSettings) -> Self {
        Schedule
    }

    #[inline]
    fn next(&self, run_set: &RunSet, merging: &HashSet<u64>) -> Option<(Vec<Arc<Run>>, bool)> {
        run_set.mergeable(merging)
    }

    #[inline]
    fn interrupts(&self) -> bool {
        false
    }

    #[inline]
    fn gives_up(&self) -> bool {
        false
    }
}

#[cfg(test)]
use crate::tests::schedules::Schedule;

impl CompactorThread {
    fn run(&mut self) {
        let mut rest_until = None;
        while !self.ended() {
            // Order of urgency: a memtable holds up the writer, a load its caller, a compaction
            // nobody.
            if let Some(frozen) = self.oldest() {
                self.write(&frozen);
                continue;
            }
            if self.load() {
                continue;
            }
            let merged = match self.schedule.next(&self.run_set, &self.merging) {
                Some(next) if rest_until.is_none_or(|until| Instant::now() >= until) => {
                    self.merge(next, u64::MAX)
                }
                _ => Ok(false),
            };
            match merged {
                Ok(true) => rest_until = None,
                Ok(false) => self.rest(rest_until),
                Err(error) => {
                    tracing::warn!(%error, "cannot merge sorted runs; the compactor retries");
                    self.shared.metrics.warn("compaction", &error.message);
                    // Only compactions pause after a failure. Memtables must still leave memory.
                    rest_until = Some(Instant::now() + MERGE_RETRY);
                }
            }
        }
    }

    fn ended(&self) -> bool {
        self.queue.ended.load(Ordering::Acquire)
    }

    /// Waits for work.
    fn rest(&self, until: Option<Instant>) {
        let mut slot = self.queue.slot.lock();
        // Checked again under the lock: otherwise work that came since would wait for the next
        // wake-up.
        if !slot.frozen.is_empty() || slot.load.is_some() || self.ended() {
            return;
        }
        #[cfg(test)]
        {
            slot.resting = true;
            self.queue.changed.notify_all();
        }
        match until {
            Some(until) => drop(self.queue.changed.wait_until(&mut slot, until)),
            None => self.queue.changed.wait(&mut slot),
        }
        #[cfg(test)]
        {
            slot.resting = false;
        }
    }

    fn oldest(&self) -> Option<Arc<Frozen>> {
        if self.queue.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.queue.slot.lock().frozen.front().cloned()
    }

    /// Writes a memtable into a run. After a failure it notes the reason and waits a moment.
    fn write(&mut self, frozen: &Frozen) {
        let shared = Arc::clone(&self.shared);
        let running = shared.metrics.begin(Work::Flush);
        let written = self.try_write(frozen);
        let mut slot = self.queue.slot.lock();
        match written {
            Ok(number) => {
                slot.frozen.pop_front();
                self.queue.waiting.store(slot.frozen.len(), Ordering::Release);
                if slot.trouble.take().is_some() {
                    self.shared.metrics.clear(RUNS_SPACE);
                }
                self.queue.changed.notify_all();
                drop(slot);
                running.done(frozen.rows() as u64, self.run_set.bytes_of(number));
                self.note_debt();
            }
            Err(error) => {
                tracing::warn!(%error, "cannot write a memtable into a sorted run; the compactor retries");
                self.shared.metrics.warn(RUNS_SPACE, &error.message);
                slot.trouble = Some(error.message);
                self.queue.changed.notify_all();
                if !self.ended() {
                    self.queue.changed.wait_for(&mut slot, MERGE_RETRY);
                }
            }
        }
    }

    /// Writes a memtable into a run, and returns the run's number.
    fn try_write(&mut self, frozen: &Frozen) -> Result<u64, Error> {
        let begun = self.run_set.begin(frozen.rows() as u64)?;
        let number = begun.number;
        let written = write_memtable(&frozen.memtable, frozen.resident(), begun.writer);
        // A half-written run takes space that the next attempt may need.
        let rows = written.inspect_err(|_| self.run_set.give_up(number))?;
        self.run_set.add(number, rows, frozen.revision, frozen.time)?;
        // Opening needs the log only behind this revision now, so retention may remove the part before.
        self.shared.history.set_floor(frozen.revision);
        // One lock for both steps: a reader sees the rows in the memtable or in the run, never in neither.
        self.shared.state.write().table.install(Arc::clone(self.run_set.version()), true);
        Ok(number)
    }

    /// Makes a run of a bulk load, if there is one.
    fn load(&mut self) -> bool {
        if !self.queue.loading.load(Ordering::Acquire) {
            return false;
        }
        let job = {
            let mut slot = self.queue.slot.lock();
            self.queue.loading.store(false, Ordering::Release);
            slot.load.take()
        };
        let Some(LoadJob { rows_max, pieces, done }) = job else { return false };
        let shared = Arc::clone(&self.shared);
        let running = shared.metrics.begin(Work::Flush);
        let loaded = self.load_run(rows_max, &pieces);
        if let Ok((number, rows)) = &loaded {
            running.done(*rows, self.run_set.bytes_of(*number));
            self.note_debt();
        }
        // The queue is closed before the outcome is sent.
        drop(pieces);
        let _gone = done.send(loaded.map(|_| ()));
        true
    }

    /// Makes a run, and returns its number and its rows.
    fn load_run(&mut self, rows_max: u64, pieces: &Receiver<Piece>) -> Result<(u64, u64), Error> {
        let Begun { number, mut writer } = self.run_set.begin(rows_max)?;
        let wrong = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, format!("cannot write a run: {error}"))
        };
        let write = || -> Result<(Box<Frozen>, u64), Error> {
            let ended = || Error::new(ErrorKind::Unavailable, "the load ended before its run");
            let frozen = loop {
                match pieces.recv().map_err(|_| ended())? {
                    Piece::Rows(block) => {
                        for (revision, time, file) in rows_of(&block) {
                            writer.push(&file.row(revision, time)).map_err(wrong)?;
                        }
                    }
                    Piece::End(frozen) => break frozen,
                }
            };
            frozen.resident().try_for_each(|row| writer.push(&row)).map_err(wrong)?;
            let rows = writer.rows();
            writer.finish().map_err(wrong)?;
            Ok((frozen, rows))
        };
        let (frozen, rows) = write().inspect_err(|_| self.run_set.give_up(number))?;
        self.run_set.add(number, rows, frozen.revision, frozen.time)?;
        self.shared.history.set_floor(frozen.revision);
        self.shared.state.write().table.install(Arc::clone(self.run_set.version()), true);
        Ok((number, rows))
    }

    /// Merges some runs of fewer than `rows_max` rows in all; `below` says whether older runs
    /// exist. False if it did not.
    fn merge(&mut self, (runs, below): (Vec<Arc<Run>>, bool), rows_max: u64) -> Result<bool, Error> {
        let rows: u64 = runs.iter().map(|run| run.rows().0).sum();
        if rows >= rows_max {
            return Ok(false);
        }
        let shared = Arc::clone(&self.shared);
        let running = shared.metrics.begin(Work::Compaction);
        let begun = self.run_set.begin(rows)?;
        let numbers: Vec<u64> = runs.iter().map(|run| run.number()).collect();
        // Urgent work may run inside of this compaction, and must leave these runs alone.
        self.merging.extend(&numbers);
        self.shared.metrics.set_merging(&self.merging);
        let from = self.shared.metrics.operations_from();
        let oldest = self.shared.history.oldest();
        let kept = |row: &Row<'_>| match row.parent {
            keyspace::OPERATIONS => is_remembered(row, from),
            // A trace leads to its change, and goes with that.
            keyspace::TRACES => row.revision >= oldest.0,
            _ => true,
        };
        let queue = Arc::clone(&self.queue);
        let mut given_up = false;
        let merged = merge_runs(&runs, below, kept, begun.writer, |_| {
            if self.schedule.interrupts() {
                self.do_urgent(rows);
            }
            given_up = self.schedule.gives_up();
            while queue.is_urgent() && !queue.ended.load(Ordering::Relaxed) {
                self.do_urgent(rows);
            }
            !queue.ended.load(Ordering::Relaxed) && !given_up
        });
        self.merging.retain(|number| !numbers.contains(number));
        self.shared.metrics.set_merging(&self.merging);
        match merged {
            Ok(Some(rows)) => {
                // The manifest changes first. Until the table has the new version, readers use the
                // old runs, which stay open.
                self.run_set.put_in_place_of(&runs, begun.number, rows)?;
                self.shared.state.write().table.install(Arc::clone(self.run_set.version()), false);
                running.done(rows, self.run_set.bytes_of(begun.number));
                self.shared.metrics.clear("compaction");
                self.note_debt();
                Ok(true)
            }
            // Ended, or given up by a test: the old runs still count.
            Ok(None) => {
                self.run_set.give_up(begun.number);
                Ok(given_up)
            }
            Err(error) => {
                self.run_set.give_up(begun.number);
                Err(error)
            }
        }
    }

    /// Interrupts a compaction of so many rows: writes a waiting memtable, and merges much smaller
    /// runs.
    fn do_urgent(&mut self, rows: u64) {
        if let Some(frozen) = self.oldest() {
            self.write(&frozen);
        }
        if self.load() {
            return;
        }
        while !self.ended() {
            let Some(next) = self.schedule.next(&self.run_set, &self.merging) else { return };
            // At most half of the rows: a larger one would delay the interrupted compaction for
            // long.
            match self.merge(next, rows / 2) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot merge sorted runs; the compactor retries");
                    return;
                }
            }
        }
    }

    fn note_debt(&self) {
        self.queue.owed.store(self.run_set.version().owed(), Ordering::Relaxed);
        // Writers that wait for a smaller debt check again.
        let _slot = self.queue.slot.lock();
        self.queue.changed.notify_all();
    }
}

fn is_remembered(row: &Row<'_>, from: Revision) -> bool {
    keyspace::number(row.name).is_none_or(|revision| Revision(revision) >= from)
}

/// Proves that the longest delay meets the goal: no stall above 100 ms.
const _: () = assert!(MERGE_PAUSE_MAX.as_millis() < Duration::from_millis(100).as_millis());
