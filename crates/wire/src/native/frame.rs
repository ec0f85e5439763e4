//! Frames: their types, their contents, and the decoding of bodies.

use bytes::Bytes;
use exacat_model::codec::{Decode, DecodeError, Reader};
use exacat_model::{Answer, Consistency, Error, ErrorKind, Operation, OperationId, Past};

use super::hello::{Authenticate, Behind, Hello, HelloAck, Identity};
use super::limits::{BATCH_OPERATIONS_MAX, CREDIT_MAX, REASON_BYTES_MAX};
use crate::bounded::text;

/// Flags of a frame, one bit each. [`FrameType::flags_allowed`] has the flags of each type.
pub mod flags {
    /// The body begins with an operation id.
    pub const OPERATION_ID: u8 = 0x01;
    /// A deadline follows.
    pub const DEADLINE: u8 = 0x02;
    /// The client wants the answer as a stream of parts; the initial credit follows.
    pub const STREAM: u8 = 0x04;
    /// A consistency follows; only if [`features::CONSISTENCY`](crate::native::features::CONSISTENCY) is in
    /// force.
    pub const CONSISTENCY: u8 = 0x08;
    /// A past state follows; only if [`features::PAST`](crate::native::features::PAST) is in force.
    pub const PAST: u8 = 0x10;
}

/// The types of frames. The number is on the wire: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// Client: the versions it speaks.
    Hello = 1,
    /// Server: the version chosen, and its limits.
    HelloAck = 2,
    /// Client: its credentials.
    Authenticate = 3,
    /// Server: the identity that it accepts for the client.
    Authenticated = 4,
    /// Client: one operation.
    Request = 5,
    /// Client: several operations.
    Batch = 6,
    /// Server: the answer to a request.
    Answer = 7,
    /// Server: answers to a batch.
    AnswerBatch = 8,
    /// Server: one page of a streamed answer.
    Part = 9,
    /// Server: the end of a streamed answer.
    End = 10,
    /// Client: permission to send so many more parts.
    Credit = 11,
    /// Client: it no longer wants the answer.
    Cancel = 12,
    /// Server: the error that ends a request, or the connection.
    Error = 13,
    /// Either: question whether the peer is alive.
    Ping = 14,
    /// Either: reply to a ping.
    Pong = 15,
    /// Either: announcement of no new requests; those in flight are finished.
    Goodbye = 16,
    /// Server, a follower: its distance to its source; only if
    /// [`features::BEHIND`](crate::native::features::BEHIND) is in force.
    Behind = 17,
}

impl FrameType {
    /// All types.
    pub const ALL: [FrameType; 17] = [
        FrameType::Hello,
        FrameType::HelloAck,
        FrameType::Authenticate,
        FrameType::Authenticated,
        FrameType::Request,
        FrameType::Batch,
        FrameType::Answer,
        FrameType::AnswerBatch,
        FrameType::Part,
        FrameType::End,
        FrameType::Credit,
        FrameType::Cancel,
        FrameType::Error,
        FrameType::Ping,
        FrameType::Pong,
        FrameType::Goodbye,
        FrameType::Behind,
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
            FrameType::Authenticate => "authenticate",
            FrameType::Authenticated => "authenticated",
            FrameType::Request => "request",
            FrameType::Batch => "batch",
            FrameType::Answer => "answer",
            FrameType::AnswerBatch => "answer-batch",
            FrameType::Part => "part",
            FrameType::End => "end",
            FrameType::Credit => "credit",
            FrameType::Cancel => "cancel",
            FrameType::Error => "error",
            FrameType::Ping => "ping",
            FrameType::Pong => "pong",
            FrameType::Goodbye => "goodbye",
            FrameType::Behind => "behind",
        }
    }

    /// Returns the flags that have a meaning in it; every other bit must be 0.
    pub fn flags_allowed(self) -> u8 {
        match self {
            FrameType::Request => {
                flags::OPERATION_ID | flags::DEADLINE | flags::STREAM | flags::CONSISTENCY | flags::PAST
            }
            FrameType::Batch => flags::DEADLINE | flags::CONSISTENCY | flags::PAST,
            _ => 0,
        }
    }

    /// Says whether it may carry this request id. Frames about the connection have id 0, frames
    /// about a request its id; an error may have either.
    pub fn admits_request(self, request: u64) -> bool {
        match self {
            FrameType::Hello
            | FrameType::HelloAck
            | FrameType::Authenticate
            | FrameType::Authenticated
            | FrameType::Ping
            | FrameType::Pong
            | FrameType::Goodbye
            | FrameType::Behind => request == 0,
            FrameType::Error => true,
            FrameType::Request
            | FrameType::Batch
            | FrameType::Answer
            | FrameType::AnswerBatch
            | FrameType::Part
            | FrameType::End
            | FrameType::Credit
            | FrameType::Cancel => request != 0,
        }
    }
}

