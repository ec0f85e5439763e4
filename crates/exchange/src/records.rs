//! Splits a listing into rows, and rows into fields, without regard to the meaning of fields.
//!
//! The bytes of each row are kept as found, for the reject file. That, and continuing after an
//! unclosed quote, is why CSV is parsed here rather than by a CSV reader.

use std::io::{self, Read};
use std::ops::Range;

use crate::limits::ROW_BYTES_MAX;
use crate::memo::Memo;

/// Format of rows and fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A row is a line, fields end at the delimiter (tab), and there are no quotes.
    Tsv,
    /// RFC 4180: fields may be in double quotes, and may then hold the delimiter, line ends and
    /// doubled quotes.
    Csv,
    /// A row is a line that holds a JSON object.
    JsonLines,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 3] = [Format::Tsv, Format::Csv, Format::JsonLines];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Tsv => "tsv",
            Format::Csv => "csv",
            Format::JsonLines => "jsonl",
        }
    }

    /// Returns the default delimiter.
    pub fn delimiter(self) -> u8 {
        if self == Format::Csv { b',' } else { b'\t' }
    }
}

/// A row as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// First line of the row, from 1.
    pub line: u64,
    /// Its bytes, without the line end.
    pub raw: &'a [u8],
    /// Reason why it cannot be split into fields; `raw` is then the skipped part, or its beginning.
    pub flaw: Option<Flaw>,
}

/// Reason why bytes are no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The row is longer than [`ROW_BYTES_MAX`].
    TooLong,
    /// A quote is not closed within [`ROW_BYTES_MAX`] or before the end. Only its first line is
    /// skipped, because the lines after it may be good.
    OpenQuote,
}

/// The rows of a listing, in order.
pub struct Records {
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Range of the buffer not returned yet: `start` to `end`.
    start: usize,
    end: usize,
    at_end: bool,
    line: u64,
    quotes: Option<u8>,
    /// True while the rest of a line that was too long is skipped.
    skipping: bool,
}

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

impl Records {
    /// Splits the output of `reader`. Skips a byte order mark at the start.
    pub fn new(reader: Box<dyn Read + Send>, format: Format, delimiter: u8) -> io::Result<Self> {
        let mut records = Records {
            reader,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            at_end: false,
            line: 1,
            quotes: (format == Format::Csv).then_some(delimiter),
            skipping: false,
        };
        while records.end < 3 && !records.at_end {
            records.fill()?;
        }
        if records.buffer[..records.end].starts_with(b"\xef\xbb\xbf") {
            records.start = 3;
        }
        Ok(records)
    }

