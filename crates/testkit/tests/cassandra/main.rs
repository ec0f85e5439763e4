//! Tests of the store on a Cassandra ring against the contract: clause by clause, and against the
//! reference at random. Also with many clients, with lost answers, and with several servers at
//! once. `make test-cluster` starts a ring for them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a panic is how a test says what it found"
)]

mod audits;
mod branches;
mod conformance;
mod consistency;
mod counts;
mod faults;
mod growth;
mod histories;
mod losses;
mod peers;
mod random;
mod retention;
mod secure;
mod servers;
mod takeover;
mod upgrades;
