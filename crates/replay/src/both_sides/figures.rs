//! Figures of a cache: sums of its records, and an estimate of what it fetched from afar.
//!
//! A record tells the bytes that clients asked for, and how they were served. It does not tell what crossed
//! the network: a cache fetches whole blocks, and blocks ahead. So there is no one hit rate: the figures
//! have sessions, bytes asked, and bytes fetched, each for itself.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::events::CacheRecord;

/// Figures of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CacheFigures {
    /// File sessions. One may have had several clients.
    pub sessions: u64,
    /// Sessions among them that read nothing.
    pub sessions_without_reads: u64,
    /// Sessions among them that read, and got everything from the cache.
    pub sessions_hit: u64,
    /// Bytes that clients got from the cache.
    pub bytes_hit: u64,
    /// Bytes that clients got, and the cache did not have.
    pub bytes_miss: u64,
    /// Bytes that went by the cache.
    pub bytes_bypass: u64,
    /// Bytes fetched from afar: told by the cache, or estimated by the growth of its files.
    pub bytes_fetched: u64,
    /// Sessions whose fetched bytes the cache told itself (from release 5.7.2 on).
    pub sessions_told: u64,
    /// Sessions of files that were in the cache before the first record: what they fetched is the least.
    pub sessions_uncertain: u64,
    /// Bytes fetched ahead, as far as the cache tells them.
    pub bytes_prefetched: u64,
    /// Errors of checksums. Release 5.5.3 miscounts them.
    pub checksum_errors: u64,
    /// Files.
    pub files: u64,
    /// Bytes of these files.
    pub bytes_of_files: u64,
    /// Files that came into the cache again after they were removed from it.
    pub files_again: u64,
    /// True if there were more files than are remembered: the figures of files are the least then.
    pub is_incomplete: bool,
    /// First begin of a session, in seconds since 1970.
    pub first: Option<u64>,
    /// Last end of a session, in seconds since 1970.
    pub last: Option<u64>,
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| part as f64 / of as f64)
}

impl CacheFigures {
    /// Returns the bytes that clients asked for.
    pub fn bytes_asked(&self) -> u64 {
        self.bytes_hit.saturating_add(self.bytes_miss).saturating_add(self.bytes_bypass)
    }

    /// Returns the share of sessions that got everything from the cache, of those that read.
    pub fn share_of_sessions(&self) -> Option<f64> {
        share(self.sessions_hit, self.sessions.saturating_sub(self.sessions_without_reads))
    }

    /// Returns the share of the bytes asked that came from the cache. Bytes fetched ahead count as if they
    /// had been there.
    pub fn share_of_bytes_asked(&self) -> Option<f64> {
        share(self.bytes_hit, self.bytes_asked())
    }

    /// Returns the share of the bytes asked that did not cross the network; below 0 if the cache fetched
    /// more than clients asked for.
    pub fn share_not_fetched(&self) -> Option<f64> {
        share(self.bytes_fetched, self.bytes_asked()).map(|fetched| 1.0 - fetched)
    }

    /// Adds the figures of another cache, or of the same one under another name.
    pub fn add(&mut self, other: &CacheFigures) {
        let sums = [
            (&mut self.sessions, other.sessions),
            (&mut self.sessions_without_reads, other.sessions_without_reads),
            (&mut self.sessions_hit, other.sessions_hit),
            (&mut self.bytes_hit, other.bytes_hit),
            (&mut self.bytes_miss, other.bytes_miss),
            (&mut self.bytes_bypass, other.bytes_bypass),
            (&mut self.bytes_fetched, other.bytes_fetched),
            (&mut self.sessions_told, other.sessions_told),
            (&mut self.sessions_uncertain, other.sessions_uncertain),
            (&mut self.bytes_prefetched, other.bytes_prefetched),
            (&mut self.checksum_errors, other.checksum_errors),
            (&mut self.files, other.files),
            (&mut self.bytes_of_files, other.bytes_of_files),
            (&mut self.files_again, other.files_again),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.is_incomplete |= other.is_incomplete;
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
    }
}

/// State of a file after its last record.
#[derive(Clone, Copy, Debug)]
struct CachedFile {
    bytes_done: u64,
    accesses: u64,
}

/// Account of one cache: adds up its records, and remembers how much of each file it had.
#[derive(Debug)]
pub struct CacheAccount {
    figures: CacheFigures,
    files: HashMap<Box<str>, CachedFile>,
    files_max: usize,
    began_empty: bool,
}

/// Bytes that a session fetched.
struct Fetched {
    bytes: u64,
    is_uncertain: bool,
}

impl CacheAccount {
    /// Makes an account that remembers at most so many files.
    pub fn new(files_max: usize) -> Self {
        CacheAccount {
            figures: CacheFigures::default(),
            files: HashMap::new(),
            files_max,
            began_empty: false,
        }
    }

