//! Bulk load: a listing into a new catalogue, sorted and unsorted, as `exacat import --offline`
//! loads it.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_exchange::local::Local;
use exacat_exchange::resume::StateAt;
use exacat_exchange::{ImportOptions, import_in_bulk};
use exacat_model::{Error, ErrorKind, Result};
use exacat_store::{Store, SystemClock};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, LoadSettings};

use super::tree::{self, FILES_PER_DIRECTORY};
use super::{bytes_in, sample};
use crate::Report;
use crate::measure::{histogram, record};
use crate::process::own_cpu_s;
use crate::workload::scatter;

/// Maximum rows of a listing: its file is temporary, and larger ones give the same result.
const ROWS_MAX: u64 = 10_000_000;

/// Measures both orders.
pub(crate) async fn run(files: u64, data: &Path, report: &mut Report<'_>) -> Result<()> {
    let rows = files.min(ROWS_MAX).next_multiple_of(FILES_PER_DIRECTORY);
    for (what, sorted) in
        [("bulk load of a sorted listing", true), ("bulk load of an unsorted listing", false)]
    {
        if report.wants(what) {
            one(what, rows, sorted, data, report).await?;
        }
    }
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, error.to_string())
}

/// Writes a listing as experiments have them: GUID, size, checksum, time, job, two replicas each.
fn write_listing(path: &Path, rows: u64, sorted: bool) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(out, "lfn\tguid\tsize\tchecksum\tmtime\tjob\treplicas")?;
    // An odd number, prime to every number whose only factors are two and five: each row comes
    // once.
    const STEP: u64 = 7_368_787;
    for row in 0..rows {
        let row = if sorted { row } else { row.wrapping_mul(STEP) % rows };
        let (ordinal, file) = (row / FILES_PER_DIRECTORY, row % FILES_PER_DIRECTORY);
        let random = scatter(ordinal << 20 | file);
        let lfn = tree::lfn(ordinal, file).map_err(std::io::Error::other)?;
        writeln!(
            out,
            "{lfn}\t{}\t{}\tmd5:{:016x}{random:016x}\t{}\t{}\tBENCH::SITE{:02}::DISK|BENCH::SITE{:02}::DISK",
            tree::guid(ordinal, file),
            500_000_000 + random % 3_000_000_000,
            scatter(random),
            1_780_000_000 + ordinal,
            3_000_000_000 + ordinal,
            ordinal % 60,
            (ordinal + 7) % 60,
        )?;
    }
    out.flush()
}

async fn one(what: &str, rows: u64, sorted: bool, data: &Path, report: &mut Report<'_>) -> Result<()> {
    let (directory, listing) = (data.with_extension("bulk"), data.with_extension("tsv"));
    write_listing(&listing, rows, sorted).map_err(failed)?;
    let clock = Arc::new(SystemClock);
    let settings = EmbeddedSettings { archive: false, ..EmbeddedSettings::at(&directory) };
    let store = {
        let clock = clock.clone();
        let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(settings, clock));
        opened.await.map_err(failed)??
    };
    let local = Local::open(Arc::clone(&store), clock, LoadSettings::default()).await?;
    let mut options = ImportOptions { state: StateAt::Nowhere, ..ImportOptions::default() };
    options.listing.se_auto = true;
    let mut read: Option<(Duration, f64)> = None;
    let (start, cpu) = (Instant::now(), own_cpu_s());
    let imported = import_in_bulk(Arc::clone(&local), local, &listing, &options, |now| {
        if now.loading {
            read.get_or_insert_with(|| (start.elapsed(), own_cpu_s() - cpu));
        }
    })
    .await
    .map_err(failed)?;
    let (wall, cpu) = (start.elapsed(), own_cpu_s() - cpu);
    if imported.counts.created != rows {
        let made = imported.counts.created;
        return Err(Error::new(ErrorKind::Internal, format!("{made} of {rows} rows were loaded")));
    }
    let mut latency = histogram()?;
    record(&mut latency, wall);
    report.show(&sample(what, rows, wall.as_secs_f64(), cpu, &latency))?;
    let each = |seconds: f64| seconds * 1e6 / rows as f64;
    if let Some((read_wall, read_cpu)) = read {
        report.line(&format!(
            "  read, judged and packed in {:.1} s ({:.2} us of CPU each); sorted, decided, logged and paged in {:.1} s \
             ({:.2} us)",
            read_wall.as_secs_f64(),
            each(read_cpu),
            (wall - read_wall).as_secs_f64(),
            each(cpu - read_cpu),
        ))?;
    }
    let bytes = |part: &str| bytes_in(&directory.join(part)) as f64 / rows as f64;
    report.line(&format!("  {:.1} bytes a file in runs, {:.1} of log", bytes("runs"), bytes("log")))?;
    store.close().await?;
    drop(store);
    std::fs::remove_dir_all(&directory).and_then(|()| std::fs::remove_file(&listing)).map_err(failed)
}
