//! Commands to the writer thread.

use exacat_activity::CommitTimes;
use exacat_log::log_end::LogPosition;
use exacat_model::{Audit, Change, Error};
use exacat_store::{ApplyError, LogOffset, Outcome, Request};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::compactor::Pending;
use crate::filtered::{FilteredReached, FilteredStep};
use crate::load::LoadWork;

/// Result of one request.
pub(crate) type Answered = Result<Vec<Outcome>, ApplyError>;

/// Answers to requests that came together.
pub(crate) type Replies = (Vec<Answered>, CommitTimes);

/// A request with the length of its canonical form.
pub(crate) struct Weighed {
    pub request: Request,
    pub bytes: usize,
}

/// Commands to the writer.
pub(crate) enum Command {
    /// Decide and commit requests that came together.
    Apply {
        requests: Vec<Weighed>,
        reply: oneshot::Sender<Replies>,
        /// Share of the bytes in work; released when the requests are answered.
        permit: OwnedSemaphorePermit,
    },
    /// Audit the state between two groups. Used where the memtable cannot be written into a run.
    Audit { reply: oneshot::Sender<Result<Audit, Error>> },
    /// Freeze the memtable; answers with a handle that waits until it is a run.
    Freeze { reply: oneshot::Sender<Result<Pending, Error>> },
    /// Write the memtable into a run.
    Flush { reply: oneshot::Sender<Result<(), Error>> },
    /// Write an end mark behind the last group, unless one is there. Answers whether it wrote one.
    Mark { reply: Option<oneshot::Sender<Result<bool, Error>>> },
    /// Run `work` while everything done is durable and marked up to the given position of the log.
    /// The writer does nothing else meanwhile.
    WhenDurable {
        /// Begin a new segment first, so that nothing is appended to the existing ones.
        seal: bool,
        work: Box<dyn FnOnce(Result<LogPosition, Error>) + Send>,
    },
    /// Take over changes that another store made.
    TakeOver { changes: Vec<Change>, reply: oneshot::Sender<Result<(), Error>> },
    /// Append frames of the followed log, and answer the end of the log; no frames only ask for it.
    Follow { frames: Vec<u8>, reply: oneshot::Sender<Result<LogOffset, Error>> },
    /// The same without a wait until they are durable. A later append fails if these could not be written.
    FollowAhead { frames: Vec<u8>, reply: oneshot::Sender<Result<(), Error>> },
    /// Carry out a step of a filtered follower.
    Filtered { step: FilteredStep, reply: oneshot::Sender<Result<FilteredReached, Error>> },
    /// Load files that were gathered (bulk load).
    Load(Box<LoadWork>),
    /// Write everything out and end.
    Close { reply: oneshot::Sender<()> },
}
