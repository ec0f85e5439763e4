//! Queries: expressions over tags, patterns over names, and the filters of a find.

use std::cmp::Ordering;

use crate::account::{GroupId, UserId};
use crate::entry::{Entry, Kind};
use crate::error::{Error, Result};
use crate::limits::{PATTERN_BYTES_MAX, TAG_EXPRESSION_DEPTH_MAX, TAG_EXPRESSION_TERMS_MAX};
use crate::se::SeNumber;
use crate::tag::{TagKey, TagValue};
use crate::time::TimeMs;
use crate::{canonical_enum, canonical_struct};

/// Comparison of a value, such as that of a tag, with a given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`: the tag exists, and `=` does not hold.
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

canonical_enum!(Comparison { 1 => Equal, 2 => NotEqual, 3 => Less, 4 => AtMost, 5 => Greater, 6 => AtLeast });

impl Comparison {
    /// Says whether it holds for two values in this order. Values without an order are unequal, and
    /// neither is less.
    pub fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Comparison::Equal => order.is_some_and(Ordering::is_eq),
            Comparison::NotEqual => order.is_none_or(Ordering::is_ne),
            Comparison::Less => order.is_some_and(Ordering::is_lt),
            Comparison::AtMost => order.is_some_and(Ordering::is_le),
            Comparison::Greater => order.is_some_and(Ordering::is_gt),
            Comparison::AtLeast => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// Condition on the tags that an entry has of its own or inherits; the nearest value counts.
#[derive(Clone, Debug, PartialEq)]
pub enum TagExpression {
    /// The tag exists and its value compares as given.
    Compare {
        /// Key of the tag.
        key: TagKey,
        /// The comparison.
        comparison: Comparison,
        /// The given value.
        value: TagValue,
    },
    /// The tag's value is one of these.
    In {
        /// Key of the tag.
        key: TagKey,
        /// The values.
        values: Vec<TagValue>,
    },
    /// The tag exists.
    Exists(TagKey),
    /// Both hold.
    And(Box<TagExpression>, Box<TagExpression>),
    /// One of them holds.
    Or(Box<TagExpression>, Box<TagExpression>),
    /// The condition does not hold.
    Not(Box<TagExpression>),
}

impl TagExpression {
    /// Says whether it holds for an entry; `lookup` finds the entry's tags.
    pub fn holds<'a>(&self, lookup: &impl Fn(&TagKey) -> Option<&'a TagValue>) -> bool {
        match self {
            TagExpression::Compare { key, comparison, value } => {
                lookup(key).is_some_and(|found| comparison.holds(found.compare(value)))
            }
            TagExpression::In { key, values } => lookup(key).is_some_and(|found| {
                values.iter().any(|value| found.compare(value) == Some(Ordering::Equal))
            }),
            TagExpression::Exists(key) => lookup(key).is_some(),
            TagExpression::And(a, b) => a.holds(lookup) && b.holds(lookup),
            TagExpression::Or(a, b) => a.holds(lookup) || b.holds(lookup),
            TagExpression::Not(a) => !a.holds(lookup),
        }
    }

    /// Reads an expression:
    ///
    /// ```text
    /// expression = term { "or" term }        term = factor { "and" factor }
    /// factor     = "not" factor | "(" expression ")" | "exists" key
    ///            | key ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
    ///            | key "in" "(" value { "," value } ")"
    /// ```
    ///
    /// A value is a bare word as [`TagValue::parse`] reads it, or text in single or double quotes.
    pub fn parse(text: &str) -> Result<Self> {
        let tokens = tokenize(text)?;
        let mut parser = Parser { tokens: &tokens, position: 0, terms: 0 };
        let expression = parser.expression(0)?;
        if parser.position != tokens.len() {
            return Err(Error::invalid(format!("text follows the end of the tag expression: {text:.200?}")));
        }
        Ok(expression)
    }
}

