//! Small histogram of durations: 16 steps an octave, and only those that are used take memory.
//!
//! A run has tens of thousands of these, for each site, dataset and point in time. A full HDR histogram
//! of three digits takes 200 KiB, one of these a few hundred bytes.

use super::merge::Merge;
use crate::limits::DURATION_US_MAX;

/// Bits of a value that are kept: a quantile is at most 1/16 too high.
const STEP_BITS: u32 = 4;
const STEPS: u64 = 1 << STEP_BITS;

/// Returns the step of a duration.
pub(crate) fn step_of(us: u64) -> u16 {
    let us = us.min(DURATION_US_MAX);
    let shift = (64 - us.leading_zeros()).saturating_sub(STEP_BITS + 1);
    // At most 33 octaves of 16 steps.
    (u64::from(shift) * STEPS + (us >> shift)) as u16
}

/// Returns the longest duration of a step.
pub(crate) fn longest_of(step: u16) -> u64 {
    let step = u64::from(step);
    if step < 2 * STEPS {
        return step;
    }
    let shift = step / STEPS - 1;
    ((step % STEPS + STEPS + 1) << shift) - 1
}

/// Histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coarse {
    /// Steps in their order, with their counts.
    counts: Vec<(u16, u32)>,
    /// Longest duration.
    max: u64,
}

impl Coarse {
    /// Adds a duration.
    pub(crate) fn record(&mut self, us: u64) {
        self.add(step_of(us), 1);
        self.max = self.max.max(us.min(DURATION_US_MAX));
    }

    fn add(&mut self, step: u16, count: u32) {
        match self.counts.binary_search_by_key(&step, |(step, _)| *step) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(count),
            Err(at) => self.counts.insert(at, (step, count)),
        }
    }

    /// Returns the number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// Returns the duration that such a share of all does not exceed, at most 1/16 too high; none without
    /// durations. The longest is exact.
    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        let total = self.count();
        let rank = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0;
        for (step, count) in &self.counts {
            below += u64::from(*count);
            if below >= rank {
                return Some(longest_of(*step).min(self.max));
            }
        }
        None
    }

    /// Returns an average, by the middles of the steps.
    pub(crate) fn mean(&self) -> Option<u64> {
        let middle = |step: u16| match step {
            0 => 0,
            _ => u128::from((longest_of(step - 1) + 1 + longest_of(step)) / 2),
        };
        let sum: u128 = self.counts.iter().map(|(step, count)| middle(*step) * u128::from(*count)).sum();
        sum.checked_div(u128::from(self.count())).and_then(|mean| u64::try_from(mean).ok())
    }
}

impl Merge for Coarse {
    fn merge(&mut self, other: &Coarse) {
        if self.counts.is_empty() {
            self.clone_from(other);
            return;
        }
        for (step, count) in &other.counts {
            self.add(*step, *count);
        }
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number whose length is random.
    fn some(random: &mut fastrand::Rng, bits: std::ops::Range<u32>) -> u64 {
        let most = 1 << random.u32(bits);
        random.u64(..most)
    }

    /// Property: steps follow each other without gaps, and each ends at most 1/16 above its values.
    #[test]
    fn steps_are_gapless_and_narrow() {
        let last = step_of(u64::MAX);
        assert_eq!(last, step_of(DURATION_US_MAX));
        for step in 0..=last {
            let longest = longest_of(step);
            if longest < DURATION_US_MAX {
                assert_eq!((step_of(longest), step_of(longest + 1)), (step, step + 1));
            }
            let shortest = if step == 0 { 0 } else { longest_of(step - 1) + 1 };
            assert!(longest - shortest <= shortest / 16, "{step}");
        }
    }

    /// Property: quantiles are those of the sorted durations, at most 1/16 too high; merging changes none.
    #[test]
    fn quantiles_are_those_of_the_sorted_durations() {
        let mut random = fastrand::Rng::with_seed(7);
        for count in [1, 2, 10, 1000] {
            let mut values: Vec<u64> = (0..count).map(|_| some(&mut random, 0..36)).collect();
            let (mut whole, mut halves) = (Coarse::default(), [Coarse::default(), Coarse::default()]);
            for (number, value) in values.iter().enumerate() {
                whole.record(*value);
                halves[number % 2].record(*value);
            }
            let [mut first, second] = halves;
            first.merge(&second);
            assert_eq!(first, whole);
            assert_eq!(whole.count(), count);
            values.sort_unstable();
            for share in [0.0, 0.5, 0.9, 0.99, 1.0] {
                let rank = ((values.len() as f64 * share).ceil() as usize).max(1) - 1;
                let (exact, of) = (values[rank], whole.quantile(share).unwrap());
                assert!(of >= exact && of <= exact + exact / 16, "{share}: {of} {exact}");
            }
            assert_eq!(whole.quantile(1.0), values.last().copied());
            let mean = values.iter().sum::<u64>() / count;
            let of = whole.mean().unwrap();
            assert!(of.abs_diff(mean) <= mean / 16 + 1, "{of} {mean}");
        }
        assert_eq!((Coarse::default().quantile(0.5), Coarse::default().mean()), (None, None));
    }
}
