//! The origin, as clients and caches see it over a socket.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod client;
mod faults;
mod hostile;
mod reading;
