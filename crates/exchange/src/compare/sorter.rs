//! Sorts records with bounded memory: sorted runs in one temporary file, merged once.
//!
//! A record is a key and a rest. Records come out by a prefix of eight bytes, then by key, then by
//! rest. The prefix is a hash of the key, which makes comparisons cheap, or the key's first bytes,
//! which makes the order that of the paths.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::limits::{COMPARE_RUN_READ_BYTES, COMPARE_RUNS_MAX};

/// Bytes of a record's length, and of its key's length after it.
const HEAD_BYTES: usize = 6;
/// Bytes of an index item beside a record: prefix and position.
const INDEX_BYTES: usize = 16;
/// Bytes of one write to the temporary file.
const WRITE_BYTES: usize = 1 << 20;
/// First bits of a hash by which records are distributed before they are sorted. The index items of a part
/// then fit a cache of half a megabyte, up to 32 million records.
const PART_BITS: u32 = 10;
/// Most records of a part that are brought into the processor's cache together.
const CLOSE_MAX: usize = 16 << 10;
/// Bytes of a line of the processor's cache.
const CACHE_LINE_BYTES: usize = 64;
/// Mark of a merge cursor at its end.
const AT_END: usize = usize::MAX;

/// Order in which records come out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// By a hash of the key. The seed is random, so that nobody can choose keys of one hash.
    Hash(u64),
    /// By the bytes of the key.
    Key,
}

impl Order {
    fn prefix(self, key: &[u8]) -> u64 {
        match self {
            Order::Hash(seed) => xxhash_rust::xxh3::xxh3_64_with_seed(key, seed),
            Order::Key => {
                let mut first = [0u8; 8];
                let length = key.len().min(8);
                first[..length].copy_from_slice(&key[..length]);
                u64::from_be_bytes(first)
            }
        }
    }
}

/// Splits the bytes of a record into key and rest.
pub(crate) fn split(record: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, bytes)) = record.split_first_chunk::<2>() else { return (&[], &[]) };
    let length = usize::from(u16::from_le_bytes(*length)).min(bytes.len());
    bytes.split_at(length)
}

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    split(a).cmp(&split(b))
}

/// Run of sorted records in the temporary file.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: u64,
    to: u64,
}

/// Collects records, and returns them in order.
pub(crate) struct Sorter {
    order: Order,
    memory: usize,
    /// Records, each with its length before it.
    arena: Vec<u8>,
    /// Prefix and position of each record.
    index: Vec<(u64, u32)>,
    directory: PathBuf,
    file: Option<File>,
    runs: Vec<Run>,
}

impl Sorter {
    /// Makes a sorter with so many bytes of memory; its temporary file is in `directory`.
    pub(crate) fn new(order: Order, memory: usize, directory: &Path) -> Self {
        Sorter {
            order,
            memory,
            arena: Vec::new(),
            index: Vec::new(),
            directory: directory.to_owned(),
            file: None,
            runs: Vec::new(),
        }
    }

    /// Adds a record; its rest is the concatenation of two parts.
    pub(crate) fn push(&mut self, key: &[u8], rest: (&[u8], &[u8])) -> Result<(), Error> {
        let length = 2 + key.len() + rest.0.len() + rest.1.len();
        let bytes = self.arena.len() + length + HEAD_BYTES + (self.index.len() + 1) * INDEX_BYTES;
        if bytes > self.memory && !self.index.is_empty() {
            self.spill()?;
        }
        let too_long = |_| Error::options("a record of a comparison is longer than 64 KiB");
        let key_length = u16::try_from(key.len()).map_err(too_long)?;
        let record_length = u32::try_from(length).map_err(too_long)?;
        let at = u32::try_from(self.arena.len()).map_err(too_long)?;
        if self.arena.capacity() == 0 {
            // Memory that grows is copied, and each copy is of new pages. What is reserved and not used costs
            // nothing; without it, the memory grows.
            let _reserved = self.arena.try_reserve_exact(self.memory);
            let _reserved = self.index.try_reserve_exact(self.memory / (INDEX_BYTES + HEAD_BYTES));
        }
        self.index.push((self.order.prefix(key), at));
        self.arena.extend_from_slice(&record_length.to_le_bytes());
        self.arena.extend_from_slice(&key_length.to_le_bytes());
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(rest.0);
        self.arena.extend_from_slice(rest.1);
        Ok(())
    }

