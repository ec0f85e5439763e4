//! The collector over real sockets, and its walk over the disk of a cache.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod disk;
mod sockets;
