//! Reasons why a line is refused, in InfluxDB's words.

use std::fmt;

/// Bytes of a refused line in a message.
const SHOWN_BYTES_MAX: usize = 1024;

/// Reason why a line is refused. Those behind [`InvalidUtf8`](Reason::InvalidUtf8) are exacat's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The line begins with a comma.
    #[error("missing measurement")]
    MissingMeasurement,
    /// The line ends with its tags.
    #[error("missing fields")]
    MissingFields,
    /// A comma without a tag behind it.
    #[error("missing tag key")]
    MissingTagKey,
    /// A tag without `=`, or with nothing behind it.
    #[error("missing tag value")]
    MissingTagValue,
    /// A second `=` in a tag.
    #[error("invalid tag format")]
    InvalidTagFormat,
    /// Two tags of one key.
    #[error("duplicate tags")]
    DuplicateTags,
    /// A `=` without a name before it.
    #[error("missing field key")]
    MissingFieldKey,
    /// A `=` without a value behind it.
    #[error("missing field value")]
    MissingFieldValue,
    /// Fields that are not `name=value`, separated by commas.
    #[error("invalid field format")]
    InvalidFieldFormat,
    /// A value that begins as a number and is none. NaN is none.
    #[error("invalid number")]
    InvalidNumber,
    /// A number with a fraction or an exponent that no 64-bit float can be.
    #[error("invalid float")]
    InvalidFloat,
    /// A value that is neither number nor text nor one of the names of true and false.
    #[error("invalid boolean")]
    InvalidBoolean,
    /// A text without its end.
    #[error("unbalanced quotes")]
    UnbalancedQuotes,
    /// An integer beyond 64 bits.
    #[error("unable to parse integer {0}: strconv.ParseInt: parsing \"{0}\": value out of range")]
    IntegerRange(String),
    /// An unsigned integer beyond 64 bits.
    #[error("unable to parse unsigned {0}: strconv.ParseUint: parsing \"{0}\": value out of range")]
    UnsignedRange(String),
    /// A time that is no integer.
    #[error("bad timestamp")]
    BadTimestamp,
    /// A time that is only a sign.
    #[error("strconv.ParseInt: parsing \"{0}\": invalid syntax")]
    TimestampSyntax(String),
    /// A time beyond 64 bits, in its own unit.
    #[error("strconv.ParseInt: parsing \"{0}\": value out of range")]
    TimestampRange(String),
    /// A time beyond 64 bits in nanoseconds, or one of the three that InfluxDB keeps for itself.
    #[error("time outside range -9223372036854775806 - 9223372036854775806")]
    TimeRange,
    /// Something behind the time.
    #[error("point is invalid")]
    InvalidPoint,
    /// Too many bytes in the name and tags, or in these with the name of a field.
    #[error("max key length exceeded: {0} > {max}", max = exacat_model::limits::HISTORY_KEY_BYTES_MAX)]
    KeyTooLong(usize),
    /// Bytes that are no UTF-8. InfluxDB stores them.
    #[error("invalid UTF-8")]
    InvalidUtf8,
    /// Too many bytes in the line.
    #[error("max line length exceeded: {0} > {max}", max = exacat_model::limits::HISTORY_LINE_BYTES_MAX)]
    LineTooLong(usize),
    /// Too many tags.
    #[error("max number of tags exceeded: {max}", max = exacat_model::limits::HISTORY_TAGS_MAX)]
    TooManyTags,
    /// Too many fields.
    #[error("max number of fields exceeded: {max}", max = exacat_model::limits::HISTORY_FIELDS_MAX)]
    TooManyFields,
    /// Too many bytes in a text value.
    #[error("max text length exceeded: {0} > {max}", max = exacat_model::limits::HISTORY_TEXT_BYTES_MAX)]
    TextTooLong(usize),
    /// A name that no line can carry: empty, with a backslash at its end, or with a newline.
    #[error("not expressible in line protocol: {0:?}")]
    NotExpressible(String),
}

/// A refused line. Its text is InfluxDB's: `unable to parse 'LINE': REASON`, with the first bytes of a
/// very long line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError<'b> {
    /// The line as sent, without the newline and the blanks before it.
    pub line: &'b [u8],
    /// Reason.
    pub reason: Reason,
}

impl fmt::Display for LineError<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.line[..self.line.len().min(SHOWN_BYTES_MAX)];
        let more = if shown.len() < self.line.len() { "…" } else { "" };
        write!(out, "unable to parse '{}{more}': {}", String::from_utf8_lossy(shown), self.reason)
    }
}

impl std::error::Error for LineError<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message has the line and the reason, and its length is bounded.
    #[test]
    fn message_shows_the_line_up_to_a_limit() {
        let text = |line: &[u8]| LineError { line, reason: Reason::InvalidNumber }.to_string();
        assert_eq!(text(b"ev v=nan"), "unable to parse 'ev v=nan': invalid number");
        assert_eq!(text(b"a\xff"), "unable to parse 'a\u{fffd}': invalid number");
        let exact = vec![b'x'; SHOWN_BYTES_MAX];
        assert!(!text(&exact).contains('…'));
        assert!(text(&[&exact[..], b"x"].concat()).len() < SHOWN_BYTES_MAX + 50);
    }
}
