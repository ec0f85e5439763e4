//! The index of a run's pages: which page can have a key. It is small - one short key a page - and held in memory.

use exacat_model::DirId;
use exacat_model::codec::{Reader, put_bytes, put_varint};
use exacat_model::limits::NAME_BYTES_MAX;

use super::guids::RowPlace;
use crate::page::{Damaged, PAGE_BYTES_MAX};

/// Where each page of a run begins, and the least key it can have.
#[derive(Debug, Default)]
pub(crate) struct PageIndex {
    directories: Vec<u64>,
    names: Vec<u8>,
    name_ends: Vec<u32>,
    /// Where each page begins in the file, in eighths; and where the last ends.
    places: Vec<u32>,
}

/// Bytes between places: pages begin at multiples.
const UNIT: u64 = 8;

/// Bytes that pages may take, and that names may take here: what 32 bits can tell of their places.
const PAGES_BYTES_MAX: u64 = (u32::MAX as u64) * UNIT;
const NAMES_BYTES_MAX: usize = u32::MAX as usize;

/// The shortest name that comes after `before` and not after `first`.
fn separator<'a>(before: Option<&[u8]>, first: &'a [u8]) -> &'a [u8] {
    let Some(before) = before else { return &[] };
    let shared = before.iter().zip(first).take_while(|(a, b)| a == b).count();
    &first[..first.len().min(shared + 1)]
}

impl PageIndex {
    pub fn pages(&self) -> usize {
        self.directories.len()
    }

    /// Is there no place for a page that begins at `at`, of whatever length and name?
    pub fn is_full(&self, at: u64) -> bool {
        self.pages() >= RowPlace::PAGES_MAX as usize
            || at + PAGE_BYTES_MAX as u64 > PAGES_BYTES_MAX
            || self.names.len() + NAME_BYTES_MAX > NAMES_BYTES_MAX
    }

    /// Adds a page that begins at `at` with key `first`. `before` is the last key of the page before.
    pub fn push(&mut self, at: u64, first: (DirId, &[u8]), before: Option<(DirId, &[u8])>) {
        let (directory, name) = first;
        let in_same = before.filter(|(before, _)| *before == directory).map(|(_, name)| name);
        self.names.extend_from_slice(separator(in_same, name));
        self.name_ends.push(self.names.len() as u32);
        self.directories.push(directory.0);
        self.places.push((at / UNIT) as u32);
    }

    /// Says where the last page ends.
    pub fn end(&mut self, at: u64) {
        self.places.push((at / UNIT) as u32);
    }

    fn name(&self, page: usize) -> &[u8] {
        let begin = page.checked_sub(1).map_or(0, |before| self.name_ends[before] as usize);
        &self.names[begin..self.name_ends[page] as usize]
    }

    /// The least key a page can have.
    pub fn first(&self, page: usize) -> Option<(DirId, &[u8])> {
        Some((DirId(*self.directories.get(page)?), self.name(page)))
    }

    /// The one page that can have this key; none if the key comes before all of them.
    pub fn page_of(&self, directory: DirId, name: &[u8]) -> Option<usize> {
        let not_after = |page: usize| match self.directories[page].cmp(&directory.0) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => self.name(page) <= name,
            std::cmp::Ordering::Greater => false,
        };
        let (mut low, mut high) = (0, self.pages());
        while low < high {
            let middle = low + (high - low) / 2;
            if not_after(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// Where a page lies in the file: its first byte, and how many it has.
    pub fn extent(&self, page: usize) -> Option<(u64, usize)> {
        let (begin, end) = (*self.places.get(page)?, *self.places.get(page + 1)?);
        Some((u64::from(begin) * UNIT, usize::try_from(u64::from(end.checked_sub(begin)?) * UNIT).ok()?))
    }

    /// Memory taken.
    pub fn bytes(&self) -> usize {
        self.directories.capacity() * 8
            + self.names.capacity()
            + (self.name_ends.capacity() + self.places.capacity()) * 4
    }

    /// As bytes of a file: for each page the directory's number less the one before it, the name, the page's length in
    /// eighths.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.pages() as u64);
        put_varint(out, u64::from(self.places.first().copied().unwrap_or(0)));
        let mut before = 0;
        for page in 0..self.pages() {
            put_varint(out, self.directories[page] - before);
            put_bytes(out, self.name(page));
            put_varint(out, u64::from(self.places[page + 1] - self.places[page]));
            before = self.directories[page];
        }
    }

    /// From bytes of a file.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let bad = |_| Damaged("the index of the pages cannot be read");
        let out_of_range = Damaged("the index of the pages has a place beyond the file's");
        let mut reader = Reader::new(bytes);
        let mut index = PageIndex::default();
        let pages = reader.length().map_err(bad)?;
        let mut place = u32::try_from(reader.varint().map_err(bad)?).map_err(|_| out_of_range)?;
        let mut directory = 0u64;
        index.places.push(place);
        for _ in 0..pages {
            directory = directory.checked_add(reader.varint().map_err(bad)?).ok_or(out_of_range)?;
            index.directories.push(directory);
            index.names.extend_from_slice(reader.bytes().map_err(bad)?);
            index.name_ends.push(u32::try_from(index.names.len()).map_err(|_| out_of_range)?);
            let length = u32::try_from(reader.varint().map_err(bad)?).map_err(|_| out_of_range)?;
            place = place.checked_add(length).ok_or(out_of_range)?;
            index.places.push(place);
        }
        reader.finish().map_err(bad)?;
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a key is looked for in the one page that may have it, whatever was cut off the keys of the index.
    #[test]
    fn a_key_leads_to_its_page() {
        let mut index = PageIndex::default();
        let pages: [&[(u64, &str)]; 5] = [
            &[(2, "b"), (2, "bcd")],
            &[(2, "bce1"), (2, "bce2")],
            &[(2, "bce3"), (3, "a")],
            &[(3, "b"), (90, "x")],
            &[(91, "a"), (u64::MAX, "z")],
        ];
        let key = |(directory, name): (u64, &'static str)| (DirId(directory), name.as_bytes());
        let mut before = None;
        for (number, page) in (0..).zip(pages) {
            index.push(64 + 800 * number, key(page[0]), before);
            before = Some(key(page[page.len() - 1]));
        }
        index.end(64 + 800 * 5);
        let mut bytes = Vec::new();
        index.encode(&mut bytes);
        let read = PageIndex::decode(&bytes).unwrap();
        for index in [&index, &read] {
            assert_eq!(index.pages(), 5);
            for (number, page) in pages.iter().enumerate() {
                assert_eq!(index.extent(number), Some((64 + 800 * number as u64, 800)));
                for (directory, name) in *page {
                    assert_eq!(index.page_of(DirId(*directory), name.as_bytes()), Some(number), "{name}");
                }
            }
            assert_eq!(index.extent(5), None);
            assert_eq!(index.page_of(DirId(1), b"x"), None);
            assert_eq!(index.page_of(DirId(50), b"x"), Some(3));
        }
        assert!(bytes.len() < 60, "names are cut: {} bytes", bytes.len());
        for cut in 0..bytes.len() {
            assert!(PageIndex::decode(&bytes[..cut]).is_err());
        }
    }
}
