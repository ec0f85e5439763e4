//! Scenarios, in order: writes, reads, unpipelined reads, import, whole trees.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_exchange::ImportOptions;
use exacat_exchange::local::Local;
use exacat_exchange::resume::StateAt;
use exacat_model::operation::SeSettings;
use exacat_model::{Answer, Cursor, Error, ErrorKind, Filter, Lfn, Operation, Pattern, SnapshotName};
use exacat_store::SystemClock;
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, LoadSettings};
use futures::StreamExt;

use super::Report;
use super::echo::Echo;
use super::measure::{Load, drive, histogram, merged, record, sample};
use super::target::{StartedServer, Target};
use super::workload::{self, FILES_PER_DIRECTORY};

/// Connections of the pipelined loads.
pub(crate) const CONNECTIONS: usize = 4;
/// Connections of the unpipelined load.
pub(crate) const CONNECTIONS_UNPIPELINED: usize = 64;
/// Files in one registration.
pub(crate) const BATCH: u64 = 1000;
/// Look-ups in one batch.
pub(crate) const LOOKUPS: u64 = 128;

/// First number of the files registered by bare frames: no other file has such a number.
const FILES_BY_FRAMES: u64 = 1 << 40;

/// Questions made beforehand: a load generator that formats names measures itself. There are enough
/// of them that none is repeated soon.
const POOL_SINGLE: u64 = 1 << 17;
/// Batches made beforehand.
const POOL_BATCHES: u64 = 1 << 12;

pub(crate) fn questions(
    count: u64,
    make: impl Fn(u64) -> Result<Operation, Error>,
) -> Result<Vec<Operation>, Error> {
    (0..count).map(make).collect()
}

fn pool(questions: Vec<Operation>) -> impl Fn(u64) -> Result<Operation, Error> + Send + Sync + 'static {
    move |call: u64| Ok(questions[call as usize % questions.len()].clone())
}

/// Makes the look-up of one file.
pub(crate) fn single_lookup(call: u64, files: u64) -> Result<Operation, Error> {
    workload::whereis([workload::scatter(call) % files].into_iter())
}

/// Makes a batch of files from all over the catalogue.
pub(crate) fn random_batch(call: u64, files: u64) -> Result<Operation, Error> {
    workload::whereis((0..LOOKUPS).map(|index| workload::scatter(call * LOOKUPS + index) % files))
}

/// Makes a batch of files of one directory, as a job requests its input.
pub(crate) fn directory_batch(call: u64, files: u64) -> Result<Operation, Error> {
    let first = workload::scatter(call) % files / FILES_PER_DIRECTORY * FILES_PER_DIRECTORY;
    workload::whereis((0..LOOKUPS).map(|index| first + workload::scatter(call + index) % FILES_PER_DIRECTORY))
}

fn single_lookups(files: u64) -> Result<Vec<Operation>, Error> {
    questions(POOL_SINGLE, |call| single_lookup(call, files))
}

fn random_batches(files: u64) -> Result<Vec<Operation>, Error> {
    questions(POOL_BATCHES, |call| random_batch(call, files))
}

fn directory_batches(files: u64) -> Result<Vec<Operation>, Error> {
    questions(POOL_BATCHES, |call| directory_batch(call, files))
}

/// Maker of questions about this many files.
type Lookups = fn(u64) -> Result<Vec<Operation>, Error>;

const BATCHES: [(&str, Lookups); 2] = [
    ("whereis, batches of 128, random", random_batches),
    ("whereis, batches of 128, of one directory", directory_batches),
];

/// Makes the storage elements.
pub(crate) async fn make_storage_elements(target: &Target) -> Result<(), Error> {
    for number in 0..workload::SES {
        let settings = SeSettings {
            name: workload::se(number)?,
            number: None,
            prefix: Some(format!("root://se{number:02}.bench.example:1094//bench")),
            qos: Some(vec![exacat_model::AccountName::parse("disk")?]),
            status: None,
            distances: Vec::new(),
            https: None,
            only_new: false,
        };
        target.call(0, Operation::SeSet(settings)).await?;
    }
    Ok(())
}

