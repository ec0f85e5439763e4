//! A stream of events, for its caller.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use exacat_writer::{NotAppended, Position};

use crate::error::{Error, Result};
use crate::outcome::{FileOutcome, Outcome};
use crate::shared::Shared;
use crate::stream_state::StreamState;

/// Longest wait for memory before the caller looks whether the writer is closed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A stream. Several threads may append to it at once; each event is whole, and those of one thread are in
/// its order.
///
/// Dropping it ends its file. The writer goes on to make it durable and certified.
pub struct Stream {
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: Arc<StreamState>,
}

impl Stream {
    /// Appends an event of 1 byte to 16 MiB. Waits while the memory of the writer is full, at most for the
    /// time of its settings. After an error the event is not in the stream.
    pub fn append(&self, event: &[u8]) -> Result<()> {
        self.append_within(event, self.shared.settings.append_timeout)
    }

    /// Appends an event, and waits at most so long for memory.
    pub fn append_within(&self, event: &[u8], time: Duration) -> Result<()> {
        let mut until = None;
        loop {
            let generation = self.shared.memory.generation();
            if self.put(event)? {
                return Ok(());
            }
            let now = Instant::now();
            let left = until.get_or_insert(now + time).saturating_duration_since(now);
            if left.is_zero() {
                let memory_bytes = self.shared.memory.bytes_max();
                return Err(Error::MemoryFull { waited: time, memory_bytes });
            }
            self.shared.memory.wait_for_room(generation, left.min(LOOK_EVERY));
        }
    }

    /// Appends an event if there is memory for it now. False if there is none: the event is shed, and
    /// counted.
    pub fn try_append(&self, event: &[u8]) -> Result<bool> {
        let is_kept = self.put(event)?;
        if !is_kept {
            self.state.shed_events.fetch_add(1, Ordering::Relaxed);
            self.state.shed_bytes.fetch_add(event.len() as u64, Ordering::Relaxed);
        }
        Ok(is_kept)
    }

    /// Appends an event. False if there is no memory for it.
    fn put(&self, event: &[u8]) -> Result<bool> {
        let mut packer = self.state.packer.lock();
        self.check_open()?;
        let outcome = packer.append(event, self.shared.recent());
        if matches!(outcome, Err(NotAppended::Full)) {
            // Nothing that is kept back may be what fills the memory.
            packer.give_way();
        }
        self.shared.hand_over(&self.state, &mut packer);
        match outcome {
            Ok(_) => Ok(true),
            Err(NotAppended::Full) => Ok(false),
            Err(NotAppended::Empty) => Err(Error::EmptyEvent),
            Err(NotAppended::TooLarge) => {
                Err(Error::EventTooLarge { bytes: event.len(), most: packer.event_bytes_max() })
            }
            Err(NotAppended::FileEnded) => Err(Error::FileEnded),
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.state.is_closed.load(Ordering::Acquire) {
            return Err(Error::Closed("stream"));
        }
        if self.shared.is_closed.load(Ordering::Acquire) {
            return Err(Error::Closed("writer"));
        }
        Ok(())
    }

    /// Waits until everything that was appended before is on disk, at most for the time of the settings.
    pub fn flush(&self) -> Result<()> {
        self.flush_within(self.shared.settings.flush_timeout)
    }

    /// Waits until everything that was appended before is on disk, at most so long.
    pub fn flush_within(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        let wanted = {
            let mut packer = self.state.packer.lock();
            self.check_open()?;
            packer.flush();
            self.shared.hand_over(&self.state, &mut packer);
            packer.appended()
        };
        let mut through = Position::default();
        let settled = self.state.wait(until, |progress| {
            through = progress.settled.through;
            if through.bytes >= wanted.bytes {
                let lost = progress.take_lost();
                return Some(
                    lost.map_or(Ok(()), |lost| Err(Error::Lost { lost, reason: progress.failure.clone() })),
                );
            }
            self.shared.is_over.load(Ordering::Acquire).then_some(Err(Error::Closed("writer")))
        });
        settled.unwrap_or(Err(Error::FlushTimeout {
            waited: time,
            left_bytes: wanted.bytes.saturating_sub(through.bytes),
            left_events: wanted.events.saturating_sub(through.events),
        }))
    }

    /// Ends the present file. The next event begins another.
    pub fn end_file(&self) -> Result<()> {
        let mut packer = self.state.packer.lock();
        self.check_open()?;
        packer.end_file();
        self.shared.hand_over(&self.state, &mut packer);
        Ok(())
    }

    /// Returns how much was appended, and how much of that is settled: durable, or lost with a file that
    /// failed.
    pub fn positions(&self) -> (Position, Position) {
        let appended = self.state.packer.lock().appended();
        (appended, self.state.progress.lock().settled.through)
    }

    /// Returns the number of events and bytes that were shed.
    pub fn shed(&self) -> Position {
        self.state.shed()
    }

    /// Takes the outcomes of files that have ended, in the order of the files. A long-lived stream does so
    /// now and then: of more than 4096 the oldest are dropped.
    pub fn take_outcomes(&self) -> Vec<FileOutcome> {
        self.state.progress.lock().take_outcomes()
    }

    /// Ends the stream, and waits for the certificates of its files, at most for the time of the settings.
    /// Returns the outcomes that were not taken yet, in the order of the files. A file without one is
    /// unknown, not failed.
    pub fn close(&self) -> Vec<FileOutcome> {
        self.close_within(self.shared.settings.close_timeout)
    }

    /// Ends the stream, and waits at most so long for the certificates of its files.
    pub fn close_within(&self, time: Duration) -> Vec<FileOutcome> {
        end(&self.shared, &self.state);
        finish(&self.shared, &self.state, Instant::now() + time)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        end(&self.shared, &self.state);
        self.shared.forget_ended(&self.state);
    }
}

/// Ends the file of a stream, and takes no more events.
pub(crate) fn end(shared: &Shared, state: &StreamState) {
    let mut packer = state.packer.lock();
    state.is_closed.store(true, Ordering::Release);
    packer.end_file();
    shared.hand_over(state, &mut packer);
}

/// Waits for the ends of a stream's files, and returns their outcomes.
pub(crate) fn finish(shared: &Shared, state: &StreamState, until: Instant) -> Vec<FileOutcome> {
    state.wait(until, |progress| {
        let is_over = progress.files.is_empty() || shared.is_over.load(Ordering::Acquire);
        is_over.then_some(())
    });
    let (mut outcomes, left) = {
        let mut progress = state.progress.lock();
        (progress.take_outcomes(), progress.files.clone())
    };
    if !left.is_empty() {
        let uncertified = shared.producer.lock().uncertified();
        for (file, (number, lfn)) in left {
            let reason = uncertified.iter().find(|of| of.file == file).map(|of| of.reason.clone());
            let reason = reason.unwrap_or_else(|| "its outcome is on its way".to_owned());
            outcomes.push(FileOutcome { file, number, lfn, outcome: Outcome::Unknown { reason } });
        }
        outcomes.sort_by_key(|of| of.number);
    }
    shared.forget_ended(state);
    outcomes
}
