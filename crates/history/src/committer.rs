//! Makes batches durable: one thread writes all that wait, with one sync, applies them, and answers.
//!
//! Rows are visible to readers only once they are durable. Definitions of names go before the rows of a
//! commit group, see [`Names`](crate::names::Names).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use exacat_activity::CommitTimes;
use exacat_log::chain::RecordPlace;
use exacat_log::{COMMIT_GROUP_BYTES_MAX, Log};
use exacat_model::{Error, ErrorKind, Result, TimeMs};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::batch::{Batch, each_row};
use crate::group::Group;
use crate::item::Item;
use crate::limits::QUEUED_BYTES_MAX;

/// Work of the committer.
pub(crate) enum Work {
    /// Rows of a request.
    Rows(Batch),
    /// Definitions or settings, encoded, to be written as they are.
    Items(Vec<u8>),
}

/// Result of a wait for work.
enum Next {
    Work,
    /// Nothing came for a while.
    Idle,
    End,
}

/// Idle time before the log gets an end mark: from then on damage to the last commit group is
/// distinguishable from a power cut.
const MARK_IDLE: Duration = Duration::from_millis(100);

/// Outcome of some work, with the moments in the commit of its group.
pub(crate) type Answered = (Result<()>, CommitTimes);

/// Work with the place of its answer.
struct Waiting {
    work: Work,
    bytes: usize,
    reply: oneshot::Sender<Answered>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Waiting>,
    /// Reason why nothing more is written: the log failed.
    failed: Option<Arc<str>>,
    /// Nothing more is accepted; what waits is still written.
    closing: bool,
}

/// Batches that wait for the log.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    bytes: AtomicUsize,
}

/// The log, and the place after its last record.
pub(crate) struct Appender {
    pub log: Log,
    pub end: RecordPlace,
    /// Bytes of the records of one commit group.
    group: Vec<u8>,
    /// Place and length of the last commit group, until its end is noted beside the log.
    noted: Option<(exacat_log::LogPlace, usize)>,
}

/// Counters of the committer.
#[derive(Debug, Default)]
pub struct CommitMetrics {
    /// Rows made durable.
    pub rows: AtomicU64,
    /// Batches made durable.
    pub batches: AtomicU64,
    /// Commit groups, each with one sync.
    pub groups: AtomicU64,
    /// Bytes written to the log.
    pub log_bytes: AtomicU64,
    /// Microseconds in writes and syncs of the log.
    pub sync_us: AtomicU64,
    /// Microseconds in which the committer waited for a flush.
    pub stall_us: AtomicU64,
    /// Batches refused because too much waited.
    pub refused: AtomicU64,
}

impl CommitMetrics {
    fn group(&self, bytes: usize, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sync_us.fetch_add(us, Ordering::Relaxed);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

fn busy() -> Error {
    Error::new(ErrorKind::Busy, "the history has too much to write: send the batch again later")
}

impl Queue {
    /// Adds work; refused as busy if too much waits. Returns the place of the answer.
    pub(crate) fn add(&self, work: Work, metrics: &CommitMetrics) -> Result<oneshot::Receiver<Answered>> {
        let bytes = match &work {
            Work::Rows(batch) => batch.rows.len(),
            Work::Items(items) => items.len(),
        };
        // One batch is accepted whatever its size, so that a long one is not refused for ever.
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        if before > 0 && before + bytes > QUEUED_BYTES_MAX {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            metrics.refused.fetch_add(1, Ordering::Relaxed);
            return Err(busy());
        }
        let (reply, answer) = oneshot::channel();
        let mut state = self.state.lock();
        let refusal = match &state.failed {
            Some(why) => Some(why.to_string()),
            None => state.closing.then(|| "the history is being closed".to_owned()),
        };
        if let Some(why) = refusal {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        state.waiting.push_back(Waiting { work, bytes, reply });
        drop(state);
        self.changed.notify_one();
        Ok(answer)
    }

    /// Returns the bytes that wait or are being written.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Refuses all further work. The committer still writes what waits.
    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.changed.notify_all();
    }

    /// Refuses all further work, because the log failed.
    fn fail(&self, why: &str) {
        self.state.lock().failed.get_or_insert_with(|| why.into());
    }

    /// Returns the reason why the log failed.
    pub(crate) fn failed(&self) -> Option<Arc<str>> {
        self.state.lock().failed.clone()
    }

    /// Waits for work, and moves up to one commit group of it into `taken`. Without `mark_idle` it waits
    /// for ever.
    fn take(&self, taken: &mut Vec<Waiting>, mark_idle: Option<Duration>) -> Next {
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            if state.closing {
                return Next::End;
            }
            match mark_idle {
                None => self.changed.wait(&mut state),
                Some(idle) => {
                    if self.changed.wait_for(&mut state, idle).timed_out() && state.waiting.is_empty() {
                        return Next::Idle;
                    }
                }
            }
        }
        let mut bytes = 0;
        while let Some(next) = state.waiting.front()
            && (taken.is_empty() || bytes + next.bytes <= COMMIT_GROUP_BYTES_MAX)
        {
            bytes += next.bytes;
            taken.extend(state.waiting.pop_front());
        }
        Next::Work
    }
}

impl Appender {
    /// Appends at the end of a log.
    pub(crate) fn new(log: Log, end: RecordPlace) -> Self {
        Appender { log, end, group: Vec::new(), noted: None }
    }

