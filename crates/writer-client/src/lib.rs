//! The client of the writer service: a program appends events to streams, and the client keeps each event
//! until a service has it on disk.
//!
//! Events pass through it in this order:
//!
//! - [`Writer`] learns the services, and owns the memory and the connections.
//! - [`Stream`] packs events into chunks, under a lock of its own.
//! - `driver` lets time pass, and gives the outputs of the producer's state machine (`exacat-writer`) to
//!   `connection`, which writes chunks to the socket from the memory that the events were copied to.
//!
//! All calls block: a program of any kind can use them, from many threads at once.
#![forbid(unsafe_code)]

mod connection;
mod dial;
mod driver;
mod error;
mod outcome;
mod outgoing;
mod security;
mod seeds;
mod settings;
mod shared;
mod status;
mod stream;
mod stream_state;
mod writer;

pub use error::{Error, Result};
pub use exacat_wire::writer::{FileId, ServiceRecord, ServiceState};
pub use exacat_writer::limits::EVENT_BYTES_MAX;
pub use exacat_writer::{FileNames, Position, Uncertified};
pub use outcome::{FileOutcome, Outcome};
pub use security::{ClientCertificate, Security};
pub use settings::{StreamSettings, WriterSettings};
pub use status::{Latencies, Status};
pub use stream::Stream;
pub use writer::Writer;
