//! The change feed: named, durable cursors that deliver the changes of the catalogue to sinks.
//!
//! - [`Feeds`] keeps the feeds of a server: one small file and one task each.
//! - `runner` reads the history, and moves a cursor after its sink has everything before.
//! - `maker` makes the events: `tree` follows the paths of directories from change to change, `scope`
//!   judges what a change means for the feed's directory, `event` writes it as a line of JSON.
//! - `walk` copies entries that come into sight.
//! - `sink` has directories of segments, webhooks, and topics of Kafka (with the feature `kafka`).
#![forbid(unsafe_code)]

mod batch;
mod cursor;
mod event;
mod feeds;
mod json;
pub mod limits;
mod maker;
mod names;
mod parted;
mod places;
mod replaced;
mod runner;
mod scope;
mod sink;
mod state;
mod tree;
mod walk;

pub use feeds::{Feeds, FeedsSettings};
pub use runner::Now;
pub use scope::Kinds;
pub use sink::TlsSource;
