//! Tests of the command line for people, at a real server process: help, advice, tables, options,
//! completions, listings, output files, and JSON for scripts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

#[path = "../service/mod.rs"]
mod service;

mod advice;
mod completion;
mod examples;
mod issuers;
mod listings;
mod native_guide;
mod operating_guide;
mod outputs;
mod reference;
mod rest_guide;
mod scripting;
mod tables;
mod tour;
