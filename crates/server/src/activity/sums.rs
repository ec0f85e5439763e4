//! Reads the sums of the server at one moment.

use std::time::{Duration, Instant};

use exacat_model::TimeMs;

use super::Board;
use super::moment::{Moment, OperationSum, ThreadSum, Times, WaitSum};
use super::threads::ThreadTimes;
use crate::instruments::Instruments;

/// Interval at which the store's metrics are read; a cluster answers them.
const STORE_EVERY: Duration = Duration::from_secs(10);

/// Reads moments, one after the other.
#[derive(Default)]
pub(crate) struct Sampler {
    threads: ThreadTimes,
    /// The store's metrics at the last reading.
    store: Option<(Instant, Vec<(String, u64)>)>,
}

impl Sampler {
    /// True if the store's metrics are due.
    pub(crate) fn store_is_due(&self) -> bool {
        self.store.as_ref().is_none_or(|(at, _)| at.elapsed() >= STORE_EVERY)
    }

    /// Takes the store's metrics.
    pub(crate) fn store(&mut self, metrics: Vec<(String, u64)>) {
        self.store = Some((Instant::now(), metrics));
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
        if let Some((_, store)) = &self.store {
            metrics.extend(store.iter().cloned());
        }
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
        Moment { at, operations, waits, threads, metrics, ..Moment::default() }
    }
}
