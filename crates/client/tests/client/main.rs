//! Tests of the client against a fake server that each test controls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod calls;
mod connections;
mod fake;
mod flow;
mod streams;
