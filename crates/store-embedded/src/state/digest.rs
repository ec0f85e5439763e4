//! The digest of a state: equal for equal states, whatever the order of their changes.
//!
//! It is the sum, modulo 2^128, of one hash per item in the state, over the item's canonical bytes.
//! A change updates it by the items that it removes and adds. Segment headers and runs have it, and
//! a replay compares it with its own state. `docs/internals/log-format.md` defines it; it is part
//! of the format.

use exacat_model::codec::Encode;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Kind of a hashed item; seed of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Item {
    /// An `Entry`, in the tree or the trash.
    Entry = 1,
    /// Facts about an item of the trash beside its entry: (id, (LFN, (removed by, removed))).
    Trashed = 2,
    /// (collection, member).
    Member = 3,
    /// A `Reservation`.
    Reservation = 4,
    /// (SE, `Deletion`).
    Deletion = 5,
    /// (`Record`, revision).
    Record = 6,
}

/// Digest of a state, and a buffer to encode items.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digest {
    sum: u128,
    scratch: Vec<u8>,
}

impl Digest {
    pub(crate) fn value(&self) -> u128 {
        self.sum
    }

    /// Sets the digest to a value that was read.
    pub(crate) fn set(&mut self, sum: u128) {
        self.sum = sum;
    }

    pub(crate) fn add(&mut self, kind: Item, item: &impl Encode) {
        self.sum = self.sum.wrapping_add(self.hash(kind, item));
    }

    /// Adds an item by its canonical bytes.
    pub(crate) fn add_bytes(&mut self, kind: Item, bytes: &[u8]) {
        self.sum = self.sum.wrapping_add(xxh3_128_with_seed(bytes, kind as u64));
    }

    pub(crate) fn take(&mut self, kind: Item, item: &impl Encode) {
        self.sum = self.sum.wrapping_sub(self.hash(kind, item));
    }

    fn hash(&mut self, kind: Item, item: &impl Encode) -> u128 {
        self.scratch.clear();
        item.encode(&mut self.scratch);
        xxh3_128_with_seed(&self.scratch, kind as u64)
    }
}
