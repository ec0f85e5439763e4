//! The catalogue from outside, over the memory store: every rule, its permissions, and the state
//! after lost answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod accounting;
mod checking;
mod describing;
mod directories;
mod finding;
mod fixture;
mod judging;
mod looking_up;
mod lost_answers;
mod moving;
mod operations;
mod permission_matrix;
mod purging;
mod registering;
mod registering_together;
mod repeats;
mod storing;
mod telling;
mod trash_parts;
mod uploading;
mod working;
