//! Counters of a service on its machine, beside those of its state machine. Threads count at the same time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use exacat_activity::Distribution;
use parking_lot::Mutex;

/// Counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Records the time since a moment.
pub(crate) fn record_since(times: &Distribution, since: Instant) {
    times.record(u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX), 1);
}

/// Calls of something that may fail.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub done: Counter,
    pub failed: Counter,
    pub running: Counter,
    pub times: Distribution,
    pub last_failure: Mutex<String>,
}

/// Call on its way. Dropped without a result it counts for nothing.
pub(crate) struct Call<'a> {
    of: &'a Calls,
    begun: Instant,
}

impl Calls {
    pub(crate) fn begin(&self) -> Call<'_> {
        self.running.add(1);
        Call { of: self, begun: Instant::now() }
    }
}

impl Call<'_> {
    /// Ends the call, with the reason of a failure.
    pub(crate) fn end(self, failure: Option<&str>) {
        record_since(&self.of.times, self.begun);
        match failure {
            None => self.of.done.add(1),
            Some(reason) => {
                self.of.failed.add(1);
                reason.clone_into(&mut self.of.last_failure.lock());
            }
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.of.running.sub(1);
    }
}

/// Counters of the disks.
#[derive(Debug, Default)]
pub(crate) struct DiskMeasures {
    /// Times of syncs of files and directories.
    pub syncs: Distribution,
    /// Times of writes.
    pub writes: Distribution,
    pub written_bytes: Counter,
    pub read_bytes: Counter,
    pub faults: Counter,
    /// Files that were made without direct I/O, by their directory: one for each volume.
    pub buffered: Mutex<BTreeMap<PathBuf, u64>>,
}

/// Counters of copies to another storage element.
#[derive(Debug, Default)]
pub(crate) struct StageOutMeasures {
    pub copies: Calls,
    pub bytes: Counter,
    pub waiting: Counter,
}

/// Counters of HTTP.
#[derive(Debug, Default)]
pub(crate) struct HttpMeasures {
    pub connections: Counter,
    pub refused_connections: Counter,
    /// Answers by the first digit of their status, from 1.
    pub answers: [Counter; 5],
    pub content_answers: Counter,
    pub content_bytes: Counter,
    /// Answers that ended before their last byte, apart from clients that went away.
    pub content_broken: Counter,
}

/// Connections of other services that were refused.
#[derive(Debug, Default)]
pub(crate) struct RefusedLinks {
    pub count: Counter,
    /// Address of the last of them, and the reason.
    pub last: Mutex<Option<(IpAddr, String)>>,
}

impl RefusedLinks {
    pub(crate) fn note(&self, address: IpAddr, reason: &str) {
        self.count.add(1);
        *self.last.lock() = Some((address.to_canonical(), reason.to_owned()));
    }
}

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Measures {
    pub bookings: Calls,
    pub commits: Calls,
    /// Times from a chunk to the acknowledgement that has it, of some chunks.
    pub acknowledgements: Distribution,
    pub disk: std::sync::Arc<DiskMeasures>,
    pub stage_out: StageOutMeasures,
    pub http: HttpMeasures,
    pub refused_links: RefusedLinks,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a call that is dropped leaves no trace in the calls on their way.
    #[test]
    fn calls_are_counted_by_their_end() {
        let calls = Calls::default();
        calls.begin().end(None);
        calls.begin().end(Some("no"));
        drop(calls.begin());
        let waiting = calls.begin();
        assert_eq!((calls.done.get(), calls.failed.get(), calls.running.get()), (1, 1, 1));
        assert_eq!((calls.times.now().count(), calls.last_failure.lock().as_str()), (2, "no"));
        drop(waiting);
        assert_eq!(calls.running.get(), 0);
    }
}
