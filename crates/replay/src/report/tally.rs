//! Tally: adds up the results of a run one by one, in bounded memory.
//!
//! Any order of the results, and any split of them over tallies that are merged, gives the same figures.

use std::collections::BTreeMap;

use exacat_model::Result;

use super::bounded::ByName;
use super::coarse::{Coarse, step_of};
use super::first_byte::{FirstBytes, Split};
use super::merge::Merge;
use super::series::Series;
use super::times::Times;
use crate::limits::{CACHES_MAX, DRIVERS_MAX, DURATION_US_MAX, ERROR_NUMBERS_MAX, NAMES_MAX};
use crate::run::outcome::{AccessResult, Outcome};

/// Facts about an item that its result does not repeat.
#[derive(Clone, Copy, Debug, Default)]
pub struct ItemFacts<'a> {
    /// Microseconds from the begin of the run to the intended begin.
    pub intended_us: u64,
    /// Bytes that the access asks for.
    pub bytes_asked: u64,
    /// Bytes of the cache's blocks that it touches; 0 if the size of a block is not known.
    pub bytes_in_blocks: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Place of the client in the trace; empty if it is not known.
    pub site: &'a str,
    /// Dataset of the file; empty if it is not known.
    pub dataset: &'a str,
    /// Cache that the agent reads from.
    pub cache: &'a str,
    /// Agent.
    pub agent: &'a str,
    /// Way in which the agent reads.
    pub driver: &'a str,
    /// Says whether an earlier access of this run reads the same file, by the plan.
    pub was_read_before: bool,
}

/// Sums over all accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub accesses: u64,
    pub errors: u64,
    pub bytes_asked: u64,
    /// Bytes that came, those of failed accesses included.
    pub bytes: u64,
    pub bytes_of_errors: u64,
    /// Accesses to files that were read before in the run, and the bytes that these ask for.
    pub again: u64,
    pub bytes_asked_again: u64,
    /// Accesses that ask for a part of their file.
    pub partial: u64,
    /// Accesses that were not the first attempt.
    pub retried: u64,
    pub redirects: u64,
    /// Bytes by which blocks exceed what was asked for, at the first access to each file.
    pub rounding: u64,
}

impl Merge for Totals {
    fn merge(&mut self, other: &Totals) {
        self.accesses.merge(&other.accesses);
        self.errors.merge(&other.errors);
        self.bytes_asked.merge(&other.bytes_asked);
        self.bytes.merge(&other.bytes);
        self.bytes_of_errors.merge(&other.bytes_of_errors);
        self.again.merge(&other.again);
        self.bytes_asked_again.merge(&other.bytes_asked_again);
        self.partial.merge(&other.partial);
        self.retried.merge(&other.retried);
        self.redirects.merge(&other.redirects);
        self.rounding.merge(&other.rounding);
    }
}

/// Accesses that ended in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutcomeSums {
    pub accesses: u64,
    pub bytes: u64,
    /// Accesses by the number of their error, from 1 to `ERROR_NUMBERS_MAX`, excluding it.
    pub numbers: BTreeMap<u32, u64>,
    /// Accesses with a higher number.
    pub other_numbers: u64,
}

impl Merge for OutcomeSums {
    fn merge(&mut self, other: &OutcomeSums) {
        self.accesses.merge(&other.accesses);
        self.bytes.merge(&other.bytes);
        for (number, count) in &other.numbers {
            self.numbers.entry(*number).or_default().merge(count);
        }
        self.other_numbers.merge(&other.other_numbers);
    }
}

/// Accesses of one site, dataset, cache, agent or driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameSums {
    pub accesses: u64,
    pub errors: u64,
    pub bytes_asked: u64,
    pub bytes: u64,
    pub again: u64,
    /// Durations from the intended begin.
    pub intended: Coarse,
    pub late: Coarse,
}

impl Merge for NameSums {
    fn merge(&mut self, other: &NameSums) {
        self.accesses.merge(&other.accesses);
        self.errors.merge(&other.errors);
        self.bytes_asked.merge(&other.bytes_asked);
        self.bytes.merge(&other.bytes);
        self.again.merge(&other.again);
        self.intended.merge(&other.intended);
        self.late.merge(&other.late);
    }
}

