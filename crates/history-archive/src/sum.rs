//! A checksum of rows that does not depend on their order, and a loop over the rows of columns.

use exacat_history::columns::{Columns, RowKey};
use exacat_history::row::FieldNumber;
use exacat_model::{FieldRef, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Values of a row, in ascending order of their fields.
pub(crate) type Values<'c> = [(FieldNumber, FieldRef<'c>)];

/// Passes each row to `take`.
pub(crate) fn each_row<'c>(
    columns: &'c Columns,
    mut take: impl FnMut(RowKey, &Values<'c>) -> Result<()>,
) -> Result<()> {
    // Place of the next value of each column.
    let mut places = vec![0; columns.columns().len()];
    let mut values = Vec::new();
    let mut row = 0;
    for element in columns.elements() {
        while row < element.end as usize {
            values.clear();
            for (column, place) in columns.columns().iter().zip(&mut places) {
                let has_value = column
                    .rows
                    .as_ref()
                    .is_none_or(|rows| rows.get(*place).is_some_and(|of| *of as usize == row));
                if has_value {
                    values.push((column.field, column.values.get(*place)));
                    *place += 1;
                }
            }
            take((element.element, columns.times()[row]), &values)?;
            row += 1;
        }
    }
    Ok(())
}

/// Sum over rows. Two sets of rows with the same sum are the same, for all that chance can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub rows: u64,
    sum: u64,
}

/// Mixes two words to one.
fn mixed(one: u64, other: u64) -> u64 {
    let product = u128::from(one ^ 0x9e37_79b9_7f4a_7c15) * u128::from(other ^ 0xd1b5_4a32_d192_ed03);
    (product >> 64) as u64 ^ product as u64
}

impl Sum {
    /// Adds a row.
    pub(crate) fn add(&mut self, (element, time): RowKey, values: &Values<'_>) {
        let mut sum = mixed(u64::from(element), time as u64);
        for (field, value) in values {
            let bits = match value {
                FieldRef::Float(value) => value.to_bits(),
                FieldRef::Integer(value) => *value as u64,
                FieldRef::Unsigned(value) => *value,
                FieldRef::Boolean(value) => u64::from(*value),
                FieldRef::Text(text) => xxh3_64(text.as_bytes()),
            };
            sum = mixed(sum ^ u64::from(*field) << 8 ^ u64::from(value.kind().number()), bits);
        }
        self.rows += 1;
        self.sum = self.sum.wrapping_add(sum);
    }
}
