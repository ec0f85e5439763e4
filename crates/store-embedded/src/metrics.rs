//! Counters and distributions of the writer and of background work, and warnings.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_activity::Distribution;
use exacat_model::Revision;
use exacat_store::{Buckets, Sample};
use parking_lot::Mutex;

use crate::metric_table as table;

/// Counters and distributions since the store was opened.
pub(crate) struct Metrics {
    pub requests: AtomicU64,
    pub changes: AtomicU64,
    pub log_bytes: AtomicU64,
    /// Number of requests remembered, and the memory for them.
    pub operations: AtomicU64,
    pub operations_bytes: AtomicU64,
    sync: Distribution,
    group_requests: Distribution,
    work: [WorkDone; Work::ALL.len()],
    stalls: [Stalls; Stall::ALL.len()],
    /// Number of files in bulk loads.
    pub loaded: AtomicU64,
    operations_from: AtomicU64,
    warnings: Mutex<Vec<String>>,
    /// Numbers of the runs that compactions in progress merge.
    merging: Mutex<HashSet<u64>>,
}

/// Kinds of background work.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Writing of a memtable or a bulk load into a sorted run.
    Flush,
    /// Compaction of sorted runs into one.
    Compaction,
    /// Compression of a segment of the log.
    Archive,
}

impl Work {
    const ALL: [(Work, &'static str); 3] =
        [(Work::Flush, "flushes"), (Work::Compaction, "compactions"), (Work::Archive, "archives")];
}

/// Reasons for the writer to wait.
#[derive(Clone, Copy)]
pub(crate) enum Stall {
    /// Compaction lags behind.
    Debt,
    /// Too many memtables wait to be written.
    Memtables,
}

impl Stall {
    const ALL: [(Stall, &'static str); 2] = [(Stall::Debt, "debt"), (Stall::Memtables, "memtables")];
}

/// Background work of one kind since the store was opened.
#[derive(Default)]
struct WorkDone {
    times: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    took_us: AtomicU64,
    running: AtomicU64,
}

#[derive(Default)]
struct Stalls {
    times: AtomicU64,
    took_us: AtomicU64,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Background work in progress. Its time counts, however it ends.
pub(crate) struct Running<'m> {
    work: &'m WorkDone,
    began: Instant,
}

impl Running<'_> {
    /// Counts the work, with what it wrote.
    pub(crate) fn done(self, rows: u64, bytes: u64) {
        self.work.times.fetch_add(1, Ordering::Relaxed);
        self.work.rows.fetch_add(rows, Ordering::Relaxed);
        self.work.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.work.took_us.fetch_add(micros(self.began.elapsed()), Ordering::Relaxed);
        self.work.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Metrics {
            requests: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            operations_bytes: AtomicU64::new(0),
            sync: Distribution::default(),
            group_requests: Distribution::default(),
            work: Default::default(),
            stalls: Default::default(),
            loaded: AtomicU64::new(0),
            operations_from: AtomicU64::new(0),
            warnings: Mutex::new(Vec::new()),
            merging: Mutex::default(),
        }
    }

    /// Counts a group that became durable.
    pub(crate) fn group(&self, requests: usize, bytes: usize, sync: Duration) {
        self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.sync.record(micros(sync), 1);
        self.group_requests.record(requests as u64, 1);
    }

    /// Begins background work.
    pub(crate) fn begin(&self, work: Work) -> Running<'_> {
        let work = &self.work[work as usize];
        work.running.fetch_add(1, Ordering::Relaxed);
        Running { work, began: Instant::now() }
    }

    /// Notes the runs that compactions merge now.
    pub(crate) fn set_merging(&self, runs: &HashSet<u64>) {
        self.merging.lock().clone_from(runs);
    }

    /// Returns the numbers of the runs that compactions merge now.
    pub(crate) fn merging(&self) -> HashSet<u64> {
        self.merging.lock().clone()
    }

    /// Counts a wait of the writer.
    pub(crate) fn stalled(&self, why: Stall, time: Duration) {
        let stalls = &self.stalls[why as usize];
        stalls.times.fetch_add(1, Ordering::Relaxed);
        stalls.took_us.fetch_add(micros(time), Ordering::Relaxed);
    }

    /// Returns the first revision whose operations are remembered.
    pub(crate) fn operations_from(&self) -> Revision {
        Revision(self.operations_from.load(Ordering::Relaxed))
    }

    pub(crate) fn set_operations_from(&self, revision: Revision) {
        self.operations_from.store(revision.0, Ordering::Relaxed);
    }

    /// Adds a warning for the operator, and replaces an earlier one of the same topic.
    pub(crate) fn warn(&self, topic: &str, what: &str) {
        let mut warnings = self.warnings.lock();
        warnings.retain(|warning| !warning.starts_with(topic));
        warnings.push(format!("{topic}: {what}"));
    }

    /// Removes the warning of a topic.
    pub(crate) fn clear(&self, topic: &str) {
        self.warnings.lock().retain(|warning| !warning.starts_with(topic));
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Returns all metrics.
    pub(crate) fn list(&self) -> Vec<Sample> {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let mut list = vec![
            table::REQUESTS.is(load(&self.requests)),
            table::CHANGES.is(load(&self.changes)),
            table::REMEMBERED.is(load(&self.operations)),
            table::MEMORY.of("requests_remembered", load(&self.operations_bytes)),
            table::LOG_WRITTEN.is(load(&self.log_bytes)),
            table::LOADED.is(load(&self.loaded)),
        ];
        for ((_, name), work) in Work::ALL.iter().zip(&self.work) {
            list.extend([
                table::WORK_DONE.of(*name, load(&work.times)),
                table::WORK_ROWS.of(*name, load(&work.rows)),
                table::WORK_BYTES.of(*name, load(&work.bytes)),
                table::WORK_TIME.of(*name, load(&work.took_us) / 1000),
                table::WORK_RUNNING.of(*name, load(&work.running)),
            ]);
        }
        for ((_, name), stalls) in Stall::ALL.iter().zip(&self.stalls) {
            list.push(table::STALLS.of(*name, load(&stalls.times)));
            list.push(table::STALL_TIME.of(*name, load(&stalls.took_us)));
        }
        list.push(table::SYNC.in_buckets(None, Buckets::of_times(&self.sync.now())));
        list.push(table::GROUP.in_buckets(None, Buckets::of_sizes(&self.group_requests.now())));
        list
    }
}
