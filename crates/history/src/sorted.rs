//! Sources of sorted rows: the common form of runs, memtables and merges.

use std::cell::Cell;

use exacat_model::{Error, ErrorKind, FieldRef};

use crate::columns::Columns;
use crate::row::{MergedValues, RowRef, Shapes, merge_later};

/// Rows that a source hands on at once. As many as a page of a run has.
pub const BATCH_ROWS: usize = 4096;
/// Bytes of rows that a source hands on at once, about. Bounds the memory of large texts.
pub const BATCH_BYTES: usize = 4 << 20;

/// Rows in ascending order of element and time, each identity once.
pub trait SortedRows: Send {
    /// Returns the next rows, at least one; none at the end.
    fn next_rows(&mut self) -> Result<Option<Columns>, Error>;
}

/// Batches in memory.
impl SortedRows for std::vec::IntoIter<Columns> {
    fn next_rows(&mut self) -> Result<Option<Columns>, Error> {
        Ok(self.next())
    }
}

/// Rows in memory, as columns. The rows of one identity are adjacent, the earliest arrival first, and
/// become one row.
pub struct ByRow<'a, I: Iterator<Item = RowRef<'a>>, S: ?Sized> {
    rows: std::iter::Peekable<I>,
    shapes: &'a S,
}

impl<'a, I: Iterator<Item = RowRef<'a>>, S: Shapes + ?Sized> ByRow<'a, I, S> {
    /// Hands on rows in order. Their shapes are those of `shapes`.
    pub fn new(rows: impl IntoIterator<Item = RowRef<'a>, IntoIter = I>, shapes: &'a S) -> Self {
        ByRow { rows: rows.into_iter().peekable(), shapes }
    }
}

fn value_bytes(value: FieldRef<'_>) -> usize {
    if let FieldRef::Text(text) = value { 8 + text.len() } else { 8 }
}

impl<'a, I: Iterator<Item = RowRef<'a>> + Send, S: Shapes + Sync + ?Sized> SortedRows for ByRow<'a, I, S> {
    fn next_rows(&mut self) -> Result<Option<Columns>, Error> {
        let (shapes, bytes) = (self.shapes, &Cell::new(0));
        let values = |row: &RowRef<'a>| {
            let fields = shapes.fields(row.shape).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, format!("a row has the unknown shape {}", row.shape))
            })?;
            Ok::<_, Error>(row.values(fields).map(move |(field, value)| {
                bytes.set(bytes.get() + value_bytes(value));
                (field.number, value)
            }))
        };
        let mut batch = Columns::default();
        let mut merged = MergedValues::new();
        while batch.rows() < BATCH_ROWS && bytes.get() < BATCH_BYTES {
            let Some(row) = self.rows.next() else { break };
            let key = (row.element, row.time);
            let is_same = |next: &RowRef<'_>| (next.element, next.time) == key;
            match self.rows.next_if(is_same) {
                None => batch.push(key, values(&row)?)?,
                Some(later) => {
                    merged.clear();
                    merged.extend(values(&row)?);
                    merge_later(&mut merged, values(&later)?);
                    while let Some(later) = self.rows.next_if(is_same) {
                        merge_later(&mut merged, values(&later)?);
                    }
                    batch.push(key, merged.iter().copied())?;
                }
            }
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}
