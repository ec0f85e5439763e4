//! The writer service: chunks of many producers, each durable once, in files that are certified.
//!
//! Bytes pass through it in this order (`docs/internals/writer-protocol.md`):
//!
//! - [`Volume`] is a directory on a disk: parts of files, and the [`Index`] of their chunks, which is a
//!   log. It does the [`Work`] of a service, and all its disk access goes through `exacat-disk`.
//! - [`Service`] is the state machine of one service: messages of connections, outcomes of works and
//!   time come in, messages and works go out. It writes through a [`BlockPool`].
//! - [`ServiceTable`] knows the services, and chooses one for a file.
//! - [`Packer`] and [`Producer`] are the other side: a packer puts the events of one stream into chunks,
//!   within the bound of an [`EventMemory`], and the producer keeps each chunk until it is durable.
//! - [`assemble`] makes the [`Certificate`] of a file from the chunks of its parts.
//!
//! Nothing here knows sockets, the time of day, or a rule of the catalogue.
#![forbid(unsafe_code)]

mod block;
mod certificate;
mod certified;
mod check;
mod chunks;
mod identity;
mod index;
mod inspection;
mod item;
mod journal;
pub mod limits;
mod origin;
mod part;
mod producer;
mod ranges;
mod service;
mod shared_sync;
mod stored;
pub mod sums;
mod table;
mod volume;
mod volume_files;
mod work;

pub use block::{ALIGNMENT, Block, BlockPool};
pub use certificate::{Certificate, NotWhole, Segment, assemble};
pub use certified::{CertifiedFile, CertifiedRecord};
pub use check::{CheckFault, CheckKind, CheckReport, StageContent, VolumeContent};
pub use chunks::{Chunks, Judgement, range_of, record_of};
pub use identity::{IDENTITY as IDENTITY_FILE, owner_of};
pub use index::{Index, IndexedCertified, IndexedFile, IndexedPart};
pub use inspection::VolumeInspection;
pub use item::{FileStage, Item, SealedBy};
pub use origin::{PartKey, PartOrigin};
pub use producer::{
    Chunk, Closed, Event, EventMemory, FileEnd, FileNames, FileRoom, NotAppended, Packed, Packer, Position,
    Producer, ProducerOutput, ProducerSettings, Settled, StreamSettings, Uncertified,
};
pub use ranges::Ranges;
pub use service::{
    ConnectionId, Counters, FilePage, FileStatus, Output, PartStatus, ReadSegment, Readable, RemovalPolicy,
    Service, ServiceSettings, ServiceStatus, VolumeStatus, WaitingFiles,
};
pub use table::ServiceTable;
pub use volume::{Recovered, Volume, VolumeSettings};
pub use volume_files::LOCK as LOCK_FILE;
pub use work::{BlockWrite, Done, Fault, PartSeal, PartWork, Work};
