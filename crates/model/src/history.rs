//! Vocabulary of the history of elements: groups, and values of five types, exact in every bit.

use std::fmt;

use crate::account::AccountName;
use crate::error::{Error, Result};
use crate::limits::HISTORY_GROUP_NAME_BYTES_MAX;
use crate::operation::Owner;
use crate::time::TimeMs;
use crate::{canonical_struct, canonical_text};

/// Name of a group of elements, which clients of InfluxDB call a database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Box<str>);

canonical_text!(GroupName, "bad name of a group of elements");

impl GroupName {
    /// Checks `text` and converts it to a name: printable, without a slash, quotes and backslashes.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > HISTORY_GROUP_NAME_BYTES_MAX {
            return Err(Error::limit(
                "the length of a group's name in bytes",
                text.len(),
                HISTORY_GROUP_NAME_BYTES_MAX,
            ));
        }
        let good =
            |letter: char| !letter.is_control() && !letter.is_whitespace() && !"/\\\"'`:".contains(letter);
        if text.is_empty() || text.starts_with(['-', '.']) || !text.chars().all(good) {
            return Err(Error::invalid(format!(
                "not a valid name of a group of elements (no blanks, no / \\ \" ' ` or :): {text:.100?}"
            )));
        }
        Ok(GroupName(text.into()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Moment of a value: nanoseconds since 1970, which may be before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeNs(pub i64);

impl TimeNs {
    /// Reads RFC 3339, a date, a date and time in UTC, or whole seconds since 1970.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(format!(
                "not a time between 1677 and 2262 (RFC 3339, a date, or seconds since 1970): {text:.100?}"
            ))
        };
        let timestamp = if let Ok(seconds) = text.parse::<i64>() {
            jiff::Timestamp::from_second(seconds).map_err(|_| bad())?
        } else if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
            timestamp
        } else {
            let civil: jiff::civil::DateTime = text.parse().map_err(|_| bad())?;
            civil.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| bad())?.timestamp()
        };
        i64::try_from(timestamp.as_nanosecond()).map(TimeNs).map_err(|_| bad())
    }
}

impl fmt::Display for TimeNs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(timestamp) => write!(out, "{timestamp}"),
            Err(_) => write!(out, "{} ns", self.0),
        }
    }
}

/// Settings of a group of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Its name.
    pub name: GroupName,
    /// The user who may change its settings; none for administrators only.
    pub owner: Option<AccountName>,
    /// Users and groups who may read it; empty for everybody.
    pub readers: Vec<Owner>,
    /// Users and groups who may write to it, besides its owner.
    pub writers: Vec<Owner>,
    /// Days that values are kept; 0 for ever.
    pub retention_days: u32,
    /// Largest number of elements.
    pub elements_max: u32,
    /// Time at which it was made.
    pub created: TimeMs,
}

impl GroupSettings {
    /// Returns the settings of a group without an owner, that everybody may read, for ever.
    pub fn new(name: GroupName, elements_max: u32, created: TimeMs) -> Self {
        let (owner, readers, writers) = (None, Vec::new(), Vec::new());
        GroupSettings { name, owner, readers, writers, retention_days: 0, elements_max, created }
    }
}

canonical_struct!(GroupSettings { name, owner, readers, writers, retention_days, elements_max, created });

/// Type of a field. A field never changes its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldType {
    /// IEEE 754 of 64 bits; NaN, infinities and the sign of zero are kept.
    Float,
    /// Signed, 64 bits.
    Integer,
    /// Unsigned, 64 bits.
    Unsigned,
    /// True or false.
    Boolean,
    /// UTF-8.
    Text,
}

impl FieldType {
    /// All types; a stored number is the position here.
    pub const ALL: [FieldType; 5] =
        [FieldType::Float, FieldType::Integer, FieldType::Unsigned, FieldType::Boolean, FieldType::Text];

    /// Returns its name, as clients of InfluxDB know it.
    pub const fn name(self) -> &'static str {
        match self {
            FieldType::Float => "float",
            FieldType::Integer => "integer",
            FieldType::Unsigned => "unsigned",
            FieldType::Boolean => "boolean",
            FieldType::Text => "string",
        }
    }

    /// Returns its stored number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the type of a stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Value of a field, which borrows its text.
#[derive(Clone, Copy, Debug)]
pub enum FieldRef<'a> {
    /// Number with a fraction.
    Float(f64),
    /// Whole number with a sign.
    Integer(i64),
    /// Whole number without a sign.
    Unsigned(u64),
    /// True or false.
    Boolean(bool),
    /// Text.
    Text(&'a str),
}

