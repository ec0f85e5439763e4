//! The service as a state machine: messages, outcomes of work and time come in; messages and work go
//! out. It does no I/O.

mod certifying;
mod connections;
mod opening;
mod state;
mod writing;

pub use state::{ConnectionId, FileStatus, Output, Service, ServiceSettings};
