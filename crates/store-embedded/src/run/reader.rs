//! Reads a run: rows by name, by GUID, and in order.

use std::sync::Arc;

use exacat_model::{DirId, Guid};

use super::cache::{Bytes, CachedBytes};
use super::file::{Run, RunPart};
use super::guids;
use super::reading::Reading;
use crate::defect::Defect;
use crate::page::{Damaged, Page, PageHead, Row, Walk};

/// Number of pages that a sequential reader reads ahead after a missing one.
const PAGES_AHEAD: usize = 4;

/// A row in its page.
pub(crate) struct RowAt<'p> {
    page: PageAt<'p>,
    row: usize,
}

/// Bytes of a page.
pub(crate) struct PageAt<'p>(CachedBytes<'p>);

impl PageAt<'_> {
    /// Returns the page, which was checked when it was read.
    pub(crate) fn view(&self) -> Result<Page<'_>, Damaged> {
        Page::view(&self.0)
    }

    /// Loads the part of the page that is read first into the processor's cache. The result has no
    /// meaning.
    pub(crate) fn touch(&self) -> u8 {
        Page::touch_head(&self.0)
    }
}

impl RowAt<'_> {
    /// Returns the row; the caller has its key.
    pub(crate) fn row<'r>(&'r self, parent: DirId, name: &'r [u8]) -> Result<Row<'r>, Damaged> {
        self.page.view()?.row(self.row, parent, name)
    }
}

impl Run {
    /// Returns the bytes of a page.
    pub(crate) fn page<'p>(
        self: &'p Arc<Self>,
        reading: Reading<'_>,
        page: usize,
    ) -> Result<PageAt<'p>, Defect> {
        reading.get(self, RunPart::Page(page)).map(PageAt)
    }

    /// Returns the bytes of a page of a walk up to this directory. If the page is missing, it notes those
    /// behind it too: a walk that misses one page after the other begins again each time.
    fn page_in_order<'p>(
        self: &'p Arc<Self>,
        reading: Reading<'_>,
        page: usize,
        last: DirId,
    ) -> Result<PageAt<'p>, Defect> {
        self.page(reading, page).inspect_err(|_| {
            let ahead = page + 1..(page + 1 + PAGES_AHEAD).min(self.index.pages());
            reading.note_pages(self, ahead.filter(|page| !self.index.begins_after(*page, last)));
        })
    }

    /// Says whether it may have rows of this directory.
    pub(crate) fn may_have_any(&self, directory: DirId) -> bool {
        self.names.may_have(self.hashes.directory(directory))
    }

    /// Says whether it may have the GUID of this hash.
    #[inline]
    pub(crate) fn may_have_guid(&self, hash: u64) -> bool {
        self.guids.may_have(hash)
    }

    /// Returns the page that may have this name.
    pub(crate) fn page_of(&self, directory: DirId, name: &[u8]) -> Option<usize> {
        self.index.page_of(directory, name)
    }

    /// Says whether this page may have this name.
    pub(crate) fn is_page_of(&self, page: usize, directory: DirId, name: &[u8]) -> bool {
        self.index.is_page_of(page, directory, name)
    }

    /// Returns the row of a name; `hash` is that of the name.
    pub(crate) fn find<'p>(
        self: &'p Arc<Self>,
        reading: Reading<'_>,
        directory: DirId,
        name: &[u8],
        hash: u64,
    ) -> Result<Option<RowAt<'p>>, Defect> {
        let Some(number) = self.page_of(directory, name) else { return Ok(None) };
        let page = self.page(reading, number)?;
        let found = page.view().and_then(|page| page.find(directory, name, hash));
        let found = found.map_err(|damaged| self.damaged(number, damaged))?;
        Ok(found.map(|row| RowAt { page, row }))
    }

    /// Returns the row of a GUID, the number of its page, and whether the row says that the GUID is
    /// gone. If the GUID was purged in this run and then used again, the later use counts.
    fn row_of_guid<'p>(
        self: &'p Arc<Self>,
        reading: Reading<'_>,
        guid: Guid,
    ) -> Result<Option<(usize, RowAt<'p>, bool)>, Defect> {
        let hash = guids::hash(self.head.salt, guid);
        let block = reading.get(self, RunPart::Block(guids::block_of(hash, self.footer.blocks)))?;
        let mut purged = None;
        for place in guids::find(&block, hash, self.footer.blocks) {
            let (number, row) = (place.page() as usize, place.row());
            let page = self.page(reading, number)?;
            let gone = page.view().and_then(|page| {
                if page.id(row)? != guid.0 {
                    return Ok(None);
                }
                let row = page.row(row, DirId(0), b"")?;
                Ok((row.guid() == Some(guid)).then(|| row.is_gone()))
            });
            match gone.map_err(|damaged| self.damaged(number, damaged))? {
                None => {}
                Some(false) => return Ok(Some((number, RowAt { page, row }, false))),
                Some(true) => purged = Some((number, RowAt { page, row }, true)),
            }
        }
        Ok(purged)
    }

    /// Says whether the GUID exists up to this run; none if this run does not have it.
    pub(crate) fn has_guid(
        self: &Arc<Self>,
        reading: Reading<'_>,
        guid: Guid,
    ) -> Result<Option<bool>, Defect> {
        Ok(self.row_of_guid(reading, guid)?.map(|(_, _, gone)| !gone))
    }

    /// Returns the row of a GUID, and its key.
    pub(crate) fn find_guid<'p>(
        self: &'p Arc<Self>,
        reading: Reading<'_>,
        guid: Guid,
    ) -> Result<Option<(DirId, Vec<u8>, RowAt<'p>)>, Defect> {
        let Some((number, found, _)) = self.row_of_guid(reading, guid)? else { return Ok(None) };
        let mut name = Vec::new();
        let directory = found.page.view().and_then(|page| page.key(found.row, &mut name));
        let directory = directory.map_err(|damaged| self.damaged(number, damaged))?;
        Ok(Some((directory, name, found)))
    }

    pub(super) fn block_end(&self, block: usize) -> u64 {
        let mut end = [0; 8];
        end[..5].copy_from_slice(&self.block_ends[5 * block..5 * block + 5]);
        u64::from_le_bytes(end)
    }

    /// Returns a walk from the first row at this key; with `after`, behind it.
    pub(crate) fn from(
        self: &Arc<Self>,
        reading: Reading<'_>,
        directory: DirId,
        name: &[u8],
        after: bool,
    ) -> Result<Cursor, Defect> {
        self.walk(reading, (directory, name), after, DirId(u64::MAX))
    }

    /// Returns a walk within this directory only.
    pub(crate) fn within(
        self: &Arc<Self>,
        reading: Reading<'_>,
        directory: DirId,
        name: &[u8],
        after: bool,
    ) -> Result<Cursor, Defect> {
        self.walk(reading, (directory, name), after, directory)
    }

    fn walk(
        self: &Arc<Self>,
        reading: Reading<'_>,
        (directory, name): (DirId, &[u8]),
        after: bool,
        last: DirId,
    ) -> Result<Cursor, Defect> {
        let number = self.index.page_of(directory, name).unwrap_or(0);
        let mut cursor = Cursor { next_page: number, page: None, walk: Walk::default(), last };
        if number < self.index.pages() {
            let bytes = self.page_in_order(reading, number, last)?.0.keep();
            let walk =
                Page::view(&bytes).and_then(|page| Ok((page.from(directory, name, after)?, page.head())));
            let (walk, head) = walk.map_err(|damaged| self.damaged(number, damaged))?;
            cursor.next_page = number + 1;
            (cursor.page, cursor.walk) = (Some((bytes, head)), walk);
        }
        cursor.advance(self, reading)?;
        Ok(cursor)
    }
}

