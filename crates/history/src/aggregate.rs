//! Aggregates of one element and field over equal intervals of time.
//!
//! NaN: it counts as a value and can be the first or last. It takes no part in smallest, largest, sum,
//! mean and integral: while a NaN holds, or beside a NaN sample, the time is not covered. Infinities
//! take part in everything.

use std::ops::{AddAssign, Range};

use exacat_model::{Error, FieldValue};

use crate::columns::{Columns, Values, near};
use crate::row::FieldNumber;

/// Intervals of one request.
pub const INTERVALS_MAX: usize = 1_000_000;
/// Seconds of a nanosecond.
const SECONDS: f64 = 1e-9;
/// Values that are summed beside each other, so that a processor adds several at once.
const LANES: usize = 8;

/// Numbers that are aggregated.
pub trait Sample: Copy + PartialOrd + Send {
    /// Sum without overflow.
    type Sum: Copy + Default + AddAssign + Send;
    /// Smallest and largest number.
    const ENDS: (Self, Self);

    /// Returns it as a number with a fraction, rounded beyond 2^53.
    fn to_f64(self) -> f64;
    /// Returns it as a sum of one; of NaN the empty sum.
    fn to_sum(self) -> Self::Sum;
    /// Returns a sum as a number with a fraction.
    fn sum_to_f64(sum: Self::Sum) -> f64;
    /// Returns values of this type.
    fn of(values: &Values) -> Option<&[Self]>;
    /// Returns the number of a value of this type.
    fn from_value(value: &FieldValue) -> Option<Self>;
    /// Returns it as a value.
    fn to_value(self) -> FieldValue;
    /// Says whether it is a number: all but NaN are.
    #[inline(always)]
    #[allow(clippy::eq_op, reason = "NaN differs from itself")]
    fn is_number(self) -> bool {
        self == self
    }
}

impl Sample for f64 {
    type Sum = f64;
    const ENDS: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn to_sum(self) -> f64 {
        if self.is_nan() { 0.0 } else { self }
    }
    fn sum_to_f64(sum: f64) -> f64 {
        sum
    }
    fn of(values: &Values) -> Option<&[f64]> {
        if let Values::Float(values) = values { Some(values) } else { None }
    }
    fn from_value(value: &FieldValue) -> Option<f64> {
        if let FieldValue::Float(value) = value { Some(*value) } else { None }
    }
    fn to_value(self) -> FieldValue {
        FieldValue::Float(self)
    }
}

macro_rules! whole_numbers {
    ($($type:ident $variant:ident),*) => {$(
        impl Sample for $type {
            type Sum = i128;
            const ENDS: ($type, $type) = ($type::MIN, $type::MAX);

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn to_sum(self) -> i128 {
                i128::from(self)
            }
            fn sum_to_f64(sum: i128) -> f64 {
                sum as f64
            }
            fn of(values: &Values) -> Option<&[$type]> {
                if let Values::$variant(values) = values { Some(values) } else { None }
            }
            fn from_value(value: &FieldValue) -> Option<$type> {
                if let FieldValue::$variant(value) = value { Some(*value) } else { None }
            }
            fn to_value(self) -> FieldValue {
                FieldValue::$variant(self)
            }
        }
    )*};
}

whole_numbers!(i64 Integer, u64 Unsigned);

/// Course of a value between two rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Course<T> {
    /// Unknown: there is no integral.
    Samples,
    /// A straight line. `before` is the last sample before the range, if there is one. The integral ends
    /// with the last sample.
    Line {
        /// Time and value of the last sample before the range.
        before: Option<(i64, T)>,
    },
    /// Each value holds until the next row, the last until the end of the range. An interval without
    /// rows has the value that holds.
    Holds {
        /// Value that holds when the range begins.
        before: Option<T>,
    },
}

/// Range of times and its intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// First time.
    pub from: i64,
    /// Last time.
    pub to: i64,
    /// Nanoseconds of an interval.
    pub length: i64,
    /// Time at which an interval begins.
    pub origin: i64,
}

impl Intervals {
    /// Returns the number of the interval that has a time, counted from the origin.
    fn number(&self, time: i64) -> i128 {
        (i128::from(time) - i128::from(self.origin)).div_euclid(i128::from(self.length))
    }

    /// Returns the number of intervals.
    pub(crate) fn count(&self) -> usize {
        usize::try_from(self.number(self.to) - self.number(self.from) + 1).unwrap_or(usize::MAX)
    }

    /// Returns the begin of the interval that has a time.
    pub(crate) fn start_of(&self, time: i64) -> i64 {
        self.ends(self.number(time)).0
    }

