//! Replay of accesses: traces of them, and what a cache must reach with each.
//!
//! - [`Trace`](trace::Trace) has accesses in the order of time; [`store`](trace::store) reads and writes
//!   it.
//! - [`import`](import::import) makes one of records of others: Rucio traces, tables, records of caches
//!   and servers of XRootD.
//! - [`generate`](generate::generate) makes one by the statistics of real ones, from a seed.
//! - [`Distances`](distance::Distances) tell beforehand which hit rate a cache of any size must reach.
//! - [`Summary`](summary::Summary) describes a trace in numbers, and [`draw`](picture::draw) draws it.
//! - [`run`] has the accesses of a trace as items of a run, and their results.
//! - [`both_sides`] has the figures of caches and origins, from their records.
//! - [`report`] has the figures of a run: at clients, caches and origins, side by side.
//! - [`Content`](content::Content) has the bytes of files that exist by name and size only.
//!
//! Nothing here opens a socket or asks a clock.
#![forbid(unsafe_code)]

pub mod both_sides;
pub(crate) mod chart;
pub mod content;
pub mod distance;
pub mod generate;
pub mod import;
pub mod limits;
pub mod picture;
pub mod report;
pub mod run;
pub mod summary;
pub mod trace;
pub(crate) mod units;