/// A walk over the rows of a run, positioned on its first row, unless there is none.
pub(crate) struct Cursor {
    next_page: usize,
    page: Option<(Bytes, PageHead)>,
    walk: Walk,
    /// Last directory of the walk.
    last: DirId,
}

impl Cursor {
    /// Moves to the next row; false at the end.
    #[inline]
    pub(crate) fn advance(&mut self, run: &Arc<Run>, reading: Reading<'_>) -> Result<bool, Defect> {
        loop {
            if let Some((bytes, head)) = &self.page {
                let went = self.walk.advance(&Page::with(bytes, *head));
                if went.map_err(|damaged| run.damaged(self.next_page - 1, damaged))? {
                    if self.walk.key().0 <= self.last {
                        return Ok(true);
                    }
                    self.page = None;
                    return Ok(false);
                }
            }
            if !self.next_page(run, reading)? {
                return Ok(false);
            }
        }
    }

    /// Moves before the first row of the next page; false at the end.
    #[cold]
    fn next_page(&mut self, run: &Arc<Run>, reading: Reading<'_>) -> Result<bool, Defect> {
        if run.index.begins_after(self.next_page, self.last) {
            self.page = None;
            return Ok(false);
        }
        let page = run.page_in_order(reading, self.next_page, self.last)?;
        let bytes = page.0.keep();
        let page = Page::view(&bytes).map_err(|damaged| run.damaged(self.next_page, damaged))?;
        let head = page.head();
        self.walk.go_to_start(&page);
        self.page = Some((bytes, head));
        self.next_page += 1;
        Ok(true)
    }

    /// Returns the key of the current row; none at the end.
    #[inline]
    pub(crate) fn key(&self) -> Option<(DirId, &[u8])> {
        self.page.as_ref().map(|_| self.walk.key())
    }

    /// Says whether the current row notes a removal.
    pub(crate) fn is_gone(&self, run: &Run) -> Result<bool, Defect> {
        let Some((bytes, head)) = &self.page else { return Ok(false) };
        let gone = self.walk.is_gone(&Page::with(bytes, *head));
        gone.map_err(|damaged| run.damaged(self.next_page - 1, damaged).into())
    }

    /// Returns the current row.
    pub(crate) fn row(&self, run: &Run) -> Result<Option<Row<'_>>, Defect> {
        let Some((bytes, head)) = &self.page else { return Ok(None) };
        let row = self.walk.row(&Page::with(bytes, *head));
        row.map(Some).map_err(|damaged| run.damaged(self.next_page - 1, damaged).into())
    }
}