    /// Returns the first `count` intervals, at least one, and the time at which those behind them begin;
    /// none if there are no more.
    pub(crate) fn first(self, count: usize) -> (Intervals, Option<i64>) {
        let last = self.number(self.from) + count.max(1) as i128 - 1;
        let (_, end) = self.ends(last);
        match end < self.to {
            true => (Intervals { to: end, ..self }, Some(end + 1)),
            false => (self, None),
        }
    }

    /// Returns the first and last time of an interval.
    fn ends(&self, number: i128) -> (i64, i64) {
        let start = i128::from(self.origin) + number * i128::from(self.length);
        let within = |time: i128| time.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        (within(start), within(start + i128::from(self.length) - 1))
    }
}

/// Aggregates of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aggregate<T: Sample> {
    /// Begin of the interval, which may be before the range.
    pub start: i64,
    /// Rows with a value.
    pub count: u64,
    /// Values that are no NaN.
    pub numbers: u64,
    /// First row with a value: its time and value.
    pub first: Option<(i64, T)>,
    /// Last row with a value: its time and value.
    pub last: Option<(i64, T)>,
    /// Smallest number. With [`Course::Holds`] the value that holds at the begin takes part.
    pub min: Option<T>,
    /// Largest number, likewise.
    pub max: Option<T>,
    /// Sum of the numbers of all rows.
    pub sum: T::Sum,
    /// Integral over time, in units of the value times seconds.
    pub integral: f64,
    /// Seconds of the interval in which the course is known.
    pub covered: f64,
}

impl<T: Sample> Aggregate<T> {
    fn of(start: i64) -> Self {
        Aggregate {
            start,
            count: 0,
            numbers: 0,
            first: None,
            last: None,
            min: None,
            max: None,
            sum: T::Sum::default(),
            integral: 0.0,
            covered: 0.0,
        }
    }

    /// Returns the mean of the rows' numbers; none without a number.
    pub fn mean(&self) -> Option<f64> {
        (self.numbers > 0).then(|| T::sum_to_f64(self.sum) / self.numbers as f64)
    }

    /// Returns the mean over time; none if no time is covered.
    pub fn mean_over_time(&self) -> Option<f64> {
        (self.covered > 0.0).then(|| self.integral / self.covered)
    }

    fn widen(&mut self, smallest: T, largest: T) {
        self.min = Some(self.min.map_or(smallest, |min| if smallest < min { smallest } else { min }));
        self.max = Some(self.max.map_or(largest, |max| if largest > max { largest } else { max }));
    }

    /// Adds rows, at least one.
    #[inline]
    fn add(&mut self, times: &[i64], values: &[T]) {
        let (Some((time, value)), Some((last_time, last))) =
            (times.first().zip(values.first()), times.last().zip(values.last()))
        else {
            return;
        };
        self.first.get_or_insert((*time, *value));
        self.last = Some((*last_time, *last));
        self.count += values.len() as u64;
        let (numbers, min, max, sum) = summed(values);
        if numbers > 0 {
            self.numbers += numbers;
            self.widen(min, max);
            self.sum += sum;
        }
    }
}

/// Returns the count, smallest, largest and sum of the numbers among values.
#[inline]
fn summed<T: Sample>(values: &[T]) -> (u64, T, T, T::Sum) {
    let (lowest, highest) = T::ENDS;
    if values.len() < LANES {
        // Short intervals are common, and joining the lanes takes longer than so few values.
        let (mut numbers, mut min, mut max, mut sum) = (0, highest, lowest, T::Sum::default());
        for value in values {
            min = if *value < min { *value } else { min };
            max = if *value > max { *value } else { max };
            sum += value.to_sum();
            numbers += u64::from(value.is_number());
        }
        return (numbers, min, max, sum);
    }
    let (mut min, mut max) = ([highest; LANES], [lowest; LANES]);
    let (mut sum, mut numbers) = ([T::Sum::default(); LANES], [0u64; LANES]);
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = chunk[lane];
            min[lane] = if value < min[lane] { value } else { min[lane] };
            max[lane] = if value > max[lane] { value } else { max[lane] };
            sum[lane] += value.to_sum();
            numbers[lane] += u64::from(value.is_number());
        }
    }
    for (lane, value) in rest.iter().enumerate() {
        min[lane] = if *value < min[lane] { *value } else { min[lane] };
        max[lane] = if *value > max[lane] { *value } else { max[lane] };
        sum[lane] += value.to_sum();
        numbers[lane] += u64::from(value.is_number());
    }
    for lane in 1..LANES {
        min[0] = if min[lane] < min[0] { min[lane] } else { min[0] };
        max[0] = if max[lane] > max[0] { max[lane] } else { max[0] };
        let further = sum[lane];
        sum[0] += further;
        numbers[0] += numbers[lane];
    }
    (numbers[0], min[0], max[0], sum[0])
}

