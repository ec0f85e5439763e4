//! Compares this program with another one: a server of each with the same files, asked in turns.
//!
//! A shared machine changes by more than a few percent between seconds. So turns are short, each is compared
//! with the one beside it, and their order alternates. Two servers of one program differ by as much, for as
//! long as they run: so new ones are started several times. CPU time is that of the server alone, by the
//! kernel's scheduler. A start has the median of the ratios of its pairs. The median of all starts stands
//! with the interval that has it with 95 % confidence.

use std::path::Path;
use std::sync::Arc;

use exacat_model::{Answer, Error, ErrorKind, Operation};
use serde::Serialize;

use super::Report;
use super::beside::directories;
use super::measure::{Load, drive};
use super::process::threads_cpu_s;
use super::scenarios::{
    BATCH, CONNECTIONS, CONNECTIONS_UNPIPELINED, LOOKUPS, directory_batch, make_storage_elements, questions,
    random_batch, single_lookup,
};
use super::table::rounded;
use super::target::{StartedServer, Target};
use super::workload;

/// Starts of both servers.
const STARTS: usize = 10;
/// Pairs of turns of each load after a start. The first one warms both servers and does not count.
const PAIRS: u64 = 7;
/// First number of the files that turns create.
const FILES_FROM: u64 = 1 << 41;

/// A load of each turn.
struct Turn {
    what: &'static str,
    load: Load,
    make: fn(call: u64, files: u64) -> Result<Operation, Error>,
    creates: bool,
}

/// The calls of a turn take 0.1 to 0.3 s in a release build.
const TURNS: [Turn; 5] = [
    Turn {
        what: "whereis, single, 4 x 256 in flight",
        load: Load { lanes: CONNECTIONS, depth: 256, calls: 40_000, items_per_call: 1 },
        make: single_lookup,
        creates: false,
    },
    Turn {
        what: "whereis, batches of 128, random",
        load: Load { lanes: CONNECTIONS, depth: 4, calls: 1_500, items_per_call: LOOKUPS },
        make: random_batch,
        creates: false,
    },
    Turn {
        what: "whereis, batches of 128, of one directory",
        load: Load { lanes: CONNECTIONS, depth: 4, calls: 1_500, items_per_call: LOOKUPS },
        make: directory_batch,
        creates: false,
    },
    Turn {
        what: "whereis, single, 64 x 1 in flight",
        load: Load { lanes: CONNECTIONS_UNPIPELINED, depth: 1, calls: 15_000, items_per_call: 1 },
        make: single_lookup,
        creates: false,
    },
    Turn {
        what: "create, single, durable, 4 x 256 in flight",
        load: Load { lanes: CONNECTIONS, depth: 256, calls: 8_000, items_per_call: 1 },
        make: |call, _| workload::register(call, call + 1),
        creates: true,
    },
];

/// A server of one of the programs.
struct Side {
    _server: StartedServer,
    target: Arc<Target>,
    pid: String,
}

impl Side {
    /// Starts a server of a program and fills it.
    async fn start(program: &Path, data: &Path, files: u64) -> Result<Self, Error> {
        let (server, _) = StartedServer::start_program(program, data, &[]).await?;
        let target = Arc::new(server.target(CONNECTIONS_UNPIPELINED).await?);
        make_storage_elements(&target).await?;
        let load = Load { lanes: CONNECTIONS, depth: 2, calls: files / BATCH, items_per_call: BATCH };
        let make = |call: u64| workload::register(call * BATCH, (call + 1) * BATCH);
        drive(&target, "", load, make, super::all_good).await?;
        let pid = server.pid().to_string();
        Ok(Side { _server: server, target, pid })
    }

    /// Takes a turn. Returns the items in a second, and microseconds of the server's CPU time for each.
    async fn turn(&self, turn: &Turn, (first, calls): (u64, u64), files: u64) -> Result<(f64, f64), Error> {
        // Made beforehand: a load generator that formats names measures itself.
        let questions = questions(calls, |call| (turn.make)(first + call, files))?;
        if turn.creates {
            directories(&self.target, first, calls).await?;
        }
        let before = threads_cpu_s(&self.pid);
        let make = move |call: u64| Ok(questions[call as usize].clone());
        let check: fn(&Answer) -> Result<(), Error> = super::all_good;
        let sample = drive(&self.target, turn.what, Load { calls, ..turn.load }, make, check).await?;
        let cpu_s = threads_cpu_s(&self.pid) - before;
        Ok((sample.rate(), cpu_s * 1e6 / sample.items as f64))
    }
}

/// A ratio, and the interval that has its median with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Ratio {
    median: f64,
    from: f64,
    to: f64,
}

