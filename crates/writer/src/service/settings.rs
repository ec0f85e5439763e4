//! Settings of a service, and its outputs.

use exacat_wire::writer::{Frame, Open, ServiceId, Table};

use crate::certificate::Certificate;
use crate::work::Work;

/// Connection, by a number that its owner chose and never uses again.
pub type ConnectionId = u64;

/// Rule for the removal of staged files. A file that is not staged is removed only by an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalPolicy {
    /// Time after the staging at which a file is removed; none for never. A restart begins it anew.
    pub after_ms: Option<u64>,
    /// Free bytes of a volume below which staged files are removed, the oldest first.
    pub free_bytes_low: u64,
    /// Time for which a removed file is remembered. A producer that was away learns that it is certified.
    pub remember_ms: u64,
}

impl Default for RemovalPolicy {
    fn default() -> Self {
        RemovalPolicy { after_ms: None, free_bytes_low: 0, remember_ms: 86_400_000 }
    }
}

/// Settings of a service. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// The service.
    pub service: ServiceId,
    /// Name, for logs.
    pub name: String,
    /// Host and port for producers.
    pub address: String,
    /// URL of its HTTP; empty if it has none.
    pub http: String,
    /// Blocks of 1 MiB for the bytes of all files.
    pub blocks: usize,
    /// Age of bytes at which a block is written before it is full.
    pub flush_ms: u64,
    /// Silence after which a connection is closed.
    pub idle_ms: u32,
    /// Time without a connection of its producer after which a part is sealed.
    pub orphan_ms: u64,
    /// Longest wait for parts of other services that are not needed for a whole file.
    pub part_wait_ms: u64,
    /// Time between two questions for a part. It grows while there is no answer.
    pub ask_every_ms: u64,
    /// Time between two tables.
    pub table_every_ms: u64,
    /// Silence after which a service counts as gone.
    pub gone_ms: u64,
    /// Free bytes of a volume below which it takes no file.
    pub free_bytes_min: u64,
    /// First version of this service's record; larger than at any earlier start.
    pub first_version: u64,
    /// Rule for the removal of staged files.
    pub removal: RemovalPolicy,
}

/// Message or work that goes out.
#[derive(Debug)]
pub enum Output {
    /// Send a frame.
    Send(ConnectionId, Frame),
    /// End a connection, after the frames before.
    End(ConnectionId),
    /// Send a frame to another service. It may be lost.
    Tell(ServiceId, Frame),
    /// Send the table to all other services. It may be lost.
    Gossip(Table),
    /// Do some work on a volume.
    Work(usize, Work),
    /// Ask the catalogue whether a producer may write a file, and who will own it. The answer is
    /// `Service::authorized`.
    Authorize {
        /// Connection of the producer.
        connection: ConnectionId,
        /// Open of the first part of the file here.
        open: Box<Open>,
    },
    /// Commit a file to the catalogue, once, under an operation id that follows from the file's id.
    Certify(Box<Certificate>),
}
