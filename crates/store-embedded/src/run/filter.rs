//! Filters: say whether a run can have a key at all, before anything is read.
//!
//! A Bloom filter whose bits for one key all lie in one cache line: a look-up waits for memory
//! once. It never rejects an existing key. Of missing keys it lets one in about 80 pass with ten
//! bits per key, and one in some 2000 with twenty. Small runs are many and take little room, large
//! ones are few: so a key has more bits in a small run.

/// Bits per key, by the maximum number of keys in the run.
const BITS_PER_KEY: [(u64, u64); 3] = [(1 << 20, 20), (1 << 23, 14), (u64::MAX, 10)];
/// Number of bits that one key sets.
const PROBES: u32 = 6;
const LINE_WORDS: usize = 8;
/// Bytes of a cache line; a filter has a whole number of them.
pub(crate) const LINE_BYTES: usize = LINE_WORDS * 8;

/// A filter, being filled or complete.
#[derive(Debug)]
pub(crate) struct Filter {
    lines: Vec<[u64; LINE_WORDS]>,
}

/// Returns the line of a hash among `lines`, and a number with nine bits for each probe.
fn place(hash: u64, lines: usize) -> (usize, u64) {
    let line = ((hash >> 32) * lines as u64) >> 32;
    (line as usize, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (hash << 32))
}

/// Returns the word of a probe, and the bit in it.
#[inline]
fn bit_of(bits: u64, probe: u32) -> (usize, u64) {
    let bit = (bits >> (9 * probe)) as usize % (64 * LINE_WORDS);
    (bit / 64, 1 << (bit % 64))
}

impl Filter {
    /// Creates an empty filter for up to `keys` keys; more keys let more missing ones pass.
    pub(crate) fn for_keys(keys: u64) -> Self {
        let bits = BITS_PER_KEY.iter().find(|(up_to, _)| keys <= *up_to).map_or(10, |(_, bits)| *bits);
        let lines = keys.saturating_mul(bits).div_ceil(8 * LINE_BYTES as u64).max(1);
        Filter { lines: vec![[0; LINE_WORDS]; usize::try_from(lines).unwrap_or(usize::MAX)] }
    }

    /// Adds a key by its hash.
    pub(crate) fn add(&mut self, hash: u64) {
        let (line, bits) = place(hash, self.lines.len());
        let line = &mut self.lines[line];
        for (word, bit) in (0..PROBES).map(|probe| bit_of(bits, probe)) {
            line[word] |= bit;
        }
    }

    /// Says whether the key of this hash may exist. It checks bits in groups of three, because the
    /// first three reject most keys. So the processor predicts the branch well, and continues with
    /// the next filter while it waits for this one's line.
    #[inline]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let (line, bits) = place(hash, self.lines.len());
        let line = &self.lines[line];
        let has = |(word, bit): (usize, u64)| line[word] & bit != 0;
        let all = |bits: u64| [0, 1, 2].map(|probe| has(bit_of(bits, probe))) == [true; 3];
        all(bits) && all(bits >> (9 * 3))
    }

    /// Loads the line of a hash into the processor's cache; the result has no meaning.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u8 {
        self.lines[place(hash, self.lines.len()).0][0] as u8
    }

    /// Returns the bytes of the filter, in memory and in a file.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    /// Encodes the filter.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.lines.iter().flatten().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }

    /// Decodes a filter; none if the length is wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(LINE_BYTES) {
            return None;
        }
        let lines = bytes.chunks_exact(LINE_BYTES).map(|line| {
            let mut words = [0; LINE_WORDS];
            for (word, bytes) in words.iter_mut().zip(line.chunks_exact(8)) {
                let mut little = [0; 8];
                little.copy_from_slice(bytes);
                *word = u64::from_le_bytes(little);
            }
            words
        });
        Some(Filter { lines: lines.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    fn hash(number: u64) -> u64 {
        xxh3_64(&number.to_le_bytes())
    }

    /// Goal: every existing key passes, few missing ones do, and the bytes are the filter.
    #[test]
    fn what_is_there_passes_and_little_else() {
        for (keys, passed_max) in
            [(1, 60), (100, 60), (50_000, 60), (1 << 20, 60), ((1 << 20) + 1, 200), ((1 << 23) + 1, 1000)]
        {
            let mut filter = Filter::for_keys(keys);
            (0..keys).for_each(|number| filter.add(hash(number)));
            let mut bytes = Vec::new();
            filter.encode(&mut bytes);
            assert_eq!(bytes.len(), filter.bytes());
            let read = Filter::decode(&bytes).unwrap();
            for filter in [&filter, &read] {
                assert!((0..keys).all(|number| filter.may_have(hash(number))));
                let passed = (keys..keys + 50_000).filter(|number| filter.may_have(hash(*number))).count();
                assert!(passed < passed_max, "{passed} of 50000 that are not there pass a filter of {keys}");
            }
        }
        assert!(Filter::decode(&[]).is_none() && Filter::decode(&[0; 63]).is_none());
    }
}