    /// Returns the number of runs in the temporary file.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the records that fit in memory, in order.
    fn in_order(&mut self) -> SortedRecords {
        let (arena, mut index) = (std::mem::take(&mut self.arena), std::mem::take(&mut self.index));
        let parts = match self.order {
            Order::Hash(_) => distribute(&mut index),
            // Many keys begin with the same bytes.
            Order::Key => vec![index.len()],
        };
        SortedRecords { arena, index, parts: parts.into_iter(), next: 0, sorted: 0 }
    }

    fn cannot(&self) -> impl Fn(io::Error) -> Error + use<> {
        let directory = self.directory.clone();
        move |error| Error::file("write a temporary file in", &directory, error)
    }

    fn spill(&mut self) -> Result<(), Error> {
        if self.runs.len() >= COMPARE_RUNS_MAX {
            return Err(Error::options(format!(
                "more than {COMPARE_RUNS_MAX} sorted parts are needed: repeat with a larger --memory"
            )));
        }
        let mut sorted = self.in_order();
        let cannot = self.cannot();
        let file = match self.file.take() {
            Some(file) => file,
            // It has no name, so nothing remains of it, and only this user could open it.
            None => tempfile::tempfile_in(&self.directory).map_err(&cannot)?,
        };
        let from = self.runs.last().map_or(0, |run| run.to);
        let mut out = BufWriter::with_capacity(WRITE_BYTES, file);
        let mut to = from;
        while let Some(record) = sorted.next() {
            let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
            out.write_all(&length.to_le_bytes()).map_err(&cannot)?;
            out.write_all(record).map_err(&cannot)?;
            to += 4 + record.len() as u64;
        }
        let file = out.into_inner().map_err(|error| cannot(error.into_error()))?;
        self.runs.push(Run { from, to });
        self.file = Some(file);
        (self.arena, self.index) = (sorted.arena, sorted.index);
        self.arena.clear();
        self.index.clear();
        Ok(())
    }

    /// Ends the collection, and returns the records in order.
    pub(crate) fn sorted(mut self) -> Result<Sorted, Error> {
        if self.runs.is_empty() {
            return Ok(Sorted::Memory(self.in_order()));
        }
        if !self.index.is_empty() {
            self.spill()?;
        }
        // The memory of the records serves the reads now.
        self.arena = Vec::new();
        self.index = Vec::new();
        let cannot = self.cannot();
        let file = self.file.ok_or(Error::Broken("sorting"))?;
        let each = (self.memory / self.runs.len()).clamp(COMPARE_RUN_READ_BYTES, WRITE_BYTES);
        let mut heap = BinaryHeap::with_capacity(self.runs.len());
        for run in &self.runs {
            let mut cursor = RunCursor {
                order: self.order,
                run: *run,
                buffer: Vec::new(),
                at: 0,
                record: 0,
                each,
                prefix: 0,
            };
            if cursor.advance(&file).map_err(&cannot)? {
                heap.push(cursor);
            }
        }
        Ok(Sorted::Runs { file, heap, directory: self.directory })
    }
}

/// Puts items of the same first bits together, in the order of these bits, and returns how many each part
/// has.
fn distribute(index: &mut [(u64, u32)]) -> Vec<usize> {
    let part_of = |item: &(u64, u32)| (item.0 >> (u64::BITS - PART_BITS)) as usize;
    let mut counts = vec![0; 1 << PART_BITS];
    index.iter().for_each(|item| counts[part_of(item)] += 1);
    let (mut next, mut end) = (Vec::with_capacity(counts.len()), 0);
    for count in &counts {
        next.push(end);
        end += count;
    }
    let mut end = 0;
    for (part, count) in counts.iter().enumerate() {
        end += count;
        while next[part] < end {
            let at = next[part];
            let to = part_of(&index[at]);
            // An item in its own part is swapped with itself.
            index.swap(at, next[to]);
            next[to] += 1;
        }
    }
    counts
}

/// Records in memory. A part is sorted when its turn comes, and its records are used while they are in the
/// processor's cache.
pub(crate) struct SortedRecords {
    arena: Vec<u8>,
    /// Prefix and position of each record, by parts.
    index: Vec<(u64, u32)>,
    /// Records of each part that is not sorted yet.
    parts: std::vec::IntoIter<usize>,
    /// The next record.
    next: usize,
    /// End of the sorted parts.
    sorted: usize,
}

