//! The HTTP face from outside: the REST API, monitoring, identity, limits, and hostile clients.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod bulk;
mod certificates;
#[allow(dead_code, reason = "shared with the tests of the native protocol")]
#[path = "../native/client.rs"]
mod client;
mod dav;
#[allow(dead_code, reason = "shared with the tests of the protocol of XRootD")]
#[path = "../xrootd/element.rs"]
mod element;
mod elements;
mod hostile;
mod http2;
mod influx;
mod judging;
mod listing;
mod logged;
mod origins;
mod overload;
mod pages;
mod pages_files;
mod pages_issuers;
mod pages_moments;
mod pages_operations;
mod pages_sessions;
mod past;
mod paths;
mod rest;
mod secrets;
mod store;
mod third_party;
mod tokens;
mod web;
#[allow(dead_code, reason = "shared with the tests of the native protocol")]
#[path = "../native/world.rs"]
mod world;
