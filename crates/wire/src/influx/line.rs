//! Scanner of line protocol: `measurement,tag=value field=value,field=value time`.
//!
//! The rules are those of InfluxDB 1.8, with these differences, each to keep data that it loses:
//!
//! - A line may end with a carriage return and a newline.
//! - A comment ends with its line, whatever quotes are in it. Quotes in names and tags begin no text.
//! - Outside of texts every newline ends a line. InfluxDB joins two lines if the first ends with a backslash.
//! - Characters between the end of a text and the next comma are refused. InfluxDB drops the last one.
//! - Unsigned integers (`1u`) are read, as by InfluxDB 2.
//! - Bytes that are no UTF-8 make their line an error.
//!
//! A text without its end takes the rest of the body with it, here as there: what follows may be its content.

use std::ops::Range;

use exacat_model::FieldRef;
use exacat_model::limits::{
    HISTORY_FIELDS_MAX, HISTORY_KEY_BYTES_MAX, HISTORY_LINE_BYTES_MAX, HISTORY_TEXT_BYTES_MAX,
};
use memchr::{memchr, memchr2};

use super::number::{Scalar, number, time};
use super::precision::Precision;
use super::reason::{LineError, Reason};
use super::series::{canonical_series, push_without_escapes};

/// Characters that a backslash may precede in the name of a field.
const IN_FIELD: &[u8] = b",\" =";
/// Characters that a backslash may precede in a text.
const IN_TEXT: &[u8] = b"\"\\";
/// Bytes that InfluxDB adds to the key of an element and the name of a field when it limits their sum.
const KEY_SEPARATOR_BYTES: usize = 4;

/// Part of a line, or of the buffer with the parts that had escapes.
#[derive(Clone, Debug)]
enum Piece<'b> {
    Sent(&'b str),
    Unescaped(Range<usize>),
}

impl<'b> Piece<'b> {
    fn get<'s>(&self, unescaped: &'s str) -> &'s str
    where
        'b: 's,
    {
        match self {
            Piece::Sent(text) => text,
            Piece::Unescaped(range) => unescaped.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// Value of a field as it was scanned.
#[derive(Clone, Debug)]
enum Scanned<'b> {
    Scalar(Scalar),
    Text(Piece<'b>),
}

/// Lines of a body. Not an `Iterator`, because each line borrows the buffers of the scanner.
#[derive(Debug)]
pub struct Lines<'b> {
    body: &'b [u8],
    /// Place of the next line.
    at: usize,
    /// Place of a quote, with none between `at` and it. Out of date if before `at`.
    quote: Option<usize>,
    precision: Precision,
    fields: Vec<(Piece<'b>, Scanned<'b>)>,
    unescaped: String,
}

/// A line whose fields and time are valid. Its tags are not checked yet: [`canonical_series`] does it, and
/// only for an element that is new to the caller.
#[derive(Clone, Copy, Debug)]
pub struct Line<'b, 's> {
    /// Measurement and tags as sent.
    pub series: &'b str,
    /// Nanoseconds since 1970; none for the time of the server.
    pub time: Option<i64>,
    text: &'b [u8],
    fields: &'s [(Piece<'b>, Scanned<'b>)],
    unescaped: &'s str,
}

impl<'b, 's> Line<'b, 's> {
    /// Returns its fields in their order. If a name occurs twice, the later value counts.
    pub fn fields(&self) -> Fields<'b, 's> {
        Fields { rest: self.fields.iter(), unescaped: self.unescaped }
    }

    /// Returns the error that refuses this line.
    pub fn error(&self, reason: Reason) -> LineError<'b> {
        LineError { line: self.text, reason }
    }
}

/// Names and values of the fields of a line.
#[derive(Clone, Debug)]
pub struct Fields<'b, 's> {
    rest: std::slice::Iter<'s, (Piece<'b>, Scanned<'b>)>,
    unescaped: &'s str,
}

impl<'s> Iterator for Fields<'_, 's> {
    type Item = (&'s str, FieldRef<'s>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.rest.next()?;
        let value = match value {
            Scanned::Scalar(value) => value.value(),
            Scanned::Text(piece) => FieldRef::Text(piece.get(self.unescaped)),
        };
        Some((name.get(self.unescaped), value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }
}

impl ExactSizeIterator for Fields<'_, '_> {}

/// Returns the place of the first byte that is no blank.
fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\0')) {
        at += 1;
    }
    at
}

/// Returns the place of the first byte of a name that has a meaning: `=`, comma, blank or backslash.
fn skip_plain(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*eight);
        // The lowest marked byte is one of them. Those above it may be marked wrongly.
        let marks = b"=, \\".iter().fold(0, |marks, byte| {
            let zero_if_equal = word ^ (ONES * u64::from(*byte));
            marks | (zero_if_equal.wrapping_sub(ONES) & !zero_if_equal)
        });
        let marks = marks & (ONES << 7);
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|byte| !matches!(byte, b'=' | b',' | b' ' | b'\\')) {
        at += 1;
    }
    at
}

