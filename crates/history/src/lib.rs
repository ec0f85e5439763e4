//! The history of elements: values by name and time, written at hundreds of thousands a second, kept
//! for decades.
//!
//! ```text
//!  lines ─► ingest: names to numbers ─► batch ─► committer: log, one sync ─► memory ─► answer
//!                                                                             │
//!                          full ─► flush: runs, one for each day ─► merged runs ─► …
//! ```
//! An *element* is a series of rows: a measurement with tags. A *row* has a time and the values of some
//! *fields*; the set of fields is its *shape*. All of these have numbers inside their *group*, given at
//! first sight. A later row of the same element and time wins, field by field.
//!
//! Read on in the order of the data:
//!
//! - [`names`] numbers names, [`ingest`] looks them up, and [`batch`] has the encoded rows.
//! - [`committer`] makes batches durable, in the log of `exacat_log`; [`item`] is what its records have.
//! - [`memtable`] and [`latest`] have the newest rows in memory.
//! - [`flush`] writes them to [`run`]s; [`manifest`] names the files that count.
//! - [`compaction`] merges runs of a day; [`retention`] removes whole days.
//! - [`archiving`] moves old days to an [`archive`]. The history must own it: [`owned_archive`] checks that,
//!   and [`adoption`] makes a restored history the owner.
//! - [`reading`] merges memory and runs for readers; [`aggregate`] sums up, and [`instant`] looks back.
//! - [`naming`] has the conventions of writers; [`pages`] answers requests in pages.
//! - [`snapshot`] links the files of a moment, and [`restore`] makes a history from them; [`check`] reads
//!   everything, and [`repair`] replaces damaged files.
//! - [`engine`] is the open history, and [`open`] opens it. [`decode`] reads stored bytes without one.
#![forbid(unsafe_code)]

mod adoption;
pub mod aggregate;
mod archive;
mod archive_state;
mod archived_days;
mod archiving;
mod batch;
mod by_days;
mod check;
mod checked_file;
pub mod columns;
mod committer;
mod compaction;
pub mod decode;
pub mod distinct_texts;
mod engine;
mod flush;
mod group;
mod ingest;
mod instant;
mod item;
mod latest;
mod limits;
mod log_walk;
mod manifest;
mod memtable;
pub mod merge;
mod names;
pub mod naming;
mod open;
mod owned_archive;
mod pages;
mod pieces;
mod reading;
mod repair;
mod restore;
mod retention;
pub mod row;
pub mod run;
mod run_list;
mod snapshot;
pub mod sorted;

#[cfg(test)]
mod test_rows;

pub use adoption::{Adopted, MergedDay};
pub use archive::{
    Archive, ArchiveMetrics, ArchiveOwner, ArchiveSettings, ArchivedFile, NamedGroup, VisibleFile,
};
pub use batch::Batch;
pub use check::{Checked, check};
pub use committer::CommitMetrics;
pub use engine::{History, HistoryFigures, HistorySettings};
pub use exacat_log::moment::Moment;
pub use group::Group;
pub use ingest::{Ingest, Refused};
pub use instant::AtInstant;
pub use latest::LatestValue;
pub use limits::*;
pub use names::{NamedField, Names};
pub use pages::Page;
pub use reading::ValueAt;
pub use repair::{Repaired, repair};
pub use restore::{Restore, Until, restore, restore_on};
pub use snapshot::Pinned;

#[cfg(test)]
mod tests;