impl crate::codec::Encode for TagExpression {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            TagExpression::Compare { key, comparison, value } => {
                out.push(1);
                key.encode(out);
                comparison.encode(out);
                value.encode(out);
            }
            TagExpression::In { key, values } => {
                out.push(2);
                key.encode(out);
                values.encode(out);
            }
            TagExpression::Exists(key) => {
                out.push(3);
                key.encode(out);
            }
            TagExpression::And(a, b) => {
                out.push(4);
                a.encode(out);
                b.encode(out);
            }
            TagExpression::Or(a, b) => {
                out.push(5);
                a.encode(out);
                b.encode(out);
            }
            TagExpression::Not(a) => {
                out.push(6);
                a.encode(out);
            }
        }
    }
}

impl crate::codec::Decode for TagExpression {
    fn decode(reader: &mut crate::codec::Reader<'_>) -> std::result::Result<Self, crate::codec::DecodeError> {
        decode_expression(reader, 0, &mut 0)
    }
}

/// Decodes with bounds on depth and size, which a derived decoder would not have: anyone may send
/// these bytes.
fn decode_expression(
    reader: &mut crate::codec::Reader<'_>,
    depth: usize,
    terms: &mut usize,
) -> std::result::Result<TagExpression, crate::codec::DecodeError> {
    use crate::codec::Decode;
    *terms += 1;
    // A chain of `and`s nests to the left as deep as it has terms, so the bound on terms bounds the
    // depth too.
    if depth > TAG_EXPRESSION_TERMS_MAX || *terms > 2 * TAG_EXPRESSION_TERMS_MAX {
        return Err(reader.error("tag expression beyond its limits"));
    }
    Ok(match reader.byte()? {
        1 => TagExpression::Compare {
            key: Decode::decode(reader)?,
            comparison: Decode::decode(reader)?,
            value: Decode::decode(reader)?,
        },
        2 => TagExpression::In { key: Decode::decode(reader)?, values: Decode::decode(reader)? },
        3 => TagExpression::Exists(Decode::decode(reader)?),
        4 => TagExpression::And(
            Box::new(decode_expression(reader, depth + 1, terms)?),
            Box::new(decode_expression(reader, depth + 1, terms)?),
        ),
        5 => TagExpression::Or(
            Box::new(decode_expression(reader, depth + 1, terms)?),
            Box::new(decode_expression(reader, depth + 1, terms)?),
        ),
        6 => TagExpression::Not(Box::new(decode_expression(reader, depth + 1, terms)?)),
        _ => return Err(reader.error("unknown variant of TagExpression")),
    })
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Quoted(String),
    Symbol(&'static str),
}

fn tokenize(text: &str) -> Result<Vec<Token>> {
    const SYMBOLS: [&str; 9] = ["!=", "<=", ">=", "=", "<", ">", "(", ")", ","];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if tokens.len() > 8 * TAG_EXPRESSION_TERMS_MAX {
            return Err(Error::limit(
                "the number of words of a tag expression",
                tokens.len(),
                8 * TAG_EXPRESSION_TERMS_MAX,
            ));
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else if first == '\'' || first == '"' {
            let inner = &rest[1..];
            let end = inner.find(first).ok_or_else(|| {
                Error::invalid(format!("tag expression has a quote without its end: {text:.200?}"))
            })?;
            tokens.push(Token::Quoted(inner[..end].to_owned()));
            rest = &inner[end + 1..];
        } else {
            let end = rest
                .find(|character: char| character.is_whitespace() || "!=<>(),'\"".contains(character))
                .unwrap_or(rest.len());
            if end == 0 {
                return Err(Error::invalid(format!("tag expression has a stray {first:?}: {text:.200?}")));
            }
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

struct Parser<'a> {
    tokens: &'a [Token],
    position: usize,
    terms: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.position)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(next)) if next.eq_ignore_ascii_case(word));
        self.position += usize::from(found);
        found
    }

    fn take_symbol(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(next)) if *next == wanted);
        self.position += usize::from(found);
        found
    }

    fn need_symbol(&mut self, wanted: &str) -> Result<()> {
        if self.take_symbol(wanted) {
            return Ok(());
        }
        Err(Error::invalid(format!("tag expression: '{wanted}' is missing")))
    }

    fn expression(&mut self, depth: usize) -> Result<TagExpression> {
        if depth > TAG_EXPRESSION_DEPTH_MAX {
            return Err(Error::limit("the depth of a tag expression", depth, TAG_EXPRESSION_DEPTH_MAX));
        }
        let mut left = self.term(depth)?;
        while self.take_word("or") {
            left = TagExpression::Or(Box::new(left), Box::new(self.term(depth)?));
        }
        Ok(left)
    }

    fn term(&mut self, depth: usize) -> Result<TagExpression> {
        let mut left = self.factor(depth)?;
        while self.take_word("and") {
            left = TagExpression::And(Box::new(left), Box::new(self.factor(depth)?));
        }
        Ok(left)
    }

    fn factor(&mut self, depth: usize) -> Result<TagExpression> {
        self.terms += 1;
        if self.terms > TAG_EXPRESSION_TERMS_MAX {
            return Err(Error::limit(
                "the number of terms of a tag expression",
                self.terms,
                TAG_EXPRESSION_TERMS_MAX,
            ));
        }
        if self.take_word("not") {
            if depth >= TAG_EXPRESSION_DEPTH_MAX {
                return Err(Error::limit(
                    "the depth of a tag expression",
                    depth + 1,
                    TAG_EXPRESSION_DEPTH_MAX,
                ));
            }
            return Ok(TagExpression::Not(Box::new(self.factor(depth + 1)?)));
        }
        if self.take_symbol("(") {
            let inner = self.expression(depth + 1)?;
            self.need_symbol(")")?;
            return Ok(inner);
        }
        if self.take_word("exists") {
            return Ok(TagExpression::Exists(self.key()?));
        }
        let key = self.key()?;
        if self.take_word("in") {
            self.need_symbol("(")?;
            let mut values = vec![self.value()?];
            while self.take_symbol(",") {
                values.push(self.value()?);
            }
            self.need_symbol(")")?;
            return Ok(TagExpression::In { key, values });
        }
        let comparison = match self.peek() {
            Some(Token::Symbol("=")) => Comparison::Equal,
            Some(Token::Symbol("!=")) => Comparison::NotEqual,
            Some(Token::Symbol("<")) => Comparison::Less,
            Some(Token::Symbol("<=")) => Comparison::AtMost,
            Some(Token::Symbol(">")) => Comparison::Greater,
            Some(Token::Symbol(">=")) => Comparison::AtLeast,
            _ => {
                return Err(Error::invalid(format!(
                    "tag expression: after '{key}' comes =, !=, <, <=, >, >= or in (…)"
                )));
            }
        };
        self.position += 1;
        Ok(TagExpression::Compare { key, comparison, value: self.value()? })
    }

    fn key(&mut self) -> Result<TagKey> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let key = TagKey::parse(word)?;
                self.position += 1;
                Ok(key)
            }
            _ => Err(Error::invalid("tag expression: a tag's key is missing")),
        }
    }

    fn value(&mut self) -> Result<TagValue> {
        let value = match self.peek() {
            Some(Token::Word(word)) => TagValue::parse(word)?,
            Some(Token::Quoted(text)) => TagValue::Text(text.clone()),
            _ => return Err(Error::invalid("tag expression: a value is missing")),
        };
        self.position += 1;
        Ok(value)
    }
}

