//! Answers of queries, in the layouts of InfluxDB 1.8.
//!
//! JSON and CSV differ in values that no number of JSON is: NaN and the infinities, which InfluxDB cannot
//! store and exacat keeps. JSON has `null` for them, CSV `NaN`, `+Inf` and `-Inf`. An error of a statement
//! is a table of its own in CSV; InfluxDB leaves it out.

use std::io::Write as _;

use exacat_model::FieldRef;

use super::layout::Layout;
use super::precision::Precision;
use super::series::push_tag;

/// Layout of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`
    Json {
        /// Indented, on many lines.
        is_pretty: bool,
    },
    /// `application/csv` and `text/csv`
    Csv,
}

/// Value in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Nothing.
    Null,
    /// Nanoseconds since 1970.
    Time(i64),
    /// Value of a field, or the text of a tag.
    Value(FieldRef<'a>),
}

/// Writes the answer of a query: results, each with series, each with rows. The caller calls in this order:
/// for each statement [`begin_result`](Self::begin_result), its series, and [`end_result`](Self::end_result);
/// for each series [`begin_series`](Self::begin_series), its rows, and [`end_series`](Self::end_series).
#[derive(Debug)]
pub struct AnswerWriter {
    layout: Layout,
    format: Format,
    epoch: Option<Precision>,
    /// True in a result that has a series, or in a series that has a row.
    has_items: bool,
    /// CSV: columns of the table that goes on; none before the first series of a result.
    columns: Option<Vec<String>>,
    /// CSV: name and tags of the series, as each of its rows begins.
    row_start: Vec<u8>,
    /// CSV: true behind the first table.
    has_table: bool,
}

impl AnswerWriter {
    /// Begins an answer. Times are numbers in the unit `epoch`; without one, RFC 3339 in JSON and nanoseconds
    /// in CSV.
    pub fn new(format: Format, epoch: Option<Precision>) -> Self {
        let mut layout = Layout::new(format == Format::Json { is_pretty: true });
        if format != Format::Csv {
            layout.open(b'{');
            layout.key("results");
            layout.open(b'[');
        }
        let (columns, row_start) = (None, Vec::new());
        AnswerWriter { layout, format, epoch, has_items: false, columns, row_start, has_table: false }
    }

    /// Begins the result of a statement; they are numbered from 0.
    pub fn begin_result(&mut self, statement: usize) {
        self.has_items = false;
        self.columns = None;
        if self.format != Format::Csv {
            self.layout.item();
            self.layout.open(b'{');
            self.layout.key("statement_id");
            self.layout.number(statement);
        }
    }

    /// Begins a series. The tags are in the order of their keys; both they and the name may be empty.
    pub fn begin_series(&mut self, name: &str, tags: &[(&str, &str)], columns: &[&str]) {
        if self.format == Format::Csv {
            return self.begin_table(name, tags, columns);
        }
        if !std::mem::replace(&mut self.has_items, true) {
            self.layout.key("series");
            self.layout.open(b'[');
        }
        self.layout.item();
        self.layout.open(b'{');
        if !name.is_empty() {
            self.layout.key("name");
            self.layout.text(name);
        }
        if !tags.is_empty() {
            self.layout.key("tags");
            self.layout.open(b'{');
            for (key, value) in tags {
                self.layout.key(key);
                self.layout.text(value);
            }
            self.layout.close(b'}');
        }
        self.layout.key("columns");
        self.layout.open(b'[');
        for column in columns {
            self.layout.item();
            self.layout.text(column);
        }
        self.layout.close(b']');
        self.has_items = false;
    }

    /// Adds a row, with a cell for each column.
    pub fn row(&mut self, cells: &[Cell<'_>]) {
        if self.format == Format::Csv {
            self.layout.out.extend_from_slice(&self.row_start);
            for cell in cells {
                self.layout.out.push(b',');
                self.csv_cell(*cell);
            }
            return self.layout.out.push(b'\n');
        }
        if !std::mem::replace(&mut self.has_items, true) {
            self.layout.key("values");
            self.layout.open(b'[');
        }
        self.layout.item();
        self.layout.open(b'[');
        for cell in cells {
            self.layout.item();
            self.json_cell(*cell);
        }
        self.layout.close(b']');
    }

    /// Ends a series. It is partial if rows of it were left out.
    pub fn end_series(&mut self, is_partial: bool) {
        if self.format != Format::Csv {
            if self.has_items {
                self.layout.close(b']');
            }
            self.partial(is_partial);
            self.layout.close(b'}');
        }
        self.has_items = true;
    }

    /// Ends the result of a statement. It is partial if more of it follows in another answer.
    pub fn end_result(&mut self, is_partial: bool, error: Option<&str>) {
        if self.format == Format::Csv {
            if let Some(error) = error {
                self.begin_lines();
                csv_error(&mut self.layout.out, error);
            }
            return;
        }
        if self.has_items {
            self.layout.close(b']');
        }
        self.partial(is_partial);
        if let Some(error) = error {
            self.layout.key("error");
            self.layout.text(error);
        }
        self.layout.close(b'}');
    }

    fn partial(&mut self, is_partial: bool) {
        if is_partial {
            self.layout.key("partial");
            self.layout.number(true);
        }
    }

    /// Takes the bytes that were written so far, so that a long answer can be sent while it is made.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.layout.out)
    }

