//! Import, verify, export and generate, against a real catalogue without a network.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod comparing;
mod digesting;
mod exporting;
mod generating;
mod importing;
mod in_bulk;
mod real_listings;
mod resuming;
mod support;
