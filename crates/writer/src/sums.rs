//! Checksums of chunks, and the Adler-32 of a file from those of its chunks.

pub use exacat_model::checksum::adler32_of_both;
use exacat_wire::writer::ChunkHead;
use exacat_wire::writer::limits::BLOCK_BYTES;

use crate::block::Block;

/// Adler-32 of no bytes.
pub const ADLER32_OF_NOTHING: u32 = 1;

/// Returns the CRC-32C of bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Returns the Adler-32 of bytes.
pub fn adler32(bytes: &[u8]) -> u32 {
    simd_adler32::adler32(&bytes)
}

/// Sums of bytes that arrive in pieces: each piece is read once more while it is in the cache.
#[derive(Clone, Default)]
pub struct RunningSums {
    length: usize,
    crc32c: u32,
    adler32: simd_adler32::Adler32,
}

impl RunningSums {
    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        self.adler32.write(bytes);
    }

    /// Says whether the bytes were those that the head of a chunk describes.
    fn are_of(&self, head: &ChunkHead) -> bool {
        self.length == head.length as usize
            && self.crc32c == head.crc32c
            && self.adler32.finish() == head.adler32
    }
}

/// Memory with the bytes of a chunk.
#[derive(Debug)]
pub(crate) enum ChunkMemory<'a> {
    /// The bytes: they are copied.
    Bytes(&'a [u8]),
    /// A block with the bytes at their place. Its receiver has another one afterwards, if a part keeps it.
    Block(&'a mut Block),
}

/// Chunk that was compared with its checksums. Its receiver does so before it takes the lock of the service.
#[derive(Debug)]
pub struct SummedChunk<'a> {
    pub(crate) head: &'a ChunkHead,
    pub(crate) memory: ChunkMemory<'a>,
    /// True if the bytes are those that the head describes.
    pub(crate) is_whole: bool,
}

impl<'a> SummedChunk<'a> {
    /// Compares the bytes of a chunk with its head.
    pub fn new(head: &'a ChunkHead, bytes: &'a [u8]) -> Self {
        let mut sums = RunningSums::default();
        sums.add(bytes);
        SummedChunk { head, memory: ChunkMemory::Bytes(bytes), is_whole: sums.are_of(head) }
    }

    /// Compares a chunk whose bytes are in a block at their place with its head, by the sums of the bytes.
    pub fn in_block(head: &'a ChunkHead, block: &'a mut Block, sums: &RunningSums) -> Self {
        let is_whole = sums.are_of(head) && place_in_block(head).is_some();
        SummedChunk { head, memory: ChunkMemory::Block(block), is_whole }
    }
}

/// Returns the place of the bytes of a chunk in their block; none if they do not lie in one.
pub fn place_in_block(head: &ChunkHead) -> Option<std::ops::Range<usize>> {
    let start = (head.offset % BLOCK_BYTES as u64) as usize;
    let end = start + head.length as usize;
    (end <= BLOCK_BYTES).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: the sum of a file follows from those of its pieces, also of long and of empty ones.
    #[test]
    fn adler32_of_a_file_follows_from_its_pieces() {
        let mut random = fastrand::Rng::with_seed(3);
        for length in [0, 1, 5, 65_520, 65_521, 65_522, 200_003] {
            // The largest bytes exceed the modulus first.
            for bytes in [vec![255; length], (0..length).map(|_| random.u8(..)).collect()] {
                let cut = random.usize(..=length);
                let (first, second) = bytes.split_at(cut);
                let both = adler32_of_both(adler32(first), adler32(second), second.len() as u64);
                assert_eq!(both, adler32(&bytes), "{length} bytes, cut at {cut}");
            }
        }
        assert_eq!(adler32(&[]), ADLER32_OF_NOTHING);
    }

    /// Property: the sums of bytes in pieces are those of the whole.
    #[test]
    fn sums_in_pieces_are_those_of_the_whole() {
        let mut random = fastrand::Rng::with_seed(4);
        let bytes: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
        let (mut sums, mut rest) = (RunningSums::default(), &bytes[..]);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(random.usize(..=rest.len().min(5_000)));
            sums.add(piece);
            rest = behind;
        }
        assert_eq!((sums.length, sums.crc32c), (bytes.len(), crc32c(&bytes)));
        assert_eq!(sums.adler32.finish(), adler32(&bytes));
    }
}
