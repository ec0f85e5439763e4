//! From minutes and moments to periods: sums, top users, clients and directories, slowest requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use exacat_activity::{Class, Recorded, RequestState};
use exacat_model::TimeMs;
use exacat_model::period::{
    MetricPeriod, OperationPeriod, Period, RequestShown, SampleShare, StatePeriod, Stretches, ThreadPeriod,
};

use super::findings::findings;
use super::moment::{Moment, Run};
use super::samples::Minute;

/// Users, clients and directories that a period names.
const SHARES_MAX: usize = 10;
/// Slowest requests of a period.
const SLOWEST_MAX: usize = 10;

/// Sums the parts of a stretch of time. Takes moments in the order in which they were, and minutes.
pub(crate) struct Summing {
    parts: Vec<Part>,
    processors: u64,
}

/// One part, from which a period is made.
struct Part {
    from: TimeMs,
    to: TimeMs,
    /// Sums of stretches that ended.
    sum: Moment,
    /// First and last moment of the stretch that goes on.
    stretch: Option<(Arc<Moment>, Arc<Moment>)>,
    /// The first moment of the period.
    first: Option<Arc<Moment>>,
    starts: u64,
    users: Shares,
    clients: Shares,
    directories: Shares,
    slow: Vec<RequestShown>,
}

/// Requests in samples by name and state.
#[derive(Default)]
struct Shares(HashMap<String, BTreeMap<String, u64>>);

impl Shares {
    fn add(&mut self, name: &str, state: &str, weight: u64) {
        let states = match self.0.get_mut(name) {
            Some(states) => states,
            None => self.0.entry(name.to_owned()).or_default(),
        };
        match states.get_mut(state) {
            Some(count) => *count += weight,
            None => drop(states.insert(state.to_owned(), weight)),
        }
    }

    fn top(self) -> Vec<SampleShare> {
        let share = |(name, states): (String, BTreeMap<String, u64>)| {
            let requests = states.values().sum();
            let state = states.into_iter().max_by_key(|(_, count)| *count);
            SampleShare { name, requests, state: state.map_or_else(String::new, |(state, _)| state) }
        };
        let mut shares: Vec<SampleShare> = self.0.into_iter().map(share).collect();
        shares.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.name.cmp(&b.name)));
        shares.truncate(SHARES_MAX);
        shares
    }
}

impl Summing {
    /// Prepares the sums of equal parts of a stretch of time.
    pub(crate) fn new((from, to): (TimeMs, TimeMs), parts: u32, processors: u64) -> Self {
        let length = u128::from(to.0.saturating_sub(from.0));
        let end =
            |number: u32| TimeMs(from.0 + (length * u128::from(number) / u128::from(parts.max(1))) as u64);
        let part = |number| Part::new(end(number), end(number + 1));
        Summing { parts: (0..parts.max(1)).map(part).collect(), processors }
    }

    /// Takes a moment, which was after those before.
    pub(crate) fn moment(&mut self, moment: &Arc<Moment>) {
        self.parts.iter_mut().for_each(|part| part.moment(moment));
    }

    /// Takes the start of a run of the server, if a stretch that begins at `from` is its first.
    pub(crate) fn start(&mut self, from: TimeMs, run: Run) {
        if from.0 == run.0 {
            self.moment(&Arc::new(Moment::start(run)));
        }
    }

    /// Takes the samples and the slow requests of a minute.
    pub(crate) fn minute(&mut self, minute: &Minute) {
        for request in &minute.requests {
            let at = TimeMs(minute.from.0 + u64::from(request.after_ms));
            let state = minute.name(request.state);
            let Some(part) = self.part_at(at) else { continue };
            if RequestState::named(state).is_some_and(|state| state.class() == Class::Idle) {
                continue;
            }
            let weight = u64::from(request.weight);
            part.users.add(minute.name(request.user), state, weight);
            part.clients.add(minute.name(request.client), state, weight);
            part.directories.add(minute.name(request.directory), state, weight);
        }
        self.slow(&minute.slow);
    }

    /// Takes slow requests that ended.
    pub(crate) fn slow(&mut self, slow: &[RequestShown]) {
        for request in slow {
            let ended = TimeMs(request.began.0.saturating_add(request.life_us / 1000));
            if let Some(part) = self.part_at(ended) {
                part.slow.push(request.clone());
                part.slow.sort_by_key(|one| std::cmp::Reverse(one.life_us));
                part.slow.truncate(SLOWEST_MAX);
            }
        }
    }

    fn part_at(&mut self, at: TimeMs) -> Option<&mut Part> {
        let place = self.parts.partition_point(|part| part.to < at);
        self.parts.get_mut(place).filter(|part| part.from < at)
    }

    /// Returns the periods.
    pub(crate) fn periods(self) -> Vec<Period> {
        let processors = self.processors;
        self.parts.into_iter().map(|part| part.period(processors)).collect()
    }
}

impl Part {
    fn new(from: TimeMs, to: TimeMs) -> Self {
        Part {
            from,
            to,
            sum: Moment::default(),
            stretch: None,
            first: None,
            starts: 0,
            users: Shares::default(),
            clients: Shares::default(),
            directories: Shares::default(),
            slow: Vec::new(),
        }
    }

