//! `replay import`, `replay generate`, `replay show`: traces of accesses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use exacat_exchange::Progress;
use exacat_exchange::input::{BytesRead, Input};
use exacat_exchange::reject::RejectSink;
use exacat_model::{Lfn, TimeMs};
use exacat_replay::distance::Distances;
use exacat_replay::generate::{Statistics, generate as generated};
use exacat_replay::import::{
    ColumnNames, Filter, ImportCounts, ImportSettings, SiteShare, Source, import as imported, parse_time_us,
};
use exacat_replay::summary::{Summary, summarise};
use exacat_replay::trace::Trace;
use exacat_replay::{picture, trace::store};
use serde::Serialize;
use utoipa::ToSchema;

use crate::args::{Global, ReplayGenerateArgs, ReplayImportArgs, ReplayShowArgs};
use crate::commands::exchange::{failure, of_output, open_output};
use crate::failure::{Failure, STATUS_REJECTED, say};
use crate::output::human::{self, plural};
use crate::output::{Align, Out, Style, Table};
use crate::parse;
use crate::progress::Bar;

/// A trace that was made.
#[derive(Serialize, ToSchema)]
#[schema(as = MadeTrace)]
pub(crate) struct MadeTraceView {
    /// File of the trace.
    trace: String,
    /// Accesses.
    accesses: u64,
    /// Files.
    files: u64,
    /// First access.
    first: String,
    /// Last access.
    last: String,
    /// Rows of the sources; 0 for a generated trace.
    rows: u64,
    /// Rows that are no accesses: headers, uploads, records of other kinds.
    other: u64,
    /// Accesses that were left out by options.
    filtered: u64,
    /// Files that were opened, and nothing of them read.
    nothing_read: u64,
    /// Rows that were earlier than one before.
    out_of_order: u64,
    /// Rows with another size or checksum of a file than its first one, which counts.
    differing: u64,
    /// Rejected rows, by reason.
    rejected: BTreeMap<String, u64>,
    /// Duration in seconds.
    seconds: f64,
}

/// Work that a signal must not wait for is done beside the runtime.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::local(error.to_string()))?
}

fn time_us(name: &str, text: Option<&str>, default: u64) -> Result<u64, Failure> {
    match text {
        None => Ok(default),
        Some(text) => {
            parse_time_us(text).map_err(|what| Failure::local(format!("--{name}: {what}: {text:?}")))
        }
    }
}

fn bytes(name: &str, text: &str) -> Result<u64, Failure> {
    parse::bytes(text).map_err(|error| Failure::local(format!("--{name}: {error}")))
}

fn factor(name: &str, value: f64) -> Result<f64, Failure> {
    let is_factor = value.is_finite() && value > 0.0;
    let what = || Failure::local(format!("--{name} is a number above 0, not {value}"));
    if is_factor { Ok(value) } else { Err(what()) }
}

fn settings(args: &ReplayImportArgs) -> Result<ImportSettings, Failure> {
    if !(0.0..=1.0).contains(&args.share) {
        return Err(Failure::local(format!("--share is from 0 to 1, not {}", args.share)));
    }
    factor("speed", args.speed)?;
    let size = |name: &str, text: &Option<String>, default: u64| {
        text.as_deref().map_or(Ok(default), |text| bytes(name, text))
    };
    let shares = args.site_share.iter().map(|text| SiteShare::parse(text)).collect::<Result<_, _>>();
    let filter = Filter {
        sites: args.site.clone(),
        site_shares: shares.map_err(failure)?,
        datasets: args.dataset.clone(),
        under: args.under.clone(),
        from_us: time_us("from", args.from.as_deref(), 0)?,
        to_us: time_us("to", args.to.as_deref(), u64::MAX)?,
        size_min: size("size-min", &args.size_min, 0)?,
        size_max: size("size-max", &args.size_max, u64::MAX)?,
        share: args.share,
        seed: args.seed,
        size_factor: factor("size-factor", args.size_factor)?,
    };
    let unknown = args.size_of_unknown.as_deref().map(|text| bytes("size-of-unknown", text)).transpose()?;
    Ok(ImportSettings {
        source: args.source.as_deref().map(Source::parse).transpose().map_err(failure)?,
        columns: args
            .columns
            .as_deref()
            .map(ColumnNames::parse)
            .transpose()
            .map_err(failure)?
            .unwrap_or_default(),
        filter,
        size_of_unknown: unknown,
        site_of_unknown: args.site_of_unknown.clone(),
        below: Lfn::parse(&args.below)?.to_string(),
        hashed_paths: args.hashed_paths,
    })
}

