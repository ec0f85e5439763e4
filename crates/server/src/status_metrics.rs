//! Metrics by their names in a status, under which periods have them.

use std::collections::HashMap;
use std::sync::LazyLock;

use exacat_store::{Metric, MetricKind};

use crate::instruments::counted;
use crate::metric_table;

/// Returns the tables of metrics: those of the server, and of each store.
pub(crate) fn tables() -> [(&'static str, Vec<&'static Metric>); 3] {
    let server = metric_table::METRICS.iter().copied().chain(counted()).collect();
    [
        ("the server", server),
        ("the embedded store", exacat_store_embedded::METRICS.to_vec()),
        ("the Cassandra store", exacat_store_cassandra::METRICS.to_vec()),
    ]
}

/// Returns the metrics that periods may have. The history of elements is a part of the status of its own, in
/// which some names are those of a store.
fn in_periods() -> impl Iterator<Item = &'static Metric> {
    let all = tables().into_iter().flat_map(|(_, table)| table);
    all.filter(|metric| !metric.name.starts_with("exacat_history_"))
}

/// Name of the time at which the metrics of the store were read, in milliseconds since 1970. They are older
/// than the moment that has them.
pub(crate) const STORE_READ_AT: &str = "store_read_at_ms";

/// Nature of a number of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Sum of the server that increases only.
    Counter,
    /// The same of a store.
    StoreCounter,
    /// Level of a store. 0 tells something too.
    StoreLevel,
    /// Level of the server.
    Level,
    /// Percentile since the start of the server, which no period has, or no figure at all.
    Hidden,
}

const SUMS: [&str; 2] = ["_count", "_sum"];
const PERCENTILES: [&str; 4] = ["_p50", "_p99", "_p999", "_max"];

/// Returns the nature of a number by its name. One of a newer server has that of the names
/// that look like it.
pub(crate) fn nature(name: &str) -> Nature {
    /// Metrics whose name in a status is one text.
    static PLAIN: LazyLock<HashMap<&str, Nature>> = LazyLock::new(|| {
        in_periods().filter_map(|metric| Some((metric.status, nature_in(metric, metric.status)?))).collect()
    });
    static METRICS: LazyLock<Vec<&Metric>> = LazyLock::new(|| in_periods().collect());
    if name == STORE_READ_AT {
        return Nature::Hidden;
    }
    if let Some(nature) = PLAIN.get(name) {
        return *nature;
    }
    let found = METRICS.iter().filter_map(|metric| {
        let nature = nature_in(metric, name)?;
        // `{}_total` fits more names than `changes_total`.
        Some((metric.status.replace("{}", "").len(), nature))
    });
    found.max_by_key(|(length, _)| *length).map_or(Nature::Level, |(_, nature)| nature)
}

/// Returns the nature of a number, if it is one of this metric.
fn nature_in(metric: &Metric, name: &str) -> Option<Nature> {
    let fits = |name: &str| match metric.status.split_once("{}") {
        None => !name.is_empty() && name == metric.status,
        Some((before, after)) => name
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|label| !label.is_empty()),
    };
    let without = |ends: &[&str]| ends.iter().any(|end| name.strip_suffix(end).is_some_and(fits));
    let is_of_store = metric.name.starts_with("exacat_store_");
    let counter = if is_of_store { Nature::StoreCounter } else { Nature::Counter };
    match metric.kind {
        MetricKind::Counter if fits(name) => Some(counter),
        MetricKind::Gauge if fits(name) => Some(if is_of_store { Nature::StoreLevel } else { Nature::Level }),
        MetricKind::Histogram if without(&SUMS) => Some(counter),
        MetricKind::Histogram if without(&PERCENTILES) => Some(Nature::Hidden),
        _ => None,
    }
}

/// Returns the name of the time that the threads of a role waited for block devices.
pub(crate) fn thread_io(role: &str) -> String {
    let sample = metric_table::THREAD_IO.of(role.to_owned(), 0);
    sample.shown().pop().map_or_else(String::new, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_activity::Distribution;
    use exacat_store::{Buckets, MetricKind};

    /// Each number of each metric has the nature of its kind, although names of different metrics look alike.
    #[test]
    fn each_metric_is_known_by_its_name() {
        for metric in in_periods() {
            let labels = metric.labels.iter().map(|_| "some-role".into()).collect();
            let times = Distribution::default().now();
            let sample = match metric.kind {
                MetricKind::Histogram => {
                    metric.in_buckets(Some("some-role".into()), Buckets::of_times(&times))
                }
                _ => exacat_store::Sample { labels, ..metric.is(0) },
            };
            for (name, _) in sample.shown() {
                let found = nature(&name);
                let fits = match metric.kind {
                    MetricKind::Counter => matches!(found, Nature::Counter | Nature::StoreCounter),
                    MetricKind::Gauge => matches!(found, Nature::Level | Nature::StoreLevel),
                    MetricKind::Histogram => matches!(found, Nature::StoreCounter | Nature::Hidden),
                };
                assert!(fits, "{name}: {found:?}, but {:?}", metric.kind);
            }
        }
    }

    #[test]
    fn natures_of_names() {
        for (name, expected) in [
            ("changes_total", Nature::StoreCounter),
            ("tier_3_runs", Nature::StoreLevel),
            ("compaction_debt_runs", Nature::StoreLevel),
            ("sync_us_sum", Nature::StoreCounter),
            ("sync_us_p99", Nature::Hidden),
            ("group_requests_max", Nature::Hidden),
            ("memory_cache_bytes_max", Nature::StoreLevel),
            ("purge_errors_in_a_row", Nature::Level),
            ("up_seconds", Nature::Level),
            ("disk_flush_ms", Nature::Counter),
            ("thread_exacat-writer_io_us", Nature::Counter),
            ("received_bytes", Nature::Counter),
            ("statements_reads", Nature::StoreCounter),
            ("store_read_at_ms", Nature::Hidden),
            ("of_a_newer_server", Nature::Level),
            ("of_a_newer_server_total", Nature::StoreCounter),
            ("", Nature::Level),
        ] {
            assert_eq!(nature(name), expected, "{name}");
        }
        assert_eq!(thread_io("tokio rt"), "thread_tokio_rt_io_us");
    }
}