/// Returns the place of the newline that ends a line with quotes: the first one outside of texts. A backslash
/// takes the next byte with it. Texts are only in values: behind the tags, where there are more `=` than
/// commas.
fn end_of_line(rest: &[u8], start: usize) -> usize {
    let (mut at, mut in_fields, mut is_quoted, mut equals, mut commas) =
        (start, false, false, 0usize, 0usize);
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' if is_quoted || rest.get(at + 1) != Some(&b'\n') => at += 1,
            b' ' if at > start => in_fields |= rest[at - 1] != b'\\',
            b'=' if in_fields && !is_quoted => equals += 1,
            b',' if in_fields && !is_quoted => commas += 1,
            b'"' if in_fields && equals > commas => is_quoted = !is_quoted,
            b'\n' if !is_quoted => return at,
            _ => {}
        }
        at += 1;
    }
    rest.len()
}

/// Returns the place of the blank that ends the measurement and tags.
fn end_of_series(line: &str) -> Result<usize, Reason> {
    let bytes = line.as_bytes();
    if bytes.first() == Some(&b',') {
        return Err(Reason::MissingMeasurement);
    }
    let mut at = 1;
    while let Some(place) = bytes.get(at..).and_then(|rest| memchr(b' ', rest)) {
        at += place;
        if bytes[at - 1] != b'\\' {
            return if at > HISTORY_KEY_BYTES_MAX { Err(Reason::KeyTooLong(at)) } else { Ok(at) };
        }
        at += 1;
    }
    // Nothing but a series: its own fault comes first, but for the one that InfluxDB finds later.
    match canonical_series(line, &mut String::new()) {
        Ok(()) | Err(Reason::DuplicateTags) => Err(Reason::MissingFields),
        Err(reason) => Err(reason),
    }
}

/// Reads one of the names of true and false, which a comma, a blank or the end follows.
fn boolean(bytes: &[u8]) -> Result<(Scalar, usize), Reason> {
    let length = memchr2(b',', b' ', bytes).unwrap_or(bytes.len());
    match &bytes[..length] {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => Ok((Scalar::boolean(true), length)),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => Ok((Scalar::boolean(false), length)),
        _ => Err(Reason::InvalidBoolean),
    }
}

/// Returns the place after the value that begins with a quote at `at`, and whether it has a backslash. A
/// quote inside of a text is legal if another one closes what it opens.
fn end_of_text(bytes: &[u8], start: usize) -> Result<(usize, bool), Reason> {
    let (mut at, mut is_quoted, mut has_escape) = (start + 1, true, false);
    loop {
        if is_quoted {
            at += memchr2(b'"', b'\\', &bytes[at..]).unwrap_or(bytes.len() - at);
        }
        match bytes.get(at) {
            None | Some(b',' | b' ') if !is_quoted => break,
            None => return Err(Reason::UnbalancedQuotes),
            Some(b'"') => is_quoted = !is_quoted,
            Some(b'=' | b'\\') if !is_quoted => return Err(Reason::InvalidFieldFormat),
            Some(b'\\') => {
                has_escape = true;
                at += usize::from(at + 1 < bytes.len());
            }
            Some(_) => {}
        }
        at += 1;
    }
    if bytes[at - 1] == b'"' { Ok((at, has_escape)) } else { Err(Reason::InvalidFieldFormat) }
}

impl<'b> Lines<'b> {
    /// Begins at the start of a body whose times have a precision.
    pub fn new(body: &'b [u8], precision: Precision) -> Self {
        Self::from(body, 0, precision)
    }

    /// Goes on in a body from a [`place`](Self::place) behind a line.
    pub fn from(body: &'b [u8], place: usize, precision: Precision) -> Self {
        let at = place.min(body.len());
        let quote = memchr(b'"', &body[at..]).map(|quote| at + quote);
        Lines { body, at, quote, precision, fields: Vec::new(), unescaped: String::new() }
    }

    /// Returns the place behind the last line.
    pub fn place(&self) -> usize {
        self.at
    }

