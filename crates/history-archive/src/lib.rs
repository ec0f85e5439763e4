//! The archive of the history: old days as Parquet files beside a Delta log, in a directory or a bucket.
//!
//! ```text
//! PLACE/_delta_log/00000000000000000000.json …          which files count
//! PLACE/group=NAME/day=YYYY-MM-DD/part-….parquet        rows of a group and a UTC day
//! ```
//! Any program that reads Delta tables or Parquet reads it without exacat. The history reads it back
//! through `exacat_history::Archive`: every row with all its fields, types and bits.
//!
//! - [`place`] has the objects of a directory or bucket.
//! - [`schema`] has the columns; [`records`] makes records of rows, and [`other_fields`] the text of fields
//!   that have no column.
//! - [`writer`] writes files, and reads each back; [`reader`] reads them.
//! - [`delta`] is the log of the files that count, and [`archive`] puts all together.
#![forbid(unsafe_code)]

mod archive;
mod delta;
mod other_fields;
mod place;
mod reader;
mod records;
mod schema;
mod sum;
mod writer;

pub use archive::{KEEP_REMOVED, ParquetArchive};
pub use place::Place;

#[cfg(test)]
mod tests;