    /// Makes an account of a cache that is empty now: whatever it has later, it fetched. So what a lost
    /// record would have told is found in the next one of the file.
    pub fn of_empty_cache(files_max: usize) -> Self {
        CacheAccount { began_empty: true, ..CacheAccount::new(files_max) }
    }

    /// Returns the figures so far.
    pub fn figures(&self) -> CacheFigures {
        self.figures
    }

    /// Adds a record.
    pub fn add(&mut self, record: &CacheRecord) {
        let grown = self.grown(record);
        let figures = &mut self.figures;
        let fetched = match record.bytes_to_disk {
            Some(bytes) => {
                figures.sessions_told += 1;
                Fetched { bytes, is_uncertain: false }
            }
            // Bytes that clients missed were fetched, whether or not they are on disk already.
            None => Fetched { bytes: grown.bytes.max(record.bytes_miss), ..grown },
        };
        let sums = [
            (&mut figures.bytes_hit, record.bytes_hit),
            (&mut figures.bytes_miss, record.bytes_miss),
            (&mut figures.bytes_bypass, record.bytes_bypass),
            (&mut figures.bytes_fetched, fetched.bytes.saturating_add(record.bytes_bypass)),
            (&mut figures.bytes_prefetched, record.bytes_prefetched.unwrap_or(0)),
            (&mut figures.checksum_errors, record.checksum_errors),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        figures.sessions += 1;
        figures.sessions_uncertain += u64::from(fetched.is_uncertain);
        match (record.bytes_asked(), record.bytes_miss, record.bytes_bypass) {
            (0, ..) => figures.sessions_without_reads += 1,
            (_, 0, 0) => figures.sessions_hit += 1,
            _ => {}
        }
        figures.first = [figures.first, Some(record.attached)].into_iter().flatten().min();
        figures.last = figures.last.max(Some(record.detached));
    }

    /// Returns the bytes by which a file has grown in the cache since its last record.
    fn grown(&mut self, record: &CacheRecord) -> Fetched {
        let now = CachedFile { bytes_done: record.bytes_done(), accesses: record.accesses };
        let certain = |bytes| Fetched { bytes, is_uncertain: false };
        if let Some(before) = self.files.get_mut(&*record.lfn) {
            // Accesses begin anew when a file was removed and came again.
            let is_again = now.accesses <= before.accesses || now.bytes_done < before.bytes_done;
            let grown = if is_again { now.bytes_done } else { now.bytes_done - before.bytes_done };
            self.figures.files_again += u64::from(is_again);
            *before = now;
            return certain(grown);
        }
        let is_full = self.files.len() >= self.files_max;
        match is_full {
            true => self.figures.is_incomplete = true,
            false => {
                self.files.insert(record.lfn.clone(), now);
                self.figures.files += 1;
                self.figures.bytes_of_files = self.figures.bytes_of_files.saturating_add(record.file_bytes);
            }
        }
        match (record.accesses, record.origins) {
            (..=1, _) => certain(now.bytes_done),
            _ if self.began_empty && !is_full => certain(now.bytes_done),
            (_, 0) => certain(0),
            // Some of it was there before. The blocks of what clients missed are the least.
            _ => {
                let blocks = record.bytes_miss.div_ceil(record.block_bytes.max(1));
                let least = blocks.saturating_mul(record.block_bytes).min(now.bytes_done);
                Fetched { bytes: least, is_uncertain: true }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Makes a record of a file in blocks of 1 MiB: its blocks, those in the cache, the number of the
    /// session; bytes hit and missed.
    fn record(lfn: &str, blocks: [u64; 3], hit: u64, miss: u64) -> CacheRecord {
        let [blocks, done, accesses] = blocks;
        CacheRecord {
            lfn: lfn.into(),
            file_bytes: blocks * MIB - 10,
            block_bytes: MIB,
            blocks,
            blocks_done: done,
            accesses,
            attached: 100 + accesses,
            detached: 101 + accesses,
            origins: u32::from(miss > 0),
            bytes_hit: hit,
            bytes_miss: miss,
            ..CacheRecord::default()
        }
    }

    fn account(records: &[CacheRecord]) -> CacheFigures {
        let mut account = CacheAccount::new(10);
        for record in records {
            account.add(record);
        }
        account.figures()
    }

    /// Property: reads of small parts fetch whole blocks, and a session over hot and cold blocks is split.
    #[test]
    fn blocks_are_fetched_for_parts_of_them() {
        let figures = account(&[
            record("/a", [64, 1, 1], 0, 4096),
            record("/a", [64, 1, 2], 4096, 0),
            record("/a", [64, 5, 3], 0, 400),
            record("/a", [64, 7, 4], MIB, MIB),
            record("/b", [1, 0, 1], 0, 0),
        ]);
        assert_eq!((figures.bytes_fetched, figures.bytes_asked()), (7 * MIB, 4096 * 2 + 400 + 2 * MIB));
        assert_eq!((figures.sessions, figures.sessions_hit, figures.sessions_without_reads), (5, 1, 1));
        assert_eq!((figures.files, figures.bytes_of_files), (2, 65 * MIB - 20));
        assert_eq!(
            (figures.share_of_sessions(), figures.first, figures.last),
            (Some(0.25), Some(101), Some(105))
        );
        assert!(figures.share_not_fetched().unwrap() < 0.0);
        assert_eq!((figures.sessions_uncertain, figures.is_incomplete), (0, false));
    }

    /// Property: blocks fetched ahead are fetched, though the cache tells them as hits.
    #[test]
    fn blocks_fetched_ahead_count_as_fetched() {
        let figures = account(&[record("/a", [256, 256, 1], 8192, 0)]);
        assert_eq!((figures.bytes_fetched, figures.bytes_hit), (256 * MIB - 10, 8192));
        assert_eq!(figures.share_of_bytes_asked(), Some(1.0));
        let told =
            CacheRecord { bytes_to_disk: Some(5), bytes_bypass: 2, ..record("/a", [256, 256, 1], 8192, 0) };
        let figures = account(&[told]);
        assert_eq!((figures.bytes_fetched, figures.sessions_told), (7, 1));
    }

    /// Property: a lost record loses no growth of its file, and a file that was removed is fetched again.
    #[test]
    fn growth_survives_losses_and_removals() {
        let figures = account(&[record("/a", [10, 2, 1], 0, 2 * MIB), record("/a", [10, 9, 5], 0, MIB)]);
        assert_eq!((figures.bytes_fetched, figures.files_again), (9 * MIB, 0));
        let figures = account(&[
            record("/a", [10, 10, 7], 10, 0),
            record("/a", [10, 10, 1], 0, 10 * MIB - 10),
            record("/a", [10, 3, 3], 0, 3 * MIB),
        ]);
        assert_eq!((figures.bytes_fetched, figures.files_again), (10 * MIB - 10 + 3 * MIB, 2));
    }

    /// Property: of a file that was there before, the least is counted, and said to be uncertain.
    #[test]
    fn files_from_before_are_uncertain() {
        let figures = account(&[record("/a", [64, 60, 9], MIB, 100), record("/b", [64, 64, 5], MIB, 0)]);
        assert_eq!((figures.bytes_fetched, figures.sessions_uncertain), (MIB, 1));
    }

    /// Property: of a cache that began empty, a lost first record costs nothing.
    #[test]
    fn files_of_a_cache_that_began_empty_are_certain() {
        let mut account = CacheAccount::of_empty_cache(1);
        account.add(&record("/a", [64, 60, 9], MIB, 0));
        assert_eq!((account.figures().bytes_fetched, account.figures().sessions_uncertain), (60 * MIB, 0));
        // A file that is not remembered may be an earlier one.
        account.add(&record("/b", [64, 60, 9], MIB, 100));
        assert_eq!((account.figures().bytes_fetched, account.figures().sessions_uncertain), (61 * MIB, 1));
    }

    #[test]
    fn bytes_that_are_not_on_disk_yet_are_fetched() {
        let figures = account(&[record("/a", [4, 1, 1], 0, 4 * MIB - 10)]);
        assert_eq!(figures.bytes_fetched, 4 * MIB - 10);
    }

    #[test]
    fn files_beyond_the_limit_make_the_figures_incomplete() {
        let records: Vec<CacheRecord> =
            (0..11).map(|number| record(&number.to_string(), [1, 1, 1], 0, MIB - 10)).collect();
        let at_edge = account(&records[..10]);
        assert_eq!((at_edge.files, at_edge.is_incomplete), (10, false));
        let beyond = account(&records);
        assert_eq!((beyond.files, beyond.is_incomplete, beyond.bytes_fetched), (10, true, 11 * (MIB - 10)));
    }

    /// Property: numbers of any size do not overflow.
    #[test]
    fn absurd_numbers_are_taken() {
        let absurd = CacheRecord {
            lfn: "/a".into(),
            file_bytes: u64::MAX,
            block_bytes: u64::MAX,
            blocks: u64::MAX,
            blocks_done: u64::MAX - 1,
            accesses: u64::MAX,
            bytes_hit: u64::MAX,
            bytes_miss: u64::MAX,
            bytes_bypass: u64::MAX,
            bytes_prefetched: Some(u64::MAX),
            checksum_errors: u64::MAX,
            origins: 1,
            ..CacheRecord::default()
        };
        let other = CacheRecord { block_bytes: 0, lfn: "/b".into(), ..absurd.clone() };
        let mut figures = account(&[absurd.clone(), absurd, other]);
        figures.add(&figures.clone());
        assert_eq!((figures.bytes_hit, figures.bytes_fetched, figures.sessions), (u64::MAX, u64::MAX, 6));
    }
}
