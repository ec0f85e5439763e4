//! `exacat bench --engine`: the embedded engine by itself, at any size: speed, steadiness, space.

mod bulk;
mod served;
mod sustained;
mod tree;
mod yardstick;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{DirId, Error, ErrorKind, Lfn, Mutation, Name, OperationId, Result, SnapshotName};
use exacat_store::{ResolutionEnd, Store, SystemClock};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, on_blocking_thread};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use super::measure::{Sample, histogram, merged, record};
use super::process::{own_cpu_s, process_memory_bytes};
use super::workload::scatter;
use super::{BenchSettings, Report};
use sustained::Filled;

/// Concurrent readers.
const READERS: u64 = 4;
/// Single look-ups of a measurement.
const LOOK_UPS: u64 = 400_000;
/// Files of the hot set.
const HOT: u64 = 100_000;
/// Entries of the directory that is listed.
const LISTED: u64 = 1_000_000;
/// Look-ups of the measurement that mixes reads and writes.
const MIXED: u64 = 600_000;
/// Look-ups per write, in the mix.
const READS_PER_WRITE: u64 = 15;

fn sample(what: &str, items: u64, wall_s: f64, cpu_s: f64, latency: &Histogram<u64>) -> Sample {
    Sample {
        target: "engine".to_owned(),
        what: what.to_owned(),
        items,
        calls: latency.len(),
        wall_s,
        cpu_s,
        p50_us: latency.value_at_quantile(0.5),
        p99_us: latency.value_at_quantile(0.99),
        p999_us: latency.value_at_quantile(0.999),
        max_us: latency.max(),
    }
}

fn settings(data: &Path, settings: &BenchSettings) -> EmbeddedSettings {
    let mut embedded = EmbeddedSettings::at(data);
    if let Some(cache) = settings.cache_bytes {
        embedded.cache_bytes = cache;
    }
    embedded
}

async fn open(data: &Path, bench: &BenchSettings) -> Result<Arc<EmbeddedStore>> {
    let settings = settings(data, bench);
    on_blocking_thread(move || EmbeddedStore::open(settings, Arc::new(SystemClock))).await
}

