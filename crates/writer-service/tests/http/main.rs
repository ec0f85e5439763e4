//! A service in this process, asked over HTTP: its state, its files, and hostile requests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test reports")]

mod content;
mod hostile;
mod producers;
mod rig;
mod services;
mod stage_out;
mod state;
