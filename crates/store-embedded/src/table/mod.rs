//! The table: all rows, the newest in memory, the others in runs, read as one.
//!
//! ```text
//!   put ─► active memtable ─ full ─► frozen ─ written ─► run of tier 0 ─┐
//!          (the writer's)            (read only)                        │ as many as fit together: merged
//!                                                 tier 1 ◄──────────────┘ into one of the next tier …
//! ```
//! A *version* is the runs of a moment, the newest first; it never changes, so whoever reads it is not disturbed, and
//! holds nobody up. A row in memory hides those of its key in runs, a run's those in older ones.

mod merge;
mod shelf;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use exacat_model::{DirId, Error, ErrorKind, Guid};

use crate::memtable::Memtable;
use crate::page::Row;
use crate::run::{Cache, Run, RunWriter};

pub(crate) use merge::{From, Merged};
pub(crate) use shelf::{Begun, Shelf};

/// The runs of a moment.
#[derive(Clone, Default)]
pub(crate) struct Version {
    /// The newest first.
    pub runs: Vec<Arc<Run>>,
}

/// All rows of a moment.
#[derive(Clone, Copy)]
pub(crate) struct View<'v> {
    /// The newest.
    pub active: &'v Memtable,
    /// Being written to runs, the newest first.
    pub frozen: &'v [Arc<Memtable>],
    pub version: &'v Version,
    pub cache: &'v Cache,
}

impl<'v> View<'v> {
    fn memtables(&self) -> impl Iterator<Item = &'v Memtable> + use<'v> {
        std::iter::once(self.active).chain(self.frozen.iter().map(|memtable| &**memtable))
    }

    /// Gives `take` the row of a name, or none if nothing is there.
    pub fn find<T>(
        &self,
        directory: DirId,
        name: &[u8],
        take: impl FnOnce(Option<&Row<'_>>) -> T,
    ) -> Result<T, Error> {
        for memtable in self.memtables() {
            if let Some(row) = memtable.find(directory, name).map_err(Error::from)? {
                return Ok(take((!row.is_gone()).then_some(&row)));
            }
        }
        for run in &self.version.runs {
            if let Some(found) = run.find(self.cache, directory, name)? {
                let row = found
                    .row(directory, name)
                    .map_err(|damaged| Error::new(ErrorKind::Corrupt, damaged.0))?;
                return Ok(take((!row.is_gone()).then_some(&row)));
            }
        }
        Ok(take(None))
    }

    /// Is anything there under this name?
    pub fn has(&self, directory: DirId, name: &[u8]) -> Result<bool, Error> {
        self.find(directory, name, |row| row.is_some())
    }

    /// The key of the row of a GUID; none if nothing has it.
    ///
    /// A memtable or a run says where a GUID once stood. It stands there still if the newest row of that name has it;
    /// otherwise it went elsewhere, as an other row of it says, or it is gone.
    pub fn find_guid(&self, guid: Guid) -> Result<Option<(DirId, Vec<u8>)>, Error> {
        let stands = |directory: DirId, name: &[u8]| {
            self.find(directory, name, |row| row.is_some_and(|row| row.guid() == Some(guid)))
        };
        for memtable in self.memtables() {
            if let Some(row) = memtable.find_guid(guid).map_err(Error::from)?
                && stands(row.parent, row.name)?
            {
                return Ok(Some((row.parent, row.name.to_vec())));
            }
        }
        for run in &self.version.runs {
            if let Some((directory, name, _)) = run.find_guid(self.cache, guid)?
                && stands(directory, &name)?
            {
                return Ok(Some((directory, name)));
            }
        }
        Ok(None)
    }

    /// All rows from a key on, in order.
    pub fn from(&self, from: From<'_>) -> Result<Merged<'v>, Error> {
        Merged::new(self.memtables(), self.version.runs.iter().map(Arc::clone), from, self.cache)
    }
}

/// Puts all rows of a frozen memtable into a run.
pub(crate) fn write_memtable(memtable: &Memtable, writer: RunWriter) -> Result<u64, Error> {
    let mut writer = writer;
    for row in memtable.from(DirId(0), b"", false) {
        writer.push(&row.map_err(Error::from)?).map_err(|error| cannot_write(&error))?;
    }
    writer.finish().map_err(|error| cannot_write(&error))
}

/// Puts the rows of runs, the newest first, into one: of each key the newest row. What is gone is told on only if there
/// are older runs `below` them that may have it. `go_on` is asked after every row; if it says no, nothing comes of it.
pub(crate) fn merge_runs(
    runs: &[Arc<Run>],
    below: bool,
    cache: &Cache,
    mut writer: RunWriter,
    mut go_on: impl FnMut(&RunWriter) -> bool,
) -> Result<Option<u64>, Error> {
    let none: [&Memtable; 0] = [];
    let mut merged = Merged::new(none, runs.iter().map(Arc::clone), From::START, cache)?;
    while let Some(row) = merged.next()? {
        if !row.is_gone() || below {
            writer.push(&row).map_err(|error| cannot_write(&error))?;
        }
        if !go_on(&writer) {
            return Ok(None);
        }
    }
    writer.finish().map(Some).map_err(|error| cannot_write(&error))
}

fn cannot_write(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot write a run: {error}"))
}
