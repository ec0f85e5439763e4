//! Encodes and decodes the parts of an archived segment: header, heads of blocks, index and footer.
//! Pure functions.

use exacat_disk::fixed::{part, u32_at, u64_at};
use exacat_disk::{corrupt, header};
use exacat_model::{Error, Revision, TimeMs};

use super::BLOCK_BYTES;
use crate::limits::RECORD_BYTES_MAX;
use crate::record::{ALIGNMENT, FRAME_BYTES, MARK_BYTES, Salt};
use crate::segment::{self, Header};

const MAGIC: [u8; 8] = *b"exacatLZ";
const VERSION: u16 = 1;
/// Bytes before the first block.
pub(crate) const HEADER_BYTES: usize = 128;
/// Offset of the plain segment's own header in the header.
const SEGMENT_AT: usize = 16;
/// Bytes of a block before the compressed part.
pub const BLOCK_HEAD_BYTES: usize = 40;
/// Bytes of a block's head that the index repeats.
const FIELDS_BYTES: usize = BLOCK_HEAD_BYTES - 4;
/// Bytes of the index per block.
pub(crate) const ENTRY_BYTES: usize = 8 + FIELDS_BYTES;
/// Bytes after the index.
pub(crate) const FOOTER_BYTES: usize = 40;
const END_MAGIC: [u8; 8] = *b"exacatLE";
/// Maximum bytes of records in one block: it ends with the record that fills it, and the end mark
/// behind that.
pub(crate) const PLAIN_BYTES_MAX: usize =
    BLOCK_BYTES + FRAME_BYTES + RECORD_BYTES_MAX + ALIGNMENT + MARK_BYTES;

