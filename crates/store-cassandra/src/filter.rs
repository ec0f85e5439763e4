//! Blocked Bloom filter over the keys of rows. A key outside of it is certainly not in the tables,
//! so a new key needs no read.
//!
//! A key that was added is always found. One that was not is found now and then: one in a hundred,
//! at ten bits a key. Keys are never removed. A key sets one bit in each word of one block of 256
//! bits, so a test reads one place in memory.

use std::hash::{BuildHasher, Hash};

use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// Words of a block.
const WORDS: usize = 8;
/// Bytes of a block.
const BLOCK_BYTES: usize = WORDS * 4;
/// Bits a key should have.
const BITS_PER_KEY: u64 = 10;
/// Odd numbers: each derives another bit from the same hash.
const SALTS: [u32; WORDS] =
    [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1, 0xd3a2_646d, 0xfd70_46c5, 0xb55a_4f09];

/// Set of keys that may report keys that were never added.
pub(crate) struct Filter {
    blocks: Box<[[u32; WORDS]]>,
    keys: u64,
}

impl Filter {
    /// Makes an empty filter of at most `bytes` of memory.
    pub(crate) fn new(bytes: usize) -> Self {
        Filter { blocks: vec![[0; WORDS]; bytes / BLOCK_BYTES].into_boxed_slice(), keys: 0 }
    }

    /// Number of keys it is sized for.
    pub(crate) fn room(&self) -> u64 {
        self.blocks.len() as u64 * (BLOCK_BYTES as u64 * 8) / BITS_PER_KEY
    }

    /// Approximate number of added keys. A key that looked present already is not counted.
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    fn place(&self, key: &impl Hash) -> Option<(usize, [u32; WORDS])> {
        let hash = Xxh3DefaultBuilder::new().hash_one(key);
        // The upper half of the hash chooses the block, by multiplication instead of division.
        let block = ((hash >> 32) * self.blocks.len() as u64) >> 32;
        let lower = hash as u32;
        let bits = SALTS.map(|salt| 1 << (lower.wrapping_mul(salt) >> 27));
        (!self.blocks.is_empty()).then_some((block as usize, bits))
    }

    /// Adds a key.
    pub(crate) fn put(&mut self, key: &impl Hash) {
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

    /// Says whether the key may have been added. False is certain.
    pub(crate) fn may_have(&self, key: &impl Hash) -> bool {
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
