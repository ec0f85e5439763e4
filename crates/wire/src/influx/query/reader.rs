//! Parts that several statements share: names, numbers, lists, sources.

use exacat_model::limits::INFLUX_PATTERNS_MAX;

use super::duration::duration;
use super::lexer::Lexer;
use super::parameters::Parameters;
use super::statement::{Limits, Pattern, Source, SourceName};
use super::token::{Place, QueryError, Token};

/// Result of reading a part.
pub(super) type Read<T> = Result<T, QueryError>;

/// Reads a query from its start.
#[derive(Debug)]
pub(super) struct Reader<'q> {
    lexer: Lexer<'q>,
    /// Number of regular expressions so far.
    patterns: usize,
}

impl<'q> Reader<'q> {
    pub(super) fn new(text: &'q str, parameters: &'q Parameters) -> Self {
        Reader { lexer: Lexer::new(text, parameters), patterns: 0 }
    }

    /// Takes the next token.
    pub(super) fn next(&mut self) -> (Token, Place) {
        self.lexer.next()
    }

    /// Returns the next token without taking it.
    pub(super) fn peek(&self) -> (Token, Place) {
        let mut copy = self.lexer;
        copy.next()
    }

    /// Takes a keyword or sign if it is next.
    pub(super) fn take(&mut self, wanted: &'static str) -> bool {
        let mut copy = self.lexer;
        let is_next = copy.next().0 == Token::Fixed(wanted);
        if is_next {
            self.lexer = copy;
        }
        is_next
    }

    /// Takes a sign if it follows at once, without a blank.
    pub(super) fn take_adjacent(&mut self, wanted: &'static str) -> bool {
        self.lexer.peek_char() == wanted.chars().next() && self.take(wanted)
    }

    /// Takes a keyword or sign, or refuses.
    pub(super) fn expect(&mut self, wanted: &'static str) -> Read<()> {
        match self.next() {
            (Token::Fixed(found), _) if found == wanted => Ok(()),
            (token, place) => Err(self.unexpected(&token, &[wanted], place)),
        }
    }

    /// Returns the error for a token in place of an expected one.
    pub(super) fn unexpected(&self, found: &Token, expected: &[&str], place: Place) -> QueryError {
        self.lexer.unexpected(found, expected, place)
    }

    /// Returns an error with a place.
    pub(super) fn error(&self, message: &str, place: Place) -> QueryError {
        self.lexer.error(message, place)
    }

    /// Reads a name.
    pub(super) fn name(&mut self) -> Read<String> {
        match self.next() {
            (Token::Name(name), _) => Ok(name),
            (token, place) => Err(self.unexpected(&token, &["identifier"], place)),
        }
    }

    /// Reads a whole number.
    pub(super) fn integer(&mut self) -> Read<u64> {
        match self.next() {
            (Token::Integer(digits), place) => {
                digits.parse().map_err(|_| self.error("unable to parse integer", place))
            }
            (token, place) => Err(self.unexpected(&token, &["integer"], place)),
        }
    }

    /// Reads a duration in nanoseconds.
    pub(super) fn duration(&mut self) -> Read<i64> {
        match self.next() {
            (Token::Duration(text), place) => duration(&text).map_err(|error| self.error(&error, place)),
            (token, place) => Err(self.unexpected(&token, &["duration"], place)),
        }
    }

    /// Reads a duration of retention in nanoseconds; `INF` is 0, for ever.
    pub(super) fn retention(&mut self) -> Read<i64> {
        if self.take("INF") { Ok(0) } else { self.duration() }
    }

    /// Reads a regular expression if one is next.
    pub(super) fn pattern(&mut self) -> Read<Option<Pattern>> {
        let Some((text, place)) = self.lexer.pattern()? else { return Ok(None) };
        self.patterns += 1;
        if self.patterns > INFLUX_PATTERNS_MAX {
            let message = format!("a query has at most {INFLUX_PATTERNS_MAX} regular expressions");
            return Err(self.error(&message, place));
        }
        Pattern::new(text).map(Some).map_err(|error| self.error(&error, place))
    }

    /// Reads a regular expression, or refuses.
    pub(super) fn required_pattern(&mut self) -> Read<Pattern> {
        if let Some(pattern) = self.pattern()? {
            return Ok(pattern);
        }
        let (token, place) = self.next();
        Err(self.unexpected(&token, &["regex"], place))
    }

    /// Reads `keyword` and a name, if the keyword is next.
    pub(super) fn optional_name(&mut self, keyword: &'static str) -> Read<Option<String>> {
        if self.take(keyword) { self.name().map(Some) } else { Ok(None) }
    }

    /// Reads a list of at least one item, separated by commas.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.take(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Reads a limit and an offset behind their keywords, if they are there.
    pub(super) fn limits(&mut self, limit: &'static str, offset: &'static str) -> Read<Limits> {
        let limit = if self.take(limit) { self.integer()? } else { 0 };
        let offset = if self.take(offset) { self.integer()? } else { 0 };
        Ok(Limits { limit: (limit > 0).then_some(limit), offset })
    }

    /// Reads `[database.][policy.]measurement`, where the measurement may be a pattern and a policy empty.
    pub(super) fn source(&mut self) -> Read<Source> {
        if let Some(pattern) = self.pattern()? {
            return Ok(Source { database: None, policy: None, name: SourceName::Matches(pattern) });
        }
        let place = self.peek().1;
        let mut segments = vec![self.name()?];
        let mut pattern = None;
        while self.take_adjacent(".") {
            match self.lexer.peek_char() {
                Some('/') => {
                    pattern = self.pattern()?;
                    break;
                }
                Some('.') => segments.push(String::new()),
                _ => segments.push(self.name()?),
            }
        }
        let name = match pattern {
            Some(pattern) => SourceName::Matches(pattern),
            None => SourceName::Is(segments.pop().unwrap_or_default()),
        };
        if segments.len() > 2 {
            return Err(self.error("too many segments in a measurement", place));
        }
        let mut given = || segments.pop().filter(|segment| !segment.is_empty());
        Ok(Source { policy: given(), database: given(), name })
    }

    /// Reads the list of sources behind `FROM`.
    pub(super) fn sources(&mut self) -> Read<Vec<Source>> {
        self.list(Self::source)
    }
}
