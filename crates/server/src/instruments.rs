//! Metrics of the server: one meter per operation, several counters, and the texts made from them.
//!
//! A request counts once, by operation and outcome, with the time from its receipt to its answer.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exacat_activity::{Distribution, Recorded, TIME_BUCKETS, TIME_US_MAX, time_bucket};
use exacat_model::answer::StatusPart;
use exacat_model::{Error, ErrorKind, Operation};
use exacat_store::{Buckets, Clock, Exemplar, Metric, MetricKind, MetricUnit, Sample, SystemClock};

use crate::cancel::is_cancelled;
use crate::metric_table;
use crate::visits::Visits;

/// Number of outcomes: success, each kind of error by its number, and cancelled.
const OUTCOMES: usize = CANCELLED + 1;
/// Index of requests whose client went away or cancelled them.
const CANCELLED: usize = ErrorKind::ALL.len() + 1;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Success.
    Well,
    /// Failure, with its kind of error.
    Failed(ErrorKind),
    /// Client went away or cancelled the request; not a failure.
    Cancelled,
}

impl Ended {
    /// Returns the outcome of a result.
    pub(crate) fn of<T>(outcome: &Result<T, Error>) -> Self {
        match outcome {
            Ok(_) => Ended::Well,
            Err(error) if is_cancelled(error) => Ended::Cancelled,
            Err(error) => Ended::Failed(error.kind),
        }
    }

    /// Returns its name in the log and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Ended::Well => "ok",
            Ended::Failed(kind) => kind.name(),
            Ended::Cancelled => "cancelled",
        }
    }

    fn place(self) -> usize {
        match self {
            Ended::Well => 0,
            Ended::Failed(kind) => kind as usize,
            Ended::Cancelled => CANCELLED,
        }
    }

    fn at(place: usize) -> Self {
        match u8::try_from(place).ok().and_then(ErrorKind::from_number) {
            _ if place == CANCELLED => Ended::Cancelled,
            Some(kind) => Ended::Failed(kind),
            None => Ended::Well,
        }
    }
}

/// Index of an operation in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperationIndex(usize);

impl OperationIndex {
    pub(crate) fn of(operation: &Operation) -> Self {
        OperationIndex::named(operation.name())
    }

    /// Returns the index of the operation with this name; that of the first one if there is none.
    pub(crate) fn named(name: &str) -> Self {
        OperationIndex(Operation::NAMES.iter().position(|known| *known == name).unwrap_or_default())
    }

    /// Returns its number, below the number of operations.
    pub(crate) fn number(self) -> usize {
        self.0
    }

    /// Returns the index with this number; that of the first operation if there is none.
    pub(crate) fn at(number: usize) -> Self {
        OperationIndex(if number < Operation::NAMES.len() { number } else { 0 })
    }

    pub(crate) fn name(self) -> &'static str {
        Operation::NAMES[self.0]
    }
}

/// Metrics of one operation.
struct Meter {
    outcomes: [AtomicU64; OUTCOMES],
    items: AtomicU64,
    times: Distribution,
    exemplars: [LastRequest; TIME_BUCKETS],
}

/// The last request in a bucket of times. Threads write its words one by one. So a reader may get the
/// number of one request and the time of another, both of this bucket.
#[derive(Default)]
struct LastRequest {
    /// Its number plus one; 0 for none.
    request: AtomicU64,
    us: AtomicU64,
    at_ms: AtomicU64,
}

impl LastRequest {
    fn set(&self, request: u64, us: u64, at_ms: u64) {
        self.us.store(us, Ordering::Relaxed);
        self.at_ms.store(at_ms, Ordering::Relaxed);
        self.request.store(request.saturating_add(1), Ordering::Relaxed);
    }

    fn now(&self) -> Option<Exemplar> {
        let request = self.request.load(Ordering::Relaxed).checked_sub(1)?;
        let (value, at_ms) = (self.us.load(Ordering::Relaxed), self.at_ms.load(Ordering::Relaxed));
        Some(Exemplar { request, value, at_ms })
    }
}

/// Requests of one operation that ended alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRequests {
    /// Number on the board; none if it was refused before it was there.
    pub request: Option<u64>,
    pub operation: OperationIndex,
    pub outcome: Ended,
    pub requests: u64,
    /// Items of all of them.
    pub items: u64,
    /// Time that each took.
    pub time: Duration,
}