    /// Returns the number of bytes that [`take`](Self::take) would take.
    pub fn pending(&self) -> usize {
        self.layout.out.len()
    }

    /// Ends the answer and returns the bytes that were not taken.
    pub fn finish(mut self) -> Vec<u8> {
        if self.format != Format::Csv {
            self.layout.close(b']');
            self.layout.close(b'}');
            self.layout.out.push(b'\n');
        }
        self.layout.out
    }

    fn json_cell(&mut self, cell: Cell<'_>) {
        match cell {
            Cell::Null => self.layout.number("null"),
            Cell::Time(time) => match (self.epoch, jiff::Timestamp::from_nanosecond(time.into())) {
                (Some(epoch), _) => self.layout.number(time / epoch.nanoseconds()),
                (None, Ok(timestamp)) => self.layout.number(format_args!("\"{timestamp}\"")),
                (None, Err(_)) => self.layout.number("null"),
            },
            Cell::Value(FieldRef::Float(value)) => self.layout.float(value),
            Cell::Value(FieldRef::Integer(value)) => self.layout.number(value),
            Cell::Value(FieldRef::Unsigned(value)) => self.layout.number(value),
            Cell::Value(FieldRef::Boolean(value)) => self.layout.number(value),
            Cell::Value(FieldRef::Text(value)) => self.layout.text(value),
        }
    }

    fn csv_cell(&mut self, cell: Cell<'_>) {
        match cell {
            Cell::Null => {}
            Cell::Time(time) => self.layout.number(time / self.epoch.unwrap_or_default().nanoseconds()),
            Cell::Value(FieldRef::Float(value)) if value == f64::INFINITY => self.layout.number("+Inf"),
            Cell::Value(FieldRef::Float(value)) if value == f64::NEG_INFINITY => self.layout.number("-Inf"),
            Cell::Value(FieldRef::Float(value)) => self.layout.number(value),
            Cell::Value(FieldRef::Integer(value)) => self.layout.number(value),
            Cell::Value(FieldRef::Unsigned(value)) => self.layout.number(value),
            Cell::Value(FieldRef::Boolean(value)) => self.layout.number(value),
            Cell::Value(FieldRef::Text(value)) => csv_text(&mut self.layout.out, value),
        }
    }

    /// Begins a series of CSV, with a header if its columns are not those of the series before.
    fn begin_table(&mut self, name: &str, tags: &[(&str, &str)], columns: &[&str]) {
        if self.columns.as_deref().is_none_or(|before| before != columns) {
            self.begin_lines();
            for (place, column) in ["name", "tags"].iter().chain(columns).enumerate() {
                if place > 0 {
                    self.layout.out.push(b',');
                }
                csv_text(&mut self.layout.out, column);
            }
            self.layout.out.push(b'\n');
            self.columns = Some(columns.iter().map(|&column| column.to_owned()).collect());
        }
        let mut key = String::new();
        for (tag, value) in tags.iter().filter(|(_, value)| !value.is_empty()) {
            push_tag(tag, value, &mut key);
        }
        self.row_start.clear();
        csv_text(&mut self.row_start, name);
        self.row_start.push(b',');
        csv_text(&mut self.row_start, key.strip_prefix(',').unwrap_or_default());
    }

    /// Separates a table from the one before it.
    fn begin_lines(&mut self) {
        if std::mem::replace(&mut self.has_table, true) {
            self.layout.out.push(b'\n');
        }
    }
}

/// Writes a cell of CSV, in quotes where Go's writer has them.
pub(crate) fn csv_text(out: &mut Vec<u8>, text: &str) {
    let needs_quotes = text == r"\."
        || text.starts_with(char::is_whitespace)
        || text.bytes().any(|byte| matches!(byte, b',' | b'"' | b'\r' | b'\n'));
    if needs_quotes {
        // A vector takes everything.
        let _ = write!(out, "\"{}\"", text.replace('"', "\"\""));
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

fn csv_error(out: &mut Vec<u8>, error: &str) {
    out.extend_from_slice(b"error\n");
    csv_text(out, error);
    out.push(b'\n');
}

/// Returns the body of an error of a whole request.
pub fn error_body(format: Format, error: &str) -> Vec<u8> {
    let Format::Json { is_pretty } = format else {
        let mut out = Vec::new();
        csv_error(&mut out, error);
        return out;
    };
    let mut layout = Layout::new(is_pretty);
    layout.open(b'{');
    layout.key("error");
    layout.text(error);
    layout.close(b'}');
    layout.out.push(b'\n');
    layout.out
}
