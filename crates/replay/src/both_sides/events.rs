//! Events of servers and caches, from whatever stream they came.

use std::sync::Arc;

use exacat_wire::xrdmon::fstream::Operations;
use exacat_wire::xrdmon::summary::Summary;

/// File session of a cache that ended: one for all clients that had the file open together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheRecord {
    /// Name of the file.
    pub lfn: Box<str>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of the file.
    pub blocks: u64,
    /// Blocks in the cache.
    pub blocks_done: u64,
    /// Sessions of the file since it is in the cache.
    pub accesses: u64,
    /// Begin, in seconds since 1970.
    pub attached: u64,
    /// End, in seconds since 1970.
    pub detached: u64,
    /// Origins that bytes came from. None means that nothing was fetched.
    pub origins: u32,
    /// Bytes that clients got from the cache.
    pub bytes_hit: u64,
    /// Bytes that clients got, and the cache did not have.
    pub bytes_miss: u64,
    /// Bytes that went by the cache.
    pub bytes_bypass: u64,
    /// Bytes written to disk; releases before 5.7.2 do not tell them.
    pub bytes_to_disk: Option<u64>,
    /// Bytes fetched ahead; releases before 5.7.2 do not tell them.
    pub bytes_prefetched: Option<u64>,
    /// Errors of checksums. Release 5.5.3 miscounts them.
    pub checksum_errors: u64,
}

impl CacheRecord {
    /// Returns the bytes that clients asked for.
    pub fn bytes_asked(&self) -> u64 {
        self.bytes_hit.saturating_add(self.bytes_miss).saturating_add(self.bytes_bypass)
    }

    /// Returns the bytes of the file that are in the cache.
    pub fn bytes_done(&self) -> u64 {
        match self.blocks_done >= self.blocks {
            true => self.file_bytes,
            false => self.blocks_done.saturating_mul(self.block_bytes).min(self.file_bytes),
        }
    }
}

/// Client of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerClient {
    /// Name that the client gives.
    pub user: String,
    /// Host.
    pub host: String,
    /// Program.
    pub program: String,
}

/// Open of a file by one client, ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSession {
    /// The client, if the server sends clients.
    pub client: Option<Arc<ServerClient>>,
    /// Name of the file; none if the open was not received.
    pub lfn: Option<Box<str>>,
    /// Bytes of the file; none if the open was not received.
    pub file_bytes: Option<u64>,
    /// Begin, in seconds since 1970, to the accuracy of a datagram.
    pub opened: Option<u64>,
    /// End, in seconds since 1970, to the same accuracy.
    pub closed: u64,
    /// Bytes read, as asked for: release 5.5.3 counts a read over the end of the file in full.
    pub bytes_read: u64,
    /// Bytes of vector reads.
    pub bytes_vector_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Operations, if the server tells them.
    pub operations: Option<Operations>,
    /// True if the client went away without a close.
    pub is_forced: bool,
}

/// Event of a server or cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A cache's file session ended.
    Record(Box<CacheRecord>),
    /// A client's open ended.
    Session(Box<FileSession>),
    /// Counters of a server.
    Sample(Box<Summary>),
    /// The server is the one that had another name so far.
    Renamed {
        /// The other name.
        from: Arc<str>,
    },
    /// The server has started again: its counters begin anew, its memory is empty.
    Restarted {
        /// Time of the start, in seconds since 1970.
        started: u64,
    },
}

/// Event, and the server that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEvent {
    /// Name of the server: `host:port` if it tells one, else its address and number.
    pub server: Arc<str>,
    /// Event.
    pub kind: EventKind,
}
