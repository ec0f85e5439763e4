//! Frames: their types, and the bytes of all but chunks.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};

use super::ids::FileId;
use super::limits::{BODY_BYTES_MAX, HANDSHAKE_BODY_BYTES_MAX, REASON_BYTES_MAX};
use super::messages::{Ack, Close, Hello, HelloAck, Open, Opened, Refusal};
use super::parts::{Certified, PartQuery, PartReport};
use super::table::Table;
use crate::bounded::{clipped, text};

/// The types of frames. The number is on the wire: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameType {
    /// Greeting of the side that connects.
    Hello = 1,
    /// Answer to the greeting.
    HelloAck = 2,
    /// Producer: begin or resumption of a part.
    Open = 3,
    /// Service: the part is open.
    Opened = 4,
    /// Producer: bytes.
    Chunk = 5,
    /// Producer: wish that the bytes so far become durable soon.
    Flush = 6,
    /// Service: bytes are durable, and more may be sent.
    Ack = 7,
    /// Producer: end of a file.
    Close = 8,
    /// Service: the file is in the catalogue.
    Certified = 9,
    /// Service: a message was refused.
    Refusal = 10,
    /// Service: the services that it knows.
    Table = 11,
    /// Service: question about a part.
    PartQuery = 12,
    /// Service: chunks of a part.
    PartReport = 13,
    /// Either: question whether the peer is alive.
    Ping = 14,
    /// Either: reply to a ping.
    Pong = 15,
    /// Either: nothing more is begun on this connection.
    Goodbye = 16,
    /// Service: the bytes of a certified file are copied elsewhere, and are removed.
    Remove = 17,
}

impl FrameType {
    /// All types.
    pub const ALL: [FrameType; 17] = [
        FrameType::Hello,
        FrameType::HelloAck,
        FrameType::Open,
        FrameType::Opened,
        FrameType::Chunk,
        FrameType::Flush,
        FrameType::Ack,
        FrameType::Close,
        FrameType::Certified,
        FrameType::Refusal,
        FrameType::Table,
        FrameType::PartQuery,
        FrameType::PartReport,
        FrameType::Ping,
        FrameType::Pong,
        FrameType::Goodbye,
        FrameType::Remove,
    ];

    /// Returns the type of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Returns the name in errors and metrics.
    pub fn name(self) -> &'static str {
        match self {
            FrameType::Hello => "hello",
            FrameType::HelloAck => "hello-ack",
            FrameType::Open => "open",
            FrameType::Opened => "opened",
            FrameType::Chunk => "chunk",
            FrameType::Flush => "flush",
            FrameType::Ack => "ack",
            FrameType::Close => "close",
            FrameType::Certified => "certified",
            FrameType::Refusal => "refusal",
            FrameType::Table => "table",
            FrameType::PartQuery => "part-query",
            FrameType::PartReport => "part-report",
            FrameType::Ping => "ping",
            FrameType::Pong => "pong",
            FrameType::Goodbye => "goodbye",
            FrameType::Remove => "remove",
        }
    }

    /// Returns the largest body that is accepted, chunks aside.
    pub(super) fn body_bytes_max(self) -> usize {
        match self {
            FrameType::Hello | FrameType::HelloAck => HANDSHAKE_BODY_BYTES_MAX,
            _ => BODY_BYTES_MAX,
        }
    }
}

/// Content of a frame that is no chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// See [`FrameType::Hello`].
    Hello(Hello),
    /// See [`FrameType::HelloAck`].
    HelloAck(HelloAck),
    /// See [`FrameType::Open`].
    Open(Open),
    /// See [`FrameType::Opened`].
    Opened(Opened),
    /// See [`FrameType::Flush`].
    Flush {
        /// The file.
        file: FileId,
    },
    /// See [`FrameType::Ack`].
    Ack(Ack),
    /// See [`FrameType::Close`].
    Close(Close),
    /// See [`FrameType::Certified`].
    Certified(Certified),
    /// See [`FrameType::Refusal`].
    Refusal(Refusal),
    /// See [`FrameType::Table`].
    Table(Table),
    /// See [`FrameType::PartQuery`].
    PartQuery(PartQuery),
    /// See [`FrameType::PartReport`].
    PartReport(PartReport),
    /// See [`FrameType::Ping`].
    Ping(u64),
    /// See [`FrameType::Pong`]: the number of the ping.
    Pong(u64),
    /// See [`FrameType::Goodbye`].
    Goodbye {
        /// Reason, for a person.
        reason: String,
    },
    /// See [`FrameType::Remove`].
    Remove {
        /// The file.
        file: FileId,
    },
}

