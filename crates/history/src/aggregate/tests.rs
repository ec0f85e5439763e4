//! Compares aggregates with simple sums over all rows, and checks the treatment of special values.

use fastrand::Rng;

use super::*;

const SECOND: i64 = 1_000_000_000;

fn run<T: Sample>(
    intervals: Intervals,
    course: Course<T>,
    rows: &[(i64, T)],
    batch: usize,
) -> Vec<Aggregate<T>> {
    let mut found = Vec::new();
    let mut complete = |aggregate| found.push(aggregate);
    let mut aggregator = Aggregator::new(intervals, course).unwrap();
    for rows in rows.chunks(batch) {
        let (times, values): (Vec<i64>, Vec<T>) = rows.iter().copied().unzip();
        aggregator.add(&times, &values, &mut complete);
    }
    aggregator.finish(&mut complete);
    found
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * (1.0 + one.abs().max(other.abs()))
}

fn some_rows(random: &mut Rng) -> Vec<(i64, f64)> {
    let (mut time, count) = (-100 * SECOND, random.usize(0..300));
    let step = [SECOND, 5 * SECOND, 200 * SECOND][random.usize(..3)];
    let rows = (0..count).map(|_| {
        time += random.i64(1..step);
        let value = if random.u8(..15) == 0 { f64::NAN } else { f64::from(random.i16(..)) / 8.0 };
        (time, value)
    });
    rows.collect()
}

/// Counts, ends, sums, smallest and largest are those of a simple loop, in batches of any size; an
/// interval without rows is left out.
#[test]
fn samples_are_summed_by_interval() {
    for seed in 0..200 {
        let random = &mut Rng::with_seed(seed);
        let rows = some_rows(random);
        let intervals = Intervals {
            from: random.i64(-150..50) * SECOND,
            to: random.i64(50..500) * SECOND + 7,
            length: random.i64(1..60) * SECOND,
            origin: random.i64(-90..90) * SECOND,
        };
        let found = run(intervals, Course::Samples, &rows, random.usize(1..50));
        let wanted = |start: i64| {
            let inside = move |(time, _): &&(i64, f64)| {
                (start..start + intervals.length).contains(time)
                    && (intervals.from..=intervals.to).contains(time)
            };
            rows.iter().filter(inside)
        };
        let mut counted = 0;
        for aggregate in &found {
            assert_eq!((aggregate.start - intervals.origin).rem_euclid(intervals.length), 0);
            let rows: Vec<(i64, f64)> = wanted(aggregate.start).copied().collect();
            let numbers: Vec<f64> = rows.iter().map(|row| row.1).filter(|value| !value.is_nan()).collect();
            counted += rows.len();
            assert!(!rows.is_empty());
            assert_eq!((aggregate.count, aggregate.numbers), (rows.len() as u64, numbers.len() as u64));
            let bits = |row: Option<&(i64, f64)>| row.map(|(time, value)| (*time, value.to_bits()));
            assert_eq!(bits(aggregate.first.as_ref()), bits(rows.first()));
            assert_eq!(bits(aggregate.last.as_ref()), bits(rows.last()));
            assert_eq!(aggregate.min, numbers.iter().copied().reduce(f64::min));
            assert_eq!(aggregate.max, numbers.iter().copied().reduce(f64::max));
            assert!(near(aggregate.sum, numbers.iter().sum()));
            assert_eq!(aggregate.mean().is_some(), !numbers.is_empty());
            assert_eq!((aggregate.integral, aggregate.covered), (0.0, 0.0));
        }
        let inside = rows.iter().filter(|(time, _)| (intervals.from..=intervals.to).contains(time));
        assert_eq!(counted, inside.count(), "seed {seed}");
    }
}

/// Returns integral and covered time of a course in an interval, from its pieces.
fn integrated(pieces: &[(i64, i64, f64, f64)], start: i64, end: i64) -> (f64, f64) {
    let (mut integral, mut covered) = (0.0, 0.0);
    for (from, to, one, other) in pieces {
        let (cut_from, cut_to) = (*from.max(&start), *to.min(&end));
        if cut_from >= cut_to || one.is_nan() || other.is_nan() {
            continue;
        }
        let at = |time: i64| one + (other - one) * (time - from) as f64 / (to - from) as f64;
        let seconds = (cut_to - cut_from) as f64 / 1e9;
        integral += (at(cut_from) + at(cut_to)) / 2.0 * seconds;
        covered += seconds;
    }
    (integral, covered)
}

