//! Metrics of the server: one meter per operation, several counters, and the texts made from them.
//!
//! A request counts once, by operation and outcome, with the time from its receipt to its answer.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exacat_activity::{Distribution, Recorded, TIME_US_MAX};
use exacat_model::answer::StatusPart;
use exacat_model::{Error, ErrorKind, Operation};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::cancel::is_cancelled;

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
        let name = operation.name();
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
}

impl Meter {
    fn new() -> Self {
        Meter {
            outcomes: std::array::from_fn(|_| AtomicU64::new(0)),
            items: AtomicU64::new(0),
            times: Distribution::default(),
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
    ($( $name:ident $metric:literal $help:literal ),* $(,)?) => {
        /// Counters that only increase.
        #[derive(Default)]
        pub(crate) struct Counts {
            $( #[doc = $help] pub $name: AtomicU64, )*
        }

        impl Counts {
            fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$( ($metric, $help, self.$name.load(Ordering::Relaxed)), )*]
            }
        }
    };
}

counts! {
    bytes_in "exacat_received_bytes" "Bytes received from clients",
    bytes_out "exacat_sent_bytes" "Bytes sent to clients",
    connections_accepted "exacat_connections_accepted" "Connections accepted",
    connections_refused "exacat_connections_refused" "Connections refused because there were too many",
    handshakes_failed "exacat_handshakes_failed" "Connections that ended before they were authenticated",
    authentications_refused "exacat_authentications_refused" "Credentials that were not accepted",
    revalidations_refused "exacat_revalidations_refused" "Open connections whose credentials ceased to be valid",
    frames_refused "exacat_frames_refused" "Frames that were not well-formed",
    stalled "exacat_connections_stalled" "Connections closed because the client did not read its answers",
    idle "exacat_connections_idle_closed" "Connections closed because nothing came for long",
    panics "exacat_request_panics" "Requests that ended in an internal error",
    slow "exacat_slow_requests" "Requests that took longer than the configured time",
    commands "exacat_jalien_commands" "Commands of clients of the protocol of JAliEn",
    commands_failed "exacat_jalien_commands_failed" "Commands of them that failed",
    resumed "exacat_jalien_resumed" "Clients of it that came back after their connection broke, with the request they had no answer to",
    xrootd_requests "exacat_xrootd_requests" "Requests of clients of the protocol of XRootD",
    xrootd_failed "exacat_xrootd_requests_failed" "Requests of them that were refused",
    xrootd_waits "exacat_xrootd_waits" "Requests of them that were told to come again later",
    xrootd_redirects "exacat_xrootd_redirects" "Files opened by them, and sent to a storage element",
    xrootd_retried "exacat_xrootd_retried" "Files opened by them once more, after a storage element failed",
    xrootd_writes "exacat_xrootd_writes" "Files opened by them for writing, and sent to a storage element",
    xrootd_committed "exacat_xrootd_writes_committed" "Files of them that were found whole at the storage element, and committed",
    xrootd_given_up "exacat_xrootd_writes_given_up" "Files of them that were found to be others than were reserved, and given up",
    log_lines_lost "exacat_log_lines_lost" "Log lines that could not be written, as on a full disk",
    trace_spans_lost "exacat_trace_spans_lost" "Spans of traces that the collector did not take",
    coalesced "exacat_coalesced_requests" "Pipelined look-ups and registrations carried out together with others",
}

/// All metrics.
pub(crate) struct Instruments {
    meters: Vec<Meter>,
    /// The counters.
    pub counts: Counts,
    /// Bytes of answers that wait for their clients, on all connections.
    pub output_bytes: AtomicU64,
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
        }
    }

    /// Records `count` requests of an operation over `items` items with this outcome, each after
    /// `time`.
    pub(crate) fn record(
        &self,
        operation: OperationIndex,
        ended: Ended,
        count: u64,
        items: u64,
        time: Duration,
    ) {
        let meter = &self.meters[operation.0];
        let us = u64::try_from(time.as_micros()).unwrap_or(TIME_US_MAX);
        meter.outcomes[ended.place()].fetch_add(count, Ordering::Relaxed);
        meter.items.fetch_add(items, Ordering::Relaxed);
        meter.times.record(us, count);
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

    /// Returns the counters, for the status.
    pub(crate) fn counts_metrics(&self) -> Vec<(String, u64)> {
        self.counts
            .all()
            .into_iter()
            .map(|(metric, _, value)| (metric.trim_start_matches("exacat_").to_owned(), value))
            .collect()
    }
}

impl fmt::Debug for Instruments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instruments").finish_non_exhaustive()
    }
}

impl Instruments {
    /// Writes the metrics of operations, and the counters.
    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let asked = || Operation::NAMES.iter().zip(&self.meters).filter(|(_, meter)| meter.count() > 0);
        let mut family = encoder.encode_descriptor(
            "exacat_requests",
            "Requests by operation and outcome",
            None,
            MetricType::Counter,
        )?;
        for (name, meter) in asked() {
            for (number, count) in meter.outcomes.iter().enumerate() {
                let count = count.load(Ordering::Relaxed);
                let outcome = Ended::at(number).name();
                if count > 0 {
                    family
                        .encode_family(&[("operation", *name), ("outcome", outcome)])?
                        .encode_counter::<NoLabelSet, u64, u64>(&count, None)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "exacat_request_items",
            "Items asked for, by operation",
            None,
            MetricType::Counter,
        )?;
        for (name, meter) in asked() {
            family
                .encode_family(&[("operation", *name)])?
                .encode_counter::<NoLabelSet, u64, u64>(&meter.items.load(Ordering::Relaxed), None)?;
        }
        let mut family = encoder.encode_descriptor(
            "exacat_request_seconds",
            "Time from receipt to answer, by operation",
            None,
            MetricType::Histogram,
        )?;
        for (name, meter) in asked() {
            let (sum, total, buckets) = meter.times.now().for_prometheus();
            family
                .encode_family(&[("operation", *name)])?
                .encode_histogram::<NoLabelSet>(sum, total, &buckets, None)?;
        }
        for (name, help, value) in self.counts.all() {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
        }
        Ok(())
    }
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
