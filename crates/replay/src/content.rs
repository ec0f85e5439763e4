//! Content of files that exist by name and size only: bytes that follow from both, and their sums.
//!
//! A file is a sequence of blocks of 1 MiB. Each begins with the hash of the file's name and the number of
//! the block, 8 bytes each, little-endian. The rest is the same in all blocks of all files. So a cache that
//! gives the bytes of another place or file is found out, and an Adler-32 takes microseconds.

use exacat_model::checksum::adler32_of_both;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a block.
pub const BLOCK: usize = 1 << 20;
/// Bytes of the begin of a block.
pub const HEAD: usize = 16;

/// Blocks that are summed together: those whose numbers differ in the lowest byte only.
const RUN: u64 = 256;
/// Place of that byte.
const LOWEST: usize = 8;
/// Modulus of Adler-32.
const MODULUS: u64 = 65_521;

/// Content of files.
pub struct Content {
    /// A block; its begin is that of no file.
    block: Box<[u8]>,
    /// Sum of the rest of a block.
    rest: u32,
    /// Sum of a run whose begins have zeros in all bytes but the lowest of the number.
    run: u32,
    /// Times that each byte of the begins counts in the upper half of the sum of a run.
    weights: [u64; HEAD],
}

impl Default for Content {
    fn default() -> Self {
        let mut block = vec![0; BLOCK];
        let mut random = fastrand::Rng::with_seed(0x6578_6163_6174);
        random.fill(&mut block[HEAD..]);
        let rest = simd_adler32::adler32(&&block[HEAD..]);
        let mut content = Content { block: block.into(), rest, run: 1, weights: [0; HEAD] };
        content.run = (0..RUN).fold(1, |sum, number| {
            let begin = simd_adler32::adler32(&&head(0, number)[..]);
            content.with_block(sum, begin)
        });
        for (place, weight) in content.weights.iter_mut().enumerate() {
            let behind = |block: u64| (RUN - block) * BLOCK as u64 - place as u64;
            *weight = (0..RUN).map(behind).sum::<u64>() % MODULUS;
        }
        content
    }
}

/// Name of a file, as its content has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentName(u64);

impl ContentName {
    /// Returns that of a name.
    pub fn of(name: &str) -> Self {
        ContentName(xxh3_64(name.as_bytes()))
    }

    /// Returns a number that follows from the name, to draw lots for a file.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the name of another content: the first byte of each block differs.
    pub fn other(self) -> Self {
        ContentName(self.0 ^ 0xff)
    }

    /// Returns the begin of a block.
    pub fn head(self, number: u64) -> [u8; HEAD] {
        head(self.0, number)
    }
}

fn head(name: u64, number: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&name.to_le_bytes());
    head[8..].copy_from_slice(&number.to_le_bytes());
    head
}

impl Content {
    /// Returns a block. Its first [`HEAD`] bytes are of no file: [`ContentName::head`] has those.
    pub fn block(&self) -> &[u8] {
        &self.block
    }

    /// Fills a buffer with the bytes of a file from a place on. Those behind its end are not defined.
    pub fn fill(&self, name: &str, offset: u64, into: &mut [u8]) {
        let (name, mut at, mut filled) = (xxh3_64(name.as_bytes()), offset, 0);
        while filled < into.len() {
            let number = at / BLOCK as u64;
            let within = (at % BLOCK as u64) as usize;
            let head = head(name, number);
            let count = match within < HEAD {
                true => {
                    let count = (HEAD - within).min(into.len() - filled);
                    into[filled..filled + count].copy_from_slice(&head[within..within + count]);
                    count
                }
                false => {
                    let count = (BLOCK - within).min(into.len() - filled);
                    into[filled..filled + count].copy_from_slice(&self.block[within..within + count]);
                    count
                }
            };
            filled += count;
            at += count as u64;
        }
    }

    /// Returns the sum of a file with another block, from the sum of that block's begin.
    fn with_block(&self, sum: u32, begin: u32) -> u32 {
        let block = adler32_of_both(begin, self.rest, (BLOCK - HEAD) as u64);
        adler32_of_both(sum, block, BLOCK as u64)
    }

