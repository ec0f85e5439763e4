//! Splits rows into stretches whose rows have values of the same fields, so that loops go over columns.

use std::ops::Range;

use exacat_history::columns::Columns;
use exacat_model::Result;

/// A column with values in each row of a stretch: its place among the columns, and that of its first value.
pub(crate) type ColumnPlace = (usize, usize);

/// Passes each stretch to `take`, with the columns that have its values, in ascending order of their fields.
pub(crate) fn each_stretch(
    columns: &Columns,
    mut take: impl FnMut(Range<usize>, &[ColumnPlace]) -> Result<()>,
) -> Result<()> {
    // Place of the next value of each column.
    let mut places = vec![0; columns.columns().len()];
    let mut present: Vec<ColumnPlace> = Vec::with_capacity(places.len());
    let mut start = 0;
    while start < columns.rows() {
        let mut end = columns.rows();
        present.clear();
        for (number, (column, place)) in columns.columns().iter().zip(&places).enumerate() {
            let Some(rows) = &column.rows else {
                present.push((number, *place));
                continue;
            };
            match rows.get(*place).map(|row| *row as usize) {
                Some(row) if row == start => {
                    present.push((number, *place));
                    let adjacent = rows[*place..].iter().zip(start..end);
                    end = start + adjacent.take_while(|(row, expected)| **row as usize == *expected).count();
                }
                Some(row) => end = end.min(row),
                None => {}
            }
        }
        take(start..end, &present)?;
        for (number, _) in &present {
            places[*number] += end - start;
        }
        start = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use exacat_model::FieldRef;

    use super::*;

    /// Each row is in one stretch, with exactly its values, and a stretch is as long as it can be.
    #[test]
    fn stretches_have_each_row_once() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let (mut columns, mut sets) = (Columns::default(), Vec::new());
            for row in 0..random.i64(0..60) {
                let fields = match sets.last() {
                    Some(last) if random.u8(..4) > 0 => Clone::clone(last),
                    _ => (0..5u32).filter(|_| random.bool()).collect::<Vec<u32>>(),
                };
                let values =
                    fields.iter().map(|field| (*field, FieldRef::Integer(row * 10 + i64::from(*field))));
                columns.push((0, row), values).unwrap();
                sets.push(fields);
            }
            let (mut next, mut last) = (0, None);
            each_stretch(&columns, |rows, present| {
                assert_eq!(rows.start, next);
                assert!(!rows.is_empty());
                next = rows.end;
                let fields: Vec<u32> = present.iter().map(|(at, _)| columns.columns()[*at].field).collect();
                assert_ne!(last.as_ref(), Some(&fields), "two stretches could be one");
                for row in rows.clone() {
                    assert_eq!(sets[row], fields);
                    for (at, place) in present {
                        let column = &columns.columns()[*at];
                        let value = FieldRef::Integer(row as i64 * 10 + i64::from(column.field));
                        assert_eq!(column.values.get(place + row - rows.start), value);
                    }
                }
                last = Some(fields);
                Ok(())
            })
            .unwrap();
            assert_eq!(next, columns.rows());
        }
    }
}
