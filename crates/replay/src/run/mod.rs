//! A run: the accesses of a trace as items, handed out to agents, with one final result each.
//!
//! - [`settings`] has the speed and order of a run.
//! - [`queue`] hands out items under leases, and judges results.
//! - [`entry`] has the entries of the journal, from which a run is resumed.
//! - [`live`] is a run that goes on: all of these together.
//! - [`time`] is the clock of a run.
//! - [`shapes`] and [`outcome`] are the JSON between the service and agents.

pub mod entry;
pub mod live;
pub mod outcome;
pub mod queue;
pub mod settings;
pub mod shapes;
pub mod time;
