//! HDR histograms of durations, and the figures that a report shows of them.

use exacat_model::{Error, ErrorKind, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::coarse::Coarse;
use crate::limits::DURATION_US_MAX;

/// Digits that a histogram tells apart.
const DIGITS: u8 = 3;
/// Points of a curve for each halving of the rest above it.
const POINTS_EACH_HALVING: u32 = 4;

fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, format!("internal error: histogram of durations: {error}; report it"))
}

/// Durations in microseconds, with three digits, up to a day.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Times {
    histogram: Histogram<u64>,
}

impl Times {
    pub(crate) fn new() -> Result<Times> {
        let histogram =
            Histogram::new_with_bounds(1, DURATION_US_MAX, DIGITS).map_err(|error| internal(&error))?;
        Ok(Times { histogram })
    }

    pub(crate) fn record(&mut self, us: u64) {
        self.histogram.saturating_record(us.min(DURATION_US_MAX));
    }

    pub(crate) fn merge(&mut self, other: &Times) -> Result<()> {
        self.histogram.add(&other.histogram).map_err(|error| internal(&error))
    }

    /// Returns the figures; none without durations.
    pub(crate) fn figures(&self) -> Option<TimeFigures> {
        let of = &self.histogram;
        let at = |share: f64| of.value_at_quantile(share).min(of.max());
        (!of.is_empty()).then(|| TimeFigures {
            count: of.len(),
            min_us: of.min(),
            mean_us: of.mean().round() as u64,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: of.max(),
        })
    }

    /// Returns the durations at shares that come ever closer to 1.
    pub(crate) fn curve(&self) -> Vec<CurvePoint> {
        let count = self.histogram.len();
        if count == 0 {
            return Vec::new();
        }
        let point = |share: f64| CurvePoint { share, us: self.histogram.value_at_quantile(share) };
        let halvings = 64 - (count - 1).leading_zeros();
        let mut points: Vec<CurvePoint> = (0..=halvings * POINTS_EACH_HALVING)
            .map(|number| point(1.0 - 0.5_f64.powf(f64::from(number) / f64::from(POINTS_EACH_HALVING))))
            .collect();
        points.push(CurvePoint { share: 1.0, us: self.histogram.max() });
        points
    }
}

/// Figures of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayTimes)]
pub struct TimeFigures {
    /// Number of durations.
    pub count: u64,
    /// Shortest, in microseconds.
    pub min_us: u64,
    /// Average.
    pub mean_us: u64,
    /// Half are at most as long.
    pub p50_us: u64,
    /// 90 of a hundred are at most as long.
    pub p90_us: u64,
    /// 99 of a hundred are at most as long.
    pub p99_us: u64,
    /// 999 of a thousand are at most as long.
    pub p999_us: u64,
    /// Longest.
    pub max_us: u64,
}

impl TimeFigures {
    /// Returns the figures of a coarse histogram, which are at most 1/16 too high; none without durations.
    pub(crate) fn of_coarse(of: &Coarse) -> Option<TimeFigures> {
        let at = |share: f64| of.quantile(share);
        Some(TimeFigures {
            count: of.count(),
            min_us: at(0.0)?,
            mean_us: of.mean()?,
            p50_us: at(0.5)?,
            p90_us: at(0.9)?,
            p99_us: at(0.99)?,
            p999_us: at(0.999)?,
            max_us: at(1.0)?,
        })
    }
}

/// Point of a curve of durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayCurvePoint)]
pub struct CurvePoint {
    /// Share of all, from 0 to 1.
    pub share: f64,
    /// Duration in microseconds that this share does not exceed.
    pub us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number whose length is random.
    fn some(random: &mut fastrand::Rng, bits: std::ops::Range<u32>) -> u64 {
        let most = 1 << random.u32(bits);
        random.u64(..most)
    }

    /// Property: figures of merged histograms are those of one with all durations, three digits exact.
    #[test]
    fn merged_histograms_have_the_figures_of_all_durations() {
        let mut random = fastrand::Rng::with_seed(3);
        let (mut one, mut halves) = (Times::new().unwrap(), [Times::new().unwrap(), Times::new().unwrap()]);
        let mut values: Vec<u64> = (0..5000).map(|_| some(&mut random, 2..35)).collect();
        for (number, value) in values.iter().enumerate() {
            one.record(*value);
            halves[number % 2].record(*value);
        }
        let [mut merged, other] = halves;
        merged.merge(&other).unwrap();
        assert_eq!(merged, one);
        values.sort_unstable();
        let figures = merged.figures().unwrap();
        for (share, of) in
            [(0.5, figures.p50_us), (0.9, figures.p90_us), (0.99, figures.p99_us), (0.999, figures.p999_us)]
        {
            let exact = values[(5000.0 * share) as usize - 1];
            assert!(of.abs_diff(exact) <= exact / 1000 + 1, "{share}: {of} {exact}");
        }
        assert_eq!(figures.count, 5000);
        let curve = merged.curve();
        assert!(curve.windows(2).all(|pair| pair[0].share < pair[1].share && pair[0].us <= pair[1].us));
        assert!(curve.len() < 64 && curve[0].us >= values[0] && curve.last().unwrap().us == figures.max_us);
    }

    /// Property: the longest duration is told apart from a shorter one, a longer one counts as the longest.
    #[test]
    fn durations_end_at_the_limit() {
        let longest = |us: u64| {
            let mut times = Times::new().unwrap();
            times.record(us);
            times.figures().unwrap().max_us
        };
        assert!(longest(DURATION_US_MAX) >= DURATION_US_MAX);
        assert!(longest(DURATION_US_MAX - DURATION_US_MAX / 500) < DURATION_US_MAX);
        assert_eq!(longest(u64::MAX), longest(DURATION_US_MAX));
        assert!(Times::new().unwrap().figures().is_none() && Times::new().unwrap().curve().is_empty());
        let mut one = Times::new().unwrap();
        one.record(0);
        assert_eq!((one.figures().unwrap().max_us, one.curve().len()), (0, 2));
    }
}