/// Makes the storage elements, creates files one by one and in batches.
pub(crate) async fn writes(target: &Arc<Target>, files: u64, report: &mut Report<'_>) -> Result<(), Error> {
    make_storage_elements(target).await?;
    // The last tenth is created one by one, the rest in batches of a directory each. Batches are
    // first, so that single creates meet directories that exist.
    let single = (files / 10).min(500_000) / FILES_PER_DIRECTORY * FILES_PER_DIRECTORY;
    let batched = files - single;
    let load = Load { lanes: CONNECTIONS, depth: 2, calls: batched / BATCH, items_per_call: BATCH };
    let make = |call: u64| workload::register(call * BATCH, (call + 1) * BATCH);
    let what = "register in batches of 1000, durable";
    report.show(&drive(target, what, load, make, super::all_good).await?)?;
    if single > 0 {
        let lfns = (batched..files)
            .step_by(FILES_PER_DIRECTORY as usize)
            .map(|file| Lfn::parse(&workload::directory(file)))
            .collect::<Result<Vec<_>, _>>()?;
        target.call(0, Operation::Mkdir { lfns, parents: true, mode: None }).await?;
        let load = Load { lanes: CONNECTIONS, depth: 256, calls: single, items_per_call: 1 };
        let make = move |call: u64| workload::register(batched + call, batched + call + 1);
        let what = "create, single, durable, 4 x 256 in flight";
        report.show(&drive(target, what, load, make, super::all_good).await?)?;
    }
    Ok(())
}

/// Measures look-ups, listings, finds.
pub(crate) async fn reads(target: &Arc<Target>, files: u64, report: &mut Report<'_>) -> Result<(), Error> {
    let singles = (files * 2).clamp(20_000, 1_000_000);
    let load = Load { lanes: CONNECTIONS, depth: 256, calls: singles, items_per_call: 1 };
    let what = "whereis, single, 4 x 256 in flight";
    if report.wants(what) {
        let make = pool(single_lookups(files)?);
        report.show(&drive(target, what, load, make, super::all_good).await?)?;
    }
    let what = "stat, single, 4 x 256 in flight";
    if report.wants(what) {
        let make = pool(questions(POOL_SINGLE, |call| {
            Ok(Operation::Stat { lfns: vec![workload::lfn(workload::scatter(call) % files)?], follow: true })
        })?);
        report.show(&drive(target, what, load, make, super::all_good).await?)?;
    }

    let calls = (singles / 16).max(1000);
    let load = Load { lanes: CONNECTIONS, depth: 4, calls, items_per_call: LOOKUPS };
    for (what, lookups) in BATCHES {
        if report.wants(what) {
            let make = pool(lookups(files)?);
            report.show(&drive(target, what, load, make, super::all_good).await?)?;
        }
    }

    let what = "ls, directories of 1000";
    if report.wants(what) {
        let calls = (files / 200).clamp(200, 5000);
        let load = Load { lanes: CONNECTIONS, depth: 2, calls, items_per_call: FILES_PER_DIRECTORY };
        let make = move |call: u64| {
            let lfn = Lfn::parse(&workload::directory(workload::scatter(call) % files))?;
            Ok(Operation::List { lfn, cursor: Cursor::default(), limit: 0 })
        };
        let check = |answer: &Answer| match answer {
            Answer::Entries { items, .. } if items.len() as u64 == FILES_PER_DIRECTORY => Ok(()),
            _ => Err(Error::new(ErrorKind::Internal, "a listing has not all entries")),
        };
        report.show(&drive(target, what, load, make, check).await?)?;
    }
    let what = "find by name, entries looked at";
    if report.wants(what) { find(target, files, what, report).await } else { Ok(()) }
}

