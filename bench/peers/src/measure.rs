//! Measuring: calls side by side, their rate, their times one by one, and the CPU time of both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_model::Result;
use hdrhistogram::Histogram;

use crate::peer::{Peer, Session, Workload, failed};

/// Significant digits of a call's time.
const DIGITS: u8 = 3;
/// Requests to a peer in this process that one session makes ahead: reading the clock takes longer than
/// making one.
const MADE_AHEAD: usize = 16;

/// When a call ended, counted from the start, and how many items and how long it took.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Since the start.
    pub at: Duration,
    /// Items.
    pub items: u64,
    /// Duration of the call.
    pub took: Duration,
}

/// Result of a measurement.
pub struct Measured {
    /// Items done.
    pub items: u64,
    /// Wall time.
    pub wall: Duration,
    /// CPU time of load generator and peer, without making the questions, seconds.
    pub cpu_s: f64,
    /// CPU time of making the questions, seconds.
    pub making_s: f64,
    /// Nanoseconds of single calls.
    pub latency: Histogram<u64>,
    /// Every call, if asked for.
    pub ended: Vec<Ended>,
}

/// Result of one session.
struct SessionResult {
    items: u64,
    making: Duration,
    latency: Histogram<u64>,
    ended: Vec<Ended>,
}

/// State that sessions share.
struct Shared<N> {
    /// Makes the n-th call from its number and the time since the start; none to end.
    next: N,
    calls: AtomicU64,
    stop: AtomicBool,
    start: Instant,
    keep_calls: bool,
    made_ahead: usize,
}

/// An empty distribution of nanoseconds. It grows as it must: a thousand sessions have one each.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new(DIGITS).map_err(failed)
}

/// Adds one duration.
pub fn record(latency: &mut Histogram<u64>, took: Duration) -> Result<()> {
    latency.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1)).map_err(failed)
}

/// Has sessions ask side by side until `next` gives nothing more. The first error ends it.
pub async fn drive<P: Peer>(
    peer: &P,
    sessions: Vec<P::Session>,
    keep_calls: bool,
    next: impl Fn(u64, Duration) -> Option<Workload> + Send + Sync + 'static,
) -> Result<Measured> {
    let (cpu, start) = (peer.cpu_s(), Instant::now());
    let (calls, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let made_ahead = if P::IN_PROCESS && !keep_calls { MADE_AHEAD } else { 1 };
    let shared = Arc::new(Shared { next, calls, stop, start, keep_calls, made_ahead });
    let mut asking = Vec::new();
    for session in sessions {
        let shared = Arc::clone(&shared);
        asking.push(if P::BLOCKING {
            let runtime = tokio::runtime::Handle::current();
            tokio::task::spawn_blocking(move || runtime.block_on(ask(session, &shared)))
        } else {
            tokio::spawn(async move { ask(session, &shared).await })
        });
    }
    let mut parts = Vec::with_capacity(asking.len());
    for part in asking {
        parts.push(part.await.map_err(failed)?);
    }
    let (wall, cpu_s) = (start.elapsed(), peer.cpu_s() - cpu);
    let mut all =
        SessionResult { items: 0, making: Duration::ZERO, latency: histogram()?, ended: Vec::new() };
    for part in parts {
        let mut part = part?;
        all.items += part.items;
        all.making += part.making;
        all.latency.add(part.latency).map_err(failed)?;
        all.ended.append(&mut part.ended);
    }
    all.ended.sort_by_key(|ended| ended.at);
    let making_s = all.making.as_secs_f64();
    let cpu_s = (cpu_s - making_s).max(0.0);
    Ok(Measured { items: all.items, wall, cpu_s, making_s, latency: all.latency, ended: all.ended })
}

async fn ask<S: Session, N: Fn(u64, Duration) -> Option<Workload> + Send + Sync>(
    mut session: S,
    shared: &Shared<N>,
) -> Result<SessionResult> {
    let mut part =
        SessionResult { items: 0, making: Duration::ZERO, latency: histogram()?, ended: Vec::new() };
    let asked = ask_all(&mut session, shared, &mut part).await;
    asked.inspect_err(|_| shared.stop.store(true, Ordering::Relaxed)).map(|()| part)
}

async fn ask_all<S: Session, N: Fn(u64, Duration) -> Option<Workload> + Send + Sync>(
    session: &mut S,
    shared: &Shared<N>,
    part: &mut SessionResult,
) -> Result<()> {
    while !shared.stop.load(Ordering::Relaxed) {
        let before = thread_cpu();
        let mut questions = Vec::with_capacity(shared.made_ahead);
        for _ in 0..shared.made_ahead {
            let call = shared.calls.fetch_add(1, Ordering::Relaxed);
            let Some(work) = (shared.next)(call, shared.start.elapsed()) else { break };
            questions.push((work.items(), session.prepare(&work)?));
            if !work.is_quick() {
                break;
            }
        }
        part.making += thread_cpu().saturating_sub(before);
        if questions.is_empty() {
            break;
        }
        for (items, question) in questions {
            let sent = Instant::now();
            session.perform(question).await?;
            let took = sent.elapsed();
            part.items += items;
            record(&mut part.latency, took)?;
            if shared.keep_calls {
                part.ended.push(Ended { at: shared.start.elapsed(), items, took });
            }
            // What answers without waiting would never let others have their turn.
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// CPU time of this thread so far.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let whole = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    whole + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
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
}
