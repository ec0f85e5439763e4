//! Feeds over real stores: mirrors made of what sinks got, with faults in the middle.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and shows the events of a wrong entry"
)]

#[cfg(feature = "kafka")]
mod broker;
mod directory;
mod hook;
#[cfg(feature = "kafka")]
mod kafka;
mod mirror;
mod mirrors;
mod restores;
mod webhooks;
mod world;
