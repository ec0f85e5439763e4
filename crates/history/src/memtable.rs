//! The newest rows of a group, in memory, in the order of their arrival.
//!
//! Rows are appended as they are in the log. Each has the place of the row of the same element before
//! it, so the rows of an element form a chain from the newest arrival to the oldest. Nothing is sorted
//! until the memtable is written to runs.

use std::collections::BTreeMap;

use crate::row::{ElementNumber, RowRef};
use crate::run::day_of;

/// Units of places: rows begin at multiples of this.
const ALIGNMENT: usize = 8;
/// Bytes of a chunk. A longer row has a chunk of its own.
const CHUNK_BYTES: usize = 1 << 20;
/// Units of a chunk that places may name.
const CHUNK_UNITS: u32 = (CHUNK_BYTES / ALIGNMENT) as u32;
/// Bytes before a row: place of the row before, and length of this one.
const LINK_BYTES: usize = 8;
/// Place of no row.
const NONE: u32 = u32::MAX;

/// Rows in the order of arrival.
#[derive(Default)]
pub(crate) struct Memtable {
    chunks: Vec<Vec<u8>>,
    /// Place of the newest row of each element.
    heads: Vec<u32>,
    rows: u64,
    days: BTreeMap<i32, u64>,
}

impl Memtable {
    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the days that have rows, with their number.
    pub(crate) fn days(&self) -> &BTreeMap<i32, u64> {
        &self.days
    }

    /// Returns the number of elements that chains exist for.
    pub(crate) fn elements(&self) -> ElementNumber {
        self.heads.len() as u32
    }

    /// Appends a row.
    pub(crate) fn push(&mut self, row: &RowRef<'_>, bytes: &[u8]) {
        let needed = (LINK_BYTES + bytes.len()).next_multiple_of(ALIGNMENT);
        let fits = |chunk: &Vec<u8>| chunk.len() + needed <= chunk.capacity();
        if !self.chunks.last().is_some_and(fits) {
            self.chunks.push(Vec::with_capacity(CHUNK_BYTES.max(needed)));
        }
        let at = self.chunks.len() - 1;
        let element = row.element as usize;
        if element >= self.heads.len() {
            self.heads.resize(element + 1, NONE);
        }
        let chunk = &mut self.chunks[at];
        let place = at as u32 * CHUNK_UNITS + (chunk.len() / ALIGNMENT) as u32;
        chunk.extend_from_slice(&self.heads[element].to_le_bytes());
        chunk.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        chunk.extend_from_slice(bytes);
        chunk.resize(chunk.len().next_multiple_of(ALIGNMENT), 0);
        self.heads[element] = place;
        self.rows += 1;
        *self.days.entry(day_of(row.time)).or_default() += 1;
    }

    /// Returns the link and the row at a place.
    fn at(&self, place: u32) -> Option<(u32, RowRef<'_>)> {
        let chunk = self.chunks.get((place / CHUNK_UNITS) as usize)?;
        let bytes = chunk.get((place % CHUNK_UNITS) as usize * ALIGNMENT..)?;
        let (link, rest) = bytes.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let row = rest.get(..u32::from_le_bytes(*length) as usize)?;
        Some((u32::from_le_bytes(*link), RowRef::at(row)?))
    }

    /// Returns the rows of an element, the newest arrival first.
    pub(crate) fn chain(&self, element: ElementNumber) -> Chain<'_> {
        Chain { memtable: self, place: self.heads.get(element as usize).copied().unwrap_or(NONE) }
    }

    /// Collects the rows of an element between two times, both included, in the order of time. Rows of
    /// one time are in the order of arrival.
    pub(crate) fn collect<'a>(
        &'a self,
        element: ElementNumber,
        from: i64,
        to: i64,
        into: &mut Vec<RowRef<'a>>,
    ) {
        let start = into.len();
        into.extend(self.chain(element).filter(|row| (from..=to).contains(&row.time)));
        let found = &mut into[start..];
        found.reverse();
        // Values arrive in the order of time, with few exceptions.
        if !found.is_sorted_by_key(|row| row.time) {
            found.sort_by_key(|row| row.time);
        }
    }
}

/// Rows of an element, the newest arrival first.
pub(crate) struct Chain<'a> {
    memtable: &'a Memtable,
    place: u32,
}

impl<'a> Iterator for Chain<'a> {
    type Item = RowRef<'a>;

    fn next(&mut self) -> Option<RowRef<'a>> {
        let (link, row) = self.memtable.at(self.place)?;
        self.place = link;
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::FieldRef;

    use super::*;
    use crate::row::put_row;

    fn push(memtable: &mut Memtable, element: u32, time: i64, text: &str) {
        let mut bytes = Vec::new();
        put_row(&mut bytes, element, 0, time, [FieldRef::Text(text)]).unwrap();
        memtable.push(&RowRef::at(&bytes).unwrap(), &bytes);
    }

    /// Rows of an element come in the order of time; those of one time in the order of arrival.
    #[test]
    fn rows_of_an_element_are_found_in_order() {
        let mut memtable = Memtable::default();
        for (element, time, text) in [(3, 5, "a"), (0, 1, "b"), (3, 2, "c"), (3, 5, "d"), (3, -7, "e")] {
            push(&mut memtable, element, time, text);
        }
        let times = |from, to| {
            let mut rows = Vec::new();
            memtable.collect(3, from, to, &mut rows);
            rows.iter().map(|row| (row.time, row.values[4])).collect::<Vec<_>>()
        };
        assert_eq!(times(i64::MIN, i64::MAX), [(-7, b'e'), (2, b'c'), (5, b'a'), (5, b'd')]);
        assert_eq!(times(2, 2), [(2, b'c')]);
        assert_eq!(memtable.chain(1).count() + memtable.chain(99).count(), 0);
        assert_eq!((memtable.rows(), memtable.elements()), (5, 4));
        assert_eq!(
            memtable.days().iter().map(|(day, rows)| (*day, *rows)).collect::<Vec<_>>(),
            [(-1, 1), (0, 4)]
        );
    }

    /// Rows longer than a chunk, and rows behind them, are found again.
    #[test]
    fn long_rows_have_chunks_of_their_own() {
        let mut memtable = Memtable::default();
        let long = "x".repeat(CHUNK_BYTES);
        for round in 0..5 {
            push(&mut memtable, 0, round, &long);
            push(&mut memtable, 0, 100 + round, "short");
        }
        let lengths: Vec<usize> = memtable.chain(0).map(|row| row.values.len() - 4).collect();
        assert_eq!(lengths, [5, CHUNK_BYTES].repeat(5));
    }
}
