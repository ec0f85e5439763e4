//! The GUID index of a run, which leads from a GUID to its row.
//!
//! Hashes of GUIDs fall into buckets of some twelve entries; 64 buckets are one block, which is
//! read at once and checked. An entry has six bytes: 16 further bits of the hash, and the row's
//! place. A look-up therefore reads one block. One in five thousand look-ups meets an entry of
//! another GUID, which its row reveals.
//!
//! ```text
//! block:  checksum u32 · entries u16 of each of 64 buckets · entries: place u32 · part of the hash u16
//! ```
//! Rows come in the order of their names, and the index needs the order of the hashes. Entries are
//! sorted in memory in parts of bounded size, and the parts are merged from a scratch file.

use std::io;
use std::sync::Arc;

use exacat_disk::DiskFile;
use exacat_model::Guid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::page::Damaged;

/// Buckets per block.
const BUCKETS: usize = 64;
/// Entries per bucket, approximately.
const ENTRIES_PER_BUCKET: u64 = 12;
const ENTRY_BYTES: usize = 6;
const BLOCK_HEAD_BYTES: usize = 4 + 2 * BUCKETS;
/// Maximum bytes of a block: many times what chance can produce.
pub(crate) const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Bytes of an entry in the scratch file.
const SORTED_BYTES: usize = 12;
/// Entries per read from each sorted part.
const READ_ENTRIES: usize = 4096;

/// Place of a row in its run: the number of its page, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowPlace(pub u32);

impl RowPlace {
    const ROW_BITS: u32 = 7;
    /// Maximum pages of a run: 4 G rows.
    pub(crate) const PAGES_MAX: u32 = 1 << (32 - Self::ROW_BITS);

    pub(crate) fn new(page: u32, row: usize) -> Self {
        RowPlace(page << Self::ROW_BITS | row as u32)
    }

    pub(crate) fn page(self) -> u32 {
        self.0 >> Self::ROW_BITS
    }

    pub(crate) fn row(self) -> usize {
        (self.0 & ((1 << Self::ROW_BITS) - 1)) as usize
    }
}

const _: () = assert!(crate::page::ROWS_MAX == 1 << RowPlace::ROW_BITS);

/// Returns the hash of a GUID in a run of this salt: a client that chooses GUIDs cannot make them
/// collide.
pub(crate) fn hash(salt: u64, guid: Guid) -> u64 {
    xxh3_64_with_seed(&guid.0, salt)
}

/// Returns the number of blocks for so many entries: a power of two.
pub(crate) fn blocks_for(entries: u64) -> u32 {
    let blocks = entries.div_ceil(ENTRIES_PER_BUCKET * BUCKETS as u64).next_power_of_two();
    u32::try_from(blocks).unwrap_or(1 << 31)
}

/// Returns the block of a hash among `blocks`, its bucket there, and the stored bits of the hash.
fn place(hash: u64, blocks: u32) -> (u32, usize, u16) {
    let rotated = hash.rotate_left(blocks.trailing_zeros());
    let block = (rotated & u64::from(blocks - 1)) as u32;
    (block, (rotated >> 58) as usize, (rotated >> 42) as u16)
}

/// Entries on their way into an index.
pub(crate) struct Sorter {
    scratch: Arc<dyn DiskFile>,
    part: Vec<(u64, RowPlace)>,
    part_max: usize,
    /// End of each part in the scratch file, in bytes.
    ends: Vec<u64>,
}

