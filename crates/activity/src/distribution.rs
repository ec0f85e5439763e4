//! Distribution of times: counters by bucket, cheap to record, and exact to subtract.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper ends of the buckets of a decade, in tenths. The steps are at most 15 %, and the ends that
/// Prometheus gets are among them.
const STEPS: [u64; 24] =
    [10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 25, 28, 30, 33, 36, 40, 45, 50, 55, 60, 65, 70, 80, 90];
/// Decades from 10 us on. Shorter times have a bucket for each microsecond.
const DECADES: usize = 9;
/// Longest distinguished time, in microseconds; longer ones count as this.
pub const TIME_US_MAX: u64 = 3_600_000_000;
/// Number of buckets: the last one ends at [`TIME_US_MAX`].
const BUCKETS: usize = 9 + (DECADES - 1) * STEPS.len() + 15;
/// Upper ends of all buckets, in microseconds.
const ENDS_US: [u64; BUCKETS] = ends();

/// Upper ends of the buckets that Prometheus gets, in microseconds; one more has the rest.
const PROMETHEUS_US: [u64; 15] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// Upper ends of the buckets of sizes that Prometheus gets; one more has the rest.
const PROMETHEUS_SIZES: [u64; 13] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// A distribution for Prometheus. The buckets of all times are the same, and so are those of all sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForPrometheus {
    /// Sum, in seconds for times.
    pub sum: f64,
    /// Upper end and count of each bucket; the last one ends at `f64::MAX`.
    pub buckets: Vec<(f64, u64)>,
}

/// Number of buckets of times for Prometheus.
pub const TIME_BUCKETS: usize = PROMETHEUS_US.len() + 1;

/// Returns the number of the bucket for Prometheus that has this time.
pub fn time_bucket(us: u64) -> usize {
    bucket_of(&PROMETHEUS_US, us)
}

fn bucket_of(ends: &[u64], value: u64) -> usize {
    ends.partition_point(|end| *end < value)
}

const fn ends() -> [u64; BUCKETS] {
    let mut ends = [TIME_US_MAX; BUCKETS];
    let (mut place, mut factor) = (0, 1);
    while place < 9 {
        ends[place] = place as u64 + 1;
        place += 1;
    }
    while place < BUCKETS {
        let mut step = 0;
        while step < STEPS.len() && place < BUCKETS {
            let end = STEPS[step] * factor;
            ends[place] = if end < TIME_US_MAX { end } else { TIME_US_MAX };
            place += 1;
            step += 1;
        }
        factor *= 10;
    }
    ends
}

