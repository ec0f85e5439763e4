//! Reads the sums of the server at one moment.

use std::time::{Duration, Instant};

use exacat_model::TimeMs;

use super::Board;
use super::moment::{Moment, OperationSum, ThreadSum, Times, WaitSum};
use super::threads::ThreadTimes;
use crate::instruments::Instruments;
use crate::metric_table::THREAD_IO;
use crate::status_metrics::STORE_READ_AT;

/// Interval at which the metrics of a store are read that takes long for them, as a cluster.
const STORE_EVERY: Duration = Duration::from_secs(10);
/// Time in which a store gives its metrics from memory. It is asked with each moment.
const STORE_QUICK: Duration = Duration::from_millis(1);

/// Reads moments, one after the other.
#[derive(Default)]
pub(crate) struct Sampler {
    threads: ThreadTimes,
    store: Option<StoreRead>,
}

/// The store's metrics at the last reading.
struct StoreRead {
    ended: Instant,
    took: Duration,
    metrics: Vec<(String, u64)>,
}

impl Sampler {
    /// True if the store's metrics are due.
    pub(crate) fn store_is_due(&self) -> bool {
        self.store.as_ref().is_none_or(|last| last.took <= STORE_QUICK || last.ended.elapsed() >= STORE_EVERY)
    }

    /// Takes the store's metrics, which were asked for at `began`; it was `at` then.
    pub(crate) fn store(&mut self, began: Instant, at: TimeMs, mut metrics: Vec<(String, u64)>) {
        metrics.push((STORE_READ_AT.to_owned(), at.0));
        self.store = Some(StoreRead { ended: Instant::now(), took: began.elapsed(), metrics });
    }

    /// Reads the sums of this moment. `metrics` are the server's own.
    pub(crate) fn read(
        &mut self,
        at: TimeMs,
        instruments: &Instruments,
        board: &Board,
        mut metrics: Vec<(String, u64)>,
    ) -> Moment {
        self.threads.read();
        metrics.extend(self.store.iter().flat_map(|store| store.metrics.iter().cloned()));
        let mut operations: Vec<OperationSum> = instruments
            .sums()
            .map(|sums| OperationSum {
                name: sums.name.to_owned(),
                requests: sums.requests,
                failed: sums.failed,
                items: sums.items,
                times: Times(sums.times),
                ..OperationSum::default()
            })
            .collect();
        for times in board.totals.now() {
            let place = operations.iter().position(|one| one.name == times.name).unwrap_or(operations.len());
            if place == operations.len() {
                operations.push(OperationSum { name: times.name.to_owned(), ..OperationSum::default() });
            }
            operations[place].life_ns = times.life;
            operations[place].states = times.named().map(|(state, ns)| (state.to_owned(), ns)).collect();
        }
        let waits = board.totals.waits();
        let waits = waits.map(|(state, times)| WaitSum { state: state.to_owned(), times: Times(times) });
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let threads = self.threads.roles().iter().map(|(role, times)| ThreadSum {
            role: role.clone(),
            threads: times.threads,
            cpu_us: us(times.cpu),
            queue_us: us(times.queue),
            wait_us: us(times.wait),
            stretches: times.stretches,
            on: Times(times.on.clone()),
            off: Times(times.off.clone()),
        });
        let (waits, threads) = (waits.collect(), threads.collect());
        if self.threads.counts_io() {
            let of_roles = self.threads.roles().iter();
            let samples = of_roles.map(|(role, times)| THREAD_IO.of(role.clone(), us(times.io)));
            metrics.extend(samples.flat_map(|sample| sample.shown()));
        }
        Moment { at, operations, waits, threads, metrics, ..Moment::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that answers from memory is asked each second, one that takes long every ten seconds.
    #[test]
    fn store_is_asked_as_often_as_it_is_quick() {
        let mut sampler = Sampler::default();
        assert!(sampler.store_is_due());
        let now = Instant::now();
        let long_ago = |time| now.checked_sub(time).unwrap();
        sampler.store(long_ago(STORE_QUICK * 2), TimeMs(7), Vec::new());
        assert!(!sampler.store_is_due());
        assert_eq!(sampler.store.as_ref().unwrap().metrics, [(STORE_READ_AT.to_owned(), 7)]);
        sampler.store.as_mut().unwrap().ended = long_ago(STORE_EVERY);
        assert!(sampler.store_is_due());
        sampler.store.as_mut().unwrap().ended = Instant::now();
        assert!(!sampler.store_is_due());
        sampler.store.as_mut().unwrap().took = STORE_QUICK;
        assert!(sampler.store_is_due());
    }
}
