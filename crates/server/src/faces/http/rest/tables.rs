//! Answers on elements as tables: CSV.

use exacat_history::History;
use exacat_model::{Answer, Error, ErrorKind, FieldType, Operation, Result};
use exacat_wire::element_csv::{
    head_of_aggregates, head_of_rows, head_of_values, put_aggregates, put_rows, put_values,
};

/// Content type of CSV.
pub(super) const CSV: &str = "text/csv";
/// Columns of a table, beside those of element and time.
const COLUMNS_MAX: usize = 1000;

/// Table of an answer.
pub(super) enum Table {
    /// Rows, with these fields and types.
    Rows(Vec<(String, FieldType)>),
    Values,
    Aggregates,
}

impl Table {
    /// Makes the table of an operation.
    pub(crate) fn of(operation: &Operation, history: &History) -> Result<Self> {
        match operation {
            Operation::ElementRows { of, fields, .. } => {
                let columns = history.group(&of.group)?.columns(fields);
                match columns.len() > COLUMNS_MAX {
                    true => Err(Error::limit("the number of columns of a table", columns.len(), COLUMNS_MAX)),
                    false => Ok(Table::Rows(columns)),
                }
            }
            Operation::ElementValues { .. } => Ok(Table::Values),
            Operation::ElementAggregates { .. } => Ok(Table::Aggregates),
            other => Err(Error::invalid(format!("{} has no answer with columns", other.name()))),
        }
    }

    /// Returns the header.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Table::Rows(columns) => head_of_rows(columns, &mut out),
            Table::Values => head_of_values(&mut out),
            Table::Aggregates => head_of_aggregates(&mut out),
        }
        out
    }

    /// Writes the lines of a page.
    pub(crate) fn put(&self, answer: &Answer, out: &mut Vec<u8>) -> Result<()> {
        match (self, answer) {
            (Table::Rows(columns), Answer::ElementRows { items, .. }) => {
                items.iter().for_each(|rows| put_rows(columns, rows, out));
            }
            (Table::Values, Answer::ElementValues { items, .. }) => {
                items.iter().for_each(|state| put_values(state, out));
            }
            (Table::Aggregates, Answer::ElementAggregates { items, .. }) => {
                items.iter().for_each(|one| put_aggregates(one, out));
            }
            _ => return Err(Error::new(ErrorKind::Internal, "an answer that does not fit the request")),
        }
        Ok(())
    }
}
