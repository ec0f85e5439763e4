//! Report of a period, or of two side by side: tables for the terminal, for pages, and for a file.

mod compared;

use std::collections::BTreeMap;

use askama::Template;
use exacat_activity::{Class, RequestState};
use exacat_model::period::{MetricPeriod, Period, RequestShown, SampleShare};

use self::compared::compared;
use crate::status_metrics::{Nature, STORE_READ_AT, nature, thread_io};

/// Requests of most time that a report shows.
const SLOWEST_SHOWN: usize = 10;

/// A table of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Title.
    pub title: &'static str,
    /// Note about its columns; may be empty.
    pub note: &'static str,
    /// Headings; true for numbers, which are aligned to the right.
    pub columns: Vec<(String, bool)>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// Formats a short time in its largest fitting unit: `850us`, `12.5ms`, `3.2s`.
pub fn short_time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        _ => format!("{}.{}s", us / 1_000_000, us % 1_000_000 / 100_000),
    }
}

/// Formats a number in at most five characters: `0.125`, `17`, `2.5k`, `310M`.
fn number(value: f64) -> String {
    let mut value = value;
    for unit in ["", "k", "M", "G", "T", "P"] {
        if value < 999.5 {
            return match unit {
                "" if value == value.trunc() => format!("{value:.0}"),
                "" if value < 0.995 => format!("{value:.3}"),
                _ if value < 9.95 => format!("{value:.1}{unit}"),
                _ => format!("{value:.0}{unit}"),
            };
        }
        value /= 1000.0;
    }
    format!("{value:.0}E")
}

fn count(value: u64) -> String {
    number(value as f64)
}