/// Measures one find over everything, page by page.
async fn find(target: &Target, files: u64, what: &str, report: &mut Report<'_>) -> Result<(), Error> {
    let mut latency = histogram()?;
    let (start, cpu) = (Instant::now(), target.cpu_s());
    let mut operation = Operation::Find {
        lfn: Lfn::root(),
        filter: Box::new(Filter {
            pattern: Some(Pattern::Glob("*77.*.root".to_owned())),
            ..Filter::default()
        }),
        cursor: Cursor::default(),
        limit: 0,
    };
    loop {
        let sent = Instant::now();
        let answer = target.call(0, operation.clone()).await?;
        record(&mut latency, sent.elapsed());
        match answer.next().and_then(|next| operation.resumed(next.clone())) {
            Some(resumed) => operation = resumed,
            None => break,
        }
    }
    report.show(&sample(target, what, files, start.elapsed(), target.cpu_s() - cpu, &latency))
}

/// Files of the directory that is listed whole.
const LISTED: u64 = 1_000_000;

/// Measures the listing of one directory of very many files, and the time until its first page.
pub(crate) async fn long_listing(
    target: &Arc<Target>,
    files: u64,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let count = files.min(LISTED);
    let what = format!("ls of one directory of {count}, streamed");
    let (Target::Network { clients, .. }, true) = (&**target, report.wants(&what)) else { return Ok(()) };
    let directory = Lfn::parse("/bench-listed")?;
    target.call(0, Operation::Mkdir { lfns: vec![directory.clone()], parents: true, mode: None }).await?;
    for first in (0..count).step_by(BATCH as usize) {
        let files = (first..(first + BATCH).min(count)).map(|file| {
            let mut new = workload::new_file(file)?;
            new.lfn = Lfn::parse(&format!("{directory}/{file:09}.AO2D.root"))?;
            Ok(new)
        });
        let files = files.collect::<Result<Vec<_>, Error>>()?;
        let existing = exacat_model::operation::Existing::Refuse;
        super::all_good(&target.call(0, Operation::Register { files, parents: false, existing }).await?)?;
    }
    for round in ["first", "again"] {
        let (mut latency, mut listed) = (histogram()?, 0);
        let (start, cpu) = (Instant::now(), target.cpu_s());
        let list = Operation::List { lfn: directory.clone(), cursor: Cursor::default(), limit: 0 };
        let pages = clients[0].stream(list);
        futures::pin_mut!(pages);
        while let Some(page) = pages.next().await {
            let Answer::Entries { items, .. } = page? else {
                return Err(Error::new(ErrorKind::Internal, "a listing without entries"));
            };
            if listed == 0 {
                record(&mut latency, start.elapsed());
            }
            listed += items.len() as u64;
        }
        if listed != count {
            return Err(Error::new(ErrorKind::Internal, format!("{listed} of {count} entries are listed")));
        }
        let took = start.elapsed();
        let what = format!("{what}, {round} (time: to the first page)");
        report.show(&sample(target, &what, listed, took, target.cpu_s() - cpu, &latency))?;
    }
    Ok(())
}

/// Measures an export and a digest of everything, as `exacat export` and `exacat digest` do,
/// without output. The sources are the server, and a snapshot that this process opens.
pub(crate) async fn exports(
    server: &StartedServer,
    target: &Arc<Target>,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let wanted = ["export of everything", "digest of everything"].iter().any(|what| report.wants(what));
    if !wanted {
        return Ok(());
    }
    let client = server.connect().await?;
    export_and_digest(&client, "of everything (entries)", target, report).await?;
    let name = SnapshotName::parse("bench")?;
    client.call(Operation::SnapshotCreate { name: name.clone() }).await?;
    let settings = EmbeddedSettings::at(server.data().join("store"));
    let opened = move || EmbeddedStore::open_snapshot(settings, &name, Arc::new(SystemClock));
    let store = tokio::task::spawn_blocking(opened)
        .await
        .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??;
    let local = Local::open(store, Arc::new(SystemClock), LoadSettings::default()).await?;
    export_and_digest(&*local, "of a snapshot of everything, in process (entries)", target, report).await
}

