//! Reading a run: rows by name, by GUID, and in order.

use std::sync::Arc;

use exacat_model::{DirId, Error, ErrorKind, Guid};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::filter::Filter;
use super::guids;
use super::index::PageIndex;
use super::reading::{Key, Part, Reading};
use super::writer::RunHead;
use super::{FOOTER_BYTES, Footer, HEADER_BYTES, MAGIC, Section, VERSION, name_hash};
use crate::defect::Defect;
use crate::disk::DiskFile;
use crate::history::cannot_read;
use crate::page::{Damaged, Page, PageHead, Row, Walk};
use crate::record::u64_at;

/// Pages after one that is not in memory that are read with it by who goes through them in order.
const PAGES_AHEAD: usize = 4;

/// A whole run.
pub(crate) struct Run {
    /// For errors.
    name: String,
    file: Arc<dyn DiskFile>,
    head: RunHead,
    footer: Footer,
    names: Filter,
    guids: Filter,
    /// Of the file.
    bytes: u64,
    /// Where each block of the GUID index ends, five bytes each.
    block_ends: Vec<u8>,
    index: PageIndex,
}

/// A row where it lies.
#[derive(Clone, Debug)]
pub(crate) struct RowAt {
    page: Arc<[u8]>,
    row: usize,
}

impl RowAt {
    /// The row, whose key is known.
    pub fn row<'r>(&'r self, parent: DirId, name: &'r [u8]) -> Result<Row<'r>, Damaged> {
        Page::view(&self.page)?.row(self.row, parent, name)
    }
}

fn corrupt(name: &str, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{name}: {what}"))
}

fn read_exactly(name: &str, file: &dyn DiskFile, at: u64, bytes: usize) -> Result<Vec<u8>, Error> {
    let mut read = vec![0; bytes];
    match file.read_at(&mut read, at).map_err(|error| cannot_read(name, &error))? {
        got if got == bytes => Ok(read),
        got => Err(corrupt(name, format!("it ends {} bytes too early", bytes - got))),
    }
}

impl RunHead {
    fn decode(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        if bytes[..8] != MAGIC {
            return Err(corrupt(name, "this is no run"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version > VERSION {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{name} has format version {version}, this release reads up to {VERSION}: use a newer one"
                ),
            ));
        }
        if bytes[HEADER_BYTES - 4..] != crc32fast::hash(&bytes[..HEADER_BYTES - 4]).to_le_bytes() {
            return Err(corrupt(name, "its header fails its checksum"));
        }
        let mut catalogue = [0; 16];
        catalogue.copy_from_slice(&bytes[16..32]);
        Ok(RunHead { catalogue, number: u64_at(bytes, 32), salt: u64_at(bytes, 40) })
    }
}

impl Run {
    /// Opens a run: reads all of it but pages and blocks.
    pub fn open(name: &str, file: Arc<dyn DiskFile>, catalogue: [u8; 16]) -> Result<Self, Error> {
        let head = RunHead::decode(name, &read_exactly(name, &*file, 0, HEADER_BYTES)?)?;
        if head.catalogue != catalogue {
            return Err(corrupt(name, "the run is another catalogue's"));
        }
        let length = file.length().map_err(|error| cannot_read(name, &error))?;
        let footer_at = length.checked_sub(FOOTER_BYTES as u64).filter(|at| *at >= HEADER_BYTES as u64);
        let footer_at = footer_at.ok_or_else(|| corrupt(name, "it ends too early"))?;
        let end = read_exactly(name, &*file, footer_at, FOOTER_BYTES)?;
        let footer = end.first_chunk().and_then(|end| Footer::decode(end, head.salt));
        let footer = footer.ok_or_else(|| corrupt(name, "its end fails its checksum"))?;
        let section = |section: Section, what: &str| -> Result<Vec<u8>, Error> {
            let bad = || corrupt(name, format!("{what} fails its checksum"));
            let ends =
                section.at.checked_add(section.bytes).filter(|end| *end <= footer_at).ok_or_else(bad)?;
            let bytes = usize::try_from(ends - section.at).map_err(|_| bad())?;
            let bytes = read_exactly(name, &*file, section.at, bytes)?;
            if xxh3_64_with_seed(&bytes, head.salt) == section.checksum { Ok(bytes) } else { Err(bad()) }
        };
        let filter = |index: usize, what: &str| {
            let bytes = section(footer.sections[index], what)?;
            Filter::decode(&bytes).ok_or_else(|| corrupt(name, format!("{what} is none")))
        };
        let index = PageIndex::decode(&section(footer.sections[3], "its index of pages")?);
        let index = index.map_err(|damaged| corrupt(name, damaged))?;
        let block_ends = section(footer.sections[2], "its index of blocks")?;
        let blocks = footer.blocks as usize;
        if block_ends.len() != 5 * blocks || !footer.blocks.is_power_of_two() {
            return Err(corrupt(name, "its index of blocks has another number of them than its end says"));
        }
        let (names, guids) = (filter(0, "its filter of names")?, filter(1, "its filter of GUIDs")?);
        Ok(Run { name: name.to_owned(), file, head, footer, names, guids, bytes: length, block_ends, index })
    }