/// Reads the sources into one trace.
fn read_sources(
    files: &[PathBuf],
    settings: &ImportSettings,
    rejects: &mut RejectSink,
    mut bar: Bar,
) -> Result<(Trace, ImportCounts), Failure> {
    let (mut trace, mut all, begun) = (Trace::new(), ImportCounts::default(), Instant::now());
    for path in files {
        let input = Input::open(path, None).map_err(failure)?;
        let read = BytesRead::default();
        let size = input.size();
        let before = all.clone();
        let mut show = |counts: &ImportCounts| {
            bar.show(&Progress {
                rows: before.rows + counts.rows,
                rows_now: before.rows + counts.rows,
                bytes_read: read.get(),
                bytes_total: size,
                elapsed: begun.elapsed(),
                ..Progress::default()
            });
        };
        let counts = imported(&input, settings, &mut trace, rejects, (&read, &mut show)).map_err(failure)?;
        all = ImportCounts {
            rows: before.rows + counts.rows,
            other: before.other + counts.other,
            filtered: before.filtered + counts.filtered,
            nothing_read: before.nothing_read + counts.nothing_read,
            taken: before.taken + counts.taken,
        };
    }
    bar.end();
    trace.sort();
    Ok((trace, all))
}

/// `exacat replay import`
pub(super) async fn import(args: ReplayImportArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let begun = Instant::now();
    let settings = settings(&args)?;
    let mut rejects = match &args.rejects {
        Some(path) => RejectSink::create(path).map_err(|error| of_output(error, path))?,
        None => RejectSink::counting(),
    };
    let bar = Bar::new(global, "rows");
    let (sites, keeps_rejects) = (args.site.clone(), args.rejects.is_some());
    let (view, rejects) = beside(move || {
        let (mut trace, counts) = read_sources(&args.files, &settings, &mut rejects, bar)?;
        rejects.flush(true).map_err(failure)?;
        if counts.taken == 0 {
            let what = if counts.filtered > 0 {
                format!(
                    "the options left out all of {}: check sites, times and sizes",
                    plural(counts.filtered, "access")
                )
            } else {
                let why =
                    rejects.shown().first().map(|first| format!(": line {}: {}", first.line, first.detail));
                format!("there is no access in it{}", why.unwrap_or_default())
            };
            return Err(Failure::local(what));
        }
        trace.speed_up(args.speed);
        let sources: Vec<String> = args.files.iter().map(|path| path.display().to_string()).collect();
        trace.description =
            serde_json::json!({ "made": "imported", "sources": sources, "speed": args.speed });
        store::write(&trace, &args.out).map_err(|error| of_output(error, &args.out))?;
        let missing: Vec<&String> = sites
            .iter()
            .filter(|site| !(0..trace.sites()).any(|at| trace.site(at as u16) == **site))
            .collect();
        if let Some(site) = missing.first() {
            say(&format!("exacat: no access is of the site {site:?}"));
        }
        let rejected =
            rejects.counts().iter().map(|(reason, count)| (reason.name().to_owned(), *count)).collect();
        Ok((view(&args.out, &trace, &counts, (rejected, begun)), rejects))
    })
    .await?;
    let mut printed = Out::new(style);
    show_made(&mut printed, &view)?;
    if !style.json && !style.quiet && rejects.rejected() > 0 {
        for reject in rejects.shown().iter().take(SHOWN_REJECTS) {
            printed.line(format!("  line {}: {}: {}", reject.line, reject.reason.name(), reject.detail))?;
        }
        if !keeps_rejects {
            printed.line("  --rejects FILE keeps all rejected rows")?;
        }
    }
    printed.flush()?;
    Ok(if rejects.rejected() > 0 { STATUS_REJECTED } else { 0 })
}