/// Integrals over lines and over held values are the sums of their pieces, cut at the intervals and the
/// ends of the range, with the value before the range and none where a NaN is.
#[test]
fn integrals_are_sums_of_their_pieces() {
    for seed in 0..300 {
        let random = &mut Rng::with_seed(seed);
        let rows = some_rows(random);
        let intervals = Intervals {
            from: random.i64(-150..50) * SECOND,
            to: random.i64(50..500) * SECOND - 1,
            length: random.i64(1..60) * SECOND,
            origin: 3,
        };
        let inside: Vec<(i64, f64)> =
            rows.iter().filter(|(time, _)| (intervals.from..=intervals.to).contains(time)).copied().collect();
        let before = rows.iter().rfind(|(time, _)| *time < intervals.from).copied();
        let all: Vec<(i64, f64)> = before.into_iter().chain(inside.iter().copied()).collect();
        let lines: Vec<_> = all.windows(2).map(|two| (two[0].0, two[1].0, two[0].1, two[1].1)).collect();
        let ends = all.iter().skip(1).map(|row| row.0).chain([intervals.to + 1]);
        let held: Vec<_> = all.iter().zip(ends).map(|(row, end)| (row.0, end, row.1, row.1)).collect();
        for (course, pieces) in
            [(Course::Line { before }, &lines), (Course::Holds { before: before.map(|row| row.1) }, &held)]
        {
            let found = run(intervals, course, &rows, random.usize(1..50));
            let mut sum = 0.0;
            for aggregate in &found {
                let start = aggregate.start.max(intervals.from);
                let end = (aggregate.start + intervals.length).min(intervals.to + 1);
                let (integral, covered) = integrated(pieces, start, end);
                assert!(
                    near(aggregate.integral, integral),
                    "seed {seed} {course:?}: {aggregate:?} {integral}"
                );
                assert!(near(aggregate.covered, covered), "seed {seed} {course:?}: {aggregate:?} {covered}");
                sum += integral;
            }
            let (all, _) = integrated(pieces, intervals.from, intervals.to + 1);
            assert!(near(sum, all), "seed {seed}: no interval with a part of the course is left out");
            assert!(found.windows(2).all(|two| two[0].start < two[1].start));
        }
    }
}

/// A value that holds is the value of intervals without rows, and of the begin of the others.
#[test]
fn held_value_fills_intervals_without_rows() {
    let intervals = Intervals { from: 0, to: 40 * SECOND - 1, length: 10 * SECOND, origin: 0 };
    let rows = [(15 * SECOND, 1.0), (16 * SECOND, 9.0)];
    let found = run(intervals, Course::Holds { before: Some(4.0) }, &rows, 10);
    let facts = found.iter().map(|of| (of.count, of.min, of.max, of.integral.round(), of.mean_over_time()));
    let expected = [
        (0, Some(4.0), Some(4.0), 40.0, Some(4.0)),
        (2, Some(1.0), Some(9.0), 57.0, Some(5.7)),
        (0, Some(9.0), Some(9.0), 90.0, Some(9.0)),
        (0, Some(9.0), Some(9.0), 90.0, Some(9.0)),
    ];
    assert!(facts.zip(expected).all(|(one, other)| one.0 == other.0
        && (one.1, one.2, one.3) == (other.1, other.2, other.3)
        && near(one.4.unwrap(), other.4.unwrap())));
    let late = run(intervals, Course::Holds { before: None }, &[(25 * SECOND, 2.0)], 1);
    assert_eq!(
        late.iter().map(|of| (of.start / SECOND, of.covered)).collect::<Vec<_>>(),
        [(20, 5.0), (30, 10.0)]
    );
}

/// A NaN counts as a row and ends the course; infinities are numbers like others.
#[test]
fn nan_is_counted_and_covers_no_time() {
    let intervals = Intervals { from: 0, to: 10 * SECOND - 1, length: 10 * SECOND, origin: 0 };
    let rows = [(0, 1.0), (2 * SECOND, f64::NAN), (5 * SECOND, f64::INFINITY), (6 * SECOND, 3.0)];
    let held = run(intervals, Course::Holds { before: None }, &rows, 10)[0];
    assert_eq!((held.count, held.numbers, held.min, held.max), (4, 3, Some(1.0), Some(f64::INFINITY)));
    assert_eq!((held.integral, held.covered.round(), held.sum), (f64::INFINITY, 7.0, f64::INFINITY));
    let only = run(intervals, Course::Samples, &rows[1..2], 1)[0];
    assert_eq!((only.count, only.numbers, only.min, only.mean()), (1, 0, None, None));
}

/// Whole numbers are exact: the largest ones are summed without overflow.
#[test]
fn whole_numbers_are_summed_exactly() {
    let intervals = Intervals { from: i64::MIN, to: i64::MAX, length: i64::MAX, origin: 0 };
    let rows: Vec<(i64, u64)> = (0..100).map(|time| (time, u64::MAX)).collect();
    assert_eq!(run(intervals, Course::Samples, &rows, 7)[0].sum, 100 * i128::from(u64::MAX));
    let rows: Vec<(i64, i64)> = [(i64::MIN, i64::MIN), (-5, i64::MIN), (5, 1), (i64::MAX, i64::MAX)].into();
    let found = run(intervals, Course::Samples, &rows, 2);
    assert_eq!(
        found.iter().map(|of| of.sum).collect::<Vec<_>>(),
        [i128::from(i64::MIN), i128::from(i64::MIN), 1, i128::from(i64::MAX)]
    );
}

/// As many intervals as the limit are accepted; one more, an empty range, and no length are refused.
#[test]
fn intervals_beyond_the_limit_are_refused() {
    let of = |to: i64, length: i64| {
        let intervals = Intervals { from: 0, to, length, origin: 0 };
        Aggregator::<f64>::new(intervals, Course::Samples).is_ok()
    };
    assert!(of(INTERVALS_MAX as i64 * SECOND - 1, SECOND));
    assert!(!of(INTERVALS_MAX as i64 * SECOND, SECOND));
    assert!(!of(-1, SECOND) && !of(5, 0) && !of(5, -1) && of(0, 1));
    let all = Intervals { from: i64::MIN, to: i64::MAX, length: 1, origin: i64::MIN };
    assert!(Aggregator::<f64>::new(all, Course::Samples).is_err());
}