/// Accesses through one cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheSums {
    pub sums: NameSums,
    pub first_bytes: FirstBytes,
}

impl Merge for CacheSums {
    fn merge(&mut self, other: &CacheSums) {
        self.sums.merge(&other.sums);
        self.first_bytes.merge(&other.first_bytes);
    }
}

/// Figures of a point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point {
    /// Accesses whose intended begin it is, and the bytes that these ask for.
    pub due: u64,
    pub bytes_due: u64,
    /// Accesses that ended, and those of them that failed.
    pub ended: u64,
    pub errors: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Durations from the intended begin, of accesses that were due.
    pub intended: Coarse,
}

impl Merge for Point {
    fn merge(&mut self, other: &Point) {
        self.due.merge(&other.due);
        self.bytes_due.merge(&other.bytes_due);
        self.ended.merge(&other.ended);
        self.errors.merge(&other.errors);
        self.bytes.merge(&other.bytes);
        self.intended.merge(&other.intended);
    }
}

/// HDR histograms of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Latencies {
    /// Durations from the intended begin: of accesses that succeeded, and of those that failed.
    pub intended_ok: Times,
    pub intended_error: Times,
    /// Durations from the actual begin.
    pub actual_ok: Times,
    pub actual_error: Times,
    /// Times from the actual begin to the first byte.
    pub first_byte: Times,
    /// Times from the intended begin to the actual one.
    pub late: Times,
}

/// Sums, series and histograms of the results of a run. It takes about 2 MiB, and what names take.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    pub(crate) totals: Totals,
    pub(crate) outcomes: [OutcomeSums; Outcome::ALL.len()],
    pub(crate) latencies: Latencies,
    pub(crate) series: Series<Point>,
    pub(crate) sites: ByName<NameSums>,
    pub(crate) datasets: ByName<NameSums>,
    pub(crate) caches: ByName<CacheSums>,
    pub(crate) agents: ByName<NameSums>,
    pub(crate) drivers: ByName<NameSums>,
}

impl Tally {
    /// Makes an empty one.
    ///
    /// # Errors
    /// None but a defect.
    pub fn new() -> Result<Tally> {
        Ok(Tally {
            totals: Totals::default(),
            outcomes: std::array::from_fn(|_| OutcomeSums::default()),
            latencies: Latencies {
                intended_ok: Times::new()?,
                intended_error: Times::new()?,
                actual_ok: Times::new()?,
                actual_error: Times::new()?,
                first_byte: Times::new()?,
                late: Times::new()?,
            },
            series: Series::default(),
            sites: ByName::new(NAMES_MAX),
            datasets: ByName::new(NAMES_MAX),
            caches: ByName::new(CACHES_MAX),
            agents: ByName::new(NAMES_MAX),
            drivers: ByName::new(DRIVERS_MAX),
        })
    }

    /// Returns the number of accesses.
    pub fn accesses(&self) -> u64 {
        self.totals.accesses
    }

    /// Returns the number of accesses that failed.
    pub fn errors(&self) -> u64 {
        self.totals.errors
    }

    /// Returns the bytes that clients read.
    pub fn bytes(&self) -> u64 {
        self.totals.bytes
    }

