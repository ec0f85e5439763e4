//! The page cache: pages and blocks of all runs that were read and checked, up to a number of
//! bytes.
//!
//! Each run has a slot for each of its parts, so that a part is found without a search: its number
//! is its slot. The cache keeps the filled slots in a ring. Beyond its size, a hand goes round the
//! ring. A part that was used since the last round stays, up to `USES_MAX` rounds; an unused part
//! is evicted.
//!
//! A slot is a lock on which no thread waits: a reader that finds it locked reads from the disk.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use exacat_activity::Striped;
use exacat_store::Sample;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::metric_table;

/// Weight of a part in addition to its bytes.
const OVERHEAD_BYTES: u64 = 64;
/// Maximum number of rounds that a part stays without being used.
const USES_MAX: u8 = 3;
/// Entries of the ring whose runs are gone, in addition to the number of parts.
const GONE_MAX: usize = 1024;

/// Kinds of cached parts.
const CACHED: [&str; 2] = ["pages", "blocks"];

/// Bytes of a part.
pub(super) type Bytes = Arc<[u8]>;

/// Pages and blocks in memory.
pub(crate) struct Cache(Arc<Shared>);

struct Shared {
    bytes_max: u64,
    bytes: AtomicU64,
    /// Number of parts in the cache.
    parts: AtomicUsize,
    /// Uses of pages and of blocks, and reads of them from the disk.
    hits: [Striped<AtomicU64>; CACHED.len()],
    misses: [Striped<AtomicU64>; CACHED.len()],
    ring: Mutex<VecDeque<(Weak<CacheSlots>, u32)>>,
}

impl Shared {
    fn come(&self, bytes: &Bytes) {
        self.bytes.fetch_add(weight(bytes), Ordering::Relaxed);
        self.parts.fetch_add(1, Ordering::Relaxed);
    }

    fn go(&self, bytes: &Bytes) {
        self.bytes.fetch_sub(weight(bytes), Ordering::Relaxed);
        self.parts.fetch_sub(1, Ordering::Relaxed);
    }
}

fn weight(bytes: &Bytes) -> u64 {
    bytes.len() as u64 + OVERHEAD_BYTES
}

#[derive(Default)]
struct CacheSlot {
    part: RwLock<Option<Bytes>>,
    /// Number of uses since the hand's last round, up to `USES_MAX`.
    uses: AtomicU8,
}

/// Slots of one run in one cache.
pub(super) struct CacheSlots {
    cache: Arc<Shared>,
    slots: Box<[CacheSlot]>,
}

impl Drop for CacheSlots {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            if let Some(bytes) = slot.part.get_mut() {
                self.cache.go(bytes);
            }
        }
    }
}

/// Bytes of a part, for as long as this is held.
pub(super) enum CachedBytes<'s> {
    InSlot(RwLockReadGuard<'s, Option<Bytes>>),
    Own(Bytes),
}

impl Deref for CachedBytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            CachedBytes::InSlot(guard) => guard.as_deref().unwrap_or_default(),
            CachedBytes::Own(bytes) => bytes,
        }
    }
}

impl CachedBytes<'_> {
    /// Returns bytes that may be kept for long.
    pub(crate) fn keep(&self) -> Bytes {
        match self {
            CachedBytes::InSlot(guard) => guard.as_ref().map_or_else(|| Arc::from([]), Arc::clone),
            CachedBytes::Own(bytes) => Arc::clone(bytes),
        }
    }
}

