//! Measuring: calls side by side, their rate, their times one by one, and the CPU time of both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_model::{Error, Result};
use hdrhistogram::Histogram;

use crate::peer::{Peer, Session, Work, failed};

/// Longest single call the histogram tells apart; longer ones count as this.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// When a call ended, counted from the start, and how many items and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Since the start.
    pub at: Duration,
    /// Items.
    pub items: u64,
    /// How long the call took.
    pub took: Duration,
}

/// What came of a measurement.
pub struct Measured {
    /// Items done.
    pub items: u64,
    /// Wall time.
    pub wall: Duration,
    /// CPU time of load generator and peer, seconds.
    pub cpu_s: f64,
    /// Of single calls, microseconds.
    pub latency: Histogram<u64>,
    /// Every call, if asked for.
    pub ended: Vec<Ended>,
}

/// What one session measured.
struct Part {
    items: u64,
    latency: Histogram<u64>,
    ended: Vec<Ended>,
}

/// What sessions share.
struct Shared<N> {
    /// What the n-th call is, by its number and the time since the start; none to end.
    next: N,
    calls: AtomicU64,
    stop: AtomicBool,
    start: Instant,
    keep_calls: bool,
}

/// An empty distribution of microseconds.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).map_err(failed)
}

/// Adds one duration.
pub fn record(latency: &mut Histogram<u64>, took: Duration) {
    let us = u64::try_from(took.as_micros()).unwrap_or(LATENCY_US_MAX);
    latency.saturating_record(us.clamp(1, LATENCY_US_MAX));
}

/// Has sessions ask side by side until `next` gives nothing more. The first error ends it.
pub async fn drive<P: Peer>(
    peer: &P,
    sessions: Vec<P::Session>,
    keep_calls: bool,
    next: impl Fn(u64, Duration) -> Option<Work> + Send + Sync + 'static,
) -> Result<Measured> {
    let (cpu, start) = (peer.cpu_s(), Instant::now());
    let (calls, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let shared = Arc::new(Shared { next, calls, stop, start, keep_calls });
    let mut parts = Vec::new();
    for session in sessions {
        let shared = Arc::clone(&shared);
        parts.push(if P::BLOCKING {
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || runtime.block_on(ask(session, &shared)))
        } else {
            tokio::spawn(async move { ask(session, &shared).await })
        });
    }
    let mut all = Part { items: 0, latency: histogram()?, ended: Vec::new() };
    let mut trouble = None;
    for part in parts {
        match part.await.map_err(failed)? {
            Ok(mut part) => {
                all.items += part.items;
                all.latency.add(part.latency).map_err(failed)?;
                all.ended.append(&mut part.ended);
            }
            Err(error) => trouble = trouble.or(Some(error)),
        }
    }
    let (wall, cpu_s) = (start.elapsed(), peer.cpu_s() - cpu);
    all.ended.sort_by_key(|ended| ended.at);
    match trouble {
        Some(error) => Err(error),
        None => Ok(Measured { items: all.items, wall, cpu_s, latency: all.latency, ended: all.ended }),
    }
}

async fn ask<S: Session, N: Fn(u64, Duration) -> Option<Work> + Send + Sync>(
    mut session: S,
    shared: &Shared<N>,
) -> Result<Part> {
    let mut part = Part { items: 0, latency: histogram()?, ended: Vec::new() };
    while !shared.stop.load(Ordering::Relaxed) {
        let call = shared.calls.fetch_add(1, Ordering::Relaxed);
        let Some(work) = (shared.next)(call, shared.start.elapsed()) else { break };
        let items = work.items();
        let asked = async {
            let prepared = session.prepare(&work)?;
            let sent = Instant::now();
            session.perform(prepared).await?;
            Ok::<_, Error>(sent.elapsed())
        };
        let took = asked.await.inspect_err(|_| shared.stop.store(true, Ordering::Relaxed))?;
        part.items += items;
        record(&mut part.latency, took);
        if shared.keep_calls {
            part.ended.push(Ended { at: shared.start.elapsed(), items, took });
        }
        // What answers without waiting would never let others have their turn.
        tokio::task::yield_now().await;
    }
    Ok(part)
}

/// Items a second in each tenth of the time, and the longest call that ended in it.
pub fn tenths(ended: &[Ended]) -> Vec<(f64, Duration)> {
    let Some(whole) = ended.last().map(|last| last.at).filter(|whole| !whole.is_zero()) else {
        return Vec::new();
    };
    let mut tenths = vec![(0u64, Duration::ZERO); 10];
    for call in ended {
        let tenth = (call.at.as_secs_f64() / whole.as_secs_f64() * 10.0) as usize;
        let (items, longest) = &mut tenths[tenth.min(9)];
        *items += call.items;
        *longest = (*longest).max(call.took);
    }
    let each = whole.as_secs_f64() / 10.0;
    tenths.into_iter().map(|(items, longest)| (items as f64 / each, longest)).collect()
}

/// CPU time of this process so far, user and system, seconds.
pub fn own_cpu_s() -> f64 {
    cpu_s("self")
}

/// CPU time of a process so far, seconds; 0 if it cannot be read.
pub fn cpu_s(pid: &str) -> f64 {
    // Fields 14 and 15 of /proc/PID/stat, counted from behind the command's name, which may hold blanks.
    // Linux gives them in ticks of 1/100 s to user space, whatever the kernel counts in.
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0.0 };
    let Some((_, fields)) = stat.rsplit_once(')') else { return 0.0 };
    let ticks =
        |index: usize| fields.split_whitespace().nth(index).and_then(|field| field.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tenths are of the time, not of the calls: a pause shows as a tenth in which nothing ended.
    #[test]
    fn a_pause_shows_in_the_tenths() {
        let call = |ms: u64, took: u64| Ended {
            at: Duration::from_millis(ms),
            items: 100,
            took: Duration::from_millis(took),
        };
        let calls = [call(50, 1), call(60, 2), call(950, 890), call(1000, 1)];
        let tenths = tenths(&calls);
        assert_eq!(tenths.len(), 10);
        assert_eq!(tenths[0], (2000.0, Duration::from_millis(2)));
        assert!(tenths[1..9].iter().all(|tenth| *tenth == (0.0, Duration::ZERO)));
        assert_eq!(tenths[9], (2000.0, Duration::from_millis(890)));
        assert!(super::tenths(&[]).is_empty());
    }

    /// CPU time of this process grows when it works, and that of none is 0.
    #[test]
    fn cpu_time_is_read() {
        let before = own_cpu_s();
        let mut number = 1u64;
        while own_cpu_s() - before < 0.02 {
            number = (0..100_000).fold(number, |number, _| crate::tree::scatter(number));
        }
        assert_ne!(number, 1);
        assert_eq!(cpu_s("0"), 0.0);
    }
}
