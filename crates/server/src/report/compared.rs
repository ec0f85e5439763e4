//! Report of two periods side by side.

use std::collections::BTreeMap;

use exacat_model::period::{MetricPeriod, OperationPeriod, Period, SampleShare, StatePeriod};

use super::{
    DISK, LOAD, Section, counter_per_second, disk_note, is_increased_counter, is_shown_level, name_shown,
    number, per_second, section, slowest, time_shown,
};

/// Returns how much larger the second value is.
fn ratio(first: f64, second: f64) -> String {
    if first <= 0.0 { "-".to_owned() } else { format!("{:.2}", second / first) }
}

/// A figure of operations to compare: its title, its value in a period, and how it is shown.
type OperationFigure = (&'static str, fn(&OperationPeriod, &Period) -> f64, fn(f64) -> String);

/// A figure of metrics to compare: its title and note, which metrics it is of, and its value in a period.
type MetricFigure =
    (&'static str, &'static str, fn(&MetricPeriod) -> bool, fn(&MetricPeriod, &Period) -> f64);

/// Shares of samples to compare: title, heading of the names, and the shares of a period.
type ShareFigure = (&'static str, &'static str, fn(&Period) -> &[SampleShare]);

/// A figure of states to compare, as those of operations.
type StateFigure = (&'static str, &'static str, fn(&StatePeriod, &Period) -> f64, fn(f64) -> String);

/// Returns the headings of a table of two periods.
fn columns(name: &str) -> [(&str, bool); 4] {
    [(name, false), ("A", true), ("B", true), ("B/A", true)]
}

/// Returns the tables of two periods side by side.
pub(super) fn compared(first: &Period, second: &Period) -> Vec<Section> {
    let mut load = section("Load", "", columns("FIGURE"));
    load.rows.extend(LOAD.iter().map(|(name, of)| {
        let (a, b) = (of(first), of(second));
        vec![(*name).to_owned(), number(a), number(b), ratio(a, b)]
    }));
    let mut sections = vec![load];
    let of_states: [StateFigure; 3] = [
        (
            "Where the time went",
            "Requests in the state at a time, on average.",
            |one, period| per_second(one.time_us, period) / 1e6,
            |value| format!("{value:.3}"),
        ),
        (
            "Waits per second",
            "Requests that were in the wait.",
            |one, period| per_second(one.requests, period),
            number,
        ),
        (
            "Average time in a wait",
            "Of a request that was in it.",
            |one, _| one.time_us as f64 / one.requests.max(1) as f64,
            time_shown,
        ),
    ];
    for (place, (title, note, of, shown)) in of_states.into_iter().enumerate() {
        let mut section = section(title, note, columns("STATE"));
        let values = |period: &Period| -> BTreeMap<String, f64> {
            // Phases on a processor are not counted.
            let states = period.states.iter().filter(|one| place == 0 || one.requests > 0);
            states.map(|one| (one.state.clone(), of(one, period))).collect()
        };
        section.rows.extend(paired(&values(first), &values(second), shown));
        sections.push(section);
    }
    let figures: [OperationFigure; 3] = [
        ("Requests per second", |one, period| per_second(one.requests, period), number),
        ("Median time from receipt to answer", |one, _| one.p50_us as f64, time_shown),
        ("99th percentile of that time", |one, _| one.p99_us as f64, time_shown),
    ];
    for (title, of, shown) in figures {
        let mut section = section(title, "", columns("OPERATION"));
        let values = |period: &Period| -> BTreeMap<String, f64> {
            period.operations.iter().map(|one| (one.name.clone(), of(one, period))).collect()
        };
        section.rows.extend(paired(&values(first), &values(second), shown));
        sections.push(section);
    }
    let shares: [ShareFigure; 3] = [
        ("Users", "USER", |period| &period.users),
        ("Clients", "CLIENT", |period| &period.clients),
        ("Directories", "DIRECTORY", |period| &period.directories),
    ];
    for (title, heading, of) in shares {
        let note = "Requests in progress on average, of the ten of each period with most. With 0.00 it is not among \
                    the ten.";
        let mut section = section(title, note, columns(heading));
        let values = |period: &Period| -> BTreeMap<String, f64> {
            let active = |one: &SampleShare| one.requests as f64 / period.samples.max(1) as f64;
            of(period).iter().map(|one| (name_shown(&one.name), active(one))).collect()
        };
        section.rows.extend(paired(&values(first), &values(second), |value| format!("{value:.2}")));
        sections.push(section);
    }
    let mut disk = section("Disk", disk_note(&[first, second]), columns("FIGURE"));
    disk.rows.extend(DISK.iter().map(|(name, of, shown)| {
        let values = [of(first), of(second)];
        let [a, b] = values.map(|value| value.map_or_else(|| "-".to_owned(), shown));
        vec![(*name).to_owned(), a, b, ratio(values[0].unwrap_or(0.0), values[1].unwrap_or(0.0))]
    }));
    sections.push(disk);
    let of_metrics: [MetricFigure; 2] = [
        ("Levels of engine and server", "At the end of each period.", is_shown_level, |one, _| one.to as f64),
        ("Counters of engine and server", "Increase per second.", is_increased_counter, counter_per_second),
    ];
    for (title, note, is_shown, of) in of_metrics {
        let mut section = section(title, note, columns("METRIC"));
        let values = |period: &Period| -> BTreeMap<String, f64> {
            let shown = period.metrics.iter().filter(|one| is_shown(one));
            shown.map(|one| (one.name.clone(), of(one, period))).collect()
        };
        section.rows.extend(paired(&values(first), &values(second), number));
        section.rows.sort();
        sections.push(section);
    }
    sections.push(slowest("Slowest requests of A", &first.slow));
    sections.push(slowest("Slowest requests of B", &second.slow));
    sections
}

/// Returns a row for each name of two periods, with both values and their ratio; the largest first.
fn paired(
    first: &BTreeMap<String, f64>,
    second: &BTreeMap<String, f64>,
    shown: impl Fn(f64) -> String,
) -> Vec<Vec<String>> {
    let value = |of: &BTreeMap<String, f64>, name: &str| of.get(name).copied().unwrap_or(0.0);
    let mut names: Vec<&String> = first.keys().chain(second.keys()).collect();
    names.sort();
    names.dedup();
    names.sort_by(|a, b| {
        let largest = |name: &str| value(first, name).max(value(second, name));
        largest(b).total_cmp(&largest(a))
    });
    let row = |name: &String| {
        let (a, b) = (value(first, name), value(second, name));
        vec![name.clone(), shown(a), shown(b), ratio(a, b)]
    };
    names.into_iter().map(row).collect()
}
