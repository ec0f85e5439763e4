//! The client against a server that does what each test says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod calls;
mod connections;
mod fake;
mod flow;
mod streams;
