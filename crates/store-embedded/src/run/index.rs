//! The index of a run's pages, which leads from a key to the page that can have it. It is small,
//! one short key per page, and in memory.

use std::ops::Range;

use exacat_model::DirId;
use exacat_model::codec::{Reader, put_bytes, put_varint};
use exacat_model::limits::NAME_BYTES_MAX;

use super::guids::RowPlace;
use crate::keyspace;
use crate::page::{Damaged, PAGE_BYTES_MAX};

/// Offset of each page of a run, and the least key that it can have.
#[derive(Debug, Default)]
pub(crate) struct PageIndex {
    directories: Vec<u64>,
    names: Vec<u8>,
    name_ends: Vec<u32>,
    /// Offset of each page in the file, in eighths; and the end of the last.
    places: Vec<u32>,
    guide: Guide,
}

/// Start of the search for a directory's page. Directory numbers are divided into equal intervals;
/// for each it has the first page that begins in it or after it. Numbers are assigned in sequence,
/// so intervals have about as many pages each.
#[derive(Debug, Default)]
struct Guide {
    first: u64,
    /// Size of an interval, as a power of two.
    shift: u32,
    starts: Vec<u32>,
}

/// Pages per interval, approximately.
const RANGE_PAGES: usize = 4;

impl Guide {
    /// Builds the guide for pages that begin in these directories.
    fn new(directories: &[u64]) -> Self {
        // Tables have numbers far beyond, and far from each other.
        let pages = directories
            .partition_point(|directory| keyspace::is_directory(DirId(*directory)) || *directory == 0);
        let (Some(first), Some(last)) = (directories.first(), pages.checked_sub(1)) else {
            return Guide::default();
        };
        let span = directories[last] - first;
        let ranges = (pages / RANGE_PAGES).max(1) as u64;
        let shift = (span / ranges).checked_ilog2().map_or(0, |power| power + 1);
        let mut starts = Vec::with_capacity((span >> shift) as usize + 2);
        for (page, directory) in (0u32..).zip(&directories[..pages]) {
            while starts.len() as u64 <= (directory - first) >> shift {
                starts.push(page);
            }
        }
        starts.push(pages as u32);
        Guide { first: *first, shift, starts }
    }

    /// Returns the pages to search: those before begin before this directory, those behind begin
    /// after it.
    fn among(&self, directory: u64, pages: usize) -> Range<usize> {
        let known = self.starts.len().saturating_sub(1);
        let Some(offset) = directory.checked_sub(self.first) else { return 0..0 };
        match usize::try_from(offset >> self.shift) {
            Ok(range) if range < known => self.starts[range] as usize..self.starts[range + 1] as usize,
            _ => self.starts.last().map_or(0, |last| *last as usize)..pages,
        }
    }
}

/// Unit of offsets in bytes: pages begin at multiples of it.
const UNIT: u64 = 8;

/// Maximum bytes of pages, and of names in the index: their offsets have 32 bits.
const PAGES_BYTES_MAX: u64 = (u32::MAX as u64) * UNIT;
const NAMES_BYTES_MAX: usize = u32::MAX as usize;

/// Returns the shortest name after `before` that is not after `first`.
fn separator<'a>(before: Option<&[u8]>, first: &'a [u8]) -> &'a [u8] {
    let Some(before) = before else { return &[] };
    let shared = before.iter().zip(first).take_while(|(a, b)| a == b).count();
    &first[..first.len().min(shared + 1)]
}

impl PageIndex {
    pub(crate) fn pages(&self) -> usize {
        self.directories.len()
    }

    /// Says whether there is no room for a page at `at`, of whatever length and name.
    pub(crate) fn is_full(&self, at: u64) -> bool {
        self.pages() >= RowPlace::PAGES_MAX as usize
            || at + PAGE_BYTES_MAX as u64 > PAGES_BYTES_MAX
            || self.names.len() + NAME_BYTES_MAX > NAMES_BYTES_MAX
    }

    /// Adds a page that begins at `at` with key `first`. `before` is the last key of the page
    /// before.
    pub(crate) fn push(&mut self, at: u64, first: (DirId, &[u8]), before: Option<(DirId, &[u8])>) {
        let (directory, name) = first;
        let in_same = before.filter(|(before, _)| *before == directory).map(|(_, name)| name);
        self.names.extend_from_slice(separator(in_same, name));
        self.name_ends.push(self.names.len() as u32);
        self.directories.push(directory.0);
        self.places.push((at / UNIT) as u32);
    }