    /// Returns the sum of a run of blocks: each byte of a begin that is not zero adds its share.
    fn of_run(&self, name: u64, first: u64) -> u32 {
        let (mut low, mut high) = (u64::from(self.run & 0xffff), u64::from(self.run >> 16));
        for (place, byte) in head(name, first).into_iter().enumerate().filter(|(place, _)| *place != LOWEST) {
            low += u64::from(byte) * RUN;
            high += u64::from(byte) * self.weights[place];
        }
        (((high % MODULUS) << 16) | (low % MODULUS)) as u32
    }

    /// Returns the Adler-32 of a file.
    pub fn adler32(&self, name: &str, size: u64) -> u32 {
        let hash = xxh3_64(name.as_bytes());
        let (mut sum, mut number) = (1, 0);
        let whole = size / BLOCK as u64;
        while number + RUN <= whole {
            sum = adler32_of_both(sum, self.of_run(hash, number), RUN * BLOCK as u64);
            number += RUN;
        }
        while number < whole {
            sum = self.with_block(sum, simd_adler32::adler32(&&head(hash, number)[..]));
            number += 1;
        }
        let left = (size % BLOCK as u64) as usize;
        let head = head(hash, number);
        let begin = left.min(HEAD);
        sum = adler32_of_both(sum, simd_adler32::adler32(&&head[..begin]), begin as u64);
        let rest = &self.block[HEAD..left.max(HEAD)];
        adler32_of_both(sum, simd_adler32::adler32(&rest), rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: the sum of a file is that of its bytes, and pieces of it are the same from anywhere.
    #[test]
    fn sums_are_those_of_the_bytes() {
        let content = Content::default();
        for size in [0, 1, 15, 16, 17, 1000, BLOCK, BLOCK + 1, BLOCK + 16, 3 * BLOCK - 1, 3 * BLOCK + 70_000]
        {
            let mut bytes = vec![0; size];
            content.fill("/a/b", 0, &mut bytes);
            let expected = simd_adler32::adler32(&bytes.as_slice());
            assert_eq!(content.adler32("/a/b", size as u64), expected, "{size}");
            for (offset, length) in [(0, 5), (7, 20), (BLOCK - 3, 40), (BLOCK + 5, 2 * BLOCK)] {
                let mut piece = vec![0; length];
                content.fill("/a/b", offset as u64, &mut piece);
                let end = size.min(offset + length);
                if offset < end {
                    assert_eq!(piece[..end - offset], bytes[offset..end], "{size} {offset}");
                }
            }
        }
    }

    /// Property: blocks that are summed together have the sum that they have one by one.
    #[test]
    fn runs_are_the_sums_of_their_blocks() {
        let content = Content::default();
        for blocks in [255, 256, 257, 700, 70_000] {
            let hash = xxh3_64(b"/a/b");
            let one_by_one = (0..blocks).fold(1, |sum, number| {
                content.with_block(sum, simd_adler32::adler32(&&head(hash, number)[..]))
            });
            assert_eq!(content.adler32("/a/b", blocks * BLOCK as u64), one_by_one, "{blocks}");
        }
    }

    /// Property: heads and the block are the bytes of a file, and the other content has another sum.
    #[test]
    fn a_file_is_heads_and_blocks() {
        let (content, name) = (Content::default(), ContentName::of("/a/b"));
        let mut bytes = vec![0; 2 * BLOCK];
        content.fill("/a/b", 0, &mut bytes);
        assert_eq!(bytes[BLOCK..BLOCK + HEAD], name.head(1));
        assert_eq!(bytes[BLOCK + HEAD..], content.block()[HEAD..]);
        let right = simd_adler32::adler32(&bytes.as_slice());
        bytes[..HEAD].copy_from_slice(&name.other().head(0));
        bytes[BLOCK..BLOCK + HEAD].copy_from_slice(&name.other().head(1));
        assert_ne!(simd_adler32::adler32(&bytes.as_slice()), right);
        assert_ne!(name.head(0)[0], name.other().head(0)[0]);
    }

    #[test]
    fn files_and_blocks_differ() {
        let content = Content::default();
        let of = |name: &str, offset: u64| {
            let mut bytes = [0; 64];
            content.fill(name, offset, &mut bytes);
            bytes
        };
        assert_ne!(of("/a", 0), of("/b", 0));
        assert_ne!(of("/a", 0), of("/a", BLOCK as u64));
        assert_ne!(content.adler32("/a", 1 << 40), content.adler32("/b", 1 << 40));
    }
}
