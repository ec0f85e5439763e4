//! Words of InfluxQL, and the error of a query.

use exacat_model::limits::INFLUX_QUERY_BYTES_MAX;

/// Bytes of a token in a message.
pub(super) const SHOWN_BYTES_MAX: usize = 200;

/// Refused query. Its text is the one that InfluxDB answers with status 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing query: {0}")]
pub struct QueryError(String);

impl QueryError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        QueryError(message.into())
    }

    pub(super) fn too_long(length: usize) -> Self {
        QueryError(format!("the query has {length} bytes, more than {INFLUX_QUERY_BYTES_MAX}"))
    }
}

/// Place of a token, for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A word of the language.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A keyword in capitals, a sign, or `EOF`.
    Fixed(&'static str),
    /// A name, quoted or not.
    Name(String),
    /// A text in single quotes.
    Text(String),
    /// Digits.
    Integer(String),
    /// Digits with a point.
    Number(String),
    /// Digits and letters.
    Duration(String),
    /// A text without its end, or with an unknown escape, or a character that begins nothing.
    Bad(String),
}

impl Token {
    /// Returns its text.
    pub(super) fn text(&self) -> &str {
        match self {
            Token::Fixed(text) => text,
            Token::Name(text)
            | Token::Text(text)
            | Token::Integer(text)
            | Token::Number(text)
            | Token::Duration(text)
            | Token::Bad(text) => text,
        }
    }

    /// Returns the start of its text for a message, or its kind if it has none.
    pub(super) fn shown(&self) -> &str {
        let text = self.text();
        match self {
            Token::Name(_) if text.is_empty() => "IDENT",
            Token::Text(_) if text.is_empty() => "STRING",
            Token::Bad(_) if text.is_empty() => "BADSTRING",
            _ => &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)],
        }
    }
}
