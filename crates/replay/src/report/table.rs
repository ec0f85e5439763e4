//! Sections of a report: a title, notes, and a table; as text of 80 columns.

use std::fmt::Write as _;

use crate::units::harmless;

/// Columns of a line.
const WIDTH: usize = 80;
/// Columns between two cells.
const GAP: usize = 2;
/// Least columns of a cell of text.
const TEXT_MIN: usize = 8;
/// Columns by which explanations are indented.
const INDENT: usize = 4;

/// Column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Text, at the left.
    Text(&'static str),
    /// Number, at the right.
    Number(&'static str),
}

impl Column {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Column::Text(name) | Column::Number(name) => name,
        }
    }
}

/// Row of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub cells: Vec<String>,
    /// Explanation; empty for none.
    pub note: String,
}

/// Section of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    /// Name, for links and charts.
    pub id: &'static str,
    pub title: String,
    /// Sentences before the table.
    pub notes: Vec<String>,
    /// Columns; without names the table has no header.
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

impl Section {
    pub(crate) fn new(id: &'static str, title: &str, columns: &[Column]) -> Section {
        Section { id, title: title.to_owned(), columns: columns.to_vec(), ..Section::default() }
    }

    /// Adds a sentence before the table.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.explained(cells, "");
    }

    /// Adds a row with an explanation.
    pub(crate) fn explained(&mut self, cells: impl IntoIterator<Item = String>, note: &str) {
        self.rows.push(Row { cells: cells.into_iter().collect(), note: note.to_owned() });
    }

    /// Says whether there is anything to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.notes.is_empty()
    }

    fn has_header(&self) -> bool {
        self.columns.iter().any(|column| !column.name().is_empty())
    }

    /// Returns the widths of the columns. The widest text gives way where a line would be too long.
    fn widths(&self) -> Vec<usize> {
        let width = |number: usize, column: &Column| {
            let cells =
                self.rows.iter().filter_map(|row| row.cells.get(number)).map(|cell| cell.chars().count());
            cells.max().unwrap_or(0).max(column.name().len())
        };
        let mut widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(number, column)| width(number, column)).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        let is_text = |number: &usize| matches!(self.columns[*number], Column::Text(_));
        while widths.iter().sum::<usize>() + gaps > WIDTH {
            let texts = (0..widths.len()).filter(|number| is_text(number) && widths[*number] > TEXT_MIN);
            let Some(widest) = texts.max_by_key(|number| widths[*number]) else { break };
            widths[widest] -= 1;
        }
        widths
    }

    /// Writes the section as text.
    pub(crate) fn write_text(&self, out: &mut String) {
        for line in folded(&harmless(&self.title), WIDTH) {
            let _ = writeln!(out, "{line}");
        }
        for note in &self.notes {
            for line in folded(&harmless(note), WIDTH - GAP) {
                let _ = writeln!(out, "  {line}");
            }
        }
        let widths = self.widths();
        if self.has_header() && !self.rows.is_empty() {
            let names: Vec<&str> = self.columns.iter().map(|column| column.name()).collect();
            self.write_line(out, &names, &widths);
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
            self.write_line(out, &rules, &widths);
        }
        for row in &self.rows {
            let cells: Vec<String> = row.cells.iter().map(|cell| harmless(cell)).collect();
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            self.write_line(out, &cells, &widths);
            for line in folded(&harmless(&row.note), WIDTH - INDENT) {
                let _ = writeln!(out, "{:INDENT$}{line}", "");
            }
        }
        out.push('\n');
    }

    fn write_line(&self, out: &mut String, cells: &[&str], widths: &[usize]) {
        let mut line = String::new();
        for ((column, cell), width) in self.columns.iter().zip(cells).zip(widths) {
            let length = cell.chars().count();
            let cell = if length > *width { cut(cell, *width) } else { (*cell).to_owned() };
            let _ = match column {
                Column::Text(_) => write!(line, "{cell:<width$}"),
                Column::Number(_) => write!(line, "{cell:>width$}"),
            };
            line.push_str(&" ".repeat(GAP));
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// Cuts the middle out of a text: names differ at their ends.
fn cut(text: &str, width: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    let (begin, end) = (width.saturating_sub(1).div_ceil(2), width.saturating_sub(1) / 2);
    let mut out: String = letters.iter().take(begin).collect();
    out.push('…');
    out.extend(&letters[letters.len() - end..]);
    out
}

/// Folds a text into lines. A word that is longer than a line is cut into pieces.
pub(crate) fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(width.max(1)) {
            match lines.last_mut() {
                Some(line) if line.chars().count() + 1 + piece.len() <= width => {
                    line.push(' ');
                    line.extend(piece);
                }
                _ => lines.push(piece.iter().collect()),
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        let mut section = Section::new("x", "Title", &[Column::Text("name"), Column::Number("count")]);
        section.note("A note.");
        section.row(["one".to_owned(), "1".to_owned()]);
        section.explained(["twentytwo".to_owned(), "22 000".to_owned()], "why it is so");
        section
    }

    /// Property: columns are aligned, and explanations stand below their rows.
    #[test]
    fn tables_are_aligned() {
        let mut out = String::new();
        section().write_text(&mut out);
        let lines = [
            "Title",
            "  A note.",
            "name        count",
            "---------  ------",
            "one             1",
            "twentytwo  22 000",
            "    why it is so",
            "",
            "",
        ];
        assert_eq!(out, lines.join("\n"));
    }

    /// Property: no line is longer than 80 columns, whatever the names, and none moves the cursor.
    #[test]
    fn long_and_evil_names_stay_in_their_columns() {
        let mut section = section();
        let long = format!("begin\u{1b}[2J{}end", "é".repeat(500));
        section.explained([long, "1 000 000".to_owned()], &"word ".repeat(100));
        let mut out = String::new();
        section.write_text(&mut out);
        assert!(out.lines().all(|line| line.chars().count() <= WIDTH), "{out}");
        assert!(out.contains("begin") && out.contains("end") && out.contains('…'), "{out}");
        assert!(!out.contains('\u{1b}'));
    }

    #[test]
    fn texts_are_folded() {
        assert_eq!(folded("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(folded("aaaaaaaa b", 5), ["aaaaa", "aaa b"]);
        assert!(folded("", 5).is_empty());
    }
}
