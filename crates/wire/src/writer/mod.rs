//! The writer protocol: producers send the bytes of files in chunks, and services acknowledge the
//! ranges that are on disk.
//!
//! `docs/internals/writer-protocol.md` describes every byte and the rules of the conversation. This
//! module is the codec, without the conversation:
//!
//! - [`FrameDecoder`] splits received bytes into [`Received`] messages. It hands out the head of a
//!   chunk before its bytes, so that the caller can read them into their place.
//! - [`encode`] appends a whole frame, and [`encode_chunk`] a chunk.
//! - [`Announcement`] is a datagram by which services find each other.
//!
//! Every fault of the bytes is fatal to the connection: chunks are large, and a peer that sends one
//! wrong byte may send the next to a wrong place.

mod announcement;
mod chunk;
mod decoder;
mod fields;
mod frame;
mod ids;
pub mod limits;
mod messages;
mod parts;
mod table;

pub use announcement::{ANNOUNCEMENT_MAGIC, ANNOUNCEMENT_VERSION, Announcement, AnnouncementError};
pub use chunk::{ChunkHead, chunk_header, encode_chunk};
pub use decoder::{FrameDecoder, Received};
pub use frame::{Frame, FrameError, FrameType, encode};
pub use ids::{FileId, ServiceId, WriterId};
pub use messages::{
    Ack, ByteRange, Close, Description, Hello, HelloAck, MAGIC, Open, Opened, PROTOCOL_VERSION, Refusal,
    RefusalClass, Role,
};
pub use parts::{Certified, ChunkRecord, PartOwner, PartQuery, PartReport, PartShare, PartState};
pub use table::{ServiceRecord, ServiceState, Table};
