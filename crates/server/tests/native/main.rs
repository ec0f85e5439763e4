//! The server from outside: its native protocol, frame by frame, its limits at their edges, its
//! metrics, and its life from start to stop.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod access;
mod activity;
mod admission;
mod client;
mod clock_jump;
mod control;
mod handshake;
mod large;
mod life;
mod log_failure;
mod metrics;
mod past;
mod repeats;
mod requests;
mod states;
mod streams;
mod world;
