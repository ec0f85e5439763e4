//! Random rows for the tests of this crate, and the plain map that they are compared with.

use std::collections::BTreeMap;

use exacat_model::{Error, FieldRef, FieldType, FieldValue};
use fastrand::Rng;

use crate::columns::{Columns, RowKey};
use crate::row::{Field, FieldNumber, RowRef, put_row};
use crate::sorted::{ByRow, SortedRows};

/// Rows by identity, each with the values of its fields.
pub(crate) type Model = BTreeMap<RowKey, BTreeMap<FieldNumber, FieldValue>>;

/// Shapes with all types: of one field, of several, and of none in common.
pub(crate) fn shapes() -> Vec<Vec<Field>> {
    let field = |number| {
        let kind = FieldType::ALL[number as usize % FieldType::ALL.len()];
        Field { number, kind }
    };
    [&[0, 1][..], &[0], &[0, 1, 2, 3, 4], &[4, 7], &[3, 9, 1000], &[1_000_000, u32::MAX]]
        .map(|fields| fields.iter().copied().map(field).collect())
        .into()
}

/// Returns a random value; often an extreme one.
pub(crate) fn value(random: &mut Rng, kind: FieldType) -> FieldValue {
    let extremes =
        [0, 1, 1 << 63, u64::MAX, 0x7ff0_0000_0000_0000, 0xfff8_0000_dead_beef, 0x7ff0_0000_0000_0001];
    let bits = match random.u8(..10) {
        0 => extremes[random.usize(..extremes.len())],
        1 => random.u64(..),
        2..=4 => u64::from(random.u8(..)),
        _ => (f64::from(random.u16(..)) / 100.0).to_bits(),
    };
    match kind {
        FieldType::Float => FieldValue::Float(f64::from_bits(bits)),
        FieldType::Integer => FieldValue::Integer(bits as i64),
        FieldType::Unsigned => FieldValue::Unsigned(bits),
        FieldType::Boolean => FieldValue::Boolean(bits & 1 == 1),
        FieldType::Text => {
            let length = if random.u8(..50) == 0 { random.usize(..3000) } else { random.usize(..6) };
            let text: String =
                (0..length).map(|_| if random.bool() { 'ä' } else { random.alphabetic() }).collect();
            FieldValue::Text(text.into())
        }
    }
}

/// Rows in the order of their arrival, as their bytes.
#[derive(Default)]
pub(crate) struct Arrivals {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Arrivals {
    /// Adds random rows of some elements and times, late and repeated ones among them, to the model too.
    pub(crate) fn add(
        &mut self,
        random: &mut Rng,
        count: usize,
        elements: u32,
        times: impl Fn(&mut Rng) -> i64,
        model: &mut Model,
    ) {
        let shapes = shapes();
        for _ in 0..count {
            let (element, time) = (random.u32(..elements), times(random));
            let shape = if random.u8(..4) > 0 { 0 } else { random.usize(..shapes.len()) };
            let fields = &shapes[shape];
            let values: Vec<FieldValue> = fields.iter().map(|field| value(random, field.kind)).collect();
            self.starts.push(self.bytes.len());
            let refs = values.iter().map(FieldValue::borrow);
            put_row(&mut self.bytes, element, shape as u32, time, refs).unwrap();
            let row = model.entry((element, time)).or_default();
            row.extend(fields.iter().map(|field| field.number).zip(values));
        }
    }

    /// Returns the rows sorted by identity, and those of one identity by arrival.
    pub(crate) fn sorted(&self) -> Vec<RowRef<'_>> {
        let mut rows: Vec<RowRef<'_>> =
            self.starts.iter().map(|start| RowRef::at(&self.bytes[*start..]).unwrap()).collect();
        rows.sort_by(RowRef::cmp_identity);
        rows
    }

    /// Returns the rows by column.
    pub(crate) fn columns(&self) -> Vec<Columns> {
        let shapes = shapes();
        all_of(&mut ByRow::new(self.sorted(), &shapes)).unwrap()
    }
}

/// Reads a source to its end.
pub(crate) fn all_of(source: &mut dyn SortedRows) -> Result<Vec<Columns>, Error> {
    let mut all = Vec::new();
    while let Some(rows) = source.next_rows()? {
        assert!(!rows.is_empty());
        all.push(rows);
    }
    Ok(all)
}

/// Returns the rows of batches as a plain map; fails unless they are in order.
pub(crate) fn to_model(batches: &[Columns]) -> Model {
    let mut model = Model::new();
    for rows in batches {
        for row in 0..rows.rows() {
            let key = rows.key(row);
            assert!(model.last_key_value().is_none_or(|(last, _)| *last < key), "{key:?} is out of order");
            let values = rows.row(row).map(|(field, value): (_, FieldRef<'_>)| (field, value.to_value()));
            model.insert(key, values.collect());
        }
    }
    model
}
