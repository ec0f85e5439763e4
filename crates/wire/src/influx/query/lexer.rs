//! Tokens of InfluxQL, with their places.

use super::parameters::Parameters;
use super::token::{Place, QueryError, SHOWN_BYTES_MAX, Token};

/// Words that are no names unless they are quoted.
const KEYWORDS: [&str; 80] = [
    "ALL",
    "ALTER",
    "ANALYZE",
    "AND",
    "ANY",
    "AS",
    "ASC",
    "BEGIN",
    "BY",
    "CARDINALITY",
    "CONTINUOUS",
    "CREATE",
    "DATABASE",
    "DATABASES",
    "DEFAULT",
    "DELETE",
    "DESC",
    "DESTINATIONS",
    "DIAGNOSTICS",
    "DISTINCT",
    "DROP",
    "DURATION",
    "END",
    "EVERY",
    "EXACT",
    "EXPLAIN",
    "FALSE",
    "FIELD",
    "FOR",
    "FROM",
    "GRANT",
    "GRANTS",
    "GROUP",
    "GROUPS",
    "IN",
    "INF",
    "INSERT",
    "INTO",
    "KEY",
    "KEYS",
    "KILL",
    "LIMIT",
    "MEASUREMENT",
    "MEASUREMENTS",
    "NAME",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "PASSWORD",
    "POLICIES",
    "POLICY",
    "PRIVILEGES",
    "QUERIES",
    "QUERY",
    "READ",
    "REPLICATION",
    "RESAMPLE",
    "RETENTION",
    "REVOKE",
    "SELECT",
    "SERIES",
    "SET",
    "SHARD",
    "SHARDS",
    "SHOW",
    "SLIMIT",
    "SOFFSET",
    "STATS",
    "SUBSCRIPTION",
    "SUBSCRIPTIONS",
    "TAG",
    "TO",
    "TRUE",
    "USER",
    "USERS",
    "VALUES",
    "WHERE",
    "WITH",
    "WRITE",
];

/// Signs, the longer ones first.
const SIGNS: [&str; 25] = [
    "=~", "!=", "!~", ">=", "<=", "<>", "::", "+", "-", "*", "/", "%", "&", "|", "^", "=", ">", "<", "(",
    ")", ",", ";", ":", ".", "!",
];

/// Reads tokens from a text. A copy is a place to come back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexer<'q> {
    text: &'q str,
    parameters: &'q Parameters,
    place: Place,
    /// Place of the character before.
    before: Place,
    /// InfluxDB counts the end twice if a word, a blank or a comment reaches it.
    counts_end_twice: bool,
}

impl<'q> Lexer<'q> {
    pub(super) fn new(text: &'q str, parameters: &'q Parameters) -> Self {
        let place = Place::default();
        Lexer { text, parameters, place, before: place, counts_end_twice: false }
    }

    /// Returns the next character without taking it. A carriage return is a newline.
    pub(super) fn peek_char(&self) -> Option<char> {
        self.text.chars().next().map(|char| if char == '\r' { '\n' } else { char })
    }

    /// Takes the next character.
    fn bump(&mut self) -> Option<char> {
        let char = self.peek_char()?;
        let bytes = if self.text.starts_with("\r\n") { 2 } else { char.len_utf8() };
        self.text = &self.text[bytes..];
        self.before = self.place;
        self.place = if char == '\n' {
            Place { line: self.place.line + 1, column: 0 }
        } else {
            Place { line: self.place.line, column: self.place.column + 1 }
        };
        Some(char)
    }

