//! Requests in progress: their states, and the sums of those that ended.
//!
//! A request is on the board from its receipt to its end. Look-ups that a connection carries out
//! together are one entry, and their time counts once.

mod totals;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use exacat_activity::{Activity, RequestState, Tracked, tracked};
use parking_lot::Mutex;

use crate::instruments::OperationIndex;
pub(crate) use totals::Totals;

/// Parts of the board, so that threads rarely wait for each other.
const SHARDS: usize = 16;

/// All requests in progress.
#[derive(Default)]
pub(crate) struct Board {
    shards: [Mutex<HashMap<u64, Arc<ActiveRequest>>>; SHARDS],
    numbers: AtomicU64,
    pub totals: Totals,
}

/// A request in progress, or a connection's look-ups.
pub(crate) struct ActiveRequest {
    number: u64,
    operation: AtomicUsize,
    activity: Arc<Activity>,
}

impl Board {
    /// Makes an entry that is at rest.
    pub(crate) fn entry(self: &Arc<Self>) -> Tracking {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let request = ActiveRequest { number, operation: AtomicUsize::default(), activity: Arc::default() };
        let request = Arc::new(request);
        self.shard(number).lock().insert(number, Arc::clone(&request));
        Tracking { board: Arc::clone(self), request, is_running: false }
    }

    /// Begins a request that was received at `since`.
    pub(crate) fn begin(self: &Arc<Self>, operation: OperationIndex, since: Instant) -> Tracking {
        let mut tracking = self.entry();
        tracking.begin(operation, since);
        tracking
    }

    fn shard(&self, number: u64) -> &Mutex<HashMap<u64, Arc<ActiveRequest>>> {
        &self.shards[number as usize % SHARDS]
    }

    /// Returns the number of requests in each state.
    pub(crate) fn in_states(&self) -> [u64; RequestState::COUNT] {
        let mut counts = [0; RequestState::COUNT];
        for shard in &self.shards {
            for request in shard.lock().values() {
                if let Some((state, _, _)) = request.activity.now() {
                    counts[state as usize] += 1;
                }
            }
        }
        counts
    }
}

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
        self.request.activity.begin(RequestState::Decode, since);
        self.request.activity.enter(RequestState::Execute);
        self.is_running = true;
    }

    /// Ends the request at this time.
    pub(crate) fn end(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_running) {
            let (times, life) = self.request.activity.end(now);
            let operation = OperationIndex::at(self.request.operation.load(Ordering::Relaxed));
            self.board.totals.add(operation, &times, life);
        }
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
        let mut lookups = board.entry();
        let request = board.begin(whoami, Instant::now());
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
        assert_eq!(board.totals.ended(whoami), 2);
    }
}
