//! Sections of a report, as text and pages show them.

use super::hits::HitQuantity;
use super::rates::{bytes_between, sum};
use super::series::RateView;
use super::shapes::{CountedFrom, NameRow, NamesView, NumberRow, Report, SeriesPoint};
use super::table::{Column, Section};
use super::times::TimeFigures;
use super::views::CacheView;
use crate::units::{bytes, count, duration, percent, plural, rate, signed_bytes, time};

use Column::{Number, Text};

/// Stands for a number that nobody knows.
const UNKNOWN: &str = "-";
/// Letters of a value that fit beside its name; a longer one stands below it.
const VALUE_CHARS_MAX: usize = 50;

/// Returns a figure, or a mark for none.
fn known<T>(value: Option<T>, shown: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), shown)
}

fn share(part: u64, of: u64) -> String {
    if of == 0 { UNKNOWN.to_owned() } else { percent(part as f64 / of as f64) }
}

/// Section of names and values, without a header.
struct Facts(Section);

impl Facts {
    fn new(id: &'static str, title: &str) -> Facts {
        Facts(Section::new(id, title, &[Text(""), Text("")]))
    }

    fn row(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        match value.chars().count() <= VALUE_CHARS_MAX {
            true => self.0.row([name.to_owned(), value]),
            false => self.0.explained([name.to_owned(), String::new()], &value),
        }
    }

    /// Adds a count, unless it is 0.
    fn some(&mut self, name: &str, value: u64) {
        if value > 0 {
            self.row(name, count(value));
        }
    }
}

fn run(of: &Report) -> Section {
    let (run, totals) = (&of.run, &of.totals);
    let mut facts = Facts::new("run", &format!("Run {}: {}", run.name, run.state.name()));
    facts.row("mode", run.mode.clone());
    facts.row("begin", known(run.begin_us, time));
    facts.row("duration", duration(run.elapsed_us));
    if let Some(stop) = &run.stop {
        facts.row("stopped by", stop.condition.clone());
        facts.row("at", duration(stop.at_us));
        facts.0.note(format!("It stopped because of {}.", stop.text));
    }
    let ended = share(totals.accesses, run.planned_accesses);
    facts.row("planned", format!("{}, {}", plural(run.planned_accesses, "access"), bytes(run.planned_bytes)));
    facts.row("ended", format!("{} ({ended})", plural(totals.accesses, "access")));
    facts.row("failed", format!("{} ({})", count(totals.errors), share(totals.errors, totals.accesses)));
    facts.row("bytes asked for", bytes(totals.bytes_asked));
    facts.row("bytes that came", bytes(totals.bytes));
    let each_second =
        format!("{:.1} accesses/s, {}", totals.accesses_per_second, rate(totals.bytes_per_second));
    facts.row("on average", each_second);
    facts.row("in the busiest moment", rate(totals.peak_bytes_per_second));
    facts.row(
        "read before in the run",
        format!("{} ({})", plural(totals.read_again, "access"), share(totals.read_again, totals.accesses)),
    );
    facts.some("reads of a part", totals.partial);
    facts.some("not at the first attempt", totals.retried);
    facts.some("redirects", totals.redirects);
    facts.row("exit code", of.exit_code.to_string());
    if run.records_may_come_s > 0 {
        let seconds = plural(run.records_may_come_s, "second");
        facts.0.note(format!(
            "Caches tell of a file up to 30 s after its close: records are taken for {seconds} more. Until then \
             bytes of caches may be missing."
        ));
    }
    if totals.accesses < run.planned_accesses {
        facts.0.note("Not all of the plan has ended: what the trace foretells is of the whole trace.");
    }
    facts.0
}

fn settings(of: &Report) -> Section {
    let mut facts = Facts::new("settings", "Settings");
    of.run.settings.iter().for_each(|(name, value)| facts.row(name, value.clone()));
    facts.0
}

fn verdicts(of: &Report) -> Section {
    let columns = [Text("threshold"), Text("holds"), Text("measured"), Number("exit code")];
    let mut section = Section::new("thresholds", "Thresholds", &columns);
    for verdict in &of.verdicts {
        let holds = if verdict.holds { "yes" } else { "NO" };
        let cells = [&verdict.threshold, holds, &verdict.text].map(str::to_owned);
        section.row(cells.into_iter().chain([verdict.exit_code.to_string()]));
    }
    section
}

