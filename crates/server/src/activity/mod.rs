//! Requests in progress: their states, and the sums of those that ended.
//!
//! A request is on the board from its receipt to its end. Look-ups that a connection carries out
//! together are one entry, and their time counts once.

mod findings;
mod history;
mod identity;
mod journal;
mod moment;
mod samples;
mod summing;
mod sums;
mod threads;
mod totals;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use exacat_activity::{Activity, Class, IS_ON, Owner, RequestState, Times, Tracked, tracked};
use exacat_model::period::RequestShown;
use exacat_model::{Error, ErrorKind, Lfn, Result, TimeMs};
use parking_lot::Mutex;

use crate::cancel::Cancel;
use crate::instruments::{Ended, OperationIndex};
use crate::requester::Requester;
pub(crate) use history::{Asked, History, SAMPLE_EVERY};
pub use identity::{RequestIdentity, current_request};
pub(crate) use journal::Bounds;
pub(crate) use moment::Moment;
pub(crate) use sums::Sampler;
pub(crate) use totals::Totals;

/// Parts of the board, so that threads rarely wait for each other.
const SHARDS: usize = 16;

/// Most requests of a list: of those in progress the oldest, of slow ones the last.
pub(crate) const REQUESTS_SHOWN_MAX: usize = 1000;

/// All requests in progress, and slow ones that ended.
#[derive(Default)]
pub(crate) struct Board {
    shards: [Mutex<HashMap<u64, Arc<ActiveRequest>>>; SHARDS],
    numbers: AtomicU64,
    pub totals: Totals,
    slow: Mutex<SlowRequests>,
    slow_after: SlowAfter,
    /// Takes ended requests for traces.
    #[cfg(feature = "otel")]
    pub traces: std::sync::OnceLock<crate::traces::Traces>,
}

/// Slow requests that ended.
#[derive(Default)]
struct SlowRequests {
    /// Number of all since the start of the server.
    count: u64,
    /// The last ones, with the times of their ends.
    last: VecDeque<(Instant, RequestShown)>,
}

/// Durations from which requests are kept as slow. Waits for the client do not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowAfter {
    /// For look-ups and small changes.
    pub short: Duration,
    /// For pages of long lists, bulk changes, and checks of everything.
    pub long: Duration,
}

impl Default for SlowAfter {
    fn default() -> Self {
        SlowAfter { short: Duration::MAX, long: Duration::MAX }
    }
}

/// Facts about a request, from its beginning.
#[derive(Default)]
pub(crate) struct Facts {
    pub items: u64,
    pub requester: Option<Requester>,
    pub subject: Option<Lfn>,
    pub is_long: bool,
    /// None if it cannot be cancelled.
    pub cancel: Option<Arc<Cancel>>,
}

/// A request in progress, or a connection's look-ups. The first fields are all that a look-up uses: with the
/// counts of an `Arc` they fill one line of the cache.
#[repr(C)]
pub(crate) struct ActiveRequest {
    operation: AtomicUsize,
    activity: Arc<Activity>,
    /// First path of look-ups of a connection, which follow one another; empty for none. Each writes into the
    /// same memory.
    looked_up: Mutex<String>,
    number: u64,
    #[cfg(feature = "otel")]
    identity: Arc<RequestIdentity>,
    facts: Facts,
}

impl ActiveRequest {
    fn operation(&self) -> OperationIndex {
        OperationIndex::at(self.operation.load(Ordering::Relaxed))
    }

    /// Returns the first path that it names.
    fn subject(&self) -> Option<Lfn> {
        self.facts.subject.clone().or_else(|| Lfn::parse(&self.looked_up.lock()).ok())
    }

    /// Returns the directory that it works in: that of a list itself, that above an entry.
    fn directory(&self) -> Option<Lfn> {
        let subject = self.subject()?;
        if self.facts.is_long { Some(subject) } else { Some(subject.parent().unwrap_or(subject)) }
    }