impl Ratio {
    fn of(mut ratios: Vec<f64>) -> Self {
        ratios.sort_by(f64::total_cmp);
        let at = |place: f64| ratios.get(place.max(0.0) as usize).copied().unwrap_or(f64::INFINITY);
        // The number of ratios below the median is binomial, with this mean and deviation.
        let (mean, deviation) = (ratios.len() as f64 / 2.0, (ratios.len() as f64).sqrt() / 2.0);
        Ratio {
            median: at(mean),
            from: at((mean - 1.96 * deviation).floor()),
            to: at((mean + 1.96 * deviation).ceil()),
        }
    }
}

/// One load of both programs.
#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    /// This program's rate to the other's.
    rate: Ratio,
    /// This program's CPU time of an item to the other's.
    cpu: Ratio,
    /// Medians of the other one: items in a second, and CPU time of an item.
    other_items_per_s: f64,
    other_cpu_us: f64,
}

/// Medians of the starts of a load: ratios of rate and CPU, and rate and CPU of the other program.
#[derive(Default)]
struct Medians([Vec<f64>; 4]);

impl Medians {
    fn ratio(&self, of: usize) -> Ratio {
        Ratio::of(self.0[of].clone())
    }
}

/// Runs the pairs of a load after a start.
async fn pairs(
    (this, other): (&Side, &Side),
    (turn, first): (&Turn, u64),
    files: u64,
    medians: &mut Medians,
) -> Result<(), Error> {
    let mut found: [Vec<f64>; 4] = Default::default();
    for pair in 0..PAIRS {
        // A small run has short turns.
        let calls = turn.load.calls.min(files / 10);
        let asked = (first + pair * calls, calls);
        let (this, other) = if pair % 2 == 0 {
            let this = this.turn(turn, asked, files).await?;
            (this, other.turn(turn, asked, files).await?)
        } else {
            let other = other.turn(turn, asked, files).await?;
            (this.turn(turn, asked, files).await?, other)
        };
        if pair > 0 {
            let figures = [this.0 / other.0.max(1e-9), this.1 / other.1.max(1e-9), other.0, other.1];
            found.iter_mut().zip(figures).for_each(|(all, figure)| all.push(figure));
        }
    }
    for (all, found) in medians.0.iter_mut().zip(found) {
        all.push(Ratio::of(found).median);
    }
    Ok(())
}

/// Runs all loads.
pub(crate) async fn run(
    other: &Path,
    files: u64,
    place: &Path,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::new(ErrorKind::Internal, error.to_string());
    let this = std::env::current_exe().map_err(failed)?;
    let wanted: Vec<(usize, &Turn)> =
        TURNS.iter().enumerate().filter(|(_, turn)| report.wants(turn.what)).collect();
    let mut medians: Vec<Medians> = wanted.iter().map(|_| Medians::default()).collect();
    for start in 0..STARTS {
        report.line(&format!("start {} of {STARTS}", start + 1))?;
        let directories = ["this", "other"].map(|name| place.join(format!("{name}-{start}")));
        // The server that starts first takes up to 3 % more.
        let sides = if start % 2 == 0 {
            let this = Side::start(&this, &directories[0], files).await?;
            (this, Side::start(other, &directories[1], files).await?)
        } else {
            let other = Side::start(other, &directories[1], files).await?;
            (Side::start(&this, &directories[0], files).await?, other)
        };
        for ((number, turn), medians) in wanted.iter().zip(&mut medians) {
            let first = FILES_FROM * (*number as u64 + 1);
            pairs((&sides.0, &sides.1), (turn, first), files, medians).await?;
        }
        drop(sides);
        directories.iter().try_for_each(std::fs::remove_dir_all).map_err(failed)?;
    }
    report.line(&format!(
        "Ratios to the other program: median of {STARTS} starts (95 % interval). CPU is that of the server."
    ))?;
    for ((_, turn), medians) in wanted.iter().zip(&medians) {
        let line = Line {
            what: turn.what,
            rate: medians.ratio(0),
            cpu: medians.ratio(1),
            other_items_per_s: medians.ratio(2).median,
            other_cpu_us: medians.ratio(3).median,
        };
        if report.settings.json {
            report.json(&line)?;
        }
        let shown = |ratio: Ratio| format!("{:.3} ({:.3}, {:.3})", ratio.median, ratio.from, ratio.to);
        let (rate, cpu) = (rounded(line.other_items_per_s), line.other_cpu_us);
        report.line(&format!("{}\n  the other: {rate} a second, {cpu:.2} µs each", line.what))?;
        report.line(&format!("  rate {}, CPU {}", shown(line.rate), shown(line.cpu)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The interval has about 95 % of the binomial of the number of ratios, and lies around the median.
    #[test]
    fn interval_is_around_the_median() {
        let ratio = Ratio::of((0..60).rev().map(f64::from).collect());
        assert_eq!(ratio, Ratio { median: 30.0, from: 22.0, to: 38.0 });
        assert_eq!(Ratio::of(vec![2.0]), Ratio { median: 2.0, from: 2.0, to: f64::INFINITY });
        assert_eq!(Ratio::of(Vec::new()).median, f64::INFINITY);
    }
}
