//! The digest of a state: equal for equal states, whatever order they came about in.
//!
//! The sum, modulo 2^128, of one hash per item the state holds, over the item's canonical bytes. A change updates
//! it by what it takes away and what it adds. It stands in segment headers and runs, and says at replay
//! whether the state came out as it was. `docs/internals/log-format.md` defines it; it is part of the format.

use exacat_model::codec::Encode;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// What kind of item is hashed; the hash's seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Item {
    /// An `Entry`, wherever it is.
    Entry = 1,
    /// What an item of the trash has beside its entry: (id, (LFN, (removed by, removed))).
    Trashed = 2,
    /// (collection, member).
    Member = 3,
    /// A `Booking`.
    Booking = 4,
    /// (SE, `Deletion`).
    Deletion = 5,
    /// (`Record`, revision).
    Record = 6,
}

/// The digest of a state, and room to encode items in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digest {
    sum: u128,
    scratch: Vec<u8>,
}

impl Digest {
    pub fn value(&self) -> u128 {
        self.sum
    }

    /// It is this, as was said when it was written.
    pub fn set(&mut self, sum: u128) {
        self.sum = sum;
    }

    pub fn add(&mut self, kind: Item, item: &impl Encode) {
        self.sum = self.sum.wrapping_add(self.hash(kind, item));
    }

    /// Adds an item whose canonical bytes are there already.
    pub fn add_bytes(&mut self, kind: Item, bytes: &[u8]) {
        self.sum = self.sum.wrapping_add(xxh3_128_with_seed(bytes, kind as u64));
    }

    pub fn take(&mut self, kind: Item, item: &impl Encode) {
        self.sum = self.sum.wrapping_sub(self.hash(kind, item));
    }

    fn hash(&mut self, kind: Item, item: &impl Encode) -> u128 {
        self.scratch.clear();
        item.encode(&mut self.scratch);
        xxh3_128_with_seed(&self.scratch, kind as u64)
    }
}
