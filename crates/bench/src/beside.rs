//! Compares the client library with bare frames: the same load by each in turn, in one run. Bare
//! frames run twice, with some answers decoded and with each answer decoded.
//!
//! Questions are made beforehand and passed to the library as a caller does. CPU time is that of
//! each side. A ratio compares the medians of all rounds, because a shared machine changes between
//! rounds.

use std::sync::Arc;

use exacat_model::{Answer, Error, Lfn, Operation};
use parking_lot::Mutex;
use serde::Serialize;

use super::Report;
use super::frames::Reading;
use super::measure::{Load, Sample, drive};
use super::scenarios::{BATCH, CONNECTIONS, LOOKUPS};
use super::table::rounded;
use super::target::{StartedServer, Target};
use super::workload::{self, FILES_PER_DIRECTORY};

/// Name for `--only`.
const WHAT: &str = "library beside bare frames";
/// Rounds of each load: in each, bare frames and the library.
const ROUNDS: u64 = 5;
/// Connections of the load with one call at a time on each.
const CONNECTIONS_SINGLE: usize = 32;
/// First number of the files registered here: no other file has such a number.
const FILES_FROM: u64 = 1 << 41;

/// Bare frames, of which some are decoded: they show the server's limit.
const FRAMES: &str = "frames";
/// Bare frames, of which each is decoded: they do all that a caller of the library needs.
const FRAMES_DECODED: &str = "decoded";
/// The client library.
const LIBRARY: &str = "library";
/// Loads in a round, each with questions of its own.
const LOADS: u64 = 3;

type Questions = Vec<Operation>;
type Check = fn(&Answer) -> Result<(), Error>;

/// One load. `make` makes the questions of a round.
struct Scenario<'a> {
    name: &'static str,
    load: Load,
    make: &'a (dyn Fn(u64) -> Result<Questions, Error> + Sync),
}

/// One round of one of the two.
#[derive(Clone, Debug, Serialize)]
struct Line {
    /// Name for `--only`.
    what: String,
    /// `frames`, `decoded` or `library`.
    by: &'static str,
    round: u64,
    items_per_s: f64,
    /// CPU time of the load generator per item, microseconds.
    client_us: f64,
    /// CPU time of the server per item, microseconds.
    server_us: f64,
    p50_us: u64,
    p99_us: u64,
    p999_us: u64,
}

impl Line {
    fn new(name: &str, by: &'static str, round: u64, sample: &Sample, server_s: f64) -> Line {
        let per_item = |seconds: f64| seconds * 1e6 / sample.items.max(1) as f64;
        Line {
            what: format!("{WHAT}: {name}"),
            by,
            round,
            items_per_s: sample.rate(),
            client_us: per_item(sample.cpu_s - server_s),
            server_us: per_item(server_s),
            p50_us: sample.p50_us,
            p99_us: sample.p99_us,
            p999_us: sample.p999_us,
        }
    }
}

/// Runs all loads.
pub(crate) async fn library_beside_frames(
    server: &StartedServer,
    target: &Arc<Target>,
    files: u64,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    if !report.wants(WHAT) {
        return Ok(());
    }
    report.line(&format!("\n{WHAT}, {ROUNDS} rounds of each in turn; medians"))?;
    report.line(&format!(
        "{:<24} {:<7} {:>9} {:>6} {:>6} {:>7} {:>7} {:>7}",
        "", "", "items/s", "client", "server", "p50", "p99", "p99.9"
    ))?;
    report.line(&format!(
        "{:<24} {:<7} {:>9} {:>6} {:>6} {:>7} {:>7} {:>7}",
        "", "", "", "CPU µs", "CPU µs", "µs", "µs", "µs"
    ))?;
    let lookups = |count: u64, items: u64| {
        move |round: u64| -> Result<Questions, Error> {
            let first = round * count * items;
            (0..count)
                .map(|call| {
                    let file = move |item| workload::scatter(first + call * items + item) % files;
                    workload::whereis((0..items).map(file))
                })
                .collect()
        }
    };
    // Each load registers files of its own, in existing directories.
    let creates = |from: u64, count: u64, items: u64| {
        move |round: u64| -> Result<Questions, Error> {
            let first = FILES_FROM + from + round * count * items;
            (0..count)
                .map(|call| workload::register(first + call * items, first + (call + 1) * items))
                .collect()
        }
    };
    let wide = Arc::new(server.target(CONNECTIONS_SINGLE).await?);
    let load = |lanes, depth, calls, items_per_call| Load { lanes, depth, calls, items_per_call };

    let calls = files.clamp(20_000, 600_000);
    let make = &lookups(calls, 1);
    let scenario = Scenario { name: "look-up, 4 x 256", load: load(CONNECTIONS, 256, calls, 1), make };
    rounds(server, target, &scenario, report).await?;

    let calls = (files / 10).clamp(10_000, 60_000).next_multiple_of(FILES_PER_DIRECTORY);
    let make = &creates(0, calls, 1);
    directories(target, FILES_FROM, LOADS * ROUNDS * calls).await?;
    let scenario = Scenario { name: "create, 4 x 256", load: load(CONNECTIONS, 256, calls, 1), make };
    rounds(server, target, &scenario, report).await?;

    let calls = (files / 100).clamp(400, 6_000);
    let make = &lookups(calls, LOOKUPS);
    let scenario =
        Scenario { name: "look-up, batches of 128", load: load(CONNECTIONS, 4, calls, LOOKUPS), make };
    rounds(server, target, &scenario, report).await?;

    let calls = (files / 10_000).clamp(20, 100);
    let make = &creates(1 << 32, calls, BATCH);
    let scenario =
        Scenario { name: "create, batches of 1000", load: load(CONNECTIONS, 2, calls, BATCH), make };
    rounds(server, target, &scenario, report).await?;

    let calls = (files / 10).clamp(5_000, 60_000);
    let make = &lookups(calls, 1);
    let scenario = Scenario { name: "look-up, 32 x 1", load: load(CONNECTIONS_SINGLE, 1, calls, 1), make };
    rounds(server, &wide, &scenario, report).await?;

    let calls = (files / 30).clamp(5_000, 20_000).next_multiple_of(FILES_PER_DIRECTORY);
    let make = &creates(2 << 32, calls, 1);
    directories(target, FILES_FROM + (2 << 32), LOADS * ROUNDS * calls).await?;
    let scenario = Scenario { name: "create, 32 x 1", load: load(CONNECTIONS_SINGLE, 1, calls, 1), make };
    rounds(server, &wide, &scenario, report).await?;
    report.line("")
}

