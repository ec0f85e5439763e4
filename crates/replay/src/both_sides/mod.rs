//! Figures of the other side of the accesses: of caches and of origins, beside those of the clients.
//!
//! - [`Intake`](intake::Intake) takes the datagrams of servers and caches, and returns [`events`]. It counts
//!   what was lost.
//! - [`CacheAccount`](figures::CacheAccount) adds the records of one cache up.
//! - [`TrafficAccount`](traffic::TrafficAccount) adds the growth of a server's counters up.
//! - [`CinfoSums`](cinfo::CinfoSums) adds up what the disk of a cache has.
//! - [`origin`] has the counters of an origin.

pub mod cinfo;
pub mod events;
pub mod figures;
mod generations;
pub mod intake;
pub mod origin;
mod sequence;
mod servers;
pub mod traffic;
