//! A hash table of handles, in many shards.
//!
//! A single table that doubles rehashes everything, and the writer and all readers would wait for a
//! hundred million keys. A shard rehashes a few thousand.

use hashbrown::HashTable;

const SHARDS: usize = 4096;

/// A handle with 32 bits of its key's hash. They suffice to grow a shard without the keys, and to
/// skip nearly all other handles without reading their rows, which would be cache misses.
#[derive(Clone, Copy)]
struct HandleSlot<H> {
    handle: H,
    tag: u32,
}

/// Handles, of 32 bits, by the hash of their keys. The table does not know the keys: the caller
/// compares.
pub(crate) struct HandleTable<H> {
    shards: Box<[HashTable<HandleSlot<H>>]>,
    length: usize,
}

/// Returns the stored half of a hash; the other half selects the shard.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Returns the hash for hashbrown, which uses the lowest and the highest bits.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<H> Default for HandleTable<H> {
    fn default() -> Self {
        HandleTable { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), length: 0 }
    }
}

impl<H: Copy + PartialEq> HandleTable<H> {
    fn shard(hash: u64) -> usize {
        hash as usize % SHARDS
    }

    /// Returns the handle of this hash for which `is` is true.
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(&H) -> bool) -> Option<H> {
        let tag = tag(hash);
        let found =
            self.shards[Self::shard(hash)].find(spread(tag), |slot| slot.tag == tag && is(&slot.handle))?;
        Some(found.handle)
    }

    /// Loads the shard of this hash into the processor's cache; the result has no meaning.
    pub(crate) fn touch(&self, hash: u64) -> u8 {
        self.shards[Self::shard(hash)].len() as u8
    }

    /// Returns the first handle with this hash's tag, which is most likely the right one.
    pub(crate) fn likely(&self, hash: u64) -> Option<H> {
        self.find(hash, |_| true)
    }

    /// Adds a new handle.
    pub(crate) fn insert(&mut self, hash: u64, handle: H) {
        let slot = HandleSlot { handle, tag: tag(hash) };
        self.shards[Self::shard(hash)].insert_unique(spread(slot.tag), slot, |slot| spread(slot.tag));
        self.length += 1;
    }

    /// Removes a handle. True if it was there.
    pub(crate) fn remove(&mut self, hash: u64, handle: H) -> bool {
        match self.shards[Self::shard(hash)].find_entry(spread(tag(hash)), |slot| slot.handle == handle) {
            Ok(found) => {
                found.remove();
                self.length -= 1;
                true
            }
            Err(_) => false,
        }
    }

    /// Replaces one handle by another of the same hash. True if it was there.
    pub(crate) fn replace(&mut self, hash: u64, old: H, new: H) -> bool {
        match self.shards[Self::shard(hash)].find_mut(spread(tag(hash)), |slot| slot.handle == old) {
            Some(place) => {
                place.handle = new;
                true
            }
            None => false,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the memory taken.
    pub(crate) fn bytes(&self) -> u64 {
        let slots: usize = self.shards.iter().map(|shard| shard.allocation_size()).sum();
        (slots + SHARDS * size_of::<HashTable<HandleSlot<H>>>()) as u64
    }
}
