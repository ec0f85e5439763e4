//! A hash table of handles, in many shards.
//!
//! Why shards: a table that doubles rehashes all it holds, and the writer and with it all readers would wait for a
//! hundred million keys. A shard rehashes a few thousand.

use hashbrown::HashTable;

const SHARDS: usize = 4096;

/// A handle with 32 bits of the hash of what it stands for: enough to grow a shard without asking what that was, and
/// to pass over nearly all others without looking at them - at a place of memory nobody has been at for long.
#[derive(Clone, Copy)]
struct Slot<H> {
    handle: H,
    tag: u32,
}

/// Handles, of 32 bits, by the hash of what they stand for. The table does not know the keys: the caller compares.
pub(crate) struct HandleTable<H> {
    shards: Box<[HashTable<Slot<H>>]>,
    length: usize,
}

/// The half of a hash that is kept; the other half says the shard.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// What hashbrown takes for the hash: it uses the lowest and the highest bits.
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

    /// The handle of this hash that `is` the one.
    pub fn find(&self, hash: u64, mut is: impl FnMut(&H) -> bool) -> Option<H> {
        let tag = tag(hash);
        let found =
            self.shards[Self::shard(hash)].find(spread(tag), |slot| slot.tag == tag && is(&slot.handle))?;
        Some(found.handle)
    }

    /// Brings in the shard of this hash; what it gives means nothing.
    pub fn touch(&self, hash: u64) -> u8 {
        self.shards[Self::shard(hash)].len() as u8
    }

    /// A handle that is most likely the one of this hash, if there is one: the first that looks like it.
    pub fn likely(&self, hash: u64) -> Option<H> {
        self.find(hash, |_| true)
    }

    /// Adds a handle that is not there.
    pub fn insert(&mut self, hash: u64, handle: H) {
        let slot = Slot { handle, tag: tag(hash) };
        self.shards[Self::shard(hash)].insert_unique(spread(slot.tag), slot, |slot| spread(slot.tag));
        self.length += 1;
    }

    /// Takes a handle away; was it there?
    pub fn remove(&mut self, hash: u64, handle: H) -> bool {
        match self.shards[Self::shard(hash)].find_entry(spread(tag(hash)), |slot| slot.handle == handle) {
            Ok(found) => {
                found.remove();
                self.length -= 1;
                true
            }
            Err(_) => false,
        }
    }

    /// Puts one handle in the place of another of the same hash; was it there?
    pub fn replace(&mut self, hash: u64, old: H, new: H) -> bool {
        match self.shards[Self::shard(hash)].find_mut(spread(tag(hash)), |slot| slot.handle == old) {
            Some(place) => {
                place.handle = new;
                true
            }
            None => false,
        }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    /// Memory taken.
    pub fn bytes(&self) -> u64 {
        let slots: usize = self.shards.iter().map(|shard| shard.allocation_size()).sum();
        (slots + SHARDS * size_of::<HashTable<Slot<H>>>()) as u64
    }
}