fn outcomes(of: &Report) -> Section {
    let columns = [Text("outcome"), Number("accesses"), Number("share"), Number("bytes")];
    let mut section = Section::new("outcomes", "Outcomes", &columns);
    for row in &of.outcomes {
        let number = |of: &NumberRow| format!("{} ({})", of.number, plural(of.accesses, "access"));
        let mut numbers: Vec<String> = row.numbers.iter().map(number).collect();
        if row.other_numbers > 0 {
            numbers.push(format!("others ({})", plural(row.other_numbers, "access")));
        }
        let name = row.outcome.name().replace('_', " ");
        let part = share(row.accesses, of.totals.accesses);
        let note = if numbers.is_empty() { String::new() } else { format!("errors {}", numbers.join(", ")) };
        section.explained([name, count(row.accesses), part, bytes(row.bytes)], &note);
    }
    section
}

fn times(name: String, of: &TimeFigures) -> Vec<String> {
    let figures = [of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us].map(duration);
    [name, count(of.count)].into_iter().chain(figures).collect()
}

fn durations(of: &Report) -> Vec<Section> {
    let columns = |first| {
        [
            Text(first),
            Number("count"),
            Number("p50"),
            Number("p90"),
            Number("p99"),
            Number("p99.9"),
            Number("max"),
        ]
    };
    let titles = [
        (CountedFrom::Intended, "intended", "Durations from the intended begin"),
        (CountedFrom::Actual, "actual", "Durations from the actual begin"),
    ];
    let notes = [
        "These are what a job would have waited. Waiting for a slow cache, or for an agent, is in them.",
        "These are what the cache took once it was asked. If it stalls, agents ask less: stalls count too little.",
    ];
    let mut sections: Vec<Section> = Vec::new();
    for ((from, id, title), note) in titles.into_iter().zip(notes) {
        let mut section = Section::new(id, title, &columns("accesses"));
        for row in of.durations.iter().filter(|row| row.from == from) {
            section.row(times(row.class.name().to_owned(), &row.figures));
        }
        if !section.is_empty() {
            section.note(note);
            sections.push(section);
        }
    }
    let mut section = Section::new("begin", "First bytes, and lateness of the driver", &columns("time"));
    let rows = [("to the first byte", &of.first_byte), ("late", &of.lateness)];
    for (name, figures) in rows {
        section.rows.extend(
            figures
                .as_ref()
                .map(|of| super::table::Row { cells: times(name.to_owned(), of), note: String::new() }),
        );
    }
    sections.push(section);
    sections
}

fn splits(of: &Report) -> Section {
    let columns = [Text("cache"), Text("accesses"), Number("count"), Number("read before"), Number("bytes")];
    let mut section =
        Section::new("first-bytes", "Hits and misses as clients see them: an estimate", &columns);
    for row in &of.splits {
        let border = match row.border_us {
            Some(us) => format!("border at {}", duration(us)),
            None => "no two groups".to_owned(),
        };
        let classes = [
            ("early first byte", &row.hits),
            ("late first byte", &row.misses),
            ("cannot be told", &row.unclear),
        ];
        let mut name = row.cache.clone();
        for (class, of) in classes.into_iter().filter(|(_, of)| of.accesses > 0) {
            let cells = [count(of.accesses), count(of.read_again), bytes(of.bytes)];
            section.row([std::mem::take(&mut name), class.to_owned()].into_iter().chain(cells));
        }
        section.note(format!("{}: {border}.", row.cache));
    }
    if !of.splits.is_empty() {
        section.note(
            "A first byte from the cache comes early, one from the origin late. The border is the valley between \
             both groups. Agents at different distances, and busy disks, blur it. Only the first block of a file \
             is judged.",
        );
    }
    section
}

fn hits(of: &Report) -> Section {
    let columns = [Text("quantity"), Text("view"), Number("hits"), Number("part"), Number("of")];
    let mut section = Section::new("hits", "Hits: three quantities, and who says so", &columns);
    for row in &of.hits {
        let shown = |number: u64| match row.quantity {
            HitQuantity::Requests => count(number),
            HitQuantity::BytesAsked | HitQuantity::BytesFetched => bytes(number),
        };
        let mark = if row.is_estimate { "~" } else { "" };
        let cells = [row.quantity.name().to_owned(), row.view.name().to_owned()];
        let numbers = [format!("{mark}{}", percent(row.share)), shown(row.part), shown(row.of)];
        section.explained(cells.into_iter().chain(numbers), &row.definition);
    }
    if let Some(expected) = &of.expected {
        section.note(format!(
            "The trace foretells the hits of a cache of {} that begins cold, has whole files, and removes the \
             file that was used longest ago. The working set is {}.",
            bytes(expected.cache_bytes),
            bytes(expected.working_set_bytes)
        ));
    }
    section
}