    /// Adds the final result of an item. The caller adds each item once.
    ///
    /// The times are those that the agent says. Longer ones than a day count as a day. A caller that knows
    /// the time refuses results that end in the future: they would stretch the series.
    pub fn add(&mut self, of: &ItemFacts<'_>, result: &AccessResult) {
        let is_error = result.outcome != Outcome::Ok;
        let late = result.late_us.min(DURATION_US_MAX);
        let duration = result.duration_us.min(DURATION_US_MAX);
        let first_byte = result.first_byte_us.map(|us| us.min(duration));
        let felt = late.saturating_add(duration).min(DURATION_US_MAX);
        self.add_totals(of, result, is_error);
        let latencies = &mut self.latencies;
        let (intended, actual) = match is_error {
            true => (&mut latencies.intended_error, &mut latencies.actual_error),
            false => (&mut latencies.intended_ok, &mut latencies.actual_ok),
        };
        intended.record(felt);
        actual.record(duration);
        latencies.late.record(late);
        if let Some(us) = first_byte {
            latencies.first_byte.record(us);
        }
        let begin = of.intended_us.saturating_add(late);
        let end = begin.saturating_add(duration);
        let due = self.series.at(of.intended_us);
        due.due += 1;
        due.bytes_due.merge(&of.bytes_asked);
        due.intended.record(felt);
        let ended = self.series.at(end);
        ended.ended += 1;
        ended.errors += u64::from(is_error);
        let moved = (begin.saturating_add(first_byte.unwrap_or(0)), end);
        self.series.spread(moved, result.bytes, |point, part| point.bytes.merge(&part));
        let one = |sums: &mut NameSums| {
            sums.accesses += 1;
            sums.errors += u64::from(is_error);
            sums.bytes_asked.merge(&of.bytes_asked);
            sums.bytes.merge(&result.bytes);
            sums.again += u64::from(of.was_read_before);
            sums.intended.record(felt);
            sums.late.record(late);
        };
        one(self.sites.at(of.site));
        one(self.datasets.at(of.dataset));
        one(self.agents.at(of.agent));
        one(self.drivers.at(of.driver));
        let cache = self.caches.at(of.cache);
        one(&mut cache.sums);
        if !is_error {
            let class = cache.first_bytes.at(first_byte.map(step_of));
            class.accesses += 1;
            class.again += u64::from(of.was_read_before);
            class.bytes_asked.merge(&of.bytes_asked);
            class.bytes.merge(&result.bytes);
            class.intended.record(felt);
            class.actual.record(duration);
        }
    }

    fn add_totals(&mut self, of: &ItemFacts<'_>, result: &AccessResult, is_error: bool) {
        let totals = &mut self.totals;
        totals.accesses += 1;
        totals.bytes_asked.merge(&of.bytes_asked);
        totals.bytes.merge(&result.bytes);
        totals.partial += u64::from(of.bytes_asked < of.size);
        totals.retried += u64::from(result.attempt > 1);
        totals.redirects.merge(&u64::from(result.redirects));
        if is_error {
            totals.errors += 1;
            totals.bytes_of_errors.merge(&result.bytes);
        }
        if of.was_read_before {
            totals.again += 1;
            totals.bytes_asked_again.merge(&of.bytes_asked);
        } else {
            totals.rounding.merge(&of.bytes_in_blocks.saturating_sub(of.bytes_asked));
        }
        let outcome = &mut self.outcomes[result.outcome as usize];
        outcome.accesses += 1;
        outcome.bytes.merge(&result.bytes);
        match result.number {
            0 => {}
            1..ERROR_NUMBERS_MAX => *outcome.numbers.entry(result.number).or_default() += 1,
            _ => outcome.other_numbers += 1,
        }
    }

    /// Adds the figures of another tally of the same run.
    ///
    /// # Errors
    /// None but a defect.
    pub fn merge(&mut self, other: &Tally) -> Result<()> {
        self.totals.merge(&other.totals);
        for (sums, others) in self.outcomes.iter_mut().zip(&other.outcomes) {
            sums.merge(others);
        }
        let (ours, theirs) = (&mut self.latencies, &other.latencies);
        ours.intended_ok.merge(&theirs.intended_ok)?;
        ours.intended_error.merge(&theirs.intended_error)?;
        ours.actual_ok.merge(&theirs.actual_ok)?;
        ours.actual_error.merge(&theirs.actual_error)?;
        ours.first_byte.merge(&theirs.first_byte)?;
        ours.late.merge(&theirs.late)?;
        self.series.merge(&other.series);
        self.sites.merge(&other.sites);
        self.datasets.merge(&other.datasets);
        self.caches.merge(&other.caches);
        self.agents.merge(&other.agents);
        self.drivers.merge(&other.drivers);
        Ok(())
    }