impl Sorter {
    /// Creates a sorter that keeps up to `part_max` entries in memory, and further ones sorted in
    /// `scratch`.
    pub(crate) fn new(scratch: Arc<dyn DiskFile>, part_max: usize) -> Self {
        Sorter { scratch, part: Vec::new(), part_max: part_max.max(1), ends: Vec::new() }
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, hash: u64, place: RowPlace) -> io::Result<()> {
        if self.part.len() >= self.part_max {
            self.spill()?;
        }
        self.part.push((hash, place));
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        self.part.sort_unstable();
        let mut at = self.ends.last().copied().unwrap_or(0);
        let mut bytes = Vec::with_capacity(READ_ENTRIES * SORTED_BYTES);
        for entries in self.part.chunks(READ_ENTRIES) {
            bytes.clear();
            for (hash, place) in entries {
                bytes.extend_from_slice(&hash.to_le_bytes());
                bytes.extend_from_slice(&place.0.to_le_bytes());
            }
            self.scratch.write_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        self.ends.push(at);
        self.part.clear();
        Ok(())
    }

    /// Passes all entries to `each` in the order of their hashes.
    pub(crate) fn sorted(mut self, mut each: impl FnMut(u64, RowPlace) -> io::Result<()>) -> io::Result<()> {
        self.part.sort_unstable();
        let mut begin = 0;
        let mut parts = Vec::with_capacity(self.ends.len() + 1);
        for end in &self.ends {
            parts.push(SortedPart { at: begin, end: *end, read: Vec::new(), next: 0 });
            begin = *end;
        }
        let mut memory = self.part.iter().copied().peekable();
        let mut heap = std::collections::BinaryHeap::new();
        for (index, part) in parts.iter_mut().enumerate() {
            if let Some(first) = part.take(&*self.scratch)? {
                heap.push(std::cmp::Reverse((first, index)));
            }
        }
        while let Some(std::cmp::Reverse((entry, index))) = heap.peek().copied() {
            while let Some(other) = memory.next_if(|other| *other < entry) {
                each(other.0, other.1)?;
            }
            each(entry.0, entry.1)?;
            heap.pop();
            if let Some(next) = parts[index].take(&*self.scratch)? {
                heap.push(std::cmp::Reverse((next, index)));
            }
        }
        memory.try_for_each(|(hash, place)| each(hash, place))
    }
}

/// A sorted part of the scratch file, being read.
struct SortedPart {
    at: u64,
    end: u64,
    read: Vec<u8>,
    next: usize,
}

impl SortedPart {
    fn take(&mut self, scratch: &dyn DiskFile) -> io::Result<Option<(u64, RowPlace)>> {
        if self.next >= self.read.len() {
            let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            if left == 0 {
                return Ok(None);
            }
            self.read.resize(left.min(READ_ENTRIES * SORTED_BYTES), 0);
            if scratch.read_at(&mut self.read, self.at)? != self.read.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.at += self.read.len() as u64;
            self.next = 0;
        }
        let mut entry = [0; SORTED_BYTES];
        entry.copy_from_slice(&self.read[self.next..self.next + SORTED_BYTES]);
        self.next += SORTED_BYTES;
        let [a, b, c, d, e, f, g, h, place @ ..] = entry;
        Ok(Some((u64::from_le_bytes([a, b, c, d, e, f, g, h]), RowPlace(u32::from_le_bytes(place)))))
    }
}

/// Builder of blocks from sorted entries.
pub(crate) struct Blocks {
    blocks: u32,
    next: u32,
    counts: [u16; BUCKETS],
    entries: Vec<u8>,
}

impl Blocks {
    /// Creates a builder for an index of so many entries.
    pub(crate) fn new(entries: u64) -> Self {
        Blocks { blocks: blocks_for(entries), next: 0, counts: [0; BUCKETS], entries: Vec::new() }
    }

    /// Adds the next entry; passes each block that this completes to `out`.
    pub(crate) fn push(
        &mut self,
        hash: u64,
        at: RowPlace,
        out: &mut impl FnMut(Vec<u8>) -> io::Result<()>,
        salt: u64,
    ) -> io::Result<()> {
        let (block, bucket, part) = place(hash, self.blocks);
        while self.next < block {
            out(self.block(salt))?;
        }
        if self.entries.len() + BLOCK_HEAD_BYTES + ENTRY_BYTES > BLOCK_BYTES_MAX {
            return Err(io::Error::other("more GUIDs fall into one block than chance can bring about"));
        }
        self.counts[bucket] += 1;
        self.entries.extend_from_slice(&at.0.to_le_bytes());
        self.entries.extend_from_slice(&part.to_le_bytes());
        Ok(())
    }

    fn block(&mut self, salt: u64) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        self.counts.iter().for_each(|count| bytes.extend_from_slice(&count.to_le_bytes()));
        bytes.append(&mut self.entries);
        let sum = checksum(salt, self.next, &bytes);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        self.counts = [0; BUCKETS];
        self.next += 1;
        bytes
    }

    /// Passes the remaining blocks to `out`.
    pub(crate) fn finish(
        mut self,
        out: &mut impl FnMut(Vec<u8>) -> io::Result<()>,
        salt: u64,
    ) -> io::Result<()> {
        while self.next < self.blocks {
            out(self.block(salt))?;
        }
        Ok(())
    }
}

fn checksum(salt: u64, block: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&block.to_le_bytes());
    hasher.update(&bytes[4..]);
    hasher.finalize()
}

