//! Exact stack distances: what a cache of any size reaches if it removes what was used longest ago (LRU).
//!
//! The distance of an access is the number of bytes of all files that were used since the last use of its
//! file, itself included. A cache finds the file if, and only if, its size is at least the distance. That
//! holds exactly for files that are cached as a whole. Where an access reads a part of its file, the file
//! counts with the blocks that were touched so far.

use crate::trace::{Access, Trace};

/// Bytes of a block, unless the cache says otherwise: those of most sites.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// Sums of numbers, by their places.
struct Sums {
    tree: Vec<u64>,
}

impl Sums {
    fn new(places: usize) -> Self {
        Sums { tree: vec![0; places + 1] }
    }

    fn add(&mut self, place: usize, value: u64) {
        let mut at = place + 1;
        while let Some(sum) = self.tree.get_mut(at) {
            *sum = sum.wrapping_add(value);
            at += at & at.wrapping_neg();
        }
    }

    /// Returns the sum of all numbers before a place.
    fn before(&self, place: usize) -> u64 {
        let (mut at, mut sum) = (place, 0_u64);
        while at > 0 {
            sum = sum.wrapping_add(self.tree.get(at).copied().unwrap_or(0));
            at &= at - 1;
        }
        sum
    }
}

/// Order of use of the files, with their bytes. Places are used up by accesses, and given out anew when all
/// are used: so the memory follows the number of files, not of accesses.
struct Stack {
    sums: Sums,
    /// Place of each file, one above it; 0 if it was not used yet.
    place_of: Vec<u32>,
    /// File at each place, one above its number; 0 for none.
    file_at: Vec<u32>,
    weights: Vec<u64>,
    next: usize,
    total: u64,
}

impl Stack {
    fn new(files: usize) -> Self {
        let places = (2 * files).max(64);
        Stack {
            sums: Sums::new(places),
            place_of: vec![0; files],
            file_at: vec![0; places],
            weights: vec![0; files],
            next: 0,
            total: 0,
        }
    }

    /// Moves a file to the top, with its bytes. Returns its distance; none at its first use.
    fn touch(&mut self, file: usize, weight: u64) -> Option<u64> {
        if self.next == self.file_at.len() {
            self.pack();
        }
        let before = self.place_of[file] as usize;
        let old = self.weights[file];
        let distance = (before > 0).then(|| {
            let place = before - 1;
            let distance = self.total - self.sums.before(place + 1) + old;
            self.sums.add(place, old.wrapping_neg());
            self.file_at[place] = 0;
            self.total -= old;
            distance
        });
        self.weights[file] = weight;
        self.sums.add(self.next, weight);
        self.total += weight;
        self.file_at[self.next] = file as u32 + 1;
        self.next += 1;
        self.place_of[file] = self.next as u32;
        distance
    }

    /// Gives the files the first places, in their order.
    fn pack(&mut self) {
        let files: Vec<u32> = self.file_at.iter().copied().filter(|file| *file > 0).collect();
        self.file_at.fill(0);
        self.sums.tree.fill(0);
        for (place, file) in files.iter().enumerate() {
            let at = *file as usize - 1;
            self.file_at[place] = *file;
            self.place_of[at] = place as u32 + 1;
            self.sums.add(place, self.weights[at]);
        }
        self.next = files.len();
    }
}

/// Hits of a cache of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Accesses whose file the cache has.
    pub hits: u64,
    /// Bytes that these ask for.
    pub hit_bytes: u64,
    /// Share of all accesses, from 0 to 1.
    pub of_requests: f64,
    /// Share of all bytes that are asked for.
    pub of_bytes: f64,
}

/// Distances of a trace, in their order.
pub struct Distances {
    /// Distance and bytes asked of each access to a file that was used before, by the distance.
    again: Vec<(u64, u64)>,
    /// Bytes asked by all accesses up to each of these.
    sums: Vec<u64>,
    /// Accesses.
    pub accesses: u64,
    /// Bytes that they ask for.
    pub bytes_asked: u64,
    /// Bytes of all files that were touched: the working set.
    pub bytes_touched: u64,
}

impl Distances {
    /// Computes the distances of a trace, for a cache of such blocks.
    pub fn of(trace: &Trace, block: u64) -> Distances {
        Distances::of_accesses(trace, trace.accesses(), block)
    }

