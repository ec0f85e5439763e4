//! Digests of the blocks of a file, so that a read of some rows notices damage.
//!
//! Parquet pages have no checksums here. The end of a file, its indexes and footer, has the digests of the
//! blocks before it, and the history has the digest of the end.

use std::fmt::Write;

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a block. They are read at once, too.
pub(crate) const BLOCK_BYTES: u64 = 256 << 10;
/// Hexadecimal digits of the digest of a block.
const DIGITS: usize = 16;

/// Digests of the blocks before the end of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BlockDigests {
    /// Byte at which the end begins.
    pub end: u64,
    digests: Vec<u64>,
}

impl BlockDigests {
    /// Takes the bytes before the end.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let digests = bytes.chunks(BLOCK_BYTES as usize).map(xxh3_64).collect();
        BlockDigests { end: bytes.len() as u64, digests }
    }

    /// Writes them as text: the length, a colon, and 16 hexadecimal digits for each block.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}:", self.end);
        for digest in &self.digests {
            let _never_fails = write!(text, "{digest:016x}");
        }
        text
    }

    /// Reads the text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (end, digests) = text.split_once(':')?;
        let end: u64 = end.parse().ok()?;
        if digests.len() as u64 != end.div_ceil(BLOCK_BYTES).checked_mul(DIGITS as u64)? {
            return None;
        }
        let digest = |digits: &[u8]| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let digests = digests.as_bytes().chunks(DIGITS).map(digest).collect::<Option<_>>()?;
        Some(BlockDigests { end, digests })
    }

    /// Returns the first block of a whole file that is not as it was written.
    pub(crate) fn damaged_block(&self, file: &[u8]) -> Option<u64> {
        let is_short = (file.len() as u64) < self.end;
        let mut blocks = (0..).zip(file.chunks(BLOCK_BYTES as usize));
        let damaged = blocks.find(|(number, block)| !self.has(*number, block)).map(|(number, _)| number);
        damaged.or(is_short.then_some(file.len() as u64 / BLOCK_BYTES))
    }

    /// Says whether a block is as it was written. Bytes from the end on do not count.
    pub(crate) fn has(&self, number: u64, block: &[u8]) -> bool {
        let start = number * BLOCK_BYTES;
        let length = self.end.saturating_sub(start).min(block.len() as u64) as usize;
        let wanted = usize::try_from(number).ok().and_then(|number| self.digests.get(number));
        length == 0 || wanted.is_some_and(|wanted| xxh3_64(&block[..length]) == *wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte before the end counts, and none after it; texts of another form are none.
    #[test]
    fn each_byte_before_the_end_counts() {
        let block = BLOCK_BYTES as usize;
        for length in [0, 1, block - 1, block, block + 1, 3 * block + 7] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
            let digests = BlockDigests::of(&bytes);
            assert_eq!(BlockDigests::parse(&digests.text()).unwrap(), digests);
            let mut file = [&bytes[..], &[9; 100]].concat();
            assert_eq!(digests.damaged_block(&file), None, "{length}");
            assert_eq!(digests.damaged_block(&bytes[..length / 2]).is_some(), length > 0, "{length}, cut");
            for at in [0, length / 2, length.saturating_sub(1), length, length + 99] {
                file[at] ^= 4;
                let damaged = (at < length).then_some((at / block) as u64);
                assert_eq!(digests.damaged_block(&file), damaged, "byte {at} of {length}");
                file[at] ^= 4;
            }
        }
        let text = BlockDigests::of(&[1]).text();
        for wrong in [
            "",
            ":",
            "1",
            "1:",
            "0:00",
            "2x:",
            "1:000000000000000g",
            &text[..text.len() - 1],
            "18446744073709551615:",
        ] {
            assert_eq!(BlockDigests::parse(wrong), None, "{wrong}");
        }
        assert!(BlockDigests::parse(&format!("{}:{}", BLOCK_BYTES + 1, "0".repeat(16))).is_none());
    }
}