    /// Rows, those among them of what is gone, and the newest revision.
    pub fn rows(&self) -> (u64, u64, u64) {
        (self.footer.rows, self.footer.gone, self.footer.revision)
    }

    /// Bytes of its file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.head.number
    }

    /// Memory it takes, without what of it is in the cache.
    pub fn memory_bytes(&self) -> usize {
        self.names.bytes() + self.guids.bytes() + self.block_ends.capacity() + self.index.bytes()
    }

    fn damaged(&self, page: usize, damaged: Damaged) -> Error {
        let at = self.index.extent(page).map_or(0, |(at, _)| at);
        let from = self.index.first(page).map_or_else(String::new, |(directory, name)| {
            let name = String::from_utf8_lossy(name);
            format!(
                "; names of directory {} from {name:?} on, up to the next page's, are at risk",
                directory.0
            )
        });
        corrupt(&self.name, format!("page {page}, at byte {at}: {damaged}{from}"))
    }

    fn extent(&self, part: Part) -> Result<(u64, usize), Error> {
        match part {
            Part::Page(page) => {
                self.index.extent(page).ok_or_else(|| corrupt(&self.name, "it has no such page"))
            }
            Part::Block(block) => {
                let end = self.block_end(block as usize);
                let begin = (block as usize).checked_sub(1).map_or(0, |before| self.block_end(before));
                let bytes = end.checked_sub(begin).filter(|bytes| *bytes <= guids::BLOCK_BYTES_MAX as u64);
                let bytes = bytes.ok_or_else(|| self.damaged_block(block, Damaged("it is too long")))?;
                Ok((self.footer.blocks_at + begin, bytes as usize))
            }
        }
    }

    /// By what a part is known among those of all runs.
    pub(super) fn key(&self, part: Part) -> Result<Key, Error> {
        Ok((self.head.number, self.extent(part)?.0))
    }

    /// Reads a part from the file, and checks it.
    pub(super) fn read(&self, part: Part) -> Result<Arc<[u8]>, Error> {
        let (at, bytes) = self.extent(part)?;
        let read = read_exactly(&self.name, &*self.file, at, bytes)?;
        match part {
            Part::Page(page) => {
                Page::open(&read, self.head.salt, at).map_err(|damaged| self.damaged(page, damaged))?;
            }
            Part::Block(block) => {
                guids::check(&read, block, self.head.salt)
                    .map_err(|damaged| self.damaged_block(block, damaged))?;
            }
        }
        Ok(read.into())
    }

    fn damaged_block(&self, block: u32, damaged: Damaged) -> Error {
        corrupt(&self.name, format!("block {block} of its GUID index: {damaged}"))
    }

    fn page(self: &Arc<Self>, reading: Reading<'_>, page: usize) -> Result<Arc<[u8]>, Defect> {
        reading.get(self, Part::Page(page))
    }

    /// Reads and checks every part of it; gives what is wrong.
    pub fn check(&self) -> Vec<String> {
        let pages = (0..self.index.pages()).map(Part::Page);
        let parts = pages.chain((0..self.footer.blocks).map(Part::Block));
        parts.filter_map(|part| self.read(part).err()).map(|error| error.message).collect()
    }

    /// Can it have this name? If not, nothing needs to be read.
    pub fn may_have(&self, directory: DirId, name: &[u8]) -> bool {
        self.names.may_have(name_hash(self.head.salt, directory, name))
    }

    /// The row of a name.
    pub fn find(
        self: &Arc<Self>,
        reading: Reading<'_>,
        directory: DirId,
        name: &[u8],
    ) -> Result<Option<RowAt>, Defect> {
        if !self.may_have(directory, name) {
            return Ok(None);
        }
        let Some(number) = self.index.page_of(directory, name) else { return Ok(None) };
        let bytes = self.page(reading, number)?;
        let found = Page::view(&bytes).and_then(|page| page.find(directory, name));
        let found = found.map_err(|damaged| self.damaged(number, damaged))?;
        Ok(found.map(|row| RowAt { page: bytes, row }))
    }

    /// The row of a GUID, and its key. If the GUID was purged here, and then something has it again, that counts.
    pub fn find_guid(
        self: &Arc<Self>,
        reading: Reading<'_>,
        guid: Guid,
    ) -> Result<Option<(DirId, Vec<u8>, RowAt)>, Defect> {
        let hash = guids::hash(self.head.salt, guid);
        if !self.guids.may_have(hash) {
            return Ok(None);
        }
        let block = reading.get(self, Part::Block(guids::block_of(hash, self.footer.blocks)))?;
        let mut purged = None;
        for place in guids::find(&block, hash, self.footer.blocks) {
            let (number, row) = (place.page() as usize, place.row());
            let bytes = self.page(reading, number)?;
            let page = Page::view(&bytes).map_err(|damaged| self.damaged(number, damaged))?;
            let mut name = Vec::new();
            let directory = page.key(row, &mut name).map_err(|damaged| self.damaged(number, damaged))?;
            let found = page.row(row, directory, &name).map_err(|damaged| self.damaged(number, damaged))?;
            if found.guid() == Some(guid) {
                let gone = found.is_gone();
                let found = (directory, name, RowAt { page: bytes, row });
                if !gone {
                    return Ok(Some(found));
                }
                purged = Some(found);
            }
        }
        Ok(purged)
    }

    fn block_end(&self, block: usize) -> u64 {
        let mut end = [0; 8];
        end[..5].copy_from_slice(&self.block_ends[5 * block..5 * block + 5]);
        u64::from_le_bytes(end)
    }

    /// A walk from the first row at this key or after it - `after`: only after it.
    pub fn from(
        self: &Arc<Self>,
        reading: Reading<'_>,
        directory: DirId,
        name: &[u8],
        after: bool,
    ) -> Result<Cursor, Defect> {
        let number = self.index.page_of(directory, name).unwrap_or(0);
        let mut cursor = Cursor { next_page: number, page: None, walk: Walk::default() };
        if number < self.index.pages() {
            let bytes = self.page(reading, number)?;
            let walk =
                Page::view(&bytes).and_then(|page| Ok((page.from(directory, name, after)?, page.head())));
            let (walk, head) = walk.map_err(|damaged| self.damaged(number, damaged))?;
            cursor = Cursor { next_page: number + 1, page: Some((bytes, head)), walk };
        }
        cursor.advance(self, reading)?;
        Ok(cursor)
    }
}

