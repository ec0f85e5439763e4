//! Measurements: operations, wall time, CPU time of both sides, and the distribution of single
//! calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_model::{Answer, Error, Operation};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::target::Target;

/// Longest single call that the histogram resolves; longer ones count as this.
const LATENCY_US_MAX: u64 = 600_000_000;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// `in process` or `network`.
    pub target: String,
    /// Name of the measurement.
    pub what: String,
    /// Items done: files, look-ups, entries returned.
    pub items: u64,
    /// Number of calls.
    pub calls: u64,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// CPU time of load generator and server, seconds.
    pub cpu_s: f64,
    /// Times of single calls, microseconds: the median.
    pub p50_us: u64,
    /// 99th percentile of them.
    pub p99_us: u64,
    /// 99.9th percentile of them.
    pub p999_us: u64,
    /// Longest of them.
    pub max_us: u64,
}

impl Sample {
    /// Items per second of wall time.
    pub(crate) fn rate(&self) -> f64 {
        self.items as f64 / self.wall_s.max(1e-9)
    }

    /// CPU time per item, microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_s * 1e6 / self.items.max(1) as f64
    }
}

/// Parameters of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Connections (in process: groups of tasks).
    pub lanes: usize,
    /// Calls in flight on each.
    pub depth: usize,
    /// Calls in all.
    pub calls: u64,
    /// Items in each.
    pub items_per_call: u64,
}

/// Sends `load.calls` calls, the n-th being `make(n)`, and measures. The first error ends it.
pub(crate) async fn drive(
    target: &Arc<Target>,
    what: &str,
    load: Load,
    make: impl Fn(u64) -> Result<Operation, Error> + Send + Sync + 'static,
    check: impl Fn(&Answer) -> Result<(), Error> + Send + Sync + 'static,
) -> Result<Sample, Error> {
    let next = Arc::new(AtomicU64::new(0));
    let make = Arc::new(make);
    let check = Arc::new(check);
    let cpu = target.cpu_s();
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..load.lanes {
        for _ in 0..load.depth {
            let (target, next, make, check) = (target.clone(), next.clone(), make.clone(), check.clone());
            tasks.spawn(async move {
                // Not a distribution per task: a thousand of them would be filled and added up in
                // the measured time.
                let mut took = Vec::new();
                loop {
                    let call = next.fetch_add(1, Ordering::Relaxed);
                    if call >= load.calls {
                        return Ok::<_, Error>(took);
                    }
                    let operation = make(call)?;
                    let sent = Instant::now();
                    let answer = target.call(lane, operation).await?;
                    took.push(sent.elapsed());
                    check(&answer)?;
                }
            });
        }
    }
    let mut took = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.push(done.map_err(|error| internal(&error))??);
    }
    let (wall, cpu_s) = (start.elapsed(), target.cpu_s() - cpu);
    let mut latency = histogram()?;
    took.into_iter().flatten().for_each(|took| record(&mut latency, took));
    Ok(sample(target, what, load.calls * load.items_per_call, wall, cpu_s, &latency))
}

/// Merges the distributions of all tasks.
pub(crate) async fn merged(
    mut tasks: tokio::task::JoinSet<Result<Histogram<u64>, Error>>,
) -> Result<Histogram<u64>, Error> {
    let mut latency = histogram()?;
    while let Some(done) = tasks.join_next().await {
        let part = done.map_err(|error| internal(&error))??;
        latency.add(part).map_err(|error| internal(&error))?;
    }
    Ok(latency)
}

/// Makes the sample of an action done once, or a few times, with each duration in `latency`.
pub(crate) fn sample(
    target: &Target,
    what: &str,
    items: u64,
    wall: Duration,
    cpu_s: f64,
    latency: &Histogram<u64>,
) -> Sample {
    Sample {
        target: target.name().to_owned(),
        what: what.to_owned(),
        items,
        calls: latency.len(),
        wall_s: wall.as_secs_f64(),
        cpu_s,
        p50_us: latency.value_at_quantile(0.5),
        p99_us: latency.value_at_quantile(0.99),
        p999_us: latency.value_at_quantile(0.999),
        max_us: latency.max(),
    }
}

/// Makes an empty distribution of microseconds.
pub(crate) fn histogram() -> Result<Histogram<u64>, Error> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).map_err(|error| internal(&error))
}

/// Adds one duration.
pub(crate) fn record(latency: &mut Histogram<u64>, took: Duration) {
    let us = u64::try_from(took.as_micros()).unwrap_or(LATENCY_US_MAX);
    latency.saturating_record(us.clamp(1, LATENCY_US_MAX));
}

fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::new(exacat_model::ErrorKind::Internal, error.to_string())
}
