//! Finds GUIDs that several files of a load have: a load cannot decide which file gets the GUID.
//!
//! It stores hashes of eight bytes, sorted in parts on disk if they are many. Two GUIDs with one
//! hash by chance do no harm: the ordinary path takes both files.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile};
use exacat_model::Guid;
use xxhash_rust::xxh3::xxh3_64;

/// Share of the memory for sorting that GUIDs get, as a divisor.
const SHARE: usize = 4;
/// Hashes per read from a part.
const READ_HASHES: usize = 8192;

fn hash(guid: Guid) -> u64 {
    xxh3_64(&guid.0)
}

/// Finder of repeated GUIDs.
pub(super) struct Twice {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    hashes: Vec<u64>,
    hashes_max: usize,
    /// Parts on disk, each with its number of hashes.
    parts: Vec<(Arc<dyn DiskFile>, u64)>,
}

impl Twice {
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: &Path, memory_max: usize) -> Self {
        let hashes_max = (memory_max / SHARE / size_of::<u64>()).max(1);
        Twice { disk, directory: directory.to_owned(), hashes: Vec::new(), hashes_max, parts: Vec::new() }
    }

    pub(crate) fn append(&mut self, guids: &[Guid]) -> io::Result<()> {
        for guid in guids {
            if self.hashes.len() >= self.hashes_max {
                self.spill()?;
            }
            self.hashes.push(hash(*guid));
        }
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        self.hashes.sort_unstable();
        let path = self.directory.join(format!("{:06}.guids", self.parts.len()));
        let file: Arc<dyn DiskFile> = Arc::from(self.disk.create(&path)?);
        let mut at = 0;
        for hashes in self.hashes.chunks(READ_HASHES) {
            let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
            file.write_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        self.parts.push((file, self.hashes.len() as u64));
        self.hashes.clear();
        Ok(())
    }

    /// Returns the GUIDs that occur more than once.
    pub(crate) fn finish(mut self) -> io::Result<Repeated> {
        self.hashes.sort_unstable();
        let mut found = HashSet::new();
        if self.parts.is_empty() {
            found.extend(self.hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]));
            return Ok(Repeated(found));
        }
        self.spill()?;
        let mut readers: Vec<Hashes> = Vec::with_capacity(self.parts.len());
        let mut heap = BinaryHeap::with_capacity(self.parts.len());
        for (number, (file, count)) in self.parts.into_iter().enumerate() {
            let mut reader = Hashes { file, count, given: 0, read: Vec::new().into_iter() };
            heap.extend(reader.next()?.map(|hash| Reverse((hash, number))));
            readers.push(reader);
        }
        let mut last = None;
        while let Some(Reverse((hash, number))) = heap.pop() {
            if last.replace(hash) == Some(hash) {
                found.insert(hash);
            }
            heap.extend(readers[number].next()?.map(|hash| Reverse((hash, number))));
        }
        Ok(Repeated(found))
    }
}

/// Hashes of a part, being read.
struct Hashes {
    file: Arc<dyn DiskFile>,
    count: u64,
    given: u64,
    read: std::vec::IntoIter<u64>,
}

impl Hashes {
    fn next(&mut self) -> io::Result<Option<u64>> {
        if self.given == self.count {
            return Ok(None);
        }
        if self.read.len() == 0 {
            let left = usize::try_from(self.count - self.given).unwrap_or(READ_HASHES).min(READ_HASHES);
            let mut bytes = vec![[0; 8]; left];
            if self.file.read_at(bytes.as_flattened_mut(), self.given * 8)? < left * 8 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read = bytes.into_iter().map(u64::from_le_bytes).collect::<Vec<_>>().into_iter();
        }
        self.given += 1;
        Ok(self.read.next())
    }
}

/// GUIDs that occur more than once, and perhaps a few others.
pub(super) struct Repeated(HashSet<u64>);

impl Repeated {
    pub(crate) fn has(&self, guid: Guid) -> bool {
        !self.0.is_empty() && self.0.contains(&hash(guid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::guid;
    use exacat_testkit::simulated::SimulatedDisk;

    #[test]
    fn guids_that_are_there_twice_are_found_whatever_the_memory() {
        for memory in [usize::MAX, 4 << 10, 1] {
            let disk = SimulatedDisk::new();
            let directory = Path::new("/data/load");
            disk.shared().create_directory(directory).unwrap();
            let mut twice = Twice::new(disk.shared(), directory, memory);
            let count = if memory == 1 { 50 } else { 5000 };
            for number in 0..count {
                twice.append(&[guid(number)]).unwrap();
            }
            twice.append(&[guid(7), guid(count - 1), guid(count + 5), guid(7)]).unwrap();
            let repeated = twice.finish().unwrap();
            for number in 0..count + 10 {
                assert_eq!(repeated.has(guid(number)), [7, count - 1].contains(&number), "{number}");
            }
        }
    }
}
