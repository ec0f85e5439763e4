//! Listings in, catalogue out and back: import, verification, export, and a generated sample.
//!
//! * [`Listing`](listing::Listing) understands a user's file: compression, format, columns, what each row asks
//!   for, or why it is rejected.
//! * [`import`](import::import) sends it, many batches in flight, and goes on after an interruption.
//! * [`verify`](verify::verify) proves that each row is in the catalogue as given.
//! * [`export`](export::export) writes everything below a path so that it can be imported again.
//! * [`digest`](digest::digest) proves that two catalogues have the same, or names what differs.
//! * [`generate`](generate::generate) makes a sample catalogue out of a seed.
//!
//! This crate knows no server and no network: it asks a [`Catalogue`], which the client is.

mod batches;
pub mod catalogue;
mod cells;
pub mod columns;
pub mod digest;
pub mod error;
pub mod escape;
pub mod export;
pub mod generate;
pub mod import;
pub mod input;
pub mod json_tags;
pub mod limits;
pub mod listing;
mod others;
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

pub use catalogue::Catalogue;
pub use error::Error;
pub use import::{ImportOptions, ImportReport, import};
pub use listing::{Listing, ListingOptions};
pub use preset::{PRESETS, Preset};
pub use progress::Progress;
pub use verify::{VerifyReport, verify};
