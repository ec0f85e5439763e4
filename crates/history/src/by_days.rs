//! Reads many days in bounded memory.
//!
//! A merge of all sources at once holds a page of each: years of days do not fit. [`ByDays`] reads the days
//! in windows of a few sources, one window after the other, for one block of elements at a time.
//! It holds the rows of that block, and adapts the block to their number. An element with more rows than
//! may be held has its windows handed on as they are read: they follow each other in time.

use std::ops::RangeInclusive;

use exacat_model::Result;

use crate::columns::Columns;
use crate::row::ElementNumber;
use crate::run::{Elements, Wanted};
use crate::sorted::SortedRows;

/// Sources that one merge reads at a time.
pub(crate) const SOURCES_MAX: usize = 64;
/// Rows of a block of elements that are held.
pub(crate) const HELD_ROWS_MAX: usize = 500_000;
/// Bytes of these rows: texts may be long.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Elements of the first block: most readers want few rows.
const FIRST_BLOCK: u32 = 16;

/// Opens the wanted rows of a window.
pub(crate) type OpenWindow = Box<dyn Fn(&Wanted) -> Result<Box<dyn SortedRows>> + Send>;

/// Rows of many days: see the module.
pub(crate) struct ByDays {
    open: OpenWindow,
    wanted: Wanted,
    /// Times of the windows, ascending, without gaps.
    windows: Vec<RangeInclusive<i64>>,
    /// Most rows that are held.
    held_max: usize,
    /// Elements of the next block.
    block: u32,
    /// Element that the next block begins with; none at the end.
    next: Option<ElementNumber>,
    /// Number of elements: those that came later have no rows of these windows that a reader must see.
    elements: ElementNumber,
    /// The element whose rows are not held, and the number of its next window.
    alone: Option<(ElementNumber, usize)>,
    /// Rows of that element in its present window.
    scan: Option<Box<dyn SortedRows>>,
}

impl ByDays {
    pub(crate) fn new(
        open: OpenWindow,
        wanted: Wanted,
        windows: Vec<RangeInclusive<i64>>,
        elements: ElementNumber,
        held_max: usize,
    ) -> Self {
        let block = FIRST_BLOCK;
        ByDays { open, wanted, windows, held_max, block, next: Some(0), elements, alone: None, scan: None }
    }

    /// Opens a window for some elements.
    fn window(&self, window: &RangeInclusive<i64>, elements: Elements) -> Result<Box<dyn SortedRows>> {
        (self.open)(&Wanted { elements, times: window.clone(), fields: self.wanted.fields.clone() })
    }

    /// Returns the next rows of the element that is read alone; none at its end.
    fn next_alone(&mut self, element: ElementNumber) -> Result<Option<Columns>> {
        loop {
            if let Some(scan) = &mut self.scan {
                if let Some(rows) = scan.next_rows()? {
                    return Ok(Some(rows));
                }
                self.scan = None;
            }
            let Some((_, window)) = &mut self.alone else { return Ok(None) };
            let Some(times) = self.windows.get(*window).cloned() else {
                self.alone = None;
                return Ok(None);
            };
            *window += 1;
            self.scan = Some(self.window(&times, Elements::one(element))?);
        }
    }

    /// Reads a block of elements; none if it has more rows than may be held.
    fn held(&self, elements: &Elements) -> Result<Option<Columns>> {
        let (mut parts, mut rows, mut bytes) = (Vec::new(), 0, 0);
        for window in &self.windows {
            let (mut scan, mut part) = (self.window(window, elements.clone())?, Columns::default());
            while let Some(batch) = scan.next_rows()? {
                rows += batch.rows();
                bytes += batch.bytes();
                if rows > self.held_max || bytes > HELD_BYTES_MAX {
                    return Ok(None);
                }
                part.append(&batch, 0..batch.rows())?;
            }
            if !part.is_empty() {
                parts.push((part, 0));
            }
        }
        if let [(_, _)] = parts.as_slice() {
            return Ok(parts.pop().map(|(part, _)| part));
        }
        // Element after element, and of each the windows in their order.
        let mut all = Columns::default();
        let of = |(part, at): &(Columns, usize)| part.elements().get(*at).map(|rows| rows.element);
        while let Some(element) = parts.iter().filter_map(of).min() {
            for (part, at) in &mut parts {
                let Some(rows) = part.elements().get(*at).filter(|rows| rows.element == element) else {
                    continue;
                };
                let begin = if *at == 0 { 0 } else { part.elements()[*at - 1].end as usize };
                let end = rows.end as usize;
                all.append(part, begin..end)?;
                *at += 1;
            }
        }
        Ok(Some(all))
    }
}

impl SortedRows for ByDays {
    fn next_rows(&mut self) -> Result<Option<Columns>> {
        loop {
            if let Some((element, _)) = self.alone {
                if let Some(rows) = self.next_alone(element)? {
                    return Ok(Some(rows));
                }
                // The next one may have few rows again.
                self.block = 2;
            }
            let first = self.next.and_then(|next| self.wanted.elements.next_from(next));
            let Some(first) = first.filter(|first| *first < self.elements) else { return Ok(None) };
            if self.block == 1 {
                (self.alone, self.next) = (Some((first, 0)), first.checked_add(1));
                continue;
            }
            let last = first.saturating_add(self.block - 1);
            let Some(rows) = self.held(&self.wanted.elements.within(first..=last))? else {
                self.block = (self.block / 8).max(1);
                continue;
            };
            self.next = last.checked_add(1);
            if rows.rows() < self.held_max / 8 {
                self.block = self.block.saturating_mul(4);
            }
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
        }
    }
}
