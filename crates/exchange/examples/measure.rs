//! Measures how fast a listing is read, and loaded into a catalogue in this process: `measure LISTING [DIRECTORY] [OPTION…]`;
//! DIRECTORY is a place for a new catalogue. Options: columns=…, prefix=…, se=…, batch=ROWS, se-auto, one-by-one.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use exacat_exchange::columns::Columns;
use exacat_exchange::local::Local;
use exacat_exchange::resume::StateAt;
use exacat_exchange::{ImportOptions, Listing, import, import_in_bulk};
use exacat_model::{Lfn, SeName};
use exacat_store::{Store, SystemClock};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore, LoadSettings};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Any = Box<dyn std::error::Error>;

fn cpu_s() -> f64 {
    // utime and stime, in hundredths of a second.
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

struct Watch(Instant, f64);

impl Watch {
    fn start() -> Self {
        Watch(Instant::now(), cpu_s())
    }

    fn say(&self, what: &str, rows: u64) {
        let (wall, cpu) = (self.0.elapsed().as_secs_f64(), cpu_s() - self.1);
        println!(
            "{what}: {rows} rows, {wall:.2} s, {:.0} k/s, {:.2} us of CPU each",
            rows as f64 / wall / 1e3,
            cpu * 1e6 / rows.max(1) as f64
        );
    }
}

fn main() -> Result<(), Any> {
    let mut arguments = std::env::args().skip(1);
    let listing = PathBuf::from(arguments.next().ok_or("which listing?")?);
    let directory = arguments.next().filter(|text| text != "-").map(PathBuf::from);
    let mut options = ImportOptions { state: StateAt::Nowhere, ..ImportOptions::default() };
    let mut one_by_one = false;
    for argument in arguments {
        match argument.split_once('=') {
            Some(("columns", text)) => options.listing.columns = Some(Columns::parse(text)?),
            Some(("prefix", text)) => options.listing.prefix = Some(Lfn::parse(text)?),
            Some(("se", text)) => options.listing.se = Some(SeName::parse(text)?),
            Some(("batch", text)) => options.batch_rows = text.parse()?,
            None if argument == "se-auto" => options.listing.se_auto = true,
            None if argument == "one-by-one" => one_by_one = true,
            _ => return Err(format!("no such option: {argument}").into()),
        }
    }
    if directory.is_none() {
        let watch = Watch::start();
        let examined = Listing::open(&listing, options.listing.clone())?.examine()?;
        watch.say("read and judged", examined.rows);
        return Ok(());
    }
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let clock = Arc::new(SystemClock);
        let settings =
            EmbeddedSettings { archive: false, ..EmbeddedSettings::at(directory.unwrap_or_default()) };
        let store = EmbeddedStore::open(settings, clock.clone())?;
        let local = Local::open(Arc::clone(&store), clock, LoadSettings::default()).await?;
        let watch = Watch::start();
        let mut loading = None;
        let progress = |now: &exacat_exchange::Progress| {
            if now.loading && loading.is_none() {
                loading = Some((now.elapsed, cpu_s()));
            }
        };
        let report = match one_by_one {
            true => import(local, &listing, &options, progress).await?,
            false => import_in_bulk(Arc::clone(&local), local, &listing, &options, progress).await?,
        };
        watch.say("imported", report.rows);
        if let Some((elapsed, cpu)) = loading {
            println!("  read and taken after {:.2} s, {:.2} s of CPU", elapsed.as_secs_f64(), cpu - watch.1);
        }
        println!("  {:?} {} rejected", report.counts, report.rejected);
        let watch = Watch::start();
        store.close().await?;
        watch.say("closed", report.rows);
        Ok(())
    })
}
