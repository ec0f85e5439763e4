//! Merges sources of sorted rows into one, field by field: where several sources have a row of one
//! element and time, the newest source that has a field decides it.
//!
//! Batches of sources that do not overlap pass through as they are. Otherwise stretches of rows are copied
//! column by column, and only rows of one identity are merged value by value.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use exacat_model::Error;
use smallvec::SmallVec;

use crate::columns::{Columns, RowKey, near};
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
    /// Place of that row's element in the batch.
    element: usize,
    /// Bytes of a row of the batch, on average.
    row_bytes: usize,
}

impl Input<'_> {
    /// Moves to a later row of the batch, or to the next batch.
    fn go_to(&mut self, row: usize) -> Result<(), Error> {
        self.at = row;
        self.element += near(&self.batch.elements()[self.element..], |of| of.end as usize <= row);
        if row == self.batch.rows() {
            (self.batch, self.at, self.element) = (self.source.next_rows()?.unwrap_or_default(), 0, 0);
            self.row_bytes = 1 + self.batch.bytes() / self.batch.rows().max(1);
        }
        Ok(())
    }
}

/// Rows of several sources, each identity once.
pub struct Merge<'s> {
    /// The newest first.
    inputs: Vec<Input<'s>>,
    /// Identity of the next row of each input that has one, and the input; the smallest is on top, and of
    /// the same identity the newest.
    order: BinaryHeap<Reverse<(RowKey, usize)>>,
    begun: bool,
}

impl<'s> Merge<'s> {
    /// Merges sources, the newest first.
    pub fn new(sources: impl IntoIterator<Item = Box<dyn SortedRows + 's>>) -> Self {
        let input = |source| Input { source, batch: Columns::default(), at: 0, element: 0, row_bytes: 0 };
        Merge { inputs: sources.into_iter().map(input).collect(), order: BinaryHeap::new(), begun: false }
    }

    /// Moves an input to a later row of its batch, or to its next batch, and puts it in order.
    fn go_to(&mut self, number: usize, row: usize) -> Result<(), Error> {
        let input = &mut self.inputs[number];
        input.go_to(row)?;
        if let Some(of) = input.batch.elements().get(input.element) {
            self.order.push(Reverse(((of.element, input.batch.times()[input.at]), number)));
        }
        Ok(())
    }

    /// Takes the inputs with the smallest identity from the order, the newest first.
    fn take_smallest(&mut self) -> Option<(RowKey, SmallVec<[usize; 4]>)> {
        let Reverse((key, number)) = self.order.pop()?;
        let mut numbers = SmallVec::from_slice(&[number]);
        while let Some(Reverse((_, number))) = self.order.peek().filter(|next| next.0.0 == key) {
            numbers.push(*number);
            self.order.pop();
        }
        Some((key, numbers))
    }
}

impl SortedRows for Merge<'_> {
    fn next_rows(&mut self) -> Result<Option<Columns>, Error> {
        if !self.begun {
            self.begun = true;
            for number in 0..self.inputs.len() {
                self.go_to(number, 0)?;
            }
        }
        let (mut out, mut bytes) = (Columns::default(), 0);
        while out.rows() < BATCH_ROWS && bytes < BATCH_BYTES {
            let Some((key, numbers)) = self.take_smallest() else { break };
            if let [number] = numbers[..] {
                let input = &mut self.inputs[number];
                let rows = input.batch.rows();
                let end = self
                    .order
                    .peek()
                    .map_or(rows, |Reverse((next, _))| input.batch.find_behind(input.element, *next));
                if input.at == 0 && end == rows && (out.is_empty() || rows >= WORTH_HANDING_ON) {
                    if out.is_empty() {
                        (out, input.element) = (std::mem::take(&mut input.batch), 0);
                        self.go_to(number, 0)?;
                    } else {
                        self.order.push(Reverse((key, number)));
                    }
                    break;
                }
                bytes += input.row_bytes * (end - input.at);
                out.append(&input.batch, input.at..end)?;
                self.go_to(number, end)?;
                continue;
            }
            let mut merged = MergedValues::new();
            for input in numbers.iter().rev().map(|number| &self.inputs[*number]) {
                merge_later(&mut merged, input.batch.row(input.at));
                bytes += input.row_bytes;
            }
            out.push(key, merged)?;
            for number in numbers {
                self.go_to(number, self.inputs[number].at + 1)?;
            }
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
