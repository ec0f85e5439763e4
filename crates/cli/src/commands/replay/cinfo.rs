//! `replay cinfo`: the states of a cache's files, summed up, and sent to the report of a run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use exacat_replay::both_sides::cinfo::CinfoSums;
use exacat_replay::run::shapes::{CinfoRequest, RunState};
use exacat_replay_service::collector::sum_up;
use exacat_wire::xrdmon::cinfo::Cinfo;
use serde::Serialize;
use utoipa::ToSchema;

use super::at::remote;
use super::trace::beside;
use crate::args::ReplayCinfoArgs;
use crate::commands::serve::Signals;
use crate::failure::{Failure, STATUS_INTERRUPTED, say};
use crate::output::human;
use crate::output::{Align, Out, Style, Table};
use crate::parse;

/// File of a cache, by its state.
#[derive(Serialize, ToSchema)]
#[schema(as = CachedFile)]
pub(crate) struct CachedFileView {
    /// Name.
    lfn: String,
    /// Bytes.
    size: u64,
    /// Bytes in the cache.
    cached: u64,
    /// Blocks of the file, and those in the cache.
    blocks: [u64; 2],
    /// Accesses of all time.
    accesses: u64,
    /// Bytes that clients got from the cache.
    hit: u64,
    /// Bytes that clients got, and the cache did not have.
    miss: u64,
    /// Bytes that went by the cache.
    bypass: u64,
}

impl CachedFileView {
    fn of(lfn: &str, of: &Cinfo) -> Self {
        let mut sums = CinfoSums::default();
        sums.add(of);
        CachedFileView {
            lfn: lfn.to_owned(),
            size: of.file_bytes,
            cached: sums.bytes_done,
            blocks: [sums.blocks, sums.blocks_done],
            accesses: sums.accesses,
            hit: sums.bytes_hit,
            miss: sums.bytes_miss,
            bypass: sums.bytes_bypass,
        }
    }
}

/// `exacat replay cinfo`
pub(super) async fn cinfo(args: ReplayCinfoArgs, style: Style) -> Result<u8, Failure> {
    match (&args.run, &args.cache) {
        (Some(run), Some(cache)) => send(&args, (run, cache), style).await,
        _ => show(args.directory, args.files, style).await,
    }
}

async fn show(directory: PathBuf, with_files: bool, style: Style) -> Result<u8, Failure> {
    beside(move || {
        let mut out = Out::new(style);
        let mut failed = None;
        let mut line = |name: &str, of: &Cinfo| {
            let file = CachedFileView::of(name, of);
            let written = match style.json {
                true => out.json(&file),
                false => out.line(format!(
                    "{:>10} of {:>10}  {:>6} accesses  {}",
                    human::size(file.cached.into()),
                    human::size(file.size.into()),
                    file.accesses,
                    out.name(&file.lfn),
                )),
            };
            if let Err(error) = written {
                failed.get_or_insert(error);
            }
        };
        let sums = sum_up(&directory, &mut |name, of| {
            if with_files && !style.quiet {
                line(name, of);
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if style.json {
            out.json(&sums)?;
        } else if !style.quiet {
            let table = table(&sums, &out);
            out.table(&table)?;
        }
        out.flush()?;
        Ok(0)
    })
    .await
}

fn table(of: &CinfoSums, out: &Out) -> Table {
    let mut table = Table::new([Align::Left, Align::Right]);
    let size = |bytes: u64| human::size(bytes.into());
    let rows = [
        ("files", of.files.to_string()),
        ("  whole", of.files_complete.to_string()),
        ("bytes of the files", size(of.bytes_of_files)),
        ("  in the cache", size(of.bytes_done)),
        ("accesses", of.accesses.to_string()),
        ("bytes hit", size(of.bytes_hit)),
        ("bytes missed", size(of.bytes_miss)),
        ("bytes passed by", size(of.bytes_bypass)),
        ("damaged states", of.damaged.to_string()),
        ("states not read", of.unread.to_string()),
    ];
    for (name, value) in rows {
        table.row([name.to_owned(), value]);
    }
    for damaged in &of.damaged_files {
        table.row([format!("  {}", out.name(damaged)), String::new()]);
    }
    if of.is_incomplete {
        table.row(["there is more than is read at once".to_owned(), String::new()]);
    }
    table
}

async fn read(directory: &Path) -> Result<CinfoSums, Failure> {
    let directory = directory.to_owned();
    beside(move || Ok(sum_up(&directory, &mut |_, _| ())?)).await
}

/// Sends the sums until the run has ended.
async fn send(args: &ReplayCinfoArgs, (run, cache): (&str, &str), style: Style) -> Result<u8, Failure> {
    let every = parse::some_time_ms(&args.every);
    let every = Duration::from_millis(every.map_err(|error| Failure::local(format!("--every: {error}")))?);
    let remote = remote(&args.at)?;
    let mut signals = Signals::new()?;
    let mut is_last = false;
    loop {
        let request = CinfoRequest { cache: cache.to_owned(), sums: read(&args.directory).await? };
        match remote.send_files(run, &request).await {
            // The next ones have all of it.
            Err(error) if error.kind == exacat_model::ErrorKind::Unavailable && !is_last => {
                say(&format!("exacat: {error}: sending again"));
            }
            Err(error) => return Err(error.into()),
            Ok(_) if is_last => {
                let mut out = Out::new(style);
                if style.json {
                    out.json(&request.sums)?;
                } else if !style.quiet {
                    let table = table(&request.sums, &out);
                    out.table(&table)?;
                }
                out.flush()?;
                return Ok(0);
            }
            // A cache closes files some seconds after its clients did.
            Ok(of) => is_last = matches!(of.state, RunState::Done | RunState::Stopped),
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = signals.next() => return Ok(STATUS_INTERRUPTED),
        }
    }
}
