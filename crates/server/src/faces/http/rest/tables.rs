//! Answers on elements as tables: CSV, and rows as a stream of Arrow.

use exacat_history::History;
use exacat_history_archive::{ARROW_STREAM_TYPE, ArrowStream};
use exacat_model::element::ElementRows;
use exacat_model::{Answer, Error, ErrorKind, FieldType, Operation, Result};
use exacat_wire::element_csv::{
    head_of_aggregates, head_of_rows, head_of_values, put_aggregates, put_rows, put_values,
};

/// Content type of CSV.
pub(super) const CSV: &str = "text/csv";
/// Content type of a stream of Arrow.
pub(super) const ARROW: &str = ARROW_STREAM_TYPE;
/// Columns of a table, beside those of element and time.
const COLUMNS_MAX: usize = 1000;

/// Form of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableForm {
    Csv,
    Arrow,
}

impl TableForm {
    /// Returns the content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            TableForm::Csv => CSV,
            TableForm::Arrow => ARROW,
        }
    }
}

/// Table of an answer.
pub(super) enum Table {
    /// Rows as CSV, with these fields and types.
    Rows(Vec<(String, FieldType)>),
    Values,
    Aggregates,
    /// Rows as Arrow.
    Arrow(Box<ArrowStream>),
}

impl Table {
    /// Begins the table of an operation. Returns it, and its first bytes.
    pub(crate) fn begin(
        operation: &Operation,
        history: &History,
        form: TableForm,
    ) -> Result<(Self, Vec<u8>)> {
        let mut head = Vec::new();
        let table = match (operation, form) {
            (Operation::ElementRows { of, fields, .. }, _) => {
                let columns = history.group(&of.group)?.row_fields(&of.pattern, fields)?;
                if columns.len() > COLUMNS_MAX {
                    return Err(Error::limit("the number of columns of a table", columns.len(), COLUMNS_MAX));
                }
                if form == TableForm::Arrow {
                    let (stream, head) = ArrowStream::new(&columns)?;
                    return Ok((Table::Arrow(Box::new(stream)), head));
                }
                head_of_rows(&columns, &mut head);
                Table::Rows(columns)
            }
            (Operation::ElementValues { .. }, TableForm::Csv) => {
                head_of_values(&mut head);
                Table::Values
            }
            (Operation::ElementAggregates { .. }, TableForm::Csv) => {
                head_of_aggregates(&mut head);
                Table::Aggregates
            }
            (other, _) => {
                let what = format!("{} does not come as {}: ask for JSON", other.name(), form.content_type());
                return Err(Error::invalid(what));
            }
        };
        Ok((table, head))
    }

    /// Appends the rows of a page.
    pub(crate) fn put(&mut self, answer: &Answer, out: &mut Vec<u8>) -> Result<()> {
        match (self, answer) {
            (Table::Rows(columns), Answer::ElementRows { items, .. }) => {
                items.iter().for_each(|rows: &ElementRows| put_rows(columns, rows, out));
            }
            (Table::Values, Answer::ElementValues { items, .. }) => {
                items.iter().for_each(|state| put_values(state, out));
            }
            (Table::Aggregates, Answer::ElementAggregates { items, .. }) => {
                items.iter().for_each(|one| put_aggregates(one, out));
            }
            (Table::Arrow(stream), Answer::ElementRows { items, .. }) => out.extend(stream.batch(items)?),
            _ => return Err(Error::new(ErrorKind::Internal, "an answer that does not fit the request")),
        }
        Ok(())
    }

    /// Returns the last bytes.
    pub(crate) fn end(self) -> Result<Vec<u8>> {
        match self {
            Table::Arrow(stream) => stream.end(),
            Table::Rows(_) | Table::Values | Table::Aggregates => Ok(Vec::new()),
        }
    }
}
