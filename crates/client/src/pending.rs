//! What was asked on a connection and is not answered yet: who waits for it, and what of it has come.

use std::collections::HashMap;

use exacat_model::{Answer, Error};
use exacat_wire::native::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;

/// What one attempt came to.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    /// The server said so.
    Answered(T),
    /// There will be no answer.
    Lost {
        /// Could the server have got the request?
        sent: bool,
        /// Why there is none.
        error: Error,
    },
}

pub(crate) type Answered = Result<Answer, Error>;

/// Who waits for one answer. The permit is one of the requests in flight.
#[derive(Debug)]
pub(crate) struct Reply {
    pub to: oneshot::Sender<Outcome<Answered>>,
    pub permit: OwnedSemaphorePermit,
}

impl Reply {
    pub fn answer(self, answered: Answered) {
        // Whoever asked may have given up; then nobody is told.
        let _ = self.to.send(Outcome::Answered(answered));
        drop(self.permit);
    }

    /// Does nobody wait for it any more?
    pub fn is_abandoned(&self) -> bool {
        self.to.is_closed()
    }

    fn lose(self, sent: bool, error: &Error) {
        let _ = self.to.send(Outcome::Lost { sent, error: error.clone() });
    }
}

/// What a stream is told.
#[derive(Debug)]
pub(crate) enum StreamItem {
    Part(Answer),
    End,
    /// The server ended it with an error.
    Failed(Error),
    /// The connection ended.
    Lost(Error),
}

/// One request not answered yet.
#[derive(Debug)]
pub(crate) enum Pending {
    /// One operation.
    One(Reply),
    /// Operations of several callers in one batch, in order; those answered are taken out.
    Coalesced { replies: std::vec::IntoIter<Reply>, answered: u32 },
    /// A batch of one caller.
    Batch {
        to: oneshot::Sender<Outcome<Vec<Answered>>>,
        expected: usize,
        answers: Vec<Answered>,
        permit: OwnedSemaphorePermit,
    },
    /// A stream; its channel holds one item more than the largest credit.
    Stream { to: mpsc::Sender<StreamItem>, parts: u64, credit: u32, permit: OwnedSemaphorePermit },
}

impl Pending {
    /// Does nobody wait for it any more?
    pub fn is_abandoned(&self) -> bool {
        match self {
            Pending::One(reply) => reply.is_abandoned(),
            Pending::Coalesced { replies, .. } => replies.as_slice().iter().all(Reply::is_abandoned),
            Pending::Batch { to, .. } => to.is_closed(),
            Pending::Stream { to, .. } => to.is_closed(),
        }
    }

    /// Tells all who wait that there will be no answer.
    pub fn lose(self, sent: bool, error: &Error) {
        match self {
            Pending::One(reply) => reply.lose(sent, error),
            Pending::Coalesced { replies, .. } => replies.for_each(|reply| reply.lose(sent, error)),
            Pending::Batch { to, .. } => {
                let _ = to.send(Outcome::Lost { sent, error: error.clone() });
            }
            Pending::Stream { to, .. } => {
                let _ = to.try_send(StreamItem::Lost(error.clone()));
            }
        }
    }
}

/// The server broke the protocol: the connection cannot go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub String);

#[derive(Debug)]
struct Waiting {
    pending: Pending,
    /// When it should long have been ended: some time after its deadline, or after it was cancelled.
    overdue: Option<Instant>,
}

/// Everything not answered yet on one connection.
#[derive(Debug, Default)]
pub(crate) struct Table {
    requests: HashMap<u64, Waiting>,
    /// Why nothing more can be asked here.
    closed: Option<Error>,
}

impl Table {
    /// Takes a request about to be written; or tells those who wait for it that it was not sent. What nobody
    /// waits for any more is not sent either: it was given up while it was queued.
    pub fn register(&mut self, request: u64, pending: Pending, overdue: Option<Instant>) -> bool {
        if pending.is_abandoned() {
            return false;
        }
        match &self.closed {
            Some(error) => {
                pending.lose(false, error);
                false
            }
            None => {
                self.requests.insert(request, Waiting { pending, overdue });
                true
            }
        }
    }

    /// A request is about to be cancelled; false if it has ended, or was not sent yet.
    pub fn cancel(&mut self, request: u64, overdue: Instant) -> bool {
        match self.requests.get_mut(&request) {
            Some(waiting) => {
                waiting.overdue = Some(overdue);
                true
            }
            None => false,
        }
    }