    /// Begins a segment, unless the present one is empty: nothing is written any more to the files that
    /// have the records so far. Returns the last of these records.
    pub(crate) fn seal(&mut self, now: TimeMs) -> Result<RecordPlace> {
        if !self.log.is_empty() {
            self.log.roll(self.end.next_revision(), now.max(self.end.time), self.end.digest, 0)?;
        }
        Ok(self.end)
    }

    /// Writes the records of some work, and makes them durable. A refusal for lack of space has written
    /// nothing.
    fn write(&mut self, contents: &[Content], now: TimeMs) -> std::result::Result<usize, NotWritten> {
        let needed: usize = contents.iter().map(|content| RecordPlace::bytes_of(content.bytes.len())).sum();
        let time = now.max(self.end.time);
        let first = self.end.next_revision();
        if !self.log.fits(needed) {
            self.log.roll(first, time, self.end.digest, needed).map_err(NotWritten::Refused)?;
        }
        self.group.clear();
        let mut end = self.end;
        for content in contents {
            end = end.put(&mut self.group, self.log.salt(), time, &content.bytes);
        }
        let place = self.log.place(self.group.len());
        let failed = |error| {
            let what =
                format!("the log of the history could not be written, so the outcome is unknown: {error}");
            NotWritten::Failed(Error::new(ErrorKind::Unknown, what))
        };
        place.write(&self.group, first).map_err(failed)?;
        self.end = end;
        self.noted = Some((place, self.group.len()));
        Ok(self.group.len())
    }
}

/// Applies durable rows to the memory of their group.
pub(crate) fn apply(group: &Group, rows: &[u8]) {
    let names = group.names.read();
    let mut memory = group.rows.write();
    let active = Arc::clone(&memory.active);
    let mut active = active.write();
    each_row(rows, |row, bytes| {
        active.push(&row, bytes);
        memory.latest.apply(&row, &*names);
    });
}

/// Reasons why a commit group is not written.
enum NotWritten {
    /// There is no space for it. Nothing was written, and the log goes on.
    Refused(Error),
    /// A write or a sync failed. Nobody knows what is on the disk.
    Failed(Error),
}

/// Content of a record.
struct Content {
    bytes: Vec<u8>,
    /// Bytes at its start that define names.
    definitions: usize,
}

/// Writes one commit group, and answers. False at the end.
pub(crate) fn commit_once(
    queue: &Queue,
    appender: &Mutex<Appender>,
    metrics: &CommitMetrics,
    now: &dyn Fn() -> TimeMs,
    taken: &mut Taken,
    applied: &dyn Fn(&Appender, usize),
) -> bool {
    let mark_idle = (!taken.is_marked).then_some(MARK_IDLE);
    match queue.take(&mut taken.waiting, mark_idle) {
        Next::End => return false,
        Next::Work => {}
        Next::Idle => {
            taken.is_marked = true;
            // A mark says that everything before it is durable, which nobody knows after a failure.
            if queue.failed().is_some() {
                return true;
            }
            let mut appender = appender.lock();
            let last = appender.end.revision;
            if let Err(error) = appender.log.mark(last) {
                queue.fail(&format!("the log of the history could not be marked: {error}"));
                tracing::error!(%error, "the history takes no more values until it is opened again");
            }
            return true;
        }
    }
    let mut times = CommitTimes { stalled: taken.stalled, ..CommitTimes::at(Instant::now()) };
    taken.is_marked = false;
    taken.contents.clear();
    taken.contents.extend(taken.waiting.iter().map(|waiting| content_of(&waiting.work)));
    times.decided = Instant::now();
    // The lock is held until the rows are applied: a flush sees the memory of exactly one place in the log.
    let mut appender = appender.lock();
    times.written = Instant::now();
    let written = match queue.failed() {
        Some(why) => Err(NotWritten::Refused(Error::new(ErrorKind::Unavailable, why.to_string()))),
        None => appender.write(&taken.contents, now()),
    };
    times.durable = Instant::now();
    if let Ok(bytes) = &written {
        metrics.group(*bytes, times.durable - times.written);
        let mut row_bytes = 0;
        for waiting in &taken.waiting {
            if let Work::Rows(batch) = &waiting.work {
                apply(&batch.group, &batch.rows);
                metrics.rows.fetch_add(u64::from(batch.count), Ordering::Relaxed);
                metrics.batches.fetch_add(1, Ordering::Relaxed);
                row_bytes += batch.rows.len();
            }
        }
        applied(&appender, row_bytes);
    }
    times.applied = Instant::now();
    let (end, noted) = (appender.end.revision, appender.noted.take());
    drop(appender);
    let outcome = match written {
        Ok(_) => Ok(()),
        Err(NotWritten::Refused(error)) => {
            // The names have numbers already, and the next rows may use them.
            give_back(taken);
            Err(error)
        }
        Err(NotWritten::Failed(error)) => {
            // After a failed sync nothing more is acknowledged.
            queue.fail(&error.message);
            tracing::error!(%error, "the history takes no more values until it is opened again");
            Err(error)
        }
    };
    for waiting in taken.waiting.drain(..) {
        queue.bytes.fetch_sub(waiting.bytes, Ordering::AcqRel);
        let _gone = waiting.reply.send((outcome.clone(), times));
    }
    if let Some((place, bytes)) = noted {
        // Evidence of the log's end, after the answers, so that it delays none.
        place.note_durable(bytes, end, MARK_IDLE);
    }
    true
}

/// Returns the content of a record: the definitions that its group's names wait with, and the work.
fn content_of(work: &Work) -> Content {
    match work {
        Work::Rows(batch) => {
            let mut bytes = Vec::with_capacity(batch.rows.len() + 32);
            // The names of the rows were defined before the batch came here: they are pending, or written.
            // Most batches have known names only, and must not wait for the readers of these.
            if batch.group.names.read().has_pending() {
                batch.group.names.write().take_pending(&mut bytes);
            }
            let definitions = bytes.len();
            let (group, count, rows) = (batch.group.id, batch.count, batch.rows.as_slice());
            Item::Rows { group, count, bytes: rows }.encode(&mut bytes);
            Content { bytes, definitions }
        }
        Work::Items(items) => Content { bytes: items.clone(), definitions: 0 },
    }
}

/// Makes definitions pending again that were not written.
fn give_back(taken: &Taken) {
    for (waiting, content) in taken.waiting.iter().zip(&taken.contents).rev() {
        if let Work::Rows(batch) = &waiting.work {
            batch.group.names.write().give_back(&content.bytes[..content.definitions]);
        }
    }
}

/// Work that the committer took, and the content of its records. Kept, so that its memory is reused.
pub(crate) struct Taken {
    /// True if the log ends with a mark.
    pub is_marked: bool,
    /// End of the last wait for a flush, and its duration.
    pub stalled: Option<(Instant, Duration)>,
    waiting: Vec<Waiting>,
    contents: Vec<Content>,
}

impl Taken {
    pub(crate) fn new(is_marked: bool) -> Self {
        Taken { is_marked, stalled: None, waiting: Vec::new(), contents: Vec::new() }
    }
}
