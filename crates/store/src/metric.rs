//! Metrics: their descriptions, which are tables in the crates that count, and their values at one
//! moment. `/metrics`, the status and the page of the reference all come from them.

use std::borrow::Cow;

use exacat_activity::{ForPrometheus, Recorded};

/// Kind of a metric, as Prometheus has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases, from the start of the process on.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of values by bucket, and their sum.
    Histogram,
}

/// Unit of a metric's whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

impl MetricUnit {
    /// Returns the base unit, in which the name of the metric ends, and the number of units in one.
    pub fn base(self) -> Option<(&'static str, f64)> {
        match self {
            MetricUnit::Count => None,
            MetricUnit::Bytes => Some(("bytes", 1.0)),
            MetricUnit::Seconds => Some(("seconds", 1.0)),
            MetricUnit::Millis => Some(("seconds", 1e3)),
            MetricUnit::Micros => Some(("seconds", 1e6)),
            MetricUnit::Nanos => Some(("seconds", 1e9)),
        }
    }
}

/// Description of a metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Kind for Prometheus.
    pub kind: MetricKind,
    /// Unit of its whole numbers.
    pub unit: MetricUnit,
    /// Name at `/metrics`, without the `_total` of a counter. Ends in the base unit.
    pub name: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Name in a status, the unit of the whole number last. `{}` is the value of the first label.
    /// Empty: not in a status.
    pub status: &'static str,
    /// Meaning.
    pub help: &'static str,
}

/// Makes a table of metrics: a constant for each, and `METRICS` with all of them.
///
/// A row is `NAME Kind Unit "name" ["label"] "name in a status" "meaning";`.
#[macro_export]
macro_rules! metrics {
    ($( $id:ident $kind:ident $unit:ident $name:literal $labels:tt $status:literal $help:literal; )*) => {
        $(
            #[doc = $help]
            pub(crate) static $id: $crate::Metric = $crate::Metric {
                kind: $crate::MetricKind::$kind,
                unit: $crate::MetricUnit::$unit,
                name: $name,
                labels: &$labels,
                status: $status,
                help: $help,
            };
        )*

        /// All metrics of the table.
        #[allow(unreachable_pub, dead_code, reason = "not every table is for other crates")]
        pub static METRICS: &[&$crate::Metric] = &[$( &$id, )*];
    };
}

impl Metric {
    /// Returns its name at `/metrics`.
    pub fn full_name(&self) -> String {
        format!("{}{}", self.name, if self.kind == MetricKind::Counter { "_total" } else { "" })
    }

    /// Makes its value, without labels.
    pub fn is(&'static self, value: u64) -> Sample {
        Sample { metric: self, labels: Vec::new(), value: MetricValue::Number(value) }
    }

    /// Makes its value for this value of its label.
    pub fn of(&'static self, label: impl Into<Cow<'static, str>>, value: u64) -> Sample {
        self.with([label.into()], value)
    }

    /// Makes its value for these values of its labels.
    pub fn with<const N: usize>(&'static self, labels: [Cow<'static, str>; N], value: u64) -> Sample {
        Sample { metric: self, labels: labels.into(), value: MetricValue::Number(value) }
    }

    /// Makes its value, of a histogram.
    pub fn in_buckets(&'static self, label: Option<Cow<'static, str>>, buckets: Buckets) -> Sample {
        Sample { metric: self, labels: label.into_iter().collect(), value: MetricValue::Buckets(buckets) }
    }
}

/// Value of a metric at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its description.
    pub metric: &'static Metric,
    /// Values of its labels.
    pub labels: Vec<Cow<'static, str>>,
    /// The value.
    pub value: MetricValue,
}

/// A number, or a distribution.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// Value of a counter or gauge, in the unit of the metric.
    Number(u64),
    /// Values of a histogram.
    Buckets(Buckets),
}

/// Values by bucket at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    /// In the base unit.
    pub counts: ForPrometheus,
    /// Numbers for a status, in the unit of the metric, with the ends of their names (`p99` …).
    pub shown: Vec<(&'static str, u64)>,
    /// The last request in each bucket, if it is known.
    pub exemplars: Vec<Option<Exemplar>>,
}

impl Buckets {
    /// Returns the buckets of times.
    pub fn of_times(times: &Recorded) -> Self {
        Buckets { counts: times.times_for_prometheus(), ..Buckets::default() }.showing(times)
    }

    /// Returns the buckets of sizes.
    pub fn of_sizes(sizes: &Recorded) -> Self {
        Buckets { counts: sizes.sizes_for_prometheus(), ..Buckets::default() }.showing(sizes)
    }

    fn showing(self, recorded: &Recorded) -> Self {
        let shares = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];
        let mut shown = vec![("count", recorded.count()), ("sum", recorded.sum_us())];
        shown.extend(shares.map(|(which, share)| (which, recorded.quantile_us(share))));
        shown.push(("max", recorded.max_us()));
        Buckets { shown, ..self }
    }
}

/// A request that a bucket counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Number of the request.
    pub request: u64,
    /// Its value, in the unit of the metric.
    pub value: u64,
    /// Time of its end, in milliseconds since 1970.
    pub at_ms: u64,
}

impl Sample {
    /// Returns its numbers in a status, with their names.
    pub fn shown(&self) -> Vec<(String, u64)> {
        if self.metric.status.is_empty() {
            return Vec::new();
        }
        // Addresses are labels too, and names in a status have no punctuation.
        let plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_');
        let label = self.labels.first().map_or("", |label| label);
        let label: String = label.chars().map(|one| if plain(one) { one } else { '_' }).collect();
        let name = self.metric.status.replace("{}", &label);
        match &self.value {
            MetricValue::Number(value) => vec![(name, *value)],
            MetricValue::Buckets(buckets) => {
                buckets.shown.iter().map(|(which, value)| (format!("{name}_{which}"), *value)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_activity::Distribution;

    metrics! {
        PLAIN Gauge Bytes "exacat_plain_bytes" [] "plain_bytes" "Plain";
        NODE Counter Micros "exacat_node_seconds" ["node"] "node_{}_us" "By node";
        TIMES Histogram Micros "exacat_sync_seconds" [] "sync_us" "Times";
        HIDDEN Gauge Count "exacat_hidden" [] "" "Not in a status";
    }

    #[test]
    fn status_name_has_the_label_without_punctuation() {
        assert_eq!(PLAIN.is(7).shown(), [("plain_bytes".to_owned(), 7)]);
        assert_eq!(NODE.of("10.0.0.1:9042", 8).shown(), [("node_10_0_0_1_9042_us".to_owned(), 8)]);
        assert_eq!(HIDDEN.is(1).shown(), []);
        assert_eq!(NODE.full_name(), "exacat_node_seconds_total");
        let times = Distribution::default();
        times.record(1000, 2);
        let shown = TIMES.in_buckets(None, Buckets::of_times(&times.now())).shown();
        let shown: Vec<_> = shown.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let us =
            [("sync_us_p50", 1000), ("sync_us_p99", 1000), ("sync_us_p999", 1000), ("sync_us_max", 1000)];
        assert_eq!(shown[..2], [("sync_us_count", 2), ("sync_us_sum", 2000)]);
        assert_eq!(shown[2..], us);
        assert_eq!(METRICS.len(), 4);
    }
}