/// Says whether this is the start of an archived segment, not of a plain one.
pub fn is_archived(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Encodes the header: the magic number, the version, and the plain segment's header unchanged.
pub fn encode_header(segment: &[u8; segment::HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
    bytes[SEGMENT_AT..SEGMENT_AT + segment::HEADER_BYTES].copy_from_slice(segment);
    header::seal(&mut bytes);
    bytes
}

/// Decodes the plain segment's header in the header.
pub(crate) fn decode_header(file: &str, bytes: &[u8]) -> Result<Header, Error> {
    if bytes.len() < HEADER_BYTES || !is_archived(bytes) {
        return Err(corrupt(file, 0, "this is no archived log segment, or it is cut off"));
    }
    header::check(file, &bytes[..HEADER_BYTES], VERSION)?;
    let rest = SEGMENT_AT + segment::HEADER_BYTES..HEADER_BYTES - 4;
    if usize::from(u16::from_le_bytes(part(bytes, 10))) != HEADER_BYTES
        || u32_at(bytes, 12) != 0
        || bytes[rest].iter().any(|byte| *byte != 0)
    {
        return Err(corrupt(file, 8, "the header is of an unknown shape"));
    }
    Header::decode(file, &bytes[SEGMENT_AT..])
}

/// A block: whole records, one after the other, compressed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Offset in the file.
    pub at: u64,
    /// Bytes of its zstd frame.
    pub packed_bytes: u32,
    /// Bytes of its records.
    pub plain_bytes: u32,
    /// Number of its records.
    pub records: u32,
    /// Revision of its first change.
    pub first_revision: Revision,
    /// Revision of its last change.
    pub last_revision: Revision,
    /// Offset of its records in the plain segment.
    pub offset: u64,
}

impl Block {
    /// Returns the offset of the next block in the file.
    pub fn end(&self) -> u64 {
        self.at + BLOCK_HEAD_BYTES as u64 + u64::from(self.packed_bytes)
    }

    /// Returns the offset of the next block's records in the plain segment.
    pub fn offset_end(&self) -> u64 {
        self.offset + u64::from(self.plain_bytes)
    }

    /// Says whether this can be the block after `before`, or the first one of the segment.
    pub fn follows(&self, before: Option<&Block>, header: &Header) -> bool {
        let (at, offset, first) = match before {
            Some(before) => (before.end(), before.offset_end(), before.last_revision.0.checked_add(1)),
            None => (HEADER_BYTES as u64, segment::HEADER_BYTES as u64, Some(header.first_revision.0)),
        };
        (self.at, self.offset, Some(self.first_revision.0)) == (at, offset, first)
            && self.last_revision >= self.first_revision
            && self.records > 0
            && self.packed_bytes > 0
            && self.packed_bytes as usize <= zstd::zstd_safe::compress_bound(PLAIN_BYTES_MAX)
            && (1..=PLAIN_BYTES_MAX).contains(&(self.plain_bytes as usize))
    }

    fn fields(&self) -> [u8; FIELDS_BYTES] {
        let mut bytes = [0; FIELDS_BYTES];
        bytes[0..4].copy_from_slice(&self.packed_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.plain_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.records.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.first_revision.0.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.last_revision.0.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    fn of(at: u64, fields: &[u8]) -> Self {
        Block {
            at,
            packed_bytes: u32_at(fields, 0),
            plain_bytes: u32_at(fields, 4),
            records: u32_at(fields, 8),
            first_revision: Revision(u64_at(fields, 12)),
            last_revision: Revision(u64_at(fields, 20)),
            offset: u64_at(fields, 28),
        }
    }

    /// Fills in the head before the compressed part. The checksum includes the salt and the offset,
    /// so that no other block of this or another segment passes for it.
    pub fn encode_head(&self, salt: Salt, block: &mut [u8]) {
        block[4..BLOCK_HEAD_BYTES].copy_from_slice(&self.fields());
        let crc = checksum(salt, self.at, &block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes the head of a block at this offset, unchecked.
    pub fn decode_head(at: u64, head: &[u8; BLOCK_HEAD_BYTES]) -> Self {
        Self::of(at, &head[4..])
    }

    /// Says whether these bytes are the whole block.
    pub fn is(&self, salt: Salt, block: &[u8]) -> bool {
        block.len() as u64 == self.end() - self.at
            && block[4..BLOCK_HEAD_BYTES] == self.fields()
            && u32_at(block, 0) == checksum(salt, self.at, &block[4..])
    }
}

fn checksum(salt: Salt, at: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&at.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Position of the index, and facts about the whole segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Offset of the index.
    pub index_at: u64,
    pub blocks: u32,
    index_checksum: u32,
    /// Time of the last record.
    pub last_time: TimeMs,
}

impl Footer {
    /// Returns the bytes of the index.
    pub(crate) fn index_bytes(&self) -> usize {
        self.blocks as usize * ENTRY_BYTES
    }

    pub(crate) fn decode(salt: Salt, bytes: &[u8; FOOTER_BYTES]) -> Option<Self> {
        let footer = Footer {
            index_at: u64_at(bytes, 0),
            blocks: u32_at(bytes, 8),
            index_checksum: u32_at(bytes, 12),
            last_time: TimeMs(u64_at(bytes, 16)),
        };
        let whole = bytes[24..32] == END_MAGIC
            && u32_at(bytes, 32) == 0
            && u32_at(bytes, FOOTER_BYTES - 4) == checksum(salt, 0, &bytes[..FOOTER_BYTES - 4]);
        whole.then_some(footer)
    }
}

/// Encodes the end of the file: the index of these blocks, and the footer.
pub fn encode_end(salt: Salt, blocks: &[Block], last_time: TimeMs, out: &mut Vec<u8>) {
    let index_at = blocks.last().map_or(HEADER_BYTES as u64, Block::end);
    let start = out.len();
    for block in blocks {
        out.extend_from_slice(&block.at.to_le_bytes());
        out.extend_from_slice(&block.fields());
    }
    let index_checksum = checksum(salt, index_at, &out[start..]);
    let start = out.len();
    out.extend_from_slice(&index_at.to_le_bytes());
    // A segment has at most some 4096 blocks: each but the last has BLOCK_BYTES or more.
    out.extend_from_slice(&(blocks.len() as u32).to_le_bytes());
    out.extend_from_slice(&index_checksum.to_le_bytes());
    out.extend_from_slice(&last_time.0.to_le_bytes());
    out.extend_from_slice(&END_MAGIC);
    out.extend_from_slice(&[0; 4]);
    let crc = checksum(salt, 0, &out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Decodes the blocks of an index; none if it is damaged, or contradicts itself.
pub(crate) fn decode_index(footer: &Footer, header: &Header, index: &[u8]) -> Option<Vec<Block>> {
    if index.len() != footer.index_bytes()
        || footer.index_checksum != checksum(header.salt, footer.index_at, index)
    {
        return None;
    }
    let mut blocks: Vec<Block> = Vec::with_capacity(footer.blocks as usize);
    for entry in index.chunks_exact(ENTRY_BYTES) {
        let block = Block::of(u64_at(entry, 0), &entry[8..]);
        if !block.follows(blocks.last(), header) {
            return None;
        }
        blocks.push(block);
    }
    (blocks.last()?.end() == footer.index_at).then_some(blocks)
}
