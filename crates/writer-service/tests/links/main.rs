//! Services find each other and keep links: over multicast on the loopback interface, and with seeds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads the clock"
)]

mod discovery;
mod links;
mod node;
mod trust;