/// A pattern over a name or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A shell pattern (`*`, `?`, `[a-z]`, `{a,b}`) that the whole last component must match.
    Glob(String),
    /// A regular expression found anywhere in the whole LFN.
    Regex(String),
}

canonical_enum!(Pattern { 1 => Glob(text), 2 => Regex(text) });

/// A compiled pattern.
#[derive(Clone, Debug)]
pub enum Matcher {
    /// Matches the last component.
    Glob(Box<globset::GlobMatcher>),
    /// Matches the whole LFN.
    Regex(Box<regex::Regex>),
}

impl Pattern {
    /// Compiles it; refuses an invalid or too large pattern.
    pub fn compile(&self) -> Result<Matcher> {
        let (Pattern::Glob(text) | Pattern::Regex(text)) = self;
        if text.len() > PATTERN_BYTES_MAX {
            return Err(Error::limit("the length of a pattern in bytes", text.len(), PATTERN_BYTES_MAX));
        }
        match self {
            Pattern::Glob(text) => globset::GlobBuilder::new(text)
                .literal_separator(false)
                .build()
                .map(|glob| Matcher::Glob(Box::new(glob.compile_matcher())))
                .map_err(|error| Error::invalid(format!("bad pattern: {error}"))),
            Pattern::Regex(text) => regex::RegexBuilder::new(text)
                .size_limit(1 << 20)
                .dfa_size_limit(1 << 20)
                .build()
                .map(|regex| Matcher::Regex(Box::new(regex)))
                .map_err(|error| Error::invalid(format!("bad regular expression: {}", in_words(&error)))),
        }
    }
}