    fn moment(&mut self, moment: &Arc<Moment>) {
        if moment.at > self.to {
            return;
        }
        if moment.at <= self.from {
            self.stretch = Some((Arc::clone(moment), Arc::clone(moment)));
            self.first = Some(Arc::clone(moment));
            return;
        }
        let run = moment.run;
        match &mut self.stretch {
            Some((_, last)) if last.run == run && last.at <= moment.at => *last = Arc::clone(moment),
            // The clock went back: the moments since then are another stretch.
            Some((_, last)) if last.run == run => {
                let last = Arc::clone(last);
                self.end_stretch();
                self.stretch = Some((last, Arc::clone(moment)));
            }
            _ => {
                self.end_stretch();
                self.begin_run(moment);
            }
        }
    }

    /// Begins with the first moment that is seen of a run of the server: its start, or one before which
    /// nothing is kept any more.
    fn begin_run(&mut self, moment: &Arc<Moment>) {
        self.starts += u64::from(moment.at.0 == moment.run.0);
        self.first.get_or_insert_with(|| Arc::clone(moment));
        self.stretch = Some((Arc::clone(moment), Arc::clone(moment)));
    }

    fn end_stretch(&mut self) {
        if let Some((base, last)) = self.stretch.take() {
            let mut between = Moment::clone(&last);
            between.subtract(&base);
            self.sum.add(between);
        }
    }

    fn period(mut self, processors: u64) -> Period {
        self.end_stretch();
        let first = self.first.unwrap_or_else(|| Arc::new(Moment { at: self.from, ..Moment::default() }));
        let sum = self.sum;
        let metric = |(name, to): (String, u64)| {
            let from = match self.starts {
                0 => first.metrics.iter().find(|(have, _)| *have == name).map_or(0, |(_, value)| *value),
                _ => 0,
            };
            MetricPeriod { name, from, to }
        };
        let mut period = Period {
            from: first.at,
            to: first.at.max(sum.at),
            starts: self.starts,
            processors,
            samples: sum.samples,
            states: states(&sum),
            operations: operations(sum.operations),
            threads: sum
                .threads
                .into_iter()
                .map(|one| ThreadPeriod {
                    role: one.role,
                    threads: one.threads,
                    cpu_us: one.cpu_us,
                    queue_us: one.queue_us,
                    wait_us: one.wait_us,
                    stretches: one.stretches,
                    on: stretches(&one.on.0),
                    off: stretches(&one.off.0),
                })
                .collect(),
            metrics: sum.metrics.into_iter().map(metric).collect(),
            users: self.users.top(),
            clients: self.clients.top(),
            directories: self.directories.top(),
            slow: self.slow,
            findings: Vec::new(),
        };
        period.threads.sort_by_key(|one| std::cmp::Reverse(one.cpu_us));
        period.findings = findings(&period);
        period
    }
}

fn stretches(times: &Recorded) -> Stretches {
    Stretches { p50_us: times.quantile_us(0.5), p99_us: times.quantile_us(0.99), max_us: times.max_us() }
}

fn operations(sums: Vec<super::moment::OperationSum>) -> Vec<OperationPeriod> {
    let mut operations: Vec<OperationPeriod> = sums
        .into_iter()
        .filter(|sum| sum.requests > 0 || sum.life_ns > 0)
        .map(|sum| OperationPeriod {
            name: sum.name,
            requests: sum.requests,
            failed: sum.failed,
            items: sum.items,
            life_us: sum.life_ns / 1000,
            p50_us: sum.times.0.quantile_us(0.5),
            p99_us: sum.times.0.quantile_us(0.99),
            max_us: sum.times.0.max_us(),
            states: sum
                .states
                .into_iter()
                .filter(|(_, ns)| *ns > 0)
                .map(|(state, ns)| (state, ns / 1000))
                .collect(),
        })
        .collect();
    operations.sort_by(|a, b| b.life_us.cmp(&a.life_us).then_with(|| a.name.cmp(&b.name)));
    operations
}

/// Returns the time in each state over all operations, the longest first.
fn states(sum: &Moment) -> Vec<StatePeriod> {
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for (state, ns) in sum.operations.iter().flat_map(|one| &one.states) {
        *times.entry(state).or_default() += ns;
    }
    let mut states: Vec<StatePeriod> = times
        .into_iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|(name, ns)| {
            let wait = sum.waits.iter().find(|wait| wait.state == name).map(|wait| &wait.times.0);
            StatePeriod {
                state: name.to_owned(),
                class: RequestState::named(name)
                    .map_or("unaccounted", |state| state.class().name())
                    .to_owned(),
                requests: wait.map_or(0, |times| times.count()),
                time_us: ns / 1000,
                p99_us: wait.map_or(0, |times| times.quantile_us(0.99)),
                max_us: wait.map_or(0, |times| times.max_us()),
            }
        })
        .collect();
    states.sort_by(|a, b| b.time_us.cmp(&a.time_us).then_with(|| a.state.cmp(&b.state)));
    states
}
