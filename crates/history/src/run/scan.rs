//! Reads the wanted rows and columns of a run, page by page.

use std::sync::Arc;

use exacat_model::Error;

use super::open::{Keys, OpenChunk};
use super::reader::Run;
use super::wanted::Wanted;
use crate::columns::Columns;
use crate::row::ElementNumber;
use crate::sorted::SortedRows;

/// A read of some rows of a run.
pub struct Scan {
    run: Arc<Run>,
    wanted: Wanted,
    /// Smallest wanted element that may have unread rows; none: all is read.
    element: Option<ElementNumber>,
    /// Pages before this one are read.
    page: usize,
    chunk: Option<OpenChunk>,
    /// Pages of the open chunk to be read, the last first.
    pages: Vec<usize>,
}

impl Run {
    /// Reads the wanted rows and columns, in batches of at most a page.
    pub fn scan(self: &Arc<Self>, wanted: Wanted) -> Scan {
        let element = wanted.elements.next_from(0);
        Scan { run: Arc::clone(self), wanted, element, page: 0, chunk: None, pages: Vec::new() }
    }
}

impl Scan {
    /// Returns the next page that may have wanted rows, and goes behind it.
    fn next_page(&mut self) -> Option<usize> {
        let (from, to) = (*self.wanted.times.start(), *self.wanted.times.end());
        let pages = &self.run.index().pages;
        loop {
            let element = self.element?;
            self.page += pages[self.page..].partition_point(|page| page.last < (element, from));
            let page = pages.get(self.page)?;
            if page.first > (element, to) {
                // The element has no wanted row from here on.
                let next = element.checked_add(1).map(|next| next.max(page.first.0));
                self.element = next.and_then(|next| self.wanted.elements.next_from(next));
                continue;
            }
            let after = match page.last >= (page.last.0, to) {
                true => page.last.0.checked_add(1),
                false => Some(page.last.0),
            };
            self.element = after.and_then(|after| self.wanted.elements.next_from(after.max(element)));
            self.page += 1;
            return Some(self.page - 1);
        }
    }

    /// Opens the next chunk with wanted pages; false if there is none.
    fn next_chunk(&mut self) -> Result<bool, Error> {
        let Some(first) = self.next_page() else { return Ok(false) };
        let run = Arc::clone(&self.run);
        let chunk = run.index().chunks[run.index().chunk_of(first)];
        let start = chunk.first_page as usize;
        let mut needed = vec![first - start];
        loop {
            let (element, page) = (self.element, self.page);
            match self.next_page() {
                Some(next) if next < start + chunk.pages() => needed.push(next - start),
                _ => {
                    (self.element, self.page) = (element, page);
                    break;
                }
            }
        }
        self.pages = needed.iter().rev().copied().collect();
        self.chunk = Some(OpenChunk::open(&run.source(), chunk, needed)?);
        Ok(true)
    }
}

impl SortedRows for Scan {
    fn next_rows(&mut self) -> Result<Option<Columns>, Error> {
        loop {
            let Some((chunk, page)) = self.chunk.as_mut().zip(self.pages.pop()) else {
                if self.next_chunk()? {
                    continue;
                }
                return Ok(None);
            };
            let source = self.run.source();
            let entry = &self.run.index().pages[chunk.entry.first_page as usize + page];
            let elements = chunk.elements(&source, page, entry)?;
            // A page without the element costs its numbers; later rows are not decoded.
            let end = self.wanted.end_of_elements(&elements);
            if end == 0 {
                continue;
            }
            let times = chunk.times(&source, (page, entry), &elements, end)?;
            let rows = self.wanted.rows(&elements, &times);
            if !rows.is_empty() {
                let keys = Keys { elements, times };
                return Ok(Some(chunk.columns(&source, page, keys, &rows, &self.wanted.fields)?));
            }
        }
    }
}
