//! Sums of the states of ended requests, by operation.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_activity::{Distribution, Recorded, RequestState, Times};
use exacat_model::Operation;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::instruments::OperationIndex;

/// Sums of one operation.
#[derive(Default)]
struct OperationTotals {
    ended: AtomicU64,
    life: AtomicU64,
    states: [AtomicU64; RequestState::COUNT],
}

/// Sums of all ended requests.
pub(crate) struct Totals {
    operations: Vec<OperationTotals>,
    /// Times of each wait, in requests that were in it.
    waits: [Distribution; RequestState::COUNT],
}

impl Default for Totals {
    fn default() -> Self {
        Totals {
            operations: Operation::NAMES.iter().map(|_| OperationTotals::default()).collect(),
            waits: Default::default(),
        }
    }
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
        let totals = &self.operations[operation.number()];
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
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let operations = Operation::NAMES.iter().zip(&self.operations);
        operations
            .filter(|(_, totals)| load(&totals.ended) > 0)
            .map(|(name, totals)| OperationTimes {
                name,
                life: load(&totals.life),
                states: std::array::from_fn(|state| load(&totals.states[state])),
            })
            .collect()
    }

    /// Returns the times of each wait that had requests.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (&'static str, Recorded)> {
        let waits =
            RequestState::ALL.iter().zip(&self.waits).map(|(state, times)| (state.name(), times.now()));
        waits.filter(|(_, times)| times.count() > 0)
    }

    #[cfg(test)]
    pub(crate) fn ended(&self, operation: OperationIndex) -> u64 {
        self.operations[operation.number()].ended.load(Ordering::Relaxed)
    }

    /// Writes the metrics, with the number of requests in each state now.
    pub(crate) fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        in_states: &[u64; RequestState::COUNT],
    ) -> Result<(), fmt::Error> {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let operations = self.now();
        let mut family = encoder.encode_descriptor(
            "exacat_request_life_seconds",
            "Time of ended requests from receipt to end, by operation; requests carried out together count once",
            None,
            MetricType::Counter,
        )?;
        for one in &operations {
            family
                .encode_family(&[("operation", one.name)])?
                .encode_counter::<NoLabelSet, f64, u64>(&seconds(one.life), None)?;
        }
        let mut family = encoder.encode_descriptor(
            "exacat_request_state_seconds",
            "Time of ended requests in each state, by operation, state and class; the sum is their life",
            None,
            MetricType::Counter,
        )?;
        for one in &operations {
            for (state, time) in RequestState::ALL.iter().zip(&one.states).filter(|(_, time)| **time > 0) {
                let labels =
                    [("operation", one.name), ("state", state.name()), ("class", state.class().name())];
                family
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, f64, u64>(&seconds(*time), None)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "exacat_wait_seconds",
            "Time of a request in a wait, for requests that were in it, by state",
            None,
            MetricType::Histogram,
        )?;
        for (state, times) in self.waits() {
            let (sum, count, buckets) = times.for_prometheus();
            family
                .encode_family(&[("state", state)])?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        let mut family = encoder.encode_descriptor(
            "exacat_requests_in_state",
            "Requests in progress, by state and class",
            None,
            MetricType::Gauge,
        )?;
        for (state, count) in RequestState::ALL.iter().zip(in_states) {
            family
                .encode_family(&[("state", state.name()), ("class", state.class().name())])?
                .encode_gauge(count)?;
        }
        Ok(())
    }
}
