//! Tags: typed key-value pairs on entries, inherited down the tree.

use std::cmp::Ordering;
use std::fmt;

use crate::error::{Error, Result};
use crate::limits::{TAG_KEY_BYTES_MAX, TAG_TEXT_BYTES_MAX};
use crate::time::TimeMs;
use crate::{canonical_struct, canonical_text};

/// A tag's key: 1 to 64 of `A-Z a-z 0-9 _ . -`, beginning with a letter or `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagKey(Box<str>);

impl TagKey {
    /// Checks `text` and converts it to a key.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > TAG_KEY_BYTES_MAX {
            return Err(Error::limit("the length of a tag's key in bytes", text.len(), TAG_KEY_BYTES_MAX));
        }
        let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !text.bytes().next().is_some_and(first) || !text.bytes().all(good) {
            return Err(Error::invalid(format!(
                "not a valid tag key (a letter or _, then letters, digits, _ . -): {text:.100?}"
            )));
        }
        Ok(TagKey(text.into()))
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

canonical_text!(TagKey, "not a valid tag key");

/// Value of a tag. Integers and reals compare with each other as numbers. A stored text that reads
/// as another type compares as that. Other types compare only with themselves.
#[derive(Clone, Debug, PartialEq)]
pub enum TagValue {
    /// UTF-8 text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number; never NaN.
    Real(f64),
    /// A moment.
    Time(TimeMs),
    /// True or false.
    Boolean(bool),
}

impl TagValue {
    /// Checks the conditions that the type does not enforce.
    pub fn check(&self) -> Result<()> {
        match self {
            TagValue::Text(text) if text.len() > TAG_TEXT_BYTES_MAX => {
                Err(Error::limit("the length of a tag's text in bytes", text.len(), TAG_TEXT_BYTES_MAX))
            }
            TagValue::Real(number) if number.is_nan() => Err(Error::invalid("a tag's value is not a number")),
            _ => Ok(()),
        }
    }

    /// Reads a value as a person writes it. `text:…`, `int:…`, `real:…`, `time:…`, `bool:…` give
    /// the type. Without a type, a whole number, a number, `true` or `false`, and an RFC 3339 time
    /// are recognised; everything else is text.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |kind: &str, value: &str| Error::invalid(format!("not {kind}: {value:.100?}"));
        let value = match text.split_once(':') {
            Some(("text", value)) => TagValue::Text(value.to_owned()),
            Some(("int", value)) => {
                TagValue::Integer(value.parse().map_err(|_| bad("a whole number", value))?)
            }
            Some(("real", value)) => TagValue::Real(value.parse().map_err(|_| bad("a number", value))?),
            Some(("time", value)) => TagValue::Time(TimeMs::parse(value)?),
            Some(("bool", value)) => {
                TagValue::Boolean(value.parse().map_err(|_| bad("true or false", value))?)
            }
            _ => Self::infer(text),
        };
        value.check()?;
        Ok(value)
    }

    fn infer(text: &str) -> Self {
        // Leading zeros and plus signs have a meaning in run numbers and names, so such text stays
        // text.
        let digits = text.strip_prefix('-').unwrap_or(text);
        let numeral = digits.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
            && !(digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0."));
        if numeral {
            if let Ok(number) = text.parse() {
                return TagValue::Integer(number);
            }
            if let Ok(number) = text.parse::<f64>()
                && number.is_finite()
            {
                return TagValue::Real(number);
            }
            if text.contains('T')
                && let Ok(time) = TimeMs::parse(text)
            {
                return TagValue::Time(time);
            }
        }
        match text {
            "true" => TagValue::Boolean(true),
            "false" => TagValue::Boolean(false),
            _ => TagValue::Text(text.to_owned()),
        }
    }

    /// Returns the type's name, as before the colon in [`TagValue::parse`].
    pub fn type_name(&self) -> &'static str {
        match self {
            TagValue::Text(_) => "text",
            TagValue::Integer(_) => "int",
            TagValue::Real(_) => "real",
            TagValue::Time(_) => "time",
            TagValue::Boolean(_) => "bool",
        }
    }

    /// Returns the value as text, without its type.
    fn plain(&self) -> String {
        match self {
            TagValue::Text(text) => text.clone(),
            TagValue::Integer(number) => number.to_string(),
            TagValue::Real(number) => number.to_string(),
            TagValue::Time(time) => time.to_string(),
            TagValue::Boolean(truth) => truth.to_string(),
        }
    }

    /// Returns the order of a stored value and a given one, if there is one. Numbers compare with
    /// numbers, other types with themselves. A stored text that reads as the type of the given
    /// value compares as that. Another text has no order with a number.
    pub fn compare(&self, other: &TagValue) -> Option<Ordering> {
        match (self, other) {
            (TagValue::Text(a), TagValue::Text(b)) => Some(a.cmp(b)),
            (TagValue::Integer(a), TagValue::Integer(b)) => Some(a.cmp(b)),
            (TagValue::Real(a), TagValue::Real(b)) => a.partial_cmp(b),
            (TagValue::Integer(a), TagValue::Real(b)) => compare_numbers(*a, *b),
            (TagValue::Real(a), TagValue::Integer(b)) => compare_numbers(*b, *a).map(Ordering::reverse),
            (TagValue::Time(a), TagValue::Time(b)) => Some(a.cmp(b)),
            (TagValue::Boolean(a), TagValue::Boolean(b)) => Some(a.cmp(b)),
            // A person who writes `k=2016` does not know the type of the stored tag.
            (TagValue::Text(text), other) => match Self::infer(text) {
                TagValue::Text(_) => None,
                read => read.compare(other),
            },
            _ => None,
        }
    }
}

