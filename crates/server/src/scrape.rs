//! The text of metrics at one moment, for Prometheus.
//!
//! OpenMetrics has units and exemplars. The text format 0.0.4 is for readers that do not ask for
//! OpenMetrics, such as promtool.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};

use exacat_store::{Exemplar, Metric, MetricKind, MetricValue, Sample};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// Format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    OpenMetrics,
}

impl Format {
    /// Chooses the format by the header `Accept`: OpenMetrics only for a reader that asks for it.
    pub(crate) fn accepted(accept: &str) -> Self {
        let quality = |media_type: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                if !parts.next()?.eq_ignore_ascii_case(media_type) {
                    return None;
                }
                let (mut quality, mut is_known) = (1.0, true);
                for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                    match key.trim() {
                        "q" => quality = value.trim().parse().unwrap_or(0.0),
                        "version" => is_known = matches!(value.trim(), "1.0.0" | "0.0.1" | "0.0.4"),
                        _ => {}
                    }
                }
                is_known.then_some(quality)
            });
            ranges.fold(0.0, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Format::OpenMetrics } else { Format::Text }
    }

    /// Returns the content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns the text that Prometheus reads.
pub(crate) fn text(samples: Vec<Sample>, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    let families = Families::of(samples);
    let exemplars = families.exemplars();
    registry.register_collector(Box::new(families));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    match format {
        Format::Text => Ok(classic(&text)),
        Format::OpenMetrics => with_exemplars(&text, exemplars),
    }
}

