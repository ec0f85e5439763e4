//! Answers to requests whose group is durable here, after enough standbys have it too.
//!
//! The committer goes on with the next group meanwhile, so the log can be written, read and copied while
//! answers wait. What they may fill is bounded: each holds its part of the bytes of requests until then.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use exacat_activity::CommitTimes;
use exacat_model::{Error, ErrorKind, Revision};
use exacat_store::ApplyError;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::command::{Answered, Replies};
use crate::shared::Shared;
use crate::standbys::{Awaited, LATE};

/// Answers to requests that came together and wait until their group is durable.
pub(crate) struct Waiting {
    pub reply: oneshot::Sender<Replies>,
    pub answers: Vec<Answered>,
    /// Time at which the writer took them up.
    pub taken: Instant,
    pub _permit: OwnedSemaphorePermit,
}

/// Answers of a commit group that was written.
pub(crate) struct Answers {
    pub waiting: Vec<Waiting>,
    /// Number of changes.
    pub changes: u64,
    /// Moments in its commit; the writer took each of the answers up at another one.
    pub times: CommitTimes,
}

impl Answers {
    /// Sends the answers. After a failure their outcome is unknown: even an answer without changes may rest
    /// on a change that is not durable.
    pub(crate) fn give(&mut self, failure: Option<&str>) {
        for Waiting { reply, mut answers, taken, _permit } in self.waiting.drain(..) {
            if let Some(why) = failure {
                for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
                    *answer = Err(ApplyError::Unknown(why.to_owned()));
                }
            }
            let _gone = reply.send((answers, CommitTimes { taken, ..self.times }));
        }
    }
}

/// Topic of warnings about standbys.
const TOPIC: &str = "standbys";
/// Outcome of changes that their standbys do not have when the store closes.
const GIVEN_UP: &str = "the server stopped before its standbys had the change, which may be done: ask again";

/// Handle on the thread that waits for standbys.
pub(crate) struct Answering {
    shared: Arc<Shared>,
    /// Answers, each with the last change in the log here: also one without a change may rest on that.
    queue: Option<mpsc::Sender<(Revision, Answers)>>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    /// Starts the thread; none without standbys.
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Option<Self>, Error> {
        if !shared.standbys.are_needed() {
            return Ok(None);
        }
        let (queue, answers) = mpsc::channel();
        let its_shared = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("exacat-standbys".to_owned())
            .spawn(move || work(&its_shared, &answers))
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("no thread for standbys: {error}"))
            })?;
        Ok(Some(Answering { shared: Arc::clone(shared), queue: Some(queue), thread: Some(thread) }))
    }

    /// Gives the answers once enough standbys have everything up to them.
    pub(crate) fn later(&self, answers: Answers) {
        let through = self.shared.durability.written();
        if let Some(queue) = &self.queue
            && let Err(mpsc::SendError((_, mut answers))) = queue.send((through, answers))
        {
            answers.give(Some("internal error: the thread that waits for standbys ended"));
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // The store ends. What its standbys do not have yet has an unknown outcome.
        self.shared.standbys.give_up();
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that waits for standbys panicked");
        }
    }
}

fn work(shared: &Shared, answers: &mpsc::Receiver<(Revision, Answers)>) {
    for (through, mut group) in answers {
        let mut awaited = shared.standbys.wait_for(through, Some(LATE));
        let is_late = awaited == Awaited::Late;
        if is_late {
            warn(shared, "they are away or slow: changes wait for them");
            awaited = shared.standbys.wait_for(through, None);
        }
        match awaited {
            Awaited::Alone { begins: true } => {
                warn(shared, "they are away: changes are answered without them, and are lost with this disk");
            }
            Awaited::Acknowledged { was_alone } if was_alone || is_late => {
                tracing::info!("enough standbys have everything again");
                shared.metrics.clear(TOPIC);
            }
            Awaited::GivenUp => {
                // Reads that saw the change end too.
                shared.durability.end(GIVEN_UP);
                group.give(Some(GIVEN_UP));
                continue;
            }
            Awaited::Late | Awaited::Alone { .. } | Awaited::Acknowledged { .. } => {}
        }
        shared.durable(through, group.changes);
        group.times.acknowledged = Instant::now();
        group.give(None);
    }
}

fn warn(shared: &Shared, what: &str) {
    tracing::warn!("standbys: {what}");
    shared.metrics.warn(TOPIC, what);
}
