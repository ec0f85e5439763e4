//! The replay on a machine: its sockets, threads and files. The rules of a run are those of `exacat-replay`.
//!
//! - [`agent`] makes the accesses: it asks a service for items, reads through a cache, reports results.
//! - [`origin`] serves files that exist by name and size only, with delays and errors on order.
//! - [`origin_control`] has its counters, and lets it go away, over HTTP.
//! - [`service`] hands out the accesses of runs, takes results, and reports.
//! - [`collector`] receives the records of caches: g-stream, summary, f-stream, `.cinfo`.
#![forbid(unsafe_code)]

pub mod agent;
pub mod collector;
pub mod limits;
pub mod origin;
pub mod origin_control;
pub mod service;
