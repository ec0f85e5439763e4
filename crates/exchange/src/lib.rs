//! Import, verification and export of listings, and a generated sample.
//!
//! - [`Listing`] parses a user's file: compression, format, columns, and for each
//!   row its request or the reason for its rejection.
//! - [`import`](import::import) sends it, many batches in flight, and resumes after an
//!   interruption.
//! - [`import_in_bulk`] does the same to a catalogue opened in this
//!   process, and faster.
//! - [`verify`](verify::verify) proves that each row is in the catalogue as given.
//! - [`export`](export::export) writes everything below a path so that it can be imported again.
//! - [`digest`](digest::digest) proves that two catalogues hold the same, or names the differences.
//! - [`walk`](walk::walk) passes everything below a path to another form of export, once.
//! - [`compare`](compare::compare) finds dark and lost data by a storage dump.
//! - [`copy`](copy::copy) copies a whole catalogue, with its history, into another store.
//! - [`generate`](generate::generate) makes a sample catalogue from a seed.
//!
//! This crate has no server and no network. It calls a [`Catalogue`]: the client, or one opened in
//! this process ([`Local`](local::Local)).

mod batches;
pub mod bulk;
pub mod catalogue;
mod cells;
pub mod columns;
pub mod compare;
pub mod copy;
pub mod counts;
mod days;
pub mod digest;
pub mod error;
pub mod escape;
pub mod export;
pub mod generate;
pub mod history_diff;
pub mod import;
pub mod input;
pub mod item;
pub mod json_tags;
pub mod limits;
pub mod listing;
pub mod local;
mod memo;
pub mod options;
mod others;
pub mod output;
pub mod output_directory;
mod placing;
pub mod preset;
pub mod progress;
pub mod records;
pub mod reject;
mod restore;
pub mod resume;
pub mod row;
pub mod se_rules;
mod seen;
mod sending;
pub mod tree;
pub mod verify;
pub mod walk;

pub use bulk::Bulk;
pub use catalogue::Catalogue;
pub use error::Error;
pub use import::{ImportOptions, ImportReport, import, import_in_bulk};
pub use listing::Listing;
pub use options::ListingOptions;
pub use preset::{PRESETS, Preset};
pub use progress::Progress;
pub use verify::{VerifyReport, verify};
