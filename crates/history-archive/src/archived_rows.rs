//! Rows of a file of the archive, without the group that it was made from: names and types are in the file.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, DictionaryArray, RecordBatch};
use exacat_model::{Error, FieldType, FieldValue, Result};
use exacat_wire::influx::split_series;
use parquet::file::metadata::FileMetaData;
use serde_json::Value;

use crate::block_digests::BlockDigests;
use crate::gathered::Gathered;
use crate::other_fields::each_field;
use crate::record_columns::RecordColumns;
use crate::schema;

/// Types of the fields of a measurement, and the field with its quality.
#[derive(Default)]
struct Measurement {
    fields: HashMap<String, FieldType>,
    quality: Option<String>,
}

/// The element of the last record.
struct Element {
    number: i64,
    key: String,
    measurement: String,
}

/// Reader of records.
pub(crate) struct ArchivedRows {
    measurements: HashMap<String, Measurement>,
    element: Option<Element>,
    /// Record of the history's log up to which the file is complete.
    pub complete: Option<u64>,
    /// Digests of its blocks, if it has any.
    pub digests: Option<BlockDigests>,
}

fn damaged(what: &str) -> Error {
    Error::invalid(format!("the file of the archive is damaged: {what}; copy it again"))
}

/// Returns a text of a dictionary; none if the row has none.
fn text(column: &DictionaryArray<Int32Type>, row: usize) -> Option<&str> {
    let texts = column.values().as_string_opt::<i32>()?;
    let place = usize::try_from(column.keys().value(row)).ok()?;
    (column.keys().is_valid(row) && place < texts.len()).then(|| texts.value(place))
}

impl ArchivedRows {
    /// Reads the names and types from a file's metadata.
    pub(crate) fn of(name: &str, metadata: &FileMetaData) -> Result<Self> {
        let pairs = metadata.key_value_metadata().map(Vec::as_slice).unwrap_or_default();
        let pair = |key: &str| pairs.iter().find(|pair| pair.key == key)?.value.as_deref();
        if !matches!(pair(schema::METADATA_VERSION), Some(schema::VERSION | schema::VERSION_1)) {
            let what = "is of an archive of an unknown version: use a newer release of exacat";
            return Err(Error::invalid(format!("{name}: it {what}")));
        }
        let read = || {
            let mut measurements: HashMap<String, Measurement> = HashMap::new();
            let fields: Value = serde_json::from_str(pair(schema::METADATA_FIELDS)?).ok()?;
            for field in fields.as_array()? {
                let of = |key: &str| field[key].as_str().map(str::to_owned);
                let kind = of("type")?;
                let kind = FieldType::ALL.into_iter().find(|one| one.name() == kind)?;
                measurements.entry(of("measurement")?).or_default().fields.insert(of("name")?, kind);
            }
            let quality: Value = serde_json::from_str(pair(schema::METADATA_QUALITY)?).ok()?;
            for (measurement, field) in quality.as_object()? {
                measurements.entry(measurement.clone()).or_default().quality =
                    Some(field.as_str()?.to_owned());
            }
            Some(measurements)
        };
        let measurements = read().ok_or_else(|| {
            let what = damaged("its names of fields").message;
            Error::invalid(format!("{name}: {what}"))
        })?;
        let complete = pair(schema::METADATA_COMPLETE).and_then(|text| text.parse().ok());
        let digests = pair(schema::METADATA_BLOCKS).and_then(BlockDigests::parse);
        Ok(ArchivedRows { measurements, element: None, complete, digests })
    }

    /// Adds the records of a batch from one on, until the rows are full. Returns the number of records.
    pub(crate) fn add(
        &mut self,
        batch: &RecordBatch,
        from: usize,
        number: u64,
        rows: &mut Gathered,
    ) -> Result<usize> {
        let records = RecordColumns::of(batch).ok_or_else(|| damaged("a column has another type"))?;
        let texts = |column: &str| batch.column_by_name(column)?.as_dictionary_opt::<Int32Type>();
        let (names, series) = (texts(schema::NAME), texts(schema::SERIES));
        let (names, series) = names.zip(series).ok_or_else(|| damaged("a column of names"))?;
        let times = records.all_times().ok_or_else(|| damaged("a time out of range"))?;
        for (row, time) in times.iter().copied().enumerate().skip(from) {
            let element = records.elements.value(row);
            if self.element.as_ref().is_none_or(|of| of.number != element) {
                let key = text(series, row).or_else(|| text(names, row));
                let key = key.ok_or_else(|| damaged("a record without a name"))?.to_owned();
                let measurement =
                    split_series(&key).map_err(|error| damaged(&format!("the key {key:.100?}: {error}")))?;
                let measurement = measurement.0.into_owned();
                self.element = Some(Element { number: element, key, measurement });
            }
            self.add_record(&records, row, time, rows).map_err(|error| {
                Error::new(error.kind, format!("row {}: {}", number + (row - from) as u64, error.message))
            })?;
            if rows.is_full() {
                return Ok(row + 1 - from);
            }
        }
        Ok(batch.num_rows() - from)
    }

    fn add_record(
        &self,
        records: &RecordColumns<'_>,
        row: usize,
        time: i64,
        rows: &mut Gathered,
    ) -> Result<()> {
        let Some(Element { key, measurement, .. }) = &self.element else { return Ok(()) };
        let measurement = self.measurements.get(measurement);
        let kind = |field: &str| measurement?.fields.get(field).copied();
        let mut values: Vec<(String, FieldValue)> = Vec::new();
        if let Some(field) = text(records.fields, row) {
            let kind = kind(field).ok_or_else(|| damaged(&format!("the field {field:.100?} has no type")))?;
            let value = records.value(kind, row).ok_or_else(|| damaged("a value is missing"))?;
            values.push((field.to_owned(), value));
        }
        if records.qualities.is_valid(row)
            && let Some(field) = measurement.and_then(|of| of.quality.clone())
        {
            values.push((field, FieldValue::Integer(records.qualities.value(row))));
        }
        if records.others.is_valid(row) {
            each_field(records.others.value(row), kind, |field, value| {
                values.push((field.to_owned(), value))
            })
            .ok_or_else(|| damaged("the column \"fields\""))?;
        }
        rows.add(key, time, values.into_iter());
        Ok(())
    }
}