impl SortedRecords {
    fn next(&mut self) -> Option<&[u8]> {
        while self.next == self.sorted {
            let part = &mut self.index[self.sorted..][..self.parts.next()?];
            self.sorted += part.len();
            bring_close(&self.arena, part);
            part.sort_unstable_by(|a, b| {
                let record = |of: &(u64, u32)| record_at(&self.arena, of.1);
                a.0.cmp(&b.0).then_with(|| compare(record(a), record(b)))
            });
        }
        self.next += 1;
        Some(record_at(&self.arena, self.index[self.next - 1].1))
    }
}

/// Brings the records of a part into the processor's cache. They lie anywhere in memory: it waits for many of
/// them at a time here, and for one after the other where they are compared.
fn bring_close(arena: &[u8], part: &[(u64, u32)]) {
    if part.len() > CLOSE_MAX {
        return;
    }
    let lines = part.iter().flat_map(|(_, at)| [*at as usize, *at as usize + CACHE_LINE_BYTES]);
    std::hint::black_box(lines.fold(0, |seen, at| seen ^ arena.get(at).copied().unwrap_or_default()));
}

fn record_at(arena: &[u8], at: u32) -> &[u8] {
    let Some((length, rest)) = arena.get(at as usize..).and_then(|bytes| bytes.split_first_chunk::<4>())
    else {
        return &[];
    };
    rest.get(..u32::from_le_bytes(*length) as usize).unwrap_or_default()
}

/// Reader of one run.
pub(crate) struct RunCursor {
    order: Order,
    run: Run,
    buffer: Vec<u8>,
    /// Position of the next record in the buffer.
    at: usize,
    /// Position of the present record in the buffer.
    record: usize,
    each: usize,
    prefix: u64,
}

impl RunCursor {
    fn present(&self) -> &[u8] {
        self.buffer.get(self.record..self.at).unwrap_or_default()
    }

