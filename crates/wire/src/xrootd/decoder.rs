//! Bytes in, requests out: a connection feeds what it reads, in whatever pieces.

use bytes::{Buf, Bytes, BytesMut};

use super::limits::{HANDSHAKE_BYTES, LOGIN_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES};
use super::request::{HANDSHAKE, RequestHeader};

/// Why no more can be read of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It began with something else.
    #[error("not a client of XRootD")]
    Handshake,
    /// A request carries less than nothing.
    #[error("the length of a request is negative: {0}")]
    Negative(i32),
    /// A request carries more than is read.
    #[error("a request carries {got} bytes, the limit is {max}")]
    TooLong {
        /// So many.
        got: usize,
        /// At most.
        max: usize,
    },
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The client's first words.
    Handshake,
    /// A request, and what it carries.
    Request(RequestHeader, Bytes),
}

/// Takes requests out of what was read.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    greeted: bool,
    known: bool,
    broken: Option<(FrameError, Option<RequestHeader>)>,
}

impl Decoder {
    /// One that has read nothing.
    pub fn new() -> Self {
        Decoder::default()
    }

    /// Where to put what is read.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// From now on longer requests are read: it is known who sends them.
    pub fn known(&mut self) {
        self.known = true;
    }

    /// Bytes that one request may carry now.
    fn most(&self) -> usize {
        if self.known { REQUEST_BYTES_MAX } else { LOGIN_BYTES_MAX }
    }

    /// Bytes that were read and not taken.
    pub fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// The header of the request at which reading ended, for who wants to say so.
    pub fn broken_at(&self) -> Option<&RequestHeader> {
        self.broken.as_ref().and_then(|(_, header)| header.as_ref())
    }

    /// The next; none if more has to be read first. After an error there is nothing but that error.
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
            // What is nobody's handshake is known as soon as it differs.
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