async fn export_and_digest<C: exacat_exchange::catalogue::Catalogue>(
    catalogue: &C,
    of: &str,
    target: &Arc<Target>,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let internal = |error: exacat_exchange::Error| {
        Error::new(error.kind().unwrap_or(ErrorKind::Internal), error.to_string())
    };
    let what = &format!("export {of}");
    if report.wants(what) {
        let (start, cpu) = (Instant::now(), target.cpu_s());
        let options = exacat_exchange::export::ExportOptions::default();
        let out = Box::new(std::io::sink());
        let done =
            exacat_exchange::export::export(catalogue, out, &options, |_| ()).await.map_err(internal)?;
        let latency = histogram()?;
        report.show(&sample(target, what, done.entries, start.elapsed(), target.cpu_s() - cpu, &latency))?;
    }
    let what = &format!("digest {of}");
    if report.wants(what) {
        let (start, cpu) = (Instant::now(), target.cpu_s());
        let done = exacat_exchange::digest::digest(catalogue, &Lfn::root(), |_| Ok(()), |_| ()).await;
        let entries = done.map_err(internal)?.root.entries;
        let latency = histogram()?;
        report.show(&sample(target, what, entries, start.elapsed(), target.cpu_s() - cpu, &latency))?;
    }
    Ok(())
}

/// Measures pipelined look-ups by bare frames.
pub(crate) async fn frames(
    target: &Arc<Target>,
    socket: &Path,
    files: u64,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let singles = (files * 2).clamp(20_000, 4_000_000);
    let load = Load { lanes: CONNECTIONS, depth: 256, calls: singles, items_per_call: 1 };
    let what = "whereis, single, 4 x 256 in flight, bare frames";
    if report.wants(what) {
        let asked = single_lookups(files)?;
        report.show(&super::frames::drive(target, socket, what, load, &asked).await?)?;
    }
    let calls = (singles / 16).max(1000);
    let load = Load { lanes: CONNECTIONS, depth: 4, calls, items_per_call: LOOKUPS };
    for (what, lookups) in BATCHES {
        let what = format!("{what}, bare frames");
        if report.wants(&what) {
            let asked = lookups(files)?;
            report.show(&super::frames::drive(target, socket, &what, load, &asked).await?)?;
        }
    }
    let what = "create, single, durable, 4 x 256 in flight, bare frames";
    if report.wants(what) {
        let calls = (files / 5).clamp(10_000, 400_000) / FILES_PER_DIRECTORY * FILES_PER_DIRECTORY;
        let lfns = (FILES_BY_FRAMES..FILES_BY_FRAMES + calls)
            .step_by(FILES_PER_DIRECTORY as usize)
            .map(|file| Lfn::parse(&workload::directory(file)))
            .collect::<Result<Vec<_>, _>>()?;
        target.call(0, Operation::Mkdir { lfns, parents: true, mode: None }).await?;
        let load = Load { lanes: CONNECTIONS, depth: 256, calls, items_per_call: 1 };
        let asked =
            questions(calls, |call| workload::register(FILES_BY_FRAMES + call, FILES_BY_FRAMES + call + 1))?;
        report.show(&super::frames::drive(target, socket, what, load, &asked).await?)?;
    }
    Ok(())
}

/// Measures one look-up at a time on each of many connections, beside an echo of the same bytes.
pub(crate) async fn unpipelined_frames(
    target: &Arc<Target>,
    socket: &Path,
    files: u64,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let what = "whereis, single, 64 x 1 in flight, bare frames";
    if !report.wants(what) {
        return Ok(());
    }
    let asked = single_lookups(files)?;
    let first = asked.first().cloned().ok_or_else(|| Error::new(ErrorKind::Internal, "nothing to ask"))?;
    let echo = Echo::start(&socket.with_file_name("echo.sock"), &target.call(0, first).await?).await?;
    let load = Load {
        lanes: CONNECTIONS_UNPIPELINED,
        depth: 1,
        calls: (files / 2).clamp(20_000, 500_000),
        items_per_call: 1,
    };
    // In turn, because the machine changes meanwhile.
    for round in 1..=3 {
        let what = format!("raw echo, 64 x 1 in flight, {round}");
        let raw = super::frames::drive(&echo.target(), echo.socket(), &what, load, &asked).await?;
        report.show(&raw)?;
        let what = format!("whereis, single, 64 x 1 in flight, bare frames, {round}");
        let looked_up = super::frames::drive(target, socket, &what, load, &asked).await?;
        report.show(&looked_up)?;
        report.line(&format!(
            "  {:.0} % of the echo's rate, its p99 {:.2} times the echo's",
            100.0 * looked_up.rate() / raw.rate(),
            looked_up.p99_us as f64 / raw.p99_us.max(1) as f64
        ))?;
    }
    Ok(())
}

