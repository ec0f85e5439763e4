//! Agent against servers and a service that do as the test says: every end of an access, and every fault of
//! the service.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod failures;
mod limits;
mod origin;
mod program;
mod reads;
mod reporting;
mod security;
mod server;
mod service;
mod trust;
mod ways;
mod web;
mod world;
