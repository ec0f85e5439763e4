//! Items of a volume's index: what the log says about parts and files. `docs/internals/writer-volume.md`
//! has every byte.

use exacat_model::canonical_enum;
use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_wire::writer::{ChunkRecord, Close, FileId};

use crate::certified::CertifiedRecord;
use crate::origin::{PartKey, PartOrigin};

/// Stage of a file, as one of its services knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileStage {
    /// Its producer has not closed it here.
    Open = 1,
    /// Closed; not certified yet, or on another service.
    Closed = 2,
    /// In the catalogue.
    Certified = 3,
    /// Copied to another storage element.
    Staged = 4,
    /// Its bytes here are being removed, or gone.
    Removed = 5,
    /// It will never be certified, for a reason.
    Failed = 6,
}

canonical_enum!(FileStage { 1 => Open, 2 => Closed, 3 => Certified, 4 => Staged, 5 => Removed, 6 => Failed });

/// Reason why nothing is added to a part any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedBy {
    /// It is whole, and its chunks are beside it.
    Order,
    /// A write or sync failed, or its bytes could not be sealed. The durable chunks are good.
    Fault,
    /// Durable bytes are missing from the disk.
    Loss,
}

canonical_enum!(SealedBy { 1 => Order, 2 => Fault, 3 => Loss });

/// One item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A part begins.
    Opened {
        /// The part.
        part: PartKey,
        /// Its producer and content.
        origin: PartOrigin,
    },
    /// Chunks of a part are durable.
    Durable {
        /// The part.
        part: PartKey,
        /// The chunks, behind all earlier ones.
        chunks: Vec<ChunkRecord>,
    },
    /// Nothing is added to a part any more.
    Sealed {
        /// The part.
        part: PartKey,
        /// Reason.
        by: SealedBy,
    },
    /// The producer has closed a file.
    Closed(Close),
    /// A file has reached a stage.
    Stage {
        /// The file.
        file: FileId,
        /// The stage.
        stage: FileStage,
        /// Reason, for a person; empty if there is none.
        reason: String,
    },
    /// A file is in the catalogue. Its parts here leave the index.
    Certified(CertifiedRecord),
    /// A removed file leaves the index.
    Forgotten(FileId),
}

impl Encode for Item {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Item::Opened { part, origin } => {
                out.push(1);
                part.encode(out);
                origin.encode(out);
            }
            Item::Durable { part, chunks } => {
                out.push(2);
                part.encode(out);
                chunks.encode(out);
            }
            Item::Sealed { part, by } => {
                out.push(3);
                part.encode(out);
                by.encode(out);
            }
            Item::Closed(close) => {
                out.push(4);
                close.encode(out);
            }
            Item::Stage { file, stage, reason } => {
                out.push(5);
                file.encode(out);
                stage.encode(out);
                reason.encode(out);
            }
            Item::Certified(record) => {
                out.push(6);
                out.extend_from_slice(record.bytes());
            }
            Item::Forgotten(file) => {
                out.push(7);
                file.encode(out);
            }
        }
    }
}

impl Decode for Item {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.byte()? {
            1 => Item::Opened { part: Decode::decode(reader)?, origin: Decode::decode(reader)? },
            2 => Item::Durable { part: Decode::decode(reader)?, chunks: Decode::decode(reader)? },
            3 => Item::Sealed { part: Decode::decode(reader)?, by: Decode::decode(reader)? },
            4 => Item::Closed(Decode::decode(reader)?),
            5 => Item::Stage {
                file: Decode::decode(reader)?,
                stage: Decode::decode(reader)?,
                reason: Decode::decode(reader)?,
            },
            6 => Item::Certified(CertifiedRecord::decode(reader)?),
            7 => Item::Forgotten(Decode::decode(reader)?),
            _ => return Err(reader.error("unknown kind of an item")),
        })
    }
}

/// Reads items to the end of some bytes.
pub(crate) fn read_items(bytes: &[u8]) -> Result<Vec<Item>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut items = Vec::new();
    while !reader.is_empty() {
        items.push(Item::decode(&mut reader)?);
    }
    Ok(items)
}
