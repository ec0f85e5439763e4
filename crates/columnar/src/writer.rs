//! Writes a table to a file, row by row, in bounded memory.

use std::fmt::{Display, Write as _};
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Decimal128Builder, Int64Builder, MapBuilder, MapFieldNames, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;

use crate::column::{
    ColumnKind, ColumnSpec, LARGE_MAX, MAP_ENTRIES, MAP_KEY, MAP_VALUE, properties_of, schema_of,
};
use crate::limits::{BATCH_BYTES, BATCH_ROWS, WRITE_BYTES};
use crate::rows_digest::RowsDigest;

/// Values of a column that were not written yet.
enum Column {
    Text(StringBuilder),
    Long(Int64Builder),
    Time(TimestampMicrosecondBuilder),
    Large(Decimal128Builder),
    Map(Box<MapBuilder<StringBuilder, StringBuilder>>),
}

impl Column {
    fn new(spec: &ColumnSpec) -> Self {
        match spec.kind {
            ColumnKind::Word | ColumnKind::Text | ColumnKind::Path => Column::Text(StringBuilder::new()),
            ColumnKind::Long => Column::Long(Int64Builder::new()),
            ColumnKind::Time => {
                Column::Time(TimestampMicrosecondBuilder::new().with_data_type(spec.data_type()))
            }
            ColumnKind::Large => Column::Large(Decimal128Builder::new().with_data_type(spec.data_type())),
            ColumnKind::Map => {
                let names = MapFieldNames {
                    entry: MAP_ENTRIES.to_owned(),
                    key: MAP_KEY.to_owned(),
                    value: MAP_VALUE.to_owned(),
                };
                let map = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
                    .with_keys_field(Field::new(MAP_KEY, DataType::Utf8, false))
                    .with_values_field(Field::new(MAP_VALUE, DataType::Utf8, false));
                Column::Map(Box::new(map))
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Column::Text(values) => Arc::new(values.finish()),
            Column::Long(values) => Arc::new(values.finish()),
            Column::Time(values) => Arc::new(values.finish()),
            Column::Large(values) => Arc::new(values.finish()),
            Column::Map(values) => ArrayBuilder::finish(&mut **values),
        }
    }
}

/// A complete file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its rows.
    pub rows: u64,
    /// Digest of its rows, as [`RowsDigest`] computes it.
    pub digest: String,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Counts the bytes that pass.
struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

type Out = BufWriter<Counted<Box<dyn Write + Send>>>;

/// Writer of a table. A row takes one value for each column, in the columns' order, then
/// [`end_row`](TableWriter::end_row).
pub struct TableWriter {
    schema: SchemaRef,
    columns: Vec<Column>,
    /// Next column of the row.
    at: usize,
    /// Rows that were not written yet, and the bytes of their texts.
    rows: usize,
    bytes: usize,
    digest: RowsDigest,
    writer: ArrowWriter<Out>,
    /// Text in progress.
    scratch: String,
}

/// Converts an error of the library: the system's own, if that was the cause.
fn from_library(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(cause) => *cause,
            Err(cause) => io::Error::other(cause.to_string()),
        },
        error => io::Error::other(error.to_string()),
    }
}

impl TableWriter {
    /// Begins a table with these columns.
    pub fn new(out: Box<dyn Write + Send>, columns: &[ColumnSpec]) -> io::Result<Self> {
        let schema = schema_of(columns);
        // Types are those of Parquet alone: no reader needs the library's own description.
        let options =
            ArrowWriterOptions::new().with_properties(properties_of(columns)).with_skip_arrow_metadata(true);
        let out = BufWriter::with_capacity(WRITE_BYTES, Counted { to: out, bytes: 0 });
        let writer = ArrowWriter::try_new_with_options(out, Arc::clone(&schema), options);
        Ok(TableWriter {
            schema,
            columns: columns.iter().map(Column::new).collect(),
            at: 0,
            rows: 0,
            bytes: 0,
            digest: RowsDigest::default(),
            writer: writer.map_err(from_library)?,
            scratch: String::new(),
        })
    }

    /// Returns the next column of the row. A value of the wrong kind is dropped; the end of the batch
    /// finds the columns unequal.
    fn next(&mut self) -> Option<&mut Column> {
        self.at += 1;
        self.columns.get_mut(self.at - 1)
    }

    /// Adds a text.
    pub fn text(&mut self, value: Option<&str>) {
        self.bytes += value.map_or(0, str::len);
        if let Some(Column::Text(values)) = self.next() {
            values.append_option(value);
        }
    }

    /// Adds a text as a value prints itself.
    pub fn shown(&mut self, value: impl Display) {
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        let _infallible = write!(text, "{value}");
        self.text(Some(&text));
        self.scratch = text;
    }

    /// Adds a number.
    pub fn long(&mut self, value: Option<i64>) {
        if let Some(Column::Long(values)) = self.next() {
            values.append_option(value);
        }
    }

    /// Adds a moment, in microseconds since 1970.
    pub fn time(&mut self, value: Option<i64>) {
        if let Some(Column::Time(values)) = self.next() {
            values.append_option(value);
        }
    }

    /// Adds a large number; the largest one in place of one that does not fit.
    pub fn large(&mut self, value: u128) {
        let value = i128::try_from(value).unwrap_or(LARGE_MAX).min(LARGE_MAX);
        if let Some(Column::Large(values)) = self.next() {
            values.append_value(value);
        }
    }

    /// Adds a map; `fill` adds each pair of it.
    pub fn map(&mut self, fill: impl FnOnce(&mut dyn FnMut(&str, &dyn Display))) {
        let mut text = std::mem::take(&mut self.scratch);
        let mut bytes = 0;
        if let Some(Column::Map(map)) = self.next() {
            fill(&mut |key, value| {
                text.clear();
                let _infallible = write!(text, "{value}");
                bytes += key.len() + text.len();
                map.keys().append_value(key);
                map.values().append_value(&text);
            });
            // It fails only if keys and values differ in number.
            let _equal = map.append(true);
        }
        self.bytes += bytes;
        self.scratch = text;
    }

    /// Ends a row.
    pub fn end_row(&mut self) -> io::Result<()> {
        self.at = 0;
        self.rows += 1;
        if self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES { self.end_batch() } else { Ok(()) }
    }

    /// Returns the number of rows so far.
    pub fn row_count(&self) -> u64 {
        self.digest.rows() + self.rows as u64
    }

    fn end_batch(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        (self.rows, self.bytes) = (0, 0);
        let columns = self.columns.iter_mut().map(Column::finish).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        let internal = |why: String| io::Error::other(format!("internal error: rows of a table: {why}"));
        let batch = batch.map_err(|error| internal(error.to_string()))?;
        self.digest.add(&batch).map_err(internal)?;
        self.writer.write(&batch).map_err(from_library)
    }

    /// Ends the table. `metadata` gets the digest of the rows, and returns the keys and values that the file
    /// has beside them.
    pub fn finish(
        mut self,
        metadata: impl FnOnce(&RowsDigest) -> Vec<(String, String)>,
    ) -> io::Result<Written> {
        self.end_batch()?;
        for (key, value) in metadata(&self.digest) {
            self.writer.append_key_value_metadata(KeyValue::new(key, value));
        }
        let out = self.writer.into_inner().map_err(from_library)?;
        let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Written { rows: self.digest.rows(), digest: self.digest.digest(), bytes: out.bytes })
    }
}
