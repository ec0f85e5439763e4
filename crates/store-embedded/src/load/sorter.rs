//! Sorts packed files by their keys: in memory as far as there is room, in sorted parts on disk
//! beyond that.

use std::cmp::Ordering;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile};

use super::row::{Placed, name_and_number};

/// Approximate bytes of a block of a part on disk, written and read at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes before a block: its length u32, its checksum u32.
const BLOCK_HEAD_BYTES: usize = 8;
/// Number of rows below which a second thread does not pay.
const SORT_ALONE_ROWS: usize = 1 << 14;

/// Place of a row, and as much of its key as most comparisons need.
#[derive(Clone, Copy, Debug)]
struct Ref {
    directory: u64,
    /// First eight bytes of the name, big-endian.
    prefix: u64,
    /// Index of the chunk; `at` is the offset in it.
    chunk: u32,
    at: u32,
}

fn prefix_of(name: &[u8]) -> u64 {
    let mut prefix = [0; 8];
    let count = name.len().min(8);
    prefix[..count].copy_from_slice(&name[..count]);
    u64::from_be_bytes(prefix)
}

/// Packed files, one behind the other.
#[derive(Default)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    refs: Vec<Ref>,
}

impl Rows {
    /// Returns the buffer to which the next file is appended.
    pub(crate) fn begin(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Notes that a whole file was appended at `start`.
    pub(crate) fn end(&mut self, start: usize) {
        if let Some(placed) = self.bytes.get(start..).and_then(Placed::read) {
            let (directory, prefix) = (placed.parent().0, prefix_of(placed.name));
            // Chunks are cut long before that.
            let at = u32::try_from(start).unwrap_or(u32::MAX);
            self.refs.push(Ref { directory, prefix, chunk: 0, at });
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn memory(&self) -> usize {
        self.bytes.len() + self.refs.len() * size_of::<Ref>()
    }
}

/// Packed files in memory, in their original order, and their sorted order.
#[derive(Default)]
struct Gathered {
    chunks: Vec<Vec<u8>>,
    refs: Vec<Ref>,
    bytes: usize,
}

fn row_of<'a>(chunks: &'a [Vec<u8>], row: &Ref) -> &'a [u8] {
    chunks.get(row.chunk as usize).and_then(|chunk| chunk.get(row.at as usize..)).unwrap_or_default()
}

/// Compares by key; of one name the smallest number comes first.
fn compare(chunks: &[Vec<u8>], one: &Ref, other: &Ref) -> Ordering {
    let more = |row: &Ref| name_and_number(row_of(chunks, row));
    (one.directory, one.prefix)
        .cmp(&(other.directory, other.prefix))
        .then_with(|| more(one).cmp(&more(other)))
}

impl Gathered {
    fn memory(&self) -> usize {
        self.bytes + self.refs.len() * size_of::<Ref>()
    }

    fn add(&mut self, more: Rows) {
        // Each chunk has at least one file, and all fit into memory.
        let chunk = self.chunks.len() as u32;
        self.bytes += more.bytes.len();
        self.refs.extend(more.refs.iter().map(|row| Ref { chunk, ..*row }));
        self.chunks.push(more.bytes);
    }

    fn get(&self, index: usize) -> Option<Placed<'_>> {
        Placed::read(row_of(&self.chunks, self.refs.get(index)?))
    }

    /// Sorts, on two threads if it pays: then each half is sorted by itself. Returns the begin of
    /// the second half.
    fn sort(&mut self) -> usize {
        let Gathered { chunks, refs, .. } = self;
        let chunks = &*chunks;
        if refs.is_sorted_by(|one, other| compare(chunks, one, other).is_lt()) {
            return refs.len();
        }
        let sort = |refs: &mut [Ref]| refs.sort_unstable_by(|one, other| compare(chunks, one, other));
        if refs.len() <= SORT_ALONE_ROWS {
            sort(refs);
            return refs.len();
        }
        let middle = refs.len() / 2;
        let (low, high) = refs.split_at_mut(middle);
        std::thread::scope(|scope| {
            scope.spawn(|| sort(low));
            sort(high);
        });
        middle
    }
}

/// Sorter of packed files.
pub(super) struct Sorter {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    rows: Gathered,
    memory_max: usize,
    count: u64,
    parts: Vec<Arc<dyn DiskFile>>,
}