/// Measures look-ups during constant registrations: how long readers wait for a writer, and the
/// rate of the writer.
pub(crate) async fn reads_beside_writes(
    target: &Arc<Target>,
    files: u64,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let what = "whereis, single, 4 x 4, while others register";
    if !report.wants(what) {
        return Ok(());
    }
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (start, mut writers) = (Instant::now(), tokio::task::JoinSet::new());
    for lane in 0..CONNECTIONS {
        let (target, stop, next) = (target.clone(), stop.clone(), next.clone());
        writers.spawn(async move {
            let mut latency = histogram()?;
            while !stop.load(Ordering::Relaxed) {
                // Beyond the files that are looked up.
                let first = files + next.fetch_add(1, Ordering::Relaxed) * BATCH;
                let sent = Instant::now();
                super::all_good(&target.call(lane, workload::register(first, first + BATCH)?).await?)?;
                record(&mut latency, sent.elapsed());
            }
            Ok(latency)
        });
    }
    let load =
        Load { lanes: CONNECTIONS, depth: 4, calls: (files / 4).clamp(20_000, 400_000), items_per_call: 1 };
    let read = drive(target, what, load, pool(single_lookups(files)?), super::all_good).await;
    stop.store(true, Ordering::Relaxed);
    let latency = merged(writers).await?;
    report.show(&read?)?;
    let registered = latency.len() * BATCH;
    report.show(&sample(
        target,
        "register, 4 x 1000, beside these",
        registered,
        start.elapsed(),
        0.0,
        &latency,
    ))
}

/// Measures one look-up at a time on each of many connections.
pub(crate) async fn unpipelined(
    target: &Arc<Target>,
    files: u64,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let what = "whereis, single, 64 x 1 in flight";
    if !report.wants(what) {
        return Ok(());
    }
    let load = Load {
        lanes: CONNECTIONS_UNPIPELINED,
        depth: 1,
        calls: files.clamp(20_000, 500_000),
        items_per_call: 1,
    };
    report.show(&drive(target, what, load, pool(single_lookups(files)?), super::all_good).await?)
}

/// Moves and removes directories with more and more below them: the time must not depend on it.
pub(crate) async fn trees(target: &Arc<Target>, files: u64, report: &mut Report<'_>) -> Result<(), Error> {
    const ROUNDS: u64 = 20;
    let root = Lfn::parse("/bench-trees")?;
    target.call(0, Operation::Mkdir { lfns: vec![root], parents: true, mode: None }).await?;
    for below in [10, 10_000, 1_000_000] {
        let move_it = format!("mv of a directory with {below} files below");
        let remove_it = format!("rm -r of a directory with {below} files below");
        if below > files.max(10_000) || !(report.wants(&move_it) || report.wants(&remove_it)) {
            continue;
        }
        let directory = Lfn::parse(&format!("/bench-trees/{below}"))?;
        grow(target, &directory, below).await?;
        let other = Lfn::parse(&format!("/bench-trees/{below}-moved"))?;
        let (mut from, mut to) = (directory, other);
        let (mut latency, start, cpu) = (histogram()?, Instant::now(), target.cpu_s());
        for _ in 0..ROUNDS {
            let sent = Instant::now();
            target.call(0, Operation::Move { from: from.clone(), to: to.clone() }).await?;
            record(&mut latency, sent.elapsed());
            std::mem::swap(&mut from, &mut to);
        }
        report.show(&sample(target, &move_it, ROUNDS, start.elapsed(), target.cpu_s() - cpu, &latency))?;

        let (mut latency, mut took, cpu) = (histogram()?, Duration::ZERO, target.cpu_s());
        for _ in 0..ROUNDS {
            let sent = Instant::now();
            let removal = Operation::Remove { lfn: from.clone(), recursive: true, directory: false };
            let Answer::Removed { id } = target.call(0, removal).await? else {
                return Err(Error::new(ErrorKind::Internal, "a removal without a trash item"));
            };
            record(&mut latency, sent.elapsed());
            took += sent.elapsed();
            target.call(0, Operation::TrashRestore { id, to: None }).await?;
        }
        report.show(&sample(target, &remove_it, ROUNDS, took, target.cpu_s() - cpu, &latency))?;
    }
    Ok(())
}

