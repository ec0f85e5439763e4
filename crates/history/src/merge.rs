//! Merges sources of sorted rows into one, field by field: where several sources have a row of one
//! element and time, the newest source that has a field decides it.
//!
//! Where sources do not overlap, batches pass through as they are. Where they do, stretches of rows are
//! copied column by column, and only rows of one identity are merged value by value.

use exacat_model::Error;

use crate::columns::{Columns, RowKey};
use crate::row::{MergedValues, merge_later};
use crate::sorted::{BATCH_BYTES, BATCH_ROWS, SortedRows};

/// Rows at the start of a batch that are rather handed on alone than copied.
const WORTH_HANDING_ON: usize = 1024;

/// A source, and its batch in progress.
struct Input<'s> {
    source: Box<dyn SortedRows + 's>,
    batch: Columns,
    /// Next row of the batch.
    at: usize,
    /// Identity of the next row; none at the end.
    key: Option<RowKey>,
    /// Bytes of a row of the batch, on average.
    row_bytes: usize,
}

impl Input<'_> {
    /// Moves to a later row of the batch, or to the next batch.
    fn go_to(&mut self, row: usize) -> Result<(), Error> {
        self.at = row;
        if row == self.batch.rows() {
            (self.batch, self.at) = (self.source.next_rows()?.unwrap_or_default(), 0);
            self.row_bytes = 1 + self.batch.bytes() / self.batch.rows().max(1);
        }
        self.key = (self.at < self.batch.rows()).then(|| self.batch.key(self.at));
        Ok(())
    }
}

/// Rows of several sources, each identity once.
pub struct Merge<'s> {
    /// The newest first.
    inputs: Vec<Input<'s>>,
    begun: bool,
}

impl<'s> Merge<'s> {
    /// Merges sources, the newest first.
    pub fn new(sources: impl IntoIterator<Item = Box<dyn SortedRows + 's>>) -> Self {
        let input = |source| Input { source, batch: Columns::default(), at: 0, key: None, row_bytes: 0 };
        Merge { inputs: sources.into_iter().map(input).collect(), begun: false }
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.begun = true;
        for input in &mut self.inputs {
            input.go_to(0)?;
        }
        Ok(())
    }

    /// Returns the newest source with the smallest key, and the smallest key of the other sources.
    fn smallest(&self) -> Option<(usize, Option<RowKey>)> {
        let mut found: Option<(usize, RowKey)> = None;
        let mut next: Option<RowKey> = None;
        for (number, input) in self.inputs.iter().enumerate() {
            let Some(key) = input.key else { continue };
            match found {
                Some((_, smallest)) if smallest <= key => next = Some(next.map_or(key, |next| next.min(key))),
                _ => {
                    next = found.map(|(_, key)| key);
                    found = Some((number, key));
                }
            }
        }
        found.map(|(number, _)| (number, next))
    }

    /// Appends the next row, which several sources have, and moves behind it.
    fn merge_row(&mut self, key: RowKey, out: &mut Columns) -> Result<usize, Error> {
        let has = |input: &&Input<'_>| input.key == Some(key);
        let mut merged = MergedValues::new();
        for input in self.inputs.iter().rev().filter(has) {
            merge_later(&mut merged, input.batch.row(input.at));
        }
        out.push(key, merged)?;
        let mut bytes = 0;
        for input in self.inputs.iter_mut().filter(|input| input.key == Some(key)) {
            bytes += input.row_bytes;
            input.go_to(input.at + 1)?;
        }
        Ok(bytes)
    }
}

impl SortedRows for Merge<'_> {
    fn next_rows(&mut self) -> Result<Option<Columns>, Error> {
        if !self.begun {
            self.begin()?;
        }
        let (mut out, mut bytes) = (Columns::default(), 0);
        while out.rows() < BATCH_ROWS && bytes < BATCH_BYTES {
            let Some((number, next)) = self.smallest() else { break };
            let input = &mut self.inputs[number];
            if let (Some(key), true) = (input.key, input.key == next) {
                bytes += self.merge_row(key, &mut out)?;
                continue;
            }
            let rows = input.batch.rows();
            let end = next.map_or(rows, |next| input.batch.find(input.at, next));
            if input.at == 0 && end == rows && (out.is_empty() || rows >= WORTH_HANDING_ON) {
                if out.is_empty() {
                    out = std::mem::take(&mut input.batch);
                    input.go_to(0)?;
                }
                break;
            }
            bytes += input.row_bytes * (end - input.at);
            out.append(&input.batch, input.at..end)?;
            input.go_to(end)?;
        }
        Ok((!out.is_empty()).then_some(out))
    }
}

/// Returns the latest row of an element among those that its sources have, the newest source first.
/// Rows of the same time are merged.
pub fn latest_row(rows: Vec<Columns>) -> Result<Option<Columns>, Error> {
    let Some(latest) = rows.iter().filter_map(Columns::last).max() else { return Ok(None) };
    let of_that_time = rows.into_iter().filter(|row| row.last() == Some(latest));
    let sources = of_that_time.map(|row| Box::new(vec![row].into_iter()) as Box<dyn SortedRows>);
    Merge::new(sources).next_rows()
}

#[cfg(test)]
mod tests;