impl Sorter {
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path, memory_max: usize) -> Self {
        let directory = directory.to_owned();
        Sorter { disk, directory, rows: Gathered::default(), memory_max, count: 0, parts: Vec::new() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Adds packed files.
    pub(crate) fn append(&mut self, more: Rows) -> io::Result<()> {
        if !self.rows.refs.is_empty() && self.rows.memory() + more.memory() > self.memory_max {
            self.spill()?;
        }
        self.count += more.refs.len() as u64;
        if !more.refs.is_empty() {
            self.rows.add(more);
        }
        Ok(())
    }

    /// Moves the files in memory into a sorted part on disk.
    fn spill(&mut self) -> io::Result<()> {
        let middle = self.rows.sort();
        let rows = std::mem::take(&mut self.rows);
        let path = self.directory.join(format!("{:06}.part", self.parts.len()));
        let mut out = SortedPart { file: Arc::from(self.disk.create(&path)?), block: Vec::new(), at: 0 };
        let mut sorted = Sorted::of_memory(rows, middle)?;
        while let Some(placed) = sorted.current() {
            out.put(placed.bytes)?;
            sorted.advance()?;
        }
        out.flush()?;
        self.parts.push(out.file);
        Ok(())
    }

    /// Returns all files in order.
    pub(crate) fn finish(mut self) -> io::Result<Sorted> {
        let middle = self.rows.sort();
        let mut sorted = Sorted::of_memory(std::mem::take(&mut self.rows), middle)?;
        for file in self.parts {
            let length = file.length()?;
            sorted.add(Source::SortedPart { file, at: 0, length, block: Vec::new(), next: 0 })?;
        }
        Ok(sorted)
    }
}

/// A part being written.
struct SortedPart {
    file: Arc<dyn DiskFile>,
    block: Vec<u8>,
    at: u64,
}

impl SortedPart {
    fn put(&mut self, row: &[u8]) -> io::Result<()> {
        if self.block.is_empty() {
            self.block.resize(BLOCK_HEAD_BYTES, 0);
        }
        self.block.extend_from_slice(row);
        if self.block.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some((head, rows)) = self.block.split_at_mut_checked(BLOCK_HEAD_BYTES) {
            // A block is little longer than BLOCK_BYTES.
            head[..4].copy_from_slice(&(rows.len() as u32).to_le_bytes());
            head[4..].copy_from_slice(&crc32fast::hash(rows).to_le_bytes());
            self.file.write_at(&self.block, self.at)?;
            self.at += self.block.len() as u64;
            self.block.clear();
        }
        Ok(())
    }
}

/// Packed files in order, positioned on one, unless it is at the end.
enum Source {
    /// Files of the refs from `next` to `end`.
    Memory { next: usize, end: usize },
    /// Files of a part, from `next` in its block on.
    SortedPart { file: Arc<dyn DiskFile>, at: u64, length: u64, block: Vec<u8>, next: usize },
}

impl Source {
    fn current<'a>(&'a self, rows: &'a Gathered) -> Option<Placed<'a>> {
        match self {
            Source::Memory { next, end } if next < end => rows.get(*next),
            Source::Memory { .. } => None,
            Source::SortedPart { block, next, .. } => block.get(*next..).and_then(Placed::read),
        }
    }

    /// Reads the next block if the position is at the end of this one.
    fn read_next(&mut self) -> io::Result<()> {
        let Source::SortedPart { file, at, length, block, next } = self else { return Ok(()) };
        if *next < block.len() || *at >= *length {
            return Ok(());
        }
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a temporary file of a load is damaged");
        let mut head = [0; BLOCK_HEAD_BYTES];
        if file.read_at(&mut head, *at)? < BLOCK_HEAD_BYTES {
            return Err(damaged());
        }
        let [a, b, c, d, sum @ ..] = head;
        let bytes = u32::from_le_bytes([a, b, c, d]);
        if u64::from(bytes) > *length - *at {
            return Err(damaged());
        }
        block.resize(bytes as usize, 0);
        let read = file.read_at(block, *at + BLOCK_HEAD_BYTES as u64)?;
        if read < block.len() || crc32fast::hash(block) != u32::from_le_bytes(sum) {
            return Err(damaged());
        }
        *at += BLOCK_HEAD_BYTES as u64 + u64::from(bytes);
        *next = 0;
        Ok(())
    }

    fn advance(&mut self, row_bytes: usize) -> io::Result<()> {
        match self {
            Source::Memory { next, .. } => *next += 1,
            Source::SortedPart { next, block, .. } => {
                *next += row_bytes;
                if *next >= block.len() {
                    block.clear();
                    *next = 0;
                }
            }
        }
        self.read_next()
    }
}

/// All files of a load in the order of their keys, those of one name in the order of their numbers;
/// positioned on one.
pub(super) struct Sorted {
    rows: Gathered,
    sources: Vec<Source>,
    /// Sources that are on a row, in the order of these rows.
    order: Vec<usize>,
}

type Key<'a> = (u64, &'a [u8], u64);

