//! Reads a run's file without its indices: page by page from the start, whatever else is damaged.
//!
//! A page's checksum includes the run's salt and the page's offset, so nothing else passes for a
//! page. Bytes between two intact pages are a gap. The keys on both sides limit the rows that it
//! may have had.

use std::sync::Arc;

use exacat_disk::fixed::u32_at;
use exacat_disk::{DiskFile, cannot_read};
use exacat_model::{DirId, Error, ErrorKind};

use super::file::read_exactly;
use super::writer::{RunHead, RunWriter};
use super::{FOOTER_BYTES, Footer, HEADER_BYTES, VERSION};
use crate::page::{HEAD_BYTES, PAGE_BYTES_MAX, Page};

/// Pages begin at multiples of this.
const ALIGNMENT: u64 = 8;
/// Bytes per read in the search for a page.
const READ_BYTES: usize = 1 << 20;

/// Key of a row.
pub(crate) type Key = (DirId, Vec<u8>);

/// Bytes without an intact page, where pages should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub at: u64,
    pub bytes: u64,
    /// Last key before the gap; none if it is at the start.
    pub after: Option<Key>,
    /// First key behind the gap; none if it is at the end.
    pub before: Option<Key>,
}

impl Gap {
    /// Says whether a row of this key may have been in the gap.
    pub(crate) fn may_have_had(&self, key: (DirId, &[u8])) -> bool {
        let after = self.after.as_ref().is_none_or(|(directory, name)| (*directory, name.as_slice()) < key);
        let before = self.before.as_ref().is_none_or(|(directory, name)| key < (*directory, name.as_slice()));
        after && before
    }
}

/// Readable part of a run's file.
pub(crate) struct Scanned {
    name: String,
    file: Arc<dyn DiskFile>,
    pub head: RunHead,
    /// Offset and length of each intact page.
    pages: Vec<(u64, u32)>,
    pub gaps: Vec<Gap>,
    /// Rows in these pages.
    pub rows: u64,
}

impl Scanned {
    /// Searches the pages of a run. None if both its start and its end are damaged: then no page
    /// can be recognised.
    pub(crate) fn read(name: &str, file: Arc<dyn DiskFile>) -> Result<Option<Self>, Error> {
        let length = file.length().map_err(|error| cannot_read(name, &error))?;
        let footer_at = length.checked_sub(FOOTER_BYTES as u64);
        let end = footer_at.map(|at| read_exactly(name, &*file, at, FOOTER_BYTES)).transpose()?;
        let footer = end.as_deref().and_then(<[u8]>::first_chunk).and_then(Footer::decode);
        let head = match length >= HEADER_BYTES as u64 {
            true => head_in(name, read_exactly(name, &*file, 0, HEADER_BYTES)?)?,
            false => None,
        };
        // Both are checked. If they contradict each other, the pages fit only one of them.
        let Some(head) = head.or(footer.map(|footer| footer.head)) else { return Ok(None) };
        let footer = footer.filter(|footer| footer.head == head);
        let pages_end = footer.map_or(length, |footer| footer.pages_end.min(length));
        let (name, pages, gaps) = (name.to_owned(), Vec::new(), Vec::new());
        let mut scanned = Scanned { name, file, head, pages, gaps, rows: 0 };
        scanned.look(pages_end)?;
        Ok(Some(scanned))
    }

    fn look(&mut self, pages_end: u64) -> Result<(), Error> {
        let mut window = Window { at: 0, bytes: Vec::new() };
        let (mut at, mut last): (u64, Option<Key>) = (HEADER_BYTES as u64, None);
        let mut gap: Option<u64> = None;
        while at + HEAD_BYTES as u64 <= pages_end {
            let Some((first, to, rows, bytes)) = self.page_at(&mut window, at, pages_end)? else {
                gap.get_or_insert(at);
                at += ALIGNMENT;
                continue;
            };
            // Keys ascend, so a page that does not follow belongs elsewhere.
            if last.as_ref().is_some_and(|last| *last >= first) {
                gap.get_or_insert(at);
                at += ALIGNMENT;
                continue;
            }
            if let Some(begin) = gap.take() {
                self.gaps.push(Gap { at: begin, bytes: at - begin, after: last, before: Some(first) });
            }
            self.pages.push((at, bytes));
            self.rows += rows;
            last = Some(to);
            at += u64::from(bytes);
        }
        if let Some(begin) = gap.or((at < pages_end).then_some(at)) {
            self.gaps.push(Gap { at: begin, bytes: pages_end - begin, after: last, before: None });
        }
        Ok(())
    }

