//! `bench-peers`: the same files and look-ups through exacat, RocksDB and MariaDB in one run, and the ratios.
//!
//! Peers are measured one after the other, each alone on the machine, each in a temporary directory that is
//! removed when it is done. Load generator and peer share the machine, and CPU time is that of both. Every
//! answer is checked; an error ends the run. What is compared, and what cannot be, stands in
//! `docs/benchmarks.md`.

mod disk;
mod engine;
mod mariadb;
mod measure;
mod peer;
mod report;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod scenario;
mod served;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use exacat_model::{Error, Result};
use tokio::signal::unix::{SignalKind, signal};

use peer::{failed, while_doing};
use report::Report;
use scenario::Plan;
use tree::{FileId, Layout};

/// RocksDB gets the same: the option `override` puts it in the place of the system's for the whole process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Files whose making is timed by itself.
const GENERATED: u64 = 200_000;

/// Peers that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    /// exacat's engine, in process
    Engine,
    /// RocksDB, in process
    Rocksdb,
    /// `exacat serve`, over its socket
    Served,
    /// MariaDB with the AliEn tables, over its socket
    Mariadb,
}

/// The same files and look-ups through exacat, RocksDB and MariaDB, in one run
#[derive(Parser, Debug)]
#[command(
    name = "bench-peers",
    version,
    after_help = "\
Every peer gets the same files in the same order and the same questions. It ends what it started and removes what
it wrote.

Examples:
  bench-peers --exacat target/release/exacat
  bench-peers --exacat target/release/exacat --entries 20M --seconds 20 --directory /var/tmp
  bench-peers --peers engine,rocksdb --only 'look-up'
  bench-peers --exacat target/release/exacat --json > peers.jsonl"
)]
struct Args {
    /// Files made in groups; a tenth more are made one by one, and a tenth more to be listed
    #[arg(long, value_name = "NUMBER", default_value = "1M", value_parser = number)]
    entries: u64,
    /// Only these
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["engine", "rocksdb", "served", "mariadb"])]
    peers: Vec<Who>,
    /// Only measurements whose name has TEXT in it; the files are made for them first
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Duration of each measurement that has no end of its own
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Memory for what exacat's engine and RocksDB read from disk
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    cache: u64,
    /// Memory for MariaDB's pages; half of the machine's at most
    #[arg(long, value_name = "SIZE", default_value = "6GiB", value_parser = size)]
    buffer_pool: u64,
    /// The `exacat` to serve with
    #[arg(long, value_name = "FILE")]
    exacat: Option<PathBuf>,
    /// Place for temporary directories [default: the system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// A JSON line for each measurement, note and ratio instead of tables
    #[arg(long)]
    json: bool,
}

fn scaled(text: &str, units: &[(&str, u64)]) -> std::result::Result<u64, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits);
    let scale = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, scale)| *scale);
    let value = digits.parse::<u64>().ok().zip(scale).and_then(|(value, scale)| value.checked_mul(scale));
    value.filter(|value| *value > 0).ok_or_else(|| {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
        format!("not a number above 0, with or without one of {}", names.join(", "))
    })
}

fn number(text: &str) -> std::result::Result<u64, String> {
    scaled(text, &[("", 1), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000)])
}

