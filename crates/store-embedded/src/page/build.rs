//! Builds pages from rows that arrive in the order of their keys.

use super::row::Row;
use super::{
    CREATED, FULL_BYTES, HEAD_BYTES, Head, MODIFIED, NUMBERS, ROWS_MAX, TAIL_BYTES, WHOLE_EVERY, checksum,
    mark,
};
use exacat_model::DirId;
use exacat_model::codec::put_varint;

/// Approximate bytes of a row beside its texts.
const ROW_BYTES_ABOUT: usize = 64;

/// A page in the making.
#[derive(Default)]
pub(crate) struct PageBuilder {
    /// Directories, each with its number of rows.
    directories: Vec<(u64, usize)>,
    names: Vec<u8>,
    name_ends: Vec<usize>,
    shapes: Vec<u8>,
    shape_ends: Vec<usize>,
    shape_of: Vec<u16>,
    ids: Vec<[u8; 16]>,
    numbers: [Vec<u64>; NUMBERS],
    digests: Vec<u8>,
    digest_ends: Vec<usize>,
    rests: Vec<u8>,
    rest_ends: Vec<usize>,
    marks: Vec<u8>,
}

fn range(ends: &[usize], index: usize) -> std::ops::Range<usize> {
    index.checked_sub(1).map_or(0, |before| ends[before])..ends[index]
}

/// Returns the bytes that numbers up to `span` take.
fn width_of(span: u64) -> u8 {
    (8 - span.leading_zeros() / 8) as u8
}

