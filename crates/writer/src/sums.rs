//! Checksums of chunks, and the Adler-32 of a file from those of its chunks.

use exacat_wire::writer::ChunkHead;

/// Adler-32 of no bytes.
pub const ADLER32_OF_NOTHING: u32 = 1;

const MODULUS: u64 = 65_521;

/// Returns the CRC-32C of bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Returns the Adler-32 of bytes.
pub fn adler32(bytes: &[u8]) -> u32 {
    simd_adler32::adler32(&bytes)
}

/// Returns the Adler-32 of two pieces in a row, from those of each and the length of the second.
pub fn adler32_of_both(first: u32, second: u32, second_bytes: u64) -> u32 {
    let (sum1, weighted1) = (u64::from(first & 0xffff), u64::from(first >> 16));
    let (sum2, weighted2) = (u64::from(second & 0xffff), u64::from(second >> 16));
    // Both sums of the second piece began with 1 and 0. Its start value now is the sum of the first,
    // which counts once in each weighted term.
    let shift = (sum1 + MODULUS - 1) % MODULUS;
    let sum = (shift + sum2) % MODULUS;
    let weighted = (weighted1 + weighted2 + (second_bytes % MODULUS) * shift) % MODULUS;
    (weighted as u32) << 16 | sum as u32
}

/// Chunk that was compared with its checksums. Its receiver does so before it takes the lock of the service.
#[derive(Clone, Copy, Debug)]
pub struct SummedChunk<'a> {
    pub(crate) head: &'a ChunkHead,
    pub(crate) bytes: &'a [u8],
    /// True if the bytes are those that the head describes.
    pub(crate) is_whole: bool,
}

impl<'a> SummedChunk<'a> {
    /// Compares the bytes of a chunk with its head.
    pub fn new(head: &'a ChunkHead, bytes: &'a [u8]) -> Self {
        let is_whole = bytes.len() == head.length as usize
            && crc32c(bytes) == head.crc32c
            && adler32(bytes) == head.adler32;
        SummedChunk { head, bytes, is_whole }
    }
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
}
