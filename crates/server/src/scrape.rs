//! The text of all metrics at one moment, for Prometheus.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use exacat_store::StoreStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::activity::Board;
use crate::instruments::Instruments;

/// A metric that goes up and down: its name, help text, and label if it is one of several.
#[derive(Debug)]
pub(crate) struct Gauge {
    pub name: &'static str,
    pub help: &'static str,
    pub label: Option<(&'static str, String)>,
    pub value: u64,
}

impl Gauge {
    /// Returns its name in the status, and its value.
    pub(crate) fn named(self) -> (String, u64) {
        let name = self.name.trim_start_matches("exacat_");
        (self.label.map_or(name.to_owned(), |(_, value)| format!("{name}_{value}")), self.value)
    }
}

/// All metrics at one moment, for Prometheus.
pub(crate) struct Scrape {
    pub instruments: Arc<Instruments>,
    pub board: Arc<Board>,
    pub gauges: Vec<Gauge>,
    pub store: Option<StoreStatus>,
}

impl Scrape {
    /// Returns the text that Prometheus reads.
    pub(crate) fn text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(prometheus_text(&text))
    }
}

/// Converts OpenMetrics to the text format of Prometheus (0.0.4), which every reader of metrics
/// takes. OpenMetrics names a counter's family without the `_total` of its samples. Tools such as
/// promtool then find samples without a family.
fn prometheus_text(open_metrics: &str) -> String {
    let counter = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        (kind == "counter").then(|| name.to_owned())
    };
    let counters: HashSet<String> = open_metrics.lines().filter_map(counter).collect();
    let mut text = String::with_capacity(open_metrics.len() + counters.len() * 16);
    for line in open_metrics.lines() {
        let family = ["# HELP ", "# TYPE "].into_iter().find_map(|key| Some((key, line.strip_prefix(key)?)));
        match family.and_then(|(key, rest)| Some((key, rest.split_once(' ')?))) {
            Some((key, (name, rest))) if counters.contains(name) => {
                text.extend([key, name, "_total ", rest, "\n"]);
            }
            Some(_) => text.extend([line, "\n"]),
            // Only OpenMetrics has units and an end mark.
            None if line.starts_with("# ") => {}
            None => text.extend([line, "\n"]),
        }
    }
    text
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.instruments.encode(&mut encoder)?;
        self.board.totals.encode(&mut encoder, &self.board.in_states())?;
        let mut gauges = self.gauges.iter().peekable();
        while let Some(first) = gauges.next() {
            let mut family = encoder.encode_descriptor(first.name, first.help, None, MetricType::Gauge)?;
            let mut put = |gauge: &Gauge| match &gauge.label {
                Some((key, value)) => {
                    family.encode_family(&[(*key, value.as_str())])?.encode_gauge(&gauge.value)
                }
                None => family.encode_gauge(&gauge.value),
            };
            put(first)?;
            while let Some(same) = gauges.next_if(|gauge| gauge.name == first.name) {
                put(same)?;
            }
        }
        if let Some(store) = &self.store {
            encode_store(&mut encoder, store)?;
        }
        Ok(())
    }
}

fn encode_store(encoder: &mut DescriptorEncoder<'_>, store: &StoreStatus) -> Result<(), fmt::Error> {
    let fixed = [
        ("exacat_store_entries", "Entries in the tree and the trash", store.entries),
        ("exacat_store_revision", "The last committed change", store.revision.0),
        (
            "exacat_store_warnings",
            "Things an operator should know, see the status",
            store.warnings.len() as u64,
        ),
    ];
    for (name, help, value) in fixed {
        encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
    }
    let mut family = encoder.encode_descriptor(
        "exacat_store_metric",
        "The store's own metrics, the unit in the name",
        None,
        MetricType::Gauge,
    )?;
    for (name, value) in &store.metrics {
        family.encode_family(&[("metric", name.as_str())])?.encode_gauge(value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::{Ended, OperationIndex};
    use exacat_activity::TIME_US_MAX;
    use exacat_model::{ErrorKind, Operation};
    use std::time::Duration;

    fn text(instruments: Arc<Instruments>, gauges: Vec<Gauge>) -> String {
        let store = StoreStatus {
            kind: "test".into(),
            entries: 7,
            metrics: vec![("log_bytes".into(), 9)],
            ..StoreStatus::default()
        };
        Scrape { instruments, board: Arc::default(), gauges, store: Some(store) }.text().unwrap()
    }

    #[test]
    fn what_is_recorded_is_what_is_told() {
        let instruments = Arc::new(Instruments::new());
        let stat = OperationIndex::of(&Operation::Stat { lfns: Vec::new(), follow: false });
        instruments.record(stat, Ended::Well, 3, 30, Duration::from_micros(50));
        instruments.record(stat, Ended::Failed(ErrorKind::Busy), 1, 0, Duration::from_micros(51));
        instruments.record(stat, Ended::Well, 1, 1, Duration::from_secs(100_000));
        instruments.record(stat, Ended::Cancelled, 1, 0, Duration::from_secs(100_000));
        let gauge = |lane: &str, value| Gauge {
            name: "exacat_queue",
            help: "waiting",
            label: Some(("lane", lane.to_owned())),
            value,
        };
        let text = text(Arc::clone(&instruments), vec![gauge("heavy", 1), gauge("bulk", 2)]);
        for line in [
            "exacat_requests_total{operation=\"stat\",outcome=\"ok\"} 4",
            "exacat_requests_total{operation=\"stat\",outcome=\"busy\"} 1",
            "exacat_requests_total{operation=\"stat\",outcome=\"cancelled\"} 1",
            "exacat_request_items_total{operation=\"stat\"} 31",
            "exacat_request_seconds_bucket{le=\"0.00005\",operation=\"stat\"} 3",
            "exacat_request_seconds_bucket{le=\"0.0001\",operation=\"stat\"} 4",
            "exacat_request_seconds_bucket{le=\"+Inf\",operation=\"stat\"} 6",
            "exacat_request_seconds_count{operation=\"stat\"} 6",
            "exacat_queue{lane=\"heavy\"} 1",
            "exacat_queue{lane=\"bulk\"} 2",
            "exacat_store_entries 7",
            "exacat_store_metric{metric=\"log_bytes\"} 9",
            "exacat_received_bytes_total 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
        // Every sample belongs to a family of its name, as Prometheus tools expect.
        for line in ["# TYPE exacat_requests_total counter", "# TYPE exacat_queue gauge"] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("# EOF"), "{text}");
        for sample in text.lines().filter(|line| !line.starts_with('#')) {
            let name = sample.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let helped = |name: &str| text.contains(&format!("# HELP {name} "));
            assert!(helped(name) || family.is_some_and(helped), "{sample} has no help");
        }
        let part = instruments.operations_part();
        let figure = |name: &str| part.metrics.iter().find(|(have, _)| have == name).map(|(_, value)| *value);
        assert_eq!(figure("stat_requests"), Some(6));
        assert_eq!(figure("stat_failed"), Some(1));
        assert_eq!(figure("stat_p50_us"), Some(50));
        assert!(figure("stat_max_us").unwrap() >= TIME_US_MAX);
        assert_eq!(figure("list_requests"), None);
    }
}