    /// Reads the next record; false at the end.
    fn advance(&mut self, file: &File) -> io::Result<bool> {
        if !self.has(file, 4)? {
            self.record = AT_END;
            return Ok(false);
        }
        let mut length = [0u8; 4];
        length.copy_from_slice(&self.buffer[self.at..self.at + 4]);
        let length = u32::from_le_bytes(length) as usize;
        if !self.has(file, 4 + length)? {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.record = self.at + 4;
        self.at = self.record + length;
        self.prefix = self.order.prefix(split(self.present()).0);
        Ok(true)
    }

    /// Makes so many bytes available after the present record; false if the run has fewer.
    fn has(&mut self, file: &File, bytes: usize) -> io::Result<bool> {
        if self.buffer.len() - self.at >= bytes {
            return Ok(true);
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let rest = usize::try_from(self.run.to - self.run.from).unwrap_or(usize::MAX);
        let more = self.each.max(bytes).min(rest);
        let old = self.buffer.len();
        self.buffer.resize(old + more, 0);
        file.read_exact_at(&mut self.buffer[old..], self.run.from)?;
        self.run.from += more as u64;
        Ok(self.buffer.len() >= bytes)
    }
}

impl PartialEq for RunCursor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for RunCursor {}
impl PartialOrd for RunCursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for RunCursor {
    /// The heap has its greatest item first, and the smallest record comes out first.
    fn cmp(&self, other: &Self) -> Ordering {
        let ordered = self.prefix.cmp(&other.prefix);
        ordered.then_with(|| compare(self.present(), other.present())).reverse()
    }
}

/// Records in order.
pub(crate) enum Sorted {
    /// All records fit in memory.
    Memory(SortedRecords),
    /// Records are merged from runs.
    Runs {
        /// The temporary file.
        file: File,
        /// Readers of the runs.
        heap: BinaryHeap<RunCursor>,
        /// Directory of the file, for errors.
        directory: PathBuf,
    },
}

impl Sorted {
    /// Passes the next record to `take`; false at the end.
    pub(crate) fn next(&mut self, take: impl FnOnce(&[u8]) -> Result<(), Error>) -> Result<bool, Error> {
        match self {
            Sorted::Memory(records) => {
                let Some(record) = records.next() else { return Ok(false) };
                take(record)?;
                Ok(true)
            }
            Sorted::Runs { file, heap, directory } => {
                let Some(mut first) = heap.peek_mut() else { return Ok(false) };
                take(first.present())?;
                let cannot = |error| Error::file("read a temporary file in", directory, error);
                if !first.advance(file).map_err(cannot)? {
                    std::collections::binary_heap::PeekMut::pop(first);
                }
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut sorted: Sorted) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let take = |found: &mut Vec<_>, record: &[u8]| {
            let (key, rest) = split(record);
            found.push((key.to_vec(), rest.to_vec()));
            Ok(())
        };
        while sorted.next(|record| take(&mut found, record)).unwrap() {}
        found
    }

    /// Records come out sorted, each as often as it went in, whether they fit in memory or not.
    #[test]
    fn records_come_out_in_order_from_memory_and_from_runs() {
        let directory = tempfile::tempdir().unwrap();
        for memory in [1 << 20, 4096, 300] {
            let mut sorter = Sorter::new(Order::Key, memory, directory.path());
            let mut expected = Vec::new();
            for number in 0u64..2000 {
                let key = format!("/d/{}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 700);
                let rest = number.to_be_bytes();
                sorter.push(key.as_bytes(), (b"x", &rest)).unwrap();
                expected.push((key.into_bytes(), [&b"x"[..], &rest].concat()));
            }
            assert_eq!(sorter.runs() > 0, memory < 1 << 20, "{memory}");
            expected.sort();
            assert_eq!(all(sorter.sorted().unwrap()), expected, "{memory}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no file has a name");
    }

    /// Items are distributed by their first bits, and none is lost, whatever they are.
    #[test]
    fn items_of_the_same_first_bits_are_put_together() {
        let mixed = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let all_of_one = |_: u64| 5 << 60 | 7;
        for hash in [&mixed as &dyn Fn(u64) -> u64, &all_of_one] {
            for count in [0, 1, 5000] {
                let mut index: Vec<(u64, u32)> = (0..count).map(|at| (hash(u64::from(at)), at)).collect();
                let counts = distribute(&mut index);
                assert_eq!(counts.iter().sum::<usize>(), count as usize);
                assert!(index.is_sorted_by_key(|item| item.0 >> (u64::BITS - PART_BITS)));
                index.sort_unstable_by_key(|item| item.1);
                assert!(index.iter().zip(0..).all(|(item, at)| *item == (hash(u64::from(at)), at)));
            }
        }
    }

    /// Records of one key are neighbours in the order of hashes.
    #[test]
    fn equal_keys_are_neighbours_in_the_order_of_hashes() {
        let directory = tempfile::tempdir().unwrap();
        for memory in [1 << 20, 500] {
            let mut sorter = Sorter::new(Order::Hash(7), memory, directory.path());
            for number in 0..900 {
                sorter.push(format!("{}", number % 300).as_bytes(), (&[], &[(number / 300) as u8])).unwrap();
            }
            let found = all(sorter.sorted().unwrap());
            assert_eq!(found.len(), 900);
            for three in found.chunks(3) {
                assert!(
                    three
                        .iter()
                        .enumerate()
                        .all(|(at, (key, rest))| { *key == three[0].0 && *rest == [at as u8] })
                );
            }
        }
    }

    /// The memory is a limit: at its edge nothing is spilled, one byte less spills.
    #[test]
    fn memory_is_used_to_its_edge_and_not_beyond() {
        let directory = tempfile::tempdir().unwrap();
        // Two records of 10 bytes, with their heads and index items.
        let two = 2 * (4 + 2 + 10 + INDEX_BYTES) + 2;
        for (memory, runs) in [(two, 0), (two - 1, 1)] {
            let mut sorter = Sorter::new(Order::Key, memory, directory.path());
            for _ in 0..2 {
                sorter.push(b"0123456789", (&[], &[])).unwrap();
            }
            assert_eq!(sorter.runs(), runs, "{memory}");
        }
        let mut sorter = Sorter::new(Order::Key, 1, directory.path());
        for _ in 0..=COMPARE_RUNS_MAX {
            sorter.push(b"k", (&[], &[])).unwrap();
        }
        assert_eq!(sorter.runs(), COMPARE_RUNS_MAX);
        let error = sorter.push(b"k", (&[], &[])).unwrap_err().to_string();
        assert!(error.contains("--memory"), "{error}");
        assert!(sorter.push(&[b'k'; 1 << 16], (&[], &[])).is_err());
    }
}
