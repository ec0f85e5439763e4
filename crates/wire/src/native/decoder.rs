//! Splits received bytes into whole frames.

use bytes::{Buf, BytesMut};

use super::frame::{FrameError, FrameType, RawFrame};
use super::limits::{COUNTED_HEADER_BYTES, HANDSHAKE_FRAME_BYTES_MAX, HEADER_BYTES};

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
