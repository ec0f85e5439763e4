//! Sums of the server's activity at one moment, and what was added between two.

use exacat_activity::Recorded;
use exacat_model::TimeMs;
use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::{canonical_newtype, canonical_struct};

/// Start of a server, which tells its sums from those of an earlier run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run(pub u64);

canonical_newtype!(Run);

/// Sums since the start of the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Moment {
    pub at: TimeMs,
    /// The time of the start of the server.
    pub run: Run,
    /// Samples of the requests in progress.
    pub samples: u64,
    pub operations: Vec<OperationSum>,
    pub waits: Vec<WaitSum>,
    pub threads: Vec<ThreadSum>,
    /// Metrics of the server and of its store, at this moment.
    pub metrics: Vec<(String, u64)>,
}

canonical_struct!(Moment { at, run, samples, operations, waits, threads, metrics });

/// Sums of one operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OperationSum {
    pub name: String,
    pub requests: u64,
    pub failed: u64,
    pub items: u64,
    pub life_ns: u64,
    /// Nanoseconds in each state.
    pub states: Vec<(String, u64)>,
    /// Times from receipt to answer.
    pub times: Times,
}

canonical_struct!(OperationSum { name, requests, failed, items, life_ns, states, times });

/// Times of one wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WaitSum {
    pub state: String,
    pub times: Times,
}

canonical_struct!(WaitSum { state, times });

/// Times of the threads of one role.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ThreadSum {
    pub role: String,
    pub threads: u64,
    pub cpu_us: u64,
    pub queue_us: u64,
    pub wait_us: u64,
    pub stretches: u64,
    /// Lengths of the stretches on a processor, and off it.
    pub on: Times,
    pub off: Times,
}

canonical_struct!(ThreadSum { role, threads, cpu_us, queue_us, wait_us, stretches, on, off });

/// A distribution with canonical bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Times(pub Recorded);

impl Encode for Times {
    fn encode(&self, out: &mut Vec<u8>) {
        let buckets: Vec<(u32, u64)> =
            self.0.buckets().iter().map(|(place, count)| (u32::from(*place), *count)).collect();
        (buckets, self.0.sum_us()).encode(out);
    }
}

impl Decode for Times {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (buckets, sum_us) = <(Vec<(u32, u64)>, u64)>::decode(reader)?;
        let mut places = Vec::with_capacity(buckets.len());
        for (place, count) in buckets {
            let place = u8::try_from(place).map_err(|_| reader.error("a bucket that does not exist"))?;
            if places.last().is_some_and(|(last, _)| *last >= place) {
                return Err(reader.error("buckets out of order"));
            }
            places.push((place, count));
        }
        Ok(Times(Recorded::of(places, sum_us)))
    }
}

/// Adds to or takes from the value of each name in `sums` that in `others`.
fn combine(sums: &mut Vec<(String, u64)>, others: &[(String, u64)], with: fn(u64, u64) -> u64) {
    for (name, value) in others {
        match sums.iter_mut().find(|(have, _)| have == name) {
            Some((_, sum)) => *sum = with(*sum, *value),
            None => sums.push((name.clone(), with(0, *value))),
        }
    }
}

impl Moment {
    /// Returns the sums at the start of a server.
    pub(crate) fn start(run: Run) -> Self {
        Moment { at: TimeMs(run.0), run, ..Moment::default() }
    }

    /// Takes away the sums of an earlier moment of the same run. Metrics stay as they are.
    pub(crate) fn subtract(&mut self, earlier: &Moment) {
        self.samples = self.samples.saturating_sub(earlier.samples);
        for before in &earlier.operations {
            let Some(now) = self.operations.iter_mut().find(|one| one.name == before.name) else { continue };
            now.requests = now.requests.saturating_sub(before.requests);
            now.failed = now.failed.saturating_sub(before.failed);
            now.items = now.items.saturating_sub(before.items);
            now.life_ns = now.life_ns.saturating_sub(before.life_ns);
            combine(&mut now.states, &before.states, u64::saturating_sub);
            now.times.0.subtract(&before.times.0);
        }
        for before in &earlier.waits {
            let Some(now) = self.waits.iter_mut().find(|one| one.state == before.state) else { continue };
            now.times.0.subtract(&before.times.0);
        }
        for before in &earlier.threads {
            let Some(now) = self.threads.iter_mut().find(|one| one.role == before.role) else { continue };
            now.cpu_us = now.cpu_us.saturating_sub(before.cpu_us);
            now.queue_us = now.queue_us.saturating_sub(before.queue_us);
            now.wait_us = now.wait_us.saturating_sub(before.wait_us);
            now.stretches = now.stretches.saturating_sub(before.stretches);
            now.on.0.subtract(&before.on.0);
            now.off.0.subtract(&before.off.0);
        }
    }

