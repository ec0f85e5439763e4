//! Several sorted sources of rows as one: of rows of one key the newest, and nothing of what is gone.

use std::sync::Arc;

use exacat_model::DirId;

use crate::defect::Defect;
use crate::memtable::Memtable;
use crate::page::Row;
use crate::run::{Cursor, Reading, Run};

/// Rows in order. It stands on one, unless it is at its end.
enum Source<'s> {
    Memory { rows: Box<dyn Iterator<Item = Result<Row<'s>, Defect>> + 's>, row: Option<Row<'s>> },
    Run { run: Arc<Run>, cursor: Box<Cursor> },
}

impl Source<'_> {
    fn key(&self) -> Option<(DirId, &[u8])> {
        match self {
            Source::Memory { row, .. } => row.as_ref().map(|row| (row.parent, row.name)),
            Source::Run { cursor, .. } => cursor.key(),
        }
    }

    fn row(&self) -> Result<Option<Row<'_>>, Defect> {
        match self {
            Source::Memory { row, .. } => Ok(*row),
            Source::Run { run, cursor } => cursor.row(run),
        }
    }

    fn advance(&mut self, reading: Reading<'_>) -> Result<(), Defect> {
        match self {
            Source::Memory { rows, row } => *row = rows.next().transpose()?,
            Source::Run { run, cursor } => drop(cursor.advance(run, reading)?),
        }
        Ok(())
    }
}

/// Sources read as one.
pub(crate) struct Merged<'s> {
    /// The newest first.
    sources: Vec<Source<'s>>,
    reading: Reading<'s>,
    /// The source whose row is given now.
    current: Option<usize>,
}

/// Where to begin: at this key, or after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From<'k> {
    pub directory: DirId,
    pub name: &'k [u8],
    pub after: bool,
}

impl From<'_> {
    /// At the very start.
    pub const START: From<'static> = From { directory: DirId(0), name: b"", after: false };
}

impl<'s> Merged<'s> {
    /// Memtables, then runs, each the newest first.
    pub fn new(
        memtables: impl IntoIterator<Item = &'s Memtable>,
        runs: impl IntoIterator<Item = Arc<Run>>,
        from: From<'_>,
        reading: Reading<'s>,
    ) -> Result<Self, Defect> {
        let mut sources = Vec::new();
        for memtable in memtables {
            let mut rows = Box::new(memtable.from(from.directory, from.name, from.after));
            let row = rows.next().transpose()?;
            sources.push(Source::Memory { rows, row });
        }
        let mut missing = false;
        for run in runs {
            match run.from(reading, from.directory, from.name, from.after) {
                Ok(cursor) => sources.push(Source::Run { run, cursor: Box::new(cursor) }),
                // The others may miss a page too: all are noted at once.
                Err(Defect::NotInMemory) => missing = true,
                Err(other) => return Err(other),
            }
        }
        if missing {
            return Err(Defect::NotInMemory);
        }
        Ok(Merged { sources, reading, current: None })
    }

    /// Goes to the next key and gives its newest row, gone or not; none at the end.
    pub fn next(&mut self) -> Result<Option<Row<'_>>, Defect> {
        self.pass()?;
        let mut least: Option<(usize, (DirId, &[u8]))> = None;
        for (index, source) in self.sources.iter().enumerate() {
            if let Some(key) = source.key()
                && least.is_none_or(|(_, other)| key < other)
            {
                least = Some((index, key));
            }
        }
        self.current = least.map(|(index, _)| index);
        match self.current {
            None => Ok(None),
            Some(index) => {
                let row = self.sources[index].row()?;
                row.map(Some).ok_or_else(|| Defect::new("a source without its row"))
            }
        }
    }

    /// Goes on to the next key that is not gone.
    pub fn next_there(&mut self) -> Result<Option<Row<'_>>, Defect> {
        loop {
            match self.next()? {
                None => return Ok(None),
                Some(row) if row.is_gone() => {}
                Some(_) => break,
            }
        }
        match self.current {
            None => Ok(None),
            Some(index) => self.sources[index].row(),
        }
    }

    /// All sources leave the key that was given.
    fn pass(&mut self) -> Result<(), Defect> {
        let Some(current) = self.current.take() else { return Ok(()) };
        // Sources before it have later keys: it was the first with the least.
        for index in (current + 1..self.sources.len()).rev() {
            if self.sources[index].key() == self.sources[current].key() {
                self.sources[index].advance(self.reading)?;
            }
        }
        self.sources[current].advance(self.reading)
    }
}
