//! HTTP/1.1 of the services beside the catalogue: the writer service and the replay service.
//!
//! - [`serve`] accepts connections, with or without TLS, within the [`limits`], and asks a [`Site`].
//! - [`answers`] makes the answers: text, JSON, pieces that come, errors as [`ServiceProblem`].
//! - [`Query`] reads the fields of a target.
//! - [`HttpClient`] asks such a service, over a connection for each request or an [`HttpConnection`].
//! - [`Stalling`] ends a connection whose peer reads nothing more; the catalogue's HTTP uses it too.
#![forbid(unsafe_code)]

pub mod answers;
mod client;
pub mod limits;
mod listener;
mod problem;
mod query;
mod stalling;
mod visitors;

pub use client::{HttpClient, HttpClientSettings, HttpConnection, OpenAnswer};
pub use listener::{ConnectionEvent, Site, serve};
pub use problem::ServiceProblem;
pub use query::Query;
pub use stalling::Stalling;
pub use visitors::ConnectionLimits;