fn differences(of: &Report) -> Vec<Section> {
    let columns = [Text("cause"), Number("cases"), Number("bytes")];
    let each = of.differences.iter().map(|of| {
        let mut section =
            Section::new("difference", &format!("Differences: {}, {}", of.first, of.second), &columns);
        section.row([of.first.clone(), String::new(), bytes(of.first_bytes)]);
        section.row([of.second.clone(), String::new(), bytes(of.second_bytes)]);
        section.row(["difference".to_owned(), String::new(), signed_bytes(of.difference_bytes)]);
        for cause in &of.causes {
            let mark = if cause.is_estimate { "~" } else { "" };
            let moved = known(cause.bytes, |bytes| format!("{mark}{}", signed_bytes(bytes)));
            section.explained([format!("  {}", cause.name), known(cause.count, count), moved], &cause.text);
        }
        section.row(["unexplained".to_owned(), String::new(), signed_bytes(of.unexplained_bytes)]);
        section
    });
    each.collect()
}

fn handing_out(of: &Report) -> Section {
    let (of, mut facts) = (&of.handing_out, Facts::new("handing-out", "Handing out"));
    facts.row("handed out", count(of.handed_out));
    facts.some("agents", of.agents);
    facts.some("in flight", of.in_flight);
    facts.some("leases that ended without a result", of.leases_expired);
    if of.late_results > 0 {
        let late = format!("{}, {}", count(of.late_results), bytes(of.late_result_bytes));
        facts.row("results after another attempt", late);
    }
    facts.some("results sent again", of.known_results);
    facts.some("results refused", of.refused_results);
    facts.0
}

fn cache_records(of: &CacheView) -> Section {
    let mut facts = Facts::new("cache", &format!("Cache {}, by its records", of.name));
    if let Some(server) = &of.server {
        facts.row("its own name", server.clone());
    }
    if let Some(version) = &of.version {
        facts.row("version", version.clone());
    }
    let size = |name: &str, value: Option<u64>, facts: &mut Facts| {
        if let Some(value) = value {
            facts.row(name, bytes(value));
        }
    };
    size("space", of.space_bytes, &mut facts);
    size("block", of.block_bytes, &mut facts);
    facts.row("asked of it", bytes(of.bytes_asked()));
    facts.row("  hit", bytes(of.bytes_hit));
    facts.row("  missed", bytes(of.bytes_miss));
    facts.row("  passed by", bytes(of.bytes_bypass));
    let how = if of.is_fetched_from_blocks { ", by the growth of blocks" } else { "" };
    facts.row("fetched", known(of.bytes_fetched, |of| format!("{}{how}", bytes(of))));
    facts.row("  ahead of clients", known(of.bytes_prefetched, bytes));
    facts.row("records", count(of.records));
    facts.row("  without a miss", count(of.records_hit));
    facts.some("  nothing read", of.records_empty);
    facts.some("accesses that they count", of.access_count);
    facts.row("files opened", known(of.requests, count));
    facts.row("sessions", known(of.sessions, count));
    facts.some("files still open", of.open_files.unwrap_or(0));
    facts.row("datagrams", count(of.datagrams));
    facts.row("  lost", count(of.lost_datagrams));
    facts.some("  unreadable", of.bad_datagrams);
    facts.some("errors of checksums", of.checksum_errors);
    facts.some("restarts", of.restarts);
    facts.0
}

fn cache_files(of: &Report) -> Section {
    let columns = [
        Text("cache"),
        Number("files"),
        Number("whole"),
        Number("bytes there"),
        Number("accesses"),
        Number("hit"),
        Number("missed"),
        Number("passed by"),
    ];
    let mut section = Section::new("cache-files", "Files of caches, by the states on their disks", &columns);
    for of in &of.cache_files {
        section.row([
            of.name.clone(),
            count(of.last.files),
            count(of.last.files_complete),
            bytes(of.last.bytes_done),
            count(of.grown(|sums| sums.accesses)),
            bytes(of.grown(|sums| sums.bytes_hit)),
            bytes(of.grown(|sums| sums.bytes_miss)),
            bytes(of.grown(|sums| sums.bytes_bypass)),
        ]);
        if of.last.is_incomplete || of.last.damaged + of.last.unread > 0 {
            section.note(format!(
                "{}: {} damaged, {} not read{}.",
                of.name,
                count(of.last.damaged),
                count(of.last.unread),
                if of.last.is_incomplete { ", and there is more than is read at once" } else { "" }
            ));
        }
    }
    if !section.rows.is_empty() {
        section.note(
            "Accesses and bytes are those since the states came first. Those of files that the cache removed \
             meanwhile are missing, and an open file has its own at the close.",
        );
    }
    section
}

fn origins(of: &Report) -> Section {
    let columns = [Text("origin"), Number("opens"), Number("reads"), Number("bytes sent"), Number("errors")];
    let mut section = Section::new("origins", "Origins", &columns);
    for of in &of.origins {
        section.row([
            of.name.clone(),
            count(of.opens),
            count(of.reads),
            bytes(of.bytes_out),
            count(of.errors),
        ]);
    }
    section
}

