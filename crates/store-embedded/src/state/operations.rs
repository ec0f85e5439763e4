//! Recently applied requests, and the positions of their outcomes in the log (clause A6).
//!
//! It has only the first revision of each log record of a request. When a client repeats the
//! request, which is rare, outcomes and fingerprint are read from the log. So a remembered request
//! costs some 40 bytes, whatever its size. Older requests are found in the log (`older.rs`). An id
//! made after every forgotten one is new, so the log is never searched for a new request.

use std::collections::{HashMap, VecDeque};

use exacat_model::limits::OPERATION_AHEAD_MAX_MS;
use exacat_model::{OperationId, Revision, TimeMs};

/// The last requests with an applied mutation.
pub(crate) struct Operations {
    capacity: usize,
    /// Time before which every forgotten id was made.
    forgotten: TimeMs,
    /// Ids in the order of their first change.
    order: VecDeque<OperationId>,
    first: HashMap<OperationId, Revision>,
    /// Further records of requests with several: split requests, and repeated ones that were partly
    /// refused before.
    further: HashMap<OperationId, Vec<Revision>>,
}

impl Operations {
    pub(crate) fn new(capacity: usize) -> Self {
        Operations {
            capacity,
            forgotten: TimeMs(0),
            order: VecDeque::new(),
            first: HashMap::new(),
            further: HashMap::new(),
        }
    }

    /// Remembers a record of this request, which begins at this revision and was applied at `time`
    /// or before.
    pub(crate) fn remember(&mut self, operation: OperationId, revision: Revision, time: TimeMs) {
        if self.first.contains_key(&operation) {
            self.further.entry(operation).or_default().push(revision);
            return;
        }
        if self.order.len() >= self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.first.remove(&oldest);
            self.further.remove(&oldest);
            self.forget(oldest, time);
        }
        self.order.push_back(operation);
        self.first.insert(operation, revision);
    }

    fn forget(&mut self, oldest: OperationId, now: TimeMs) {
        // Clients may be ahead only so far. The catalogue refuses ids beyond that, so they are
        // ignored here.
        if oldest.made() <= now.plus_ms(OPERATION_AHEAD_MAX_MS) {
            self.forgotten = self.forgotten.max(oldest.made().plus_ms(1));
        }
    }

    /// Notes that requests applied up to this time may have been forgotten before the store was
    /// opened.
    pub(crate) fn forgot_until(&mut self, applied: TimeMs) {
        self.forgotten = self.forgotten.max(applied.plus_ms(OPERATION_AHEAD_MAX_MS + 1));
    }

    /// Returns the time before which every forgotten id was made.
    pub(crate) fn forgotten(&self) -> TimeMs {
        self.forgotten
    }

    /// Says whether these are all requests since the catalogue, now at this revision, was made.
    pub(crate) fn are_all(&self, revision: Revision) -> bool {
        revision == Revision(0) || self.oldest() == Some(Revision(1))
    }

    /// Returns the first revisions of the request's records, in order.
    pub(crate) fn records_of(&self, operation: OperationId) -> Vec<Revision> {
        let further = self.further.get(&operation).into_iter().flatten();
        self.first.get(&operation).into_iter().chain(further).copied().collect()
    }

    /// Returns the first revision of the oldest remembered request.
    pub(crate) fn oldest(&self) -> Option<Revision> {
        self.order.front().and_then(|operation| self.first.get(operation)).copied()
    }

    /// Returns the records after a revision, in order.
    pub(crate) fn since(&self, revision: Revision) -> Vec<(Revision, OperationId)> {
        // A repeated request has further records behind those of later requests.
        let newest = self
            .order
            .iter()
            .rev()
            .filter_map(|operation| self.first.get(operation).map(|first| (*first, *operation)));
        let newest = newest.take_while(|(first, _)| *first > revision);
        let further = self.further.iter().flat_map(|(operation, records)| {
            records.iter().filter(|record| **record > revision).map(|record| (*record, *operation))
        });
        let mut all: Vec<(Revision, OperationId)> = newest.chain(further).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the memory taken, approximately.
    pub(crate) fn bytes(&self) -> u64 {
        let ring = self.order.capacity() * size_of::<OperationId>();
        let map = self.first.capacity() * (size_of::<(OperationId, Revision)>() + 1);
        (ring + map + self.further.len() * 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(number: u8) -> OperationId {
        OperationId([number; 16])
    }

    #[test]
    fn the_oldest_request_is_forgotten_with_all_its_records() {
        let mut operations = Operations::new(2);
        operations.remember(operation(1), Revision(1), TimeMs(0));
        operations.remember(operation(2), Revision(5), TimeMs(0));
        operations.remember(operation(1), Revision(9), TimeMs(0));
        assert_eq!(operations.records_of(operation(1)), [Revision(1), Revision(9)]);
        let mut again = Operations::new(2);
        let all = operations.since(Revision(0));
        all.into_iter().for_each(|(revision, operation)| again.remember(operation, revision, TimeMs(0)));
        assert_eq!(operations.since(Revision(5)), [(Revision(9), operation(1))]);
        assert_eq!(operations.oldest(), Some(Revision(1)));
        assert_eq!(again.records_of(operation(1)), [Revision(1), Revision(9)]);
        operations.remember(operation(3), Revision(10), TimeMs(0));
        assert!(operations.records_of(operation(1)).is_empty());
        assert_eq!(operations.records_of(operation(2)), [Revision(5)]);
        assert_eq!(operations.len(), 2);
    }

    #[test]
    fn id_made_after_all_forgotten_ones_is_known_to_be_new() {
        let id = |made: u64| OperationId::new(TimeMs(made), [0; 10]);
        let now = TimeMs(1_000_000);
        let mut operations = Operations::new(2);
        operations.remember(id(500), Revision(1), now);
        operations.remember(id(400), Revision(2), now);
        assert_eq!((operations.forgotten(), operations.are_all(Revision(2))), (TimeMs(0), true));
        operations.remember(id(600), Revision(3), now);
        assert_eq!(operations.forgotten(), TimeMs(501));
        assert!(!operations.are_all(Revision(3)));
        // An older id does not move the limit back.
        operations.remember(id(700), Revision(4), now);
        assert_eq!(operations.forgotten(), TimeMs(501));
        // An id that no client may have does not make every later request a possibly forgotten one.
        let ahead = now.plus_ms(OPERATION_AHEAD_MAX_MS);
        operations.remember(id(ahead.0), Revision(5), now);
        operations.remember(id(ahead.0 + 1), Revision(6), now);
        operations.remember(id(1), Revision(7), now);
        assert_eq!(operations.forgotten(), ahead.plus_ms(1));
        operations.remember(id(2), Revision(8), now);
        assert_eq!(operations.forgotten(), ahead.plus_ms(1));
    }
}
