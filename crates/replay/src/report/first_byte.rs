//! Hits and misses as clients see them: a first byte that comes from the cache is early, one that comes
//! from the origin is late. The border between both is an estimate.
//!
//! Accesses are kept by the step of their first byte, so that they can be told apart once all are there.

use std::collections::BTreeMap;

use super::coarse::{Coarse, longest_of};
use super::merge::Merge;

/// Steps on each side over which counts are smoothed: half an octave.
const SMOOTHED: usize = 8;
/// Least accesses of a group, and least share in a hundred: fewer are outliers of the other one.
const GROUP_MIN: u64 = 20;
const GROUP_SHARE_MIN: u64 = 100;
/// Least ratio of the medians of both groups.
const MEDIANS_RATIO_MIN: u64 = 2;

/// Accesses of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassSums {
    pub accesses: u64,
    /// Accesses to files that were read before in the run.
    pub again: u64,
    pub bytes_asked: u64,
    pub bytes: u64,
    /// Durations from the intended begin, and from the actual one.
    pub intended: Coarse,
    pub actual: Coarse,
}

impl Merge for ClassSums {
    fn merge(&mut self, other: &ClassSums) {
        self.accesses.merge(&other.accesses);
        self.again.merge(&other.again);
        self.bytes_asked.merge(&other.bytes_asked);
        self.bytes.merge(&other.bytes);
        self.intended.merge(&other.intended);
        self.actual.merge(&other.actual);
    }
}

/// Successful accesses by the step of their first byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstBytes {
    steps: BTreeMap<u16, ClassSums>,
    /// Accesses whose client does not tell when the first byte came.
    silent: ClassSums,
}

impl Merge for FirstBytes {
    fn merge(&mut self, other: &FirstBytes) {
        for (step, sums) in &other.steps {
            self.steps.entry(*step).or_default().merge(sums);
        }
        self.silent.merge(&other.silent);
    }
}

/// Accesses, told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    /// Latest first byte of a hit; none if there are no two groups.
    pub border_us: Option<u64>,
    pub hits: ClassSums,
    pub misses: ClassSums,
    /// Accesses of which nothing can be said.
    pub unclear: ClassSums,
}

impl Split {
    /// Adds the accesses of another cache, which has a border of its own.
    pub(crate) fn merge(&mut self, other: &Split) {
        self.hits.merge(&other.hits);
        self.misses.merge(&other.misses);
        self.unclear.merge(&other.unclear);
    }
}

impl FirstBytes {
    /// Returns the sums of a step of the first byte; none for a client that does not tell it.
    pub(crate) fn at(&mut self, step: Option<u16>) -> &mut ClassSums {
        match step {
            Some(step) => self.steps.entry(step).or_default(),
            None => &mut self.silent,
        }
    }

    /// Tells hits and misses apart.
    pub(crate) fn split(&self) -> Split {
        let counts: Vec<(u16, u64)> = self.steps.iter().map(|(step, sums)| (*step, sums.accesses)).collect();
        let border = border(&counts);
        let mut split =
            Split { border_us: border.map(longest_of), unclear: self.silent.clone(), ..Split::default() };
        for (step, sums) in &self.steps {
            let class = match border {
                None => &mut split.unclear,
                Some(border) if *step <= border => &mut split.hits,
                Some(_) => &mut split.misses,
            };
            class.merge(sums);
        }
        split
    }
}

/// Returns the step at which half of the counts is reached.
fn median(counts: &[(u16, u64)]) -> u16 {
    let total: u64 = counts.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    for (step, count) in counts {
        below += count;
        if below * 2 >= total {
            return *step;
        }
    }
    0
}

