//! From bytes as they come to whole frames.

use bytes::{Buf, Bytes, BytesMut};
use exacat_model::codec::DecodeError;
use exacat_model::{Error, ErrorKind};

use super::frame::FrameType;
use super::limits::{COUNTED_HEADER_BYTES, HANDSHAKE_FRAME_BYTES_MAX, HEADER_BYTES};

/// Why bytes are not frames.
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
        /// What the length field says.
        counted: u32,
    },
    /// No type has this number.
    #[error("a frame of the unknown type {number}")]
    UnknownType {
        /// The number.
        number: u8,
    },
    /// A flag is set that means nothing in this type of frame.
    #[error("{} frame with flags {flags:#04x} that it cannot have", .frame_type.name())]
    BadFlags {
        /// The type.
        frame_type: FrameType,
        /// All its flags.
        flags: u8,
    },
    /// A request id where none can be, or none where one must be.
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
        /// Bytes of the frame that came.
        bytes: usize,
    },
    /// The frame is whole, but its body is not what its type says.
    #[error("{} frame: {error}", .frame_type.name())]
    Body {
        /// The type.
        frame_type: FrameType,
        /// The request.
        request: u64,
        /// What is wrong.
        error: DecodeError,
    },
}

impl FrameError {
    /// The request to answer with this error, if only a request is spoilt and the connection can go on.
    /// Without one the connection must be closed.
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
    /// As the one who sent the bytes gets to see it.
    fn from(error: FrameError) -> Error {
        let kind = match error {
            FrameError::TooLarge { .. } => ErrorKind::Limit,
            _ => ErrorKind::Invalid,
        };
        Error::new(kind, error.to_string())
    }
}

/// A frame whose header was checked and whose body was not looked at.
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

/// Cuts bytes into frames. Takes them in any pieces; holds at most one incomplete frame beyond what it was
/// given in one piece.
///
/// Starts with the small limit of the handshake ([`HANDSHAKE_FRAME_BYTES_MAX`]); raise it when the peer has
/// authenticated. After an error it gives the same error for ever: where the next frame begins is lost.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: BytesMut,
    frame_bytes_max: usize,
    broken: Option<FrameError>,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        FrameDecoder::new()
    }
}

impl FrameDecoder {
    /// A decoder at the start of a connection.
    pub fn new() -> Self {
        FrameDecoder { buffer: BytesMut::new(), frame_bytes_max: HANDSHAKE_FRAME_BYTES_MAX, broken: None }
    }

    /// Bytes of one frame, its length field included, from the next frame on.
    pub fn set_frame_bytes_max(&mut self, bytes: usize) {
        self.frame_bytes_max = bytes;
    }

    /// Takes bytes by copying them.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The buffer to read into directly: reserve some space, append what comes, never take anything out.
    /// Take all frames out before reading more, or it grows.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Bytes that wait to become a frame.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The next frame, if all of it is there. Its body shares the buffer: keep it only as long as needed.
    pub fn next_frame(&mut self) -> Result<Option<RawFrame>, FrameError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.cut().inspect_err(|error| self.broken = Some(error.clone()))
    }

    fn cut(&mut self) -> Result<Option<RawFrame>, FrameError> {
        let Some(counted) = self.buffer.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes)) else {
            return Ok(None);
        };
        // Each thing is judged as soon as its bytes are there, so that no more is waited for, or held, than
        // is needed to know.
        if (counted as usize) < COUNTED_HEADER_BYTES {
            return Err(FrameError::TooShort { counted });
        }
        let bytes = u64::from(counted) + 4;
        if bytes > self.frame_bytes_max as u64 {
            return Err(FrameError::TooLarge { bytes, limit: self.frame_bytes_max });
        }
        let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [_, _, _, _, number, flags, id @ ..] = *header;
        let request = u64::from_le_bytes(id);
        let frame_type = FrameType::from_number(number).ok_or(FrameError::UnknownType { number })?;
        if flags & !frame_type.flags_allowed() != 0 {
            return Err(FrameError::BadFlags { frame_type, flags });
        }
        if !frame_type.admits_request(request) {
            return Err(FrameError::BadRequestId { frame_type, request });
        }
        let body_bytes = counted as usize - COUNTED_HEADER_BYTES;
        if self.buffer.len() < HEADER_BYTES + body_bytes {
            return Ok(None);
        }
        self.buffer.advance(HEADER_BYTES);
        let body = self.buffer.split_to(body_bytes).freeze();
        Ok(Some(RawFrame { frame_type, flags, request, body }))
    }

    /// The connection ended: was it between frames?
    pub fn finish(&self) -> Result<(), FrameError> {
        match &self.broken {
            Some(error) => Err(error.clone()),
            None if self.buffer.is_empty() => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.buffer.len() }),
        }
    }
}
