//! Fills a catalogue without a pause, and shows whether the rate holds and whether any batch waits.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_model::Result;
use exacat_store::Store;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinSet;

use super::tree::{self, Builder, FILES_PER_DIRECTORY, Open};
use super::yardstick::Yardstick;
use crate::measure::{histogram, merged, record};
use crate::process::own_cpu_s;
use crate::workload::scatter;

/// Directories that are open at once.
const OPEN_DIRECTORIES: u64 = 10_000;
/// Files of a batch.
pub(crate) const BATCH: u64 = 1000;
/// Batches in flight.
const LANES: u64 = 4;

/// One second of the fill.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Second {
    /// Files made durable.
    pub files: u64,
    /// Longest batch that ended in it, microseconds.
    pub max_us: u64,
    /// Longest sync of the disk's yardstick that ended in it, microseconds.
    pub disk_max_us: u64,
}

/// Result of a fill.
pub(crate) struct Filled {
    /// Number of files.
    pub files: u64,
    /// Number of full directories: those with smaller numbers than this, without the open ones.
    pub directories: u64,
    /// Number of files of each directory that is not full.
    pub open: HashMap<u64, u64>,
    /// Unused numbers of directories.
    unused: Vec<std::ops::Range<u64>>,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// CPU time of load generator and engine, seconds.
    pub cpu_s: f64,
    /// Latencies of batches.
    pub latency: Histogram<u64>,
    /// Latencies of the disk's yardstick.
    pub disk: Histogram<u64>,
    /// The fill, second by second.
    pub seconds: Vec<Second>,
}

/// State shared by the lanes.
struct Progress {
    files: AtomicU64,
    next_directory: AtomicU64,
    start: Instant,
    seconds: Mutex<Vec<Second>>,
    open: Mutex<Vec<Open>>,
    unused: Mutex<Vec<std::ops::Range<u64>>>,
}

impl Progress {
    fn note(&self, took: Duration) {
        let second = self.start.elapsed().as_secs() as usize;
        let mut seconds = self.seconds.lock();
        if seconds.len() <= second {
            seconds.resize(second + 1, Second::default());
        }
        seconds[second].files += BATCH;
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        seconds[second].max_us = seconds[second].max_us.max(us);
    }
}

/// Puts `files` files into the store, each batch across random open directories. `beside` names a
/// file on the same disk.
pub(crate) async fn fill(store: &Arc<dyn Store>, files: u64, beside: PathBuf) -> Result<Filled> {
    let data = tree::prepare(&**store).await?;
    let yardstick = Yardstick::begin(beside)?;
    let progress = Arc::new(Progress {
        files: AtomicU64::new(0),
        next_directory: AtomicU64::new(0),
        start: Instant::now(),
        seconds: Mutex::default(),
        open: Mutex::default(),
        unused: Mutex::default(),
    });
    let cpu = own_cpu_s();
    let mut tasks = JoinSet::new();
    let open = (OPEN_DIRECTORIES / LANES).min(files.div_ceil(FILES_PER_DIRECTORY * LANES)).max(1);
    for lane in 0..LANES {
        let (store, progress) = (Arc::clone(store), Arc::clone(&progress));
        tasks
            .spawn(async move { fill_lane(&*store, &progress, Builder::new(lane, data), open, files).await });
    }
    let latency = merged(tasks).await?;
    let wall_s = progress.start.elapsed().as_secs_f64();
    let (disk, disk_seconds) = yardstick.end()?;
    let mut seconds = progress.seconds.lock().clone();
    seconds.iter_mut().zip(disk_seconds).for_each(|(second, max_us)| second.disk_max_us = max_us);
    let open = progress.open.lock().iter().map(|open| (open.ordinal, open.filled())).collect();
    Ok(Filled {
        files: progress.files.load(Ordering::Relaxed).min(files.next_multiple_of(BATCH)),
        directories: progress.next_directory.load(Ordering::Relaxed),
        open,
        unused: progress.unused.lock().clone(),
        wall_s,
        cpu_s: own_cpu_s() - cpu,
        latency,
        disk,
        seconds,
    })
}

/// Numbers that a lane takes at once: one lane makes all directories of a run.
const TAKEN: u64 = 500;

async fn fill_lane(
    store: &dyn Store,
    progress: &Progress,
    mut builder: Builder,
    open_max: u64,
    files: u64,
) -> Result<Histogram<u64>> {
    let mut latency = histogram()?;
    let mut open: Vec<Open> = Vec::new();
    let mut numbers = 0..0;
    let mut random = scatter(open_max + 17);
    loop {
        let missing = open_max.saturating_sub(open.len() as u64);
        let room: u64 = open.iter().map(|open| FILES_PER_DIRECTORY - open.filled()).sum();
        // A few at once, so that directories cost few batches; and never fewer than the next batch
        // needs.
        if missing > open_max / 100 || room < BATCH {
            let mut wanted = missing.max(BATCH.saturating_sub(room).div_ceil(FILES_PER_DIRECTORY));
            while wanted > 0 {
                if numbers.is_empty() {
                    let from = progress.next_directory.fetch_add(TAKEN, Ordering::Relaxed);
                    numbers = from..from + TAKEN;
                }
                let end = (numbers.start + wanted).min(numbers.end);
                open.extend(builder.make(store, numbers.start, end).await?);
                wanted -= end - numbers.start;
                numbers.start = end;
            }
        }
        if progress.files.fetch_add(BATCH, Ordering::Relaxed) >= files {
            progress.open.lock().append(&mut open);
            progress.unused.lock().push(numbers);
            return Ok(latency);
        }
        let mut mutations = Vec::with_capacity(BATCH as usize);
        for _ in 0..BATCH {
            random = scatter(random.wrapping_add(0x9e37_79b9));
            let index = (random % open.len() as u64) as usize;
            mutations.push(open[index].next()?);
            if open[index].is_full() {
                open.swap_remove(index);
            }
        }
        let operation = builder.operation();
        let sent = Instant::now();
        tree::apply(store, operation, mutations).await?;
        let took = sent.elapsed();
        record(&mut latency, took);
        progress.note(took);
    }
}

impl Filled {
    /// Says whether a directory of this number was made.
    pub(crate) fn is_made(&self, ordinal: u64) -> bool {
        ordinal < self.directories && !self.unused.iter().any(|range| range.contains(&ordinal))
    }

    /// Statistics of each tenth of the time: mean files a second, longest batch, and the disk's
    /// longest sync.
    pub(crate) fn deciles(&self) -> Vec<(f64, u64, u64)> {
        let whole = &self.seconds[..self.seconds.len().saturating_sub(1)];
        let of = whole.len().div_ceil(10).max(1);
        let tenth = |part: &[Second]| {
            let files: u64 = part.iter().map(|second| second.files).sum();
            let longest = part.iter().map(|second| second.max_us).max().unwrap_or(0);
            let disk = part.iter().map(|second| second.disk_max_us).max().unwrap_or(0);
            (files as f64 / part.len() as f64, longest, disk)
        };
        whole.chunks(of).map(tenth).collect()
    }
}