    /// Takes characters while they are wanted.
    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'q str {
        let whole = self.text;
        while self.peek_char().is_some_and(&wanted) {
            self.bump();
        }
        &whole[..whole.len() - self.text.len()]
    }

    /// Takes blanks.
    pub(super) fn skip_blanks(&mut self) {
        if !self.take_while(|char| matches!(char, ' ' | '\t' | '\n')).is_empty() {
            self.counts_end_twice |= self.text.is_empty();
        }
    }

    /// Takes blanks and comments. A comment without its end is left, as a sign that nothing expects.
    fn skip_blanks_and_comments(&mut self) {
        loop {
            self.skip_blanks();
            if self.text.starts_with("--") {
                self.take_while(|char| char != '\n');
                self.counts_end_twice |= self.text.is_empty();
            } else if let Some(end) = self.text.strip_prefix("/*").and_then(|rest| rest.find("*/")) {
                let after = self.text.len() - (end + 4);
                while self.text.len() > after {
                    self.bump();
                }
            } else {
                return;
            }
        }
    }

    /// Takes the next token and tells its place.
    pub(super) fn next(&mut self) -> (Token, Place) {
        self.skip_blanks_and_comments();
        let place = self.place;
        let token = match self.peek_char() {
            None => {
                let column = place.column + usize::from(self.counts_end_twice);
                return (Token::Fixed("EOF"), Place { column, ..place });
            }
            Some(char) if char.is_ascii_alphabetic() || char == '_' => self.word(),
            Some(char) if char.is_ascii_digit() => self.number(),
            Some('.') if self.text[1..].starts_with(|next: char| next.is_ascii_digit()) => self.number(),
            Some('"') => self.quoted().map_or_else(Token::Bad, Token::Name),
            Some('\'') => {
                // InfluxDB tells the place before the quote.
                let before = self.before;
                return (self.quoted().map_or_else(Token::Bad, Token::Text), before);
            }
            Some('$') => {
                self.bump();
                let name = self.take_while(|char| char.is_ascii_alphanumeric() || char == '_');
                self.parameters.get(name).cloned().unwrap_or_else(|| Token::Bad(format!("${name}")))
            }
            Some(char) => self.sign(char),
        };
        (token, place)
    }

    fn word(&mut self) -> Token {
        let word = self.take_while(|char| char.is_ascii_alphanumeric() || char == '_');
        self.counts_end_twice |= self.text.is_empty();
        match KEYWORDS.iter().find(|keyword| keyword.eq_ignore_ascii_case(word)) {
            Some(keyword) => Token::Fixed(keyword),
            None => Token::Name(word.into()),
        }
    }

    fn number(&mut self) -> Token {
        let whole = self.take_while(|char| char.is_ascii_digit());
        if self.peek_char() == Some('.') {
            self.bump();
            let fraction = self.take_while(|char| char.is_ascii_digit());
            return Token::Number(if fraction.is_empty() {
                whole.into()
            } else {
                format!("{whole}.{fraction}")
            });
        }
        let unit = self.take_while(|char| char.is_ascii_alphanumeric() || char == 'µ');
        if unit.is_empty() { Token::Integer(whole.into()) } else { Token::Duration(format!("{whole}{unit}")) }
    }

    /// Reads a text in quotes of the kind that begins here.
    fn quoted(&mut self) -> Result<String, String> {
        let quote = self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                None | Some('\n') => return Err(text),
                char if char == quote => return Ok(text),
                Some('\\') => match self.bump() {
                    Some('n') => text.push('\n'),
                    Some(char @ ('\\' | '"' | '\'')) => text.push(char),
                    other => return Err(other.map_or("\\".into(), |char| format!("\\{char}"))),
                },
                Some(char) => text.push(char),
            }
        }
    }

    fn sign(&mut self, char: char) -> Token {
        let Some(sign) = SIGNS.iter().find(|sign| self.text.starts_with(**sign)) else {
            self.bump();
            return Token::Bad(char.into());
        };
        for _ in 0..sign.len() {
            self.bump();
        }
        Token::Fixed(if *sign == "<>" { "!=" } else { sign })
    }

    /// Takes the regular expression that begins here, after blanks; none if another thing does. The
    /// escape `\/` is resolved, others are left to the expression.
    pub(super) fn pattern(&mut self) -> Result<Option<(String, Place)>, QueryError> {
        self.skip_blanks();
        if self.peek_char() != Some('/') {
            return Ok(None);
        }
        let place = self.place;
        self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                None | Some('\n') => return Err(self.error(&format!("bad regex: {text}"), place)),
                Some('/') => return Ok(Some((text, place))),
                Some('\\') if self.peek_char() == Some('/') => {
                    self.bump();
                    text.push('/');
                }
                Some(char) => text.push(char),
            }
        }
    }

    /// Returns an error with a place.
    pub(super) fn error(&self, message: &str, place: Place) -> QueryError {
        let shown = &message[..message.floor_char_boundary(SHOWN_BYTES_MAX)];
        QueryError::new(format!("{shown} at line {}, char {}", place.line + 1, place.column + 1))
    }

    /// Returns the error for a token in place of an expected one.
    pub(super) fn unexpected(&self, found: &Token, expected: &[&str], place: Place) -> QueryError {
        let (line, column) = (place.line + 1, place.column + 1);
        let (found, expected) = (found.shown(), expected.join(", "));
        QueryError::new(format!("found {found}, expected {expected} at line {line}, char {column}"))
    }
}
