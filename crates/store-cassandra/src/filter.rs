//! What is certainly not in the tables: a blocked Bloom filter over the keys of rows, so that what is new is known to be new without a read.
//!
//! A key that was put in is always found again; one that was not is found now and then (at ten bits a key one in a hundred). Nothing is taken out. A key
//! sets one bit in each word of one block of 256 bits, so that a look at it is one place in memory.

use std::hash::{BuildHasher, Hash};

use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// Words of a block.
const WORDS: usize = 8;
/// Bytes of a block.
const BLOCK_BYTES: usize = WORDS * 4;
/// Bits a key should have.
const BITS_PER_KEY: u64 = 10;
/// Odd numbers: each makes another bit out of the same hash.
const SALTS: [u32; WORDS] =
    [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1, 0xd3a2_646d, 0xfd70_46c5, 0xb55a_4f09];

/// A set of keys that may have more in it than were put in.
pub(crate) struct Filter {
    blocks: Box<[[u32; WORDS]]>,
    keys: u64,
}

impl Filter {
    /// An empty one, of at most so much memory.
    pub fn new(bytes: usize) -> Self {
        Filter { blocks: vec![[0; WORDS]; bytes / BLOCK_BYTES].into_boxed_slice(), keys: 0 }
    }

    /// Keys it is made for.
    pub fn room(&self) -> u64 {
        self.blocks.len() as u64 * (BLOCK_BYTES as u64 * 8) / BITS_PER_KEY
    }

    /// Keys that were put in, about: what it could not tell from another is not counted.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    fn place(&self, key: &impl Hash) -> Option<(usize, [u32; WORDS])> {
        let hash = Xxh3DefaultBuilder::new().hash_one(key);
        // Multiplied, not divided: the upper half chooses the block.
        let block = ((hash >> 32) * self.blocks.len() as u64) >> 32;
        let lower = hash as u32;
        let bits = SALTS.map(|salt| 1 << (lower.wrapping_mul(salt) >> 27));
        (!self.blocks.is_empty()).then_some((block as usize, bits))
    }

    /// Puts a key in.
    pub fn put(&mut self, key: &impl Hash) {
        let Some((block, bits)) = self.place(key) else { return };
        if let Some(block) = self.blocks.get_mut(block) {
            let mut is_new = false;
            for (word, bit) in block.iter_mut().zip(bits) {
                is_new |= *word & bit == 0;
                *word |= bit;
            }
            self.keys += u64::from(is_new);
        }
    }

    /// May it have been put in? If not it certainly was not.
    pub fn may_have(&self, key: &impl Hash) -> bool {
        let Some((block, bits)) = self.place(key) else { return true };
        self.blocks.get(block).is_none_or(|block| block.iter().zip(bits).all(|(word, bit)| word & bit != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_and_little_else() {
        let mut filter = Filter::new(1 << 16);
        let room = filter.room();
        assert!(room > 50_000);
        for key in 0..room {
            filter.put(&key);
        }
        assert!((room * 97 / 100..=room).contains(&filter.keys()));
        assert!((0..room).all(|key| filter.may_have(&key)));
        let wrong = (room..2 * room).filter(|key| filter.may_have(key)).count() as u64;
        assert!(wrong < room / 40, "{wrong} of {room}");
    }

    #[test]
    fn one_of_no_size_knows_nothing() {
        let mut filter = Filter::new(0);
        assert!(filter.may_have(&1u8));
        filter.put(&1u8);
        assert_eq!((filter.keys(), filter.room()), (0, 0));
    }
}
