//! Reads a table back, row by row, in bounded memory.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use exacat_model::{Error, ErrorKind, Result};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;

use crate::column::{ColumnSpec, schema_of};
use crate::guarded::{guarded, unreadable};
use crate::limits::READ_ROWS;
use crate::rows_digest::RowsDigest;

/// Reader of a table.
pub struct TableReader {
    name: String,
    pairs: Vec<KeyValue>,
    reader: ParquetRecordBatchReader,
    digest: RowsDigest,
}

/// Some rows of a table, with the columns in the order that the reader asked for.
pub struct TableRows(RecordBatch);

impl TableReader {
    /// Opens a file, which must have exactly these columns.
    pub fn open(path: &Path, columns: &[ColumnSpec]) -> Result<Self> {
        let name = path.display().to_string();
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Invalid, format!("{name}: cannot read it: {error}"))
        };
        let file = File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(Error::invalid(format!("{name}: it is no regular file: name a Parquet file")));
        }
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = guarded(&name, || ArrowReaderMetadata::load(&file, options))?;
        let (wanted, found) = (schema_of(columns), metadata.schema());
        for (at, field) in wanted.fields().iter().enumerate() {
            let same = found.fields().get(at).is_some_and(|other| {
                other.name() == field.name() && other.data_type().equals_datatype(field.data_type())
            });
            if !same || found.fields().len() != wanted.fields().len() {
                let message = format!(
                    "{name}: its columns are not those of such a table (see {}): write the export again, or read \
                     it with the release that wrote it",
                    field.name()
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
        }
        let pairs = metadata.metadata().file_metadata().key_value_metadata().cloned().unwrap_or_default();
        let reader = guarded(&name, || {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
            builder.with_batch_size(READ_ROWS).build()
        })?;
        Ok(TableReader { name, pairs, reader, digest: RowsDigest::default() })
    }

    /// Returns the value of a key of the file's metadata.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    }

    /// Returns the next rows; none at the end.
    pub fn next_rows(&mut self) -> Result<Option<TableRows>> {
        let reader = &mut self.reader;
        let next = guarded(&self.name, || reader.next().transpose().map_err(ParquetError::from))?;
        let Some(batch) = next else { return Ok(None) };
        self.digest.add(&batch).map_err(|why| unreadable(&self.name, &why))?;
        Ok(Some(TableRows(batch)))
    }

    /// Returns the digest of the rows read so far.
    pub fn digest(&self) -> &RowsDigest {
        &self.digest
    }
}

impl TableRows {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.0.num_rows()
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn present(&self, column: usize, row: usize) -> Option<&dyn Array> {
        let column = self.0.columns().get(column)?;
        (row < column.len() && column.is_valid(row)).then_some(&**column)
    }

    /// Returns a text; none if it is missing or the column has another kind.
    pub fn text(&self, column: usize, row: usize) -> Option<&str> {
        Some(self.present(column, row)?.as_string_opt::<i32>()?.value(row))
    }

    /// Returns a number, as [`text`](TableRows::text).
    pub fn long(&self, column: usize, row: usize) -> Option<i64> {
        Some(self.present(column, row)?.as_primitive_opt::<Int64Type>()?.value(row))
    }

    /// Returns a moment in microseconds, as [`text`](TableRows::text).
    pub fn time(&self, column: usize, row: usize) -> Option<i64> {
        Some(self.present(column, row)?.as_primitive_opt::<TimestampMicrosecondType>()?.value(row))
    }

    /// Returns a large number, as [`text`](TableRows::text).
    pub fn large(&self, column: usize, row: usize) -> Option<i128> {
        Some(self.present(column, row)?.as_primitive_opt::<Decimal128Type>()?.value(row))
    }

    /// Calls `each` with the pairs of a map.
    pub fn map<E>(
        &self,
        column: usize,
        row: usize,
        mut each: impl FnMut(&str, &str) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Some(map) = self.present(column, row).and_then(|column| column.as_map_opt()) else {
            return Ok(());
        };
        let (Some(keys), Some(values)) =
            (map.keys().as_string_opt::<i32>(), map.values().as_string_opt::<i32>())
        else {
            return Ok(());
        };
        let offsets = map.value_offsets();
        for at in offsets[row] as usize..offsets[row + 1] as usize {
            each(keys.value(at), values.value(at))?;
        }
        Ok(())
    }
}
