//! Rows on the disk of this server, in partitions that fit into memory one at a time. A catalogue
//! is larger than memory.
//!
//! All after-images of one key are in one partition, in the order in which they came. A partition is a
//! list of chunks of one file, each packed on its own. The file has no name, so nothing of it
//! stays, however the server ends.

use std::fs::File;
use std::hash::BuildHasher;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use exacat_model::codec::{Decode, Encode};
use exacat_model::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use crate::limits::{AUDIT_CHUNK_BYTES, AUDIT_PARTITIONS_MAX, GROUP_UNPACKED_MAX};
use crate::rows::{AfterImage, Key};

/// Compression level of chunks: speed counts.
const LEVEL: i32 = 1;

/// Source of an after-image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A table, at some moment while it was read.
    Table,
    /// The log, in its order, after all of the tables.
    Log,
}

/// One partition.
#[derive(Default)]
struct Partition {
    waiting: Vec<u8>,
    /// Offset and length of each chunk in the file.
    chunks: Vec<(u64, usize)>,
}

/// Spilled rows.
pub(super) struct Spill {
    file: File,
    end: u64,
    partitions: Vec<Partition>,
}

/// Number of partitions for `rows` rows at `each` rows a partition.
pub(super) fn partitions_for(rows: u64, each: u64) -> usize {
    usize::try_from(rows.div_ceil(each.max(1))).unwrap_or(usize::MAX).clamp(1, AUDIT_PARTITIONS_MAX)
}

fn disk(error: impl std::fmt::Display) -> Error {
    let why = format!(
        "a check of everything writes rows to the disk of the server, and cannot: {error}; make room there"
    );
    Error::new(ErrorKind::Unavailable, why)
}

impl Spill {
    /// Makes a spill file in this directory.
    pub(crate) fn new(directory: &Path, partitions: usize) -> Result<Self> {
        let file = tempfile::tempfile_in(directory).map_err(disk)?;
        Ok(Spill { file, end: 0, partitions: (0..partitions.max(1)).map(|_| Partition::default()).collect() })
    }

    pub(crate) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Partition of a key. Records and totals are in 0, because all other checks need them. A
    /// member is with its collection.
    fn place(&self, key: &Key) -> usize {
        let hash = match key {
            Key::Record(_) | Key::Totals => return 0,
            Key::Member { collection, .. } | Key::Members(collection) => {
                Xxh3DefaultBuilder::new().hash_one(collection)
            }
            key => Xxh3DefaultBuilder::new().hash_one(key),
        };
        (hash % self.partitions.len() as u64) as usize
    }

    /// Appends a row, or the note that it is gone.
    pub(crate) fn put(&mut self, from: From, after_image: &AfterImage) -> Result<()> {
        let place = self.place(&after_image.key);
        let Some(partition) = self.partitions.get_mut(place) else { return Ok(()) };
        let bytes = after_image.to_bytes();
        partition.waiting.push(u8::from(from == From::Log));
        partition.waiting.extend((bytes.len() as u32).to_le_bytes());
        partition.waiting.extend(bytes);
        if partition.waiting.len() < AUDIT_CHUNK_BYTES {
            return Ok(());
        }
        let packed = zstd::bulk::compress(&partition.waiting, LEVEL).map_err(disk)?;
        partition.waiting.clear();
        self.file.write_all(&packed).map_err(disk)?;
        partition.chunks.push((self.end, packed.len()));
        self.end += packed.len() as u64;
        Ok(())
    }

    /// Calls `then` for each after_image of one partition, in order.
    pub(crate) fn each(
        &self,
        partition: usize,
        mut then: impl FnMut(From, AfterImage) -> Result<()>,
    ) -> Result<()> {
        let Some(partition) = self.partitions.get(partition) else { return Ok(()) };
        for (at, bytes) in &partition.chunks {
            let mut packed = vec![0; *bytes];
            self.file.read_exact_at(&mut packed, *at).map_err(disk)?;
            let chunk = zstd::bulk::decompress(&packed, GROUP_UNPACKED_MAX).map_err(disk)?;
            each_of(&chunk, &mut then)?;
        }
        each_of(&partition.waiting, &mut then)
    }
}

fn each_of(mut chunk: &[u8], then: &mut impl FnMut(From, AfterImage) -> Result<()>) -> Result<()> {
    while let Some(((from, length), rest)) = chunk.split_first_chunk::<5>().map(|(head, rest)| {
        let [from, length @ ..] = *head;
        ((from, u32::from_le_bytes(length) as usize), rest)
    }) {
        let Some((after_image, rest)) = rest.split_at_checked(length) else {
            return Err(disk("a file of its rows is cut off"));
        };
        then(
            if from == 0 { From::Table } else { From::Log },
            AfterImage::from_bytes(after_image).map_err(disk)?,
        )?;
        chunk = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use exacat_model::{At, DirId, Guid, Name};

    use super::*;
    use crate::rows::Row;

    #[test]
    fn what_is_set_aside_comes_back_in_order_and_in_one_partition() {
        let directory = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(directory.path(), 7).unwrap();
        let long = "n".repeat(200);
        let key = |number: u64| {
            let name = Name::parse(&format!("{long}{number}")).unwrap();
            Key::Entry(At { parent: DirId(number), name })
        };
        let count = (AUDIT_CHUNK_BYTES / 10) as u64;
        for number in 0..count {
            spill.put(From::Table, &AfterImage { key: key(number), row: Some(Row::There) }).unwrap();
        }
        for number in (0..count).step_by(10) {
            spill.put(From::Log, &AfterImage { key: key(number), row: None }).unwrap();
        }
        let collection = Guid([7; 16]);
        spill.put(From::Log, &AfterImage { key: Key::Members(collection), row: None }).unwrap();
        let member = Key::Member { collection, guid: Guid([8; 16]) };
        spill.put(From::Log, &AfterImage { key: member.clone(), row: Some(Row::There) }).unwrap();
        assert!(spill.partitions.iter().all(|partition| partition.chunks.len() > 1));
        assert_eq!(directory.path().read_dir().unwrap().count(), 0, "the file has no name");
        let mut found = std::collections::BTreeMap::new();
        for partition in 0..spill.partitions() {
            spill
                .each(partition, |from, after_image| {
                    let times: &mut Vec<_> = found.entry(after_image.key).or_insert_with(Vec::new);
                    times.push((partition, from, after_image.row.is_some()));
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(found.len() as u64, count + 2);
        for number in 0..count {
            let times = &found[&key(number)];
            let states: Vec<_> = times.iter().map(|(_, from, there)| (*from, *there)).collect();
            let gone = [(From::Table, true), (From::Log, false)];
            assert_eq!(states, gone[..if number % 10 == 0 { 2 } else { 1 }]);
            assert!(times.iter().all(|(partition, ..)| *partition == times[0].0));
        }
        assert_eq!(found[&member][0].0, found[&Key::Members(collection)][0].0);
    }

    #[test]
    fn partitions_are_as_many_as_are_needed() {
        assert_eq!(partitions_for(0, 100), 1);
        assert_eq!(partitions_for(100, 100), 1);
        assert_eq!(partitions_for(101, 100), 2);
        assert_eq!(partitions_for(u64::MAX, 1), AUDIT_PARTITIONS_MAX);
        assert_eq!(partitions_for(5, 0), 5);
    }
}
