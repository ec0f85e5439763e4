//! Chooses partitions, so that none grows without bound and rows written together are in few.
//!
//! Most kinds of rows have a fixed number of partitions: by a hash, or by runs of consecutive
//! numbers. The children of a directory begin in one partition, so a page of a listing is one read.
//! A directory with very many children gets more: 16 at level 1, 256 at level 2. Later rows go
//! there, by a hash of the name. Rows in partitions of lower levels stay there until they change.
//! So the store moves nothing, and looks for a name in one partition of each level.

use exacat_model::{Guid, Name, OperationId};
use xxhash_rust::xxh3::xxh3_64;

/// Partitions of the files of one SE: with 100 M files 780 000 rows each, some 30 MB.
pub(crate) const SE_SHARDS: u8 = 128;
/// Partitions of the places of all files: with 1000 M files a million rows each, some 70 MB.
pub(crate) const OBJECT_SHARDS: u64 = 1024;
/// Consecutive directories, or accounts, in one partition, as a power of two.
pub(crate) const RUN_BITS: u32 = 10;
/// Partitions of upload reservations, in the order of their GUIDs, as a power of two: with a
/// million uploads in flight 63 000 rows each.
pub(crate) const RESERVATION_SHARD_BITS: u32 = 4;
/// Revisions of one partition of trash or deletions, as a power of two.
pub(crate) const REVISION_BITS: u32 = 20;
/// Period of one *epoch* of the table of operations: operation ids made in it share partitions. So
/// an outcome is one read, and the table drops rows by their age, once nobody can ask for them.
pub(crate) const EPOCH_MS: u64 = 60_000;
/// Partitions of an epoch: at 30 000 requests a second 7000 rows each.
pub(crate) const EPOCH_SHARDS: u64 = 256;
/// Highest level of a directory.
pub(crate) const LEVEL_MAX: u8 = 3;
/// Growth of the number of partitions per level, as a power of two.
const GROWTH_BITS: u32 = 4;

/// Partitions of a directory at this level, without those of the levels below.
pub(crate) const fn partitions_at(level: u8) -> u64 {
    1 << (GROWTH_BITS * level as u32)
}

/// Children a directory may have at this level, at `partition_rows` rows a partition.
pub(crate) const fn children_max(level: u8, partition_rows: u64) -> u64 {
    partition_rows.saturating_mul(partitions_at(level))
}

/// Returns the level for a directory with so many children, `now` being its present one. Levels
/// never fall, because written rows stay in their partitions.
pub(crate) fn level_for(children: u64, now: u8, partition_rows: u64) -> u8 {
    let mut level = now;
    while level < LEVEL_MAX && children > children_max(level, partition_rows) {
        level += 1;
    }
    level
}

/// Returns the number of the first partition of a level. The numbers of all levels are consecutive.
const fn first_bucket(level: u8) -> u64 {
    let (mut first, mut below) = (0, 0);
    while below < level {
        first += partitions_at(below);
        below += 1;
    }
    first
}

/// Returns the partition of this name at this level.
pub(crate) fn bucket(level: u8, name: &Name) -> u32 {
    let within = if level == 0 { 0 } else { xxh3_64(name.as_str().as_bytes()) % partitions_at(level) };
    (first_bucket(level) + within) as u32
}

/// Lists the partitions where a name can be in a directory of this level. It is written to the
/// first.
pub(crate) fn buckets_of(level: u8, name: &Name) -> impl Iterator<Item = u32> + use<'_> {
    (0..=level.min(LEVEL_MAX)).rev().map(|level| bucket(level, name))
}

/// Lists all partitions of a directory of this level.
pub(crate) fn all_buckets(level: u8) -> std::ops::Range<u32> {
    0..first_bucket(level.min(LEVEL_MAX) + 1) as u32
}

pub(crate) fn shard_on_se(guid: Guid) -> u8 {
    (xxh3_64(&guid.0) % u64::from(SE_SHARDS)) as u8
}

pub(crate) fn shard_of_object(guid: Guid) -> u64 {
    // Other bits than those that choose among the partitions of an SE.
    (xxh3_64(&guid.0) >> 32) % OBJECT_SHARDS
}

pub(crate) fn shard_of_reservation(guid: Guid) -> u32 {
    u32::from(guid.0[0]) >> (8 - RESERVATION_SHARD_BITS)
}

pub(crate) fn shard_of_operation(operation: OperationId) -> u64 {
    xxh3_64(&operation.0) % EPOCH_SHARDS
}

/// Epoch of a request.
pub(crate) fn epoch_of(operation: OperationId) -> u64 {
    operation.made().0 / EPOCH_MS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::limits::PARTITION_ROWS_MAX;

    #[test]
    fn partitions_of_a_directory_stay_bounded() {
        assert_eq!(level_for(PARTITION_ROWS_MAX, 0, PARTITION_ROWS_MAX), 0);
        assert_eq!(level_for(PARTITION_ROWS_MAX + 1, 0, PARTITION_ROWS_MAX), 1);
        assert_eq!(level_for(0, 2, PARTITION_ROWS_MAX), 2);
        assert_eq!(level_for(u64::MAX, 0, PARTITION_ROWS_MAX), LEVEL_MAX);
        // Adds children one after the other, and computes the rows of the fullest partition.
        for (children, most) in [(10_000_000u64, 110_000), (100_000_000, 110_000), (400_000_000, 110_000)] {
            let (mut written, mut level, mut fullest) = (0, 0, 0u64);
            while written < children {
                let until = children_max(level, PARTITION_ROWS_MAX).min(children);
                let until = if level == LEVEL_MAX { children } else { until };
                fullest = fullest.max((until - written) / partitions_at(level));
                written = until;
                level = level_for(written + 1, level, PARTITION_ROWS_MAX).max(level);
            }
            assert!(fullest <= most, "{children} children: {fullest} rows in one partition, {level} levels");
        }
    }

    #[test]
    fn names_are_spread_evenly_over_their_partitions() {
        let mut rows = vec![0u32; partitions_at(2) as usize];
        for number in 0..256_000 {
            let name = Name::parse(&format!("run{:06}.root", number)).unwrap();
            let here = bucket(2, &name);
            assert!(all_buckets(2).contains(&here) && !all_buckets(1).contains(&here));
            assert_eq!(buckets_of(2, &name).collect::<Vec<_>>(), [here, bucket(1, &name), 0]);
            rows[(here - all_buckets(1).end) as usize] += 1;
        }
        assert!(rows.iter().all(|rows| (800..1200).contains(rows)), "{:?}", rows.iter().max());
    }
}
