//! Parts of files on several services: questions about them, reports, and the certificate.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};

use super::fields::epoch;
use super::ids::{FileId, ServiceId};
use super::limits::{CHUNK_BYTES_MAX, FILE_BYTES_MAX, PARTS_MAX, REPORT_CHUNKS_MAX};
use crate::bounded::list;

/// A part of a file, and the service that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOwner {
    /// Epoch of the part.
    pub epoch: u32,
    /// The service.
    pub service: ServiceId,
}

impl Encode for PartOwner {
    fn encode(&self, out: &mut Vec<u8>) {
        self.epoch.encode(out);
        self.service.encode(out);
    }
}

impl Decode for PartOwner {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(PartOwner { epoch: epoch(reader)?, service: Decode::decode(reader)? })
    }
}

/// Durable chunk of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Place in the sequence of the file's chunks.
    pub sequence: u64,
    /// Place of the first byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
    /// Number of events that end in these bytes.
    pub events: u32,
    /// CRC-32C of the bytes.
    pub crc32c: u32,
    /// Adler-32 of the bytes.
    pub adler32: u32,
}

impl ChunkRecord {
    /// Returns the place behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

impl Encode for ChunkRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.sequence.encode(out);
        self.offset.encode(out);
        self.length.encode(out);
        self.events.encode(out);
        self.crc32c.to_le_bytes().encode(out);
        self.adler32.to_le_bytes().encode(out);
    }
}

impl Decode for ChunkRecord {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let chunk = ChunkRecord {
            sequence: Decode::decode(reader)?,
            offset: Decode::decode(reader)?,
            length: Decode::decode(reader)?,
            events: Decode::decode(reader)?,
            crc32c: u32::from_le_bytes(Decode::decode(reader)?),
            adler32: u32::from_le_bytes(Decode::decode(reader)?),
        };
        let end = chunk.offset.checked_add(u64::from(chunk.length));
        let is_possible = chunk.length > 0
            && chunk.length as usize <= CHUNK_BYTES_MAX
            && chunk.events <= chunk.length
            && end.is_some_and(|end| end <= FILE_BYTES_MAX);
        if is_possible { Ok(chunk) } else { Err(reader.error("a chunk that cannot be")) }
    }
}

/// Question of a service about a part on another. It ends the epoch there: the service that is asked
/// refuses all further chunks of the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartQuery {
    /// The file.
    pub file: FileId,
    /// Epoch of the part.
    pub epoch: u32,
    /// First chunk to report, by its place among the chunks of the part.
    pub from: u64,
}

impl Encode for PartQuery {
    fn encode(&self, out: &mut Vec<u8>) {
        self.file.encode(out);
        self.epoch.encode(out);
        self.from.encode(out);
    }
}

impl Decode for PartQuery {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(PartQuery { file: Decode::decode(reader)?, epoch: epoch(reader)?, from: Decode::decode(reader)? })
    }
}

/// State of a part on its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PartState {
    /// The service has no such part.
    Unknown = 1,
    /// Bytes are still on their way to the disk: ask again.
    Open = 2,
    /// Nothing is added to the part any more, and the chunks are all it has.
    Sealed = 3,
    /// The file is certified.
    Certified = 4,
    /// The part is lost, or was given up.
    Failed = 5,
}

impl PartState {
    fn from_number(number: u8) -> Option<Self> {
        use PartState::{Certified, Failed, Open, Sealed, Unknown};
        [Unknown, Open, Sealed, Certified, Failed].into_iter().find(|state| *state as u8 == number)
    }
}

/// Answer to a question about a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartReport {
    /// The file.
    pub file: FileId,
    /// Epoch of the part.
    pub epoch: u32,
    /// State of the part.
    pub state: PartState,
    /// First chunk reported, as in the question.
    pub from: u64,
    /// Durable chunks from that one on, in the order of the part. Only of a part that is sealed.
    pub chunks: Vec<ChunkRecord>,
    /// True if further chunks follow.
    pub more: bool,
}

impl Encode for PartReport {
    fn encode(&self, out: &mut Vec<u8>) {
        self.file.encode(out);
        self.epoch.encode(out);
        out.push(self.state as u8);
        self.from.encode(out);
        self.chunks.encode(out);
        self.more.encode(out);
    }
}

impl Decode for PartReport {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(PartReport {
            file: Decode::decode(reader)?,
            epoch: epoch(reader)?,
            state: PartState::from_number(reader.byte()?)
                .ok_or_else(|| reader.error("unknown state of a part"))?,
            from: Decode::decode(reader)?,
            chunks: list(reader, REPORT_CHUNKS_MAX, "a report has too many chunks")?,
            more: Decode::decode(reader)?,
        })
    }
}

/// Share of a part in a certified file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartShare {
    /// The part.
    pub part: PartOwner,
    /// Bytes that the file takes from it.
    pub bytes: u64,
}

impl Encode for PartShare {
    fn encode(&self, out: &mut Vec<u8>) {
        self.part.encode(out);
        self.bytes.encode(out);
    }
}

impl Decode for PartShare {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(PartShare { part: Decode::decode(reader)?, bytes: Decode::decode(reader)? })
    }
}

/// News that a file is in the catalogue: to its producer, and to the services with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// The file.
    pub file: FileId,
    /// Bytes of the file.
    pub length: u64,
    /// Number of events.
    pub events: u64,
    /// Adler-32 of all bytes.
    pub adler32: u32,
    /// Chunks that were durable in more than one part. The file has each once.
    pub duplicates: u64,
    /// Parts of the file in ascending order of their epochs.
    pub parts: Vec<PartShare>,
}

impl Encode for Certified {
    fn encode(&self, out: &mut Vec<u8>) {
        self.file.encode(out);
        self.length.encode(out);
        self.events.encode(out);
        self.adler32.to_le_bytes().encode(out);
        self.duplicates.encode(out);
        self.parts.encode(out);
    }
}

impl Decode for Certified {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Certified {
            file: Decode::decode(reader)?,
            length: Decode::decode(reader)?,
            events: Decode::decode(reader)?,
            adler32: u32::from_le_bytes(Decode::decode(reader)?),
            duplicates: Decode::decode(reader)?,
            parts: list(reader, PARTS_MAX, "a file has too many parts")?,
        })
    }
}
