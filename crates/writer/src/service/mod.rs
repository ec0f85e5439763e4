//! The service as a state machine: messages, outcomes of work and time come in; messages and work go
//! out. It does no I/O.

mod certifying;
mod connections;
mod counters;
mod keeping;
mod moved;
mod opening;
mod reading;
mod settings;
mod sharing;
mod state;
mod status;
mod writing;

pub use counters::Counters;
pub use reading::WaitingFiles;
pub use settings::{ConnectionId, Output, RemovalPolicy, ServiceSettings};
pub use state::Service;
pub use status::{FilePage, FileStatus, PartStatus, ReadSegment, Readable, ServiceStatus, VolumeStatus};
