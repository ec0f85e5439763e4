//! Merges several sorted sources of rows into one: the newest row of each key, without removed
//! ones.

use std::sync::Arc;

use exacat_model::DirId;

use crate::defect::Defect;
use crate::memtable::Memtable;
use crate::page::Row;
use crate::run::{Cursor, Reading, Run};

/// Rows in order, positioned on one, unless it is at the end.
enum Source<'s> {
    Memory { rows: Box<dyn Iterator<Item = Result<Row<'s>, Defect>> + 's>, row: Option<Row<'s>> },
    Run { run: Arc<Run>, cursor: Box<Cursor> },
}

impl<'s> Source<'s> {
    fn memory(mut rows: impl Iterator<Item = Result<Row<'s>, Defect>> + 's) -> Result<Self, Defect> {
        let row = rows.next().transpose()?;
        Ok(Source::Memory { rows: Box::new(rows), row })
    }

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

    /// Says whether the current row notes a removal.
    fn is_gone(&self) -> Result<bool, Defect> {
        match self {
            Source::Memory { row, .. } => Ok(row.is_some_and(|row| row.is_gone())),
            Source::Run { run, cursor } => cursor.is_gone(run),
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

/// Several sources read as one.
pub(crate) struct Merged<'s> {
    /// Sources, the newest first.
    sources: Vec<Source<'s>>,
    /// Sources that are on a row, in the order of their keys; of one key the newest first.
    order: Vec<usize>,
    reading: Reading<'s>,
    /// Set once the row of the first source was returned.
    given: bool,
}

/// Start position: at this key, or after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From<'k> {
    pub directory: DirId,
    pub name: &'k [u8],
    pub after: bool,
}

impl From<'_> {
    /// The very start.
    pub(crate) const START: From<'static> = From { directory: DirId(0), name: b"", after: false };
}

impl<'s> Merged<'s> {
    /// Merges memtables, then runs, each the newest first.
    pub(crate) fn from(
        memtables: impl IntoIterator<Item = &'s Memtable>,
        runs: impl IntoIterator<Item = Arc<Run>>,
        from: From<'_>,
        reading: Reading<'s>,
    ) -> Result<Self, Defect> {
        let From { directory, name, after } = from;
        let memory =
            memtables.into_iter().map(|memtable| Source::memory(memtable.from(directory, name, after)));
        let runs = runs.into_iter().map(|run| {
            let cursor = Box::new(run.from(reading, directory, name, after)?);
            Ok(Source::Run { run, cursor })
        });
        Self::new(memory.chain(runs), reading)
    }

    /// Merges the rows of one directory only.
    pub(crate) fn within(
        memtables: impl IntoIterator<Item = &'s Memtable>,
        runs: &[Arc<Run>],
        from: From<'_>,
        reading: Reading<'s>,
    ) -> Result<Self, Defect> {
        let From { directory, name, after } = from;
        let memory = memtables
            .into_iter()
            .filter(|memtable| memtable.has_any(directory))
            .map(|memtable| Source::memory(memtable.within(directory, name, after)));
        let runs = runs.iter().filter(|run| run.may_have_any(directory)).map(|run| {
            let cursor = Box::new(run.within(reading, directory, name, after)?);
            Ok(Source::Run { run: Arc::clone(run), cursor })
        });
        Self::new(memory.chain(runs), reading)
    }

    fn new(
        all: impl Iterator<Item = Result<Source<'s>, Defect>>,
        reading: Reading<'s>,
    ) -> Result<Self, Defect> {
        let (mut sources, mut missing) = (Vec::new(), false);
        for source in all {
            match source {
                Ok(source) => sources.push(source),
                // Other sources may miss a page too, and one round notes all of them.
                Err(Defect::NotInMemory) => missing = true,
                Err(other) => return Err(other),
            }
        }
        if missing {
            return Err(Defect::NotInMemory);
        }
        let mut order: Vec<usize> =
            (0..sources.len()).filter(|index| sources[*index].key().is_some()).collect();
        order.sort_by_key(|index| (sources[*index].key(), *index));
        Ok(Merged { sources, order, reading, given: false })
    }

    /// Moves to the next key and returns its newest row, gone or not; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Row<'_>>, Defect> {
        if self.step()? { self.row() } else { Ok(None) }
    }

    /// Moves to the next key that is not gone.
    pub(crate) fn next_there(&mut self) -> Result<Option<Row<'_>>, Defect> {
        loop {
            if !self.step()? {
                return Ok(None);
            }
            let gone = self.order.first().map_or(Ok(false), |first| self.sources[*first].is_gone());
            if !gone? {
                return self.row();
            }
        }
    }

    /// Moves to the next key; false at the end.
    fn step(&mut self) -> Result<bool, Defect> {
        if std::mem::replace(&mut self.given, true) {
            self.pass()?;
        }
        Ok(!self.order.is_empty())
    }

    /// Returns the newest row of the current key.
    fn row(&self) -> Result<Option<Row<'_>>, Defect> {
        let row = self.order.first().map_or(Ok(None), |first| self.sources[*first].row())?;
        row.map(Some).ok_or_else(|| Defect::new("a source without its row"))
    }

    /// Returns the index of the current row's source in the given order, which includes exhausted
    /// ones.
    pub(crate) fn source(&self) -> Option<usize> {
        self.order.first().copied()
    }

    /// Moves all sources beyond the returned key.
    fn pass(&mut self) -> Result<(), Defect> {
        let Some(first) = self.order.first() else { return Ok(()) };
        let key = self.sources[*first].key();
        let others = self.order[1..].iter().take_while(|other| self.sources[**other].key() == key).count();
        for place in (0..=others).rev() {
            self.sources[self.order[place]].advance(self.reading)?;
            self.sift_down(place);
        }
        Ok(())
    }

    /// Restores the order after the source at this place moved. The sources behind it are in order.
    fn sift_down(&mut self, place: usize) {
        let moved = self.order[place];
        let Some(key) = self.sources[moved].key() else {
            self.order.remove(place);
            return;
        };
        let comes_before = |other: &usize| (self.sources[*other].key(), *other) < (Some(key), moved);
        // In most cases the source stays in place.
        if self.order.get(place + 1).is_some_and(comes_before) {
            let passed = self.order[place + 1..].partition_point(comes_before);
            self.order[place..=place + passed].rotate_left(1);
        }
    }
}
