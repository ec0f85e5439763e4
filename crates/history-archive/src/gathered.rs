//! Rows of an import, gathered by the key of their element until they are as many as one request has.

use std::collections::HashMap;

use exacat_model::element::{ElementColumn, ElementRows};
use exacat_model::{FieldValue, Measured};

/// Rows of one request.
pub const IMPORT_ROWS: usize = 10_000;
/// Bytes of keys, texts and values of one request, about.
pub const IMPORT_BYTES: usize = 2 << 20;

/// Rows of a file that one request takes, and those that none can have.
#[derive(Debug, Default)]
pub struct ImportedRows {
    /// Rows by element, as [`Operation::ElementWrite`](exacat_model::Operation::ElementWrite) takes them.
    pub rows: Vec<ElementRows>,
    /// Rows that cannot be written.
    pub refused: u64,
    /// The reason why the first of them cannot.
    pub reason: Option<String>,
}

/// Rows as they are gathered.
#[derive(Default)]
pub struct Gathered {
    places: HashMap<String, usize>,
    done: ImportedRows,
    count: usize,
    bytes: usize,
}

impl Gathered {
    /// Adds values of a row. A row of the same element and time that was added last goes on.
    pub fn add(&mut self, key: &str, time: i64, values: impl Iterator<Item = (impl AsRef<str>, FieldValue)>) {
        let place = match self.places.get(key) {
            Some(place) => *place,
            None => {
                self.bytes += 2 * key.len();
                let key = key.to_owned();
                self.places.insert(key.clone(), self.done.rows.len());
                let (name, times, columns) = (String::new(), Vec::new(), Vec::new());
                self.done.rows.push(ElementRows { key, name, times, columns });
                self.done.rows.len() - 1
            }
        };
        let rows = &mut self.done.rows[place];
        if rows.times.last() != Some(&time) {
            rows.times.push(time);
            self.count += 1;
            self.bytes += size_of::<i64>();
        }
        let row = rows.times.len() - 1;
        for (field, value) in values {
            let field = field.as_ref();
            let known = rows.columns.iter().position(|column| column.field == field);
            let column = known.unwrap_or_else(|| {
                self.bytes += field.len();
                rows.columns.push(ElementColumn { field: field.to_owned(), values: Vec::new() });
                rows.columns.len() - 1
            });
            self.bytes += value.bytes();
            let column = &mut rows.columns[column].values;
            column.resize(row + 1, None);
            column[row] = Some(value);
        }
    }

    pub(crate) fn refuse(&mut self, row: u64, reason: impl std::fmt::Display) {
        self.done.refused += 1;
        self.done.reason.get_or_insert_with(|| format!("row {row}: {reason}"));
    }

    /// Says whether the rows are as many as one request has.
    pub fn is_full(&self) -> bool {
        self.count >= IMPORT_ROWS || self.bytes >= IMPORT_BYTES
    }

    /// Takes the rows; none if there is nothing to tell.
    pub fn take(&mut self) -> Option<ImportedRows> {
        let Gathered { mut done, .. } = std::mem::take(self);
        for rows in &mut done.rows {
            let count = rows.times.len();
            rows.columns.iter_mut().for_each(|column| column.values.resize(count, None));
        }
        (!done.rows.is_empty() || done.refused > 0).then_some(done)
    }
}
