//! Tables of pages. The same table is HTML and CSV.

use std::borrow::Cow;
use std::fmt::Display;

use askama::Template;
use exacat_model::{Lfn, TimeMs};

use super::text::{bytes, count, time, url, visible};

/// Classes of columns, for the style sheet.
pub(super) const NUMBER: &str = "number";
pub(super) const TIME: &str = "time";
/// A column that narrow screens leave out.
pub(super) const WIDE: &str = "wide";
pub(super) const WIDE_NUMBER: &str = "wide number";
pub(super) const WIDE_TIME: &str = "wide time";
pub(super) const CODE: &str = "code";

/// A column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub name: Cow<'static, str>,
    pub class: &'static str,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub text: String,
    /// The exact value, if the text is shorter.
    exact: String,
    pub href: String,
    /// Length of a bar, in thousandths; none for no bar.
    pub share: Option<u32>,
    /// Pieces of a bar; none for no bar.
    pub pieces: Vec<Piece>,
}

/// A piece of a bar, in thousandths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub start: u32,
    pub width: u32,
    /// Name of its colour in the style sheet.
    pub class: &'static str,
}

impl Cell {
    /// Makes a cell of a text that may come from users.
    pub(crate) fn text(text: impl Display) -> Self {
        Cell { text: visible(&text.to_string()), ..Cell::default() }
    }

    /// Makes a cell of an optional text.
    pub(crate) fn maybe(text: Option<impl Display>) -> Self {
        text.map_or_else(Cell::default, Cell::text)
    }

    /// Makes a cell of a number.
    pub(crate) fn count(number: impl Into<u128>) -> Self {
        let number = number.into();
        Cell { text: count(number), exact: number.to_string(), ..Cell::default() }
    }

    /// Makes a cell of bytes.
    pub(crate) fn bytes(number: impl Into<u128>) -> Self {
        let number = number.into();
        Cell { text: bytes(number), exact: number.to_string(), ..Cell::default() }
    }

    /// Makes a cell of a moment.
    pub(crate) fn time(at: TimeMs) -> Self {
        Cell { text: time(at), exact: at.to_string(), ..Cell::default() }
    }

    /// Makes a cell of an entry's path, with a link to its page.
    pub(crate) fn lfn(lfn: &Lfn) -> Self {
        Cell::text(lfn.as_str()).linked(url("/entry", lfn))
    }

    /// Adds a link.
    pub(crate) fn linked(self, href: impl Into<String>) -> Self {
        Cell { href: href.into(), ..self }
    }

    /// Sets the value in CSV, and in the title.
    pub(crate) fn exactly(self, exact: String) -> Self {
        Cell { exact, ..self }
    }

    /// Adds a bar for `part` of `whole`.
    pub(crate) fn barred(self, part: u128, whole: u128) -> Self {
        let share = part.min(whole).saturating_mul(1000).checked_div(whole).unwrap_or(0);
        Cell { share: Some(u32::try_from(share).unwrap_or(1000)), ..self }
    }

    /// Returns the exact value where the text is shorter.
    fn title(&self) -> &str {
        if self.exact == self.text { "" } else { &self.exact }
    }

    fn tag(&self, is_first: &bool) -> &'static str {
        if *is_first { "th scope=\"row\"" } else { "td" }
    }

    fn end(&self, is_first: &bool) -> &'static str {
        if *is_first { "th" } else { "td" }
    }
}

/// A table.
#[derive(Clone, Debug, Default, Template)]
#[template(path = "table.html")]
pub(super) struct Table {
    pub caption: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
    /// Text in place of a table without rows.
    pub empty: &'static str,
}

impl Table {
    /// Starts a table with these columns, each with its class.
    pub(crate) fn new(caption: impl Into<String>, columns: &[(&'static str, &'static str)]) -> Self {
        Table::named(caption, columns.iter().copied())
    }

    /// Starts a table whose columns have names that are made.
    pub(crate) fn named(
        caption: impl Into<String>,
        columns: impl IntoIterator<Item = (impl Into<Cow<'static, str>>, &'static str)>,
    ) -> Self {
        let columns = columns.into_iter().map(|(name, class)| Column { name: name.into(), class });
        Table {
            caption: caption.into(),
            columns: columns.collect(),
            rows: Vec::new(),
            empty: "Nothing is here.",
        }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: impl Into<Vec<Cell>>) {
        self.rows.push(row.into());
    }

    fn class(&self, column: &usize) -> &'static str {
        self.columns.get(*column).map_or("", |column| column.class)
    }

    /// Returns the table as CSV (RFC 4180), with exact values.
    pub(crate) fn csv(&self) -> String {
        let mut out = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            for (index, cell) in cells.enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_field(&mut out, cell);
            }
            out.push_str("\r\n");
        };
        line(&mut self.columns.iter().map(|column| &*column.name));
        for row in &self.rows {
            line(
                &mut row
                    .iter()
                    .map(|cell| if cell.exact.is_empty() { &cell.text } else { &cell.exact }.as_str()),
            );
        }
        out
    }
}

/// Appends a field of CSV. A spreadsheet takes a text that starts with some letters for a formula, so
/// such a text gets an apostrophe before it.
fn push_field(out: &mut String, text: &str) {
    out.push('"');
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        out.push('\'');
    }
    out.push_str(&text.replace('"', "\"\""));
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a name cannot leave its cell, in HTML or in CSV, and is no formula of a spreadsheet.
    #[test]
    fn names_stay_in_their_cells() {
        let mut table = Table::new("c", &[("Name", ""), ("Size", NUMBER)]);
        table.push([Cell::text("<script>\"',\n"), Cell::bytes(1_500_u64).barred(1, 2)]);
        table.push([Cell::text("=1+1"), Cell::count(1_u64)]);
        let html = table.render().unwrap();
        assert!(html.contains("&#60;script&#62;&#34;&#39;,\\u{a}") && !html.contains("<script"), "{html}");
        assert!(html.contains("title=\"1500\"") && html.contains("width=\"500\""), "{html}");
        assert!(html.contains("<th scope=\"row\">") && html.contains("<th scope=\"col\""), "{html}");
        let csv = table.csv();
        assert_eq!(csv, "\"Name\",\"Size\"\r\n\"<script>\"\"',\\u{a}\",\"1500\"\r\n\"'=1+1\",\"1\"\r\n");
    }
}
