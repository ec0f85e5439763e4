//! Activity of the server over time: moments each second, and minutes with samples, in memory and on
//! disk.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exacat_activity::Class;
use exacat_model::period::Period;
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::Board;
use super::journal::{self, Bounds, Journal};
use super::moment::{Moment, Run};
use super::samples::{Minute, OpenMinute, SAMPLED_MAX, SLOW_KEPT_MAX, Seen};
use super::summing::Summing;

/// Interval of samples and moments.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Length of a minute.
const MINUTE_MS: u64 = 60_000;
/// Moments in memory, one of each second.
const SECONDS_KEPT: usize = 120;
/// Memory for minutes, in bytes. A minute with few requests in progress has 20 kB.
const MINUTES_MEMORY_MAX: usize = 32 << 20;

/// Activity of a server over time.
pub(crate) struct History {
    run: Run,
    processors: u64,
    kept: Mutex<Kept>,
    journal: Option<Mutex<Journal>>,
    directory: Option<PathBuf>,
    /// One reader of the disk at a time.
    reader: Arc<Semaphore>,
    /// Minutes that could not be written.
    unwritten: AtomicU64,
}

#[derive(Default)]
struct Kept {
    seconds: VecDeque<Arc<Moment>>,
    minutes: VecDeque<Arc<Minute>>,
    memory: usize,
    open: OpenMinute,
    /// Number of samples since the start.
    samples: u64,
    /// Slow requests that minutes have, since the start.
    slow_seen: u64,
}

/// Stretch of time that a client asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub from: TimeMs,
    pub to: TimeMs,
    pub parts: u32,
}

impl History {
    /// Makes the history of a run of the server that starts now, with its files in `directory`.
    pub(crate) fn new(now: TimeMs, directory: Option<(PathBuf, Bounds)>) -> Self {
        let run = Run(now.0);
        let kept = Kept { open: OpenMinute::new(now, run), ..Kept::default() };
        History {
            run,
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            kept: Mutex::new(kept),
            directory: directory.as_ref().map(|(directory, _)| directory.clone()),
            journal: directory.map(|(directory, bounds)| Mutex::new(Journal::new(directory, bounds))),
            reader: Arc::new(Semaphore::new(1)),
            unwritten: AtomicU64::new(0),
        }
    }

    /// Returns the number of minutes that could not be written to the disk.
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// Returns the sums as they were within the last second; none before the first reading.
    pub(crate) fn last(&self) -> Option<Arc<Moment>> {
        self.kept.lock().seconds.back().cloned()
    }

    /// Returns the sums of about the last `time`, with its beginning; none before there are two moments.
    pub(crate) fn lately(&self, time: Duration) -> Option<(TimeMs, Moment)> {
        let kept = self.kept.lock();
        let last = kept.seconds.back()?;
        let from = last.at.0.saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        // After a step of the clock, the last moment before it.
        let earlier = || kept.seconds.iter().filter(|moment| moment.at < last.at);
        let first = earlier().find(|moment| moment.at.0 >= from).or_else(|| earlier().next_back())?;
        let mut between = Moment::clone(last);
        between.subtract(first);
        Some((first.at, between))
    }

    /// Takes a sample of the requests in progress.
    pub(crate) fn sample(&self, now: TimeMs, board: &Board) {
        let running = board.running();
        let mut kept = self.kept.lock();
        kept.samples += 1;
        let step = running.len().div_ceil(SAMPLED_MAX).max(1);
        for (request, state, life) in running.iter().step_by(step) {
            if state.class() == Class::Idle {
                continue;
            }
            let requester = request.facts.requester.as_ref();
            let client = requester.and_then(|one| one.host).map_or_else(String::new, |host| host.to_string());
            let directory = request.directory();
            let seen = Seen {
                operation: request.operation().name(),
                state: state.name(),
                user: requester.and_then(|one| one.caller.name()).map_or("", |name| name.as_str()),
                client: &client,
                directory: directory.as_ref().map_or("", |lfn| lfn.as_str()),
                life_ms: u64::try_from(life.as_millis()).unwrap_or(u64::MAX),
            };
            kept.open.add(now, seen, step as u32);
        }
    }