/// Returns the last step of the lower of two groups; none if there are no two.
///
/// Steps are logarithmic. The border is the deepest valley between two peaks of the smoothed counts. It
/// counts if it is at most half as high as the lower peak, if chance does not make such a valley, and if
/// neither group is a handful of outliers.
fn border(counts: &[(u16, u64)]) -> Option<u16> {
    let (first, last) = (counts.first()?.0, counts.last()?.0);
    let mut dense = vec![0_u64; usize::from(last - first) + 1];
    for (step, count) in counts {
        dense[usize::from(step - first)] = *count;
    }
    let weight = |distance: usize| (SMOOTHED + 1 - distance) as u64;
    let smooth: Vec<u64> = (0..dense.len())
        .map(|at| {
            let near = at.saturating_sub(SMOOTHED)..(at + SMOOTHED + 1).min(dense.len());
            near.map(|other| dense[other].saturating_mul(weight(at.abs_diff(other))))
                .fold(0, u64::saturating_add)
        })
        .collect();
    let mut left = smooth.clone();
    let mut right = smooth.clone();
    for at in 1..smooth.len() {
        left[at] = left[at].max(left[at - 1]);
        let back = smooth.len() - 1 - at;
        right[back] = right[back].max(right[back + 1]);
    }
    let depth = |at: usize| left[at].min(right[at]) - smooth[at];
    let deepest = (0..smooth.len()).map(depth).max()?;
    // A gap between two groups is flat: its middle is the border.
    let begin = (0..smooth.len()).find(|at| depth(*at) == deepest)?;
    let flat = (begin..smooth.len()).take_while(|at| depth(*at) == deepest).count();
    let at = begin + (flat - 1) / 2;
    let (peak, valley) = (u128::from(left[at].min(right[at])), u128::from(smooth[at]));
    // Three standard deviations of the difference of both counts, which are `weight(0)` times smaller.
    let by_chance = 9 * u128::from(weight(0)) * (peak + valley);
    let is_deep = 2 * valley <= peak && (peak - valley).pow(2) >= by_chance;
    let border = first + at as u16;
    let (low, high) = counts.split_at(counts.partition_point(|(step, _)| *step <= border));
    let sum = |of: &[(u16, u64)]| of.iter().map(|(_, count)| count).sum::<u64>();
    let least = sum(low).min(sum(high));
    let is_group = least >= GROUP_MIN && least.saturating_mul(GROUP_SHARE_MIN) >= sum(counts);
    let are_apart = longest_of(median(high)) >= MEDIANS_RATIO_MIN * longest_of(median(low));
    (is_deep && is_group && are_apart).then_some(border)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::coarse::step_of;

    /// A lognormal number.
    fn about(random: &mut fastrand::Rng, median: f64, sigma: f64) -> u64 {
        let (a, b) = (random.f64().max(1e-12), random.f64());
        let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        (median * (sigma * normal).exp()) as u64
    }

    fn counts(values: &[u64]) -> Vec<(u16, u64)> {
        let mut counts = BTreeMap::new();
        values.iter().for_each(|value| *counts.entry(step_of(*value)).or_insert(0) += 1);
        counts.into_iter().collect()
    }

    /// Property: two groups are told apart with few errors, whatever their shares from 3 % on.
    #[test]
    fn two_groups_are_told_apart() {
        for seed in 0..30 {
            for hits in [60, 600, 1000, 1400, 1940] {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut values: Vec<u64> = (0..hits).map(|_| about(&mut random, 2_000.0, 0.5)).collect();
                values.extend((hits..2000).map(|_| about(&mut random, 60_000.0, 0.5)));
                let border = border(&counts(&values)).map(longest_of).expect("two groups");
                let wrong = values[..hits].iter().filter(|value| **value > border).count()
                    + values[hits..].iter().filter(|value| **value <= border).count();
                assert!(wrong <= 10, "seed {seed}, {hits} hits: {wrong} wrong at {border}");
            }
        }
    }

    /// Property: one group is not cut in two, narrow or wide, few or many, with some outliers or none.
    #[test]
    fn one_group_stays_one() {
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            for (count, sigma) in [(1, 0.1), (30, 0.5), (300, 1.0), (3000, 0.3), (3000, 1.5)] {
                let mut values: Vec<u64> = (0..count).map(|_| about(&mut random, 5_000.0, sigma)).collect();
                values.extend([900_000_000; 15]);
                assert_eq!(border(&counts(&values[..count])), None, "seed {seed}, {count}, {sigma}");
                assert_eq!(border(&counts(&values)), None, "seed {seed}, {count}, {sigma}, outliers");
            }
        }
        assert_eq!(border(&[]), None);
    }

    /// Property: a group counts from its least number and its least share on.
    #[test]
    fn groups_of_outliers_do_not_count_at_the_edge() {
        let groups = |low: u64, high: u64| border(&[(100, low), (200, high)]).is_some();
        assert!(!groups(GROUP_MIN - 1, 100) && groups(GROUP_MIN, 100));
        assert!(!groups(99, 9_901) && groups(100, 9_900));
        assert_eq!(border(&[(100, 50), (200, 50)]), Some(150), "the middle of the gap");
    }

    /// Property: every access is in one class, and clients that tell nothing are unclear.
    #[test]
    fn classes_add_up() {
        let mut bytes = FirstBytes::default();
        for (step, count) in [(Some(100), 40), (Some(200), 30), (None, 5)] {
            let sums = ClassSums { accesses: count, bytes: 10 * count, ..ClassSums::default() };
            bytes.at(step).merge(&sums);
        }
        let split = bytes.split();
        assert_eq!((split.hits.accesses, split.misses.accesses, split.unclear.accesses), (40, 30, 5));
        assert_eq!((split.hits.bytes, split.border_us), (400, Some(longest_of(150))));
        let mut one = FirstBytes::default();
        one.at(Some(7)).accesses = 1000;
        let split = one.split();
        assert_eq!((split.border_us, split.unclear.accesses, split.hits.accesses), (None, 1000, 0));
    }
}
