//! JSON of the HTTP API and of `exacat --json`: the same objects in both. Scripts may rely on the
//! names of the fields.
//!
//! An unknown field, or one that does not apply, is left out. Sizes, counts and revisions are
//! numbers (sums of bytes may exceed 64 bits), times RFC 3339 in UTC, modes octal text, GUIDs and
//! checksums (`algorithm:hex`) text. New fields may come; present ones stay.

mod activity;
pub mod element_requests;
mod elements;
mod entries;
mod feeds;
mod history;
mod items;
mod registry;
pub mod requests;
pub mod search;
mod ses;
pub mod texts;
mod writer;

pub use activity::*;
pub use elements::*;
pub use entries::*;
pub use feeds::*;
pub use history::*;
pub use items::*;
pub use registry::*;
pub use ses::SeNames;
pub use writer::write;
