//! Last hour of a run, by seconds: what stop conditions look at.

use std::collections::VecDeque;

use super::coarse::Coarse;
use super::merge::Merge;
use crate::limits::{DURATION_US_MAX, WINDOW_SECONDS_MAX};
use crate::run::outcome::{AccessResult, Outcome};

const SECOND_US: u64 = 1_000_000;

/// Sums of a second, or of several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Second {
    pub accesses: u64,
    pub errors: u64,
    pub bytes: u64,
    /// Durations from the intended begin.
    pub felt: Coarse,
    pub late: Coarse,
    /// Load that the plan asks for; none if nobody told it.
    load: Option<u64>,
    /// Bytes that caches gave to clients, those of them that passed the cache by, and those that origins
    /// sent; none if nobody told them.
    pub cache: Option<(u64, u64)>,
    pub origin: Option<u64>,
}

impl Second {
    fn merge(&mut self, other: &Second) {
        self.accesses.merge(&other.accesses);
        self.errors.merge(&other.errors);
        self.bytes.merge(&other.bytes);
        self.felt.merge(&other.felt);
        self.late.merge(&other.late);
        if let Some((bytes, bypass)) = other.cache {
            let sums = self.cache.get_or_insert_default();
            sums.0.merge(&bytes);
            sums.1.merge(&bypass);
        }
        if let Some(bytes) = other.origin {
            self.origin.get_or_insert_default().merge(&bytes);
        }
    }
}

/// Growth from the first half of a span of time to its second half, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    pub load_ppm: i64,
    pub rate_ppm: i64,
}

/// Last hour of a run. Times are microseconds on any one clock that only goes forward, those at which the
/// caller learns of something.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// Second of the first entry.
    first: u64,
    /// Second since which the run goes on without a pause.
    since: Option<u64>,
    seconds: VecDeque<Second>,
}

impl Recent {
    /// Makes an empty one.
    pub fn new() -> Recent {
        Recent::default()
    }

    /// Forgets everything, and counts from a time on: at the begin of a run, and after each pause.
    pub fn begin(&mut self, now_us: u64) {
        *self =
            Recent { first: now_us / SECOND_US, since: Some(now_us / SECOND_US), seconds: VecDeque::new() };
    }

    /// Returns the sums of a second. One before the last counts as the last.
    fn at(&mut self, now_us: u64) -> &mut Second {
        let now = now_us / SECOND_US;
        if self.seconds.is_empty() {
            self.first = now;
            self.since.get_or_insert(now);
        }
        let last = self.seconds.back().map(|last| last.load);
        let end = self.first.saturating_add(self.seconds.len() as u64);
        if now.saturating_sub(end) > WINDOW_SECONDS_MAX {
            self.seconds.clear();
            self.first = now - WINDOW_SECONDS_MAX;
        }
        while self.seconds.is_empty() || self.first + (self.seconds.len() as u64) <= now {
            // A load stays until another is told.
            self.seconds.push_back(Second { load: last.flatten(), ..Second::default() });
        }
        // The present second is not over: it stands beside a full window.
        while self.seconds.len() as u64 > WINDOW_SECONDS_MAX + 1 {
            self.seconds.pop_front();
            self.first += 1;
        }
        let at = self.seconds.len() - 1;
        &mut self.seconds[at]
    }

    /// Adds the final result of an item, at the time when it came.
    pub fn add(&mut self, now_us: u64, result: &AccessResult) {
        let late = result.late_us.min(DURATION_US_MAX);
        let felt = late.saturating_add(result.duration_us);
        let second = self.at(now_us);
        second.accesses += 1;
        second.errors += u64::from(result.outcome != Outcome::Ok);
        second.bytes.merge(&result.bytes);
        second.felt.record(felt);
        second.late.record(late);
    }

    /// Tells the load that the plan asks for from now on, in any unit: accesses in flight, or a second.
    pub fn set_load(&mut self, now_us: u64, load: u64) {
        self.at(now_us).load = Some(load);
    }

    /// Adds bytes that caches gave to clients since the last call, and those of them that passed it by.
    pub fn add_cache(&mut self, now_us: u64, bytes: u64, bypass: u64) {
        let sums = self.at(now_us).cache.get_or_insert_default();
        sums.0.merge(&bytes);
        sums.1.merge(&bypass);
    }

    /// Adds bytes that origins sent since the last call.
    pub fn add_origin(&mut self, now_us: u64, bytes: u64) {
        self.at(now_us).origin.get_or_insert_default().merge(&bytes);
    }

    /// Returns the last full seconds; none if the run has not gone on for as long. Moves to the present.
    fn window(&mut self, now_us: u64, seconds: u64) -> Option<impl Iterator<Item = &Second>> {
        let _ = self.at(now_us);
        let now = self.first + self.seconds.len() as u64 - 1;
        let is_full = self.since.is_some_and(|since| since.saturating_add(seconds) <= now);
        // Fewer seconds stand here if the first of them were before anything was told: these are empty.
        let skipped = self.seconds.len().saturating_sub(1).saturating_sub(seconds as usize);
        let count = self.seconds.len() - 1 - skipped;
        is_full.then(|| self.seconds.iter().skip(skipped).take(count))
    }