fn percent(part: u64, of: u64) -> String {
    match part as f64 * 100.0 / of.max(1) as f64 {
        percent if percent > 0.0 && percent < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

fn per_second(value: u64, period: &Period) -> f64 {
    value as f64 / period.seconds().max(0.001)
}

/// Returns the increase of a counter per second. Those of the store were read at times of their own.
fn counter_per_second(metric: &MetricPeriod, period: &Period) -> f64 {
    let read = period.metrics.iter().find(|one| one.name == STORE_READ_AT);
    // At the start of the server there is no earlier reading.
    let read = read.filter(|one| 0 < one.from && one.from < one.to);
    let seconds = match read {
        Some(read) if nature(&metric.name) == Nature::StoreCounter => (read.to - read.from) as f64 / 1000.0,
        _ => period.seconds().max(0.001),
    };
    metric.to.saturating_sub(metric.from) as f64 / seconds
}

fn class_is_idle(state: &str) -> bool {
    RequestState::named(state).is_some_and(|state| state.class() == Class::Idle)
}

/// Returns the time of all requests, without waits that their clients wished.
fn busy_us(period: &Period) -> u64 {
    period.states.iter().filter(|one| !class_is_idle(&one.state)).map(|one| one.time_us).sum()
}

fn section<const N: usize>(title: &'static str, note: &'static str, columns: [(&str, bool); N]) -> Section {
    let columns = columns.map(|(name, is_number)| (name.to_owned(), is_number)).into();
    Section { title, note, columns, rows: Vec::new() }
}

/// A figure of the load: its name, and its value in a period.
type LoadFigure = (&'static str, fn(&Period) -> f64);

/// The load, each a number per second or an average.
const LOAD: [LoadFigure; 9] = [
    ("requests/s", |period| per_second(period.operations.iter().map(|one| one.requests).sum(), period)),
    ("items/s", |period| per_second(period.operations.iter().map(|one| one.items).sum(), period)),
    ("failed/s", |period| per_second(period.operations.iter().map(|one| one.failed).sum(), period)),
    ("changes/s", |period| increase_per_second(period, "changes_total").unwrap_or(0.0)),
    ("received bytes/s", |period| increase_per_second(period, "received_bytes").unwrap_or(0.0)),
    ("sent bytes/s", |period| increase_per_second(period, "sent_bytes").unwrap_or(0.0)),
    ("active requests", |period| busy_us(period) as f64 / 1e6 / period.seconds().max(0.001)),
    ("processors used", |period| {
        period.threads.iter().map(|one| one.cpu_us).sum::<u64>() as f64 / 1e6 / period.seconds().max(0.001)
    }),
    ("threads in queue for one", |period| {
        period.threads.iter().map(|one| one.queue_us).sum::<u64>() as f64 / 1e6 / period.seconds().max(0.001)
    }),
];

/// Returns the tables of a report: of one period, or of two to be compared.
pub fn sections(first: &Period, second: Option<&Period>) -> Vec<Section> {
    let mut sections = match second {
        None => vec![load(first), states(first), operations(first)],
        Some(second) => compared(first, second),
    };
    if second.is_none() {
        let shares =
            [("Users", &first.users), ("Clients", &first.clients), ("Directories", &first.directories)];
        sections.extend(shares.map(|(title, shares)| shares_of(title, shares, first)));
        sections.extend([threads(first), stretches(first), disk(first), metrics(first)]);
        sections.push(slowest("Slowest requests", &first.slow));
    }
    sections.retain(|section| !section.rows.is_empty());
    sections
}

/// Returns the load of a period: names of figures, and their values.
pub fn load_figures(period: &Period) -> Vec<(&'static str, String)> {
    LOAD.iter().map(|(name, of)| (*name, number(of(period)))).collect()
}

fn load(period: &Period) -> Section {
    let mut section = section("Load", "", [("FIGURE", false), ("VALUE", true)]);
    section.rows.extend(load_figures(period).into_iter().map(|(name, value)| vec![name.to_owned(), value]));
    section
}

fn states(period: &Period) -> Section {
    let note = "SHARE is of the time of all requests, without waits that clients wished. REQUESTS were in the \
                wait.";
    let mut section = section(
        "Where the time went",
        note,
        [
            ("STATE", false),
            ("CLASS", false),
            ("REQUESTS", true),
            ("TIME", true),
            ("AVERAGE", true),
            ("P99", true),
            ("MAX", true),
            ("SHARE", true),
        ],
    );
    let busy = busy_us(period);
    section.rows.extend(period.states.iter().map(|one| {
        let is_counted = one.requests > 0;
        let of_requests = |us: u64| if is_counted { short_time(us) } else { "-".to_owned() };
        vec![
            one.state.clone(),
            one.class.clone(),
            if is_counted { count(one.requests) } else { "-".to_owned() },
            short_time(one.time_us),
            of_requests(one.time_us / one.requests.max(1)),
            of_requests(one.p99_us),
            of_requests(one.max_us),
            if class_is_idle(&one.state) { "-".to_owned() } else { percent(one.time_us, busy) },
        ]
    }));
    section
}

/// Returns the state with most of the time of some states, and its share.
fn most<'a>(states: impl IntoIterator<Item = &'a (String, u64)>, all: u64) -> String {
    let longest = states.into_iter().max_by_key(|(_, us)| *us);
    longest.map_or_else(String::new, |(state, us)| format!("{state} {}", percent(*us, all)))
}

fn operations(period: &Period) -> Section {
    let mut section = section(
        "Operations",
        "P50, P99 and MAX are of the time from receipt to answer, at most 15 % too long.",
        [
            ("OPERATION", false),
            ("REQUESTS", true),
            ("FAILED", true),
            ("ITEMS", true),
            ("P50", true),
            ("P99", true),
            ("MAX", true),
            ("MOST TIME IN", false),
        ],
    );
    section.rows.extend(period.operations.iter().map(|one| {
        vec![
            one.name.clone(),
            count(one.requests),
            count(one.failed),
            count(one.items),
            short_time(one.p50_us),
            short_time(one.p99_us),
            short_time(one.max_us),
            most(&one.states, one.life_us),
        ]
    }));
    section
}

fn shares_of(title: &'static str, shares: &[SampleShare], period: &Period) -> Section {
    let heading = match title {
        "Users" => "USER",
        "Clients" => "CLIENT",
        _ => "DIRECTORY",
    };
    let note = "ACTIVE is the average number of requests in progress, from one sample a second.";
    let columns = [("ACTIVE", true), ("SHARE", true), ("MOSTLY IN", false), (heading, false)];
    let mut section = section(title, note, columns);
    let all = shares.iter().map(|one| one.requests).sum();
    section.rows.extend(shares.iter().map(|one| {
        vec![
            format!("{:.2}", one.requests as f64 / period.samples.max(1) as f64),
            percent(one.requests, all),
            one.state.clone(),
            name_shown(&one.name),
        ]
    }));
    section
}

fn name_shown(name: &str) -> String {
    if name.is_empty() { "-".to_owned() } else { name.to_owned() }
}

fn threads(period: &Period) -> Section {
    let mut section = section(
        "Threads",
        "By the kernel's counters. In QUEUE a thread was ready, and no processor was free. DISK is the part of \
         WAITING for block devices; the kernel counts it with kernel.task_delayacct=1.",
        [
            ("ROLE", false),
            ("THREADS", true),
            ("ON CPU", true),
            ("QUEUE", true),
            ("WAITING", true),
            ("DISK", true),
        ],
    );
    section.rows.extend(period.threads.iter().map(|one| {
        let all = one.cpu_us + one.queue_us + one.wait_us;
        let part = |us| percent(us, all);
        let parts = [one.cpu_us, one.queue_us, one.wait_us].map(part);
        let disk = period.increase(&thread_io(&one.role)).map_or_else(|| "-".to_owned(), part);
        [vec![one.role.clone(), count(one.threads)], parts.to_vec(), vec![disk]].concat()
    }));
    section
}

fn stretches(period: &Period) -> Section {
    let mut section = section(
        "Stretches of threads",
        "Time from being put on a processor to leaving it (ON), and to coming back (OFF). The kernel counts \
         stretches and their sum, so each is the mean of a thread in a second: a single long one within a second \
         of many short ones is not seen.",
        [
            ("ROLE", false),
            ("STRETCHES/S", true),
            ("ON p50", true),
            ("ON p99", true),
            ("ON MAX", true),
            ("OFF p50", true),
            ("OFF p99", true),
            ("OFF MAX", true),
        ],
    );
    section.rows.extend(period.threads.iter().filter(|one| one.stretches > 0).map(|one| {
        let [on, off] = [&one.on, &one.off].map(|one| [one.p50_us, one.p99_us, one.max_us].map(short_time));
        let rate = number(per_second(one.stretches, period));
        [vec![one.role.clone(), rate], on.to_vec(), off.to_vec()].concat()
    }));
    section
}

/// A figure of the data's disk: its name, its value in a period if it is known, and how it is shown.
type DiskFigure = (&'static str, fn(&Period) -> Option<f64>, fn(f64) -> String);

/// Time of the log's sync, and what the kernel counts of the disk below it.
const DISK: [DiskFigure; 11] = [
    (
        "write and sync of a group of the log",
        |period| period.mean("sync_us_sum", "sync_us_count"),
        time_shown,
    ),
    ("flush", |period| of_request(period, "disk_flush_ms", "disk_flushes"), time_shown),
    ("flushes/s", |period| increase_per_second(period, "disk_flushes"), number),
    ("write", |period| of_request(period, "disk_write_ms", "disk_writes"), time_shown),
    ("writes/s", |period| increase_per_second(period, "disk_writes"), number),
    ("written bytes/s", |period| increase_per_second(period, "disk_write_bytes"), number),
    ("read", |period| of_request(period, "disk_read_ms", "disk_reads"), time_shown),
    ("reads/s", |period| increase_per_second(period, "disk_reads"), number),
    ("read bytes/s", |period| increase_per_second(period, "disk_read_bytes"), number),
    (
        "share of the time with a request",
        |period| increase_per_second(period, "disk_busy_ms").map(|ms| (ms / 1000.0).min(1.0)),
        |share| percent((share * 1000.0) as u64, 1000),
    ),
    (
        "requests in progress",
        |period| increase_per_second(period, "disk_request_ms").map(|ms| ms / 1000.0),
        number,
    ),
];

fn time_shown(us: f64) -> String {
    short_time(us as u64)
}

/// Returns the mean time of a request of the disk, in microseconds.
fn of_request(period: &Period, ms: &str, requests: &str) -> Option<f64> {
    period.mean(ms, requests).map(|mean| mean * 1000.0)
}

fn increase_per_second(period: &Period, metric: &str) -> Option<f64> {
    let found = period.metrics.iter().find(|one| one.name == metric)?;
    Some(counter_per_second(found, period))
}

fn disk_note(periods: &[&Period]) -> &'static str {
    if periods.iter().all(|period| period.increase("disk_reads").is_some()) {
        "By the kernel's counters, of all programs. Times are averages."
    } else {
        "The kernel counts nothing of this disk: its file system has no block device of its own (overlay, tmpfs, \
         NFS)."
    }
}

fn disk(period: &Period) -> Section {
    let columns = [("FIGURE", false), ("VALUE", true)];
    let mut section = section("Disk", disk_note(&[period]), columns);
    let shown = DISK
        .iter()
        .map(|(name, of, shown)| vec![(*name).to_owned(), of(period).map_or_else(|| "-".to_owned(), shown)]);
    section.rows.extend(shown);
    section
}

/// True for a level that a report shows: of the server one that is not 0, of a store each.
fn is_shown_level(metric: &MetricPeriod) -> bool {
    match nature(&metric.name) {
        Nature::StoreLevel => true,
        Nature::Level => metric.from != 0 || metric.to != 0,
        Nature::Counter | Nature::StoreCounter | Nature::Hidden => false,
    }
}

fn is_increased_counter(metric: &MetricPeriod) -> bool {
    matches!(nature(&metric.name), Nature::Counter | Nature::StoreCounter) && metric.to > metric.from
}

fn metrics(period: &Period) -> Section {
    let mut section = section(
        "Engine and server",
        "Levels at both ends, and counters that increased.",
        [("METRIC", false), ("FROM", true), ("TO", true), ("CHANGE", true), ("PER SECOND", true)],
    );
    let none = || "-".to_owned();
    let rows = period.metrics.iter().filter_map(|one| {
        let (change, sign) = (one.to.abs_diff(one.from), if one.to < one.from { "-" } else { "" });
        let change_shown = format!("{sign}{}", count(change));
        let name = one.name.clone();
        if is_increased_counter(one) {
            let rate = number(counter_per_second(one, period));
            return Some(vec![name, none(), none(), change_shown, rate]);
        }
        is_shown_level(one).then(|| vec![name, count(one.from), count(one.to), change_shown, none()])
    });
    section.rows.extend(rows);
    section.rows.sort();
    section
}

/// Formats the states of a request, the longest first: `log_sync 80 %, execute 20 %`.
fn states_shown(request: &RequestShown) -> String {
    let mut states: Vec<&(String, u64)> = request.states.iter().collect();
    states.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    let shown = states.iter().map(|(state, us)| format!("{state} {}", percent(*us, request.life_us)));
    shown.collect::<Vec<_>>().join(", ")
}

fn slowest(title: &'static str, slow: &[RequestShown]) -> Section {
    let mut section = section(
        title,
        "Those that took long, by the server's thresholds.",
        [
            ("ID", true),
            ("BEGAN", false),
            ("OPERATION", false),
            ("USER", false),
            ("TIME", true),
            ("STATES", false),
            ("PATH", false),
        ],
    );
    section.rows.extend(slow.iter().take(SLOWEST_SHOWN).map(|one| {
        vec![
            one.id.to_string(),
            one.began.to_string(),
            one.operation.clone(),
            one.user.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            short_time(one.life_us),
            states_shown(one),
            one.subject.clone(),
        ]
    }));
    section
}

/// Returns the lines above the tables: which time a report is about.
pub fn heading(period: &Period) -> String {
    let starts = match period.starts {
        0 => String::new(),
        1 => ", in which the server was started".to_owned(),
        times => format!(", in which the server was started {times} times"),
    };
    let seconds = period.seconds();
    format!("{} to {}, {seconds:.0} s{starts}; {} samples", period.from, period.to, period.samples)
}

/// Part of the time in one class, for the bar at the top of a page.
pub struct ClassShare {
    /// Class.
    pub class: String,
    /// Thousandths of the time before it.
    pub x: u64,
    /// Its thousandths of the time.
    pub width: u64,
    /// Its part in words.
    pub percent: String,
}

/// Returns the parts of the time by class, without waits that clients wished.
pub fn classes(period: &Period) -> Vec<ClassShare> {
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for one in period.states.iter().filter(|one| !class_is_idle(&one.state)) {
        *times.entry(&one.class).or_default() += one.time_us;
    }
    let all: u64 = times.values().sum();
    let mut times: Vec<(&str, u64)> = times.into_iter().collect();
    times.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    let mut x = 0;
    let share = |(class, us): (&str, u64)| {
        let width = us * 1000 / all.max(1);
        let share = ClassShare { class: class.to_owned(), x, width, percent: percent(us, all) };
        x += width;
        share
    };
    times.into_iter().map(share).collect()
}

/// A report as one page without other files.
#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage {
    headings: Vec<(&'static str, String)>,
    findings: Vec<(&'static str, Vec<String>)>,
    classes: Vec<(&'static str, Vec<ClassShare>)>,
    sections: Vec<Section>,
}

/// Returns the report as one HTML page, which needs no other file.
pub fn html(first: &Period, second: Option<&Period>) -> Result<String, String> {
    let periods: Vec<(&'static str, &Period)> = match second {
        None => vec![("", first)],
        Some(second) => vec![("A", first), ("B", second)],
    };
    let page = ReportPage {
        headings: periods.iter().map(|(name, period)| (*name, heading(period))).collect(),
        findings: periods.iter().map(|(name, period)| (*name, period.findings.clone())).collect(),
        classes: periods.iter().map(|(name, period)| (*name, classes(period))).collect(),
        sections: sections(first, second),
    };
    page.render().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::TimeMs;
    use exacat_model::period::{OperationPeriod, StatePeriod, Stretches, ThreadPeriod};

    fn period(sync_us: u64) -> Period {
        let states = vec![("log_sync".to_owned(), sync_us), ("execute".to_owned(), 1_000)];
        let state = |state: &str, class: &str, requests, time_us| StatePeriod {
            state: state.to_owned(),
            class: class.to_owned(),
            requests,
            time_us,
            p99_us: 5_000,
            max_us: 6_000,
        };
        let operation = OperationPeriod {
            name: "register".to_owned(),
            requests: 20_000,
            life_us: sync_us + 1_000,
            states,
            ..OperationPeriod::default()
        };
        Period {
            from: TimeMs(0),
            to: TimeMs(10_000),
            samples: 10,
            operations: vec![operation],
            states: vec![
                state("change", "idle", 5, 1 << 40),
                state("log_sync", "commit", 10, sync_us),
                state("execute", "cpu", 0, 1_000),
            ],
            threads: vec![ThreadPeriod {
                role: "exacat-writer".to_owned(),
                threads: 1,
                cpu_us: 1,
                queue_us: 1,
                wait_us: 2,
                stretches: 40,
                on: Stretches { p50_us: 20, p99_us: 5_000, max_us: 6_000 },
                off: Stretches::default(),
            }],
            metrics: [
                ("log_written_bytes", 5_000_000, 15_000_000),
                ("requests_total", 7, 7),
                ("compaction_debt_runs", 0, 0),
                ("disk_free_bytes", 4_000_000, 3_000_000),
                ("serving", 1, 1),
                ("drained", 0, 0),
                ("sync_us_p99", 1, 2),
            ]
            .map(|(name, from, to)| MetricPeriod { name: name.to_owned(), from, to })
            .to_vec(),
            users: vec![SampleShare {
                name: "<b>alice".to_owned(),
                requests: 20,
                state: "log_sync".to_owned(),
            }],
            findings: vec!["75 % is <i>log_sync</i>".to_owned()],
            ..Period::default()
        }
    }

    fn row<'a>(sections: &'a [Section], title: &str, name: &str) -> &'a [String] {
        let section = sections.iter().find(|one| one.title == title).unwrap();
        section.rows.iter().find(|row| row.iter().any(|cell| cell == name)).unwrap()
    }

    /// Each table has the figures of the period; waits that a client wished have no share.
    #[test]
    fn tables_have_the_figures_of_the_period() {
        let sections = sections(&period(3_000), None);
        let states = ["log_sync", "commit", "10", "3.0ms", "300us", "5.0ms", "6.0ms", "75 %"];
        assert_eq!(row(&sections, "Where the time went", "log_sync"), states);
        assert_eq!(row(&sections, "Where the time went", "change")[7], "-");
        assert_eq!(row(&sections, "Where the time went", "execute")[2], "-");
        assert_eq!(row(&sections, "Load", "requests/s")[1], "2.0k");
        assert_eq!(row(&sections, "Operations", "register")[7], "log_sync 75 %");
        assert_eq!(row(&sections, "Users", "<b>alice")[..3], ["2.00", "100 %", "log_sync"]);
        assert_eq!(row(&sections, "Threads", "exacat-writer")[2..5], ["25 %", "25 %", "50 %"]);
        assert_eq!(row(&sections, "Stretches of threads", "exacat-writer")[1..4], ["4", "20us", "5.0ms"]);
        assert_eq!(row(&sections, "Threads", "exacat-writer")[5], "-", "the kernel does not count it");
        assert!(sections.iter().all(|one| one.rows.iter().all(|row| row.len() == one.columns.len())));
    }

    /// Levels are shown whether they changed or not, those of a store at 0 too; counters if they increased.
    #[test]
    fn engine_has_levels_always_and_counters_that_increased() {
        let sections = sections(&period(3_000), None);
        let engine = sections.iter().find(|one| one.title == "Engine and server").unwrap();
        let expected = [
            ["compaction_debt_runs", "0", "0", "0", "-"],
            ["disk_free_bytes", "4.0M", "3.0M", "-1.0M", "-"],
            ["log_written_bytes", "-", "-", "10M", "1.0M"],
            ["serving", "1", "1", "0", "-"],
        ];
        assert_eq!(engine.rows, expected);
    }

    /// Counters of the store are divided by the time between their own readings, which may be longer than the
    /// period; without two readings there is only the period.
    #[test]
    fn rates_of_the_store_are_of_its_own_readings() {
        let mut one = period(3_000);
        let rate =
            |one: &Period| row(&sections(one, None), "Engine and server", "log_written_bytes")[4].clone();
        for (read_at, expected) in [((1_000, 6_000), "2.0M"), ((0, 5_000), "1.0M"), ((5_000, 5_000), "1.0M")]
        {
            one.metrics.retain(|one| one.name != STORE_READ_AT);
            let (from, to) = read_at;
            one.metrics.push(MetricPeriod { name: STORE_READ_AT.to_owned(), from, to });
            assert_eq!(rate(&one), expected, "{read_at:?}");
        }
    }

    /// The disk's own times stand beside the log's sync; without a disk the section says so.
    #[test]
    fn disk_has_times_beside_the_sync_of_the_log() {
        let mut one = period(3_000);
        let without = disk(&one);
        assert!(without.note.contains("no block device of its own"));
        assert!(without.rows.iter().all(|row| row[1] == "-"), "{without:?}");
        let metrics = [
            ("sync_us_sum", 41_000),
            ("sync_us_count", 10),
            ("disk_flush_ms", 70),
            ("disk_flushes", 20),
            ("disk_writes", 0),
            ("disk_write_ms", 0),
            ("disk_reads", 5),
            ("disk_busy_ms", 10_500),
            ("disk_request_ms", 25_000),
        ];
        one.metrics.extend(metrics.map(|(name, to)| MetricPeriod { name: name.to_owned(), from: 0, to }));
        one.metrics.push(MetricPeriod { name: thread_io("exacat-writer"), from: 5, to: 6 });
        let sections = sections(&one, Some(&one));
        assert_eq!(row(&sections, "Disk", "write and sync of a group of the log")[1..3], ["4.1ms", "4.1ms"]);
        let value = |name: &str| disk(&one).rows.into_iter().find(|row| row[0] == name).unwrap().remove(1);
        assert_eq!(["flush", "flushes/s", "write", "reads/s"].map(value), ["3.5ms", "2", "-", "0.500"]);
        // Ticks of the kernel may be a little late.
        assert_eq!(value("share of the time with a request"), "100 %");
        assert_eq!(value("requests in progress"), "2.5");
        assert!(disk(&one).note.contains("of all programs"));
        assert_eq!(threads(&one).rows[0][5], "25 %", "1 us of 4");
    }

    #[test]
    fn two_periods_are_side_by_side() {
        let (mut first, mut second) = (period(3_000), period(6_000));
        first.slow = vec![RequestShown { id: 7, life_us: 10, ..RequestShown::default() }];
        second.slow = vec![RequestShown { id: 8, life_us: 10, ..RequestShown::default() }];
        second.users.push(SampleShare { name: "bob".to_owned(), requests: 5, ..SampleShare::default() });
        let sections = sections(&first, Some(&second));
        assert_eq!(row(&sections, "Where the time went", "log_sync"), ["log_sync", "0.000", "0.001", "2.00"]);
        assert_eq!(row(&sections, "Requests per second", "register")[3], "1.00");
        assert_eq!(row(&sections, "Waits per second", "log_sync")[1..], ["1", "1", "1.00"]);
        assert_eq!(row(&sections, "Average time in a wait", "log_sync")[1..], ["300us", "600us", "2.00"]);
        assert_eq!(row(&sections, "Users", "<b>alice")[1..], ["2.00", "2.00", "1.00"]);
        assert_eq!(row(&sections, "Users", "bob")[1..], ["0.00", "0.50", "-"]);
        assert_eq!(row(&sections, "Levels of engine and server", "disk_free_bytes")[1..3], ["3.0M", "3.0M"]);
        assert_eq!(row(&sections, "Counters of engine and server", "log_written_bytes")[1], "1.0M");
        assert_eq!(row(&sections, "Slowest requests of A", "7")[4], "10us");
        assert_eq!(row(&sections, "Slowest requests of B", "8")[4], "10us");
        for one in &sections {
            assert!(one.rows.iter().all(|row| row.len() == one.columns.len()), "{}", one.title);
        }
        let phases = sections.iter().find(|one| one.title == "Average time in a wait").unwrap();
        assert!(phases.rows.iter().all(|row| row[0] != "execute"), "{phases:?}");
    }

    /// The page is one file: it loads nothing, and shows markup in names as text.
    #[test]
    fn page_is_whole_and_harmless() {
        for second in [None, Some(&period(6_000))] {
            let page = html(&period(3_000), second).unwrap();
            for text in ["<script", "src=", "href=", "@import", "url(", "<b>alice", "<i>log_sync"] {
                assert!(!page.contains(text), "{text}");
            }
            assert!(page.contains("&#60;i&#62;log_sync"), "{page}");
        }
    }
}
