//! Commands to the writer thread.

use std::time::{Duration, Instant};

use exacat_activity::RequestState;
use exacat_log::log_end::LogPosition;
use exacat_model::{Audit, Change, Error};
use exacat_store::{ApplyError, Outcome, Request};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::compactor::Pending;
use crate::load::LoadWork;

/// Result of one request.
pub(crate) type Answered = Result<Vec<Outcome>, ApplyError>;

/// Moments in the commit of a group, which tell a request where its time went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitTimes {
    /// End of the last wait of the writer for compaction, and its duration.
    pub stalled: Option<(Instant, Duration)>,
    /// The writer took up the request.
    pub taken: Instant,
    /// The group was decided.
    pub decided: Instant,
    /// The group was given to the disk.
    pub written: Instant,
    /// The group was durable.
    pub durable: Instant,
}

impl CommitTimes {
    /// Divides the wait of a request that was sent at `sent`. The rest is the wait for the writer.
    pub(crate) fn parts(&self, sent: Instant) -> [(RequestState, Duration); 4] {
        // A stall counts for a request from the time at which it waited.
        let stalled = self.stalled.map_or(Duration::ZERO, |(ended, lasted)| {
            let before_decided = ended.min(self.decided);
            lasted.min(before_decided.saturating_duration_since(sent))
        });
        let decide = self.decided.saturating_duration_since(self.taken.max(sent));
        let within = self.stalled.is_some_and(|(ended, _)| ended > self.taken);
        [
            (RequestState::Backpressure, stalled),
            (RequestState::Decide, if within { decide.saturating_sub(stalled) } else { decide }),
            (RequestState::CommitGroup, self.written.saturating_duration_since(self.decided)),
            (RequestState::LogSync, self.durable.saturating_duration_since(self.written)),
        ]
    }
}

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
    /// Load files that were gathered (bulk load).
    Load(Box<LoadWork>),
    /// Write everything out and end.
    Close { reply: oneshot::Sender<()> },
}