/// Compares exactly: large integers are not rounded to reals.
fn compare_numbers(whole: i64, real: f64) -> Option<Ordering> {
    if real.is_nan() {
        return None;
    }
    if real >= 9_223_372_036_854_775_808.0 {
        return Some(Ordering::Less);
    }
    if real < -9_223_372_036_854_775_808.0 {
        return Some(Ordering::Greater);
    }
    let floor = real.floor();
    Some(whole.cmp(&(floor as i64)).then(if real > floor { Ordering::Less } else { Ordering::Equal }))
}

/// Prints the form that [`TagValue::parse`] reads back: without a type where it can, with the type
/// where it must.
impl fmt::Display for TagValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.plain();
        let typed = !TagValue::parse(&plain).is_ok_and(|read| read == *self);
        if typed { write!(f, "{}:{plain}", self.type_name()) } else { f.write_str(&plain) }
    }
}

/// Canonical bytes. Decoding uses [`TagValue::check`], because stored and sent reals may have any
/// value.
impl crate::codec::Encode for TagValue {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            TagValue::Text(text) => {
                out.push(1);
                text.encode(out);
            }
            TagValue::Integer(number) => {
                out.push(2);
                number.encode(out);
            }
            TagValue::Real(number) => {
                out.push(3);
                number.encode(out);
            }
            TagValue::Time(time) => {
                out.push(4);
                time.encode(out);
            }
            TagValue::Boolean(truth) => {
                out.push(5);
                truth.encode(out);
            }
        }
    }
}
impl crate::codec::Decode for TagValue {
    fn decode(reader: &mut crate::codec::Reader<'_>) -> std::result::Result<Self, crate::codec::DecodeError> {
        use crate::codec::Decode;
        let value = match reader.byte()? {
            1 => TagValue::Text(Decode::decode(reader)?),
            2 => TagValue::Integer(Decode::decode(reader)?),
            3 => TagValue::Real(Decode::decode(reader)?),
            4 => TagValue::Time(Decode::decode(reader)?),
            5 => TagValue::Boolean(Decode::decode(reader)?),
            _ => return Err(reader.error("unknown variant of TagValue")),
        };
        value.check().map_err(|_| reader.error("not a valid tag value"))?;
        Ok(value)
    }
}

/// One tag.
#[derive(Clone, Debug, PartialEq)]
pub struct Tag {
    /// Its key; one value per key and entry.
    pub key: TagKey,
    /// Its value.
    pub value: TagValue,
}

canonical_struct!(Tag { key, value });

impl Tag {
    /// Reads `key=value`, the value as in [`TagValue::parse`].
    pub fn parse(text: &str) -> Result<Self> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| Error::invalid(format!("not a tag (key=value): {text:.100?}")))?;
        Ok(Tag { key: TagKey::parse(key)?, value: TagValue::parse(value)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_written_and_print_so_that_they_read_back() {
        for (text, value) in [
            ("12", TagValue::Integer(12)),
            ("-7", TagValue::Integer(-7)),
            ("0012", TagValue::Text("0012".into())),
            ("1.5e3", TagValue::Real(1500.0)),
            ("nan", TagValue::Text("nan".into())),
            ("true", TagValue::Boolean(true)),
            ("2014-10-24T12:20:25Z", TagValue::Time(TimeMs(1_414_153_225_000))),
            ("2014-10-24", TagValue::Text("2014-10-24".into())),
            ("text:12", TagValue::Text("12".into())),
            ("", TagValue::Text(String::new())),
        ] {
            assert_eq!(TagValue::parse(text).unwrap(), value, "{text}");
            assert_eq!(TagValue::parse(&value.to_string()).unwrap(), value, "{text}");
        }
        assert!(TagValue::parse("int:x").is_err());
        assert!(TagValue::parse("real:NaN").is_err());
    }

    #[test]
    fn numbers_compare_exactly_across_types() {
        let big = i64::MAX - 1;
        assert_eq!(TagValue::Integer(big).compare(&TagValue::Real(i64::MAX as f64)), Some(Ordering::Less));
        assert_eq!(TagValue::Integer(2).compare(&TagValue::Real(2.0)), Some(Ordering::Equal));
        assert_eq!(TagValue::Integer(-3).compare(&TagValue::Real(-2.5)), Some(Ordering::Less));
        assert_eq!(TagValue::Real(2.5).compare(&TagValue::Integer(2)), Some(Ordering::Greater));
        assert_eq!(TagValue::Integer(2).compare(&TagValue::Text("2".into())), None);
    }

    #[test]
    fn stored_text_compares_as_the_value_that_it_reads_as() {
        let order = |text: &str, given| TagValue::Text(text.into()).compare(&TagValue::parse(given).unwrap());
        assert_eq!(order("2016", "2016"), Some(Ordering::Equal));
        assert_eq!(order("2016", "2017"), Some(Ordering::Less));
        assert_eq!(order("10", "9"), Some(Ordering::Greater), "as numbers, not as text");
        assert_eq!(order("10", "text:9"), Some(Ordering::Less), "as text, as requested");
        assert_eq!(order("true", "true"), Some(Ordering::Equal));
        assert_eq!(order("2014-10-24T12:20:25Z", "2014-10-24T12:20:25.001Z"), Some(Ordering::Less));
        for (text, given) in [("Pb-Pb", "3"), ("0012", "12"), ("true", "1"), ("", "0")] {
            assert_eq!(order(text, given), None, "{text} {given}");
        }
    }
}
