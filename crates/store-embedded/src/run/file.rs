//! The file of a run: its opening, its parts, and their places in the cache.

use std::sync::{Arc, OnceLock};

use exacat_disk::fixed::u64_at;
use exacat_disk::{DiskFile, cannot_read, header};
use exacat_model::{Error, ErrorKind, Revision};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::cache::{Bytes, Cache, CacheSlots, CachedBytes};
use super::filter::Filter;
use super::guids;
use super::index::PageIndex;
use super::writer::RunHead;
use super::{FOOTER_BYTES, Footer, HEADER_BYTES, Hashes, MAGIC, Section, VERSION};
use crate::page::{Damaged, Page};

/// Number of a run, and an offset in it.
pub(super) type Key = (u64, u64);

/// A part of a run that is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunPart {
    Page(usize),
    Block(u32),
}

impl RunPart {
    /// Returns the number of its kind, as the page cache counts.
    pub(super) fn kind(self) -> usize {
        match self {
            RunPart::Page(_) => 0,
            RunPart::Block(_) => 1,
        }
    }
}

/// A complete run.
pub(crate) struct Run {
    /// Name for errors.
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) head: RunHead,
    pub(super) footer: Footer,
    pub(super) names: Filter,
    pub(super) guids: Filter,
    /// Length of the file.
    pub(super) bytes: u64,
    /// End of each block of the GUID index, five bytes each.
    pub(super) block_ends: Vec<u8>,
    pub(super) index: PageIndex,
    pub(super) hashes: Hashes,
    /// Slots of its parts, pages first, in the cache that was used first. Only tests have more than
    /// one cache.
    pub(super) slots: OnceLock<Arc<CacheSlots>>,
    /// Last field, because dropping it frees the file's space: the file is closed by then.
    removed: Removed,
}

/// File of a run that was removed while in use; its space is freed once nobody reads it any more.
#[derive(Default)]
struct Removed(OnceLock<Box<dyn DiskFile>>);

impl Drop for Removed {
    fn drop(&mut self) {
        if let Some(file) = self.0.get() {
            file.give_back();
        }
    }
}

pub(super) fn corrupt(name: &str, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{name}: {what}"))
}

pub(super) fn read_exactly(name: &str, file: &dyn DiskFile, at: u64, bytes: usize) -> Result<Vec<u8>, Error> {
    let mut read = vec![0; bytes];
    fill(name, file, at, &mut read)?;
    Ok(read)
}

fn fill(name: &str, file: &dyn DiskFile, at: u64, room: &mut [u8]) -> Result<(), Error> {
    match file.read_at(room, at).map_err(|error| cannot_read(name, &error))? {
        got if got == room.len() => Ok(()),
        got => Err(corrupt(name, format!("it ends {} bytes too early", room.len() - got))),
    }
}

impl RunHead {
    pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        if bytes[..8] != MAGIC {
            return Err(corrupt(name, "this is no run"));
        }
        header::check(name, bytes, VERSION)?;
        let mut catalogue = [0; 16];
        catalogue.copy_from_slice(&bytes[16..32]);
        Ok(RunHead { catalogue, number: u64_at(bytes, 32), salt: u64_at(bytes, 40) })
    }
}

/// Reads the header of a run's file.
pub(crate) fn head_of(name: &str, file: &dyn DiskFile) -> Result<RunHead, Error> {
    RunHead::decode(name, &read_exactly(name, file, 0, HEADER_BYTES)?)
}

/// Returns the newest change in a complete run; none if the file is incomplete or unreadable.
pub(crate) fn newest_in(name: &str, file: &dyn DiskFile) -> Option<(RunHead, Revision)> {
    let head = head_of(name, file).ok()?;
    let at = file.length().ok()?.checked_sub(FOOTER_BYTES as u64)?;
    let end = read_exactly(name, file, at, FOOTER_BYTES).ok()?;
    let footer = end.first_chunk().and_then(Footer::decode).filter(|footer| footer.head == head)?;
    Some((head, Revision(footer.revision)))
}

impl Run {
    /// Opens a run of this catalogue: reads all of it except pages and blocks.
    pub(crate) fn open(name: &str, file: Arc<dyn DiskFile>, catalogue: [u8; 16]) -> Result<Self, Error> {
        Self::open_of(name, file, |of| of == catalogue)
    }

    /// Opens a run of any catalogue that passes the check.
    pub(crate) fn open_of(
        name: &str,
        file: Arc<dyn DiskFile>,
        is_to_be_had: impl Fn([u8; 16]) -> bool,
    ) -> Result<Self, Error> {
        let head = head_of(name, &*file)?;
        if !is_to_be_had(head.catalogue) {
            return Err(corrupt(name, "the run is another catalogue's"));
        }
        let length = file.length().map_err(|error| cannot_read(name, &error))?;
        let footer_at = length.checked_sub(FOOTER_BYTES as u64).filter(|at| *at >= HEADER_BYTES as u64);
        let footer_at = footer_at.ok_or_else(|| corrupt(name, "it ends too early"))?;
        let end = read_exactly(name, &*file, footer_at, FOOTER_BYTES)?;
        let footer = end.first_chunk().and_then(Footer::decode).filter(|footer| footer.head == head);
        let footer =
            footer.ok_or_else(|| corrupt(name, "its end fails its checksum, or is another run's"))?;
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
        let (name, hashes) = (name.to_owned(), Hashes::of(head.catalogue));
        let slots = OnceLock::new();
        Ok(Run {
            name,
            file,
            head,
            footer,
            names,
            guids,
            bytes: length,
            block_ends,
            index,
            hashes,
            slots,
            removed: Removed::default(),
        })
    }

