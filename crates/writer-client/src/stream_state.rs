//! State of a stream that its caller and the driver share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_wire::writer::FileId;
use exacat_writer::{Closed, Packer, Position, Settled};
use parking_lot::{Condvar, Mutex};

use crate::outcome::{FileOutcome, OUTCOMES_MAX, Outcome};

/// Fate of what was appended, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub settled: Settled,
    /// Losses that the caller knows.
    pub told_lost: Position,
    /// Reason of the last failure of a file.
    pub failure: String,
    /// Files that have not ended at their services: number in the stream, and name.
    pub files: BTreeMap<FileId, (u64, String)>,
    /// Files that were begun.
    begun: u64,
    /// Ends of files that the caller has not taken.
    pub outcomes: VecDeque<FileOutcome>,
    /// Outcomes that nobody took in time.
    pub dropped: u64,
    /// Chunks that are not settled: place behind each, and the time at which it was full.
    waiting: VecDeque<(u64, Instant)>,
    /// Place behind the last chunk.
    packed_bytes: u64,
}

impl Progress {
    /// Notes that a chunk of so many bytes is on its way.
    pub(crate) fn chunk_packed(&mut self, bytes: usize, now: Instant) {
        self.packed_bytes += bytes as u64;
        self.waiting.push_back((self.packed_bytes, now));
    }

    /// Takes the next chunk that is settled, and returns the time that it took.
    pub(crate) fn next_latency(&mut self, now: Instant) -> Option<Duration> {
        let through = self.settled.through.bytes;
        let (_, since) = self.waiting.pop_front_if(|(end, _)| *end <= through)?;
        Some(now.saturating_duration_since(since))
    }

    /// Takes the losses that the caller does not know.
    pub(crate) fn take_lost(&mut self) -> Option<Position> {
        let lost = self.settled.lost;
        let new = Position {
            bytes: lost.bytes - self.told_lost.bytes,
            events: lost.events - self.told_lost.events,
        };
        self.told_lost = lost;
        (new != Position::default()).then_some(new)
    }

    /// Notes the begin of a file.
    pub(crate) fn file_begun(&mut self, file: FileId, lfn: String) {
        self.files.insert(file, (self.begun, lfn));
        self.begun += 1;
    }

    /// Takes the outcomes, in the order of the files.
    pub(crate) fn take_outcomes(&mut self) -> Vec<FileOutcome> {
        let mut outcomes: Vec<FileOutcome> = self.outcomes.drain(..).collect();
        outcomes.sort_by_key(|of| of.number);
        outcomes
    }

    /// Notes the end of a file.
    pub(crate) fn file_ended(&mut self, file: FileId, closed: Closed) {
        let (number, lfn) = self.files.remove(&file).unwrap_or_default();
        if let Closed::Failed(reason) = &closed {
            tracing::error!(%file, lfn, reason, "a file has failed: its events that are not in the catalogue are lost");
            self.failure.clone_from(reason);
        }
        if self.outcomes.len() >= OUTCOMES_MAX {
            self.outcomes.pop_front();
            self.dropped += 1;
        }
        self.outcomes.push_back(FileOutcome { file, number, lfn, outcome: Outcome::from(closed) });
    }
}

/// A stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub number: u32,
    pub packer: Mutex<Packer>,
    pub progress: Mutex<Progress>,
    /// Notified when the progress changes.
    pub changed: Condvar,
    pub shed_events: AtomicU64,
    pub shed_bytes: AtomicU64,
    pub is_closed: AtomicBool,
}

impl StreamState {
    pub(crate) fn new(number: u32, packer: Packer) -> Self {
        StreamState {
            number,
            packer: Mutex::new(packer),
            progress: Mutex::default(),
            changed: Condvar::new(),
            shed_events: AtomicU64::new(0),
            shed_bytes: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns the number of events and bytes that were shed.
    pub(crate) fn shed(&self) -> Position {
        Position {
            bytes: self.shed_bytes.load(Ordering::Relaxed),
            events: self.shed_events.load(Ordering::Relaxed),
        }
    }

    /// Waits until the progress is as wanted, at most until a time. Returns the last answer.
    pub(crate) fn wait<T>(
        &self,
        until: Instant,
        mut look: impl FnMut(&mut Progress) -> Option<T>,
    ) -> Option<T> {
        let mut progress = self.progress.lock();
        loop {
            if let Some(answer) = look(&mut progress) {
                return Some(answer);
            }
            if self.changed.wait_until(&mut progress, until).timed_out() {
                return look(&mut progress);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: outcomes come in the order of the files, whatever the order in which the files end.
    #[test]
    fn outcomes_come_in_the_order_of_the_files() {
        let mut progress = Progress::default();
        let ids = [9_u8, 3, 7, 1].map(|byte| FileId([byte; 16]));
        for (number, id) in ids.iter().enumerate() {
            progress.file_begun(*id, format!("/f.{number}"));
        }
        for ended in [2, 0, 3, 1] {
            progress.file_ended(ids[ended], Closed::Failed("disk".to_owned()));
        }
        let names: Vec<String> = progress.take_outcomes().into_iter().map(|of| of.lfn).collect();
        assert_eq!(names, ["/f.0", "/f.1", "/f.2", "/f.3"]);
        assert!(progress.files.is_empty() && progress.take_outcomes().is_empty());
    }
}
