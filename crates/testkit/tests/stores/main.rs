//! Tests of the stores against the contract: clause by clause, against the reference at random,
//! with many clients at once and with lost answers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a panic is how a test says what it found"
)]

mod embedded_conformance;
mod embedded_history;
mod embedded_random;
mod history_checker;
mod memory_conformance;
mod memory_history;
mod memory_random;
mod takeover;