    /// Keeps the sums of this moment. Returns the minute that ends with it.
    pub(crate) fn moment(&self, mut moment: Moment, board: &Board, is_last: bool) -> Option<Arc<Minute>> {
        let mut kept = self.kept.lock();
        moment.run = self.run;
        moment.samples = kept.samples;
        let moment = Arc::new(moment);
        if kept.seconds.len() >= SECONDS_KEPT {
            kept.seconds.pop_front();
        }
        kept.seconds.push_back(Arc::clone(&moment));
        let age = moment.at.0.saturating_sub(kept.open.minute.from.0);
        // A clock that went back ends the minute too: its samples would have no time.
        if !is_last && age < MINUTE_MS && moment.at >= kept.open.minute.from {
            return None;
        }
        let mut minute = std::mem::replace(&mut kept.open, OpenMinute::new(moment.at, self.run)).minute;
        let (slow, slow_seen) = board.slow_since(kept.slow_seen, moment.at);
        kept.slow_seen = slow_seen;
        minute.slow = slow;
        minute.slow.sort_by_key(|one| std::cmp::Reverse(one.life_us));
        minute.slow.truncate(SLOW_KEPT_MAX);
        minute.end = Arc::clone(&moment);
        let minute = Arc::new(minute);
        kept.memory += minute.memory();
        kept.minutes.push_back(Arc::clone(&minute));
        while kept.memory > MINUTES_MEMORY_MAX && kept.minutes.len() > 1 {
            let oldest = kept.minutes.pop_front().map_or(0, |oldest| oldest.memory());
            kept.memory = kept.memory.saturating_sub(oldest);
        }
        Some(minute)
    }

    /// Writes a minute to the disk, if there are files.
    pub(crate) fn write(&self, minute: &Minute) {
        let Some(journal) = &self.journal else { return };
        let mut journal = journal.lock();
        if let Err(error) = journal.append(minute) {
            // Once an hour: the disk may be full for long.
            if self.unwritten.fetch_add(1, Ordering::Relaxed).is_multiple_of(60) {
                tracing::warn!(%error, "the activity of a minute is not written to the disk; the catalogue goes on");
            }
        }
        // The bound of bytes holds without it.
        if let Err(error) = journal.thin(minute.end.at) {
            tracing::debug!(%error, "old activity is not thinned; the next minute tries again");
        }
    }

    /// Returns the periods of a stretch of time, from memory, and from the disk if it began before.
    pub(crate) async fn periods(&self, asked: Asked, board: &Board, now: TimeMs) -> Result<Vec<Period>> {
        let (minutes, open, seconds) = {
            let kept = self.kept.lock();
            let minutes: Vec<Arc<Minute>> = kept.minutes.iter().cloned().collect();
            (minutes, kept.open.minute.clone(), kept.seconds.iter().cloned().collect::<Vec<_>>())
        };
        let memory_from = minutes.first().map_or(open.from, |minute| minute.from);
        let summing = Summing::new((asked.from, asked.to), asked.parts, self.processors);
        let mut summing = match &self.directory {
            Some(directory) if asked.from < memory_from => {
                self.read_disk(directory.clone(), (asked.from, memory_from.min(asked.to)), summing).await?
            }
            _ => summing,
        };
        let slow = board.slow_since(self.kept.lock().slow_seen, now).0;
        let seconds_from = seconds.first().map_or(TimeMs(u64::MAX), |moment| moment.at);
        summing.start(memory_from, self.run);
        for minute in &minutes {
            if minute.end.at < seconds_from {
                summing.moment(&minute.end);
            }
            if minute.end.at > asked.from && minute.from < asked.to {
                summing.minute(minute);
            }
        }
        seconds.iter().for_each(|moment| summing.moment(moment));
        summing.minute(&open);
        summing.slow(&slow);
        Ok(summing.periods())
    }

    async fn read_disk(
        &self,
        directory: PathBuf,
        (from, to): (TimeMs, TimeMs),
        mut summing: Summing,
    ) -> Result<Summing> {
        let reader = Arc::clone(&self.reader).try_acquire_owned().map_err(|_| {
            Error::new(ErrorKind::Busy, "another client reads the activity on the disk: try again later")
        })?;
        let read = tokio::task::spawn_blocking(move || {
            let _reader = reader;
            let read = journal::read(&directory, (from, to), &mut |minute| {
                summing.start(minute.from, minute.end.run);
                summing.moment(&minute.end);
                summing.minute(&minute);
            });
            read.map(|is_whole| (is_whole, summing))
        });
        let outcome = read.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        match outcome {
            Ok((is_whole, summing)) => {
                if !is_whole {
                    tracing::warn!("a file of the activity is damaged: what follows in it is left out");
                }
                Ok(summing)
            }
            Err(error) => Err(Error::new(
                ErrorKind::Unavailable,
                format!("cannot read the activity on the disk: {error}"),
            )),
        }
    }
}