fn size(text: &str) -> std::result::Result<u64, String> {
    scaled(text, &[("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)])
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let value = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.01..=3600.0).contains(&value) { Ok(value) } else { Err("between 0.01 and 3600".to_owned()) }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr, reason = "the last word of a program")]
            {
                eprintln!("bench-peers: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(while_doing("cannot start"))?;
    let mut out = std::io::stdout();
    let done = runtime.block_on(async {
        let mut terminated =
            signal(SignalKind::terminate()).map_err(while_doing("cannot listen to signals"))?;
        // Dropping the measurement ends the servers it started.
        tokio::select! {
            done = measure_all(args, &mut out) => done,
            _ = tokio::signal::ctrl_c() => Err(failed("interrupted")),
            _ = terminated.recv() => Err(failed("terminated")),
        }
    });
    // A thread that is still asking does not hold up the end.
    runtime.shutdown_background();
    done
}

/// Bytes of memory of this machine; none if that cannot be read.
fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Returns the microseconds of CPU that the generator needs for a file: about its part in every peer's
/// creates.
fn generator_us() -> f64 {
    let start = Instant::now();
    let mut bytes = 0;
    for number in 0..GENERATED {
        let file = FileId { directory: number / 100, number: number % 100 };
        let (guid, md5) = (std::hint::black_box(file.guid()), std::hint::black_box(file.md5()));
        bytes += file.lfn().len() + guid.len() + md5.len() + file.size().count_ones() as usize;
    }
    std::hint::black_box(bytes);
    start.elapsed().as_secs_f64() * 1e6 / GENERATED as f64
}

async fn measure_all(args: &Args, out: &mut std::io::Stdout) -> Result<()> {
    let plan = Plan {
        layout: Layout::new(args.entries),
        time: Duration::from_secs_f64(args.seconds),
        only: args.only.clone(),
    };
    let report = &mut Report::new(out, args.json);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = machine_memory().unwrap_or(0);
    report.note(
        "",
        &format!(
            "{} files in {} directories, {cores} cores and {} GiB for load generator and peer together; \
             the generator takes {:.1} µs a file",
            plan.layout.files,
            plan.layout.filled(),
            memory >> 30,
            generator_us()
        ),
    )?;
    for who in &args.peers {
        let place = match &args.directory {
            Some(directory) => tempfile::Builder::new().prefix("peers").tempdir_in(directory),
            None => tempfile::Builder::new().prefix("peers").tempdir(),
        }
        .map_err(while_doing("no place for a temporary directory"))?;
        measure_one(*who, args, memory, place.path(), &plan, report)
            .await
            .map_err(|error| Error::new(error.kind, format!("{who:?}: {}", error.message)))?;
    }
    report.compare()
}

async fn measure_one(
    who: Who,
    args: &Args,
    memory: u64,
    place: &Path,
    plan: &Plan,
    report: &mut Report<'_>,
) -> Result<()> {
    match who {
        Who::Engine => {
            scenario::run(engine::Engine::start(&place.join("data"), args.cache).await?, plan, report).await
        }
        Who::Served => match &args.exacat {
            Some(binary) => {
                scenario::run(served::Served::start(binary, &place.join("data")).await?, plan, report).await
            }
            None => report.note(report::SERVED, "left out: say with --exacat which binary serves"),
        },
        Who::Rocksdb => rocks(args, place, plan, report).await,
        Who::Mariadb => match mariadb::Programs::find() {
            Some(programs) => {
                let pool = if memory > 0 { args.buffer_pool.min(memory / 2) } else { args.buffer_pool };
                scenario::run(mariadb::Maria::start(programs, place, pool).await?, plan, report).await
            }
            None => report.note(
                report::MARIADB,
                "left out: mariadbd and mariadb-install-db are not installed (Debian: mariadb-server-core, mariadb-client-core)",
            ),
        },
    }
}

#[cfg(feature = "rocksdb")]
async fn rocks(args: &Args, place: &Path, plan: &Plan, report: &mut Report<'_>) -> Result<()> {
    let (directory, cache) = (place.join("data"), args.cache);
    let start = move || rocksdb::Rocks::start(&directory, cache);
    let rocks = tokio::task::spawn_blocking(start).await.map_err(failed)??;
    scenario::run(rocks, plan, report).await
}

#[cfg(not(feature = "rocksdb"))]
async fn rocks(_args: &Args, _place: &Path, _plan: &Plan, report: &mut Report<'_>) -> Result<()> {
    report.note(
        report::ROCKSDB,
        "left out: built without it, for librocksdb was not there (Debian: librocksdb-dev)",
    )
}

#[cfg(test)]
mod tests;