    /// Returns the number of rows, of removals among them, and the newest revision.
    pub(crate) fn rows(&self) -> (u64, u64, u64) {
        (self.footer.rows, self.footer.gone, self.footer.revision)
    }

    /// Notes that its name is about to go; `file` is the same file, writable.
    pub(crate) fn remove(&self, file: Box<dyn DiskFile>) {
        // Only the first call counts.
        let _twice = self.removed.0.set(file);
    }

    /// Returns the length of its file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns its number.
    pub(crate) fn number(&self) -> u64 {
        self.head.number
    }

    /// Returns the hash function of its keys, which all runs of its catalogue share.
    pub(crate) fn hashes(&self) -> Hashes {
        self.hashes
    }

    /// Returns the salt that distinguishes it from every other run.
    pub(crate) fn salt(&self) -> u64 {
        self.head.salt
    }

    /// Returns the memory taken, without the cache.
    pub(crate) fn memory_bytes(&self) -> usize {
        let slots = self.slots.get().map_or(0, |slots| slots.bytes());
        self.names.bytes() + self.guids.bytes() + self.block_ends.capacity() + self.index.bytes() + slots
    }

    /// Returns the error for a damaged page, with the names at risk.
    pub(crate) fn damaged(&self, page: usize, damaged: Damaged) -> Error {
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

    fn extent(&self, part: RunPart) -> Result<(u64, usize), Error> {
        match part {
            RunPart::Page(page) => {
                self.index.extent(page).ok_or_else(|| corrupt(&self.name, "it has no such page"))
            }
            RunPart::Block(block) => {
                let end = self.block_end(block as usize);
                let begin = (block as usize).checked_sub(1).map_or(0, |before| self.block_end(before));
                let bytes = end.checked_sub(begin).filter(|bytes| *bytes <= guids::BLOCK_BYTES_MAX as u64);
                let bytes = bytes.ok_or_else(|| self.damaged_block(block, Damaged("it is too long")))?;
                Ok((self.footer.blocks_at + begin, bytes as usize))
            }
        }
    }

    /// Returns the key of a part among those of all runs.
    pub(super) fn key(&self, part: RunPart) -> Result<Key, Error> {
        Ok((self.head.number, self.extent(part)?.0))
    }

    /// Reads a part from the file, and checks it.
    pub(super) fn read(&self, part: RunPart) -> Result<Arc<[u8]>, Error> {
        let (at, bytes) = self.extent(part)?;
        // It is read to where it stays: copying a page costs more than checking it.
        let mut read: Arc<[u8]> = std::iter::repeat_n(0, bytes).collect();
        fill(&self.name, &*self.file, at, Arc::make_mut(&mut read))?;
        match part {
            RunPart::Page(page) => {
                Page::open(&read, self.head.salt, at).map_err(|damaged| self.damaged(page, damaged))?;
            }
            RunPart::Block(block) => {
                guids::check(&read, block, self.head.salt)
                    .map_err(|damaged| self.damaged_block(block, damaged))?;
            }
        }
        Ok(read)
    }

    fn damaged_block(&self, block: u32, damaged: Damaged) -> Error {
        corrupt(&self.name, format!("block {block} of its GUID index: {damaged}"))
    }

    fn slot(&self, part: RunPart) -> usize {
        match part {
            RunPart::Page(page) => page,
            RunPart::Block(block) => self.index.pages() + block as usize,
        }
    }

    /// Returns the slots of this run, if they are in this cache.
    #[inline]
    fn slots(&self, cache: &Cache) -> Option<&Arc<CacheSlots>> {
        self.slots.get().filter(|slots| cache.has(slots))
    }

    /// Returns a part, if it is in the cache.
    #[inline]
    pub(super) fn cached(&self, cache: &Cache, part: RunPart) -> Option<CachedBytes<'_>> {
        self.slots(cache)?.get(self.slot(part))
    }

    pub(super) fn touch_slot(&self, cache: &Cache, page: usize) -> u8 {
        self.slots(cache).map_or(0, |slots| slots.touch(page))
    }

    /// Reads a part from the file, checks it, and puts it into the cache.
    pub(super) fn read_into(&self, cache: &Cache, part: RunPart) -> Result<Bytes, Error> {
        cache.miss(part.kind());
        let read = self.read(part)?;
        let slots = self.slots.get_or_init(|| cache.slots(self.index.pages() + self.footer.blocks as usize));
        if cache.has(slots) {
            cache.put(slots, self.slot(part), &read);
        }
        Ok(read)
    }

    /// Returns the number of pages and blocks.
    pub(crate) fn parts(&self) -> usize {
        self.index.pages() + self.footer.blocks as usize
    }

    /// Reads and checks a page or block by its index among both; returns its length.
    pub(crate) fn check_part(&self, part: usize) -> Result<u64, Error> {
        let part = match part.checked_sub(self.index.pages()) {
            None => RunPart::Page(part),
            Some(block) => RunPart::Block(block as u32),
        };
        Ok(self.read(part)?.len() as u64)
    }

    /// Reads and checks every part; returns the problems.
    pub(crate) fn check(&self) -> Vec<String> {
        (0..self.parts()).filter_map(|part| self.check_part(part).err()).map(|error| error.message).collect()
    }

    /// Says whether it may have the name of this hash. If not, nothing needs to be read.
    #[inline]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        self.names.may_have(hash)
    }

    /// Loads the filter's line into the processor's cache; the result has no meaning.
    #[inline]
    pub(crate) fn touch_filter(&self, hash: u64) -> u8 {
        self.names.touch(hash)
    }
}
