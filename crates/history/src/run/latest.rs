//! The latest rows of elements before an instant.

use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

use exacat_model::Error;

use super::open::OpenChunk;
use super::reader::Run;
use super::wanted::Fields;
use crate::columns::Columns;
use crate::row::ElementNumber;

/// Reader of the latest rows of elements. It keeps the last page: elements in ascending order cost each
/// page once.
pub struct Latest {
    run: Arc<Run>,
    fields: Fields,
    /// Number of the open chunk, and the chunk.
    chunk: Option<(usize, OpenChunk)>,
    /// Number of the last page, and its rows.
    page: Option<(usize, Columns)>,
}

impl Run {
    /// Begins a reader of the latest rows with these fields.
    pub fn latest(self: &Arc<Self>, fields: Fields) -> Latest {
        Latest { run: Arc::clone(self), fields, chunk: None, page: None }
    }
}

impl Latest {
    /// Returns the row of an element with the largest time up to `time` that has one of the wanted
    /// fields, with these fields. With [`Fields::All`] any row counts.
    pub fn before(&mut self, element: ElementNumber, time: i64) -> Result<Option<Columns>, Error> {
        let run = Arc::clone(&self.run);
        let pages = &run.index().pages;
        let mut behind = pages.partition_point(|page| page.first <= (element, time));
        while let Some(number) = behind.checked_sub(1) {
            behind = number;
            let page = &pages[number];
            if page.last.0 < element {
                return Ok(None);
            }
            let all = matches!(self.fields, Fields::All);
            let rows = self.page(number)?;
            let start = rows.find(0, (element, i64::MIN));
            let mut end = rows.find(start, (element, time));
            end += usize::from(end < rows.rows() && rows.key(end) == (element, time));
            let last = if all { (start..end).last() } else { last_with_value(rows, &(start..end)) };
            if let Some(row) = last {
                let mut found = Columns::default();
                found.append(rows, row..row + 1)?;
                return Ok(Some(found));
            }
            if page.first.0 < element {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Returns all rows of a page.
    fn page(&mut self, number: usize) -> Result<&Columns, Error> {
        let rows = match self.page.take() {
            Some((last, rows)) if last == number => rows,
            _ => {
                let (run, source) = (&self.run, self.run.source());
                let chunk = run.index().chunk_of(number);
                let entry = run.index().chunks[chunk];
                let mut open = match self.chunk.take() {
                    Some((last, open)) if last == chunk => open,
                    _ => OpenChunk::open(&source, entry, Vec::new())?,
                };
                let page = number - entry.first_page as usize;
                let keys = open.keys(&source, page, &run.index().pages[number])?;
                let all = 0..keys.times.len();
                let rows = open.columns(&source, page, keys, from_ref(&all), &self.fields)?;
                self.chunk = Some((chunk, open));
                rows
            }
        };
        Ok(&self.page.insert((number, rows)).1)
    }
}

/// Returns the last of some rows that has a value.
fn last_with_value(rows: &Columns, range: &Range<usize>) -> Option<usize> {
    let last = rows.columns().iter().filter_map(|column| {
        let place = column.places(range).last()?;
        Some(column.rows.as_ref().map_or(place, |rows| rows[place] as usize))
    });
    last.max()
}
