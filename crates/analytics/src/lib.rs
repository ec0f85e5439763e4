//! The catalogue as tables for other programs: Parquet files that DuckDB, pandas and Spark read.
//!
//! - [`Table`] lists the tables; [`columns`](Table::columns) has their columns.
//! - [`export`] reads everything below a directory once and writes the tables, in bounded memory.
//!   [`rows_of_entries`] makes the rows of entries, [`usage`] sums what is below each directory, and
//!   [`rows_of_changes`] makes the rows of the history.
//! - [`proof`] has the keys of a file's metadata: catalogue, revision, digest of the state, digest of the
//!   rows.
//! - [`check`] reads an export back, and computes both digests again from the rows.
//!
//! The digest of the state is the one that `exacat digest` prints, so an export can be compared with any
//! catalogue, without its source.
#![forbid(unsafe_code)]

mod check;
mod export;
mod limits;
mod proof;
mod read_rows;
mod rows_of_changes;
mod rows_of_entries;
mod table;
mod usage;

pub use check::{Checked, check};
pub use exacat_columnar::Written;
pub use export::{TablesOptions, TablesReport, export};
pub use table::Table;