/// Returns the reason of a refused expression without the drawing that the parser puts before it.
fn in_words(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => format!("compiled it takes more than {limit} bytes"),
        other => {
            let text = other.to_string();
            text.rsplit("error: ").next().unwrap_or(&text).lines().collect::<Vec<_>>().join(" ")
        }
    }
}

impl Matcher {
    /// Says whether an entry of this name and path matches. Calls `lfn` only if needed.
    pub fn matches(&self, name: &str, lfn: impl FnOnce() -> String) -> bool {
        match self {
            Matcher::Glob(glob) => glob.is_match(name),
            Matcher::Regex(regex) => regex.is_match(&lfn()),
        }
    }
}

/// Conditions of a find; all that are given must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Pattern of the name or path.
    pub pattern: Option<Pattern>,
    /// Permitted kinds; empty for any.
    pub kinds: Vec<Kind>,
    /// Minimum bytes; an entry without a known size does not match.
    pub size_min: Option<u64>,
    /// Maximum bytes.
    pub size_max: Option<u64>,
    /// Earliest modification time.
    pub modified_from: Option<TimeMs>,
    /// End of the modification time, exclusive.
    pub modified_before: Option<TimeMs>,
    /// Earliest creation time.
    pub created_from: Option<TimeMs>,
    /// End of the creation time, exclusive.
    pub created_before: Option<TimeMs>,
    /// Owner.
    pub owner: Option<UserId>,
    /// Group.
    pub group: Option<GroupId>,
    /// SE with a replica.
    pub se: Option<SeNumber>,
    /// Job that made it.
    pub job: Option<u64>,
    /// Condition on its tags, inherited ones included.
    pub tags: Option<TagExpression>,
    /// Maximum levels below the base; 1 is the base's own children.
    pub depth_max: Option<u32>,
    /// True for only files whose size is not known.
    pub size_unknown: bool,
}

canonical_struct!(Filter {
    pattern,
    kinds,
    size_min,
    size_max,
    modified_from,
    modified_before,
    created_from,
    created_before,
    owner,
    group,
    se,
    job,
    tags,
    depth_max,
    size_unknown
});