/// Registers `count` files below a directory, a thousand to each of its own directories.
async fn grow(target: &Arc<Target>, directory: &Lfn, count: u64) -> Result<(), Error> {
    let mut done = 0;
    while done < count {
        let end = (done + BATCH).min(count);
        let mut files = Vec::new();
        for file in done..end {
            let mut new = workload::new_file(file)?;
            new.lfn = Lfn::parse(&format!("{directory}/{:06}/{:09}.root", done / BATCH, file))?;
            files.push(new);
        }
        let existing = exacat_model::operation::Existing::Refuse;
        let answer = target.call(0, Operation::Register { files, parents: true, existing }).await?;
        super::all_good(&answer)?;
        done = end;
    }
    Ok(())
}

/// Writes a listing and imports it through the importer, as `exacat import` does.
pub(crate) async fn import(
    server: &StartedServer,
    target: &Arc<Target>,
    listing: &Path,
    files: u64,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let what = "import of a listing (rows)";
    if !report.wants(what) {
        return Ok(());
    }
    write_listing(listing, files)
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("cannot write a listing: {error}")))?;
    let (start, cpu) = (Instant::now(), target.cpu_s());
    let mut options = ImportOptions { state: StateAt::Nowhere, ..ImportOptions::default() };
    options.listing.se = Some(workload::se(0)?);
    let client = Arc::new(server.connect().await?);
    let done = exacat_exchange::import(client, listing, &options, |_| ())
        .await
        .map_err(|error| Error::new(error.kind().unwrap_or(ErrorKind::Internal), error.to_string()))?;
    let imported = done.counts.created;
    if imported != files {
        return Err(Error::new(ErrorKind::Internal, format!("{imported} of {files} rows were imported")));
    }
    let latency = histogram()?;
    report.show(&sample(target, what, files, start.elapsed(), target.cpu_s() - cpu, &latency))
}

fn write_listing(listing: &Path, files: u64) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(listing)?);
    writeln!(out, "lfn\tsize\tchecksum\tpfn")?;
    for file in 0..files {
        let name = workload::lfn(file).map_err(std::io::Error::other)?;
        let name = name.as_str().trim_start_matches("/bench");
        let (size, sum) = (1_000_000 + file, workload::scatter(file) as u32);
        writeln!(
            out,
            "/imported{name}\t{size}\tadler32:{sum:08x}\troot://se00.bench.example:1094//bench{name}"
        )?;
    }
    out.flush()
}

/// Sizes that the store reports.
pub(crate) struct Figures {
    /// Entries in all.
    pub entries: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Memory by part.
    pub memory: Vec<(String, u64)>,
}

/// Requests them.
pub(crate) async fn figures(target: &Arc<Target>) -> Result<Figures, Error> {
    let Answer::Status(parts) = target.call(0, Operation::Status).await? else {
        return Err(Error::new(ErrorKind::Internal, "a status without parts"));
    };
    let all: Vec<(String, u64)> = parts.into_iter().flat_map(|part| part.metrics).collect();
    let value = |name: &str| all.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
    Ok(Figures {
        entries: value("entries"),
        log_bytes: value("log_written_bytes"),
        memory: all.iter().filter(|(name, _)| name.starts_with("memory_")).cloned().collect(),
    })
}