/// Options of a request beside its operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Id of the request; present if and only if the operation writes.
    pub operation_id: Option<OperationId>,
    /// Milliseconds from receipt after which the answer is worthless.
    pub deadline_ms: Option<u32>,
    /// Initial credit in parts, if the client wants a stream; only for operations with pages.
    pub stream: Option<u32>,
    /// Permitted age of the state behind the answer; none for the server's default. Operations that
    /// write ignore it.
    pub consistency: Option<Consistency>,
    /// Past state that the answer is about; none for the present one.
    pub past: Option<Past>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Options of the request.
    pub options: RequestOptions,
    /// The operation.
    pub operation: Operation,
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchItem {
    /// Operation id; present if and only if the operation writes.
    pub operation_id: Option<OperationId>,
    /// The operation.
    pub operation: Operation,
}

/// Several independent operations in one frame: none waits for or depends on another, and none is
/// undone because another fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Milliseconds from receipt after which the answers are worthless.
    pub deadline_ms: Option<u32>,
    /// Permitted age of the states behind the answers, as in a request.
    pub consistency: Option<Consistency>,
    /// Past state that the answers are about, as in a request.
    pub past: Option<Past>,
    /// The operations: at least one. Answers refer to an operation by its index.
    pub items: Vec<BatchItem>,
}

/// Answers to a batch, in the order of its operations. They are in one frame if they fit, otherwise
/// in several, in order. The frame with the answer to the last operation ends the batch.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerBatch {
    /// Index of the operation of the first answer.
    pub first: u32,
    /// The answers.
    pub answers: Vec<Result<Answer, Error>>,
}

/// Content of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// See [`FrameType::Hello`].
    Hello(Hello),
    /// See [`FrameType::HelloAck`].
    HelloAck(HelloAck),
    /// See [`FrameType::Authenticate`].
    Authenticate(Authenticate),
    /// See [`FrameType::Authenticated`].
    Authenticated(Identity),
    /// See [`FrameType::Request`].
    Request(Request),
    /// See [`FrameType::Batch`].
    Batch(Batch),
    /// See [`FrameType::Answer`].
    Answer(Answer),
    /// See [`FrameType::AnswerBatch`].
    AnswerBatch(AnswerBatch),
    /// See [`FrameType::Part`].
    Part(Answer),
    /// See [`FrameType::End`].
    End {
        /// Number of parts, so that a missing part is noticed.
        parts: u64,
    },
    /// See [`FrameType::Credit`].
    Credit {
        /// Number of further parts.
        parts: u32,
    },
    /// See [`FrameType::Cancel`].
    Cancel,
    /// See [`FrameType::Error`].
    Error(Error),
    /// See [`FrameType::Ping`].
    Ping(u64),
    /// See [`FrameType::Pong`]: the echo of the ping.
    Pong(u64),
    /// See [`FrameType::Goodbye`].
    Goodbye {
        /// Reason, for a person.
        reason: String,
    },
    /// See [`FrameType::Behind`].
    Behind(Behind),
}

impl Frame {
    /// Returns the type.
    pub fn frame_type(&self) -> FrameType {
        match self {
            Frame::Hello(_) => FrameType::Hello,
            Frame::HelloAck(_) => FrameType::HelloAck,
            Frame::Authenticate(_) => FrameType::Authenticate,
            Frame::Authenticated(_) => FrameType::Authenticated,
            Frame::Request(_) => FrameType::Request,
            Frame::Batch(_) => FrameType::Batch,
            Frame::Answer(_) => FrameType::Answer,
            Frame::AnswerBatch(_) => FrameType::AnswerBatch,
            Frame::Part(_) => FrameType::Part,
            Frame::End { .. } => FrameType::End,
            Frame::Credit { .. } => FrameType::Credit,
            Frame::Cancel => FrameType::Cancel,
            Frame::Error(_) => FrameType::Error,
            Frame::Ping(_) => FrameType::Ping,
            Frame::Pong(_) => FrameType::Pong,
            Frame::Goodbye { .. } => FrameType::Goodbye,
            Frame::Behind(_) => FrameType::Behind,
        }
    }
}

