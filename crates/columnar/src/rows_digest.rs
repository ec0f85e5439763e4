//! A digest of rows that does not depend on the batches they come in.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrowPrimitiveType, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::DataType;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::text_runs::Run;

/// Values of a column.
pub(crate) enum Values<'v> {
    Array(&'v dyn Array),
    /// Runs of texts, which have these numbers.
    Runs(&'v [Run], &'v [Arc<str>]),
}

/// Digest of the values of a column: which are there, how long they are, and their bytes.
#[derive(Default)]
struct ColumnDigest {
    present: Xxh3,
    lengths: Xxh3,
    bytes: Xxh3,
    /// Digests of keys and values of a map.
    inside: Vec<ColumnDigest>,
}

/// Digest of all values of a table, in order. It guards against damage and mistakes, not against a person
/// who computes it anew.
#[derive(Default)]
pub struct RowsDigest {
    rows: u64,
    columns: Vec<ColumnDigest>,
    /// Reused for each column.
    scratch: Vec<u8>,
}

impl RowsDigest {
    /// Adds rows. Each batch has the same columns. An error names a type that tables do not have.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let columns = batch.columns().iter().map(|column| Values::Array(&**column));
        self.add_columns(batch.num_rows(), columns)
    }

    /// Adds rows by their columns.
    pub(crate) fn add_columns<'v>(
        &mut self,
        rows: usize,
        columns: impl ExactSizeIterator<Item = Values<'v>>,
    ) -> Result<(), String> {
        self.rows += rows as u64;
        self.columns.resize_with(columns.len(), ColumnDigest::default);
        for (digest, column) in self.columns.iter_mut().zip(columns) {
            match column {
                Values::Array(column) => digest.add(column, &mut self.scratch)?,
                Values::Runs(runs, texts) => digest.runs(runs, texts, &mut self.scratch),
            }
        }
        Ok(())
    }

    /// Returns the number of rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the digest: 32 hex digits.
    pub fn digest(&self) -> String {
        let mut all = self.rows.to_le_bytes().to_vec();
        self.columns.iter().for_each(|column| column.push(&mut all));
        format!("{:032x}", xxh3_128(&all))
    }
}

impl ColumnDigest {
    fn push(&self, all: &mut Vec<u8>) {
        for part in [&self.present, &self.lengths, &self.bytes] {
            all.extend_from_slice(&part.digest128().to_le_bytes());
        }
        self.inside.iter().for_each(|inside| inside.push(all));
    }

    fn add(&mut self, column: &dyn Array, scratch: &mut Vec<u8>) -> Result<(), String> {
        scratch.clear();
        match column.nulls() {
            Some(nulls) => scratch.extend(nulls.iter().map(u8::from)),
            None => scratch.resize(column.len(), 1),
        }
        self.present.update(scratch);
        match column.data_type() {
            DataType::Int64 => self.numbers(column.as_primitive::<Int64Type>(), scratch),
            DataType::Timestamp(..) => {
                self.numbers(column.as_primitive::<TimestampMicrosecondType>(), scratch)
            }
            DataType::Decimal128(..) => self.numbers(column.as_primitive::<Decimal128Type>(), scratch),
            DataType::Utf8 => self.texts(column.as_string(), scratch),
            DataType::Map(..) => {
                let map = column.as_map();
                let offsets = map.value_offsets();
                scratch.clear();
                for pair in offsets.windows(2) {
                    scratch.extend_from_slice(&(pair[1] - pair[0]).to_le_bytes());
                }
                self.lengths.update(scratch);
                self.inside.resize_with(2, ColumnDigest::default);
                let (Some(from), Some(to)) = (offsets.first(), offsets.last()) else { return Ok(()) };
                let (from, count) = (*from as usize, (to - from) as usize);
                for (digest, part) in self.inside.iter_mut().zip([map.keys(), map.values()]) {
                    digest.add(&part.slice(from, count), scratch)?;
                }
            }
            other => return Err(format!("a table has no column of type {other}")),
        }
        Ok(())
    }

    /// Adds the same as [`texts`](Self::texts) of a column with these texts.
    fn runs(&mut self, runs: &[Run], texts: &[Arc<str>], scratch: &mut Vec<u8>) {
        scratch.clear();
        for (number, count) in runs {
            scratch.resize(scratch.len() + count, u8::from(number.is_some()));
        }
        self.present.update(scratch);
        let text = |number: &Option<u32>| number.map_or("", |number| &*texts[number as usize]).as_bytes();
        scratch.clear();
        for (number, count) in runs {
            let length = (text(number).len() as i32).to_le_bytes();
            (0..*count).for_each(|_| scratch.extend_from_slice(&length));
        }
        self.lengths.update(scratch);
        for (number, count) in runs {
            (0..*count).for_each(|_| self.bytes.update(text(number)));
        }
    }

    fn numbers<T: ArrowPrimitiveType>(&mut self, column: &PrimitiveArray<T>, scratch: &mut Vec<u8>) {
        let bytes = column.values().inner().as_slice();
        if column.null_count() == 0 {
            return self.bytes.update(bytes);
        }
        // The bytes of a missing value may be anything.
        scratch.clear();
        let size = size_of::<T::Native>();
        for (row, value) in bytes.chunks_exact(size).enumerate() {
            if column.is_valid(row) {
                scratch.extend_from_slice(value);
            }
        }
        self.bytes.update(scratch);
    }

    fn texts(&mut self, column: &StringArray, scratch: &mut Vec<u8>) {
        let offsets = column.value_offsets();
        scratch.clear();
        for (row, pair) in offsets.windows(2).enumerate() {
            let length = if column.is_valid(row) { pair[1] - pair[0] } else { 0 };
            scratch.extend_from_slice(&length.to_le_bytes());
        }
        self.lengths.update(scratch);
        if column.null_count() == 0 {
            let (Some(from), Some(to)) = (offsets.first(), offsets.last()) else { return };
            return self
                .bytes
                .update(column.value_data().get(*from as usize..*to as usize).unwrap_or_default());
        }
        for text in column.iter().flatten() {
            self.bytes.update(text.as_bytes());
        }
    }
}
