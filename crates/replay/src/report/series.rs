//! Series over time: a bounded number of points, which become twice as wide when there would be more.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::merge::Merge;
use crate::limits::{SERIES_POINTS_MAX, SERIES_WIDTH_US, TIME_US_MAX};

/// Figures by time. The width of a point follows from the latest time, so that order does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series<V> {
    width_us: u64,
    points: Vec<V>,
}

impl<V> Default for Series<V> {
    fn default() -> Self {
        Series { width_us: SERIES_WIDTH_US, points: Vec::new() }
    }
}

impl<V: Merge> Series<V> {
    /// Lets each point have twice the width.
    fn widen(&mut self) {
        let mut points = std::mem::take(&mut self.points).into_iter();
        while let Some(mut first) = points.next() {
            if let Some(second) = points.next() {
                first.merge(&second);
            }
            self.points.push(first);
        }
        self.width_us *= 2;
    }

    /// Makes the points up to a time.
    fn reach(&mut self, time_us: u64) {
        while time_us / self.width_us >= SERIES_POINTS_MAX as u64 {
            self.widen();
        }
        let count = (time_us / self.width_us) as usize + 1;
        if self.points.len() < count {
            self.points.resize_with(count, V::default);
        }
    }

    /// Returns the figures of a time, which counts from the begin of the run.
    pub(crate) fn at(&mut self, time_us: u64) -> &mut V {
        let time_us = time_us.min(TIME_US_MAX);
        self.reach(time_us);
        let at = (time_us / self.width_us) as usize;
        &mut self.points[at]
    }

    /// Spreads an amount evenly over a span of time. The parts are differences of the amounts up to the
    /// edges of points, so that they add up to the same in points of any width.
    pub(crate) fn spread(&mut self, (from, to): (u64, u64), amount: u64, put: impl Fn(&mut V, u64)) {
        if amount == 0 {
            return;
        }
        let from = from.min(TIME_US_MAX);
        let to = to.clamp(from, TIME_US_MAX);
        self.reach(if to > from { to - 1 } else { from });
        let width = self.width_us;
        let (first, last) = (from / width, if to > from { (to - 1) / width } else { from / width });
        if first == last {
            put(&mut self.points[first as usize], amount);
            return;
        }
        let before = |at: u64| {
            let part = u128::from(amount) * u128::from(at.clamp(from, to) - from) / u128::from(to - from);
            u64::try_from(part).unwrap_or(amount)
        };
        for point in first..=last {
            let part = before((point + 1) * width) - before(point * width);
            put(&mut self.points[point as usize], part);
        }
    }

    /// Adds another series.
    pub(crate) fn merge(&mut self, other: &Series<V>) {
        while self.width_us < other.width_us {
            self.widen();
        }
        let factor = (self.width_us / other.width_us) as usize;
        let count = other.points.len().div_ceil(factor);
        if self.points.len() < count {
            self.points.resize_with(count, V::default);
        }
        for (number, point) in other.points.iter().enumerate() {
            self.points[number / factor].merge(point);
        }
    }

    /// Returns the width of a point in microseconds.
    pub(crate) fn width_us(&self) -> u64 {
        self.width_us
    }

    /// Returns the points.
    pub(crate) fn points(&self) -> &[V] {
        &self.points
    }
}

/// Bytes over time, as a cache or an origin moved them: bounded in memory, the same in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    series: Series<u64>,
}

impl Rates {
    /// Makes an empty one.
    pub fn new() -> Rates {
        Rates::default()
    }

    /// Adds bytes that were moved between two times since the begin of the run, evenly. Of a record that
    /// has whole seconds only, `to` is the end of its last second.
    pub fn add(&mut self, (from_us, to_us): (u64, u64), bytes: u64) {
        self.series.spread((from_us, to_us), bytes, |point, part| *point = point.saturating_add(part));
    }

    /// Adds the bytes of another.
    pub fn merge(&mut self, other: &Rates) {
        self.series.merge(&other.series);
    }

