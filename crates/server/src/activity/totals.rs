//! Sums of the states of ended requests, by operation.

use std::sync::atomic::{AtomicU64, Ordering};

use exacat_activity::{Distribution, Recorded, RequestState, Striped, Times};
use exacat_model::Operation;
use exacat_store::{Buckets, Sample};

use crate::instruments::OperationIndex;
use crate::metric_table;

/// Sums of one operation.
#[derive(Default)]
struct OperationTotals {
    ended: AtomicU64,
    life: AtomicU64,
    states: [AtomicU64; RequestState::COUNT],
}

/// Sums of all operations.
struct Operations(Vec<OperationTotals>);

impl Default for Operations {
    fn default() -> Self {
        Operations(Operation::NAMES.iter().map(|_| OperationTotals::default()).collect())
    }
}

/// Sums of all ended requests.
#[derive(Default)]
pub(crate) struct Totals {
    operations: Striped<Operations>,
    /// Times of each wait, in requests that were in it.
    waits: [Distribution; RequestState::COUNT],
}

/// The sums at one moment.
#[derive(Clone, Debug)]
pub(crate) struct OperationTimes {
    pub name: &'static str,
    /// Nanoseconds of their lives.
    pub life: u64,
    /// Nanoseconds in each state.
    pub states: Times,
}

impl OperationTimes {
    /// Returns the states that have time, by name, in nanoseconds.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let states = RequestState::ALL.iter().zip(self.states);
        states.filter(|(_, time)| *time > 0).map(|(state, time)| (state.name(), time))
    }
}

impl Totals {
    /// Adds an ended request.
    pub(crate) fn add(&self, operation: OperationIndex, times: &Times, life: u64) {
        let totals = &self.operations.own().0[operation.number()];
        totals.ended.fetch_add(1, Ordering::Relaxed);
        totals.life.fetch_add(life, Ordering::Relaxed);
        for (state, time) in RequestState::ALL.iter().zip(times).filter(|(_, time)| **time > 0) {
            totals.states[*state as usize].fetch_add(*time, Ordering::Relaxed);
            if !state.is_on_cpu() {
                self.waits[*state as usize].record(time / 1000, 1);
            }
        }
    }

    /// Returns the sums of each operation that has ended requests.
    pub(crate) fn now(&self) -> Vec<OperationTimes> {
        let ended = (0..Operation::NAMES.len()).filter(|number| self.ended(*number) > 0);
        ended
            .map(|number| OperationTimes {
                name: Operation::NAMES[number],
                life: self.sum(number, |totals| &totals.life),
                states: std::array::from_fn(|state| self.sum(number, |totals| &totals.states[state])),
            })
            .collect()
    }

    /// Returns the times of each wait that had requests.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (&'static str, Recorded)> {
        let waits =
            RequestState::ALL.iter().zip(&self.waits).map(|(state, times)| (state.name(), times.now()));
        waits.filter(|(_, times)| times.count() > 0)
    }

    /// Returns the number of ended requests of an operation.
    pub(super) fn ended(&self, operation: usize) -> u64 {
        self.sum(operation, |totals| &totals.ended)
    }

    /// Adds up one of the sums of an operation.
    fn sum(&self, operation: usize, of: impl Fn(&OperationTotals) -> &AtomicU64) -> u64 {
        self.operations.parts().map(|part| of(&part.0[operation]).load(Ordering::Relaxed)).sum()
    }

    /// Returns the metrics, with the number of requests in each state now.
    pub(crate) fn samples(&self, in_states: &[u64; RequestState::COUNT]) -> Vec<Sample> {
        let mut samples = Vec::new();
        for one in self.now() {
            samples.push(metric_table::LIFE.of(one.name, one.life));
            for (state, time) in RequestState::ALL.iter().zip(&one.states).filter(|(_, time)| **time > 0) {
                let labels = [one.name.into(), state.name().into(), state.class().name().into()];
                samples.push(metric_table::STATE_TIME.with(labels, *time));
            }
        }
        for (state, times) in self.waits() {
            let buckets = Buckets::of_times(&times);
            samples.push(metric_table::WAIT_TIME.in_buckets(Some(state.into()), buckets));
        }
        for (state, count) in RequestState::ALL.iter().zip(in_states) {
            let labels = [state.name().into(), state.class().name().into()];
            samples.push(metric_table::IN_STATE.with(labels, *count));
        }
        samples
    }
}