/// A distribution that grows. Threads record at the same time.
#[derive(Debug)]
pub struct Distribution {
    counts: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Distribution {
    fn default() -> Self {
        Distribution { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum_us: AtomicU64::new(0) }
    }
}

impl Distribution {
    /// Records `count` times of `us` microseconds.
    pub fn record(&self, us: u64, count: u64) {
        let us = us.min(TIME_US_MAX);
        self.sum_us.fetch_add(us.saturating_mul(count), Ordering::Relaxed);
        self.counts[ENDS_US.partition_point(|end| *end < us)].fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the counts at this moment.
    pub fn now(&self) -> Recorded {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).enumerate();
        let buckets = counts.filter(|(_, count)| *count > 0).map(|(place, count)| (place as u8, count));
        Recorded { buckets: buckets.collect(), sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

/// Times that were recorded, up to a moment or between two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Number and count of each bucket that has times, in order.
    buckets: Vec<(u8, u64)>,
    sum_us: u64,
}

// The number of a bucket is one byte.
const _: () = assert!(BUCKETS <= 256);

impl Recorded {
    /// Returns the times with these buckets, in order, and this sum. A number without a bucket counts
    /// as the longest time.
    pub fn of(buckets: Vec<(u8, u64)>, sum_us: u64) -> Self {
        Recorded { buckets, sum_us }
    }

    /// Returns the buckets that have times: number and count.
    pub fn buckets(&self) -> &[(u8, u64)] {
        &self.buckets
    }

    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Returns the sum of the times, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Returns the time that this share of the times does not exceed, in microseconds: the end of a
    /// bucket, at most 15 % too long. 0 without times.
    pub fn quantile_us(&self, share: f64) -> u64 {
        // At least the first time, whatever the share.
        let rank = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        bucket.map_or(0, |(place, _)| end_us(*place))
    }

    /// Returns the end of the last bucket that has times, in microseconds.
    pub fn max_us(&self) -> u64 {
        self.buckets.last().map_or(0, |(place, _)| end_us(*place))
    }

    /// Records `count` times of `us` microseconds.
    pub fn record(&mut self, us: u64, count: u64) {
        let us = us.min(TIME_US_MAX);
        let place = ENDS_US.partition_point(|end| *end < us) as u8;
        self.add(&Recorded { buckets: vec![(place, count)], sum_us: us.saturating_mul(count) });
    }

    /// Adds the times of another distribution.
    pub fn add(&mut self, other: &Recorded) {
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.combine(other, u64::saturating_add);
    }

    /// Takes away the times of an earlier moment.
    pub fn subtract(&mut self, earlier: &Recorded) {
        self.sum_us = self.sum_us.saturating_sub(earlier.sum_us);
        self.combine(earlier, u64::saturating_sub);
    }

    fn combine(&mut self, other: &Recorded, with: fn(u64, u64) -> u64) {
        for (place, count) in &other.buckets {
            match self.buckets.binary_search_by_key(place, |(place, _)| *place) {
                Ok(at) => self.buckets[at].1 = with(self.buckets[at].1, *count),
                Err(at) => self.buckets.insert(at, (*place, with(0, *count))),
            }
        }
        self.buckets.retain(|(_, count)| *count > 0);
    }

    /// Returns the count of each bucket with these upper ends, which are among those of [`ENDS_US`]. One
    /// more has the rest.
    fn in_buckets(&self, ends: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; ends.len() + 1];
        for (place, count) in &self.buckets {
            counts[bucket_of(ends, end_us(*place))] += count;
        }
        counts
    }

    /// Returns the buckets for Prometheus, of times.
    pub fn times_for_prometheus(&self) -> ForPrometheus {
        let ends = PROMETHEUS_US.iter().map(|end| *end as f64 / 1e6).chain([f64::MAX]);
        let buckets = ends.zip(self.in_buckets(&PROMETHEUS_US)).collect();
        ForPrometheus { sum: self.sum_us as f64 / 1e6, buckets }
    }

    /// Returns the buckets for Prometheus, of sizes that were recorded in place of times.
    pub fn sizes_for_prometheus(&self) -> ForPrometheus {
        let ends = PROMETHEUS_SIZES.iter().map(|end| *end as f64).chain([f64::MAX]);
        let buckets = ends.zip(self.in_buckets(&PROMETHEUS_SIZES)).collect();
        ForPrometheus { sum: self.sum_us as f64, buckets }
    }
}

/// Returns the upper end of a bucket.
fn end_us(place: u8) -> u64 {
    ENDS_US.get(usize::from(place)).copied().unwrap_or(TIME_US_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ends grow by at most 15 % from 10 us on, up to the longest time, and have those of Prometheus.
    #[test]
    fn ends_are_close_to_each_other() {
        assert_eq!(ENDS_US[BUCKETS - 1], TIME_US_MAX);
        for pair in ENDS_US.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
            assert!(pair[1] <= 10 || pair[1] * 100 <= pair[0] * 115, "{pair:?}");
        }
        assert!(PROMETHEUS_US.iter().chain(&PROMETHEUS_SIZES).all(|end| ENDS_US.contains(end)));
    }

    #[test]
    fn time_counts_in_the_bucket_that_ends_at_or_after_it() {
        let distribution = Distribution::default();
        for us in [0, 1, 50, 51, 100, TIME_US_MAX, u64::MAX] {
            distribution.record(us, 1);
        }
        let times = distribution.now();
        assert_eq!(times.count(), 7);
        assert_eq!(times.sum_us(), 202 + 2 * TIME_US_MAX);
        let buckets = times.times_for_prometheus().buckets;
        assert_eq!((buckets[0].1, buckets[1].1, buckets[15].1), (3, 2, 2));
        let sizes = times.sizes_for_prometheus();
        assert_eq!(
            (sizes.sum, sizes.buckets[0], sizes.buckets[5]),
            (times.sum_us() as f64, (1.0, 2), (50.0, 1))
        );
        // A time above an end is in the bucket after it, for exemplars as for counts.
        assert_eq!((time_bucket(50), time_bucket(51), time_bucket(u64::MAX)), (0, 1, TIME_BUCKETS - 1));
        assert_eq!((times.quantile_us(0.0), times.quantile_us(0.5)), (1, 55));
        assert_eq!((times.quantile_us(1.0), times.max_us()), (TIME_US_MAX, TIME_US_MAX));
        assert_eq!(Recorded::default().quantile_us(0.5), 0);
    }

    #[test]
    fn difference_has_the_times_in_between() {
        let distribution = Distribution::default();
        distribution.record(10, 5);
        let earlier = distribution.now();
        distribution.record(10, 1);
        distribution.record(2_000, 2);
        let mut between = distribution.now();
        between.subtract(&earlier);
        assert_eq!((between.count(), between.sum_us(), between.max_us()), (3, 4_010, 2_000));
        between.add(&earlier);
        assert_eq!(between, distribution.now());
        // Counts of another server, which are no earlier ones, give no negative count.
        let mut none = Recorded::default();
        none.subtract(&earlier);
        assert_eq!(none, Recorded::default());
    }
}
