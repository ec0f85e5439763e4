//! `exacat bench`: speed of the catalogue on this machine, in process and over the network, in one
//! run.
//!
//! Load generator and server share the machine. CPU time is that of both, so that a noisy machine
//! shows. Every number is of durable changes and exact answers. Answers are checked (of bare frames
//! 1 of 16 item by item, all for their request), and an error ends the run.

pub mod bare_http;
mod beside;
pub mod echo;
mod engine;
mod frames;
mod in_turns;
pub mod kept;
mod measure;
pub mod process;
mod scenarios;
mod states;
mod table;
mod target;
mod workload;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use exacat_model::{Answer, Error, ErrorKind};

use measure::{Sample, histogram, record, sample};
use process::own_cpu_s;
pub use table::rounded;
use target::{StartedServer, Target};
pub use workload::scatter;

/// Settings of a run.
#[derive(Clone, Debug, Default)]
pub struct BenchSettings {
    /// Files to register.
    pub entries: u64,
    /// Directory for temporary stores; none for the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// True to measure the engine by itself, instead of the catalogue.
    pub engine: bool,
    /// Memory for pages of the engine, bytes; none for its default.
    pub cache_bytes: Option<u64>,
    /// Leave out measurements in process.
    pub network_only: bool,
    /// Leave out measurements over the network.
    pub in_process_only: bool,
    /// Measure only what has this in its name, after the writes that fill the catalogue for it.
    pub only: Option<String>,
    /// Compare with a server of this program, in turns; nothing else is measured.
    pub beside: Option<PathBuf>,
    /// Print a JSON line per measurement instead of a table.
    pub json: bool,
}

/// Output of measurements, and the selection of them.
pub struct Report<'a> {
    out: &'a mut (dyn Write + Send),
    settings: &'a BenchSettings,
}

impl Report<'_> {
    /// Says whether this measurement is selected.
    fn wants(&self, what: &str) -> bool {
        self.settings.only.as_deref().is_none_or(|only| what.contains(only))
    }

    fn show(&mut self, sample: &Sample) -> Result<(), Error> {
        print(table::print(self.out, sample, self.settings.json))?;
        print(self.out.flush())
    }

    fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Error> {
        let line = serde_json::to_string(value)
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        print(writeln!(self.out, "{line}"))
    }

    fn line(&mut self, line: &str) -> Result<(), Error> {
        if self.settings.json { Ok(()) } else { print(writeln!(self.out, "{}", table::wrapped(line))) }
    }
}

/// Runs all measurements, and prints each when it is done.
pub async fn run(settings: &BenchSettings, out: &mut (impl Write + Send)) -> Result<(), Error> {
    let files = settings.entries.next_multiple_of(workload::FILES_PER_DIRECTORY);
    let place = match &settings.directory {
        Some(directory) => tempfile::tempdir_in(directory),
        None => tempfile::tempdir(),
    }
    .map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("no place for a temporary store: {error}"))
    })?;
    let report = &mut Report { out, settings };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    report.line(&format!("{files} files, {cores} cores for load generator and server together\n"))?;
    if let Some(other) = &settings.beside {
        return in_turns::run(other, files, place.path(), report).await;
    }
    report.line(&table::head())?;
    if settings.engine {
        return engine::run(files, &place.path().join("engine"), report).await;
    }
    if !settings.in_process_only {
        network(files, &place.path().join("network"), report).await?;
    }
    if !settings.network_only {
        in_process(files, &place.path().join("in-process"), report).await?;
    }
    Ok(())
}

