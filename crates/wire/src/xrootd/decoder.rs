//! Splits received bytes of XRootD's protocol, in any pieces, into requests.

use bytes::{Buf, Bytes, BytesMut};

use super::limits::{HANDSHAKE_BYTES, LOGIN_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES};
use super::request::{HANDSHAKE, RequestHeader};

/// Reason why a connection cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The connection began with other bytes than a handshake.
    #[error("not a client of XRootD")]
    Handshake,
    /// The length of a request is negative.
    #[error("the length of a request is negative: {0}")]
    Negative(i32),
    /// A request carries too many bytes.
    #[error("a request carries {got} bytes, the limit is {max}")]
    TooLong {
        /// Bytes that it carries.
        got: usize,
        /// Maximum bytes.
        max: usize,
    },
}

/// A decoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The client's handshake.
    Handshake,
    /// A request, and the bytes that it carries.
    Request(RequestHeader, Bytes),
}

/// Splits received bytes into requests.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    greeted: bool,
    known: bool,
    broken: Option<(FrameError, Option<RequestHeader>)>,
}

impl Decoder {
    /// Makes a decoder for a new connection.
    pub fn new() -> Self {
        Decoder::default()
    }

    /// Returns the buffer for received bytes.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Permits longer requests from now on, because the client is authenticated.
    pub fn known(&mut self) {
        self.known = true;
    }

    /// Returns the maximum bytes that one request may carry now.
    fn most(&self) -> usize {
        if self.known { REQUEST_BYTES_MAX } else { LOGIN_BYTES_MAX }
    }

    /// Returns the number of bytes that were received and not taken.
    pub fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the header of the request at which decoding failed, for an error answer.
    pub fn broken_at(&self) -> Option<&RequestHeader> {
        self.broken.as_ref().and_then(|(_, header)| header.as_ref())
    }

    /// Returns the next message; none until more bytes arrive. After an error it always returns
    /// that error.
    pub fn frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some((error, _)) = &self.broken {
            return Err(*error);
        }
        let taken = self.take();
        if let Err(error) = &taken {
            let header = self.buffer.first_chunk().map(RequestHeader::read);
            self.broken = Some((*error, header.filter(|_| self.greeted)));
        }
        taken
    }

    fn take(&mut self) -> Result<Option<Frame>, FrameError> {
        if !self.greeted {
            let come = self.buffer.len().min(HANDSHAKE_BYTES);
            // Bytes of another protocol are refused at the first difference.
            if self.buffer[..come] != HANDSHAKE[..come] {
                return Err(FrameError::Handshake);
            }
            if come < HANDSHAKE_BYTES {
                return Ok(None);
            }
            self.buffer.advance(HANDSHAKE_BYTES);
            self.greeted = true;
            return Ok(Some(Frame::Handshake));
        }
        let Some(header) = self.buffer.first_chunk::<REQUEST_HEADER_BYTES>() else { return Ok(None) };
        let header = RequestHeader::read(header);
        let bytes = usize::try_from(header.bytes).map_err(|_| FrameError::Negative(header.bytes))?;
        let max = self.most();
        if bytes > max {
            return Err(FrameError::TooLong { got: bytes, max });
        }
        if self.buffer.len() < REQUEST_HEADER_BYTES + bytes {
            return Ok(None);
        }
        self.buffer.advance(REQUEST_HEADER_BYTES);
        let carried = self.buffer.split_to(bytes).freeze();
        Ok(Some(Frame::Request(header, carried)))
    }
}
