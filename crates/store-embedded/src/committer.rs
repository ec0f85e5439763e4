//! The committer: makes groups of records durable and answers those who wait for them, one group after the other.
//!
//! It has a thread of its own, so that the next group is decided while one is written and synced. There is never more
//! than one group on its way to the disk: what a power cut may tear is the last group, as if there were no such thread.
//! A short group, when nothing is on its way, is committed by the thread that made it: waking another takes longer
//! than the sync.
//!
//! Each group proves by being there that the one before it was durable. Behind the last one a mark
//! does: when nothing was committed for a while, this thread asks the writer for it. Under load
//! there are no marks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use exacat_model::{Error, ErrorKind, Revision};
use exacat_store::{ApplyError, Outcome};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::log::Place;
use crate::settings::GROUP_BYTES_MAX;
use crate::store::Shared;
use crate::writer::Command;

/// What came of a request.
pub(crate) type Answered = Result<Vec<Outcome>, ApplyError>;

/// Answers to requests that came together, which wait for their group to be durable.
pub(crate) struct Waiting {
    pub reply: oneshot::Sender<Vec<Answered>>,
    pub answers: Vec<Answered>,
    pub _permit: OwnedSemaphorePermit,
}

/// What is to become durable together.
#[derive(Default)]
pub(crate) struct Group {
    /// Records; none if nothing was changed.
    pub bytes: Vec<u8>,
    /// Of the first record.
    pub first_revision: Revision,
    /// Of the last change.
    pub last_revision: Revision,
    pub waiting: Vec<Waiting>,
    /// Requests in it.
    pub requests: usize,
}

/// A group with its place in the log.
struct Job {
    group: Group,
    place: Place,
}

/// What the two threads share.
struct Desk {
    job: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Default)]
struct Slot {
    next: Option<Job>,
    /// The thread is at work on a group.
    busy: bool,
    /// Nothing more will come, or the thread is gone.
    ended: bool,
    /// Of a group that is done, to be used again.
    spare: Option<Group>,
    /// The writer commits a group itself.
    at_once: bool,
    /// Time of the last commit that no mark follows.
    unmarked: Option<Instant>,
}

/// Settings of the mark at the end of the log.
pub(crate) struct Marking {
    /// After so long without a commit.
    pub idle: Duration,
    /// Asks the writer, unless that is gone.
    pub writer: mpsc::WeakSender<Command>,
}

/// The thread, seen by the writer.
pub(crate) struct Committer {
    desk: Arc<Desk>,
    shared: Arc<Shared>,
    /// Shorter groups are committed by who made them.
    at_once_bytes: usize,
    /// Time between two notes outside of the log on how far it is durable.
    every: Duration,
    thread: Option<JoinHandle<()>>,
}

/// However the thread ends, nobody may wait for it.
struct Leaving<'a>(&'a Desk, &'a Shared);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut slot = self.0.job.lock();
        if slot.busy || !slot.ended {
            // It panicked, which is a defect: what it had is not answered, and those who asked see that as unknown.
            self.1.close("the committer of the log ended by a defect");
        }
        (slot.ended, slot.busy, slot.next) = (true, false, None);
        self.0.changed.notify_all();
    }
}

impl Committer {
    pub fn start(shared: Arc<Shared>, at_once_bytes: usize, marking: Marking) -> Result<Self, Error> {
        let desk = Arc::new(Desk { job: Mutex::default(), changed: Condvar::new() });
        let every = marking.idle;
        let (its_desk, its_shared) = (Arc::clone(&desk), Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("exacat-commit".to_owned())
            .spawn(move || {
                let leaving = Leaving(&its_desk, &its_shared);
                work(leaving.0, leaving.1, &marking);
            })
            .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread for the log: {error}")))?;
        Ok(Committer { desk, shared, at_once_bytes, every, thread: Some(thread) })
    }

    /// Commits a group; gives one that can be filled next. When this returns the group may be on its way still, or wait
    /// behind the one that is.
    pub fn commit(&self, group: Group, place: Place) -> Group {
        let mut slot = self.desk.job.lock();
        if !group.bytes.is_empty() && slot.unmarked.replace(Instant::now()).is_none() {
            // From now on the thread looks at the clock.
            self.desk.changed.notify_all();
        }
        let at_once = !slot.busy && slot.next.is_none() && group.bytes.len() < self.at_once_bytes;
        if !at_once {
            self.desk.changed.wait_while(&mut slot, |slot| slot.next.is_some() && !slot.ended);
        }
        if at_once || slot.ended {
            // If the thread is gone nothing can be written, and those who wait are told why.
            slot.at_once = true;
            drop(slot);
            let spare = commit(&self.shared, Job { group, place }, self.every);
            let mut slot = self.desk.job.lock();
            slot.at_once = false;
            slot.unmarked = slot.unmarked.map(|_| Instant::now());
            return spare;
        }
        slot.next = Some(Job { group, place });
        self.desk.changed.notify_all();
        slot.spare.take().unwrap_or_default()
    }

    /// The end of the log has a mark, or needs one, because of what was there when the store was
    /// opened.
    pub fn set_marked(&self, is_marked: bool) {
        self.desk.job.lock().unmarked = if is_marked { None } else { Some(Instant::now()) };
        self.desk.changed.notify_all();
    }

    /// Returns once nothing is on its way.
    pub fn settle(&self) {
        let mut slot = self.desk.job.lock();
        self.desk.changed.wait_while(&mut slot, |slot| slot.busy || slot.next.is_some());
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.desk.job.lock().ended = true;
        self.desk.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the committer of the log panicked");
        }
    }
}