    /// Takes the next line from the body, without its end and the blanks before it.
    fn take(&mut self) -> &'b [u8] {
        let rest = &self.body[self.at..];
        let start = skip_blanks(rest, 0);
        let mut end = memchr(b'\n', rest).unwrap_or(rest.len());
        if self.quote.is_some_and(|quote| quote < self.at) {
            self.quote = memchr(b'"', rest).map(|place| self.at + place);
        }
        let has_quote = self.quote.is_some_and(|quote| quote < self.at + end);
        if has_quote && rest.get(start) != Some(&b'#') {
            end = end_of_line(rest, start);
        }
        self.at = (self.at + end + 1).min(self.body.len());
        let line = rest.get(start..end).unwrap_or_default();
        // A text without its end takes the last newline with it.
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// Returns the next line, or the error of a line that was refused; the next call goes on behind it.
    pub fn next_line(&mut self) -> Option<Result<Line<'b, '_>, LineError<'b>>> {
        let text = loop {
            if self.at == self.body.len() {
                return None;
            }
            let text = self.take();
            if !matches!(text.first(), None | Some(b'#')) {
                break text;
            }
        };
        Some(match self.scan(text) {
            Ok((series, time)) => {
                Ok(Line { series, time, text, fields: &self.fields, unescaped: &self.unescaped })
            }
            Err(reason) => Err(LineError { line: text, reason }),
        })
    }

    fn scan(&mut self, text: &'b [u8]) -> Result<(&'b str, Option<i64>), Reason> {
        self.fields.clear();
        self.unescaped.clear();
        if text.len() > HISTORY_LINE_BYTES_MAX {
            return Err(Reason::LineTooLong(text.len()));
        }
        let line = str::from_utf8(text).map_err(|_| Reason::InvalidUtf8)?;
        let end = end_of_series(line)?;
        let series = &line[..end];
        match self.scan_behind(line, end) {
            Ok(time) => Ok((series, time)),
            // A fault of the series comes first.
            Err(reason) => canonical_series(series, &mut String::new()).and(Err(reason)),
        }
    }

    /// Scans the fields and the time behind the series.
    fn scan_behind(&mut self, line: &'b str, end: usize) -> Result<Option<i64>, Reason> {
        let text = line.as_bytes();
        let at = self.scan_fields(line, skip_blanks(text, end))?;
        if text.len() + KEY_SEPARATOR_BYTES > HISTORY_KEY_BYTES_MAX {
            let longest = self.fields.iter().map(|(name, _)| name.get(&self.unescaped).len()).max();
            let length = end + KEY_SEPARATOR_BYTES + longest.unwrap_or_default();
            if length > HISTORY_KEY_BYTES_MAX {
                return Err(Reason::KeyTooLong(length));
            }
        }
        time(&text[skip_blanks(text, at)..], self.precision)
    }

    /// Scans the fields from `at`; returns the place after them.
    fn scan_fields(&mut self, line: &'b str, mut at: usize) -> Result<usize, Reason> {
        let bytes = line.as_bytes();
        // The other faults of a line come before this one.
        let mut is_malformed = false;
        loop {
            let mut start = at;
            let mut has_escape = false;
            loop {
                at = skip_plain(bytes, at);
                match bytes.get(at) {
                    Some(b'=') => break,
                    None | Some(b' ') => return Err(Reason::InvalidFieldFormat),
                    Some(b',') => {
                        is_malformed = true;
                        start = at + 1;
                    }
                    // A backslash takes the next byte with it.
                    Some(_) => {
                        has_escape = true;
                        at += usize::from(at + 1 < bytes.len());
                    }
                }
                at += 1;
            }
            if at == start {
                return Err(Reason::MissingFieldKey);
            }
            // InfluxDB counts this `=`, and does not find it when it looks for the name.
            is_malformed |= bytes[at - 1] == b'\\';
            let name = self.piece(&line[start..at], has_escape, IN_FIELD);
            at += 1;
            let value = match bytes.get(at) {
                None | Some(b',' | b' ') => return Err(Reason::MissingFieldValue),
                Some(b'0'..=b'9' | b'.' | b'-' | b'N' | b'n') => {
                    let (value, length) = number(&bytes[at..])?;
                    at += length;
                    Scanned::Scalar(value)
                }
                // With too many commas before it, a quote begins no text.
                Some(b'"') if is_malformed => return Err(Reason::InvalidFieldFormat),
                Some(b'"') => {
                    let (end, has_escape) = end_of_text(bytes, at)?;
                    let text = &line[at + 1..end - 1];
                    if text.len() > HISTORY_TEXT_BYTES_MAX {
                        return Err(Reason::TextTooLong(text.len()));
                    }
                    at = end;
                    Scanned::Text(self.piece(text, has_escape, IN_TEXT))
                }
                Some(_) => {
                    let (value, length) = boolean(&bytes[at..])?;
                    at += length;
                    Scanned::Scalar(value)
                }
            };
            if self.fields.len() == HISTORY_FIELDS_MAX {
                return Err(Reason::TooManyFields);
            }
            self.fields.push((name, value));
            if bytes.get(at) != Some(&b',') {
                return if is_malformed { Err(Reason::InvalidFieldFormat) } else { Ok(at) };
            }
            at += 1;
        }
    }

    /// Keeps a part of a line, with its escapes resolved.
    fn piece(&mut self, text: &'b str, has_escape: bool, wanted: &[u8]) -> Piece<'b> {
        if !has_escape {
            return Piece::Sent(text);
        }
        let start = self.unescaped.len();
        push_without_escapes(text, wanted, &mut self.unescaped);
        Piece::Unescaped(start..self.unescaped.len())
    }
}
