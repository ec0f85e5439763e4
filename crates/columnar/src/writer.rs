//! Writes a table to a file, row by row, in bounded memory.

use std::collections::HashMap;
use std::fmt::{Display, Write as _};
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, Decimal128Builder, Int64Builder, MapBuilder, MapFieldNames, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnDescPtr;

use crate::column::{
    ColumnKind, ColumnSpec, LARGE_MAX, MAP_ENTRIES, MAP_KEY, MAP_VALUE, properties_of, schema_of,
};
use crate::limits::{BATCH_BYTES, BATCH_ROWS, ROW_GROUP_BYTES, ROW_GROUP_ROWS, WORDS_BYTES, WRITE_BYTES};
use crate::rows_digest::{RowsDigest, Values};
use crate::text_runs::{Chunk, TextRuns};

/// Values of a column that were not written yet.
enum Column {
    Text(StringBuilder),
    Long(Int64Builder),
    Time(TimestampMicrosecondBuilder),
    Large(Decimal128Builder),
    Map(Box<MapBuilder<StringBuilder, StringBuilder>>),
    Word(Words),
}

/// A column of words. Adjacent rows mostly have the same.
#[derive(Default)]
struct Words {
    /// Words of the row group, their numbers, and their bytes.
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    bytes: usize,
    /// Rows of the row group, and those of the batch.
    group: TextRuns,
    batch: TextRuns,
}

impl Words {
    /// Adds the word of a row. Returns the bytes that it takes if it is new.
    fn add(&mut self, word: Option<&str>) -> usize {
        let before = self.bytes;
        let number = word.map(|word| match self.batch.runs().last() {
            Some((Some(last), _)) if *self.texts[*last as usize] == *word => *last,
            _ => self.number(word),
        });
        self.batch.extend(number, 1);
        self.bytes - before
    }

    fn number(&mut self, word: &str) -> u32 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        let (word, number) = (Arc::<str>::from(word), self.texts.len() as u32);
        self.bytes += word.len();
        self.texts.push(Arc::clone(&word));
        self.numbers.insert(word, number);
        number
    }

    /// Moves the rows of the batch to those of the row group.
    fn end_batch(&mut self) {
        self.batch.runs().iter().for_each(|(number, count)| self.group.extend(*number, *count));
        self.batch.clear();
    }

    /// Returns the column of the row group, and removes its words and rows.
    fn end_group(
        &mut self,
        column: &ColumnDescPtr,
        properties: &WriterProperties,
        rows: usize,
    ) -> Result<Chunk, ParquetError> {
        let Words { texts, numbers, bytes, group, .. } = self;
        let text = |number: u32| &*texts[number as usize];
        let chunk = group.chunk((text, texts.len()), column, properties, 0..rows);
        *bytes = 0;
        numbers.clear();
        texts.clear();
        group.clear();
        chunk
    }
}

/// Values of a batch.
enum BatchColumn<'c> {
    Values(ArrayRef),
    Words(&'c mut Words),
}

impl Column {
    fn new(spec: &ColumnSpec) -> Self {
        match spec.kind {
            ColumnKind::Word => Column::Word(Words::default()),
            ColumnKind::Text | ColumnKind::Path => Column::Text(StringBuilder::new()),
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

    /// Returns the number of columns that Parquet has for it.
    fn leaves(&self) -> usize {
        if let Column::Map(_) = self { 2 } else { 1 }
    }

    /// Ends the values of a batch.
    fn finish(&mut self) -> BatchColumn<'_> {
        BatchColumn::Values(match self {
            Column::Word(words) => return BatchColumn::Words(words),
            Column::Text(values) => {
                let texts = values.finish();
                // The next batch mostly has as many bytes.
                let bytes = texts.value_data().len();
                *values = StringBuilder::with_capacity(texts.len(), bytes + bytes / 8);
                Arc::new(texts)
            }
            Column::Long(values) => Arc::new(values.finish()),
            Column::Time(values) => Arc::new(values.finish()),
            Column::Large(values) => Arc::new(values.finish()),
            Column::Map(values) => ArrayBuilder::finish(&mut **values),
        })
    }
}

impl BatchColumn<'_> {
    fn rows(&self) -> usize {
        match self {
            BatchColumn::Values(values) => values.len(),
            BatchColumn::Words(words) => words.batch.runs().iter().map(|(_, count)| count).sum(),
        }
    }

    fn has_nulls(&self) -> bool {
        match self {
            BatchColumn::Values(values) => values.null_count() > 0,
            BatchColumn::Words(words) => words.batch.runs().iter().any(|(number, _)| number.is_none()),
        }
    }