    /// Shows it to an operator, without the time at which it began.
    fn shown(&self, state: &str, times: &Times, life: Duration) -> RequestShown {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let facts = &self.facts;
        let states = RequestState::ALL.iter().zip(times).filter(|(_, time)| **time > 0);
        RequestShown {
            id: self.number,
            operation: self.operation().name().to_owned(),
            items: facts.items,
            user: facts.requester.as_ref().and_then(|requester| requester.caller.name().cloned()),
            client: facts
                .requester
                .as_ref()
                .and_then(|one| one.host)
                .map_or_else(String::new, |host| host.to_string()),
            subject: self.subject().map_or_else(String::new, |lfn| lfn.to_string()),
            began: TimeMs(0),
            life_us: us(life),
            state: state.to_owned(),
            states: states.map(|(state, time)| (state.name().to_owned(), time / 1000)).collect(),
        }
    }
}

impl Board {
    /// Makes a board that keeps slow requests.
    pub(crate) fn new(slow_after: SlowAfter) -> Self {
        Board { slow_after, ..Board::default() }
    }

    /// Makes an entry that is at rest.
    pub(crate) fn entry(self: &Arc<Self>, facts: Facts) -> Tracking {
        let number = self.next_number();
        let identity = Arc::new(RequestIdentity::new(number, facts.requester.as_ref()));
        let request = Arc::new(ActiveRequest {
            number,
            operation: AtomicUsize::default(),
            activity: Arc::new(Activity::of(Arc::clone(&identity) as Owner)),
            #[cfg(feature = "otel")]
            identity,
            facts,
            looked_up: Mutex::default(),
        });
        self.shard(number).lock().insert(number, Arc::clone(&request));
        Tracking { board: Arc::clone(self), request, is_running: false }
    }

    /// Begins a request that was received at `since`.
    pub(crate) fn begin(
        self: &Arc<Self>,
        operation: OperationIndex,
        since: Instant,
        facts: Facts,
    ) -> Tracking {
        let mut tracking = self.entry(facts);
        tracking.begin(operation, since);
        tracking
    }

    /// Returns a number for a request, in lists, log lines and errors.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn shard(&self, number: u64) -> &Mutex<HashMap<u64, Arc<ActiveRequest>>> {
        &self.shards[number as usize % SHARDS]
    }

    /// Returns the requests in progress, with their states and their lives so far.
    fn running(&self) -> Vec<(Arc<ActiveRequest>, RequestState, Duration)> {
        let mut running = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            running.extend(shard.values().filter_map(|request| {
                request.activity.now().map(|(state, _, life)| (Arc::clone(request), state, life))
            }));
        }
        running
    }

    /// Returns the number of requests in each state.
    pub(crate) fn in_states(&self) -> [u64; RequestState::COUNT] {
        let mut counts = [0; RequestState::COUNT];
        for (_, state, _) in self.running() {
            counts[state as usize] += 1;
        }
        counts
    }

    /// Returns the requests in progress, the oldest first. It is `now`.
    pub(crate) fn sessions(&self, now: TimeMs) -> Vec<RequestShown> {
        let mut running = self.running();
        running.sort_by_key(|(_, _, life)| std::cmp::Reverse(*life));
        running.truncate(REQUESTS_SHOWN_MAX);
        let shown = running.iter().map(|(request, state, _)| {
            // Read once: the states are to add up to the life that is shown.
            let times = request.activity.so_far();
            let life = Duration::from_nanos(times.iter().sum());
            RequestShown { began: before(now, life), ..request.shown(state.name(), &times, life) }
        });
        shown.collect()
    }

    /// Returns slow requests that ended, the last one first. It is `now`.
    pub(crate) fn slow(&self, now: TimeMs) -> Vec<RequestShown> {
        self.slow.lock().last.iter().rev().map(|slow| dated(slow, now)).collect()
    }

    /// Returns slow requests that ended after the first `seen` ones, as far as they are kept, and the
    /// number of all. It is `now`.
    fn slow_since(&self, seen: u64, now: TimeMs) -> (Vec<RequestShown>, u64) {
        let slow = self.slow.lock();
        let new = usize::try_from(slow.count.saturating_sub(seen)).unwrap_or(usize::MAX);
        let old = slow.last.len().saturating_sub(new);
        (slow.last.iter().skip(old).map(|slow| dated(slow, now)).collect(), slow.count)
    }

    /// Cancels a request in progress.
    pub(crate) fn cancel(&self, number: u64) -> Result<()> {
        let request = self.shard(number).lock().get(&number).cloned();
        let request = request.filter(|request| request.activity.now().is_some());
        let request = request.ok_or_else(|| {
            Error::not_found(format!("request {number}: it is not in progress on this server"))
        })?;
        let cancel = request.facts.cancel.as_ref().ok_or_else(|| {
            let why = format!("request {number} cannot be cancelled: it ends by itself, within its deadline");
            Error::new(ErrorKind::Conflict, why)
        })?;
        cancel.cancel();
        Ok(())
    }

    /// Notes the outcome of the request that the thread works on, for its trace.
    pub(crate) fn note_current(&self, _outcome: Ended) {
        #[cfg(feature = "otel")]
        if self.traces.get().is_some()
            && let Some(current) = current_request()
        {
            current.note(_outcome);
        }
    }

    /// Hands a request that ended to the traces.
    #[cfg(feature = "otel")]
    fn trace(&self, request: &ActiveRequest, operation: OperationIndex, times: &Times, life: u64) {
        let Some(traces) = self.traces.get() else { return };
        let requester = request.facts.requester.as_ref();
        traces.ended(&crate::traces::EndedSpan {
            context: requester.and_then(|requester| requester.trace),
            operation,
            request: request.number,
            items: request.facts.items,
            user: request.identity.user(),
            client: request.identity.client(),
            outcome: request.identity.outcome(),
            times,
            life: Duration::from_nanos(life),
        });
    }

    /// Keeps a request that ended, if it was slow.
    fn keep_slow(&self, request: &ActiveRequest, times: &Times, life: u64, now: Instant) {
        let after = if request.facts.is_long { self.slow_after.long } else { self.slow_after.short };
        // Nearly all requests end here.
        if Duration::from_nanos(life) < after {
            return;
        }
        let of_client = |state: &RequestState| matches!(state.class(), Class::Idle | Class::Network);
        let waited: u64 = RequestState::ALL
            .iter()
            .filter(|state| of_client(state))
            .map(|state| times[*state as usize])
            .sum();
        if Duration::from_nanos(life.saturating_sub(waited)) < after {
            return;
        }
        let shown = request.shown(ENDED, times, Duration::from_nanos(life));
        let mut slow = self.slow.lock();
        slow.count += 1;
        if slow.last.len() >= REQUESTS_SHOWN_MAX {
            slow.last.pop_front();
        }
        slow.last.push_back((now, shown));
    }
}

