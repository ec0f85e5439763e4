//! The JAliEn face from outside: a websocket over TLS with certificates, as `alien.py` uses it.
//! Tests its commands, its limits at their edges, and hostile clients.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod alien;
#[allow(dead_code, reason = "shared with the tests of the native protocol")]
#[path = "../native/client.rs"]
mod client;
mod content;
mod conversation;
#[allow(dead_code, reason = "shared with the tests of the protocol of XRootD")]
#[path = "../xrootd/element.rs"]
mod element;
mod hostile;
mod identity;
mod transcript;
mod uploads;
#[allow(dead_code, reason = "shared with the tests of the native protocol")]
#[path = "../native/world.rs"]
mod world;