/// Course that is known up to a time.
#[derive(Clone, Copy)]
enum KnownCourse {
    /// The integral is not wanted.
    Not,
    /// A line from here on; none before the first sample.
    Line(Option<(i64, f64)>),
    /// A value holds from this time on; none before the first value.
    Holds(i64, bool),
}

/// Aggregates rows in the order of their time. Each complete interval is handed to a function; with
/// [`Course::Samples`] only those with a row.
pub struct Aggregator<T: Sample> {
    intervals: Intervals,
    known: KnownCourse,
    /// Value that holds.
    held: Option<T>,
    /// Last time of the current interval.
    last: i64,
    current: Aggregate<T>,
}

impl<T: Sample> Aggregator<T> {
    /// Aggregates a range. Fails if it has more than [`INTERVALS_MAX`] intervals, or none.
    pub fn new(intervals: Intervals, course: Course<T>) -> Result<Self, Error> {
        if intervals.length <= 0 || intervals.from > intervals.to {
            return Err(Error::invalid("an aggregate needs a range of times and a positive interval"));
        }
        let count = intervals.count();
        if count > INTERVALS_MAX {
            return Err(Error::limit("number of intervals", count, INTERVALS_MAX));
        }
        let (start, last) = intervals.ends(intervals.number(intervals.from));
        let (known, held) = match course {
            Course::Samples => (KnownCourse::Not, None),
            Course::Line { before } => {
                let before = before.filter(|(_, value)| value.is_number());
                (KnownCourse::Line(before.map(|(time, value)| (time, value.to_f64()))), None)
            }
            Course::Holds { before } => (KnownCourse::Holds(intervals.from, before.is_some()), before),
        };
        Ok(Aggregator { intervals, known, held, last, current: Aggregate::of(start) })
    }

    /// Adds the values that some rows have of a field. Fails if the field has another type.
    pub fn add_column(
        &mut self,
        rows: &Columns,
        range: Range<usize>,
        field: FieldNumber,
        complete: &mut impl FnMut(Aggregate<T>),
    ) -> Result<(), Error> {
        let Some(column) = rows.column(field) else { return Ok(()) };
        let Some(values) = T::of(&column.values) else {
            return Err(Error::invalid(format!("a field of type {} has no such sum", column.values.kind())));
        };
        let places = column.places(&range);
        match &column.rows {
            None => self.add(&rows.times()[places.clone()], &values[places], complete),
            Some(of) => {
                let times = of[places.clone()].iter().map(|row| rows.times()[*row as usize]);
                self.add(&times.collect::<Vec<_>>(), &values[places], complete);
            }
        }
        Ok(())
    }

    /// Adds rows, which follow those before. Rows outside the range are left out.
    pub fn add(&mut self, times: &[i64], values: &[T], complete: &mut impl FnMut(Aggregate<T>)) {
        let start = times.partition_point(|time| *time < self.intervals.from);
        let end = start + times[start..].partition_point(|time| *time <= self.intervals.to);
        let (times, values) = (&times[start..end], &values[start..end]);
        let mut at = 0;
        while let (Some(time), Some(value)) = (times.get(at), values.get(at)) {
            if *time > self.last {
                self.go_to(*time, *value, complete);
            }
            let end = at + near(&times[at..], |time| *time <= self.last);
            self.integrate(&times[at..end], &values[at..end]);
            self.current.add(&times[at..end], &values[at..end]);
            at = end;
        }
    }

    /// Completes the range.
    pub fn finish(mut self, complete: &mut impl FnMut(Aggregate<T>)) {
        if let KnownCourse::Holds(_, true) = self.known {
            let end = self.intervals.to;
            while self.last < end {
                self.hold_to_end();
                self.next(complete);
            }
            self.hold_to_end();
        }
        self.emit(complete);
    }

    fn emit(&mut self, complete: &mut impl FnMut(Aggregate<T>)) {
        let is_empty = self.current.count == 0 && self.current.covered == 0.0;
        if !is_empty || matches!(self.known, KnownCourse::Holds(_, true)) {
            complete(self.current);
        }
    }

    /// Goes on to the next interval.
    fn next(&mut self, complete: &mut impl FnMut(Aggregate<T>)) {
        self.emit(complete);
        self.current = Aggregate::of(self.last.saturating_add(1));
        self.last = self.last.saturating_add(self.intervals.length);
    }