    /// Tells hits and misses apart at each cache, by the first bytes that its clients saw.
    pub(crate) fn splits(&self) -> (Split, Vec<(&str, Split)>) {
        let each: Vec<(&str, Split)> =
            self.caches.rows().map(|(name, sums)| (name, sums.first_bytes.split())).collect();
        let mut all = Split::default();
        each.iter().for_each(|(_, split)| all.merge(split));
        if let Some(others) = self.caches.others() {
            all.merge(&others.first_bytes.split());
        }
        (all, each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SERIES_POINTS_MAX;

    /// A number whose length is random.
    fn some(random: &mut fastrand::Rng, bits: std::ops::Range<u32>) -> u64 {
        let most = 1 << random.u32(bits);
        random.u64(..most)
    }

    /// A result with its facts: numbers choose the names.
    struct Made {
        result: AccessResult,
        intended_us: u64,
        names: [String; 4],
        was_read_before: bool,
    }

    impl Made {
        fn random(random: &mut fastrand::Rng, names: u32) -> Made {
            let duration_us = some(random, 5..38);
            let name = |kind: &str, random: &mut fastrand::Rng| format!("{kind}{}", random.u32(..names));
            Made {
                result: AccessResult {
                    outcome: if random.u8(..4) == 0 { Outcome::ALL[random.usize(..12)] } else { Outcome::Ok },
                    number: random.u32(..2 * ERROR_NUMBERS_MAX) * u32::from(random.bool()),
                    attempt: random.u32(1..3),
                    late_us: some(random, 1..30),
                    first_byte_us: random.bool().then(|| random.u64(..=duration_us)),
                    duration_us,
                    bytes: some(random, 1..40),
                    redirects: random.u32(..2),
                    ..AccessResult::default()
                },
                intended_us: random.u64(..1 << 34),
                names: ["site", "set", "cache", "agent"].map(|kind| name(kind, random)),
                was_read_before: random.bool(),
            }
        }

        fn add_to(&self, tally: &mut Tally) {
            let [site, dataset, cache, agent] = &self.names;
            let of = ItemFacts {
                intended_us: self.intended_us,
                bytes_asked: self.result.bytes,
                bytes_in_blocks: self.result.bytes + 100,
                size: self.result.bytes + u64::from(self.was_read_before),
                site,
                dataset,
                cache,
                agent,
                driver: "xrootd",
                was_read_before: self.was_read_before,
            };
            tally.add(&of, &self.result);
        }
    }

    fn tally_of<'a>(all: impl IntoIterator<Item = &'a Made>) -> Tally {
        let mut tally = Tally::new().unwrap();
        all.into_iter().for_each(|made| made.add_to(&mut tally));
        tally
    }

    /// Property: any order of the results, and any split over tallies that are merged in any order, gives
    /// the same tally, also with more caches than a tally tells apart.
    #[test]
    fn tally_does_not_depend_on_order_or_split() {
        for seed in 0..8 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut all: Vec<Made> = (0..600).map(|_| Made::random(&mut random, 100)).collect();
            let one = tally_of(&all);
            assert_eq!(one.accesses(), 600);
            assert!(one.caches.others().is_some(), "more than {CACHES_MAX} caches");
            random.shuffle(&mut all);
            assert_eq!(tally_of(&all), one, "seed {seed}");
            let mut parts: Vec<Tally> = all.chunks(random.usize(50..300)).map(tally_of).collect();
            random.shuffle(&mut parts);
            let mut merged = Tally::new().unwrap();
            parts.iter().for_each(|part| merged.merge(part).unwrap());
            assert_eq!(merged, one, "seed {seed}");
        }
    }

