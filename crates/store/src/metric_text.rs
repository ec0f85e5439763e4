//! Metrics of one table as text: for Prometheus, and for the page of the reference. The catalogue's server
//! has an exporter of its own.

use std::fmt::Write as _;

use crate::metric::{Metric, MetricKind, MetricValue, Sample};

/// Returns the text that Prometheus reads (format 0.0.4), the samples of a metric together.
pub fn metric_text(table: &[&Metric], samples: &[Sample]) -> String {
    let mut text = String::new();
    for metric in table {
        let mut of_metric = samples.iter().filter(|sample| sample.metric.name == metric.name).peekable();
        if of_metric.peek().is_none() {
            continue;
        }
        let name = metric.full_name();
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {}", metric.help, kind_name(metric.kind));
        of_metric.for_each(|sample| write_sample(&mut text, &name, sample));
    }
    text
}

fn kind_name(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

fn write_sample(text: &mut String, name: &str, sample: &Sample) {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs = sample.metric.labels.iter().zip(&sample.labels);
    let labels: Vec<String> = pairs.map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
    let braces = |labels: &[String]| match labels.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", labels.join(",")),
    };
    let scale = sample.metric.unit.base().map_or(1.0, |(_, scale)| scale);
    match &sample.value {
        MetricValue::Number(value) if scale > 1.0 => {
            let _ = writeln!(text, "{name}{} {}", braces(&labels), *value as f64 / scale);
        }
        MetricValue::Number(value) => {
            let _ = writeln!(text, "{name}{} {value}", braces(&labels));
        }
        MetricValue::Buckets(buckets) => {
            let mut total = 0;
            for (end, count) in &buckets.counts.buckets {
                total += count;
                let end = if *end == f64::MAX { "+Inf".to_owned() } else { end.to_string() };
                let all: Vec<String> = labels.iter().cloned().chain([format!("le=\"{end}\"")]).collect();
                let _ = writeln!(text, "{name}_bucket{} {total}", braces(&all));
            }
            let _ = writeln!(text, "{name}_sum{} {}", braces(&labels), buckets.counts.sum);
            let _ = writeln!(text, "{name}_count{} {total}", braces(&labels));
        }
    }
}

/// Returns the rows of a table of metrics for a page.
pub fn metric_rows(table: &[&Metric]) -> String {
    let mut rows = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for metric in table {
        let (name, kind, labels) = (metric.full_name(), kind_name(metric.kind), metric.labels.join(", "));
        let _ = writeln!(rows, "| `{name}` | {kind} | {labels} | {} |", metric.help);
    }
    rows
}
