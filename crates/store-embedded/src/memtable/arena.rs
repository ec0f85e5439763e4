//! The arena: memory for a memtable's rows, addressed by 32 bits.
//!
//! A box per entry would cost a quarter of the entry: 8 to 16 bytes for the allocation, and a
//! 64-bit pointer in each of three indices. Here a record costs its bytes, one or two for its
//! length, and up to seven to the next multiple of eight.

use std::collections::BTreeMap;

/// Records begin at multiples of this.
const UNIT_BYTES: usize = 8;
/// Units of a block of memory; a record lies in one block. The largest entry (64 replicas with PFNs
/// of 4 KiB, 128 tags of 8 KiB) has 1.4 MiB.
const BLOCK_UNITS: usize = 1 << 18;
const BLOCK_BYTES: usize = BLOCK_UNITS * UNIT_BYTES;
/// Number of blocks that 32 bits can address: 32 GiB.
const BLOCKS_MAX: usize = (1 << 32) / BLOCK_UNITS;
/// Maximum units of freed places that are listed by exact size.
const SMALL_UNITS_MAX: usize = 128;
/// Minimum units left over when a freed place is cut for a smaller record, because tiny rests are
/// never used again. A cut happens only before a new block would be taken.
const CUT_UNITS_MIN: usize = 8;

/// Place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(u32);

/// Memory for records.
#[derive(Default)]
pub(crate) struct Arena {
    blocks: Vec<Box<[u8]>>,
    /// First unit of the last block that was never used.
    next_unit: usize,
    free_small: Vec<Vec<u32>>,
    free_large: BTreeMap<usize, Vec<u32>>,
    free_units: usize,
}