impl Sorted {
    fn of_memory(rows: Gathered, middle: usize) -> io::Result<Self> {
        let end = rows.refs.len();
        let mut sorted = Sorted { rows, sources: Vec::new(), order: Vec::new() };
        sorted.add(Source::Memory { next: 0, end: middle })?;
        sorted.add(Source::Memory { next: middle, end })?;
        Ok(sorted)
    }

    fn add(&mut self, mut source: Source) -> io::Result<()> {
        source.read_next()?;
        self.sources.push(source);
        let number = self.sources.len() - 1;
        if self.key(number).is_some() {
            self.order.push(number);
            self.order.rotate_right(1);
            self.place_first();
        }
        Ok(())
    }

    fn key(&self, source: usize) -> Option<Key<'_>> {
        let placed = self.sources[source].current(&self.rows)?;
        Some((placed.parent().0, placed.name, placed.number()))
    }

    /// Moves the first source to its place in the order; the others are in order.
    fn place_first(&mut self) {
        let Some((first, others)) = self.order.split_first() else { return };
        let Some(key) = self.key(*first) else {
            self.order.remove(0);
            return;
        };
        let before = |other: &usize| self.key(*other) < Some(key);
        // In most cases the source stays in place.
        if others.first().is_some_and(before) {
            let passed = others.partition_point(before);
            self.order[..=passed].rotate_left(1);
        }
    }

    /// Returns the current file.
    pub(crate) fn current(&self) -> Option<Placed<'_>> {
        self.sources[*self.order.first()?].current(&self.rows)
    }

    /// Moves to the next file.
    pub(crate) fn advance(&mut self) -> io::Result<()> {
        let Some(first) = self.order.first().copied() else { return Ok(()) };
        let bytes = self.sources[first].current(&self.rows).map_or(0, |placed| placed.bytes.len());
        self.sources[first].advance(bytes)?;
        self.place_first();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::{DirId, NewEntry};

    use super::super::pack::pack;
    use super::*;
    use crate::page::RowRoom;
    use exacat_testkit::simulated::{Random, SimulatedDisk};

    fn file(directory: u64, name: &str, number: u64) -> NewEntry {
        match crate::tests::file(DirId(directory), name, number) {
            exacat_model::Mutation::Create(new) => *new,
            _ => unreachable!(),
        }
    }

    /// Goal: files come in the order of keys and numbers, however little memory there is, and none
    /// is lost or doubled.
    #[test]
    fn files_come_sorted_whatever_the_memory() {
        for (memory, parts_min) in [(usize::MAX, 0), (150_000, 4), (1, 30)] {
            let disk = SimulatedDisk::new();
            let directory = Path::new("/data/load");
            disk.shared().create_directory(directory).unwrap();
            let mut sorter = Sorter::new(disk.shared(), directory, memory);
            let mut random = Random(memory as u64);
            let mut wanted = Vec::new();
            for batch in 0..40 {
                let mut rows = Rows::default();
                for item in 0..100 {
                    let (directory, number) = (1 + random.next(5), batch * 100 + item);
                    let name =
                        format!("{}{}", "long-beginning-".repeat(random.next(2) as usize), random.next(900));
                    pack(number, file(directory, &name, number), &mut RowRoom::default(), &mut rows).unwrap();
                    wanted.push((directory, name.into_bytes(), number));
                }
                sorter.append(rows).unwrap();
            }
            assert!(sorter.parts.len() >= parts_min, "{} parts", sorter.parts.len());
            assert_eq!(sorter.len(), 4000);
            wanted.sort();
            let mut sorted = sorter.finish().unwrap();
            for (directory, name, number) in wanted {
                let found = sorted.current().unwrap();
                assert_eq!((found.parent().0, found.name, found.number()), (directory, &name[..], number));
                sorted.advance().unwrap();
            }
            assert!(sorted.current().is_none());
        }
    }

    /// Goal: a part that the disk changed is not loaded.
    #[test]
    fn a_damaged_part_is_refused() {
        let disk = SimulatedDisk::new();
        let directory = Path::new("/data/load");
        disk.shared().create_directory(directory).unwrap();
        for at in [0, 5, 70] {
            let mut sorter = Sorter::new(disk.shared(), directory, 1);
            for number in 0..3 {
                let mut rows = Rows::default();
                pack(number, file(1, "name", number), &mut RowRoom::default(), &mut rows).unwrap();
                sorter.append(rows).unwrap();
            }
            let part = &sorter.parts[0];
            let mut byte = [0];
            part.read_at(&mut byte, at).unwrap();
            part.write_at(&[byte[0] ^ 0x40], at).unwrap();
            let refused = sorter.finish().err().map(|error| error.kind());
            assert_eq!(refused, Some(io::ErrorKind::InvalidData), "byte {at}");
        }
    }
}