fn names(id: &'static str, (title, first): (&str, &'static str), of: &NamesView, most: usize) -> Section {
    let columns = [
        Text(first),
        Number("accesses"),
        Number("failed"),
        Number("bytes"),
        Number("p50"),
        Number("p99"),
        Number("late p99"),
    ];
    let mut section = Section::new(id, title, &columns);
    let row = |name: String, of: &NameRow| {
        let times = [of.p50_us, of.p99_us, of.late_p99_us].map(|us| known(us, duration));
        [name, count(of.accesses), count(of.errors), bytes(of.bytes)].into_iter().chain(times)
    };
    for of in of.rows.iter().take(most) {
        let name = if of.name.is_empty() { "(not known)".to_owned() } else { of.name.clone() };
        section.row(row(name, of));
    }
    let hidden = of.rows.len().saturating_sub(most);
    if hidden > 0 {
        section.note(format!(
            "The first {most} of {}; the JSON has the others.",
            plural(of.rows.len() as u64, "row")
        ));
    }
    if let Some(others) = &of.others {
        section.row(row("(all others)".to_owned(), others));
    }
    if of.is_sample {
        section.note(
            "There were more names than a tally tells apart: these are a sample, with complete figures.",
        );
    }
    section
}

/// Rates of caches and origins over time.
pub(crate) struct OtherRates {
    pub asked: Option<RateView>,
    pub fetched: Option<RateView>,
    pub origin: Option<RateView>,
}

impl OtherRates {
    pub(crate) fn of(report: &Report) -> OtherRates {
        let first = || report.cache_records.iter().filter(|cache| cache.place == 0);
        OtherRates {
            asked: sum(first().map(|cache| cache.asked_over_time.as_ref())),
            fetched: sum(first().map(|cache| cache.fetched_over_time.as_ref())),
            origin: sum(report.origins.iter().map(|origin| origin.out_over_time.as_ref())),
        }
    }
}

fn series(of: &Report, most: usize) -> Section {
    let columns = [
        Text("from"),
        Number("due/s"),
        Number("ended/s"),
        Number("failed"),
        Number("clients"),
        Number("cache"),
        Number("origin"),
        Number("p99"),
    ];
    let mut section = Section::new("series", "Over time", &columns);
    let others = OtherRates::of(of);
    let each = of.series.points.len().div_ceil(most.max(1)).max(1);
    let width = of.series.width_us.max(1);
    for (number, points) in of.series.points.chunks(each).enumerate() {
        let from = ((number * each) as u64).saturating_mul(width);
        let span = (points.len() as u64).saturating_mul(width);
        let to = from.saturating_add(span);
        let seconds = span as f64 / 1e6;
        let sum = |of: fn(&SeriesPoint) -> u64| points.iter().map(of).fold(0, u64::saturating_add);
        let other =
            |of: &Option<RateView>| known(of.as_ref(), |of| rate(bytes_between(of, (from, to)) / seconds));
        // Quantiles do not add up: the largest of the points is shown.
        let p99 = points.iter().filter_map(|point| point.p99_us).max();
        section.row([
            if from == 0 { "0 s".to_owned() } else { duration(from) },
            format!("{:.1}", sum(|of| of.due) as f64 / seconds),
            format!("{:.1}", sum(|of| of.ended) as f64 / seconds),
            count(sum(|of| of.errors)),
            rate(sum(|of| of.bytes) as f64 / seconds),
            other(&others.asked),
            other(&others.origin),
            known(p99, duration),
        ]);
    }
    if !section.rows.is_empty() {
        section.note(format!(
            "Rows of {}. Bytes of accesses are spread evenly from the first byte to the end, those of records \
             from the open to the close. The p99 is from the intended begin, at the time when accesses were due.",
            duration((each as u64).saturating_mul(width))
        ));
    }
    section
}

/// Returns the sections of a report, with at most so many rows for names and for points in time.
pub(crate) fn sections(of: &Report, (names_max, points_max): (usize, usize)) -> Vec<Section> {
    let mut all = vec![run(of), settings(of), verdicts(of), outcomes(of)];
    all.extend(durations(of));
    all.extend([hits(of), splits(of)]);
    all.extend(differences(of));
    all.push(series(of, points_max));
    all.push(names("caches", ("Caches, as clients see them", "cache"), &of.caches, names_max));
    all.push(names("sites", ("Sites", "site"), &of.sites, names_max));
    all.push(names("datasets", ("Datasets", "dataset"), &of.datasets, names_max));
    all.push(names("agents", ("Agents", "agent"), &of.agents, names_max));
    all.push(names("drivers", ("Drivers", "driver"), &of.drivers, names_max));
    all.push(handing_out(of));
    all.extend(of.cache_records.iter().map(cache_records));
    all.push(cache_files(of));
    all.push(origins(of));
    all.retain(|section| !section.is_empty());
    all
}
