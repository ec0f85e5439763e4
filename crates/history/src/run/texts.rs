//! Distinct texts of a chunk, in blocks: a page reads only the blocks that it needs.
//!
//! The texts are in the order of their first use. Adjacent rows therefore share blocks, even if all
//! texts differ. A block is packed with zstd. Unpacked it has for each text its length, a varint, and
//! then all texts.

use exacat_model::codec::{Reader, put_varint};

use crate::row::TEXT_BYTES_MAX;

/// Bytes of texts at which a block ends.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// Bytes that a block can have unpacked: texts up to the limit, one more, and their lengths.
const BLOCK_RAW_MAX: usize = BLOCK_BYTES + TEXT_BYTES_MAX + BLOCK_TEXTS_MAX * 4;
/// Texts of a block.
const BLOCK_TEXTS_MAX: usize = 16 << 10;
/// Level of zstd: the texts of a chunk are few or large.
const LEVEL: i32 = 3;

/// A packed block.
pub(super) struct PackedBlock {
    pub texts: u32,
    pub raw: u32,
    pub bytes: Vec<u8>,
}

/// Packs the distinct texts of a column. None if zstd fails.
pub(super) fn pack<'t>(texts: impl Iterator<Item = &'t str>) -> Option<Vec<PackedBlock>> {
    let (mut blocks, mut lengths, mut content) = (Vec::new(), Vec::new(), Vec::new());
    let mut count = 0;
    let mut finish = |count: &mut u32, lengths: &mut Vec<u8>, content: &mut Vec<u8>| {
        lengths.append(content);
        let bytes = zstd::bulk::compress(lengths, LEVEL).ok()?;
        blocks.push(PackedBlock { texts: *count, raw: lengths.len() as u32, bytes });
        lengths.clear();
        *count = 0;
        Some(())
    };
    for text in texts {
        put_varint(&mut lengths, text.len() as u64);
        content.extend_from_slice(text.as_bytes());
        count += 1;
        if content.len() >= BLOCK_BYTES || count as usize == BLOCK_TEXTS_MAX {
            finish(&mut count, &mut lengths, &mut content)?;
        }
    }
    if count > 0 {
        finish(&mut count, &mut lengths, &mut content)?;
    }
    Some(blocks)
}

/// An unpacked block.
pub(super) struct Block {
    texts: String,
    ends: Vec<u32>,
}

impl Block {
    /// Unpacks a block of so many texts and bytes; none if it is damaged.
    pub(super) fn unpack(packed: &[u8], texts: u32, raw: u32) -> Option<Self> {
        let (texts, raw) = (texts as usize, raw as usize);
        if raw > BLOCK_RAW_MAX || texts > BLOCK_TEXTS_MAX {
            return None;
        }
        let bytes = zstd::bulk::decompress(packed, raw).ok()?;
        if bytes.len() != raw {
            return None;
        }
        let mut reader = Reader::new(&bytes);
        let (mut ends, mut end) = (Vec::with_capacity(texts), 0u32);
        for _ in 0..texts {
            end = u32::try_from(reader.varint().ok()?).ok()?.checked_add(end)?;
            ends.push(end);
        }
        let texts = std::str::from_utf8(reader.rest()).ok()?.to_owned();
        let fits =
            texts.len() == end as usize && ends.iter().all(|end| texts.is_char_boundary(*end as usize));
        fits.then_some(Block { texts, ends })
    }

    /// Returns a text by its place.
    pub(super) fn get(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)? as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        self.texts.get(start..end)
    }
}
