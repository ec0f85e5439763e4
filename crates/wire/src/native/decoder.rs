//! Splits received bytes into whole frames.

use bytes::{Buf, Bytes, BytesMut};
use exacat_model::codec::DecodeError;
use exacat_model::{Error, ErrorKind};

use super::frame::FrameType;
use super::limits::{COUNTED_HEADER_BYTES, HANDSHAKE_FRAME_BYTES_MAX, HEADER_BYTES};

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

/// Splits bytes into frames. Accepts them in any pieces; holds at most one incomplete frame beyond
/// the last piece.
///
/// It starts with the small limit of the handshake ([`HANDSHAKE_FRAME_BYTES_MAX`]); the caller
/// raises it once the peer has authenticated. After an error it always returns that error, because
/// the start of the next frame is lost.
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
    /// Makes a decoder for a new connection.
    pub fn new() -> Self {
        FrameDecoder { buffer: BytesMut::new(), frame_bytes_max: HANDSHAKE_FRAME_BYTES_MAX, broken: None }
    }

    /// Sets the maximum bytes of a frame, its length field included, from the next frame on.
    pub fn set_frame_bytes_max(&mut self, bytes: usize) {
        self.frame_bytes_max = bytes;
    }

    /// Copies bytes into the buffer.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the buffer for direct reads. The caller reserves space and appends received bytes,
    /// but never removes any. It takes out all frames before it reads more, or the buffer grows.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Returns the next frame once it is complete. Its body shares the buffer: keep it only as long
    /// as needed.
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
        // Each field is checked as soon as its bytes are there, so that a faulty frame is neither
        // awaited nor held.
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

    /// Checks, at the end of the connection, that no frame is incomplete.
    pub fn finish(&self) -> Result<(), FrameError> {
        match &self.broken {
            Some(error) => Err(error.clone()),
            None if self.buffer.is_empty() => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.buffer.len() }),
        }
    }
}
