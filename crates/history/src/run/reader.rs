//! A run, open for reading: the latest row before an instant.

use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

use exacat_disk::{DiskFile, corrupt};
use exacat_model::{Error, FieldType};

use super::index::{ChunkEntry, Index, PageEntry, RunHead, RunSummary, read_index};
use super::open::{OpenChunk, Source};
use super::wanted::Fields;
use crate::columns::Columns;
use crate::row::{ElementNumber, FieldNumber};

/// A complete run, open for reading.
pub struct Run {
    /// Name for errors.
    name: String,
    file: Arc<dyn DiskFile>,
    head: RunHead,
    summary: RunSummary,
    index: Index,
}

impl Run {
    /// Opens a run of this group and day: reads its header, index and footer, and checks them.
    pub fn open(name: &str, file: Arc<dyn DiskFile>, group: u32, day: i32) -> Result<Self, Error> {
        let (head, summary, index) = read_index(name, &*file)?;
        if (head.group, head.day) != (group, day) {
            let what = format!("it is a run of group {} and day {}", head.group, head.day);
            return Err(corrupt(name, 0, format!("{what}, not of group {group} and day {day}")));
        }
        Ok(Run { name: name.to_owned(), file, head, summary, index })
    }

    /// Returns its identity.
    pub fn head(&self) -> RunHead {
        self.head
    }

    /// Returns its content in numbers.
    pub fn summary(&self) -> &RunSummary {
        &self.summary
    }

    /// Returns the type of a field; none if no row has it.
    pub fn kind(&self, field: FieldNumber) -> Option<FieldType> {
        self.index.kind(field)
    }

    /// Returns the bytes that the index takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val::<[ChunkEntry]>(&self.index.chunks)
            + size_of_val::<[PageEntry]>(&self.index.pages)
            + size_of_val(self.index.fields.as_slice())
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source { name: &self.name, file: &*self.file, salt: self.head.salt }
    }

    /// Returns the row of an element with the largest time up to `time` that has one of the wanted
    /// fields, with these fields. With [`Fields::All`] any row counts.
    pub fn latest(
        &self,
        element: ElementNumber,
        time: i64,
        fields: &Fields,
    ) -> Result<Option<Columns>, Error> {
        let mut page = self.index.pages.partition_point(|page| page.first <= (element, time));
        while let Some(number) = page.checked_sub(1) {
            page = number;
            let entry = &self.index.pages[number];
            if entry.last.0 < element {
                return Ok(None);
            }
            let chunk = self.index.chunks[self.index.chunk_of(number)];
            let inside = number - chunk.first_page as usize;
            let source = self.source();
            let mut open = OpenChunk::open(&source, chunk, vec![inside])?;
            let keys = open.keys(&source, inside, entry)?;
            let at = keys.elements.partition_point(|rows| rows.element < element);
            let Some(rows) = keys.elements.get(at).filter(|rows| rows.element == element) else {
                return Ok(None);
            };
            let start = if at == 0 { 0 } else { keys.elements[at - 1].end as usize };
            let of = &keys.times[start..rows.end as usize];
            let end = start + of.partition_point(|of| *of <= time);
            let found = match fields {
                Fields::All if start < end => {
                    Some(open.columns(&source, inside, keys, &[last_of(start..end)], fields)?)
                }
                Fields::All => None,
                Fields::Set(_) if start == end => None,
                Fields::Set(_) => {
                    last_with_value(open.columns(&source, inside, keys, from_ref(&(start..end)), fields)?)?
                }
            };
            if found.is_some() || entry.first.0 < element {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

fn last_of(rows: Range<usize>) -> Range<usize> {
    rows.end - 1..rows.end
}

/// Returns the last row that has a value.
fn last_with_value(rows: Columns) -> Result<Option<Columns>, Error> {
    let last = rows.columns().iter().filter_map(|column| match &column.rows {
        None => rows.rows().checked_sub(1),
        Some(of) => of.last().map(|row| *row as usize),
    });
    let Some(last) = last.max() else { return Ok(None) };
    let mut found = Columns::default();
    found.append(&rows, last..last + 1)?;
    Ok(Some(found))
}
