//! A checksum of rows that depends neither on their order nor on the batches they come in.

use exacat_history::columns::{Column, Columns, Values};
use xxhash_rust::xxh3::xxh3_64;

/// Sum over rows. Two sets of rows with the same sum are the same, for all that chance can do.
///
/// Each row adds a term of its element and time, and each value a term of its row, field, type and bits. So
/// the loops go over columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub rows: u64,
    sum: u64,
    /// Terms of the rows of a batch.
    keys: Vec<u64>,
}

impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        (self.rows, self.sum) == (other.rows, other.sum)
    }
}

/// Mixes two words to one.
#[inline(always)]
fn mixed(one: u64, other: u64) -> u64 {
    let product = u128::from(one ^ 0x9e37_79b9_7f4a_7c15) * u128::from(other ^ 0xd1b5_4a32_d192_ed03);
    (product >> 64) as u64 ^ product as u64
}

/// Returns the sum of the terms of a column's values.
fn of_values(keys: &[u64], column: &Column, bits: impl Fn(usize) -> u64) -> u64 {
    let field = u64::from(column.field) << 8 | u64::from(column.values.kind().number());
    let field = mixed(field, 0);
    let term = |key: u64, place: usize| mixed(key ^ field, bits(place));
    match &column.rows {
        None => keys
            .iter()
            .zip(0..column.values.len())
            .fold(0, |sum: u64, (key, at)| sum.wrapping_add(term(*key, at))),
        Some(rows) => {
            let of_row = rows.iter().zip(0..column.values.len());
            of_row.fold(0, |sum: u64, (row, at)| sum.wrapping_add(term(keys[*row as usize], at)))
        }
    }
}

impl Sum {
    /// Adds rows.
    pub(crate) fn add(&mut self, columns: &Columns) {
        let Sum { rows, sum, keys } = self;
        *rows += columns.rows() as u64;
        keys.clear();
        let mut start = 0;
        for element in columns.elements() {
            let of = &columns.times()[start..element.end as usize];
            keys.extend(of.iter().map(|time| mixed(u64::from(element.element), *time as u64)));
            start = element.end as usize;
        }
        *sum = keys.iter().fold(*sum, |sum, key| sum.wrapping_add(*key));
        for column in columns.columns() {
            let terms = match &column.values {
                Values::Float(values) => of_values(keys, column, |at| values[at].to_bits()),
                Values::Integer(values) => of_values(keys, column, |at| values[at] as u64),
                Values::Unsigned(values) => of_values(keys, column, |at| values[at]),
                Values::Boolean(values) => of_values(keys, column, |at| u64::from(values[at])),
                Values::Text(texts) => {
                    let distinct = 0..texts.distinct() as u32;
                    let hashes: Vec<u64> =
                        distinct.map(|text| xxh3_64(texts.distinct_text(text).as_bytes())).collect();
                    of_values(keys, column, |at| hashes[texts.indices()[at] as usize])
                }
            };
            *sum = sum.wrapping_add(terms);
        }
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::FieldRef;

    use super::*;

    type Row = (u32, i64, Vec<(u32, FieldRef<'static>)>);

    fn sum(rows: &[Row], batch: usize) -> Sum {
        let mut sum = Sum::default();
        for rows in rows.chunks(batch) {
            let mut columns = Columns::default();
            for (element, time, values) in rows {
                columns.push((*element, *time), values.iter().copied()).unwrap();
            }
            sum.add(&columns);
        }
        sum
    }

    /// The sum is the same however rows are cut, and another one for any other value, type, row or field.
    #[test]
    fn sum_tells_any_other_rows() {
        use FieldRef::{Boolean, Float, Integer, Text, Unsigned};
        let rows: Vec<Row> = vec![
            (1, 5, vec![(0, Float(1.0)), (1, Integer(0))]),
            (1, 6, vec![(0, Float(-0.0)), (2, Text("a"))]),
            (2, 5, vec![(3, Boolean(true)), (4, Unsigned(7))]),
            (2, 6, vec![]),
        ];
        for batch in 1..4 {
            assert_eq!(sum(&rows, batch), sum(&rows, 4));
        }
        let differs = |change: fn(&mut Vec<Row>)| {
            let mut other = rows.clone();
            change(&mut other);
            assert_ne!(sum(&other, 4), sum(&rows, 4));
        };
        differs(|rows| rows[0].2[0].1 = Float(1.0f64.next_up()));
        differs(|rows| rows[1].2[0].1 = Float(0.0));
        differs(|rows| rows[1].2[1].1 = Text("b"));
        differs(|rows| rows[2].2[1].1 = Integer(7));
        differs(|rows| rows[2].2[1].0 = 5);
        differs(|rows| rows[3].1 = 7);
        differs(|rows| _ = rows.pop());
        differs(|rows| _ = rows[0].2.pop());
        // Two rows with each other's values.
        differs(|rows| {
            (rows[0].2[0].1, rows[1].2[0].1) = (Float(-0.0), Float(1.0));
        });
    }
}
