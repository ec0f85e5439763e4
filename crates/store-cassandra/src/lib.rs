//! The catalogue on a Cassandra or ScyllaDB cluster: any number of servers, none of them special.
//!
//! **The log is the truth; everything else follows it.** The log is a table of the cluster. A server decides mutations by the rules of the
//! contract ([`exacat_store::rules`]) on rows that it knows exactly or fetches, and puts what was decided into the log with one conditional
//! write, which holds only if nobody else put something there meanwhile: that is the commit, of many mutations at once. What the
//! changes made of rows is written to the tables afterwards, many groups together, by that server or by any other; each such write says of which
//! moment of the log it is, so that it can be repeated and come late. The log says up to where the tables have everything; so a reader
//! who knows what came after that, and reads the tables, knows everything.
//!
//! ```text
//!   store ─► intake ─► engine ─► peers: another server that decides for all, if there is one
//!                        │
//!              ┌─────────┴► deciding ─► rules, over working (rows known, rows needed) ─► derive
//!              │  │
//!              │  └──► log: append if the head is what it was ──► settler ─► settle: the tables
//!              └──► known ◄── log: what others appended; slices and tables: what was fetched
//! ```
//! docs/internals/cassandra.md has the tables, the protocol and what a crash leaves.
#![forbid(unsafe_code)]

mod access;
mod audit;
mod cluster;
mod deciding;
mod derive;
mod engine;
mod fetching;
mod figures;
mod filter;
mod freshness;
mod intake;
mod known;
mod layout;
mod limits;
mod log;
mod nodes;
mod peers;
mod preparing;
mod reading;
mod reads;
mod retention;
mod routing;
mod rows;
mod schema;
mod settings;
mod settle;
mod settler;
mod slices;
mod store;
mod tables;
mod takeover;
mod turns;
mod working;

pub use access::ClusterAccess;
pub use cluster::{Fate, Faults, StatementKind};
pub use schema::{SchemaStatus, check_schema, clear_schema, create_schema, drop_schema, upgrade_schema};
pub use settings::{CassandraSettings, PeersAt};
pub use store::CassandraStore;
pub use takeover::TakeOver;

#[cfg(test)]
mod tests;
