//! Columns of a batch of records, as the library reads them from a file of the archive.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, Decimal128Array, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use exacat_history::columns::Values;
use exacat_model::{FieldType, FieldValue};

use crate::schema;

/// The columns.
pub(crate) struct RecordColumns<'b> {
    pub elements: &'b Int64Array,
    times: &'b TimestampMicrosecondArray,
    times_ns: &'b Int64Array,
    /// Numbers of field names.
    pub fields: &'b DictionaryArray<Int32Type>,
    pub field_names: &'b StringArray,
    values: &'b Float64Array,
    integers: &'b Decimal128Array,
    texts: &'b StringArray,
    pub qualities: &'b Int64Array,
    pub others: &'b StringArray,
}

impl<'b> RecordColumns<'b> {
    /// Returns the columns of a batch; none if one is missing or has another type.
    pub(crate) fn of(batch: &'b RecordBatch) -> Option<Self> {
        let fields = batch.column_by_name(schema::FIELD)?.as_dictionary_opt::<Int32Type>()?;
        let integers = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
        let texts = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
        Some(RecordColumns {
            elements: integers(schema::ELEMENT)?,
            times: batch.column_by_name(schema::TIME)?.as_primitive_opt::<TimestampMicrosecondType>()?,
            times_ns: integers(schema::TIME_NS)?,
            fields,
            field_names: fields.values().as_string_opt::<i32>()?,
            values: batch.column_by_name(schema::VALUE)?.as_primitive_opt::<Float64Type>()?,
            integers: batch.column_by_name(schema::INTEGER)?.as_primitive_opt::<Decimal128Type>()?,
            texts: texts(schema::TEXT)?,
            qualities: integers(schema::QUALITY)?,
            others: texts(schema::FIELDS)?,
        })
    }

    /// Returns the times in nanoseconds; none if one is out of range.
    pub(crate) fn all_times(&self) -> Option<Vec<i64>> {
        if self.times_ns.null_count() == self.times_ns.len() {
            return self.times.values().iter().map(|time| time.checked_mul(1000)).collect();
        }
        let time = |row: usize| match self.times_ns.is_valid(row) {
            true => Some(self.times_ns.value(row)),
            false => self.times.value(row).checked_mul(1000),
        };
        (0..self.times.len()).map(time).collect()
    }

    /// Returns the end of the records from `start` on that are rows of one field, have no other fields, and
    /// all have a quality or all none. The last record of the batch is not among them: its row may go on.
    /// `is_like` says whether an element has the measurement of the first record's.
    pub(crate) fn end_of_simple(&self, start: usize, times: &[i64], is_like: impl Fn(u32) -> bool) -> usize {
        let (elements, keys) = (self.elements.values(), self.fields.keys());
        let (has_others, has_no_field) =
            (self.others.null_count() < self.others.len(), keys.null_count() > 0);
        let is_mixed = !matches!(self.qualities.null_count(), 0) && self.qualities.null_count() < times.len();
        let has_quality = self.qualities.is_valid(start);
        let fits = |row: usize| {
            keys.values()[row] == keys.values()[start]
                && !(has_others && self.others.is_valid(row))
                && !(has_no_field && keys.is_null(row))
                && !(is_mixed && self.qualities.is_valid(row) != has_quality)
        };
        if !fits(start) {
            return start;
        }
        for row in start + 1..times.len() {
            let is_same = elements[row] == elements[row - 1];
            // Records of one row, or rows out of order.
            if elements[row] < elements[row - 1] || (is_same && times[row] <= times[row - 1]) {
                return row - 1;
            }
            if !fits(row) || (!is_same && !u32::try_from(elements[row]).is_ok_and(&is_like)) {
                return row;
            }
        }
        times.len() - 1
    }

    /// Returns the values of some records, which are numbers of a type. None if one is missing.
    pub(crate) fn values_of(&self, kind: FieldType, rows: Range<usize>) -> Option<Values> {
        if kind == FieldType::Text
            || (self.values.null_count() > 0 && rows.clone().any(|row| self.values.is_null(row)))
        {
            return None;
        }
        let values = self.values.values()[rows.clone()].iter();
        let has_large = self.integers.null_count() < self.integers.len();
        Some(match kind {
            FieldType::Float => Values::Float(values.copied().collect()),
            FieldType::Integer if has_large => Values::Integer(
                rows.map(|row| match self.value(kind, row) {
                    Some(FieldValue::Integer(value)) => Some(value),
                    _ => None,
                })
                .collect::<Option<_>>()?,
            ),
            FieldType::Unsigned if has_large => Values::Unsigned(
                rows.map(|row| match self.value(kind, row) {
                    Some(FieldValue::Unsigned(value)) => Some(value),
                    _ => None,
                })
                .collect::<Option<_>>()?,
            ),
            FieldType::Integer => Values::Integer(values.map(|value| *value as i64).collect()),
            FieldType::Unsigned => Values::Unsigned(values.map(|value| *value as u64).collect()),
            FieldType::Boolean => Values::Boolean(values.map(|value| *value != 0.0).collect()),
            FieldType::Text => return None,
        })
    }

    /// Returns the value of a record, of a type. None if it is missing.
    pub(crate) fn value(&self, kind: FieldType, row: usize) -> Option<FieldValue> {
        if kind == FieldType::Text {
            return self.texts.is_valid(row).then(|| FieldValue::Text(self.texts.value(row).into()));
        }
        let number = self.values.is_valid(row).then(|| self.values.value(row))?;
        let integer = self.integers.is_valid(row).then(|| self.integers.value(row));
        Some(match kind {
            FieldType::Float => FieldValue::Float(number),
            FieldType::Integer => FieldValue::Integer(match integer {
                Some(integer) => i64::try_from(integer).ok()?,
                None => number as i64,
            }),
            FieldType::Unsigned => FieldValue::Unsigned(match integer {
                Some(integer) => u64::try_from(integer).ok()?,
                None => number as u64,
            }),
            FieldType::Boolean => FieldValue::Boolean(number != 0.0),
            FieldType::Text => return None,
        })
    }
}