/// Bytes of the files in a directory.
fn bytes_in(directory: &Path) -> u64 {
    let Ok(files) = std::fs::read_dir(directory) else { return 0 };
    files.flatten().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Runs all measurements, and prints each when it is done.
pub(crate) async fn run(files: u64, place: &Path, report: &mut Report<'_>) -> Result<()> {
    // Laid out as a server's, which serves it at the end.
    let data = &place.join("store");
    std::fs::create_dir_all(data).map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
    bulk::run(files, data, report).await?;
    let bench = report.settings.clone();
    let embedded = open(data, &bench).await?;
    let store: Arc<dyn Store> = embedded.clone();
    let filled = sustained::fill(&store, files, place.join("yardstick")).await?;
    let what = "create in batches of 1000, 10 000 directories at random";
    report.show(&sample(what, filled.files, filled.wall_s, filled.cpu_s, &filled.latency))?;
    let what = "· the disk meanwhile: 4 KiB overwritten and synced";
    report.show(&sample(what, filled.disk.len(), filled.wall_s, 0.0, &filled.disk))?;
    if bench.json {
        report.json(&filled.seconds)?;
    }
    report.line("  tenths of the time: files/s (longest batch / longest sync of the disk, ms)")?;
    let tenths: Vec<String> = filled
        .deciles()
        .iter()
        .map(|(rate, longest, disk)| {
            format!("{:.0} k ({:.0} / {:.0})", rate / 1e3, *longest as f64 / 1e3, *disk as f64 / 1e3)
        })
        .collect();
    report.line(&format!("  {}", tenths.join(" · ")))?;
    sizes(&*store, data, &filled, report).await?;
    once("flush", report, embedded.flush()).await?;
    let filled = Arc::new(filled);
    look_ups(&store, &filled, "before compaction is done", report).await?;
    list(&store, report).await?;
    mixed(&store, &filled, report).await?;
    snapshots(&store, data, report).await?;
    drop((store, embedded));
    let (start, cpu) = (Instant::now(), own_cpu_s());
    let embedded = open(data, &bench).await?;
    let mut latency = histogram()?;
    record(&mut latency, start.elapsed());
    report.show(&sample(
        "open, not closed before",
        1,
        start.elapsed().as_secs_f64(),
        own_cpu_s() - cpu,
        &latency,
    ))?;
    let store: Arc<dyn Store> = embedded.clone();
    look_ups(&store, &filled, "opened again", report).await?;
    sizes(&*store, data, &filled, report).await?;
    embedded.close().await?;
    drop((store, embedded));
    if bench.in_process_only { Ok(()) } else { served::run(&filled, place, report).await }
}

async fn once(what: &str, report: &mut Report<'_>, work: impl Future<Output = Result<()>>) -> Result<()> {
    let (start, cpu) = (Instant::now(), own_cpu_s());
    work.await?;
    let mut latency = histogram()?;
    record(&mut latency, start.elapsed());
    report.show(&sample(what, 1, start.elapsed().as_secs_f64(), own_cpu_s() - cpu, &latency))
}

/// Takes a snapshot right after writes, clones it, and opens both.
async fn snapshots(store: &Arc<dyn Store>, data: &Path, report: &mut Report<'_>) -> Result<()> {
    if !report.wants("snapshot") {
        return Ok(());
    }
    let kept =
        store.as_snapshots().ok_or_else(|| Error::new(ErrorKind::Internal, "the engine has no snapshots"))?;
    let name = SnapshotName::parse("bench")?;
    once("snapshot, create", report, async {
        kept.snapshot(OperationId([1; 16]), &name).await.map(|_taken| ())
    })
    .await?;
    let settings = settings(data, &report.settings.clone());
    let into = data.with_file_name("clone");
    let (from, named, place) = (settings.clone(), name.clone(), into.clone());
    once(
        "snapshot, clone",
        report,
        on_blocking_thread(move || {
            EmbeddedStore::clone_snapshot(&from, &named, &place, &SystemClock).map(|_cloned| ())
        }),
    )
    .await?;
    let (from, named) = (settings, name.clone());
    once(
        "snapshot, open read-only",
        report,
        on_blocking_thread(move || {
            EmbeddedStore::open_snapshot(from, &named, Arc::new(SystemClock)).map(|_opened| ())
        }),
    )
    .await?;
    let from = EmbeddedSettings::at(&into);
    once(
        "snapshot, open the clone",
        report,
        on_blocking_thread(move || EmbeddedStore::open(from, Arc::new(SystemClock)).map(|_opened| ())),
    )
    .await?;
    std::fs::remove_dir_all(&into).map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
    once("snapshot, drop", report, kept.drop_snapshot(OperationId([2; 16]), &name)).await
}

async fn sizes(store: &dyn Store, data: &Path, filled: &Filled, report: &mut Report<'_>) -> Result<()> {
    let status = store.status().await?;
    let figure = |name: &str| status.named_one(name).unwrap_or(0);
    let runs: PathBuf = data.join("runs");
    let (in_runs, in_log) = (bytes_in(&runs), bytes_in(&data.join("log")));
    let each = |bytes: u64| bytes as f64 / filled.files.max(1) as f64;
    report.line(&format!(
        "  {} runs of {} rows, {:.1} bytes a file on disk and {:.1} of log; memory {} MB ({} of runs, {} of directories, \
         {} of cache); merged {:.1} times",
        figure("runs"),
        figure("rows_in_runs"),
        each(in_runs),
        each(in_log),
        process_memory_bytes("self") >> 20,
        figure("memory_runs_bytes") >> 20,
        figure("memory_directories_bytes") >> 20,
        figure("memory_cache_bytes") >> 20,
        figure("compactions_rows_total") as f64 / figure("flushes_rows_total").max(1) as f64,
    ))
}

/// Returns a file that certainly exists, chosen by a random number.
fn some_file(filled: &Filled, random: u64) -> Result<Lfn> {
    // Directories that were still open at the end mostly have a few files.
    let mut random = random;
    loop {
        let ordinal = random % filled.directories.max(1);
        let number = (random >> 40) % tree::FILES_PER_DIRECTORY;
        let there = match filled.open.get(&ordinal) {
            Some(filled) => number < *filled,
            None => filled.is_made(ordinal),
        };
        if there {
            return tree::lfn(ordinal, number);
        }
        random = scatter(random.wrapping_add(1));
    }
}

async fn look_up(store: &dyn Store, paths: &[Lfn]) -> Result<()> {
    let found = store.files(paths).await?;
    match found.found.iter().position(Option::is_none) {
        None => Ok(()),
        Some(missing) => {
            Err(Error::new(ErrorKind::Internal, format!("{} was made and is not found", paths[missing])))
        }
    }
}

/// Measures look-ups by `READERS`, `per_call` at once; the n-th call is `choose(n)`.
async fn drive(
    store: &Arc<dyn Store>,
    what: &str,
    calls: u64,
    per_call: u64,
    choose: impl Fn(u64) -> Result<Vec<Lfn>> + Send + Sync + 'static,
    report: &mut Report<'_>,
) -> Result<()> {
    if !report.wants(what) {
        return Ok(());
    }
    let (next, choose) = (Arc::new(AtomicU64::new(0)), Arc::new(choose));
    let (start, cpu) = (Instant::now(), own_cpu_s());
    let mut tasks = JoinSet::new();
    for _ in 0..READERS {
        let (store, next, choose) = (Arc::clone(store), Arc::clone(&next), Arc::clone(&choose));
        tasks.spawn(async move {
            let mut latency = histogram()?;
            loop {
                let call = next.fetch_add(1, Ordering::Relaxed);
                if call >= calls {
                    return Ok::<_, Error>(latency);
                }
                let paths = choose(call)?;
                let sent = Instant::now();
                look_up(&*store, &paths).await?;
                record(&mut latency, sent.elapsed());
                // Let other tasks run.
                tokio::task::yield_now().await;
            }
        });
    }
    let latency = merged(tasks).await?;
    let (wall_s, cpu_s) = (start.elapsed().as_secs_f64(), own_cpu_s() - cpu);
    report.show(&sample(what, calls * per_call, wall_s, cpu_s, &latency))
}

async fn look_ups(
    store: &Arc<dyn Store>,
    filled: &Arc<Filled>,
    when: &str,
    report: &mut Report<'_>,
) -> Result<()> {
    let of = |random: u64, filled: &Filled| some_file(filled, random);
    let hot = filled.files.min(HOT);
    let all = Arc::clone(filled);
    let single = move |call: u64| Ok(vec![of(scatter(scatter(call) % hot), &all)?]);
    drive(store, &format!("look-up, hot set, single, {when}"), LOOK_UPS, 1, single, report).await?;
    let all = Arc::clone(filled);
    let batch =
        move |call: u64| (0..128).map(|item| of(scatter(scatter(call << 7 | item) % hot), &all)).collect();
    drive(store, &format!("look-up, hot set, batches of 128, {when}"), LOOK_UPS / 64, 128, batch, report)
        .await?;
    let all = Arc::clone(filled);
    let single = move |call: u64| Ok(vec![of(scatter(call), &all)?]);
    drive(store, &format!("look-up, uniform, single, {when}"), LOOK_UPS, 1, single, report).await?;
    let all = Arc::clone(filled);
    let batch = move |call: u64| (0..128).map(|item| of(scatter(call << 7 | item), &all)).collect();
    drive(store, &format!("look-up, uniform, batches of 128, {when}"), LOOK_UPS / 64, 128, batch, report)
        .await?;
    let all = Arc::clone(filled);
    let one = move |call: u64| {
        let ordinal = scatter(call) % all.directories;
        let ordinal = if all.is_made(ordinal) { ordinal } else { 0 };
        let files = all.open.get(&ordinal).copied().unwrap_or(tree::FILES_PER_DIRECTORY);
        (0..files).map(|file| tree::lfn(ordinal, file)).collect()
    };
    let per_call = tree::FILES_PER_DIRECTORY;
    drive(
        store,
        &format!("look-up, one directory, batches of 100, {when}"),
        LOOK_UPS / 64,
        per_call,
        one,
        report,
    )
    .await
}

/// Fills one directory, and lists it.
async fn list(store: &Arc<dyn Store>, report: &mut Report<'_>) -> Result<()> {
    let count = report.settings.entries.min(LISTED);
    let Some(directory) = made_directory(store, "listed").await? else { return Ok(()) };
    let mut builder = tree::Builder::new(u64::MAX, DirId::ROOT);
    let mut next = 0;
    while next < count {
        let end = (next + sustained::BATCH).min(count);
        // Names of one directory, GUIDs of directories that do not exist.
        let mutations: Result<Vec<Mutation>> =
            (next..end).map(|file| tree::file(directory, (1 << 40) + file, 0)).collect();
        let operation = builder.operation();
        tree::apply(&**store, operation, mutations?).await?;
        next = end;
    }
    for (page_items, when) in [(1000, "just filled"), (1000, "again"), (PAGE_ITEMS_MAX, "again")] {
        let what = &format!("list a directory, pages of {page_items}, {when}");
        let (start, cpu) = (Instant::now(), own_cpu_s());
        let (mut latency, mut listed) = (histogram()?, 0);
        let mut after: Option<Name> = None;
        loop {
            let sent = Instant::now();
            let page = store.list(directory, after.as_ref(), page_items).await?;
            record(&mut latency, sent.elapsed());
            let page = page.ok_or_else(|| Error::new(ErrorKind::Internal, "the directory is gone"))?;
            listed += page.items.len() as u64;
            after = page.items.last().map(|entry| entry.at.name.clone());
            if !page.more {
                break;
            }
        }
        if listed != count {
            return Err(Error::new(ErrorKind::Internal, format!("{listed} of {count} entries are listed")));
        }
        report.show(&sample(what, listed, start.elapsed().as_secs_f64(), own_cpu_s() - cpu, &latency))?;
    }
    Ok(())
}

/// Makes a directory in the root; none if it exists.
async fn made_directory(store: &Arc<dyn Store>, name: &str) -> Result<Option<DirId>> {
    let lfn = Lfn::parse(&format!("/{name}"))?;
    let there = store.resolve(std::slice::from_ref(&lfn)).await?;
    if matches!(there.first().map(|walk| &walk.end), Some(ResolutionEnd::Found(_))) {
        return Ok(None);
    }
    // An id of its own: a repeated request gets the first answer.
    let mut builder = tree::Builder::new((1 << 40) + name.len() as u64, DirId::ROOT);
    Ok(Some(builder.directory(&**store, DirId::ROOT, name).await?))
}

/// Measures look-ups around a wandering centre, with a write for every fifteen.
async fn mixed(store: &Arc<dyn Store>, filled: &Arc<Filled>, report: &mut Report<'_>) -> Result<()> {
    let what = "mixed, 15 look-ups for 1 create";
    if !report.wants(what) {
        return Ok(());
    }
    let Some(directory) = made_directory(store, "mixed-with-look-ups").await? else { return Ok(()) };
    let next = Arc::new(AtomicU64::new(0));
    let (start, cpu) = (Instant::now(), own_cpu_s());
    let (mut reads, mut writes) = (JoinSet::new(), JoinSet::new());
    for lane in 0..READERS {
        let (store, next, filled) = (Arc::clone(store), Arc::clone(&next), Arc::clone(filled));
        let (sender, mut wanted) = tokio::sync::mpsc::channel::<u64>(64);
        let writing = Arc::clone(&store);
        writes.spawn(async move {
            let mut latency = histogram()?;
            let mut builder = tree::Builder::new(u64::MAX - 2 - lane, DirId::ROOT);
            while let Some(number) = wanted.recv().await {
                let mutation = tree::file(directory, (1 << 41) + number, 0)?;
                let operation = builder.operation();
                let sent = Instant::now();
                tree::apply(&*writing, operation, vec![mutation]).await?;
                record(&mut latency, sent.elapsed());
            }
            Ok::<_, Error>(latency)
        });
        reads.spawn(async move {
            let mut latency = histogram()?;
            loop {
                let call = next.fetch_add(1, Ordering::Relaxed);
                if call >= MIXED {
                    return Ok::<_, Error>(latency);
                }
                let path = some_file(&filled, gaussian(call, filled.directories))?;
                let sent = Instant::now();
                look_up(&*store, &[path]).await?;
                record(&mut latency, sent.elapsed());
                if call.is_multiple_of(READS_PER_WRITE) && sender.send(call).await.is_err() {
                    return Err(Error::new(ErrorKind::Internal, "the writes ended too early"));
                }
            }
        });
    }
    let (reads, writes) = (merged(reads).await?, merged(writes).await?);
    let (wall_s, cpu_s) = (start.elapsed().as_secs_f64(), own_cpu_s() - cpu);
    report.show(&sample(&format!("{what}: look-ups"), MIXED, wall_s, cpu_s, &reads))?;
    report.show(&sample(&format!("{what}: creates"), writes.len(), wall_s, cpu_s, &writes))
}

/// Returns a number whose directory is near a centre, as real accesses are. One standard deviation
/// is a thousandth of all.
fn gaussian(call: u64, directories: u64) -> u64 {
    let uniform = |salt: u64| (scatter(call.wrapping_mul(4) + salt) >> 11) as f64 / (1u64 << 53) as f64;
    // Twelve uniform numbers: near enough to a Gaussian.
    let sum: f64 = (0..12).map(|salt| uniform(salt << 50 | salt)).sum::<f64>() - 6.0;
    let centre = (scatter(call >> 17) % directories.max(1)) as f64;
    let at = (centre + sum * (directories as f64 / 1000.0).max(10.0)).abs() as u64 % directories.max(1);
    (scatter(call) >> 40 << 40) | at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every measurement makes, finds, lists and opens what it should, at a small size.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_small_run_shows_every_line() {
        let place = tempfile::tempdir().unwrap();
        let settings = BenchSettings {
            entries: 20_000,
            engine: true,
            // A server would be the binary, which this is not.
            in_process_only: true,
            ..BenchSettings::default()
        };
        let mut out = Vec::new();
        let mut report = Report { out: &mut out, settings: &settings };
        run(20_000, &place.path().join("data"), &mut report).await.unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "a line is wider than 80 columns\n{text}"
        );
        for line in [
            "bulk load of a sorted listing",
            "bulk load of an unsorted listing",
            "create in batches",
            "hot set, single",
            "uniform, batches of 128",
            "list a directory",
            "mixed",
            "snapshot, clone",
            "open",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
