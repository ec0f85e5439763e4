//! Development only: tests that prove a store, and tools for the tests of other crates.
//!
//! A ladder, each rung on the one below:
//!
//! - [`conformance`] tests each clause of the contract by itself;
//! - [`random`] runs seeded sequences of operations on the reference and on the store under test.
//!   It compares all answers and, as a [`dump`], all state;
//! - [`faults`] loses answers and repeats requests;
//! - [`history`] runs clients at once and judges whether one order explains their answers;
//! - [`winners`] lets many want one name.
//!
//! [`memory`] is the slow and obvious reference, the oracle of these tests.
//!
//! A [`StoreFactory`] puts a store under test. The tests of other crates use [`TestClock`], a store
//! with a front ([`fronted`]), a [`simulated`] disk, and [`settings`]. [`waiting`] polls conditions.
//!
//! The environment variable `EXACAT_TEST_ROUNDS` sets the length of the tests: see [`rounds`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this crate is tests: a panic is how a test says what it found"
)]

pub mod cassandra;
pub mod clock;
pub mod conformance;
pub mod dump;
pub mod factory;
pub mod faults;
pub mod fronted;
pub mod history;
pub mod memory;
pub mod random;
pub mod scene;
pub mod settings;
pub mod simulated;
pub mod waiting;
pub mod winners;

pub use clock::TestClock;
pub use dump::Dump;
pub use factory::{EmbeddedFactory, MemoryFactory, StoreEnd, StoreFactory, UnderTest};
pub use fronted::{Before, Fronted};
pub use scene::Scene;

/// Returns the multiple of the usual length of a test: the number in `EXACAT_TEST_ROUNDS`, or 1.
pub fn rounds() -> u64 {
    std::env::var("EXACAT_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
