//! Which requests were applied lately, and where in the log their outcomes stand (clause A6).
//!
//! Kept is only the first revision of each record a request has in the log; the outcomes are read from there
//! when it is asked again, which is rare. So a remembered request costs some 40 bytes, however large it was.

use std::collections::{HashMap, VecDeque};

use exacat_model::{OperationId, Revision};

/// The last requests with an applied mutation.
pub(crate) struct Operations {
    capacity: usize,
    /// In the order of their first change.
    order: VecDeque<OperationId>,
    first: HashMap<OperationId, Revision>,
    /// Of requests with more than one record: split ones, and ones asked again that were refused in part before.
    further: HashMap<OperationId, Vec<Revision>>,
}

impl Operations {
    pub fn new(capacity: usize) -> Self {
        Operations { capacity, order: VecDeque::new(), first: HashMap::new(), further: HashMap::new() }
    }

    /// A record of this request begins at this revision.
    pub fn remember(&mut self, operation: OperationId, revision: Revision) {
        if self.first.contains_key(&operation) {
            self.further.entry(operation).or_default().push(revision);
            return;
        }
        if self.order.len() >= self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.first.remove(&oldest);
            self.further.remove(&oldest);
        }
        self.order.push_back(operation);
        self.first.insert(operation, revision);
    }

    /// The first revisions of the request's records, in order.
    pub fn records_of(&self, operation: OperationId) -> Vec<Revision> {
        let further = self.further.get(&operation).into_iter().flatten();
        self.first.get(&operation).into_iter().chain(further).copied().collect()
    }

    /// The first revision of the oldest that is remembered.
    pub fn oldest(&self) -> Option<Revision> {
        self.order.front().and_then(|operation| self.first.get(operation)).copied()
    }

    /// Records after a revision, in order.
    pub fn since(&self, revision: Revision) -> Vec<(Revision, OperationId)> {
        // A request that was asked again has further records behind those of requests after it.
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

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Memory taken, about.
    pub fn bytes(&self) -> u64 {
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
        operations.remember(operation(1), Revision(1));
        operations.remember(operation(2), Revision(5));
        operations.remember(operation(1), Revision(9));
        assert_eq!(operations.records_of(operation(1)), [Revision(1), Revision(9)]);
        let mut again = Operations::new(2);
        let all = operations.since(Revision(0));
        all.into_iter().for_each(|(revision, operation)| again.remember(operation, revision));
        assert_eq!(operations.since(Revision(5)), [(Revision(9), operation(1))]);
        assert_eq!(operations.oldest(), Some(Revision(1)));
        assert_eq!(again.records_of(operation(1)), [Revision(1), Revision(9)]);
        operations.remember(operation(3), Revision(10));
        assert!(operations.records_of(operation(1)).is_empty());
        assert_eq!(operations.records_of(operation(2)), [Revision(5)]);
        assert_eq!(operations.len(), 2);
    }
}