    /// Computes the distances of some accesses of a trace, before which the cache is empty.
    pub fn of_accesses(trace: &Trace, accesses: &[Access], block: u64) -> Distances {
        let files = trace.files().len();
        let mut stack = Stack::new(files);
        let (mut again, mut bytes_asked) = (Vec::new(), 0_u64);
        for access in accesses {
            let asked = trace.bytes_asked(access);
            bytes_asked = bytes_asked.saturating_add(asked);
            let file = access.file as usize;
            let weight = weight_of(trace, access, block).max(stack.weights[file]);
            if let Some(distance) = stack.touch(file, weight) {
                again.push((distance.max(weight), asked));
            }
        }
        again.sort_unstable();
        let mut sum = 0_u64;
        let sums = again.iter().map(|(_, asked)| {
            sum = sum.saturating_add(*asked);
            sum
        });
        let sums = sums.collect();
        let bytes_touched = stack.total;
        Distances { again, sums, accesses: accesses.len() as u64, bytes_asked, bytes_touched }
    }

    /// Returns what a cache of so many bytes reaches.
    pub fn expected(&self, cache_bytes: u64) -> Expected {
        let hits = self.again.partition_point(|(distance, _)| *distance <= cache_bytes);
        let hit_bytes = hits.checked_sub(1).and_then(|last| self.sums.get(last)).copied().unwrap_or(0);
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        Expected {
            cache_bytes,
            hits: hits as u64,
            hit_bytes,
            of_requests: share(hits as u64, self.accesses),
            of_bytes: share(hit_bytes, self.bytes_asked),
        }
    }

    /// Returns what caches of some shares of the working set reach.
    pub fn curve(&self, shares: &[f64]) -> Vec<Expected> {
        shares.iter().map(|share| self.expected((self.bytes_touched as f64 * share) as u64)).collect()
    }
}

fn weight_of(trace: &Trace, access: &Access, block: u64) -> u64 {
    trace.reads(access).block_bytes(trace.file(access.file).size, block)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::trace::AccessRow;
    use crate::trace::reads::Reads;

    /// A cache that removes what was used longest ago. Returns its hits, and the bytes of these.
    fn simulated(trace: &Trace, cache: u64) -> (u64, u64) {
        let (mut used, mut bytes, mut hits) = (VecDeque::new(), 0, (0, 0));
        for access in trace.accesses() {
            let size = trace.file(access.file).size;
            match used.iter().position(|file| *file == access.file) {
                Some(at) => {
                    used.remove(at);
                    hits = (hits.0 + 1, hits.1 + trace.bytes_asked(access));
                }
                None => bytes += size,
            }
            used.push_back(access.file);
            while bytes > cache {
                let Some(gone) = used.pop_front() else { break };
                bytes -= trace.file(gone).size;
            }
        }
        hits
    }

    fn random(seed: u64, files: u32, accesses: u64) -> Trace {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut trace = Trace::new();
        for time_us in 0..accesses {
            let number = random.u32(..files).min(random.u32(..files));
            let (name, size) = (format!("/f{number}"), u64::from(number % 7 + 1) * 100);
            trace.add(&AccessRow { time_us, name: &name, size, ..AccessRow::default() }).unwrap();
        }
        trace
    }

    /// Property: for every size the distances tell exactly the hits of a simulated cache.
    #[test]
    fn distances_are_those_of_a_simulated_cache() {
        for seed in 0..20 {
            // More accesses than places, so that these are given out anew.
            let trace = random(seed, 30, 1500);
            let distances = Distances::of(&trace, BLOCK_BYTES);
            for cache in (0..14_000).step_by(137) {
                let expected = distances.expected(cache);
                assert_eq!(
                    (expected.hits, expected.hit_bytes),
                    simulated(&trace, cache),
                    "seed {seed}, {cache}"
                );
            }
            let all = distances.expected(u64::MAX);
            assert_eq!(all.hits, 1500 - trace.files().len() as u64);
        }
    }

    #[test]
    fn parts_of_files_count_with_their_blocks() {
        let mut trace = Trace::new();
        let reads = Reads::parse("0+1").unwrap();
        for (time_us, name) in [(0, "/a"), (1, "/b"), (2, "/a")] {
            let row = AccessRow { time_us, name, size: 100, reads: reads.clone(), ..AccessRow::default() };
            trace.add(&row).unwrap();
        }
        let distances = Distances::of(&trace, 10);
        assert_eq!((distances.bytes_touched, distances.bytes_asked), (20, 3));
        assert_eq!((distances.expected(19).hits, distances.expected(20).hits), (0, 1));
        assert!((distances.expected(20).of_bytes - 1.0 / 3.0).abs() < 1e-9);
        let nothing = Distances::of(&Trace::new(), 10).expected(5);
        assert_eq!((nothing.hits, nothing.of_requests), (0, 0.0));
    }
}