impl FieldRef<'_> {
    /// Returns its type.
    pub const fn kind(&self) -> FieldType {
        match self {
            FieldRef::Float(_) => FieldType::Float,
            FieldRef::Integer(_) => FieldType::Integer,
            FieldRef::Unsigned(_) => FieldType::Unsigned,
            FieldRef::Boolean(_) => FieldType::Boolean,
            FieldRef::Text(_) => FieldType::Text,
        }
    }

    /// Returns a copy that owns its text.
    pub fn to_value(self) -> FieldValue {
        match self {
            FieldRef::Float(value) => FieldValue::Float(value),
            FieldRef::Integer(value) => FieldValue::Integer(value),
            FieldRef::Unsigned(value) => FieldValue::Unsigned(value),
            FieldRef::Boolean(value) => FieldValue::Boolean(value),
            FieldRef::Text(value) => FieldValue::Text(value.into()),
        }
    }
}

/// Equal in type and in every bit: a NaN equals itself, and 0 is not -0.
impl PartialEq for FieldRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (FieldRef::Float(one), FieldRef::Float(other)) => one.to_bits() == other.to_bits(),
            (FieldRef::Integer(one), FieldRef::Integer(other)) => one == other,
            (FieldRef::Unsigned(one), FieldRef::Unsigned(other)) => one == other,
            (FieldRef::Boolean(one), FieldRef::Boolean(other)) => one == other,
            (FieldRef::Text(one), FieldRef::Text(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for FieldRef<'_> {}

/// Value of a field.
#[derive(Clone, Debug)]
pub enum FieldValue {
    /// Number with a fraction.
    Float(f64),
    /// Whole number with a sign.
    Integer(i64),
    /// Whole number without a sign.
    Unsigned(u64),
    /// True or false.
    Boolean(bool),
    /// Text.
    Text(Box<str>),
}

impl FieldValue {
    /// Borrows it.
    pub fn borrow(&self) -> FieldRef<'_> {
        match self {
            FieldValue::Float(value) => FieldRef::Float(*value),
            FieldValue::Integer(value) => FieldRef::Integer(*value),
            FieldValue::Unsigned(value) => FieldRef::Unsigned(*value),
            FieldValue::Boolean(value) => FieldRef::Boolean(*value),
            FieldValue::Text(value) => FieldRef::Text(value),
        }
    }

    /// Returns its type.
    pub fn kind(&self) -> FieldType {
        self.borrow().kind()
    }
}

impl PartialEq for FieldValue {
    fn eq(&self, other: &Self) -> bool {
        self.borrow() == other.borrow()
    }
}

impl Eq for FieldValue {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value equals another of the same type and bits only.
    #[test]
    fn values_are_compared_by_type_and_bits() {
        let nan = f64::from_bits(0x7ff8_0000_0000_0001);
        assert_eq!(FieldRef::Float(nan), FieldRef::Float(nan));
        assert_ne!(FieldRef::Float(nan), FieldRef::Float(f64::NAN));
        assert_ne!(FieldRef::Float(0.0), FieldRef::Float(-0.0));
        assert_ne!(FieldRef::Integer(1), FieldRef::Unsigned(1));
        assert_eq!(FieldRef::Text("a").to_value().borrow(), FieldRef::Text("a"));
    }

    /// Times are read and printed to the nanosecond, also before 1970, and not beyond 64 bits.
    #[test]
    fn times_are_read_and_printed() {
        for (text, ns) in [
            ("2025-11-13T02:13:20.000000001Z", 1_763_000_000_000_000_001),
            ("1969-12-31T23:59:59Z", -1_000_000_000),
            ("2262-04-11T23:47:16.854775807Z", i64::MAX),
        ] {
            assert_eq!(TimeNs::parse(text).unwrap(), TimeNs(ns), "{text}");
            assert_eq!(TimeNs(ns).to_string(), text);
        }
        assert_eq!(TimeNs::parse("1763000000").unwrap(), TimeNs(1_763_000_000_000_000_000));
        assert_eq!(TimeNs::parse("1970-01-02").unwrap(), TimeNs(86_400_000_000_000));
        for text in ["", "x", "2262-04-11T23:47:16.854775808Z", "99999999999999"] {
            assert!(TimeNs::parse(text).is_err(), "{text}");
        }
    }

    /// A stored number of a type is read back as that type.
    #[test]
    fn types_have_stored_numbers() {
        for kind in FieldType::ALL {
            assert_eq!(FieldType::from_number(kind.number()), Some(kind));
        }
        assert_eq!(FieldType::from_number(5), None);
    }
}