/// Reason why bytes are not frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is beyond the limit.
    #[error("a frame of {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Bytes of the frame, its length field included.
        bytes: u64,
        /// The limit in force.
        limit: usize,
    },
    /// The length is less than a header.
    #[error("a frame that says it has {counted} bytes, fewer than its header")]
    TooShort {
        /// Value of the length field.
        counted: u32,
    },
    /// No type has this number.
    #[error("a frame of the unknown type {number}")]
    UnknownType {
        /// The number.
        number: u8,
    },
    /// A flag is set that has no meaning in this type of frame.
    #[error("{} frame with flags {flags:#04x} that it cannot have", .frame_type.name())]
    BadFlags {
        /// The type.
        frame_type: FrameType,
        /// All its flags.
        flags: u8,
    },
    /// A request id is present but not permitted, or missing but required.
    #[error("{} frame with the request id {request}", .frame_type.name())]
    BadRequestId {
        /// The type.
        frame_type: FrameType,
        /// The id.
        request: u64,
    },
    /// The connection ended inside a frame.
    #[error("the connection ended {bytes} bytes into a frame")]
    Truncated {
        /// Bytes received of the frame.
        bytes: usize,
    },
    /// The frame is whole, but its body does not fit its type.
    #[error("{} frame: {error}", .frame_type.name())]
    Body {
        /// The type.
        frame_type: FrameType,
        /// The request.
        request: u64,
        /// The fault.
        error: DecodeError,
    },
}

impl FrameError {
    /// Returns the request to answer with this error, if only that request is damaged and the
    /// connection can continue. Without one the connection must be closed.
    pub fn answerable_request(&self) -> Option<u64> {
        match self {
            FrameError::Body { frame_type: FrameType::Request | FrameType::Batch, request, .. } => {
                Some(*request)
            }
            _ => None,
        }
    }
}

impl From<FrameError> for Error {
    /// Converts to the error for the sender of the bytes.
    fn from(error: FrameError) -> Error {
        let kind = match error {
            FrameError::TooLarge { .. } => ErrorKind::Limit,
            _ => ErrorKind::Invalid,
        };
        Error::new(kind, error.to_string())
    }
}

/// A frame with a checked header and an undecoded body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// Its type.
    pub frame_type: FrameType,
    /// Its flags: only those its type allows.
    pub flags: u8,
    /// The request it belongs to; 0 for the connection.
    pub request: u64,
    /// Its body.
    pub body: Bytes,
}

impl RawFrame {
    /// Decodes the body. An error concerns this frame only: the framing is intact.
    pub fn decode(&self) -> Result<Frame, FrameError> {
        self.decode_body().map_err(|error| FrameError::Body {
            frame_type: self.frame_type,
            request: self.request,
            error,
        })
    }

    fn decode_body(&self) -> Result<Frame, DecodeError> {
        let mut reader = match self.frame_type {
            FrameType::Request | FrameType::Batch => Reader::of_request(&self.body),
            _ => Reader::new(&self.body),
        };
        let frame = match self.frame_type {
            FrameType::Hello => Frame::Hello(Decode::decode(&mut reader)?),
            FrameType::HelloAck => Frame::HelloAck(Decode::decode(&mut reader)?),
            FrameType::Authenticate => Frame::Authenticate(Decode::decode(&mut reader)?),
            FrameType::Authenticated => Frame::Authenticated(Decode::decode(&mut reader)?),
            FrameType::Request => Frame::Request(request(&mut reader, self.flags)?),
            FrameType::Batch => Frame::Batch(batch(&mut reader, self.flags)?),
            FrameType::Answer => Frame::Answer(Decode::decode(&mut reader)?),
            FrameType::AnswerBatch => Frame::AnswerBatch(answer_batch(&mut reader)?),
            FrameType::Part => Frame::Part(Decode::decode(&mut reader)?),
            FrameType::End => Frame::End { parts: Decode::decode(&mut reader)? },
            FrameType::Credit => Frame::Credit { parts: credit(&mut reader)? },
            FrameType::Cancel => Frame::Cancel,
            FrameType::Error => Frame::Error(Decode::decode(&mut reader)?),
            FrameType::Ping => Frame::Ping(echo(&mut reader)?),
            FrameType::Pong => Frame::Pong(echo(&mut reader)?),
            FrameType::Goodbye => {
                Frame::Goodbye { reason: text(&mut reader, REASON_BYTES_MAX, "a reason is too long")? }
            }
            FrameType::Behind => Frame::Behind(Decode::decode(&mut reader)?),
        };
        reader.finish()?;
        Ok(frame)
    }
}

