//! Output: answers to standard output, for people or as JSON; errors to standard error.

pub(crate) mod human;

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use serde::Serialize;

use crate::failure::Failure;
use crate::quoting::Shown;

/// Bytes gathered before they are written to standard output.
const BUFFER_BYTES: usize = 64 << 10;

/// Form of answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    /// JSON: one document per item, one item per line.
    pub json: bool,
    /// Names end with NUL instead of a line end.
    pub null: bool,
    /// Sizes with a unit.
    pub units: bool,
    /// Print what was done.
    pub verbose: bool,
    /// Print only requested output.
    pub quiet: bool,
}

/// Standard output.
pub(crate) struct Out {
    writer: BufWriter<Stdout>,
    /// Form of answers.
    pub style: Style,
    escape: bool,
}

impl Out {
    /// Makes standard output in this style.
    pub(crate) fn new(style: Style) -> Self {
        let stdout = io::stdout();
        let escape = stdout.is_terminal() && !style.null;
        Out { writer: BufWriter::with_capacity(BUFFER_BYTES, stdout), style, escape }
    }

    /// Formats a name for this output: on a terminal with control characters escaped, elsewhere as
    /// it is.
    pub(crate) fn name<'a>(&self, text: &'a str) -> Shown<'a> {
        Shown { text, escape: self.escape }
    }

    /// Writes one line, ended as the style says.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        let end = if self.style.null { '\0' } else { '\n' };
        Ok(write!(self.writer, "{text}{end}")?)
    }

    /// Writes one name as a line.
    pub(crate) fn name_line(&mut self, text: &str) -> Result<(), Failure> {
        let shown = self.name(text);
        self.line(shown)
    }

    /// Writes one JSON document as a line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.writer, value).map_err(io::Error::from)?;
        Ok(self.writer.write_all(b"\n")?)
    }

    /// Writes aligned rows. With `--quiet` it leaves headings out, for scripts.
    pub(crate) fn table(&mut self, table: &Table) -> Result<(), Failure> {
        Ok(table.write(&mut self.writer, self.style.quiet)?)
    }

    /// Writes text as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.writer.write_all(text.as_bytes())?)
    }

    /// Formats a number of bytes in this style.
    pub(crate) fn size(&self, bytes: u128) -> String {
        if self.style.units { human::size(bytes) } else { bytes.to_string() }
    }

    /// Writes the gathered bytes.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.writer.flush()?)
    }
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// To the left.
    Left,
    /// To the right: numbers.
    Right,
}

/// Rows to be aligned. They are in memory until written: of a long listing, a page at a time.
pub(crate) struct Table {
    columns: Vec<Align>,
    heading: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes an empty table.
    pub(crate) fn new(columns: impl Into<Vec<Align>>) -> Self {
        Table { columns: columns.into(), heading: None, rows: Vec::new() }
    }

    /// Makes an empty table with a line of headings.
    pub(crate) fn headed<const N: usize>(columns: [(&str, Align); N]) -> Self {
        let mut table = Table::new(columns.map(|(_, align)| align));
        table.heading = Some(columns.map(|(heading, _)| heading.to_owned()).into());
        table
    }

    /// Drops the line of headings, if an earlier page had it.
    pub(crate) fn headed_once(mut self, shown: &mut bool) -> Self {
        if std::mem::replace(shown, true) {
            self.heading = None;
        }
        self
    }

    /// Says whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    fn write(&self, out: &mut impl Write, without_heading: bool) -> io::Result<()> {
        let heading = self.heading.as_ref().filter(|_| !without_heading);
        let mut widths = vec![0; self.columns.len()];
        for row in heading.into_iter().chain(&self.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut line = String::new();
        for row in heading.into_iter().chain(&self.rows) {
            line.clear();
            for (index, cell) in row.iter().enumerate() {
                if index > 0 {
                    line.push_str("  ");
                }
                let blanks = widths[index].saturating_sub(cell.chars().count());
                match self.columns[index] {
                    Align::Right => {
                        line.extend(std::iter::repeat_n(' ', blanks));
                        line.push_str(cell);
                    }
                    Align::Left => {
                        line.push_str(cell);
                        // Names may end with blanks of their own, so only alignment is left out at
                        // the end.
                        if index + 1 < row.len() {
                            line.extend(std::iter::repeat_n(' ', blanks));
                        }
                    }
                }
            }
            // Nothing in the last column: leave its alignment out too.
            if row.last().is_some_and(String::is_empty) {
                line.truncate(line.trim_end_matches(' ').len());
            }
            line.push('\n');
            out.write_all(line.as_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_keep_trailing_blanks_of_names() {
        let mut table = Table::headed([("SIZE", Align::Right), ("NAME", Align::Left)]);
        table.row(["5".to_owned(), "a ".to_owned()]);
        table.row(["12345".to_owned(), "ż".to_owned()]);
        let mut out = Vec::new();
        table.write(&mut out, false).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), " SIZE  NAME\n    5  a \n12345  ż\n");
        let mut out = Vec::new();
        table.write(&mut out, true).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "    5  a \n12345  ż\n");
        let mut table = Table::new([Align::Left, Align::Left]);
        table.row(["a".to_owned(), String::new()]);
        let mut out = Vec::new();
        table.write(&mut out, false).unwrap();
        assert_eq!(out, b"a\n");
    }
}
