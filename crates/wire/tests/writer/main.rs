//! Tests of the codec of the writer protocol: golden bytes, limits at their edges, bytes in pieces,
//! and the page that describes it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod announcement;
mod document;
mod edges;
mod golden;
mod pieces;
mod samples;