/// A walk over the rows of a run: first on its first row, unless there is none.
pub(crate) struct Cursor {
    next_page: usize,
    page: Option<(Arc<[u8]>, PageHead)>,
    walk: Walk,
}

impl Cursor {
    /// Goes to the next row; false at the end.
    pub fn advance(&mut self, run: &Arc<Run>, reading: Reading<'_>) -> Result<bool, Defect> {
        loop {
            if let Some((bytes, head)) = &self.page {
                let went = self.walk.advance(&Page::with(bytes, *head));
                if went.map_err(|damaged| run.damaged(self.next_page - 1, damaged))? {
                    return Ok(true);
                }
            }
            if self.next_page >= run.index.pages() {
                self.page = None;
                return Ok(false);
            }
            let bytes = run.page(reading, self.next_page).inspect_err(|_| {
                let ahead = self.next_page + 1..(self.next_page + 1 + PAGES_AHEAD).min(run.index.pages());
                reading.note_pages(run, ahead);
            })?;
            let page = Page::view(&bytes).map_err(|damaged| run.damaged(self.next_page, damaged))?;
            let head = page.head();
            self.walk = page.all();
            self.page = Some((bytes, head));
            self.next_page += 1;
        }
    }

    /// The key of the row it is on; none at the end.
    pub fn key(&self) -> Option<(DirId, &[u8])> {
        self.page.as_ref().map(|_| self.walk.key())
    }

    /// The row it is on.
    pub fn row(&self, run: &Run) -> Result<Option<Row<'_>>, Defect> {
        let Some((bytes, head)) = &self.page else { return Ok(None) };
        let row = self.walk.row(&Page::with(bytes, *head));
        row.map(Some).map_err(|damaged| run.damaged(self.next_page - 1, damaged).into())
    }
}
