//! Sets of bytes of a file, as ranges in ascending order that neither overlap nor touch.

use exacat_wire::writer::ByteRange;

/// Set of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<ByteRange>);

impl Ranges {
    /// Adds the bytes of a range; some may be there already.
    pub fn add(&mut self, range: ByteRange) {
        if range.from >= range.to {
            return;
        }
        let first = self.0.partition_point(|other| other.to < range.from);
        let end = self.0.partition_point(|other| other.from <= range.to);
        let mut merged = range;
        if let Some(touched) = self.0.get(first..end)
            && let (Some(low), Some(high)) = (touched.first(), touched.last())
        {
            merged.from = merged.from.min(low.from);
            merged.to = merged.to.max(high.to);
        }
        self.0.splice(first..end, [merged]);
    }

    /// Says whether all bytes of a range are in the set.
    pub fn has(&self, range: ByteRange) -> bool {
        let at = self.0.partition_point(|other| other.to < range.to);
        range.from >= range.to || self.0.get(at).is_some_and(|other| other.from <= range.from)
    }

    /// Returns the first gap below `length`.
    pub fn first_gap(&self, length: u64) -> Option<ByteRange> {
        let (mut from, mut to) = (0, length);
        if let Some(first) = self.0.first() {
            if first.from == 0 {
                from = first.to;
                to = self.0.get(1).map_or(length, |next| next.from.min(length));
            } else {
                to = first.from.min(length);
            }
        }
        (from < to).then_some(ByteRange { from, to })
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.to - range.from).sum()
    }

    /// Returns the ranges.
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.0
    }

    /// Says whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns up to `count` ranges, the first ones.
    pub fn take(&mut self, count: usize) -> Vec<ByteRange> {
        self.0.drain(..count.min(self.0.len())).collect()
    }
}

impl FromIterator<ByteRange> for Ranges {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(ranges: I) -> Self {
        let mut set = Ranges::default();
        ranges.into_iter().for_each(|range| set.add(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u64, to: u64) -> ByteRange {
        ByteRange { from, to }
    }

    /// Property: a set of ranges is the set of their bytes, whatever the order. Method: random ranges
    /// beside a list of bits.
    #[test]
    fn ranges_are_the_set_of_their_bytes() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let (mut ranges, mut bits) = (Ranges::default(), [false; 40]);
            for _ in 0..random.usize(..12) {
                let from = random.usize(..40);
                let to = random.usize(from..=40.min(from + 9));
                ranges.add(range(from as u64, to as u64));
                bits[from..to].fill(true);
            }
            let list = ranges.as_slice();
            assert!(list.windows(2).all(|pair| pair[0].to < pair[1].from), "{list:?}");
            assert_eq!(ranges.bytes(), bits.iter().filter(|bit| **bit).count() as u64);
            for from in 0..40 {
                for to in from..=40 {
                    let all = bits[from..to].iter().all(|bit| *bit);
                    assert_eq!(ranges.has(range(from as u64, to as u64)), all, "{from} to {to} of {list:?}");
                }
            }
            let gap = bits.iter().position(|bit| !bit);
            assert_eq!(ranges.first_gap(40).map(|gap| gap.from as usize), gap, "{list:?}");
            if let (Some(gap), Some(from)) = (ranges.first_gap(40), gap) {
                assert!(bits[from..gap.to as usize].iter().all(|bit| !bit));
                assert!(gap.to == 40 || bits[gap.to as usize]);
            }
        }
    }
}