impl Meter {
    fn new() -> Self {
        Meter {
            outcomes: std::array::from_fn(|_| AtomicU64::new(0)),
            items: AtomicU64::new(0),
            times: Distribution::default(),
            exemplars: Default::default(),
        }
    }

    fn count(&self) -> u64 {
        self.outcomes.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Sums of an operation's requests since the start.
pub(crate) struct MeterSums {
    pub name: &'static str,
    pub requests: u64,
    pub failed: u64,
    pub items: u64,
    pub times: Recorded,
}

macro_rules! counts {
    ($( $name:ident $unit:ident $metric:literal $help:literal ),* $(,)?) => {
        /// Descriptions of the counters.
        static COUNTED: &[Metric] = &[$(
            Metric {
                kind: MetricKind::Counter,
                unit: MetricUnit::$unit,
                name: concat!("exacat_", $metric),
                labels: &[],
                status: $metric,
                help: $help,
            },
        )*];

        /// Counters that only increase.
        #[derive(Default)]
        pub(crate) struct Counts {
            $( #[doc = $help] pub $name: AtomicU64, )*
        }

        impl Counts {
            /// Returns the counters at this moment.
            pub(crate) fn samples(&self) -> Vec<Sample> {
                let values = [$( self.$name.load(Ordering::Relaxed), )*];
                COUNTED.iter().zip(values).map(|(metric, value)| metric.is(value)).collect()
            }
        }
    };
}

counts! {
    bytes_in Bytes "received_bytes" "Bytes received from clients",
    bytes_out Bytes "sent_bytes" "Bytes sent to clients",
    connections_accepted Count "connections_accepted" "Connections accepted",
    connections_refused Count "connections_refused" "Connections refused because there were too many",
    handshakes_failed Count "handshakes_failed" "Connections that ended before they were authenticated",
    authentications_refused Count "authentications_refused" "Credentials that were not accepted",
    revalidations_refused Count "revalidations_refused" "Open connections whose credentials ceased to be valid",
    frames_refused Count "frames_refused" "Frames that were not well-formed",
    stalled Count "connections_stalled" "Connections closed because the client did not read its answers",
    idle Count "connections_idle_closed" "Connections closed because nothing came for long",
    panics Count "request_panics" "Requests that ended in an internal error",
    slow Count "slow_requests" "Requests that took longer than the configured time",
    commands Count "jalien_commands" "Commands of clients of the protocol of JAliEn",
    commands_failed Count "jalien_commands_failed" "Commands of them that failed",
    resumed Count "jalien_resumed" "Clients of it that came back after their connection broke, with the request they had no answer to",
    xrootd_requests Count "xrootd_requests" "Requests of clients of the protocol of XRootD",
    xrootd_failed Count "xrootd_requests_failed" "Requests of them that were refused",
    xrootd_waits Count "xrootd_waits" "Requests of them that were told to come again later",
    xrootd_redirects Count "xrootd_redirects" "Files opened by them, and sent to a storage element",
    xrootd_retried Count "xrootd_retried" "Files opened by them once more, after a storage element failed",
    xrootd_writes Count "xrootd_writes" "Files opened by them for writing, and sent to a storage element",
    xrootd_committed Count "xrootd_writes_committed" "Files of them that were found whole at the storage element, and committed",
    xrootd_given_up Count "xrootd_writes_given_up" "Files of them that were found to be others than were reserved, and given up",
    log_lines_lost Count "log_lines_lost" "Log lines that could not be written, as on a full disk",
    look_up_lines_lost Count "look_up_lines_lost" "Lines of the log of look-ups that could not be written",
    trace_spans_lost Count "trace_spans_lost" "Spans of traces that the collector did not take",
    coalesced Count "coalesced_requests" "Pipelined look-ups and registrations carried out together with others",
}

/// All metrics.
pub(crate) struct Instruments {
    meters: Vec<Meter>,
    /// The counters.
    pub counts: Counts,
    /// Bytes of answers that wait for their clients, on all connections.
    pub output_bytes: AtomicU64,
    /// Counts by storage element.
    pub visits: Visits,
    /// Findings of the last check of the catalogue, plus one; 0 for no check.
    findings: AtomicU64,
    /// End of the server's certificate, in seconds since 1970; 0 for none.
    pub certificate_end: AtomicU64,
}

/// Increments a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Instruments {
    pub(crate) fn new() -> Self {
        Instruments {
            meters: Operation::NAMES.iter().map(|_| Meter::new()).collect(),
            counts: Counts::default(),
            output_bytes: AtomicU64::new(0),
            visits: Visits::default(),
            findings: AtomicU64::new(0),
            certificate_end: AtomicU64::new(0),
        }
    }

    /// Records the findings of a check of the catalogue.
    pub(crate) fn fsck(&self, findings: u64) {
        self.findings.store(findings.saturating_add(1), Ordering::Relaxed);
    }

    /// Records ended requests.
    pub(crate) fn record(&self, ended: &EndedRequests) {
        let meter = &self.meters[ended.operation.0];
        let us = u64::try_from(ended.time.as_micros()).unwrap_or(TIME_US_MAX).min(TIME_US_MAX);
        meter.outcomes[ended.outcome.place()].fetch_add(ended.requests, Ordering::Relaxed);
        meter.items.fetch_add(ended.items, Ordering::Relaxed);
        meter.times.record(us, ended.requests);
        if let Some(request) = ended.request {
            meter.exemplars[time_bucket(us)].set(request, us, wall_clock_ms());
        }
    }

    /// Returns the sums of each operation that was requested.
    pub(crate) fn sums(&self) -> impl Iterator<Item = MeterSums> {
        let requested = Operation::NAMES.iter().zip(&self.meters).filter(|(_, meter)| meter.count() > 0);
        requested.map(|(name, meter)| {
            let requests = meter.count();
            let no_failures = [Ended::Well, Ended::Cancelled].map(Ended::place);
            let no_failures = no_failures.map(|place| meter.outcomes[place].load(Ordering::Relaxed));
            MeterSums {
                name,
                requests,
                // Outcomes are read one after the other, while requests end.
                failed: requests.saturating_sub(no_failures.iter().sum()),
                items: meter.items.load(Ordering::Relaxed),
                times: meter.times.now(),
            }
        })
    }

    /// Returns the metrics of each operation that was requested, for the status.
    pub(crate) fn operations_part(&self) -> StatusPart {
        let mut metrics = Vec::new();
        for MeterSums { name, requests, failed, items, times } in self.sums() {
            metrics.push((format!("{name}_requests"), requests));
            metrics.push((format!("{name}_failed"), failed));
            metrics.push((format!("{name}_items"), items));
            for (which, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
                metrics.push((format!("{name}_{which}_us"), times.quantile_us(quantile)));
            }
        }
        StatusPart { part: "operations".to_owned(), metrics, notes: Vec::new() }
    }
}

impl fmt::Debug for Instruments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instruments").finish_non_exhaustive()
    }
}

