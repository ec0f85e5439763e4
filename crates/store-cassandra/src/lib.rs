//! Catalogue on a Cassandra or ScyllaDB cluster: any number of servers, none of them special.
//!
//! **The log is the truth; everything else follows it.** The log is a table of the cluster. A
//! server decides mutations by the rules of the contract ([`exacat_store::rules`]), on rows that it
//! has cached or fetches. It appends the decided changes to the log with one conditional write. The
//! write holds only if no other server appended meanwhile: that is the commit, of many mutations at
//! once.
//!
//! A server writes the row after-images to the tables later, many commit groups together. Any
//! server can do it. Each such write carries its position in the log, so it can be repeated and can
//! be late. The log records up to where the tables are complete. A reader with the groups after
//! that position and the tables therefore has the whole state.
//!
//! ```text
//!   store ─► intake ─► appender ─► peers: another server that decides for all, if there is one
//!     │                   ├─► deciding ─► rules, over working (cached rows, needed rows) ─► derive
//!     │                   ├─► log: append if the head is unchanged
//!     │                   └─► flusher ─► maintenance ─► flush: the tables
//!     └─► reader: answers on the row cache, fetches missing rows
//!           └─► follower: row cache ◄── log: groups of all servers
//! ```
//! docs/internals/cassandra.md has the tables, the protocol and the state after a crash.
#![forbid(unsafe_code)]

mod access;
mod appender;
mod audit;
mod backoff;
mod cluster;
mod deciding;
mod derive;
mod fetching;
mod filter;
mod flush;
mod flusher;
mod follower;
mod freshness;
mod intake;
mod layout;
mod limits;
mod log;
mod maintenance;
mod metric_table;
mod metrics;
mod nodes;
mod opening;
mod peers;
mod preparing;
mod reader;
mod reading;
mod reads;
mod retention;
mod retry;
mod routing;
mod row_cache;
mod rows;
mod schema;
mod server_states;
mod settings;
mod slice;
mod slices;
mod spent;
mod statement;
mod store;
mod tables;
mod takeover;
mod working;

pub use access::ClusterAccess;
pub use cluster::{Fate, Faults, StatementKind};
pub use metric_table::METRICS;
pub use schema::{SchemaStatus, check_schema, clear_schema, create_schema, drop_schema, upgrade_schema};
pub use settings::{CassandraSettings, PeersAt};
pub use store::CassandraStore;
pub use takeover::TakeOver;

#[cfg(test)]
mod tests;