/// Makes the directories of so many files.
pub(crate) async fn directories(target: &Target, first: u64, files: u64) -> Result<(), Error> {
    let lfns = (first / FILES_PER_DIRECTORY..=(first + files) / FILES_PER_DIRECTORY)
        .map(|number| Lfn::parse(&workload::directory(number * FILES_PER_DIRECTORY)))
        .collect::<Result<Vec<_>, _>>()?;
    let made = target.call(0, Operation::Mkdir { lfns, parents: true, mode: None }).await?;
    super::all_good(&made)
}

async fn rounds(
    server: &StartedServer,
    target: &Arc<Target>,
    scenario: &Scenario<'_>,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let Scenario { name, load, make } = scenario;
    let (mut frames, mut decoded, mut library) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for (by, lines, reading) in [
            (FRAMES, &mut frames, Reading::some(super::all_good as Check)),
            (FRAMES_DECODED, &mut decoded, Reading::each(super::all_good as Check)),
        ] {
            let questions = make(LOADS * round + u64::from(by == FRAMES_DECODED))?;
            let before = server.cpu_s();
            let sample =
                super::frames::drive_reading(target, &server.socket(), name, *load, &questions, reading)
                    .await?;
            lines.push(Line::new(name, by, round, &sample, server.cpu_s() - before));
        }
        let handed_over = hand_over(make(LOADS * round + LOADS - 1)?);
        let before = server.cpu_s();
        let sample = drive(target, name, *load, handed_over, super::all_good as Check).await?;
        library.push(Line::new(name, LIBRARY, round, &sample, server.cpu_s() - before));
    }
    if report.settings.json {
        [&frames, &decoded, &library].into_iter().flatten().try_for_each(|line| report.json(line))?;
    }
    let (frames, decoded, library) = (median(frames), median(decoded), median(library));
    for line in [&frames, &decoded, &library] {
        report.line(&format!(
            "{:<24} {:<7} {:>9} {:>6.2} {:>6.2} {:>7} {:>7} {:>7}",
            name,
            line.by,
            rounded(line.items_per_s),
            line.client_us,
            line.server_us,
            line.p50_us,
            line.p99_us,
            line.p999_us
        ))?;
    }
    let cpu_us = |line: &Line| (line.client_us + line.server_us).max(1e-9);
    for of in [&frames, &decoded] {
        report.line(&format!(
            "  library: {:.0} % of the rate of {}, by CPU {:.0} %",
            100.0 * library.items_per_s / of.items_per_s.max(1e-9),
            of.by,
            100.0 * cpu_us(of) / cpu_us(&library),
        ))?;
    }
    let tail = library.p999_us as f64 / library.p50_us.max(1) as f64;
    report.line(&format!("  library: p99.9 {tail:.1} times p50"))
}

/// Passes each question once.
fn hand_over(questions: Questions) -> impl Fn(u64) -> Result<Operation, Error> + Send + Sync + 'static {
    let questions: Vec<Mutex<Option<Operation>>> =
        questions.into_iter().map(|question| Mutex::new(Some(question))).collect();
    move |call: u64| {
        let question = questions.get(call as usize).and_then(|question| question.lock().take());
        question.ok_or_else(|| Error::invalid("a question is asked twice"))
    }
}

/// Median of each value over the rounds.
fn median(lines: Vec<Line>) -> Line {
    let middle = |figure: &dyn Fn(&Line) -> f64| {
        let mut figures: Vec<f64> = lines.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(0.0)
    };
    let first = &lines[0];
    Line {
        what: first.what.clone(),
        by: first.by,
        round: 0,
        items_per_s: middle(&|line| line.items_per_s),
        client_us: middle(&|line| line.client_us),
        server_us: middle(&|line| line.server_us),
        p50_us: middle(&|line| line.p50_us as f64) as u64,
        p99_us: middle(&|line| line.p99_us as f64) as u64,
        p999_us: middle(&|line| line.p999_us as f64) as u64,
    }
}