impl Instruments {
    /// Returns the metrics of operations, and the counters.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        let asked = || Operation::NAMES.iter().zip(&self.meters).filter(|(_, meter)| meter.count() > 0);
        for (name, meter) in asked() {
            for (number, count) in meter.outcomes.iter().enumerate() {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = [(*name).into(), Ended::at(number).name().into()];
                    samples.push(metric_table::REQUESTS.with(labels, count));
                }
            }
            samples.push(metric_table::ITEMS.of(*name, meter.items.load(Ordering::Relaxed)));
            let exemplars = meter.exemplars.iter().map(LastRequest::now).collect();
            let buckets = Buckets { exemplars, ..Buckets::of_times(&meter.times.now()) };
            samples.push(metric_table::REQUEST_TIME.in_buckets(Some((*name).into()), buckets));
        }
        samples.extend(self.counts.samples());
        let findings = self.findings.load(Ordering::Relaxed).checked_sub(1);
        samples.extend(findings.map(|findings| metric_table::FSCK_FINDINGS.is(findings)));
        let certificate_end = self.certificate_end.load(Ordering::Relaxed);
        samples.extend((certificate_end > 0).then(|| metric_table::CERTIFICATE_END.is(certificate_end)));
        samples
    }
}

/// Returns the descriptions of the counters.
pub(crate) fn counted() -> &'static [Metric] {
    COUNTED
}

/// Returns the time in milliseconds since 1970, for a reader of exemplars; nothing depends on it.
fn wall_clock_ms() -> u64 {
    SystemClock.now().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_its_index() {
        let index = OperationIndex::of(&Operation::Whoami);
        assert_eq!(index.name(), "whoami");
        assert_eq!(OperationIndex::of(&Operation::Status).name(), "status");
    }
}
