//! A file in progress: records become row groups, column by column.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use exacat_model::Result;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;

use crate::repeated_texts::RepeatedTexts;
use crate::schema::{ROW_GROUP_ROWS, arrow, internal, properties};

/// A column of records.
pub(crate) enum StoredColumn<'t> {
    /// Made by the library.
    Values(ArrayRef),
    /// Made of runs.
    Texts(&'t RepeatedTexts),
}

/// Writer of a file in memory.
pub(crate) struct RowGroups {
    file: SerializedFileWriter<Vec<u8>>,
    columns: ArrowRowGroupWriterFactory,
}

impl RowGroups {
    pub(crate) fn new() -> Result<Self> {
        let options = ArrowWriterOptions::new().with_properties(properties()).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), arrow(), options);
        let (file, columns) =
            writer.and_then(ArrowWriter::into_serialized_writer).map_err(|error| internal(&error))?;
        Ok(RowGroups { file, columns })
    }

    /// Writes records as row groups. `columns` are those of the schema, in its order.
    pub(crate) fn write(&mut self, columns: &[StoredColumn<'_>], records: usize) -> Result<()> {
        let mut start = 0;
        while start < records {
            // A rest of a few records would be a row group of its own.
            let end = records.min(start + 2 * ROW_GROUP_ROWS);
            self.write_group(columns, start..end)?;
            start = end;
        }
        Ok(())
    }

    fn write_group(&mut self, columns: &[StoredColumn<'_>], records: Range<usize>) -> Result<()> {
        let failed = |error: ParquetError| internal(&error);
        let schema = arrow();
        let writers =
            self.columns.create_column_writers(self.file.flushed_row_groups().len()).map_err(failed)?;
        let properties = Arc::clone(self.file.properties());
        let descriptions = self.file.schema_descr().columns().to_vec();
        let mut group = self.file.next_row_group().map_err(failed)?;
        for (at, (column, mut writer)) in columns.iter().zip(writers).enumerate() {
            match column {
                StoredColumn::Values(values) => {
                    let values = values.slice(records.start, records.len());
                    for leaf in compute_leaves(schema.field(at), &values).map_err(failed)? {
                        writer.write(&leaf).map_err(failed)?;
                    }
                    let chunk = writer.close().map_err(failed)?;
                    chunk.append_to_row_group(&mut group).map_err(failed)?;
                }
                StoredColumn::Texts(texts) => {
                    let chunk = texts.chunk(&descriptions[at], &properties, records.clone())?;
                    group.append_column(&chunk.bytes, chunk.close).map_err(failed)?;
                }
            }
        }
        group.close().map_err(failed)?;
        Ok(())
    }

    /// Adds a pair to the file's metadata.
    pub(crate) fn note(&mut self, key: &str, value: String) {
        self.file.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }

    /// Returns the number of bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.file.bytes_written()
    }

    /// Returns the bytes so far. Indexes and the footer follow.
    pub(crate) fn bytes(&mut self) -> Result<&[u8]> {
        self.file.flush().map_err(|error| internal(&error))?;
        Ok(self.file.inner())
    }

    /// Ends the file.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        self.file.into_inner().map_err(|error| internal(&error))
    }
}