async fn network(files: u64, data: &Path, report: &mut Report<'_>) -> Result<(), Error> {
    let (server, took) = StartedServer::start(data).await?;
    let target = Arc::new(server.target(scenarios::CONNECTIONS).await?);
    report.show(&once(&target, "start to serving, empty", 1, took, 0.0)?)?;
    let memory_empty = target.memory_bytes();
    let began = states::begin(&target).await?;
    scenarios::writes(&target, files, report).await?;
    let memory = target.memory_bytes().saturating_sub(memory_empty) as f64 / files as f64;
    scenarios::reads(&target, files, report).await?;
    scenarios::frames(&target, &server.socket(), files, report).await?;
    beside::library_beside_frames(&server, &target, files, report).await?;
    scenarios::reads_beside_writes(&target, files, report).await?;
    // One after the other: the local socket has no room for the connections of both.
    scenarios::unpipelined_frames(&target, &server.socket(), files, report).await?;
    let wide = Arc::new(server.target(scenarios::CONNECTIONS_UNPIPELINED).await?);
    scenarios::unpipelined(&wide, files, report).await?;
    drop(wide);
    scenarios::long_listing(&target, files, report).await?;
    scenarios::exports(&server, &target, report).await?;
    scenarios::import(&server, &target, &data.with_extension("tsv"), files, report).await?;
    let figures = scenarios::figures(&target).await?;
    scenarios::trees(&target, files, report).await?;
    states::show(&target, began, report).await?;
    server.kill()?;
    drop(target);
    let (server, took) = StartedServer::start(data).await?;
    let target = server.target(1).await?;
    report.show(&once(&target, "start to serving after kill -9, full", 1, took, 0.0)?)?;
    let per_entry = |bytes: u64| bytes as f64 / figures.entries.max(1) as f64;
    report.line(&format!(
        "\n{} entries: {:.0} bytes of log each; after the writes {memory:.0} bytes of the server's memory each",
        figures.entries,
        per_entry(figures.log_bytes),
    ))?;
    for (name, value) in &figures.memory {
        report.line(&format!("  {name:<40} {value:>14}  {:>6.1} an entry", per_entry(*value)))?;
    }
    report.line("")
}

async fn in_process(files: u64, data: &Path, report: &mut Report<'_>) -> Result<(), Error> {
    std::fs::create_dir_all(data).map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
    let (start, cpu) = (Instant::now(), own_cpu_s());
    let target = Arc::new(target::open_in_process(data).await?);
    report.show(&once(&target, "open, empty", 1, start.elapsed(), own_cpu_s() - cpu)?)?;
    scenarios::writes(&target, files, report).await?;
    scenarios::reads(&target, files, report).await?;
    scenarios::trees(&target, files, report).await?;
    if let Target::InProcess { catalogue, .. } = &*target {
        catalogue.store().close().await?;
    }
    drop(target);
    let (start, cpu) = (Instant::now(), own_cpu_s());
    let target = target::open_in_process(data).await?;
    let took = start.elapsed();
    report.show(&once(&target, "open after a clean stop, full", 1, took, own_cpu_s() - cpu)?)
}

fn once(
    target: &Target,
    what: &str,
    items: u64,
    took: std::time::Duration,
    cpu_s: f64,
) -> Result<Sample, Error> {
    let mut latency = histogram()?;
    record(&mut latency, took);
    Ok(sample(target, what, items, took, cpu_s, &latency))
}

fn print(result: std::io::Result<()>) -> Result<(), Error> {
    result.map_err(|error| Error::new(ErrorKind::Unavailable, format!("cannot print: {error}")))
}

/// Returns the first error of an answer that has one outcome per item.
fn all_good(answer: &Answer) -> Result<(), Error> {
    let failed = match answer {
        Answer::Registered(items) => items.iter().find_map(|item| item.as_ref().err()),
        Answer::Whereis(items) => items.iter().find_map(|item| item.as_ref().err()),
        Answer::Stats(items) => items.iter().find_map(|item| item.as_ref().err()),
        Answer::EachDone(items) => items.iter().find_map(|item| item.as_ref().err()),
        Answer::Usages(items) => items.iter().find_map(|item| item.as_ref().err()),
        _ => None,
    };
    failed.cloned().map_or(Ok(()), Err)
}