fn request(reader: &mut Reader<'_>, flags: u8) -> Result<Request, DecodeError> {
    let has = |flag: u8| flags & flag != 0;
    let operation_id = if has(flags::OPERATION_ID) { Some(OperationId::decode(reader)?) } else { None };
    let deadline_ms = if has(flags::DEADLINE) { Some(u32::decode(reader)?) } else { None };
    let stream = if has(flags::STREAM) { Some(credit(reader)?) } else { None };
    let consistency = if has(flags::CONSISTENCY) { Some(Consistency::decode(reader)?) } else { None };
    let past = if has(flags::PAST) { Some(Past::decode(reader)?) } else { None };
    let operation = Operation::decode(reader)?;
    check_operation_id(reader, operation_id, &operation)?;
    if stream.is_some() && !operation.has_pages() {
        return Err(reader.error("only an operation with pages can be streamed"));
    }
    let options = RequestOptions { operation_id, deadline_ms, stream, consistency, past };
    Ok(Request { options, operation })
}

fn batch(reader: &mut Reader<'_>, flags: u8) -> Result<Batch, DecodeError> {
    let has = |flag: u8| flags & flag != 0;
    let deadline_ms = if has(flags::DEADLINE) { Some(u32::decode(reader)?) } else { None };
    let consistency = if has(flags::CONSISTENCY) { Some(Consistency::decode(reader)?) } else { None };
    let past = if has(flags::PAST) { Some(Past::decode(reader)?) } else { None };
    // The number of operations is known only at the end of the body. The capacity suffices for a
    // usual batch.
    let mut items = Vec::with_capacity((reader.remaining() / 2).min(128));
    while reader.remaining() > 0 {
        if items.len() == BATCH_OPERATIONS_MAX {
            return Err(reader.error("a batch has too many operations"));
        }
        let operation_id = Option::<OperationId>::decode(reader)?;
        let operation = Operation::decode(reader)?;
        check_operation_id(reader, operation_id, &operation)?;
        items.push(BatchItem { operation_id, operation });
    }
    if items.is_empty() {
        return Err(reader.error("a batch has no operations"));
    }
    Ok(Batch { deadline_ms, consistency, past, items })
}

/// Checks the operation id. A client could not safely retry a write without an id; a read has no
/// use for one.
fn check_operation_id(
    reader: &Reader<'_>,
    id: Option<OperationId>,
    operation: &Operation,
) -> Result<(), DecodeError> {
    match (id.is_some(), operation.writes()) {
        (false, true) => Err(reader.error("an operation that writes needs an operation id")),
        (true, false) => Err(reader.error("an operation that does not write has no operation id")),
        _ => Ok(()),
    }
}

fn answer_batch(reader: &mut Reader<'_>) -> Result<AnswerBatch, DecodeError> {
    let first = u32::decode(reader)?;
    // An answer takes at least two bytes and usually many more. The capacity suffices for a usual
    // batch.
    let mut answers = Vec::with_capacity((reader.remaining() / 2).min(128));
    while reader.remaining() > 0 {
        if answers.len() == BATCH_OPERATIONS_MAX {
            return Err(reader.error("a batch has too many answers"));
        }
        answers.push(Decode::decode(reader)?);
    }
    if answers.is_empty() {
        return Err(reader.error("a batch of answers has none"));
    }
    Ok(AnswerBatch { first, answers })
}

fn credit(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let parts = u32::decode(reader)?;
    if parts > CREDIT_MAX { Err(reader.error("more credit than may be granted")) } else { Ok(parts) }
}

fn echo(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    Ok(u64::from_le_bytes(Decode::decode(reader)?))
}