/// Returns the bytes of the length before a record.
fn prefix_bytes(length: usize) -> usize {
    match length {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

fn units(length: usize) -> usize {
    (prefix_bytes(length) + length).div_ceil(UNIT_BYTES)
}

impl Arena {
    fn rest_bytes(&self) -> usize {
        if self.blocks.is_empty() { 0 } else { (BLOCK_UNITS - self.next_unit) * UNIT_BYTES }
    }

    /// Stores a record; none if the arena is full or the record too long for it.
    pub(crate) fn insert(&mut self, record: &[u8]) -> Option<Handle> {
        let wanted = units(record.len());
        if wanted > BLOCK_UNITS {
            return None;
        }
        let unit = self.take(wanted)?;
        self.write(unit, record);
        Some(Handle(unit))
    }

    /// Stores a record in the place of another of the same size. False if the sizes differ.
    pub(crate) fn overwrite(&mut self, old: Handle, record: &[u8]) -> bool {
        if units(record.len()) != units(self.get(old).len()) {
            return false;
        }
        self.write(old.0, record);
        true
    }

    /// Returns the record at this place.
    pub(crate) fn get(&self, handle: Handle) -> &[u8] {
        let unit = handle.0 as usize;
        let block = &self.blocks[unit / BLOCK_UNITS];
        let mut at = unit % BLOCK_UNITS * UNIT_BYTES;
        let mut length = 0;
        let mut shift = 0;
        loop {
            let byte = block[at];
            at += 1;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return &block[at..at + length];
            }
        }
    }

    /// Loads the first two cache lines of a record into the processor's cache; the result has no
    /// meaning.
    pub(crate) fn touch(&self, handle: Handle) -> u8 {
        let unit = handle.0 as usize;
        let block = &self.blocks[unit / BLOCK_UNITS];
        let at = unit % BLOCK_UNITS * UNIT_BYTES;
        block[at] ^ block.get(at + 64).copied().unwrap_or(0)
    }

    /// Frees a place.
    pub(crate) fn remove(&mut self, handle: Handle) {
        let units = units(self.get(handle).len());
        self.give_back(handle.0, units);
    }

    /// Returns the bytes taken from the system, and those of them that are free for reuse.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let lists = self.free_small.iter().chain(self.free_large.values());
        let lists: usize = lists.map(|list| list.capacity() * size_of::<u32>()).sum();
        let taken = self.blocks.len() * BLOCK_BYTES - self.rest_bytes() + lists;
        (taken as u64, (self.free_units * UNIT_BYTES) as u64)
    }

    fn write(&mut self, unit: u32, record: &[u8]) {
        let unit = unit as usize;
        let block = &mut self.blocks[unit / BLOCK_UNITS];
        let mut at = unit % BLOCK_UNITS * UNIT_BYTES;
        let mut length = record.len();
        while length >= 0x80 {
            block[at] = length as u8 | 0x80;
            at += 1;
            length >>= 7;
        }
        block[at] = length as u8;
        at += 1;
        block[at..at + record.len()].copy_from_slice(record);
    }

    fn take(&mut self, wanted: usize) -> Option<u32> {
        let exact = if wanted <= SMALL_UNITS_MAX {
            self.free_small.get_mut(wanted).and_then(Vec::pop)
        } else {
            self.free_large.get_mut(&wanted).and_then(Vec::pop)
        };
        if let Some(unit) = exact {
            self.free_units -= wanted;
            return Some(unit);
        }
        if self.blocks.is_empty() || self.next_unit + wanted > BLOCK_UNITS {
            if let Some(unit) = self.cut(wanted) {
                return Some(unit);
            }
            self.begin_block()?;
        }
        let unit = (self.blocks.len() - 1) * BLOCK_UNITS + self.next_unit;
        self.next_unit += wanted;
        u32::try_from(unit).ok()
    }

    /// Cuts a larger freed place.
    fn cut(&mut self, wanted: usize) -> Option<u32> {
        let enough = wanted + CUT_UNITS_MIN;
        let small = (enough..self.free_small.len()).find(|units| !self.free_small[*units].is_empty());
        let (size, unit) = match small {
            Some(size) => (size, self.free_small[size].pop()?),
            None => {
                let (size, list) = self.free_large.range_mut(enough..).find(|(_, list)| !list.is_empty())?;
                (*size, list.pop()?)
            }
        };
        self.free_units -= size;
        self.give_back(unit + u32::try_from(wanted).ok()?, size - wanted);
        Some(unit)
    }

    fn begin_block(&mut self) -> Option<()> {
        if self.blocks.len() >= BLOCKS_MAX {
            return None;
        }
        let rest = if self.blocks.is_empty() { 0 } else { BLOCK_UNITS - self.next_unit };
        if rest > 0 {
            let unit = (self.blocks.len() - 1) * BLOCK_UNITS + self.next_unit;
            self.give_back(u32::try_from(unit).ok()?, rest);
        }
        self.blocks.push(vec![0; BLOCK_BYTES].into_boxed_slice());
        self.next_unit = 0;
        Some(())
    }

    fn give_back(&mut self, unit: u32, units: usize) {
        self.free_units += units;
        if units <= SMALL_UNITS_MAX {
            if self.free_small.len() <= units {
                self.free_small.resize_with(SMALL_UNITS_MAX + 1, Vec::new);
            }
            self.free_small[units].push(unit);
        } else {
            self.free_large.entry(units).or_default().push(unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every record reads back as stored while others come, go and change length; freed
    /// places are used again. Method: a few thousand steps against a map.
    #[test]
    fn records_read_back_whatever_comes_and_goes() {
        let mut arena = Arena::default();
        let mut model: BTreeMap<Handle, Vec<u8>> = BTreeMap::new();
        let mut random = 7u64;
        let mut next = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        for step in 0..20_000u64 {
            let length = match next(10) {
                0 => next(60_000),
                1 => 120 + next(16),
                _ => next(400),
            };
            let record = vec![step as u8; length as usize];
            let chosen = model.keys().nth(next(model.len().max(1) as u64) as usize).copied();
            match (next(3), chosen) {
                (0, Some(old)) => {
                    arena.remove(old);
                    model.remove(&old);
                }
                (1, Some(old)) => {
                    if arena.overwrite(old, &record) {
                        model.insert(old, record);
                    }
                }
                _ => {
                    let new = arena.insert(&record).unwrap();
                    assert!(model.insert(new, record).is_none(), "a place was given twice");
                }
            }
            if model.len() > 500 {
                let first = *model.keys().next().unwrap();
                arena.remove(first);
                model.remove(&first);
            }
        }
        for (handle, record) in &model {
            assert_eq!(arena.get(*handle), record.as_slice());
        }
        let live: usize = model.values().map(|record| units(record.len()) * UNIT_BYTES).sum();
        let (taken, free) = arena.bytes();
        assert!(taken >= live as u64 + free);
        assert!(arena.blocks.len() < 20, "freed places are not used again: {} blocks", arena.blocks.len());
    }

    #[test]
    fn the_longest_records_fit_and_longer_ones_are_refused() {
        let mut arena = Arena::default();
        let longest = vec![5; BLOCK_BYTES - prefix_bytes(BLOCK_BYTES)];
        let first = arena.insert(&longest).unwrap();
        let second = arena.insert(&longest).unwrap();
        assert_eq!(arena.get(first), longest.as_slice());
        assert_eq!(arena.get(second), longest.as_slice());
        assert!(arena.insert(&vec![0; BLOCK_BYTES]).is_none());
    }
}