    /// Returns the next row that is not empty; none at the end.
    pub fn next_record(&mut self) -> io::Result<Option<Record<'_>>> {
        loop {
            if self.skipping {
                if !self.skip_line()? {
                    return Ok(None);
                }
                continue;
            }
            let Some((length, consumed, flaw)) = self.cut()? else { return Ok(None) };
            let (line, at) = (self.line, self.start);
            self.line += match self.quotes {
                None => u64::from(flaw.is_none()),
                Some(_) => memchr::memchr_iter(b'\n', &self.buffer[at..at + consumed]).count() as u64,
            };
            self.start += consumed;
            self.skipping = flaw == Some(Flaw::TooLong);
            let mut raw = at..at + length;
            if flaw.is_none() && self.buffer[raw.clone()].ends_with(b"\r") {
                raw.end -= 1;
            }
            if raw.is_empty() && flaw.is_none() {
                continue;
            }
            return Ok(Some(Record { line, raw: &self.buffer[raw], flaw }));
        }
    }

    /// Finds the end of the row at `start`. Returns its length, the bytes to consume, and its flaw.
    fn cut(&mut self) -> io::Result<Option<(usize, usize, Option<Flaw>)>> {
        let mut looked_at = 0;
        loop {
            let bytes = &self.buffer[self.start..self.end];
            let found = match self.quotes {
                None => memchr::memchr(b'\n', &bytes[looked_at..]).map(|at| looked_at + at),
                Some(delimiter) => quoted_row_end(bytes, delimiter),
            };
            let within = |length: &usize| *length <= ROW_BYTES_MAX;
            if let Some(length) = found.filter(within) {
                return Ok(Some((length, length + 1, None)));
            }
            looked_at = bytes.len();
            if bytes.len() > ROW_BYTES_MAX {
                return Ok(Some(self.flawed()));
            }
            if !self.at_end {
                self.fill()?;
                continue;
            }
            let bytes = &self.buffer[self.start..self.end];
            return Ok(match bytes.len() {
                0 => None,
                // The last line needs no line end, but an open quote has swallowed lines.
                length if self.quotes.is_none_or(|delimiter| !ends_in_quotes(bytes, delimiter)) => {
                    Some((length, length, None))
                }
                _ => Some(self.flawed()),
            });
        }
    }

    fn flawed(&self) -> (usize, usize, Option<Flaw>) {
        let bytes = &self.buffer[self.start..self.end];
        match (self.quotes, memchr::memchr(b'\n', bytes)) {
            (Some(_), Some(length)) if length <= ROW_BYTES_MAX => (length, length + 1, Some(Flaw::OpenQuote)),
            (Some(_), None) if self.at_end => (bytes.len(), bytes.len(), Some(Flaw::OpenQuote)),
            _ => (bytes.len().min(ROW_BYTES_MAX), bytes.len().min(ROW_BYTES_MAX), Some(Flaw::TooLong)),
        }
    }

    /// Skips to the next line; false at the end.
    fn skip_line(&mut self) -> io::Result<bool> {
        match memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
            Some(at) => {
                self.start += at + 1;
                self.line += 1;
                self.skipping = false;
            }
            None => {
                self.start = self.end;
                if self.at_end {
                    return Ok(false);
                }
                self.fill()?;
            }
        }
        Ok(true)
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() < self.end + READ_BYTES {
            self.buffer.resize(self.end + READ_BYTES, 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    self.at_end = read == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InField {
    Start,
    Bare,
    Quoted,
    /// After a quote inside a quoted field: either its end, or the first of two.
    Closed,
}

impl InField {
    fn after(self, byte: u8, delimiter: u8) -> Self {
        match (self, byte) {
            (InField::Start | InField::Closed, b'"') => InField::Quoted,
            (InField::Quoted, b'"') => InField::Closed,
            (InField::Quoted, _) => InField::Quoted,
            (_, byte) if byte == delimiter => InField::Start,
            _ => InField::Bare,
        }
    }
}

/// Returns the end of the first row: its line feed outside quotes.
fn quoted_row_end(bytes: &[u8], delimiter: u8) -> Option<usize> {
    let mut state = InField::Start;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == b'\n' && state != InField::Quoted {
            return Some(at);
        }
        state = state.after(*byte, delimiter);
    }
    None
}

fn ends_in_quotes(bytes: &[u8], delimiter: u8) -> bool {
    bytes.iter().fold(InField::Start, |state, byte| state.after(*byte, delimiter)) == InField::Quoted
}

/// Fields of one row. Reused from row to row, so that splitting allocates no memory.
#[derive(Debug, Default)]
pub struct Fields {
    ranges: Vec<Range<usize>>,
    /// Fields whose text is no part of the row as found.
    owned: Vec<(usize, String)>,
    /// Cache of names that rows repeat.
    pub(crate) memo: Memo,
}

impl Fields {
    /// Splits a TSV row; with `escapes`, reads the backslash escapes of an export.
    pub fn cut_tsv(&mut self, raw: &str, delimiter: u8, escapes: bool) -> Result<(), &'static str> {
        self.clear();
        let mut from = 0;
        for at in memchr::memchr_iter(delimiter, raw.as_bytes()) {
            self.ranges.push(from..at);
            from = at + 1;
        }
        self.ranges.push(from..raw.len());
        if escapes && raw.contains('\\') {
            for (index, range) in self.ranges.iter().enumerate() {
                if let std::borrow::Cow::Owned(text) = crate::escape::read_field(&raw[range.clone()])? {
                    self.owned.push((index, text));
                }
            }
        }
        Ok(())
    }

    /// Splits a CSV row.
    pub fn cut_csv(&mut self, raw: &str, delimiter: u8) -> Result<(), &'static str> {
        self.clear();
        let bytes = raw.as_bytes();
        let mut at = 0;
        loop {
            if bytes.get(at) != Some(&b'"') {
                let end = memchr::memchr(delimiter, &bytes[at..]).map_or(bytes.len(), |length| at + length);
                self.ranges.push(at..end);
                at = end;
            } else {
                at = self.quoted_field(raw, at + 1)?;
            }
            match bytes.get(at) {
                None => return Ok(()),
                Some(byte) if *byte == delimiter => at += 1,
                Some(_) => return Err("text goes on after a closing quote"),
            }
        }
    }

    /// Splits off the quoted field whose text begins at `from`; returns the position after its
    /// closing quote.
    fn quoted_field(&mut self, raw: &str, from: usize) -> Result<usize, &'static str> {
        let bytes = raw.as_bytes();
        let mut at = from;
        let mut doubled = false;
        loop {
            let Some(length) = memchr::memchr(b'"', &bytes[at..]) else {
                return Err("a quote is not closed");
            };
            at += length;
            if bytes.get(at + 1) != Some(&b'"') {
                break;
            }
            doubled = true;
            at += 2;
        }
        if doubled {
            self.owned.push((self.ranges.len(), raw[from..at].replace("\"\"", "\"")));
        }
        self.ranges.push(from..at);
        Ok(at + 1)
    }

    fn clear(&mut self) {
        self.ranges.clear();
        self.owned.clear();
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the text of a field of the last split row; empty if the row has no such field.
    pub fn get<'a>(&'a self, raw: &'a str, index: usize) -> &'a str {
        if !self.owned.is_empty()
            && let Some((_, text)) = self.owned.iter().find(|(owned, _)| *owned == index)
        {
            return text;
        }
        self.ranges.get(index).map_or("", |range| &raw[range.clone()])
    }
}

/// Appends a CSV field. Quotes it only if RFC 4180 requires that, or bare text would read back
/// differently.
pub fn push_csv_field(out: &mut Vec<u8>, text: &str, delimiter: u8) {
    let quote = |byte: u8| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
    if !text.bytes().any(quote) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests;