impl Filter {
    /// Says whether the conditions hold that the entry alone decides: all but pattern, tags and
    /// depth.
    pub fn admits(&self, entry: &Entry) -> bool {
        let size = entry.size();
        (self.kinds.is_empty() || self.kinds.contains(&entry.kind()))
            && self.size_min.is_none_or(|min| size.is_some_and(|size| size >= min))
            && self.size_max.is_none_or(|max| size.is_some_and(|size| size <= max))
            && (!self.size_unknown || (size.is_none() && entry.file().is_some()))
            && self.modified_from.is_none_or(|from| entry.modified >= from)
            && self.modified_before.is_none_or(|before| entry.modified < before)
            && self.created_from.is_none_or(|from| entry.created >= from)
            && self.created_before.is_none_or(|before| entry.created < before)
            && self.owner.is_none_or(|owner| entry.owner == owner)
            && self.group.is_none_or(|group| entry.group == group)
            && self.se.is_none_or(|se| entry.file().is_some_and(|file| file.replica(se).is_some()))
            && self.job.is_none_or(|job| entry.file().is_some_and(|file| file.job == Some(job)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Decode, Encode};
    use crate::tag::Tag;

    fn holds(expression: &str, tags: &[&str]) -> bool {
        let tags: Vec<Tag> = tags.iter().map(|tag| Tag::parse(tag).unwrap()).collect();
        let parsed = TagExpression::parse(expression).unwrap();
        assert_eq!(TagExpression::from_bytes(&parsed.to_bytes()).unwrap(), parsed);
        parsed.holds(&|key: &TagKey| tags.iter().find(|tag| tag.key == *key).map(|tag| &tag.value))
    }

    #[test]
    fn expressions_hold_as_written() {
        let tags = ["run=246087", "energy=6.5", "beam=Pb-Pb", "good=true", "year=text:2016"];
        for yes in [
            "run=246087",
            "run >= 246000 and run < 247000",
            "energy>6",
            "energy <= 7",
            "beam = 'Pb-Pb'",
            "beam in (pp, Pb-Pb)",
            "exists good",
            "not exists bad",
            "(run=1 or beam=\"Pb-Pb\") and good=true",
            "run=1 and run=2 or good=true",
            "run != 1",
            "beam != 3",
            "beam > 'Pa'",
            // The stored year is text.
            "year = 2016",
            "year > 300",
            "run != abc",
        ] {
            assert!(holds(yes, &tags), "{yes}");
        }
        for no in [
            "run=1",
            "missing=1",
            "missing != 1",
            // A text that is no number has no order with one.
            "beam < 3",
            "beam > 3",
            "beam <= 3",
            "beam >= 3",
            "beam = 3",
            "year < 300",
            "not good=true",
            "good=true and (run=1 or run=2)",
            "run in (1,2)",
        ] {
            assert!(!holds(no, &tags), "{no}");
        }
        for bad in
            ["", "run", "run=", "run=1 and", "(run=1", "run=1)", "run in ()", "run=1 run=2", "='x'", "run='x"]
        {
            assert!(TagExpression::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn expressions_are_bounded() {
        let deep = "(".repeat(TAG_EXPRESSION_DEPTH_MAX) + "a=1" + &")".repeat(TAG_EXPRESSION_DEPTH_MAX);
        assert!(TagExpression::parse(&deep).is_ok());
        assert!(TagExpression::parse(&format!("({deep})")).is_err());
        assert!(TagExpression::parse(&("not ".repeat(TAG_EXPRESSION_DEPTH_MAX + 1) + "a=1")).is_err());
        let wide = vec!["a=1"; TAG_EXPRESSION_TERMS_MAX].join(" and ");
        let parsed = TagExpression::parse(&wide).unwrap();
        assert_eq!(TagExpression::from_bytes(&parsed.to_bytes()).unwrap(), parsed);
        assert!(TagExpression::parse(&format!("{wide} and a=1")).is_err());
        assert!(TagExpression::from_bytes(&[6; 100_000]).is_err());
        assert!(TagExpression::from_bytes(&[4; 100_000]).is_err());
    }

    #[test]
    fn globs_match_names_and_regexes_paths() {
        let glob = Pattern::Glob("AOD*.root".into()).compile().unwrap();
        assert!(
            glob.matches("AOD_1.root", || unreachable!()) && !glob.matches("xAOD_1.root", || unreachable!())
        );
        let regex = Pattern::Regex(r"/run\d+/".into()).compile().unwrap();
        assert!(regex.matches("x", || "/a/run12/x".into()) && !regex.matches("x", || "/a/run/x".into()));
        for bad in ["(", "a{2,1}", "[z-a]", "\\q"] {
            let error = Pattern::Regex(bad.into()).compile().unwrap_err();
            assert!(!error.message.contains(['\n', '^']), "{error}");
            assert!(error.message.len() > "bad regular expression: ".len() + 5, "{error}");
        }
        assert!(Pattern::Glob("[".into()).compile().is_err());
        assert!(Pattern::Regex("x{1000}{1000}".into()).compile().is_err());
    }
}