impl PageBuilder {
    /// Returns the number of rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.name_ends.len()
    }

    /// Says whether the page should be finished before this row is added.
    pub(crate) fn is_full(&self, next: &Row<'_>) -> bool {
        let bytes = self.names.len()
            + self.shapes.len()
            + self.digests.len()
            + self.rests.len()
            + self.rows() * ROW_BYTES_ABOUT;
        let more = next.name.len() + next.shape.len() + next.rest.len() + ROW_BYTES_ABOUT;
        // A page takes at least one row, however long.
        self.rows() >= ROWS_MAX || (self.rows() > 0 && bytes + more > FULL_BYTES)
    }

    /// Adds a row. Its key must follow the keys of all rows before it; `hash` is that of the key.
    pub(crate) fn push(&mut self, row: &Row<'_>, hash: u64) {
        self.marks.push(mark(hash));
        match self.directories.last_mut() {
            Some((directory, rows)) if *directory == row.parent.0 => *rows += 1,
            _ => self.directories.push((row.parent.0, 1)),
        }
        self.names.extend_from_slice(row.name);
        self.name_ends.push(self.names.len());
        let shape = self.shape(row.shape);
        self.shape_of.push(shape);
        self.ids.push(row.id);
        let numbers = [row.size, row.job, row.created, row.modified, row.revision];
        self.numbers.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
        self.digests.extend_from_slice(row.checksum);
        self.digest_ends.push(self.digests.len());
        self.rests.extend_from_slice(row.rest);
        self.rest_ends.push(self.rests.len());
    }

    /// Returns the number of a shape, and stores a new one. Most rows have the shape of the row
    /// before.
    fn shape(&mut self, shape: &[u8]) -> u16 {
        let known = |index: usize| &self.shapes[range(&self.shape_ends, index)] == shape;
        if let Some(last) = self.shape_of.last().map(|last| usize::from(*last))
            && known(last)
        {
            return last as u16;
        }
        if let Some(found) = (0..self.shape_ends.len()).find(|index| known(*index)) {
            return found as u16;
        }
        self.shapes.extend_from_slice(shape);
        self.shape_ends.push(self.shapes.len());
        (self.shape_ends.len() - 1) as u16
    }

    fn name(&self, row: usize) -> &[u8] {
        &self.names[range(&self.name_ends, row)]
    }

    /// Returns the number of bytes in the common end of all names.
    fn common_suffix(&self) -> usize {
        let first = self.name(0);
        let mut common = first.len().min(usize::from(u8::MAX));
        for row in 1..self.rows() {
            let name = self.name(row);
            // Many names share an ending, which the page stores once.
            let same = first.iter().rev().zip(name.iter().rev()).take(common).take_while(|(a, b)| a == b);
            common = same.count();
        }
        common
    }

    /// Appends the page to `out`, padded to a multiple of 8 bytes, and clears the builder. Without
    /// rows it appends nothing.
    pub(crate) fn finish(&mut self, salt: u64, place: u64, out: &mut Vec<u8>) {
        let rows = self.rows();
        if rows == 0 {
            return;
        }
        let start = out.len();
        out.resize(start + HEAD_BYTES, 0);
        out.extend_from_slice(&self.marks);
        let mut head = Head {
            rows: rows as u16,
            shapes: self.shape_ends.len() as u16,
            directories: self.directories.len() as u16,
            suffix: self.common_suffix() as u8,
            shape_width: width_of(self.shape_ends.len() as u64 - 1),
            shape_end_width: if self.shapes.len() <= usize::from(u16::MAX) { 2 } else { 4 },
            digest_width: (0..rows).map(|row| range(&self.digest_ends, row).len()).max().unwrap_or(0) as u8,
            has_rest: !self.rests.is_empty(),
            // Rows beside the tree have no identity: a page of them saves 16 bytes per row.
            id_width: if self.ids.iter().all(|id| *id == [0; 16]) { 0 } else { 16 },
            first_directory: self.directories[0].0,
            ..Head::default()
        };
        for end in &self.shape_ends {
            out.extend_from_slice(&(*end as u32).to_le_bytes()[..usize::from(head.shape_end_width)]);
        }
        out.extend_from_slice(&self.shapes);
        head.directories_at = (out.len() - start) as u32;
        let mut before = head.first_directory;
        for (directory, rows) in &self.directories {
            put_varint(out, directory - before);
            put_varint(out, *rows as u64);
            before = *directory;
        }
        head.names_at = (out.len() - start) as u32;
        let whole = self.put_names(usize::from(head.suffix), out);
        head.whole_at = (out.len() - start) as u32;
        whole.iter().for_each(|at| out.extend_from_slice(&at.to_le_bytes()));
        head.records_at = (out.len() - start) as u32;
        self.put_records(&mut head, out);
        head.rest_at = (out.len() - start) as u32;
        if !self.rests.is_empty() {
            self.rest_ends.iter().for_each(|end| out.extend_from_slice(&(*end as u32).to_le_bytes()));
            out.extend_from_slice(&self.rests);
        }
        // Zeros behind the end let a reader fetch any number as eight bytes.
        let length = (out.len() - start + TAIL_BYTES).next_multiple_of(8);
        out.resize(start + length, 0);
        head.length = length as u32;
        let page = &mut out[start..];
        head.put(page);
        let sum = checksum(salt, place, page);
        page[..4].copy_from_slice(&sum.to_le_bytes());
        self.clear();
    }

    /// Appends the names; returns the offsets of the whole ones.
    fn put_names(&self, suffix: usize, out: &mut Vec<u8>) -> Vec<u16> {
        let start = out.len();
        let first = self.name(0);
        out.extend_from_slice(&first[first.len() - suffix..]);
        let mut whole = Vec::with_capacity(self.rows().div_ceil(WHOLE_EVERY));
        let mut before: &[u8] = &[];
        for row in 0..self.rows() {
            let name = self.name(row);
            let stem = &name[..name.len() - suffix];
            // Whole names bound the number of names that a look-up decodes.
            if row % WHOLE_EVERY == 0 {
                whole.push((out.len() - start) as u16);
                before = &[];
            }
            let shared = before.iter().zip(stem).take_while(|(a, b)| a == b).count();
            out.push(shared as u8);
            out.push((stem.len() - shared) as u8);
            out.extend_from_slice(&stem[shared..]);
            before = stem;
        }
        whole
    }

    /// Returns the form of a number that the page stores.
    fn kept(&self, number: usize, row: usize) -> u64 {
        let value = self.numbers[number][row];
        // The times of creation and registration of one file are usually closer to each other than
        // to those of neighbouring files. Storing the difference takes fewer bytes.
        if number == MODIFIED { value.wrapping_sub(self.numbers[CREATED][row]) } else { value }
    }

    fn put_records(&self, head: &mut Head, out: &mut Vec<u8>) {
        let rows = self.rows();
        for number in 0..NUMBERS {
            // Numbers of one page are close to each other. Only the distance from the smallest is
            // stored, in as few bytes as the largest distance needs.
            let kept = (0..rows).map(|row| self.kept(number, row));
            let base = if number == MODIFIED {
                // Differences may be negative, so the smallest is searched as a signed number.
                kept.map(|value| value as i64).min().unwrap_or(0) as u64
            } else {
                kept.min().unwrap_or(0)
            };
            let span = (0..rows).map(|row| self.kept(number, row).wrapping_sub(base)).max().unwrap_or(0);
            (head.bases[number], head.widths[number]) = (base, width_of(span));
        }
        let digest_width = usize::from(head.digest_width);
        out.reserve(rows * head.record_bytes());
        for row in 0..rows {
            out.extend_from_slice(&self.shape_of[row].to_le_bytes()[..usize::from(head.shape_width)]);
            out.extend_from_slice(&self.ids[row][..usize::from(head.id_width)]);
            for number in 0..NUMBERS {
                let bytes = self.kept(number, row).wrapping_sub(head.bases[number]).to_le_bytes();
                out.extend_from_slice(&bytes[..usize::from(head.widths[number])]);
            }
            let digest = &self.digests[range(&self.digest_ends, row)];
            out.extend_from_slice(digest);
            // Padding gives all records one length, so that the row number alone locates a record.
            out.resize(out.len() + digest_width - digest.len(), 0);
        }
    }

    fn clear(&mut self) {
        self.directories.clear();
        self.names.clear();
        self.name_ends.clear();
        self.shapes.clear();
        self.shape_ends.clear();
        self.shape_of.clear();
        self.ids.clear();
        self.numbers.iter_mut().for_each(Vec::clear);
        self.digests.clear();
        self.digest_ends.clear();
        self.rests.clear();
        self.rest_ends.clear();
        self.marks.clear();
    }

    /// Returns the key of the first row.
    pub(crate) fn first_key(&self) -> Option<(DirId, &[u8])> {
        Some((DirId(self.directories.first()?.0), self.name(0)))
    }

    /// Returns the key of the last row.
    pub(crate) fn last_key(&self) -> Option<(DirId, &[u8])> {
        Some((DirId(self.directories.last()?.0), self.name(self.rows().checked_sub(1)?)))
    }
}
