//! The server from outside: its native protocol, frame by frame, its limits at their edges, its metrics, and
//! its life from start to stop.

mod access;
mod admission;
mod client;
mod handshake;
mod life;
mod metrics;
mod requests;
mod streams;
mod world;
