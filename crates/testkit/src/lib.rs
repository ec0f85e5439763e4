//! Dev only: what proves a store, and what the tests of other crates are built with.
//!
//! A ladder, each rung on the one below: [`conformance`] asks for each clause of the contract by itself;
//! [`random`] runs seeded sequences of operations on the reference and on the store under test and compares all
//! answers and, as a [`dump`], all state; [`faults`] loses answers and asks again; [`history`] runs clients at
//! once and judges whether one order explains what they saw; [`winners`] lets many want one name.
//!
//! A store is put under test by a [`StoreFactory`]. What the tests of other crates take: [`TestClock`], a store with
//! something before it ([`fronted`]), and [`settings`] to begin with.
//!
//! How long the tests are is set by the environment variable `EXACAT_TEST_ROUNDS`: see [`rounds`].

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
pub mod random;
pub mod scene;
pub mod settings;
pub mod winners;

pub use clock::TestClock;
pub use dump::Dump;
pub use factory::{EmbeddedFactory, End, MemoryFactory, StoreFactory, UnderTest};
pub use fronted::{Before, Fronted};
pub use scene::Scene;

/// How many times the usual length a test shall have: the number in `EXACAT_TEST_ROUNDS`, or 1.
pub fn rounds() -> u64 {
    std::env::var("EXACAT_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
