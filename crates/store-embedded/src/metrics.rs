//! Metrics of the writer, for an operator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exacat_model::Revision;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// One minute, the maximum of the distribution: longer syncs count as one minute.
const SYNC_US_MAX: u64 = 60_000_000;

/// Counters and distributions since the store was opened.
pub(crate) struct Metrics {
    pub requests: AtomicU64,
    pub changes: AtomicU64,
    pub log_bytes: AtomicU64,
    /// Number of requests remembered, and the memory for them.
    pub operations: AtomicU64,
    pub operations_bytes: AtomicU64,
    distributions: Mutex<Distributions>,
    /// Writing of memtables: rows, number, time; below the same for compactions.
    flushes: RunWork,
    compactions: RunWork,
    /// Number of files in bulk loads.
    pub loaded: AtomicU64,
    operations_from: AtomicU64,
    warnings: Mutex<Vec<String>>,
}

struct Distributions {
    sync_us: Option<Histogram<u64>>,
    group_requests: Option<Histogram<u64>>,
}

/// Work on runs since the store was opened.
#[derive(Default)]
struct RunWork {
    times: AtomicU64,
    rows: AtomicU64,
    took_ms: AtomicU64,
}

impl RunWork {
    fn add(&self, rows: u64, took: Duration) {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.took_ms.fetch_add(u64::try_from(took.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }

    fn list(&self, name: &str) -> [(String, u64); 3] {
        [
            (format!("{name}_total"), self.times.load(Ordering::Relaxed)),
            (format!("{name}_rows_total"), self.rows.load(Ordering::Relaxed)),
            (format!("{name}_ms_total"), self.took_ms.load(Ordering::Relaxed)),
        ]
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
            distributions: Mutex::new(Distributions {
                sync_us: Histogram::new_with_bounds(1, SYNC_US_MAX, 3).ok(),
                group_requests: Histogram::new_with_bounds(1, 1 << 20, 3).ok(),
            }),
            flushes: RunWork::default(),
            compactions: RunWork::default(),
            loaded: AtomicU64::new(0),
            operations_from: AtomicU64::new(0),
            warnings: Mutex::new(Vec::new()),
        }
    }

    /// Counts a group that became durable.
    pub(crate) fn group(&self, requests: usize, bytes: usize, sync: Duration) {
        self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut distributions = self.distributions.lock();
        if let Some(histogram) = &mut distributions.sync_us {
            histogram.saturating_record(u64::try_from(sync.as_micros()).unwrap_or(SYNC_US_MAX));
        }
        if let Some(histogram) = &mut distributions.group_requests {
            histogram.saturating_record(requests as u64);
        }
    }

    /// Counts a memtable that was written into a run.
    pub(crate) fn flushed(&self, rows: u64, took: Duration) {
        self.flushes.add(rows, took);
    }

    /// Counts a compaction of runs into one.
    pub(crate) fn merged(&self, rows: u64, took: Duration) {
        self.compactions.add(rows, took);
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

    /// Returns all metrics by name.
    pub(crate) fn list(&self) -> Vec<(String, u64)> {
        let mut list = vec![
            ("requests_total".to_owned(), self.requests.load(Ordering::Relaxed)),
            ("changes_total".to_owned(), self.changes.load(Ordering::Relaxed)),
            ("requests_remembered".to_owned(), self.operations.load(Ordering::Relaxed)),
            ("memory_requests_remembered_bytes".to_owned(), self.operations_bytes.load(Ordering::Relaxed)),
            ("log_written_bytes".to_owned(), self.log_bytes.load(Ordering::Relaxed)),
            ("loaded_total".to_owned(), self.loaded.load(Ordering::Relaxed)),
        ];
        list.extend(self.flushes.list("flushes"));
        list.extend(self.compactions.list("compactions"));
        let distributions = self.distributions.lock();
        let both = [("sync_us", &distributions.sync_us), ("group_requests", &distributions.group_requests)];
        for (name, histogram) in both {
            let Some(histogram) = histogram else { continue };
            list.push((format!("{name}_count"), histogram.len()));
            for (suffix, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                list.push((format!("{name}_{suffix}"), histogram.value_at_quantile(quantile)));
            }
            list.push((format!("{name}_max"), histogram.max()));
        }
        list
    }
}