/// The thread: what was handed over before the end is still committed.
fn work(desk: &Desk, shared: &Shared, marking: &Marking) {
    let mut slot = desk.job.lock();
    loop {
        let is_due = wait(desk, &mut slot, marking.idle);
        if is_due {
            slot.unmarked = None;
            // The writer may be waiting for this lock. If its queue is full it is not idle, and a
            // later commit asks again.
            drop(slot);
            if let Some(writer) = marking.writer.upgrade() {
                let _later = writer.try_send(Command::Mark { reply: None });
            }
            slot = desk.job.lock();
            continue;
        }
        let Some(job) = slot.next.take() else { return };
        slot.busy = true;
        desk.changed.notify_all();
        drop(slot);
        let spare = commit(shared, job, marking.idle);
        if shared.durability.ended().is_some()
            && let Some(writer) = marking.writer.upgrade()
        {
            // It finds out that the log failed. If its queue is full it does so without this.
            let _later = writer.try_send(Command::Mark { reply: None });
        }
        slot = desk.job.lock();
        slot.busy = false;
        slot.unmarked = slot.unmarked.map(|_| Instant::now());
        slot.spare = Some(spare);
        desk.changed.notify_all();
    }
}

/// Waits for a group, for the end, or until nothing was committed for so long; true in the last
/// case.
fn wait(desk: &Desk, slot: &mut MutexGuard<'_, Slot>, idle: Duration) -> bool {
    loop {
        if slot.next.is_some() || slot.ended {
            return false;
        }
        match slot.unmarked.and_then(|since| since.checked_add(idle)) {
            None => desk.changed.wait(slot),
            // A sync that takes long is no idleness.
            Some(_) if slot.at_once => drop(desk.changed.wait_for(slot, idle)),
            Some(due) if due <= Instant::now() => return true,
            Some(due) => drop(desk.changed.wait_until(slot, due)),
        }
    }
}

/// Makes a group durable and answers everyone in it; gives what can be used again.
fn commit(shared: &Shared, job: Job, every: Duration) -> Group {
    let Job { mut group, place } = job;
    if !group.bytes.is_empty() && shared.durability.ended().is_none() {
        let begun = Instant::now();
        match place.write(&group.bytes, group.first_revision) {
            Ok(()) => {
                shared.durability.advance(group.last_revision);
                let changes = group.last_revision.0 + 1 - group.first_revision.0;
                shared.figures.changes.fetch_add(changes, Ordering::Relaxed);
                shared.figures.group(group.requests, group.bytes.len(), begun.elapsed());
            }
            Err(error) => shared.fail(&format!("the log could not be written: {error}")),
        }
    }
    // Also who changed nothing may have been told so because of a change that is not durable.
    let failure = shared.durability.ended();
    for Waiting { reply, mut answers, _permit } in group.waiting.drain(..) {
        if let Some(why) = &failure {
            for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
                *answer = Err(ApplyError::Unknown(why.to_string()));
            }
        }
        let _gone = reply.send(answers);
    }
    if !group.bytes.is_empty() && failure.is_none() {
        place.note_durable(group.bytes.len(), group.last_revision, every);
    }
    group.requests = 0;
    group.bytes.clear();
    if group.bytes.capacity() > 4 * GROUP_BYTES_MAX {
        group.bytes.shrink_to(GROUP_BYTES_MAX);
    }
    group
}