    /// Sets the end of the last page; before that no key is found.
    pub(crate) fn end(&mut self, at: u64) {
        self.places.push((at / UNIT) as u32);
        self.guide = Guide::new(&self.directories);
    }

    fn name(&self, page: usize) -> &[u8] {
        let begin = page.checked_sub(1).map_or(0, |before| self.name_ends[before] as usize);
        &self.names[begin..self.name_ends[page] as usize]
    }

    /// Returns the least key that a page can have.
    pub(crate) fn first(&self, page: usize) -> Option<(DirId, &[u8])> {
        Some((DirId(*self.directories.get(page)?), self.name(page)))
    }

    /// Returns the one page that can have this key; none if the key comes before all of them.
    pub(crate) fn page_of(&self, directory: DirId, name: &[u8]) -> Option<usize> {
        let among = self.guide.among(directory.0, self.pages());
        let (begin, directories) = (among.start, &self.directories[among]);
        let before = directories.partition_point(|other| *other < directory.0);
        let (mut low, mut high) = (before, directories.len());
        // Most directories begin in few pages.
        if directories.get(low + 1).is_none_or(|other| *other > directory.0) {
            high = high.min(low + 1);
        } else {
            high = low + directories[low..].partition_point(|other| *other == directory.0);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if directories[middle] == directory.0 && self.name(begin + middle) <= name {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (begin + low).checked_sub(1)
    }

    /// Says whether this page can have this key.
    pub(crate) fn is_page_of(&self, page: usize, directory: DirId, name: &[u8]) -> bool {
        let key = (directory, name);
        self.first(page).is_some_and(|first| first <= key)
            && self.first(page + 1).is_none_or(|next| key < next)
    }

    /// Says whether all pages from this one on begin after a directory.
    pub(crate) fn begins_after(&self, page: usize, directory: DirId) -> bool {
        self.directories.get(page).is_none_or(|first| *first > directory.0)
    }

    /// Returns a page's offset and length in the file.
    pub(crate) fn extent(&self, page: usize) -> Option<(u64, usize)> {
        let (begin, end) = (*self.places.get(page)?, *self.places.get(page + 1)?);
        Some((u64::from(begin) * UNIT, usize::try_from(u64::from(end.checked_sub(begin)?) * UNIT).ok()?))
    }

    /// Returns the memory taken.
    pub(crate) fn bytes(&self) -> usize {
        self.directories.capacity() * 8
            + self.names.capacity()
            + (self.name_ends.capacity() + self.places.capacity() + self.guide.starts.capacity()) * 4
    }

    /// Encodes the index. A page has three fields: the directory's number less the one before it,
    /// the name, the length in eighths.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
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

    /// Decodes the index.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
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
        index.guide = Guide::new(&index.directories);
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::Random;

    /// Goal: the guide leads to the page that a search of all pages finds, whatever directories
    /// they begin in.
    #[test]
    fn the_guide_leads_where_a_search_of_all_pages_does() {
        let random = &mut Random(3);
        for pages in [0, 1, 2, 5, 300] {
            for (bound, tables) in [(1, false), (10, true), (1000, false), (1 << 31, true)] {
                let mut firsts: Vec<(u64, String)> = (0..pages)
                    .map(|_| {
                        let table = if tables && random.next(4) == 0 { 1 << 63 } else { 0 };
                        (table + random.next(bound), format!("{:04}", random.next(9000)))
                    })
                    .collect();
                firsts.sort();
                firsts.dedup();
                let (mut index, mut before) = (PageIndex::default(), None);
                for (number, (directory, name)) in (0..).zip(&firsts) {
                    index.push(64 + 8 * number, (DirId(*directory), name.as_bytes()), before);
                    before = Some((DirId(*directory), name.as_bytes()));
                }
                index.end(64 + 8 * firsts.len() as u64);
                for _ in 0..500 {
                    let table = if random.next(3) == 0 { 1 << 63 } else { 0 };
                    let key = (table + random.next(bound + 2), format!("{:04}", random.next(9000)));
                    // Names in the index are shortened, so a page may begin before its first key.
                    let wanted = (0..index.pages())
                        .rev()
                        .find(|page| index.first(*page).unwrap() <= (DirId(key.0), key.1.as_bytes()));
                    assert_eq!(
                        index.page_of(DirId(key.0), key.1.as_bytes()),
                        wanted,
                        "{pages} pages, {key:?}"
                    );
                }
            }
        }
    }

    /// Goal: a key leads to the one page that may have it, whatever was cut off the keys of the
    /// index.
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