    fn values(&self) -> Values<'_> {
        match self {
            BatchColumn::Values(values) => Values::Array(&**values),
            BatchColumn::Words(words) => Values::Runs(words.batch.runs(), &words.texts),
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
    file: SerializedFileWriter<Out>,
    library: ArrowRowGroupWriterFactory,
    group: Option<Group>,
    /// Text in progress.
    scratch: String,
}

/// A row group in progress.
struct Group {
    /// Writers of the library, one for each column of Parquet. Those of words are not used.
    leaves: Vec<ArrowColumnWriter>,
    rows: usize,
}

fn internal(why: impl Display) -> io::Error {
    io::Error::other(format!("internal error: rows of a table: {why}"))
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
        let (file, library) = writer.and_then(ArrowWriter::into_serialized_writer).map_err(from_library)?;
        Ok(TableWriter {
            schema,
            columns: columns.iter().map(Column::new).collect(),
            at: 0,
            rows: 0,
            bytes: 0,
            digest: RowsDigest::default(),
            file,
            library,
            group: None,
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
        let bytes = match self.next() {
            Some(Column::Text(values)) => {
                values.append_option(value);
                value.map_or(0, str::len)
            }
            Some(Column::Word(words)) => words.add(value),
            _ => 0,
        };
        self.bytes += bytes;
    }

    /// Adds the text that `fill` appends.
    pub fn filled(&mut self, fill: impl FnOnce(&mut String)) {
        let mut text = std::mem::take(&mut self.scratch);
        text.clear();
        fill(&mut text);
        self.text(Some(&text));
        self.scratch = text;
    }

    /// Adds a text as a value prints itself.
    pub fn shown(&mut self, value: impl Display) {
        self.filled(|text| {
            let _infallible = write!(text, "{value}");
        });
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
        let group = self.group.as_ref().map_or(0, |group| group.rows);
        let is_full = self.rows >= BATCH_ROWS || group + self.rows >= ROW_GROUP_ROWS;
        if is_full || self.bytes >= BATCH_BYTES { self.end_batch() } else { Ok(()) }
    }

    /// Returns the number of rows so far.
    pub fn row_count(&self) -> u64 {
        self.digest.rows() + self.rows as u64
    }

    fn end_batch(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if rows == 0 {
            return Ok(());
        }
        let mut columns: Vec<BatchColumn<'_>> = self.columns.iter_mut().map(Column::finish).collect();
        for (column, field) in columns.iter().zip(self.schema.fields()) {
            let values = column.rows();
            if values != rows {
                return Err(internal(format_args!("{values} values of {} in {rows} rows", field.name())));
            }
            if !field.is_nullable() && column.has_nulls() {
                return Err(internal(format_args!("a row without {}", field.name())));
            }
        }
        self.digest.add_columns(rows, columns.iter().map(BatchColumn::values)).map_err(internal)?;
        let group = match &mut self.group {
            Some(group) => group,
            none => {
                let number = self.file.flushed_row_groups().len();
                let leaves = self.library.create_column_writers(number).map_err(from_library)?;
                none.insert(Group { leaves, rows: 0 })
            }
        };
        group.rows += rows;
        let (mut leaves, mut words_bytes) = (group.leaves.iter_mut(), 0);
        for (column, field) in columns.iter_mut().zip(self.schema.fields()) {
            match column {
                BatchColumn::Values(values) => {
                    let of_column = compute_leaves(field, values).map_err(from_library)?;
                    for (values, writer) in of_column.iter().zip(&mut leaves) {
                        writer.write(values).map_err(from_library)?;
                    }
                }
                BatchColumn::Words(words) => {
                    leaves.next();
                    words.end_batch();
                    words_bytes = words.bytes.max(words_bytes);
                }
            }
        }
        let bytes: usize = group.leaves.iter().map(ArrowColumnWriter::get_estimated_total_bytes).sum();
        let is_full = group.rows >= ROW_GROUP_ROWS || bytes >= ROW_GROUP_BYTES || words_bytes >= WORDS_BYTES;
        if is_full { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> io::Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        let properties = Arc::clone(self.file.properties());
        let descriptions = self.file.schema_descr().columns().to_vec();
        let mut out = self.file.next_row_group().map_err(from_library)?;
        let mut leaves = descriptions.iter().zip(group.leaves);
        for column in &mut self.columns {
            for (description, writer) in leaves.by_ref().take(column.leaves()) {
                match column {
                    Column::Word(words) => {
                        let chunk = words.end_group(description, &properties, group.rows);
                        let Chunk { bytes, close } = chunk.map_err(from_library)?;
                        out.append_column(&bytes, close).map_err(from_library)?;
                    }
                    _ => {
                        let chunk = writer.close().map_err(from_library)?;
                        chunk.append_to_row_group(&mut out).map_err(from_library)?;
                    }
                }
            }
        }
        out.close().map_err(from_library)?;
        Ok(())
    }

    /// Ends the table. `metadata` gets the digest of the rows, and returns the keys and values that the file
    /// has beside them.
    pub fn finish(
        mut self,
        metadata: impl FnOnce(&RowsDigest) -> Vec<(String, String)>,
    ) -> io::Result<Written> {
        self.end_batch()?;
        self.end_group()?;
        for (key, value) in metadata(&self.digest) {
            self.file.append_key_value_metadata(KeyValue::new(key, value));
        }
        let out = self.file.into_inner().map_err(from_library)?;
        let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Written { rows: self.digest.rows(), digest: self.digest.digest(), bytes: out.bytes })
    }
}
