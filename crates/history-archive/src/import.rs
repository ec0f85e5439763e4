//! Rows of a Parquet file, for an import: a file of the archive, or one of another program.
//!
//! A file of the archive gives its rows back as they were. A file of another program has a column `name` or
//! `element` with texts, a column `time` or `timestamp` (or `time_ns` with whole nanoseconds), and a column
//! for each field. [`foreign`](crate::foreign) has the types that are kept.

use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use bytes::Bytes;
use exacat_columnar::guarded;
use exacat_model::limits::HISTORY_FIELDS_MAX;
use exacat_model::{Error, ErrorKind, Result};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use parquet::schema::types::SchemaDescriptor;

use crate::archived_rows::ArchivedRows;
use crate::foreign::ForeignRows;
use crate::gathered::{Gathered, ImportedRows};
use crate::schema;

/// Columns of a file: as many fields as a row may have, and those of elements and times.
pub const IMPORT_COLUMNS_MAX: usize = HISTORY_FIELDS_MAX + 3;
/// Rows that are decoded together.
const BATCH_ROWS: usize = 1024;

/// Meaning of the columns.
enum Form {
    Archived(ArchivedRows),
    Foreign(ForeignRows),
}

/// Rows of a Parquet file, in the parts that one request takes. Memory is bounded by a page of each column
/// and by the rows of one request.
pub struct ParquetRows {
    /// The file, for errors.
    name: String,
    form: Form,
    reader: ParquetRecordBatchReader,
    batch: Option<RecordBatch>,
    /// Next row of the batch.
    at: usize,
    /// Rows before it in the file, plus one.
    number: u64,
    is_done: bool,
}

/// Checks that a file has columns only that hold one value in each row, and not too many.
fn check_columns(name: &str, schema: &SchemaDescriptor) -> Result<()> {
    let columns = schema.root_schema().get_fields();
    if let Some(nested) = columns.iter().find(|column| !column.is_primitive()) {
        let column = nested.name();
        let what = "is a list, map or structure: leave it out, or make a column of each of its values";
        return Err(Error::invalid(format!("{name}: the column {column:?} {what}")));
    }
    if columns.len() > IMPORT_COLUMNS_MAX {
        let error = Error::limit("the number of columns", columns.len(), IMPORT_COLUMNS_MAX);
        return Err(Error::new(error.kind, format!("{name}: {}", error.message)));
    }
    let mut names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::invalid(format!(
            "{name}: two columns have the name {:?}: rename one of them",
            pair[0]
        ))),
        None => Ok(()),
    }
}

impl ParquetRows {
    /// Opens a file. `measurement` is that of elements whose name is no key.
    pub fn open(path: &Path, measurement: &str) -> Result<Self> {
        let name = path.display().to_string();
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Invalid, format!("{name}: cannot read it: {error}"))
        };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(Error::invalid(format!("{name}: it is a directory: name the files in it")));
        }
        Self::of(name, file, measurement)
    }

    /// Opens a file of the archive that is in memory. Also returns the record up to which it is complete.
    pub(crate) fn of_archive(name: String, bytes: Bytes) -> Result<(Self, Option<u64>)> {
        let rows = Self::of(name, bytes.clone(), "")?;
        match &rows.form {
            Form::Archived(form) => {
                if form.digests.as_ref().is_some_and(|digests| digests.damaged_block(&bytes).is_some()) {
                    let what = "the file is not as it was written: copy it back from elsewhere";
                    return Err(Error::new(ErrorKind::Corrupt, format!("{}: {what}", rows.name)));
                }
                let complete = form.complete;
                Ok((rows, complete))
            }
            Form::Foreign(_) => {
                let what = "it is no file of an archive of exacat: copy the file back from elsewhere";
                Err(Error::invalid(format!("{}: {what}", rows.name)))
            }
        }
    }

    fn of(name: String, file: impl ChunkReader + 'static, measurement: &str) -> Result<Self> {
        // Types are those of Parquet alone: a program's own additions change none of them.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let plain = guarded(&name, || ArrowReaderMetadata::load(&file, options))?;
        check_columns(&name, plain.parquet_schema())?;
        let pairs = plain.metadata().file_metadata().key_value_metadata();
        let is_archived =
            pairs.is_some_and(|pairs| pairs.iter().any(|pair| pair.key == schema::METADATA_VERSION));
        let (form, metadata) = match is_archived {
            true => {
                let form = ArchivedRows::of(&name, plain.metadata().file_metadata())?;
                let options = ArrowReaderOptions::new().with_schema(schema::arrow());
                let typed = guarded(&name, || ArrowReaderMetadata::load(&file, options))?;
                (Form::Archived(form), typed)
            }
            false => (Form::Foreign(ForeignRows::of(&name, &plain, measurement)?), plain),
        };
        let reader = guarded(&name, || {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
            builder.with_batch_size(BATCH_ROWS).build()
        })?;
        Ok(ParquetRows { name, form, reader, batch: None, at: 0, number: 1, is_done: false })
    }

    /// Returns the next rows; none at the end.
    fn next_rows(&mut self) -> Result<Option<ImportedRows>> {
        let mut rows = Gathered::default();
        while !self.is_done && !rows.is_full() {
            let Some(batch) = &self.batch else {
                let reader = &mut self.reader;
                let next = guarded(&self.name, || reader.next().transpose().map_err(ParquetError::from))?;
                self.is_done = next.is_none();
                (self.batch, self.at) = (next, 0);
                continue;
            };
            let read = match &mut self.form {
                Form::Archived(form) => form.add(batch, self.at, self.number, &mut rows),
                Form::Foreign(form) => form.add(batch, self.at, self.number, &mut rows),
            };
            let read =
                read.map_err(|error| Error::new(error.kind, format!("{}: {}", self.name, error.message)))?;
            self.at += read;
            self.number += read as u64;
            if self.at == batch.num_rows() {
                self.batch = None;
            }
        }
        Ok(rows.take())
    }
}

impl Iterator for ParquetRows {
    type Item = Result<ImportedRows>;

    /// Returns the next rows. Nothing follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_rows().transpose();
        self.is_done |= matches!(next, None | Some(Err(_)));
        next
    }
}
