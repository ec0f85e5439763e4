//! What the writer measures, for an operator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exacat_model::{Revision, TimeMs};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// A minute: longer syncs are counted as one.
const SYNC_US_MAX: u64 = 60_000_000;

/// Counters and distributions since the store was opened.
pub(crate) struct Figures {
    pub requests: AtomicU64,
    pub changes: AtomicU64,
    pub log_bytes: AtomicU64,
    /// Requests remembered, and the memory that takes.
    pub operations: AtomicU64,
    pub operations_bytes: AtomicU64,
    distributions: Mutex<Distributions>,
    checkpoint: Mutex<CheckpointFigures>,
    warnings: Mutex<Vec<String>>,
}

struct Distributions {
    sync_us: Option<Histogram<u64>>,
    group_requests: Option<Histogram<u64>>,
}

/// The last checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckpointFigures {
    pub revision: Revision,
    pub bytes: u64,
    pub written: Option<TimeMs>,
    pub took_ms: u64,
}

impl Figures {
    pub fn new() -> Self {
        Figures {
            requests: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            operations_bytes: AtomicU64::new(0),
            distributions: Mutex::new(Distributions {
                sync_us: Histogram::new_with_bounds(1, SYNC_US_MAX, 3).ok(),
                group_requests: Histogram::new_with_bounds(1, 1 << 20, 3).ok(),
            }),
            checkpoint: Mutex::new(CheckpointFigures::default()),
            warnings: Mutex::new(Vec::new()),
        }
    }

    /// A group became durable.
    pub fn group(&self, requests: usize, bytes: usize, sync: Duration) {
        self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut distributions = self.distributions.lock();
        if let Some(histogram) = &mut distributions.sync_us {
            histogram.saturating_record(u64::try_from(sync.as_micros()).unwrap_or(SYNC_US_MAX));
        }
        if let Some(histogram) = &mut distributions.group_requests {
            histogram.saturating_record(requests as u64);
        }
    }

    pub fn checkpoint(&self) -> CheckpointFigures {
        *self.checkpoint.lock()
    }

    pub fn set_checkpoint(&self, figures: CheckpointFigures) {
        *self.checkpoint.lock() = figures;
    }

    /// Something an operator should know; an earlier warning that begins alike is replaced.
    pub fn warn(&self, topic: &str, what: &str) {
        let mut warnings = self.warnings.lock();
        warnings.retain(|warning| !warning.starts_with(topic));
        warnings.push(format!("{topic}: {what}"));
    }

    /// It is well again.
    pub fn clear(&self, topic: &str) {
        self.warnings.lock().retain(|warning| !warning.starts_with(topic));
    }

    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Everything measured, by name.
    pub fn list(&self) -> Vec<(String, u64)> {
        let mut list = vec![
            ("requests_total".to_owned(), self.requests.load(Ordering::Relaxed)),
            ("changes_total".to_owned(), self.changes.load(Ordering::Relaxed)),
            ("requests_remembered".to_owned(), self.operations.load(Ordering::Relaxed)),
            ("memory_requests_remembered_bytes".to_owned(), self.operations_bytes.load(Ordering::Relaxed)),
            ("log_written_bytes".to_owned(), self.log_bytes.load(Ordering::Relaxed)),
        ];
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