    /// A request that the server forgot: without its end its place would never be free again.
    pub fn forgotten(&self, now: Instant) -> Option<u64> {
        let is_overdue = |waiting: &Waiting| waiting.overdue.is_some_and(|overdue| overdue < now);
        self.requests.iter().find(|(_, waiting)| is_overdue(waiting)).map(|(request, _)| *request)
    }

    /// Nothing more is taken; what is there goes on.
    pub fn refuse_further(&mut self, error: Error) {
        self.closed.get_or_insert(error);
    }

    /// Nothing more is taken, and there will be no answers to what is there.
    pub fn fail(&mut self, error: Error) -> Vec<Pending> {
        self.closed.get_or_insert(error);
        self.requests.drain().map(|(_, waiting)| waiting.pending).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Lets so many more parts come; false if the stream has ended.
    pub fn grant(&mut self, request: u64, parts: u32) -> bool {
        match self.requests.get_mut(&request) {
            Some(Waiting { pending: Pending::Stream { credit, .. }, .. }) => {
                *credit += parts;
                true
            }
            _ => false,
        }
    }

    pub fn closed(&self) -> Option<&Error> {
        self.closed.as_ref()
    }

    /// Gives what came for a request to those who wait for it.
    pub fn deliver(&mut self, request: u64, frame: Frame) -> Result<(), Violation> {
        let Some(Waiting { pending, overdue }) = self.requests.remove(&request) else {
            let what = frame.frame_type().name();
            return Err(Violation(format!("{what} frame for request {request}, which is not waited for")));
        };
        if let Some(pending) = pending.give(request, frame)? {
            self.requests.insert(request, Waiting { pending, overdue });
        }
        Ok(())
    }
}

impl Pending {
    /// Gives what came to those who wait for it; what is left if it is not the end.
    fn give(self, request: u64, frame: Frame) -> Result<Option<Pending>, Violation> {
        let not_its = || Violation(format!("answers to operations that request {request} has not"));
        match (self, frame) {
            (Pending::One(reply), Frame::Answer(answer)) => reply.answer(Ok(answer)),
            (Pending::One(reply), Frame::Error(error)) => reply.answer(Err(error)),
            (Pending::Coalesced { mut replies, answered }, Frame::AnswerBatch(batch)) => {
                if batch.first != answered || batch.answers.len() > replies.len() {
                    return Err(not_its());
                }
                let answered = answered + batch.answers.len() as u32;
                for (answer, reply) in batch.answers.into_iter().zip(&mut replies) {
                    reply.answer(answer);
                }
                if replies.len() > 0 {
                    return Ok(Some(Pending::Coalesced { replies, answered }));
                }
            }
            (Pending::Coalesced { replies, .. }, Frame::Error(error)) => {
                replies.for_each(|reply| reply.answer(Err(error.clone())));
            }
            (Pending::Batch { to, expected, mut answers, permit }, Frame::AnswerBatch(batch)) => {
                if batch.first as usize != answers.len() || answers.len() + batch.answers.len() > expected {
                    return Err(not_its());
                }
                if answers.is_empty() {
                    answers = batch.answers;
                } else {
                    answers.extend(batch.answers);
                }
                if answers.len() < expected {
                    return Ok(Some(Pending::Batch { to, expected, answers, permit }));
                }
                let _ = to.send(Outcome::Answered(answers));
            }
            (Pending::Batch { to, expected, mut answers, .. }, Frame::Error(error)) => {
                answers.resize(expected, Err(error));
                let _ = to.send(Outcome::Answered(answers));
            }
            (Pending::Stream { to, parts, credit, permit }, Frame::Part(part)) => {
                let Some(credit) = credit.checked_sub(1) else {
                    return Err(Violation(format!(
                        "more parts for request {request} than it has credit for"
                    )));
                };
                // A stream nobody listens to is cancelled, but parts may still be on their way.
                let _ = to.try_send(StreamItem::Part(part));
                return Ok(Some(Pending::Stream { to, parts: parts + 1, credit, permit }));
            }
            (Pending::Stream { to, parts, .. }, Frame::End { parts: said }) => {
                if parts != said {
                    return Err(Violation(format!("{parts} parts came for request {request}, not {said}")));
                }
                let _ = to.try_send(StreamItem::End);
            }
            (Pending::Stream { to, .. }, Frame::Error(error)) => {
                let _ = to.try_send(StreamItem::Failed(error));
            }
            (_, frame) => {
                let what = frame.frame_type().name();
                return Err(Violation(format!("{what} frame for request {request}, which asked otherwise")));
            }
        }
        Ok(None)
    }
}
