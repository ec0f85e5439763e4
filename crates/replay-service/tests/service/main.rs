//! The service over real sockets and a real directory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test reports")]

mod damage;
mod loops;
mod rig;
mod runs;