/// Rejected rows that are printed.
const SHOWN_REJECTS: usize = 5;

fn view(
    path: &Path,
    trace: &Trace,
    counts: &ImportCounts,
    (rejected, begun): (BTreeMap<String, u64>, Instant),
) -> MadeTraceView {
    let time = |access: Option<&exacat_replay::trace::Access>| {
        access.map_or_else(String::new, |access| TimeMs(access.time_us / 1000).to_string())
    };
    MadeTraceView {
        trace: path.display().to_string(),
        accesses: trace.accesses().len() as u64,
        files: trace.files().len() as u64,
        first: time(trace.accesses().first()),
        last: time(trace.accesses().last()),
        rows: counts.rows,
        other: counts.other,
        filtered: counts.filtered,
        nothing_read: counts.nothing_read,
        out_of_order: trace.out_of_order,
        differing: trace.differing,
        rejected,
        seconds: begun.elapsed().as_secs_f64(),
    }
}

fn show_made(out: &mut Out, view: &MadeTraceView) -> Result<(), Failure> {
    if out.style.json {
        return out.json(view);
    }
    if out.style.quiet {
        return Ok(());
    }
    let name = out.name(&view.trace).to_string();
    let (accesses, files) = (plural(view.accesses, "access"), plural(view.files, "file"));
    out.line(format!("{name}: {accesses} to {files}, {} to {}", view.first, view.last))?;
    let rejected: u64 = view.rejected.values().sum();
    let rows = [
        ("rows of the sources", view.rows),
        ("no accesses", view.other),
        ("opened, nothing read", view.nothing_read),
        ("left out by options", view.filtered),
        ("earlier than a row before", view.out_of_order),
        ("another size or checksum", view.differing),
        ("rejected", rejected),
    ];
    let mut table = Table::new([Align::Left, Align::Right]);
    for (what, count) in rows.into_iter().filter(|(_, count)| *count > 0) {
        table.row([format!("  {what}"), count.to_string()]);
    }
    out.table(&table)
}

/// `exacat replay generate`
pub(super) async fn generate(args: ReplayGenerateArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let begun = Instant::now();
    let default = Statistics::default();
    let count = |name: &str, text: &str| {
        parse::count(text).map_err(|error| Failure::local(format!("--{name}: {error}")))
    };
    let of = Statistics {
        seed: args.seed,
        files: count("files", &args.files)?,
        accesses: count("accesses", &args.accesses)?,
        begin_us: time_us("begin", Some(&args.begin), 0)?,
        days: args.days,
        popularity: args.popularity,
        size_growth: args.size_growth.unwrap_or(default.size_growth),
        size_median: bytes("size", &args.size)? as f64,
        drift: args.drift.unwrap_or(default.drift),
        task_jobs: args.task_jobs.unwrap_or(default.task_jobs),
        parts: args.parts,
        sites: args.sites,
        below: Lfn::parse(&args.below)?.to_string(),
        ..default
    };
    let mut bar = Bar::new(global, "accesses");
    let view = beside(move || {
        let mut show = |done: u64| {
            let (rows_total, elapsed) = (Some(of.accesses), begun.elapsed());
            bar.show(&Progress { rows: done, rows_now: done, rows_total, elapsed, ..Progress::default() });
        };
        let trace = generated(&of, &mut show).map_err(failure)?;
        bar.end();
        store::write(&trace, &args.out).map_err(|error| of_output(error, &args.out))?;
        let nothing = BTreeMap::new();
        Ok(view(&args.out, &trace, &ImportCounts::default(), (nothing, begun)))
    })
    .await?;
    let mut out = Out::new(style);
    show_made(&mut out, &view)?;
    out.flush()?;
    Ok(0)
}