    /// Reads the page at this offset, if there is one: its first and last key, its rows, its bytes.
    fn page_at(
        &self,
        window: &mut Window,
        at: u64,
        pages_end: u64,
    ) -> Result<Option<(Key, Key, u64, u32)>, Error> {
        let head = window.get(&self.name, &*self.file, at, HEAD_BYTES)?;
        if head.len() < HEAD_BYTES {
            return Ok(None);
        }
        let bytes = u32_at(head, 4);
        let fits = bytes as usize >= HEAD_BYTES
            && bytes as usize <= PAGE_BYTES_MAX
            && u64::from(bytes).is_multiple_of(ALIGNMENT)
            && at + u64::from(bytes) <= pages_end;
        if !fits {
            return Ok(None);
        }
        let read = window.get(&self.name, &*self.file, at, bytes as usize)?;
        let Ok(page) = Page::open(read, self.head.salt, at) else { return Ok(None) };
        let mut key = Vec::new();
        let (Ok(first), last) = (page.key(0, &mut key), page.rows() - 1) else { return Ok(None) };
        let first = (first, std::mem::take(&mut key));
        let Ok(to) = page.key(last, &mut key) else { return Ok(None) };
        Ok(Some((first, (to, key), page.rows() as u64, bytes)))
    }

    /// Says whether it has all rows of a run of so many.
    pub(crate) fn has_all_of(&self, rows: u64) -> bool {
        self.rows == rows
    }

    /// Copies all readable rows into another run.
    pub(crate) fn copy_into(&self, writer: &mut RunWriter) -> Result<(), Error> {
        for (at, bytes) in &self.pages {
            let read = read_exactly(&self.name, &*self.file, *at, *bytes as usize)?;
            let damaged = |damaged| super::file::corrupt(&self.name, damaged);
            let page = Page::open(&read, self.head.salt, *at).map_err(damaged)?;
            let mut rows = page.all();
            while let Some(row) = rows.next(&page).map_err(damaged)? {
                writer.push(&row).map_err(|error| crate::table::cannot_write_run(&error))?;
            }
        }
        Ok(())
    }
}

/// Decodes the header in these bytes; none if it is damaged.
fn head_in(name: &str, mut bytes: Vec<u8>) -> Result<Option<RunHead>, Error> {
    match RunHead::decode(name, &bytes) {
        Ok(head) => Ok(Some(head)),
        Err(newer) if newer.kind == ErrorKind::Invalid => {
            // Only the version may be damaged: then the header is valid with this release's
            // version.
            bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
            RunHead::decode(name, &bytes).map(Some).map_err(|_| newer)
        }
        Err(_) => Ok(None),
    }
}

/// A part of a file, read in large pieces.
struct Window {
    at: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns so many bytes of the file; fewer at its end.
    fn get(&mut self, name: &str, file: &dyn DiskFile, at: u64, count: usize) -> Result<&[u8], Error> {
        let inside = at.checked_sub(self.at).and_then(|skip| usize::try_from(skip).ok());
        let skip = match inside {
            Some(skip) if skip + count <= self.bytes.len() => skip,
            _ => {
                self.bytes.resize(count.max(READ_BYTES), 0);
                let read = file.read_at(&mut self.bytes, at).map_err(|error| cannot_read(name, &error))?;
                self.bytes.truncate(read);
                self.at = at;
                0
            }
        };
        let end = (skip + count).min(self.bytes.len());
        Ok(&self.bytes[skip..end])
    }
}