    /// Adds what happened in another stretch of time. The metrics are those of the later one.
    pub(crate) fn add(&mut self, later: Moment) {
        self.samples += later.samples;
        for one in later.operations {
            let Some(sum) = self.operations.iter_mut().find(|sum| sum.name == one.name) else {
                self.operations.push(one);
                continue;
            };
            sum.requests += one.requests;
            sum.failed += one.failed;
            sum.items += one.items;
            sum.life_ns += one.life_ns;
            combine(&mut sum.states, &one.states, u64::saturating_add);
            sum.times.0.add(&one.times.0);
        }
        for one in later.waits {
            match self.waits.iter_mut().find(|sum| sum.state == one.state) {
                Some(sum) => sum.times.0.add(&one.times.0),
                None => self.waits.push(one),
            }
        }
        for one in later.threads {
            match self.threads.iter_mut().find(|sum| sum.role == one.role) {
                Some(sum) => {
                    sum.threads = one.threads;
                    sum.cpu_us += one.cpu_us;
                    sum.queue_us += one.queue_us;
                    sum.wait_us += one.wait_us;
                    sum.stretches += one.stretches;
                    sum.on.0.add(&one.on.0);
                    sum.off.0.add(&one.off.0);
                }
                None => self.threads.push(one),
            }
        }
        self.metrics = later.metrics;
        self.at = later.at;
        self.run = later.run;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_activity::Distribution;

    fn moment(requests: u64, sync_ns: u64) -> Moment {
        let distribution = Distribution::default();
        distribution.record(100, requests);
        let times = Times(distribution.now());
        let operation = OperationSum {
            name: "stat".to_owned(),
            requests,
            life_ns: sync_ns,
            states: vec![("log_sync".to_owned(), sync_ns)],
            times: times.clone(),
            ..OperationSum::default()
        };
        let waits = vec![WaitSum { state: "log_sync".to_owned(), times }];
        let threads = vec![ThreadSum { role: "writer".to_owned(), cpu_us: sync_ns, ..ThreadSum::default() }];
        let metrics = vec![("entries".to_owned(), requests)];
        Moment {
            at: TimeMs(requests),
            run: Run(1),
            samples: 1,
            operations: vec![operation],
            waits,
            threads,
            metrics,
        }
    }

    /// Differences of moments, added up, are the whole.
    #[test]
    fn differences_add_up() {
        let (first, second) = (moment(10, 500), moment(25, 900));
        let mut between = second.clone();
        between.subtract(&first);
        assert_eq!(between.operations[0].requests, 15);
        assert_eq!(between.operations[0].states, [("log_sync".to_owned(), 400)]);
        assert_eq!(between.waits[0].times.0.count(), 15);
        let mut sum = Moment::start(Run(1));
        sum.add(first);
        sum.add(between);
        assert_eq!(sum, Moment { samples: 1, ..second });
    }

    #[test]
    fn bytes_of_a_moment_are_read_back_or_refused() {
        let moment = moment(7, 70);
        let mut bytes = Vec::new();
        moment.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(Moment::decode(&mut reader).unwrap(), moment);
        assert!(reader.is_empty());
        for end in 0..bytes.len() {
            assert!(Moment::decode(&mut Reader::new(&bytes[..end])).is_err(), "{end}");
        }
        for buckets in [vec![(256u32, 1u64)], vec![(4, 1), (4, 1)]] {
            let mut bytes = Vec::new();
            (buckets, 0u64).encode(&mut bytes);
            assert!(Times::decode(&mut Reader::new(&bytes)).is_err());
        }
    }
}