/// `exacat replay show`
pub(super) async fn show(args: ReplayShowArgs, global: &Global, style: Style) -> Result<u8, Failure> {
    let caches: Vec<u64> = args.cache.iter().map(|text| bytes("cache", text)).collect::<Result<_, _>>()?;
    let block = bytes("block", &args.block)?;
    if block == 0 {
        return Err(Failure::local("--block is at least 1 byte"));
    }
    let mut bar = Bar::new(global, "bytes");
    let path = args.trace.clone();
    let summary = beside(move || {
        bar.show_text("reading the trace");
        let trace = store::read(&path, &BytesRead::default()).map_err(failure)?;
        bar.show_text("computing what caches must reach");
        let distances = Distances::of(&trace, block);
        let summary = summarise(&trace, &distances, &caches);
        bar.end();
        Ok(summary)
    })
    .await?;
    if let Some(path) = &args.svg {
        let output = open_output(path).await?;
        let drawn = picture::draw(&summary);
        let written = output.writer().map_err(failure).and_then(|mut file| {
            std::io::Write::write_all(&mut file, drawn.as_bytes())
                .map_err(|error| of_output(exacat_exchange::Error::file("write", path, error), path))
        });
        written?;
        output.finish().map_err(|error| of_output(error, path))?;
    }
    let mut out = Out::new(style);
    show_summary(&mut out, &summary)?;
    out.flush()?;
    Ok(0)
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

fn show_summary(out: &mut Out, of: &Summary) -> Result<(), Failure> {
    if out.style.json {
        return out.json(of);
    }
    if out.style.quiet {
        return Ok(());
    }
    let size = |bytes: u64| human::size(u128::from(bytes));
    let time = |time_us: u64| human::second(TimeMs(time_us / 1000));
    let mut table = Table::new([Align::Left, Align::Left]);
    let mut row = |what: &str, text: String| table.row([what.to_owned(), text]);
    row(
        "accesses",
        format!(
            "{}, {} from {} to {}",
            of.accesses,
            plural(of.partial_reads, "partial read"),
            time(of.first_us),
            time(of.last_us)
        ),
    );
    row("files", format!("{} with {}, {} with a checksum", of.files, size(of.file_bytes), of.files_with_sum));
    row("bytes asked for", size(of.bytes_asked));
    row("working set", size(of.working_set_bytes));
    row("busiest minute", format!("{:.1} accesses/s", of.busiest_minute));
    let sizes = &of.sizes;
    row(
        "sizes",
        format!("median {}, 90 % below {}, largest {}", size(sizes.p50), size(sizes.p90), size(sizes.max)),
    );
    row(
        "uses of a file",
        format!(
            "median {}, 99 % below {}, most {}; {} % once",
            of.uses.p50,
            of.uses.p99,
            of.uses.max,
            percent(of.used_once)
        ),
    );
    row("most used 1 %", format!("{} % of accesses", percent(of.of_top_percent)));
    let reuse = |seconds: u64| human::duration(seconds.saturating_mul(1000));
    row(
        "until used again",
        format!("median {}, 90 % within {}", reuse(of.reuse_seconds.p50), reuse(of.reuse_seconds.p90)),
    );
    out.table(&table)?;
    for (what, total, all) in
        [("site", of.sites_total, &of.sites), ("dataset", of.datasets_total, &of.datasets)]
    {
        if total > 1 || all.first().is_some_and(|of| !of.name.is_empty()) {
            out.line("")?;
            let title = format!("{what} ({total})");
            let mut table = Table::headed([
                (title.as_str(), Align::Left),
                ("accesses", Align::Right),
                ("bytes", Align::Right),
            ]);
            for named in all {
                let name = if named.name.is_empty() { human::UNKNOWN } else { &named.name };
                table.row([out.name(name).to_string(), named.accesses.to_string(), size(named.bytes_asked)]);
            }
            out.table(&table)?;
        }
    }
    out.line("")?;
    let mut table = Table::headed([
        ("cache", Align::Right),
        ("of working set %", Align::Right),
        ("must find % of accesses", Align::Right),
        ("of bytes", Align::Right),
    ]);
    for cache in &of.caches {
        let of_set = percent(cache.of_working_set);
        table.row([size(cache.cache_bytes), of_set, percent(cache.hit_requests), percent(cache.hit_bytes)]);
    }
    out.table(&table)
}
