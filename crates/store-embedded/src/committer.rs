//! The committer: makes commit groups durable, one after the other, and answers their requests.
//!
//! It has its own thread, so that the writer decides the next group while this one is written and
//! synced. At most one group is on its way to the disk. A power cut can therefore tear only the
//! last group, as if there were no such thread. The writer itself commits a short group while the
//! committer is idle: waking a thread takes longer than the sync.
//!
//! Each group proves that the group before it was durable. An end mark proves it for the last
//! group: after some idle time this thread asks the writer for one. Under load there are no marks.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use exacat_activity::CommitTimes;
use exacat_log::{COMMIT_GROUP_BYTES_MAX, LogPlace};
use exacat_model::{Error, ErrorKind, Revision};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::mpsc;

use crate::answering::{Answering, Answers, Waiting};
use crate::command::Command;
use crate::shared::Shared;

/// A commit group: records that become durable together.
#[derive(Default)]
pub(crate) struct CommitGroup {
    /// Encoded records; empty if nothing was changed.
    pub bytes: Vec<u8>,
    /// Revision of the first change.
    pub first_revision: Revision,
    /// Revision of the last change.
    pub last_revision: Revision,
    pub waiting: Vec<Waiting>,
    /// Number of requests in the group.
    pub requests: usize,
    /// End of the last wait of the writer for compaction, and its duration.
    pub stalled: Option<(Instant, Duration)>,
}

/// A group with its position in the log.
struct CommitJob {
    group: CommitGroup,
    place: LogPlace,
    /// Time at which the writer had decided it.
    decided: Instant,
}

/// State shared by the writer and the committer thread.
struct CommitQueue {
    job: Mutex<CommitSlot>,
    changed: Condvar,
}

#[derive(Default)]
struct CommitSlot {
    next: Option<CommitJob>,
    /// Set while the thread commits a group.
    busy: bool,
    /// Set once no more groups will come, or the thread is gone.
    ended: bool,
    /// Emptied group of an earlier commit, for reuse.
    spare: Option<CommitGroup>,
    /// Set while the writer commits a group itself.
    at_once: bool,
    /// Time of the last commit without an end mark behind it.
    unmarked: Option<Instant>,
}

/// Settings of the end mark.
pub(crate) struct Marking {
    /// Idle time without a commit before the mark is written.
    pub idle: Duration,
    /// Queue to the writer that writes the mark; does not keep the writer alive.
    pub writer: mpsc::WeakSender<Command>,
}

/// Handle of the writer on the committer thread.
pub(crate) struct Committer {
    queue: Arc<CommitQueue>,
    shared: Arc<Shared>,
    /// Answers that wait for standbys.
    answering: Option<Arc<Answering>>,
    /// Length below which the writer commits a group itself.
    at_once_bytes: usize,
    /// Minimum time between two notes in `END` on how far the log is durable.
    every: Duration,
    thread: Option<JoinHandle<()>>,
}

/// Guard that releases every waiter, however the thread ends.
struct Leaving<'a>(&'a CommitQueue, &'a Shared);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut slot = self.0.job.lock();
        if slot.busy || !slot.ended {
            // The thread panicked, which is a defect. Its group stays unanswered, and those callers
            // see an unknown outcome.
            self.1.close("internal error: the committer of the log ended");
        }
        (slot.ended, slot.busy, slot.next) = (true, false, None);
        self.0.changed.notify_all();
    }
}

impl Committer {
    pub(crate) fn start(shared: Arc<Shared>, at_once_bytes: usize, marking: Marking) -> Result<Self, Error> {
        let queue = Arc::new(CommitQueue { job: Mutex::default(), changed: Condvar::new() });
        let every = marking.idle;
        let answering = Answering::start(&shared)?.map(Arc::new);
        let (its_queue, its_shared) = (Arc::clone(&queue), Arc::clone(&shared));
        let its_answering = answering.clone();
        let thread = std::thread::Builder::new()
            .name("exacat-commit".to_owned())
            .spawn(move || {
                let leaving = Leaving(&its_queue, &its_shared);
                work(leaving.0, leaving.1, its_answering.as_deref(), &marking);
            })
            .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread for the log: {error}")))?;
        Ok(Committer { queue, shared, answering, at_once_bytes, every, thread: Some(thread) })
    }

    /// Commits a group and returns an empty one to fill next. The group may still be in flight or
    /// queued when this returns.
    pub(crate) fn commit(&self, group: CommitGroup, place: LogPlace) -> CommitGroup {
        let decided = Instant::now();
        let mut slot = self.queue.job.lock();
        if !group.bytes.is_empty() && slot.unmarked.replace(decided).is_none() {
            // Wakes the thread, which now starts to watch the idle time.
            self.queue.changed.notify_all();
        }
        let at_once = !slot.busy && slot.next.is_none() && group.bytes.len() < self.at_once_bytes;
        // One group may wait behind the one in flight. Several in flight could leave a hole in the
        // log before an answered change (decision 0017).
        if !at_once {
            self.queue.changed.wait_while(&mut slot, |slot| slot.next.is_some() && !slot.ended);
        }
        if at_once || slot.ended {
            // Either the group is short, or the thread is gone. In the second case nothing can be
            // written, and `commit` tells the callers why.
            slot.at_once = true;
            drop(slot);
            let job = CommitJob { group, place, decided };
            let spare = commit(&self.shared, self.answering.as_deref(), job, self.every);
            let mut slot = self.queue.job.lock();
            slot.at_once = false;
            slot.unmarked = slot.unmarked.map(|_| Instant::now());
            return spare;
        }
        slot.next = Some(CommitJob { group, place, decided });
        self.queue.changed.notify_all();
        slot.spare.take().unwrap_or_default()
    }

