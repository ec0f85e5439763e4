//! Columns of names: the distinct ones, and runs of their numbers.

use std::ops::Range;

use exacat_columnar::{Chunk, TextRuns};
use exacat_history::distinct_texts::DistinctTexts;
use exacat_model::Result;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnDescPtr;

use crate::schema::internal;

/// Texts of records.
#[derive(Default)]
pub(crate) struct RepeatedTexts {
    distinct: DistinctTexts,
    runs: TextRuns,
}

impl RepeatedTexts {
    /// Returns the number of a text, and adds it if it is new.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        self.distinct.number(text)
    }

    /// Adds a text that is new, and returns its number.
    pub(crate) fn add(&mut self, text: &str) -> u32 {
        self.distinct.add(text)
    }

    /// Adds records with one text, or with none.
    pub(crate) fn extend(&mut self, number: Option<u32>, count: usize) {
        self.runs.extend(number, count);
    }

    /// Removes all texts and records, and keeps the memory for further ones.
    pub(crate) fn clear(&mut self) {
        self.distinct.clear();
        self.runs.clear();
    }

    /// Returns the column of some records.
    pub(crate) fn chunk(
        &self,
        column: &ColumnDescPtr,
        properties: &WriterProperties,
        records: Range<usize>,
    ) -> Result<Chunk> {
        let (text, distinct) = (|number| self.distinct.get(number), self.distinct.len());
        self.runs.chunk((text, distinct), column, properties, records).map_err(|error| internal(&error))
    }
}
