//! Splits received bytes into frames, and leaves the bytes of chunks to the caller.

use bytes::{Buf, BytesMut};

use super::chunk::ChunkHead;
use super::frame::{Frame, FrameError, FrameType};
use super::limits::{CHUNK_HEAD_BYTES, HEADER_BYTES};

/// One message, as far as the decoder reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A whole frame.
    Frame(Frame),
    /// The head of a chunk. Its bytes follow: see [`FrameDecoder::chunk_bytes_left`].
    Chunk(ChunkHead),
}

/// Splits bytes into frames. Accepts them in any pieces; holds at most one incomplete frame that is no
/// chunk, or what one read returned.
///
/// After an error it always returns that error, because the start of the next frame is lost.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: BytesMut,
    /// Greeting that comes first, until it came.
    greeting: Option<FrameType>,
    /// Bytes of the present chunk that the caller has not taken.
    chunk_left: usize,
    broken: Option<FrameError>,
}

impl FrameDecoder {
    /// Makes a decoder for a connection that another peer began: its first frame is a hello.
    pub fn of_accepted() -> Self {
        FrameDecoder::new(FrameType::Hello)
    }

    /// Makes a decoder for a connection that this side began: the first frame is a hello-ack, or a
    /// refusal.
    pub fn of_begun() -> Self {
        FrameDecoder::new(FrameType::HelloAck)
    }

    fn new(greeting: FrameType) -> Self {
        FrameDecoder { buffer: BytesMut::new(), greeting: Some(greeting), chunk_left: 0, broken: None }
    }

    /// Copies bytes into the buffer.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the buffer for direct reads. The caller reserves space and appends received bytes, but
    /// never removes any. It takes out all frames before it reads more, or the buffer grows.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Returns the number of bytes of the present chunk that the caller has to take before the next
    /// message.
    pub fn chunk_bytes_left(&self) -> usize {
        self.chunk_left
    }

    /// Moves bytes of the present chunk from the buffer to the start of `into`. Returns their number,
    /// which is 0 once the buffer is empty.
    pub fn take_chunk_bytes(&mut self, into: &mut [u8]) -> usize {
        let count = self.chunk_left.min(self.buffer.len()).min(into.len());
        into[..count].copy_from_slice(&self.buffer[..count]);
        self.buffer.advance(count);
        self.chunk_left -= count;
        count
    }

    /// Notes that the caller has read so many bytes of the present chunk past the buffer, which must be
    /// empty.
    pub fn skip_chunk_bytes(&mut self, count: usize) {
        debug_assert!(self.buffer.is_empty() && count <= self.chunk_left, "bytes in their order");
        self.chunk_left = self.chunk_left.saturating_sub(count);
    }

    /// Returns the next message once it is there. None while bytes of a chunk are left to take.
    pub fn next_message(&mut self) -> Result<Option<Received>, FrameError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.chunk_left > 0 {
            return Ok(None);
        }
        self.cut().inspect_err(|error| self.broken = Some(error.clone()))
    }

    fn cut(&mut self) -> Result<Option<Received>, FrameError> {
        let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [length @ .., number] = *header;
        let counted = u32::from_le_bytes(length);
        let frame_type = FrameType::from_number(number).ok_or(FrameError::UnknownType { number })?;
        let is_in_turn = match self.greeting {
            Some(FrameType::HelloAck) => matches!(frame_type, FrameType::HelloAck | FrameType::Refusal),
            Some(greeting) => frame_type == greeting,
            None => !matches!(frame_type, FrameType::Hello | FrameType::HelloAck),
        };
        if !is_in_turn {
            return Err(FrameError::OutOfTurn { frame_type });
        }
        let wrong_length = FrameError::Length { frame_type, counted };
        let body_bytes = (counted as usize).checked_sub(1).ok_or(wrong_length.clone())?;
        if frame_type == FrameType::Chunk {
            return self.cut_chunk(body_bytes, wrong_length);
        }
        if body_bytes > frame_type.body_bytes_max() {
            return Err(wrong_length);
        }
        if self.buffer.len() < HEADER_BYTES + body_bytes {
            return Ok(None);
        }
        let frame = Frame::decode(frame_type, &self.buffer[HEADER_BYTES..HEADER_BYTES + body_bytes])?;
        self.buffer.advance(HEADER_BYTES + body_bytes);
        self.greeting = None;
        Ok(Some(Received::Frame(frame)))
    }

    fn cut_chunk(
        &mut self,
        body_bytes: usize,
        wrong_length: FrameError,
    ) -> Result<Option<Received>, FrameError> {
        let head = &self.buffer[HEADER_BYTES..];
        let Some(head) = head.first_chunk::<CHUNK_HEAD_BYTES>() else {
            // A chunk without room for its head is not awaited.
            return if body_bytes < CHUNK_HEAD_BYTES { Err(wrong_length) } else { Ok(None) };
        };
        let head = ChunkHead::decode(head)?;
        if body_bytes != CHUNK_HEAD_BYTES + head.length as usize {
            return Err(wrong_length);
        }
        self.buffer.advance(HEADER_BYTES + CHUNK_HEAD_BYTES);
        self.chunk_left = head.length as usize;
        Ok(Some(Received::Chunk(head)))
    }

    /// Says whether the connection may end here: no frame is incomplete.
    pub fn is_between_frames(&self) -> bool {
        self.broken.is_none() && self.chunk_left == 0 && self.buffer.is_empty()
    }
}
