//! Archived days of a group, as readers of the group need them.

use std::collections::BTreeMap;
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result};

use crate::archive::{ArchivedFile, NamedGroup};
use crate::owned_archive::OwnedArchive;
use crate::run::{Elements, Wanted};
use crate::sorted::SortedRows;

/// Archived days of a group.
#[derive(Clone, Default)]
pub(crate) struct ArchivedDays {
    pub days: BTreeMap<i32, Arc<[ArchivedFile]>>,
    /// Reads them; none if the history was opened without the archive.
    pub archive: Option<Arc<OwnedArchive>>,
}

impl ArchivedDays {
    /// Returns the sources of the wanted rows of some days.
    pub(crate) fn scan(
        &self,
        group: &Arc<dyn NamedGroup>,
        days: std::ops::RangeInclusive<i32>,
        wanted: &Wanted,
    ) -> Result<Vec<Box<dyn SortedRows>>> {
        let mut days = self.days.range(days).peekable();
        let Some((day, _)) = days.peek() else { return Ok(Vec::new()) };
        let Some(archive) = &self.archive else {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "day {day} since 1970 is in the archive of the history: serve with --history-archive"
                ),
            ));
        };
        archive.may_read()?;
        let scans = days.map(|(_, files)| archive.files().scan(group, files, wanted));
        // The days of one element follow each other, so one is open at a time.
        let is_one = matches!(&wanted.elements, Elements::Range(range) if range.start() == range.end());
        Ok(match is_one {
            true => vec![Box::new(Chain { sources: scans.rev().collect() })],
            false => scans.collect(),
        })
    }
}

/// Sources whose rows follow each other.
struct Chain {
    /// The last first.
    sources: Vec<Box<dyn SortedRows>>,
}

impl SortedRows for Chain {
    fn next_rows(&mut self) -> Result<Option<crate::columns::Columns>> {
        while let Some(source) = self.sources.last_mut() {
            if let Some(rows) = source.next_rows()? {
                return Ok(Some(rows));
            }
            self.sources.pop();
        }
        Ok(None)
    }
}
