//! Chunks: a head of fixed layout, and bytes of one file.

use super::frame::{FrameError, FrameType};
use super::ids::{FileId, WriterId};
use super::limits::{BLOCK_BYTES, CHUNK_BYTES_MAX, CHUNK_HEAD_BYTES, FILE_BYTES_MAX, HEADER_BYTES};

/// Head of a chunk. It names everything about its bytes, so that writing it twice has one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// Producer of the chunk.
    pub writer: WriterId,
    /// File of the chunk.
    pub file: FileId,
    /// Place in the sequence of the file's chunks, from 0.
    pub sequence: u64,
    /// Place of the first byte in the file.
    pub offset: u64,
    /// Stream of the producer, as in the frame that opened the file.
    pub stream: u32,
    /// Epoch of the part, as in the frame that opened the file.
    pub epoch: u32,
    /// Number of bytes.
    pub length: u32,
    /// Number of events that end in these bytes.
    pub events: u32,
    /// CRC-32C of the bytes.
    pub crc32c: u32,
    /// Adler-32 of the bytes.
    pub adler32: u32,
}

fn word(bytes: &[u8; CHUNK_HEAD_BYTES], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn long(bytes: &[u8; CHUNK_HEAD_BYTES], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

fn id(bytes: &[u8; CHUNK_HEAD_BYTES], at: usize) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[at..at + 16]);
    id
}

/// Bytes of the head that its checksum covers.
const CHECKED_BYTES: usize = CHUNK_HEAD_BYTES - 4;

impl ChunkHead {
    /// Returns the place behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    /// Returns the number of the block of the file that has the chunk.
    pub fn block(&self) -> u64 {
        self.offset / BLOCK_BYTES as u64
    }

    /// Encodes the head.
    pub fn encode(&self) -> [u8; CHUNK_HEAD_BYTES] {
        let mut bytes = [0; CHUNK_HEAD_BYTES];
        bytes[..16].copy_from_slice(&self.writer.0);
        bytes[16..32].copy_from_slice(&self.file.0);
        bytes[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.offset.to_le_bytes());
        let words = [self.stream, self.epoch, self.length, self.events, self.crc32c, self.adler32];
        for (word, at) in words.iter().zip((48..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let sum = crc32c::crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes and checks a head.
    pub fn decode(bytes: &[u8; CHUNK_HEAD_BYTES]) -> Result<Self, FrameError> {
        let wrong = |reason| FrameError::Body { frame_type: FrameType::Chunk, reason };
        if word(bytes, CHECKED_BYTES) != crc32c::crc32c(&bytes[..CHECKED_BYTES]) {
            return Err(wrong("the head of a chunk fails its checksum"));
        }
        let head = ChunkHead {
            writer: WriterId(id(bytes, 0)),
            file: FileId(id(bytes, 16)),
            sequence: long(bytes, 32),
            offset: long(bytes, 40),
            stream: word(bytes, 48),
            epoch: word(bytes, 52),
            length: word(bytes, 56),
            events: word(bytes, 60),
            crc32c: word(bytes, 64),
            adler32: word(bytes, 68),
        };
        if head.length == 0 || head.length as usize > CHUNK_BYTES_MAX {
            return Err(wrong("the length of a chunk is not 1 byte to 1 MiB"));
        }
        if head.offset.checked_add(u64::from(head.length)).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(wrong("a chunk ends beyond the largest file"));
        }
        if (head.end() - 1) / BLOCK_BYTES as u64 != head.block() {
            return Err(wrong("a chunk lies in two blocks of its file"));
        }
        if head.events > head.length {
            return Err(wrong("a chunk has more events than bytes"));
        }
        if head.epoch == 0 {
            return Err(wrong("an epoch is at least 1"));
        }
        Ok(head)
    }
}

/// Returns all of a chunk's frame that comes before its bytes.
pub fn chunk_header(head: &ChunkHead) -> [u8; HEADER_BYTES + CHUNK_HEAD_BYTES] {
    let mut bytes = [0; HEADER_BYTES + CHUNK_HEAD_BYTES];
    let counted = 1 + CHUNK_HEAD_BYTES as u32 + head.length;
    bytes[..4].copy_from_slice(&counted.to_le_bytes());
    bytes[4] = FrameType::Chunk as u8;
    bytes[HEADER_BYTES..].copy_from_slice(&head.encode());
    bytes
}

/// Appends the frame of a chunk. The head must describe the bytes.
pub fn encode_chunk(out: &mut Vec<u8>, head: &ChunkHead, bytes: &[u8]) {
    debug_assert_eq!(head.length as usize, bytes.len(), "the head describes the bytes");
    out.extend_from_slice(&chunk_header(head));
    out.extend_from_slice(bytes);
}
