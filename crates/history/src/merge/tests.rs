//! Compares merges with a plain map that the sources are written into, the oldest first.

use exacat_model::{FieldRef, FieldValue};
use fastrand::Rng;

use super::*;
use crate::columns::Values;
use crate::test_rows::{Arrivals, Model, all_of, to_model};

fn source(batches: Vec<Columns>) -> Box<dyn SortedRows> {
    Box::new(batches.into_iter())
}

/// Any sources, overlapping or not, give the rows that a map has into which they were written one
/// after the other: field by field the newest wins.
#[test]
fn merge_gives_what_a_map_has() {
    for seed in 0..60 {
        let (random, mut model) = (&mut Rng::with_seed(seed), Model::new());
        let mut sources = Vec::new();
        for number in 0..random.i64(0..7) {
            let mut arrivals = Arrivals::default();
            let count = if random.bool() { random.usize(0..9_000) } else { random.usize(0..50) };
            // Times are apart, overlap, or are the same in all sources.
            let spread = [1000, 300, 5][seed as usize % 3];
            let elements = if seed % 2 == 0 { 40 } else { 3 };
            let times = |random: &mut Rng| number * 500 + random.i64(0..spread);
            arrivals.add(random, count, elements, times, &mut model);
            sources.insert(0, source(arrivals.columns()));
        }
        assert!(to_model(&all_of(&mut Merge::new(sources)).unwrap()) == model, "seed {seed}");
    }
}

fn rows(element: u32, times: std::ops::Range<i64>, field: u32) -> Columns {
    let mut rows = Columns::default();
    for time in times {
        rows.push((element, time), [(field, FieldRef::Integer(time))]).unwrap();
    }
    rows
}

/// Batches of sources that do not overlap pass through as they are, not one row of them copied.
#[test]
fn batches_without_overlap_are_not_copied() {
    let batches = [rows(1, 0..4000, 1), rows(1, 4000..8000, 1), rows(2, 0..4000, 1), rows(2, 5000..9000, 1)];
    let place = |rows: &Columns| rows.times().as_ptr() as usize;
    let places: Vec<usize> = batches.iter().map(place).collect();
    let [a, b, c, d] = batches;
    let merged = all_of(&mut Merge::new([source(vec![b, d]), source(vec![a, c])])).unwrap();
    assert_eq!(merged.iter().map(place).collect::<Vec<_>>(), places);
}

/// A source that interleaves with another gives batches of about a page, not of a row.
#[test]
fn interleaved_sources_give_full_batches() {
    let one = |from: i64| {
        let mut rows = Columns::default();
        for time in 0..10_000 {
            rows.push((1, 2 * time + from), [(1, FieldRef::Integer(time))]).unwrap();
        }
        rows
    };
    let merged = all_of(&mut Merge::new([source(vec![one(0)]), source(vec![one(1)])])).unwrap();
    assert_eq!(merged.iter().map(Columns::rows).collect::<Vec<_>>(), [4096, 4096, 4096, 4096, 3616]);
    assert!(merged.iter().all(|rows| rows.columns()[0].rows.is_none()));
}

/// A field of two types in two sources is an error that names the field.
#[test]
fn field_of_two_types_is_an_error() {
    let mut other = Columns::default();
    other.push((1, 5), [(7, FieldValue::Boolean(true).borrow())]).unwrap();
    let mut merge = Merge::new([source(vec![other]), source(vec![rows(1, 0..10, 7)])]);
    let error = all_of(&mut merge).unwrap_err();
    assert!(error.message.contains("field 7"), "{error}");
}

/// Fields that only some rows have keep their rows through a merge.
#[test]
fn fields_of_some_rows_stay_with_their_rows() {
    let merge = [source(vec![rows(1, 4..6, 3)]), source(vec![rows(1, 0..8, 2)])];
    let merged = all_of(&mut Merge::new(merge)).unwrap();
    let column = merged[0].column(3).unwrap();
    assert_eq!(column.rows.as_deref(), Some(&[4, 5][..]));
    assert!(matches!(&column.values, Values::Integer(values) if values == &[4, 5]));
    assert!(merged[0].column(2).unwrap().rows.is_none());
}

/// The latest row of several sources is that of the largest time, whichever source has it, merged field
/// by field where several have it.
#[test]
fn latest_row_is_that_of_the_largest_time() {
    assert_eq!(latest_row(Vec::new()).unwrap(), None);
    let sources = || vec![rows(1, 7..8, 1), rows(1, 9..10, 2), rows(1, 9..10, 1), rows(1, 8..9, 3)];
    let found = latest_row(sources()).unwrap().unwrap();
    assert_eq!(found.key(0), (1, 9));
    assert!(found.row(0).map(|(field, _)| field).eq([1, 2]));
}
