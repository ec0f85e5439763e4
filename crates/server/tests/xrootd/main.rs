//! The XRootD face from outside: answers, redirections, admission, limits at their edges, and
//! hostile clients.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[allow(dead_code, reason = "shared with the tests of the native protocol")]
#[path = "../native/client.rs"]
mod client;
mod conversation;
#[allow(dead_code, reason = "shared with the tests of the protocol of JAliEn")]
mod element;
mod hostile;
mod identity;
mod opening;
mod outcomes;
mod records;
mod root;
#[allow(dead_code, reason = "shared with the tests of the native protocol")]
#[path = "../native/world.rs"]
mod world;
mod writing;
