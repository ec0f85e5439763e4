//! Retries: when to retry, after which pause, and which error to return when the time is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exacat_model::{Error, ErrorKind, OperationId, Result};
use parking_lot::Mutex;

use crate::clock::ServerClock;
use crate::slots::Outcome;

/// Random numbers, good enough to keep clients from retrying in step.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    pub(crate) fn new() -> Result<Self> {
        let mut seed = [0u8; 8];
        fill(&mut seed)?;
        Ok(Jitter(AtomicU64::new(u64::from_le_bytes(seed))))
    }

    /// Returns a number below 1.
    fn fraction(&self) -> f64 {
        // SplitMix64, which its author placed in the public domain: a scrambled counter.
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|error| {
        Error::new(ErrorKind::Internal, format!("the system gives no random bytes: {error}"))
    })
}

/// Random bytes of one operation id.
const ID_RANDOM_BYTES: usize = 10;
/// Operation ids per request to the system for random bytes.
const IDS_AT_ONCE: usize = 64;

/// Makes operation ids. It fetches random bytes for many at once, because each fetch is a system
/// call.
#[derive(Debug)]
pub(crate) struct OperationIds {
    clock: Arc<ServerClock>,
    random: Mutex<Vec<[u8; ID_RANDOM_BYTES]>>,
}

impl OperationIds {
    pub(crate) fn new(clock: Arc<ServerClock>) -> Self {
        OperationIds { clock, random: Mutex::default() }
    }

    /// Makes an operation id with the present time of the server's clock.
    pub(crate) fn new_id(&self) -> Result<OperationId> {
        let mut unused = self.random.lock();
        let random = match unused.pop() {
            Some(random) => random,
            None => {
                let mut bytes = [0; IDS_AT_ONCE * ID_RANDOM_BYTES];
                fill(&mut bytes)?;
                let (pieces, _) = bytes.as_chunks::<ID_RANDOM_BYTES>();
                unused.extend_from_slice(&pieces[1..]);
                pieces[0]
            }
        };
        drop(unused);
        Ok(OperationId::new(self.clock.now(), random))
    }
}

/// Pauses of one call, each between half and all of a bound that doubles.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Backoff { next: min, max }
    }

    pub(crate) fn pause(&mut self, jitter: &Jitter) -> Duration {
        let bound = self.next;
        self.next = (bound * 2).min(self.max);
        bound.mul_f64(0.5 + 0.5 * jitter.fraction())
    }
}

/// State of an operation that is retried until it is answered.
#[derive(Debug)]
pub(crate) struct RetryState {
    pub operation_id: Option<OperationId>,
    /// True if an attempt was sent and its outcome is unknown.
    maybe_done: bool,
    /// Error of the last attempt without an answer.
    last: Option<Error>,
}

/// Next step after an attempt.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict<T> {
    /// Return this answer.
    Done(T),
    /// Retry.
    Again,
}

impl RetryState {
    pub(crate) fn new(operation_id: Option<OperationId>) -> Self {
        RetryState { operation_id, maybe_done: false, last: None }
    }

    /// Takes in an answer of the server.
    pub(crate) fn answered<T>(&mut self, answered: Result<T>) -> Verdict<Result<T>> {
        match answered {
            Err(error) if error.kind.is_retryable() => {
                self.maybe_done |= error.kind == ErrorKind::Unknown;
                self.last = Some(error);
                Verdict::Again
            }
            answered => Verdict::Done(answered),
        }
    }

    /// Takes in the loss of an attempt.
    pub(crate) fn lost(&mut self, sent: bool, error: Error) {
        self.maybe_done |= sent;
        self.last = Some(error);
    }

    /// Takes in the outcome of an attempt.
    pub(crate) fn outcome<T>(&mut self, outcome: Outcome<Result<T>>) -> Verdict<Result<T>> {
        match outcome {
            Outcome::Answered(answered) => self.answered(answered),
            Outcome::Lost { sent, error } => {
                self.lost(sent, error);
                Verdict::Again
            }
        }
    }

    /// Returns the error for a call that is not retried, because of `why`.
    pub(crate) fn give_up(&self, why: &str) -> Error {
        let last = match &self.last {
            Some(error) => format!("; last: {error}"),
            None => String::new(),
        };
        match (&self.operation_id, self.maybe_done) {
            (Some(id), true) => Error::new(
                ErrorKind::Unknown,
                format!("{why}: the outcome is unknown, retry with operation id {id:?}{last}"),
            ),
            _ => {
                // A busy server stays `Busy` in the final error.
                let kind = match &self.last {
                    Some(Error { kind: ErrorKind::Busy, .. }) => ErrorKind::Busy,
                    _ => ErrorKind::Unavailable,
                };
                Error::new(kind, format!("{why}{last}"))
            }
        }
    }

    /// Returns the error for a call whose retry failed for good before the server decided the
    /// operation.
    pub(crate) fn refused(&self, error: Error) -> Error {
        if self.operation_id.is_some() && self.maybe_done { self.give_up(&error.message) } else { error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_ids_differ() {
        let ids = OperationIds::new(Arc::new(ServerClock::new()));
        let made: std::collections::BTreeSet<OperationId> =
            (0..3 * IDS_AT_ONCE).map(|_| ids.new_id().unwrap()).collect();
        assert_eq!(made.len(), 3 * IDS_AT_ONCE);
    }

    #[test]
    fn pauses_grow_to_their_bound_and_differ() {
        let jitter = Jitter::new().unwrap();
        let (min, max) = (Duration::from_millis(10), Duration::from_millis(100));
        let mut backoff = Backoff::new(min, max);
        let mut bound = min;
        for _ in 0..10 {
            let pause = backoff.pause(&jitter);
            assert!(pause >= bound / 2 && pause <= bound, "{pause:?} for {bound:?}");
            bound = (bound * 2).min(max);
        }
        let pauses: std::collections::BTreeSet<Duration> = (0..100).map(|_| backoff.pause(&jitter)).collect();
        assert!(pauses.len() > 90);
    }

    #[test]
    fn what_is_said_at_the_end_is_what_is_known() {
        let id = OperationId([0xab; 16]);
        let lost = || Error::new(ErrorKind::Unavailable, "gone");
        // A write that was sent once stays unknown, whatever happens later.
        let mut asked = RetryState::new(Some(id));
        asked.lost(true, lost());
        assert_eq!(asked.answered::<()>(Err(Error::new(ErrorKind::Busy, "later"))), Verdict::Again);
        let error = asked.give_up("no answer in time");
        assert_eq!(error.kind, ErrorKind::Unknown);
        assert!(error.message.contains(&"ab".repeat(16)), "{error}");
        assert_eq!(asked.refused(Error::denied("no")).kind, ErrorKind::Unknown);
        // A write that was never sent, and any read, is certainly not done.
        let mut asked = RetryState::new(Some(id));
        asked.lost(false, lost());
        assert_eq!(asked.give_up("no answer in time").kind, ErrorKind::Unavailable);
        assert_eq!(asked.refused(Error::denied("no")).kind, ErrorKind::Denied);
        let mut asked = RetryState::new(None);
        asked.lost(true, lost());
        assert_eq!(asked.give_up("no answer in time").kind, ErrorKind::Unavailable);
        // Answers are final; only errors that a retry may cure are retried.
        for kind in ErrorKind::ALL {
            let verdict = RetryState::new(Some(id)).answered::<()>(Err(Error::new(kind, "")));
            let again = matches!(kind, ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::Unknown);
            assert_eq!(verdict == Verdict::Again, again, "{kind}");
        }
    }
}
