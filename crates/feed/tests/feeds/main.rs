//! Feeds over real stores: mirrors made of what sinks got, with faults in the middle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod directory;
mod hook;
mod mirror;
mod mirrors;
mod webhooks;
mod world;