    /// Makes one of points that were kept; an empty one of points that none can have.
    pub fn of(kept: RateView) -> Rates {
        let RateView { width_us, bytes } = kept;
        let is_width = width_us % SERIES_WIDTH_US == 0 && (width_us / SERIES_WIDTH_US).is_power_of_two();
        match is_width && bytes.len() <= SERIES_POINTS_MAX {
            true => Rates { series: Series { width_us, points: bytes } },
            false => Rates::default(),
        }
    }

    /// Returns the bytes of each point in time.
    pub fn view(&self) -> RateView {
        RateView { width_us: self.series.width_us, bytes: self.series.points.clone() }
    }
}

/// Bytes over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ReplayRate)]
pub struct RateView {
    /// Microseconds of each point. The first begins with the run.
    pub width_us: u64,
    /// Bytes moved in each point.
    pub bytes: Vec<u64>,
}

impl RateView {
    /// Returns times and bytes a second, at the middles of the points.
    pub(crate) fn rates(&self) -> Vec<(u64, f64)> {
        let width = self.width_us.max(1);
        let seconds = width as f64 / 1e6;
        let point = |(number, bytes): (usize, &u64)| {
            ((number as u64).saturating_mul(width).saturating_add(width / 2), *bytes as f64 / seconds)
        };
        self.bytes.iter().enumerate().map(point).collect()
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

    /// Property: any order and any split gives the same series, and nothing is lost, whatever the widths.
    #[test]
    fn series_do_not_depend_on_order_or_split() {
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let longest = 1 << random.u32(10..40);
            let mut adds: Vec<(u64, u64, u64)> = (0..60)
                .map(|_| (random.u64(..longest), random.u64(..longest), some(&mut random, 1..40)))
                .collect();
            let sum = |adds: &[(u64, u64, u64)]| {
                let mut rates = Rates::new();
                adds.iter().for_each(|(from, to, bytes)| rates.add((*from, *to), *bytes));
                rates
            };
            let one = sum(&adds);
            let total: u64 = adds.iter().map(|(_, _, bytes)| bytes).sum();
            assert_eq!(one.view().bytes.iter().sum::<u64>(), total, "seed {seed}");
            assert!(one.view().bytes.len() <= SERIES_POINTS_MAX);
            random.shuffle(&mut adds);
            assert_eq!(sum(&adds), one, "seed {seed}");
            let (left, right) = adds.split_at(random.usize(..60));
            let mut merged = sum(left);
            merged.merge(&sum(right));
            assert_eq!(merged, one, "seed {seed}");
        }
    }

    /// Property: the last point of the first width is used before points become wider.
    #[test]
    fn width_doubles_at_the_edge() {
        let edge = SERIES_POINTS_MAX as u64 * SERIES_WIDTH_US;
        let mut series = Series::<u64>::default();
        *series.at(edge - 1) += 1;
        assert_eq!((series.width_us(), series.points().len()), (SERIES_WIDTH_US, SERIES_POINTS_MAX));
        *series.at(edge) += 1;
        assert_eq!(
            (series.width_us(), series.points().len()),
            (2 * SERIES_WIDTH_US, SERIES_POINTS_MAX / 2 + 1)
        );
        *series.at(u64::MAX) += 1;
        assert!(series.points().len() <= SERIES_POINTS_MAX);
        assert_eq!(series.points().iter().sum::<u64>(), 3);
    }

    #[test]
    fn bytes_are_spread_evenly() {
        let mut rates = Rates::new();
        rates.add((125_000, 625_000), 1000);
        rates.add((0, 0), 7);
        rates.add((250_000, 250_000), 1);
        assert_eq!(rates.view().bytes, [257, 501, 250]);
        rates.add((u64::MAX, 5), 1);
        assert_eq!(rates.view().bytes.iter().sum::<u64>(), 1009);
        let view = RateView { width_us: 500_000, bytes: vec![10, 20] };
        assert_eq!(view.rates(), [(250_000, 20.0), (750_000, 40.0)]);
    }
}