    /// Property: every sum over a kind of name, over outcomes, over time and over classes is the total.
    #[test]
    fn sums_of_all_kinds_are_the_totals() {
        let mut random = fastrand::Rng::with_seed(99);
        let all: Vec<Made> = (0..2000).map(|_| Made::random(&mut random, 100)).collect();
        let tally = tally_of(&all);
        let (totals, points) = (&tally.totals, tally.series.points());
        let bytes: u64 = all.iter().map(|made| made.result.bytes).sum();
        assert_eq!((totals.accesses, totals.bytes), (2000, bytes));
        assert_eq!(points.iter().map(|point| point.bytes).sum::<u64>(), bytes);
        assert_eq!(points.iter().map(|point| point.due).sum::<u64>(), 2000);
        assert_eq!(points.iter().map(|point| point.ended).sum::<u64>(), 2000);
        assert_eq!(points.iter().map(|point| point.errors).sum::<u64>(), totals.errors);
        assert_eq!(tally.outcomes.iter().map(|of| of.accesses).sum::<u64>(), 2000);
        let numbers: u64 = tally.outcomes.iter().flat_map(|of| of.numbers.values()).sum();
        let others: u64 = tally.outcomes.iter().map(|of| of.other_numbers).sum();
        assert_eq!(numbers + others, all.iter().filter(|made| made.result.number > 0).count() as u64);
        for names in [&tally.sites, &tally.datasets, &tally.agents, &tally.drivers] {
            assert_eq!(names.rows().map(|(_, of)| of.bytes).sum::<u64>(), bytes);
        }
        let caches: u64 = tally.caches.rows().map(|(_, of)| of.sums.accesses).sum();
        assert_eq!(caches + tally.caches.others().unwrap().sums.accesses, 2000);
        let (split, _) = tally.splits();
        let classes = split.hits.accesses + split.misses.accesses + split.unclear.accesses;
        assert_eq!(classes, totals.accesses - totals.errors);
        let of = &tally.latencies;
        let counts = [&of.intended_ok, &of.intended_error].map(|of| of.figures().unwrap().count);
        assert_eq!(counts, [totals.accesses - totals.errors, totals.errors]);
    }

    /// Property: absurd numbers of an agent neither panic nor lose a result, and the series stays bounded.
    #[test]
    fn absurd_results_are_bounded() {
        let mut tally = Tally::new().unwrap();
        let absurd = AccessResult {
            outcome: Outcome::Agent,
            number: u32::MAX,
            late_us: u64::MAX,
            first_byte_us: Some(u64::MAX),
            duration_us: u64::MAX,
            bytes: u64::MAX,
            redirects: u32::MAX,
            ..AccessResult::default()
        };
        let name = "é".repeat(5000);
        let of = ItemFacts {
            intended_us: u64::MAX,
            bytes_asked: u64::MAX,
            bytes_in_blocks: u64::MAX,
            site: &name,
            agent: &name,
            ..ItemFacts::default()
        };
        for outcome in [Outcome::Agent, Outcome::Ok] {
            tally.add(&of, &AccessResult { outcome, ..absurd.clone() });
            tally.add(&ItemFacts::default(), &AccessResult { outcome, ..AccessResult::default() });
        }
        assert_eq!(tally.accesses(), 4);
        assert!(tally.series.points().len() <= SERIES_POINTS_MAX);
        assert_eq!(tally.latencies.late.figures().unwrap().count, 4);
        let mut normal = Tally::new().unwrap();
        let facts = ItemFacts { intended_us: 5, ..ItemFacts::default() };
        normal.add(&facts, &AccessResult { duration_us: u64::MAX, ..AccessResult::default() });
        let end = normal.series.width_us() * normal.series.points().len() as u64;
        assert!(end <= 2 * DURATION_US_MAX, "a wrong duration adds a day at most");
    }

    /// Property: the first number that is not told apart, and the last that is.
    #[test]
    fn error_numbers_are_bounded_at_their_edge() {
        let mut tally = Tally::new().unwrap();
        for number in [0, 1, 3011, ERROR_NUMBERS_MAX - 1, ERROR_NUMBERS_MAX, u32::MAX] {
            let result = AccessResult { outcome: Outcome::Server, number, ..AccessResult::default() };
            tally.add(&ItemFacts::default(), &result);
        }
        let of = &tally.outcomes[Outcome::Server as usize];
        assert_eq!(of.numbers.keys().copied().collect::<Vec<_>>(), [1, 3011, ERROR_NUMBERS_MAX - 1]);
        assert_eq!(of.other_numbers, 2);
    }
}
