//! The archive of the history: old days as Parquet files beside a Delta log, in a directory or a bucket.
//!
//! ```text
//! PLACE/_exacat_owner                                   the history that writes here
//! PLACE/_delta_log/00000000000000000000.json …          which files count
//! PLACE/group=NAME/day=YYYY-MM-DD/part-….parquet        rows of a group and a UTC day
//! ```
//! Any program that reads Delta tables or Parquet reads it without exacat. The history reads it back
//! through `exacat_history::Archive`: every row with all its fields, types and bits.
//!
//! - [`place`] has the objects of a directory or bucket, and [`blocks`] the bytes of one.
//! - [`schema`] has the columns; [`records`] makes records of rows, by [`stretches`] of rows with the same
//!   fields, and [`other_fields`] the text of fields that have no column.
//! - [`writer`] writes files, and reads each back. A file is of [`row_groups`], with names by
//!   [`repeated_texts`]; [`reader`] reads them by [`record_columns`].
//! - [`owner`] has the object that names the owner.
//! - [`delta`] is the log of the files that count, with its state in a [`checkpoint`] now and then;
//!   [`archive`] puts all together.
//!
//! Two more uses of Arrow and Parquet are here: [`arrow_stream`] is the stream of rows that a server answers,
//! and [`import`] reads the rows of a Parquet file, an [archived](archived_rows) or [foreign] one.
#![forbid(unsafe_code)]

mod archive;
mod archived_rows;
mod arrow_stream;
mod block_digests;
mod blocks;
mod checkpoint;
mod delta;
mod foreign;
mod gathered;
mod import;
mod other_fields;
mod owner;
mod place;
mod reader;
mod record_columns;
mod records;
mod repeated_texts;
mod row_groups;
mod schema;
mod stretches;
mod sum;
mod writer;

pub use archive::ParquetArchive;
pub use arrow_stream::{ARROW_STREAM_TYPE, ArrowStream};
pub use delta::KEEP_REMOVED;
pub use foreign::key_of_element;
pub use gathered::{Gathered, IMPORT_BYTES, IMPORT_ROWS, ImportedRows};
pub use import::{IMPORT_COLUMNS_MAX, ParquetRows};
pub use place::Place;
pub use writer::day_text;

#[cfg(test)]
pub(crate) mod tests;