impl Cache {
    /// Creates a cache for so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Cache(Arc::new(Shared {
            bytes_max,
            bytes: AtomicU64::new(0),
            parts: AtomicUsize::new(0),
            hits: Default::default(),
            misses: Default::default(),
            ring: Mutex::default(),
        }))
    }

    /// Counts a part of this kind that was found.
    #[inline]
    pub(super) fn hit(&self, kind: usize) {
        self.0.hits[kind].increment();
    }

    /// Counts a part of this kind that is read from the disk.
    pub(super) fn miss(&self, kind: usize) {
        self.0.misses[kind].increment();
    }

    /// Returns the metrics of the cache, without its bytes.
    pub(crate) fn metrics(&self) -> Vec<Sample> {
        let mut list = vec![metric_table::CACHE_LIMIT.is(self.0.bytes_max)];
        for (kind, (hits, misses)) in CACHED.iter().zip(self.0.hits.iter().zip(&self.0.misses)) {
            list.push(metric_table::CACHE_HITS.of(*kind, hits.now()));
            list.push(metric_table::CACHE_MISSES.of(*kind, misses.now()));
        }
        list
    }

    /// Returns the bytes in the cache.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Creates slots for so many parts.
    pub(super) fn slots(&self, parts: usize) -> Arc<CacheSlots> {
        let slots = std::iter::repeat_with(CacheSlot::default).take(parts).collect();
        Arc::new(CacheSlots { cache: Arc::clone(&self.0), slots })
    }

    /// Says whether these slots are in this cache.
    pub(super) fn has(&self, slots: &CacheSlots) -> bool {
        Arc::ptr_eq(&self.0, &slots.cache)
    }

    /// Puts a part into its slot, unless that is locked, and evicts others for it.
    pub(super) fn put(&self, slots: &Arc<CacheSlots>, index: usize, bytes: &Bytes) {
        let Some(slot) = slots.slots.get(index) else { return };
        if weight(bytes) > self.0.bytes_max {
            return;
        }
        match slot.part.try_write() {
            Some(mut part) if part.is_none() => *part = Some(Arc::clone(bytes)),
            _ => return,
        }
        slot.uses.store(0, Ordering::Relaxed);
        self.0.come(bytes);
        let mut ring = self.0.ring.lock();
        ring.push_back((Arc::downgrade(slots), index as u32));
        self.make_room(&mut ring);
    }

    fn make_room(&self, ring: &mut VecDeque<(Weak<CacheSlots>, u32)>) {
        let parts = self.0.parts.load(Ordering::Relaxed);
        if ring.len() > 2 * parts + GONE_MAX {
            ring.retain(|(slots, _)| slots.strong_count() > 0);
        }
        // After so many turns every part is evicted, however often it was used, unless it is being
        // read.
        let mut turns = ring.len() * (usize::from(USES_MAX) + 1);
        while self.bytes() > self.0.bytes_max && turns > 0 {
            turns -= 1;
            let Some((weak, index)) = ring.pop_front() else { return };
            let Some(slots) = weak.upgrade() else { continue };
            let slot = &slots.slots[index as usize];
            let uses = slot.uses.load(Ordering::Relaxed);
            if uses > 0 {
                slot.uses.store(uses - 1, Ordering::Relaxed);
                ring.push_back((weak, index));
                continue;
            }
            let Some(mut part) = slot.part.try_write() else {
                ring.push_back((weak, index));
                continue;
            };
            if let Some(bytes) = part.take() {
                self.0.go(&bytes);
            }
        }
    }
}

impl CacheSlots {
    /// Returns the content of this slot.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<CachedBytes<'_>> {
        let slot = self.slots.get(index)?;
        // Nobody waits to write, so this never blocks, however often one reader reads the same
        // slot.
        let guard = slot.part.try_read_recursive()?;
        guard.as_ref()?;
        let uses = slot.uses.load(Ordering::Relaxed);
        if uses < USES_MAX {
            slot.uses.store(uses + 1, Ordering::Relaxed);
        }
        Some(CachedBytes::InSlot(guard))
    }

    /// Loads a slot into the processor's cache; the result has no meaning.
    #[inline]
    pub(crate) fn touch(&self, index: usize) -> u8 {
        self.slots.get(index).map_or(0, |slot| slot.uses.load(Ordering::Relaxed))
    }

    /// Returns the memory taken, without the parts.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<CacheSlot>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: usize) -> Bytes {
        Arc::from(vec![number as u8; 1000])
    }

    /// Goal: the cache never exceeds its size, and parts in frequent use stay. Parts of a dropped
    /// run are not counted, and leave the ring.
    #[test]
    fn what_is_used_stays_and_there_is_never_more_than_was_said() {
        let cache = Cache::new(20_000);
        let (slots, others) = (cache.slots(100), cache.slots(100));
        for round in 0..50 {
            for index in 0..100 {
                cache.put(&slots, index, &part(index));
                assert!(cache.bytes() <= 20_000);
                for used in 0..5 {
                    if round > 0 {
                        assert_eq!(&slots.get(used).unwrap()[..], &part(used)[..], "round {round}");
                    } else {
                        cache.put(&slots, used, &part(used));
                        let _used = slots.get(used);
                    }
                }
            }
        }
        assert!(cache.has(&slots) && !Cache::new(1).has(&slots));
        for index in 0..18 {
            cache.put(&others, index, &part(index));
        }
        let before = cache.bytes();
        drop(others);
        assert!(cache.bytes() < before);
        drop(slots);
        assert_eq!((cache.bytes(), cache.0.parts.load(Ordering::Relaxed)), (0, 0));
        for _ in 0..3000 {
            let slots = cache.slots(1);
            cache.put(&slots, 0, &part(0));
        }
        assert!(cache.0.ring.lock().len() <= GONE_MAX + 2);
    }

    /// Goal: a part that is being read is not evicted, and one larger than the cache does not come
    /// in.
    #[test]
    fn what_is_being_read_is_not_taken_away() {
        let cache = Cache::new(3000);
        let slots = cache.slots(10);
        cache.put(&slots, 0, &part(0));
        let reading = slots.get(0).unwrap();
        for index in 1..10 {
            cache.put(&slots, index, &part(index));
        }
        assert_eq!(&reading[..], &part(0)[..]);
        assert!(slots.get(0).is_some() && cache.bytes() <= 3000);
        cache.put(&slots, 1, &Arc::from(vec![0; 3000]));
        assert!(cache.bytes() <= 3000);
        assert!(slots.get(10).is_none());
        drop(reading);
        for round in 0..3 {
            for index in 1..10 {
                cache.put(&slots, index, &part(index));
                assert!(cache.bytes() <= 3000, "round {round}");
            }
        }
        assert!(slots.get(0).is_none());
    }
}
