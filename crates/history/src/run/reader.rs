//! A run, open for reading.

use std::sync::Arc;

use exacat_disk::{DiskFile, corrupt};
use exacat_model::{Error, FieldType};

use super::index::{ChunkEntry, Index, PageEntry, RunHead, RunSummary, read_index};
use super::open::Source;
use super::wanted::Wanted;
use crate::row::FieldNumber;

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

    /// Says whether a wanted row may be in it, by its smallest and largest element and time.
    pub fn may_have(&self, wanted: &Wanted) -> bool {
        let (elements, times) = (self.summary.element_range, self.summary.time_range);
        let element = wanted.elements.next_from(elements.0);
        element.is_some_and(|element| element <= elements.1)
            && times.0 <= *wanted.times.end()
            && times.1 >= *wanted.times.start()
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

    /// Returns its name in errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source { name: &self.name, file: &*self.file, salt: self.head.salt }
    }
}