    /// Goes on to the interval of a later row.
    fn go_to(&mut self, time: i64, value: T, complete: &mut impl FnMut(Aggregate<T>)) {
        match self.known {
            KnownCourse::Holds(_, true) => {
                while self.last < time {
                    self.hold_to_end();
                    self.next(complete);
                }
            }
            KnownCourse::Line(Some(_)) if value.is_number() => {
                while self.last < time {
                    self.line_to_end(time, value.to_f64());
                    self.next(complete);
                }
            }
            _ => {
                // Nothing is known of the intervals between.
                let next = self.last.saturating_add(self.intervals.length);
                if time <= next {
                    self.next(complete);
                } else {
                    self.emit(complete);
                    let (start, last) = self.intervals.ends(self.intervals.number(time));
                    (self.current, self.last) = (Aggregate::of(start), last);
                }
            }
        }
    }

    /// Adds the time for which the held value holds until the end of the interval.
    fn hold_to_end(&mut self) {
        let end = self.last.min(self.intervals.to);
        // The interval ends a nanosecond after its last time.
        let end = end.saturating_add(1);
        if let KnownCourse::Holds(since, true) = self.known {
            self.hold(since, end);
            self.known = KnownCourse::Holds(end, true);
        }
    }

    /// Adds the held value from one time to another.
    #[inline]
    fn hold(&mut self, since: i64, until: i64) {
        let Some(value) = self.held.filter(|value| value.is_number() && until > since) else { return };
        let seconds = seconds(since, until);
        self.current.integral += value.to_f64() * seconds;
        self.current.covered += seconds;
        if self.current.count == 0 {
            self.current.widen(value, value);
        }
    }

    /// Adds the line to the end of the interval, on its way to a sample of a later one.
    fn line_to_end(&mut self, time: i64, value: f64) {
        let KnownCourse::Line(Some((start, from))) = self.known else { return };
        let end = self.last.saturating_add(1);
        let part = seconds(start, end) / seconds(start, time);
        let there = if part.is_finite() { from + (value - from) * part } else { value };
        self.line(end, there);
        self.known = KnownCourse::Line(Some((end, there)));
    }

    /// Adds the line from the last known point to this one; the part before the range is cut off.
    #[inline]
    fn line(&mut self, time: i64, value: f64) {
        let KnownCourse::Line(Some((mut start, mut from))) = self.known else { return };
        let begin = self.intervals.from;
        if start < begin {
            if time <= begin {
                return;
            }
            from += (value - from) * (seconds(start, begin) / seconds(start, time));
            start = begin;
        }
        let seconds = seconds(start, time);
        self.current.integral += 0.5 * (from + value) * seconds;
        self.current.covered += seconds;
    }

    /// Adds the time between rows of the current interval to the integral.
    #[inline]
    fn integrate(&mut self, times: &[i64], values: &[T]) {
        let (Some((time, value)), Some((last_time, last))) =
            (times.first().zip(values.first()), times.last().zip(values.last()))
        else {
            return;
        };
        match self.known {
            KnownCourse::Not => {}
            KnownCourse::Holds(since, known) => {
                if known {
                    self.hold(since, *time);
                }
                self.between(times, values, |from, _| from.is_number().then(|| from.to_f64()));
                (self.known, self.held) = (KnownCourse::Holds(*last_time, true), Some(*last));
            }
            KnownCourse::Line(_) => {
                if value.is_number() {
                    self.line(*time, value.to_f64());
                }
                let mean = |from: T, to: T| 0.5 * (from.to_f64() + to.to_f64());
                let is_known = |from: T, to: T| from.is_number() && to.is_number();
                self.between(times, values, |from, to| is_known(from, to).then(|| mean(from, to)));
                self.known = KnownCourse::Line(last.is_number().then(|| (*last_time, last.to_f64())));
            }
        }
    }

    /// Adds the times between neighbouring rows of the current interval, each with the mean of its course,
    /// if that is known.
    #[inline(always)]
    fn between(&mut self, times: &[i64], values: &[T], mean: impl Fn(T, T) -> Option<f64>) {
        // Sums stay in registers.
        let (mut integral, mut covered) = (self.current.integral, self.current.covered);
        for (times, values) in times.windows(2).zip(values.windows(2)) {
            // Within an interval the difference is a signed number.
            let seconds = (times[1] - times[0]) as f64 * SECONDS;
            let (mean, seconds) = mean(values[0], values[1]).map_or((0.0, 0.0), |mean| (mean, seconds));
            integral += mean * seconds;
            covered += seconds;
        }
        (self.current.integral, self.current.covered) = (integral, covered);
    }
}

/// Returns the seconds from one time to a later one.
#[inline]
fn seconds(from: i64, to: i64) -> f64 {
    let nanoseconds = to.wrapping_sub(from);
    // Of signed numbers the conversion is one instruction. A span beyond them is unsigned.
    let nanoseconds = if nanoseconds >= 0 { nanoseconds as f64 } else { nanoseconds as u64 as f64 };
    nanoseconds * SECONDS
}

#[cfg(test)]
mod tests;