    /// Returns the sums of the last full seconds.
    pub(crate) fn sums(&mut self, now_us: u64, seconds: u64) -> Option<Second> {
        let mut sums = Second::default();
        self.window(now_us, seconds)?.for_each(|second| sums.merge(second));
        Some(sums)
    }

    /// Returns the growth of load and rate from the first half of the last seconds to the second half;
    /// none if either is not known or 0 in the first half.
    pub(crate) fn growth(&mut self, now_us: u64, seconds: u64) -> Option<Growth> {
        let half = seconds / 2;
        let (mut load, mut bytes) = ([0_u128; 2], [0_u128; 2]);
        let window: Vec<&Second> = self.window(now_us, 2 * half)?.collect();
        if window.len() as u64 != 2 * half {
            return None;
        }
        for (number, second) in window.into_iter().enumerate() {
            let side = usize::from(number as u64 >= half);
            load[side] += u128::from(second.load?);
            bytes[side] += u128::from(second.bytes);
        }
        let growth = |[before, after]: [u128; 2]| -> Option<i64> {
            let ppm = after.checked_mul(1_000_000)?.checked_div(before)?;
            Some(i64::try_from(ppm).unwrap_or(i64::MAX) - 1_000_000)
        };
        Some(Growth { load_ppm: growth(load)?, rate_ppm: growth(bytes)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(outcome: Outcome, bytes: u64) -> AccessResult {
        AccessResult { outcome, bytes, duration_us: 1000, ..AccessResult::default() }
    }

    const SECOND: u64 = SECOND_US;

    /// Property: a window has the full seconds before the present one, once the run is as long.
    #[test]
    fn window_has_the_last_full_seconds() {
        let mut recent = Recent::new();
        recent.begin(100 * SECOND);
        for second in 100..110 {
            recent.add(second * SECOND + 7, &result(Outcome::Ok, second));
        }
        assert!(recent.sums(109 * SECOND + 9, 10).is_none(), "nine full seconds");
        assert_eq!(recent.sums(110 * SECOND, 10).unwrap().bytes, (100..110).sum::<u64>());
        assert_eq!(recent.sums(110 * SECOND, 3).unwrap().bytes, 107 + 108 + 109);
        assert_eq!(recent.sums(115 * SECOND, 10).unwrap().accesses, 5, "nothing came since");
        recent.begin(120 * SECOND);
        recent.add(121 * SECOND, &result(Outcome::Timeout, 1));
        assert!(recent.sums(124 * SECOND, 5).is_none(), "a pause begins anew");
        let sums = recent.sums(125 * SECOND, 5).unwrap();
        assert_eq!((sums.accesses, sums.errors), (1, 1), "seconds before the first result count as empty");
    }

    /// Property: memory is bounded, whatever the times.
    #[test]
    fn seconds_are_bounded_at_their_edge() {
        let mut recent = Recent::new();
        recent.begin(0);
        for second in 0..WINDOW_SECONDS_MAX + 10 {
            recent.add(second * SECOND, &result(Outcome::Ok, 1));
        }
        assert_eq!(recent.seconds.len() as u64, WINDOW_SECONDS_MAX + 1);
        let now = (WINDOW_SECONDS_MAX + 9) * SECOND;
        assert_eq!(recent.sums(now, WINDOW_SECONDS_MAX).unwrap().accesses, WINDOW_SECONDS_MAX);
        recent.add(5, &result(Outcome::Ok, 1));
        assert_eq!(recent.seconds.len() as u64, WINDOW_SECONDS_MAX + 1, "an earlier time is the present one");
        recent.add(u64::MAX, &result(Outcome::Ok, 1));
        assert!(recent.seconds.len() as u64 <= WINDOW_SECONDS_MAX + 1);
        assert_eq!(recent.sums(u64::MAX, WINDOW_SECONDS_MAX).unwrap().accesses, 0);
    }

    /// Property: growth compares halves, and is not known without a load in every second.
    #[test]
    fn growth_compares_both_halves() {
        let mut recent = Recent::new();
        recent.begin(0);
        recent.set_load(0, 100);
        for second in 0..20_u64 {
            recent.add(second * SECOND, &result(Outcome::Ok, if second < 10 { 1000 } else { 1010 }));
            if second == 10 {
                recent.set_load(second * SECOND, 150);
            }
        }
        let growth = recent.growth(20 * SECOND, 20).unwrap();
        assert_eq!(growth, Growth { load_ppm: 500_000, rate_ppm: 10_000 });
        assert_eq!(
            recent.growth(20 * SECOND, 21),
            recent.growth(20 * SECOND, 20),
            "an odd second is left out"
        );
        let mut silent = Recent::new();
        silent.begin(0);
        silent.add(0, &result(Outcome::Ok, 1));
        assert_eq!(silent.growth(30 * SECOND, 20), None);
    }
}