impl Frame {
    /// Returns the type.
    pub fn frame_type(&self) -> FrameType {
        match self {
            Frame::Hello(_) => FrameType::Hello,
            Frame::HelloAck(_) => FrameType::HelloAck,
            Frame::Open(_) => FrameType::Open,
            Frame::Opened(_) => FrameType::Opened,
            Frame::Flush { .. } => FrameType::Flush,
            Frame::Ack(_) => FrameType::Ack,
            Frame::Close(_) => FrameType::Close,
            Frame::Certified(_) => FrameType::Certified,
            Frame::Refusal(_) => FrameType::Refusal,
            Frame::Table(_) => FrameType::Table,
            Frame::PartQuery(_) => FrameType::PartQuery,
            Frame::PartReport(_) => FrameType::PartReport,
            Frame::Ping(_) => FrameType::Ping,
            Frame::Pong(_) => FrameType::Pong,
            Frame::Goodbye { .. } => FrameType::Goodbye,
            Frame::Remove { .. } => FrameType::Remove,
        }
    }

    pub(super) fn decode(frame_type: FrameType, body: &[u8]) -> Result<Self, FrameError> {
        Self::decode_body(frame_type, body)
            .map_err(|error| FrameError::Body { frame_type, reason: error.reason })
    }

    fn decode_body(frame_type: FrameType, body: &[u8]) -> Result<Self, DecodeError> {
        // A request: names of files are within their limits.
        let mut reader = Reader::of_request(body);
        let frame = match frame_type {
            FrameType::Hello => Frame::Hello(Decode::decode(&mut reader)?),
            FrameType::HelloAck => Frame::HelloAck(Decode::decode(&mut reader)?),
            FrameType::Open => Frame::Open(Decode::decode(&mut reader)?),
            FrameType::Opened => Frame::Opened(Decode::decode(&mut reader)?),
            FrameType::Chunk => return Err(reader.error("a chunk is read by its head")),
            FrameType::Flush => Frame::Flush { file: Decode::decode(&mut reader)? },
            FrameType::Ack => Frame::Ack(Decode::decode(&mut reader)?),
            FrameType::Close => Frame::Close(Decode::decode(&mut reader)?),
            FrameType::Certified => Frame::Certified(Decode::decode(&mut reader)?),
            FrameType::Refusal => Frame::Refusal(Decode::decode(&mut reader)?),
            FrameType::Table => Frame::Table(Decode::decode(&mut reader)?),
            FrameType::PartQuery => Frame::PartQuery(Decode::decode(&mut reader)?),
            FrameType::PartReport => Frame::PartReport(Decode::decode(&mut reader)?),
            FrameType::Ping => Frame::Ping(Decode::decode(&mut reader)?),
            FrameType::Pong => Frame::Pong(Decode::decode(&mut reader)?),
            FrameType::Goodbye => {
                Frame::Goodbye { reason: text(&mut reader, REASON_BYTES_MAX, "a reason is too long")? }
            }
            FrameType::Remove => Frame::Remove { file: Decode::decode(&mut reader)? },
        };
        reader.finish()?;
        Ok(frame)
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Hello(hello) => hello.encode(out),
            Frame::HelloAck(ack) => ack.encode(out),
            Frame::Open(open) => open.encode(out),
            Frame::Opened(opened) => opened.encode(out),
            Frame::Flush { file } | Frame::Remove { file } => file.encode(out),
            Frame::Ack(ack) => ack.encode(out),
            Frame::Close(close) => close.encode(out),
            Frame::Certified(certified) => certified.encode(out),
            Frame::Refusal(refusal) => refusal.encode(out),
            Frame::Table(table) => table.encode(out),
            Frame::PartQuery(query) => query.encode(out),
            Frame::PartReport(report) => report.encode(out),
            Frame::Ping(number) | Frame::Pong(number) => number.encode(out),
            Frame::Goodbye { reason } => clipped(reason, REASON_BYTES_MAX).encode(out),
        }
    }
}

/// Appends a whole frame. The caller keeps lists within their limits.
pub fn encode(out: &mut Vec<u8>, frame: &Frame) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(frame.frame_type() as u8);
    frame.encode_body(out);
    let counted = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&counted.to_le_bytes());
}

/// Reason why bytes are not frames. The connection cannot continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is 0, or beyond the limit of the type.
    #[error("{} frame of {counted} bytes, which it cannot have", .frame_type.name())]
    Length {
        /// The type.
        frame_type: FrameType,
        /// Value of the length field.
        counted: u32,
    },
    /// No type has this number.
    #[error("a frame of the unknown type {number}")]
    UnknownType {
        /// The number.
        number: u8,
    },
    /// A frame other than the greeting came first, or the greeting came later.
    #[error("{} frame at the wrong moment of the connection", .frame_type.name())]
    OutOfTurn {
        /// The type.
        frame_type: FrameType,
    },
    /// The frame is whole, but its content is not of its type.
    #[error("{} frame: {reason}", .frame_type.name())]
    Body {
        /// The type.
        frame_type: FrameType,
        /// The fault.
        reason: &'static str,
    },
}
