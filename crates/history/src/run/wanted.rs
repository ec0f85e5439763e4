//! Rows and columns that a reader wants from a run.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::columns::ElementRows;
use crate::row::{ElementNumber, FieldNumber};

/// Elements that a reader wants.
#[derive(Clone, Debug)]
pub enum Elements {
    /// All.
    All,
    /// A range of numbers.
    Range(RangeInclusive<ElementNumber>),
    /// A set of numbers, in ascending order.
    Set(Arc<[ElementNumber]>),
}

impl Elements {
    /// Returns one element.
    pub fn one(element: ElementNumber) -> Self {
        Elements::Range(element..=element)
    }

    /// Returns those within a range.
    pub fn within(&self, range: RangeInclusive<ElementNumber>) -> Self {
        match self {
            Elements::All => Elements::Range(range),
            Elements::Range(own) => {
                Elements::Range(*own.start().max(range.start())..=*own.end().min(range.end()))
            }
            Elements::Set(set) => {
                let from = set.partition_point(|element| element < range.start());
                let to = set.partition_point(|element| element <= range.end());
                Elements::Set(set.get(from..to).unwrap_or_default().into())
            }
        }
    }

    /// Returns the first wanted element from `element` on.
    pub fn next_from(&self, element: ElementNumber) -> Option<ElementNumber> {
        match self {
            Elements::All => Some(element),
            Elements::Range(range) => {
                let next = element.max(*range.start());
                (next <= *range.end()).then_some(next)
            }
            Elements::Set(set) => set.get(set.partition_point(|wanted| *wanted < element)).copied(),
        }
    }
}

/// Fields that a reader wants.
#[derive(Clone, Debug)]
pub enum Fields {
    /// All.
    All,
    /// A set of numbers, in ascending order.
    Set(Arc<[FieldNumber]>),
}

impl Fields {
    /// Says whether a field is wanted.
    pub fn has(&self, field: FieldNumber) -> bool {
        match self {
            Fields::All => true,
            Fields::Set(set) => set.binary_search(&field).is_ok(),
        }
    }
}

/// Rows and columns that a reader wants. A row without any wanted field is returned as well: its time
/// says that something was written.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Elements.
    pub elements: Elements,
    /// Times, both ends included.
    pub times: RangeInclusive<i64>,
    /// Fields.
    pub fields: Fields,
}

impl Wanted {
    /// Returns everything.
    pub fn all() -> Self {
        Wanted { elements: Elements::All, times: i64::MIN..=i64::MAX, fields: Fields::All }
    }

    /// Returns the number of rows of a page up to the last one of a wanted element.
    pub(super) fn end_of_elements(&self, elements: &[ElementRows]) -> usize {
        let behind = match &self.elements {
            Elements::All => elements.len(),
            Elements::Range(range) => elements.partition_point(|of| of.element <= *range.end()),
            Elements::Set(set) => {
                let last = elements.iter().rposition(|of| set.binary_search(&of.element).is_ok());
                last.map_or(0, |last| last + 1)
            }
        };
        let last = behind.checked_sub(1).map(|last| elements[last]);
        let last = last.filter(|last| self.elements.next_from(last.element) == Some(last.element));
        last.map_or(0, |last| last.end as usize)
    }

    /// Returns the wanted rows of a page, as ascending ranges. `times` may end behind the last wanted
    /// element.
    pub fn rows(&self, elements: &[ElementRows], times: &[i64]) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let all_times = *self.times.start() == i64::MIN && *self.times.end() == i64::MAX;
        if all_times && matches!(self.elements, Elements::All) {
            ranges.push(0..times.len());
            return ranges;
        }
        let mut at = 0;
        while let Some(next) = elements.get(at) {
            match self.elements.next_from(next.element) {
                None => break,
                Some(wanted) if wanted > next.element => {
                    at += elements[at..].partition_point(|rows| rows.element < wanted);
                    continue;
                }
                Some(_) => {}
            }
            let (start, end) = (if at == 0 { 0 } else { elements[at - 1].end as usize }, next.end as usize);
            let of = &times[start..end];
            let range = match all_times {
                true => start..end,
                false => {
                    start + of.partition_point(|time| time < self.times.start())
                        ..start + of.partition_point(|time| time <= self.times.end())
                }
            };
            match ranges.last_mut() {
                _ if range.is_empty() => {}
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
            at += 1;
        }
        ranges
    }
}
