//! Tables as Parquet files: written in bounded memory, proven by a digest of their rows, and read back
//! without a panic on damaged bytes.
//!
//! - [`ColumnSpec`] describes a column. There are five kinds, and all of them are read by DuckDB, pandas and
//!   Spark: no type without a sign, and times in microseconds UTC.
//! - [`TableWriter`] takes a row value by value and writes a file by row groups.
//! - [`RowsDigest`] is the digest of all values of a file, whatever batches they come in.
//! - [`TextRuns`] is a column of repeated texts, such as names.
//! - [`TableReader`] gives the rows back; [`guarded`] makes a panic of the library on damaged bytes an error.
//!
//! Nothing here knows what the rows mean.
#![forbid(unsafe_code)]

mod column;
mod guarded;
mod limits;
mod reader;
mod rows_digest;
mod text_runs;
mod writer;

#[cfg(test)]
mod tests;

pub use column::{ColumnKind, ColumnSpec, LARGE_MAX};
pub use guarded::guarded;
pub use reader::{TableReader, TableRows};
pub use rows_digest::RowsDigest;
pub use text_runs::{Chunk, TextRuns};
pub use writer::{TableWriter, Written};

/// A batch of rows as the library has it.
pub use arrow_array::RecordBatch;
/// An error of the library.
pub use parquet::errors::ParquetError;