/// Samples, those of a metric together.
#[derive(Debug)]
struct Families(Vec<(&'static Metric, Vec<Sample>)>);

impl Families {
    fn of(samples: Vec<Sample>) -> Self {
        let mut families: Vec<(&'static Metric, Vec<Sample>)> = Vec::new();
        let mut places: HashMap<&'static str, usize> = HashMap::new();
        for sample in samples {
            let place = *places.entry(sample.metric.name).or_insert(families.len());
            if place == families.len() {
                families.push((sample.metric, Vec::new()));
            }
            families[place].1.push(sample);
        }
        Families(families)
    }

    /// Returns the exemplars of all buckets, in the order of their lines.
    fn exemplars(&self) -> Vec<Option<(Exemplar, f64)>> {
        let mut all = Vec::new();
        for (metric, samples) in &self.0 {
            let scale = metric.unit.base().map_or(1.0, |(_, scale)| scale);
            for sample in samples {
                if let MetricValue::Buckets(buckets) = &sample.value {
                    let exemplars = buckets.exemplars.iter().copied().chain(std::iter::repeat(None));
                    let exemplars = exemplars.take(buckets.counts.buckets.len());
                    all.extend(exemplars.map(|exemplar| exemplar.map(|one| (one, one.value as f64 / scale))));
                }
            }
        }
        all
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (metric, samples) in &self.0 {
            let base = metric.unit.base();
            let unit = base.map(|(unit, _)| Unit::Other(unit.to_owned()));
            // The library appends the unit.
            let name = base.and_then(|(unit, _)| metric.name.strip_suffix(unit)?.strip_suffix('_'));
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let name = name.unwrap_or(metric.name);
            let mut family = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
            for sample in samples {
                let labels = metric.labels.iter().copied().zip(sample.labels.iter().map(|label| &**label));
                let labels: Vec<(&str, &str)> = labels.collect();
                match labels.is_empty() {
                    true => encode(&mut family, sample)?,
                    false => encode(&mut family.encode_family(&labels)?, sample)?,
                }
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut MetricEncoder<'_>, sample: &Sample) -> fmt::Result {
    let scale = sample.metric.unit.base().map_or(1.0, |(_, scale)| scale);
    match (&sample.value, sample.metric.kind) {
        (MetricValue::Buckets(buckets), _) => {
            let counts = &buckets.counts;
            let total = counts.buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(counts.sum, total, &counts.buckets, None)
        }
        (MetricValue::Number(value), MetricKind::Counter) if scale > 1.0 => {
            encoder.encode_counter::<NoLabelSet, f64, u64>(&(*value as f64 / scale), None)
        }
        (MetricValue::Number(value), MetricKind::Counter) => {
            encoder.encode_counter::<NoLabelSet, u64, u64>(value, None)
        }
        (MetricValue::Number(value), _) if scale > 1.0 => encoder.encode_gauge(&(*value as f64 / scale)),
        (MetricValue::Number(value), _) => encoder.encode_gauge(value),
    }
}

/// Adds exemplars to the lines of buckets. The library has no way to make one.
fn with_exemplars(open_metrics: &str, exemplars: Vec<Option<(Exemplar, f64)>>) -> Result<String, fmt::Error> {
    let mut text = String::with_capacity(open_metrics.len() + 64 * exemplars.len());
    let mut exemplars = exemplars.into_iter();
    for line in open_metrics.lines() {
        text.push_str(line);
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        if name.ends_with("_bucket")
            && let Some(Some((exemplar, value))) = exemplars.next()
        {
            let Exemplar { request, at_ms, .. } = exemplar;
            let (seconds, ms) = (at_ms / 1000, at_ms % 1000);
            write!(text, " # {{request=\"{request}\"}} {value} {seconds}.{ms:03}")?;
        }
        text.push('\n');
    }
    Ok(text)
}

/// Converts OpenMetrics to the text format of Prometheus (0.0.4), which every reader of metrics
/// takes. OpenMetrics names a counter's family without the `_total` of its samples. Tools such as
/// promtool then find samples without a family.
fn classic(open_metrics: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::{Ended, EndedRequests, Instruments, OperationIndex};
    use exacat_model::{ErrorKind, Operation};
    use std::time::Duration;

    exacat_store::metrics! {
        QUEUE Gauge Count "exacat_queue" ["lane"] "" "waiting";
        PAUSE Counter Millis "exacat_pause_seconds" [] "" "paused";
    }

    /// Samples of three requests of one kind, and of some others.
    fn samples() -> Vec<Sample> {
        let instruments = Instruments::new();
        let stat = OperationIndex::of(&Operation::Stat { lfns: Vec::new(), follow: false });
        let mut request = 70;
        let mut record = |outcome, requests, items, time| {
            request += 1;
            let ended =
                EndedRequests { operation: stat, outcome, requests, items, time, request: Some(request) };
            instruments.record(&ended);
        };
        record(Ended::Well, 3, 30, Duration::from_micros(50));
        record(Ended::Failed(ErrorKind::Busy), 1, 0, Duration::from_micros(51));
        record(Ended::Well, 1, 1, Duration::from_secs(100_000));
        record(Ended::Cancelled, 1, 0, Duration::from_secs(100_000));
        let mut samples = instruments.samples();
        samples.extend([QUEUE.of("heavy", 1), PAUSE.is(1500), QUEUE.of("bulk", 2)]);
        samples
    }

    fn assert_has(text: &str, line: &str) {
        assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
    }

    /// The text has what was recorded, in base units; every sample has a family with help. It has
    /// nothing that only OpenMetrics has.
    #[test]
    fn text_has_what_was_recorded() {
        let text = text(samples(), Format::Text).unwrap();
        for line in [
            "exacat_requests_total{operation=\"stat\",outcome=\"ok\"} 4",
            "exacat_requests_total{operation=\"stat\",outcome=\"busy\"} 1",
            "exacat_requests_total{operation=\"stat\",outcome=\"cancelled\"} 1",
            "exacat_request_items_total{operation=\"stat\"} 31",
            "exacat_request_seconds_bucket{le=\"0.00005\",operation=\"stat\"} 3",
            "exacat_request_seconds_bucket{le=\"0.0001\",operation=\"stat\"} 4",
            "exacat_request_seconds_bucket{le=\"+Inf\",operation=\"stat\"} 6",
            "exacat_request_seconds_count{operation=\"stat\"} 6",
            "# TYPE exacat_queue gauge",
            "exacat_queue{lane=\"heavy\"} 1",
            "exacat_queue{lane=\"bulk\"} 2",
            "# TYPE exacat_pause_seconds_total counter",
            "exacat_pause_seconds_total 1.5",
            "exacat_received_bytes_total 0",
        ] {
            assert_has(&text, line);
        }
        assert!(!text.contains("# EOF") && !text.contains("# UNIT") && !text.contains(" # {"), "{text}");
        for sample in text.lines().filter(|line| !line.starts_with('#')) {
            let name = sample.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let helped = |name: &str| text.contains(&format!("# HELP {name} "));
            assert!(helped(name) || family.is_some_and(helped), "{sample} has no help");
        }
        assert_eq!(text.matches("# TYPE exacat_queue ").count(), 1);
    }

    /// OpenMetrics has units, the last request of each bucket, and an end.
    #[test]
    fn open_metrics_has_units_and_exemplars() {
        let text = text(samples(), Format::OpenMetrics).unwrap();
        assert_has(&text, "# UNIT exacat_pause_seconds seconds");
        assert_has(&text, "# TYPE exacat_pause_seconds counter");
        assert_has(&text, "exacat_pause_seconds_total 1.5");
        let exemplar_of = |bucket: &str, count: u64| {
            let start =
                format!("exacat_request_seconds_bucket{{le=\"{bucket}\",operation=\"stat\"}} {count}");
            let line = text.lines().find_map(|line| line.strip_prefix(start.as_str())).expect(&text);
            line.rsplit_once(' ').map_or("", |(start, _)| start).to_owned()
        };
        assert_eq!(exemplar_of("0.00005", 3), " # {request=\"71\"} 0.00005");
        assert_eq!(exemplar_of("0.0001", 4), " # {request=\"72\"} 0.000051");
        assert_eq!(exemplar_of("0.00025", 4), "");
        assert_eq!(exemplar_of("+Inf", 6), " # {request=\"74\"} 3600");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn open_metrics_is_for_readers_that_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
                          q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/plain", Format::Text),
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", Format::OpenMetrics),
            ("application/openmetrics-text; version=2.0.0", Format::Text),
            ("application/openmetrics-text; q=0", Format::Text),
            ("application/openmetrics-text; q=nonsense", Format::Text),
            ("application/openmetrics-text; q=0.1, text/plain", Format::Text),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