/// Returns a request that ended, with the time at which it began. It is `now`.
fn dated((ended, shown): &(Instant, RequestShown), now: TimeMs) -> RequestShown {
    let age = ended.elapsed() + Duration::from_micros(shown.life_us);
    RequestShown { began: before(now, age), ..shown.clone() }
}

/// Returns the time so long before `now`.
fn before(now: TimeMs, age: Duration) -> TimeMs {
    TimeMs(now.0.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
}

/// State of a request that ended.
const ENDED: &str = "ended";

/// An entry of the board. Dropping it ends its request, and takes it off the board.
pub(crate) struct Tracking {
    board: Arc<Board>,
    request: Arc<ActiveRequest>,
    is_running: bool,
}

impl Tracking {
    /// Begins a request that was received at `since`.
    pub(crate) fn begin(&mut self, operation: OperationIndex, since: Instant) {
        self.request.operation.store(operation.number(), Ordering::Relaxed);
        self.request.activity.begin_after(RequestState::Decode, since, RequestState::Execute);
        self.is_running = true;
    }

    /// Begins look-ups of a connection; the first path, if it has one, tells where they are.
    pub(crate) fn begin_look_up(&mut self, operation: OperationIndex, since: Instant, first: Option<&Lfn>) {
        if IS_ON {
            let mut looked_up = self.request.looked_up.lock();
            looked_up.clear();
            looked_up.push_str(first.map_or("", Lfn::as_str));
        }
        self.begin(operation, since);
    }

    /// Ends the request at this time.
    pub(crate) fn end(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_running) && IS_ON {
            let (times, life) = self.request.activity.end(now);
            let operation = OperationIndex::at(self.request.operation.load(Ordering::Relaxed));
            self.board.totals.add(operation, &times, life);
            self.board.keep_slow(&self.request, &times, life, now);
            #[cfg(feature = "otel")]
            self.board.trace(&self.request, operation, &times, life);
        }
    }

    /// Notes the outcome of the request, for its trace.
    pub(crate) fn note(&self, _outcome: Ended) {
        #[cfg(feature = "otel")]
        self.request.identity.note(_outcome);
    }

    /// Returns the number of the request.
    pub(crate) fn number(&self) -> u64 {
        self.request.number
    }

    /// Returns the states of the request.
    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.request.activity
    }

    /// Makes the request the one that `work` is for.
    pub(crate) fn track<F: Future>(&self, work: F) -> Tracked<F> {
        tracked(Arc::clone(&self.request.activity), work)
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        self.end(Instant::now());
        self.board.shard(self.request.number).lock().remove(&self.request.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::Operation;

    /// A request is counted in its state while it runs, and in the totals once it ended; an entry
    /// without a request is neither.
    #[test]
    fn board_has_the_requests_in_progress() {
        let board = Arc::new(Board::default());
        let whoami = OperationIndex::of(&Operation::Whoami);
        let count = |state| board.in_states()[state as usize];
        let mut lookups = board.entry(Facts::default());
        let request = board.begin(whoami, Instant::now(), Facts::default());
        assert_eq!(board.in_states().iter().sum::<u64>(), 1);
        request.activity().enter(RequestState::Admission);
        lookups.begin(whoami, Instant::now());
        assert_eq!((count(RequestState::Admission), count(RequestState::Execute)), (1, 1));
        lookups.end(Instant::now());
        lookups.end(Instant::now());
        drop(request);
        drop(lookups);
        assert_eq!(board.in_states().iter().sum::<u64>(), 0);
        assert!(board.shards.iter().all(|shard| shard.lock().is_empty()));
        assert_eq!(board.totals.ended(whoami.number()), 2);
    }

    /// A request is kept as slow by its own time: waits for its client do not count. The board keeps a
    /// bounded number, the last ones.
    #[test]
    fn slow_requests_are_kept_by_their_own_time() {
        let slow_after = SlowAfter { short: Duration::from_secs(1), long: Duration::from_secs(10) };
        let board = Arc::new(Board::new(slow_after));
        let whoami = OperationIndex::of(&Operation::Whoami);
        let began = Instant::now();
        let run = |state, seconds, is_long| {
            let mut tracking = board.begin(whoami, began, Facts { is_long, ..Facts::default() });
            tracking.activity().begin(state, began);
            tracking.end(began + Duration::from_secs(seconds));
        };
        run(RequestState::ClientWrite, 100, false);
        run(RequestState::LogSync, 9, true);
        assert!(board.slow(TimeMs(1 << 40)).is_empty());
        run(RequestState::LogSync, 1, false);
        run(RequestState::PageRead, 10, true);
        let slow = board.slow(TimeMs(1 << 40));
        assert_eq!(slow.iter().map(|one| one.life_us).collect::<Vec<_>>(), [10_000_000, 1_000_000]);
        assert_eq!(slow[1].states, [("log_sync".to_owned(), 1_000_000)]);
        (0..REQUESTS_SHOWN_MAX as u64).for_each(|more| run(RequestState::Execute, 2 + more, false));
        assert_eq!(board.slow(TimeMs(1 << 40)).len(), REQUESTS_SHOWN_MAX);
        assert!(board.slow(TimeMs(1 << 40)).iter().all(|one| one.states[0].0 == "execute"));
    }

    #[test]
    fn only_a_request_that_can_be_cancelled_is() {
        let board = Arc::new(Board::default());
        let whoami = OperationIndex::of(&Operation::Whoami);
        let cancel = Arc::new(Cancel::default());
        let facts = Facts { cancel: Some(Arc::clone(&cancel)), ..Facts::default() };
        let tracking = board.begin(whoami, Instant::now(), facts);
        let _other = board.begin(whoami, Instant::now(), Facts::default());
        let _at_rest = board.entry(Facts::default());
        let id = board.sessions(TimeMs(1 << 40))[0].id;
        assert_eq!(board.cancel(id + 1).unwrap_err().kind, ErrorKind::Conflict);
        assert_eq!(board.cancel(id + 2).unwrap_err().kind, ErrorKind::NotFound);
        assert!(!cancel.is_cancelled());
        board.cancel(id).unwrap();
        assert!(cancel.is_cancelled());
        drop(tracking);
        assert_eq!(board.cancel(id).unwrap_err().kind, ErrorKind::NotFound);
    }
}
