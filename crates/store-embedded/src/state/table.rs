//! A hash table of handles, in many shards.
//!
//! Why shards: a table that doubles rehashes all it holds, and the writer and with it all readers would wait for a
//! hundred million keys. A shard rehashes a few thousand.

use hashbrown::HashTable;

use super::arena::Handle;

const SHARDS: usize = 4096;

/// Handles by the hash of what they stand for. The table does not know the keys: the caller compares.
pub(crate) struct HandleTable {
    shards: Box<[HashTable<Handle>]>,
    length: usize,
}

impl HandleTable {
    pub fn new() -> Self {
        HandleTable { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), length: 0 }
    }

    /// The shard takes other bits of the hash than hashbrown takes in it (lowest and highest).
    fn shard(hash: u64) -> usize {
        (hash >> 40) as usize % SHARDS
    }

    /// The handle of this hash that `is` the one.
    pub fn find(&self, hash: u64, is: impl FnMut(&Handle) -> bool) -> Option<Handle> {
        self.shards[Self::shard(hash)].find(hash, is).copied()
    }

    /// A handle that is most likely the one of this hash, if there is one: the first that looks like it.
    pub fn likely(&self, hash: u64) -> Option<Handle> {
        self.find(hash, |_| true)
    }

    /// Adds a handle that is not there.
    pub fn insert(&mut self, hash: u64, handle: Handle, rehash: impl Fn(&Handle) -> u64) {
        self.shards[Self::shard(hash)].insert_unique(hash, handle, rehash);
        self.length += 1;
    }

    /// Takes a handle away; was it there?
    pub fn remove(&mut self, hash: u64, handle: Handle) -> bool {
        match self.shards[Self::shard(hash)].find_entry(hash, |other| *other == handle) {
            Ok(found) => {
                found.remove();
                self.length -= 1;
                true
            }
            Err(_) => false,
        }
    }

    /// Puts one handle in the place of another of the same hash; was it there?
    pub fn replace(&mut self, hash: u64, old: Handle, new: Handle) -> bool {
        match self.shards[Self::shard(hash)].find_mut(hash, |other| *other == old) {
            Some(place) => {
                *place = new;
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
        (slots + SHARDS * size_of::<HashTable<Handle>>()) as u64
    }
}