/// Returns the block of a hash in an index of so many.
pub(crate) fn block_of(hash: u64, blocks: u32) -> u32 {
    place(hash, blocks).0
}

/// Checks a block that was read from a file.
pub(crate) fn check(bytes: &[u8], block: u32, salt: u64) -> Result<(), Damaged> {
    let entries: usize = counts(bytes).map(usize::from).sum();
    let mut sum = [0; 4];
    match bytes.get(..4) {
        Some(first) if bytes.len() == BLOCK_HEAD_BYTES + entries * ENTRY_BYTES => sum.copy_from_slice(first),
        _ => return Err(Damaged("a block of the GUID index has not the length it says")),
    }
    match u32::from_le_bytes(sum) == checksum(salt, block, bytes) {
        true => Ok(()),
        false => Err(Damaged("a block of the GUID index fails its checksum")),
    }
}

fn counts(bytes: &[u8]) -> impl Iterator<Item = u16> {
    let counts = bytes.get(4..BLOCK_HEAD_BYTES).unwrap_or_default();
    counts.chunks_exact(2).map(|count| u16::from_le_bytes([count[0], count[1]]))
}

/// Returns the rows in this block that may have the GUID of this hash.
pub(crate) fn find(bytes: &[u8], hash: u64, blocks: u32) -> impl Iterator<Item = RowPlace> {
    let (_, bucket, part) = place(hash, blocks);
    let before: usize = counts(bytes).take(bucket).map(usize::from).sum();
    let count = counts(bytes).nth(bucket).map_or(0, usize::from);
    let begin = BLOCK_HEAD_BYTES + before * ENTRY_BYTES;
    let entries = bytes.get(begin..begin + count * ENTRY_BYTES).unwrap_or_default();
    entries.chunks_exact(ENTRY_BYTES).filter_map(move |entry| {
        let [a, b, c, d, e, f] = *entry.first_chunk::<ENTRY_BYTES>()?;
        (u16::from_le_bytes([e, f]) == part).then_some(RowPlace(u32::from_le_bytes([a, b, c, d])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_disk::{Disk, RealDisk};

    fn guid(number: u64) -> Guid {
        let mut guid = [7; 16];
        guid[..8].copy_from_slice(&number.to_le_bytes());
        Guid(guid)
    }

    /// Goal: every GUID is found at its row, hardly any other is, and no damaged block passes,
    /// however many parts were sorted.
    #[test]
    fn each_guid_is_found_at_its_row() {
        let directory = tempfile::tempdir().unwrap();
        for (count, part_max) in [(0, 10), (1, 10), (500, 10), (30_000, 7_000), (30_000, 100_000)] {
            let scratch: Arc<dyn DiskFile> =
                Arc::from(RealDisk.create(&directory.path().join("scratch")).unwrap());
            let mut sorter = Sorter::new(scratch, part_max);
            let row = |number: u64| RowPlace::new((number / 100) as u32, (number % 100) as usize);
            for number in 0..count {
                sorter.push(hash(3, guid(number)), row(number)).unwrap();
            }
            let mut blocks: Vec<Vec<u8>> = Vec::new();
            let mut making = Blocks::new(count);
            let mut out = |block| {
                blocks.push(block);
                Ok(())
            };
            sorter.sorted(|hash, row| making.push(hash, row, &mut out, 3)).unwrap();
            making.finish(&mut out, 3).unwrap();
            assert_eq!(blocks.len(), blocks_for(count) as usize);
            let bytes: usize = blocks.iter().map(Vec::len).sum();
            assert!(bytes as u64 <= count * 7 + 4 * count.isqrt() + 800, "{bytes} bytes for {count}");
            for (number, block) in (0u32..).zip(&blocks) {
                check(block, number, 3).unwrap();
                assert!(check(block, number, 4).is_err() && check(block, number + 1, 3).is_err());
                assert!(check(&block[..block.len() - 1], number, 3).is_err());
                let mut damaged = block.clone();
                damaged[block.len() / 2] ^= 1;
                assert!(check(&damaged, number, 3).is_err());
            }
            let found = |number: u64| {
                let hash = hash(3, guid(number));
                let block = &blocks[block_of(hash, blocks.len() as u32) as usize];
                find(block, hash, blocks.len() as u32).collect::<Vec<_>>()
            };
            assert!((0..count).all(|number| found(number).contains(&row(number))));
            let wrong: usize = (count..count + 30_000).map(|number| found(number).len()).sum();
            assert!(wrong < 60, "{wrong} of 30000 others are found");
        }
    }
}
