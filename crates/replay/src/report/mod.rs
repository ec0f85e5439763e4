//! Report of a run: what clients, caches and origins saw, side by side.
//!
//! - [`Tally`](tally::Tally) adds up results, one by one, in bounded memory.
//! - [`Recent`](recent::Recent) has the last hour, and
//!   [`StopConditions`](conditions::StopConditions) judge it.
//! - [`Report`](shapes::Report) is the JSON of a tally and of the [`views`] of others.
//! - [`text`], [`html`] and [`compare`] show reports.
//!
//! Nothing here asks a clock: the caller says the time.

pub mod build;
pub mod compare;
pub mod conditions;
pub mod differences;
pub mod hits;
pub mod html;
pub mod recent;
pub mod series;
pub mod shapes;
pub mod tally;
pub mod text;
pub mod times;
pub mod views;

pub(crate) mod bounded;
pub(crate) mod charts;
pub(crate) mod coarse;
pub(crate) mod first_byte;
pub(crate) mod merge;
pub(crate) mod rates;
pub(crate) mod sections;
pub(crate) mod table;