    /// Sets whether the log ended with a mark when the store was opened.
    pub(crate) fn set_marked(&self, is_marked: bool) {
        self.queue.job.lock().unmarked = if is_marked { None } else { Some(Instant::now()) };
        self.queue.changed.notify_all();
    }

    /// Waits until no group is in flight or queued.
    pub(crate) fn wait_until_durable(&self) {
        let mut slot = self.queue.job.lock();
        self.queue.changed.wait_while(&mut slot, |slot| slot.busy || slot.next.is_some());
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue.job.lock().ended = true;
        self.queue.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the committer of the log panicked");
        }
    }
}

/// Body of the committer thread. It still commits what was queued before the end.
fn work(queue: &CommitQueue, shared: &Shared, answering: Option<&Answering>, marking: &Marking) {
    let mut slot = queue.job.lock();
    loop {
        let is_due = wait(queue, &mut slot, marking.idle);
        if is_due {
            slot.unmarked = None;
            // The writer may be waiting for this lock, so it is released first. A writer with a
            // full queue is not idle, and a later commit asks again.
            drop(slot);
            if let Some(writer) = marking.writer.upgrade() {
                let _later = writer.try_send(Command::Mark { reply: None });
            }
            slot = queue.job.lock();
            continue;
        }
        let Some(job) = slot.next.take() else { return };
        slot.busy = true;
        queue.changed.notify_all();
        drop(slot);
        let spare = commit(shared, answering, job, marking.idle);
        if shared.durability.ended().is_some()
            && let Some(writer) = marking.writer.upgrade()
        {
            // The command makes the writer notice that the log failed. A writer with a full queue
            // notices without it.
            let _later = writer.try_send(Command::Mark { reply: None });
        }
        slot = queue.job.lock();
        slot.busy = false;
        slot.unmarked = slot.unmarked.map(|_| Instant::now());
        slot.spare = Some(spare);
        queue.changed.notify_all();
    }
}

/// Waits for a group, for the end, or until `idle` passed without a commit. True in the last case.
fn wait(queue: &CommitQueue, slot: &mut MutexGuard<'_, CommitSlot>, idle: Duration) -> bool {
    loop {
        if slot.next.is_some() || slot.ended {
            return false;
        }
        match slot.unmarked.and_then(|since| since.checked_add(idle)) {
            None => queue.changed.wait(slot),
            // A slow sync is not idle time.
            Some(_) if slot.at_once => drop(queue.changed.wait_for(slot, idle)),
            Some(due) if due <= Instant::now() => return true,
            Some(due) => drop(queue.changed.wait_until(slot, due)),
        }
    }
}

/// Makes a group durable and answers its requests. Returns the emptied group for reuse.
fn commit(shared: &Shared, answering: Option<&Answering>, job: CommitJob, every: Duration) -> CommitGroup {
    let CommitJob { mut group, place, decided } = job;
    let written = Instant::now();
    let mut changes = 0;
    if !group.bytes.is_empty() && shared.durability.ended().is_none() {
        match place.write(&group.bytes, group.first_revision) {
            Ok(()) => {
                changes = group.last_revision.0 + 1 - group.first_revision.0;
                shared.metrics.group(group.requests, group.bytes.len(), written.elapsed());
                match answering {
                    // Followers can fetch it from now on. Others see it once standbys have it.
                    Some(_) => shared.durability.write(group.last_revision),
                    None => shared.durable(group.last_revision, changes),
                }
            }
            Err(error) => shared.fail(&format!("the log could not be written: {error}")),
        }
    }
    let failure = shared.durability.ended();
    let times = CommitTimes { stalled: group.stalled, decided, written, ..CommitTimes::at(Instant::now()) };
    let mut answers = Answers { waiting: std::mem::take(&mut group.waiting), changes, times };
    match answering {
        Some(answering) if failure.is_none() => answering.later(answers),
        _ => {
            answers.give(failure.as_deref());
            group.waiting = answers.waiting;
        }
    }
    if changes > 0 {
        // Evidence in `END`, written after the answers so that it delays none. It has no sync: it
        // survives the end of the process (decision 0046).
        place.note_durable(group.bytes.len(), group.last_revision, every);
    }
    group.requests = 0;
    group.stalled = None;
    group.bytes.clear();
    // One large group should not hold its memory for ever.
    if group.bytes.capacity() > 4 * COMMIT_GROUP_BYTES_MAX {
        group.bytes.shrink_to(COMMIT_GROUP_BYTES_MAX);
    }
    group
}
