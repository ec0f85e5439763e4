//! Values of the history of elements: five types, exact in every bit.

use std::fmt;

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

    /// A stored number of a type is read back as that type.
    #[test]
    fn types_have_stored_numbers() {
        for kind in FieldType::ALL {
            assert_eq!(FieldType::from_number(kind.number()), Some(kind));
        }
        assert_eq!(FieldType::from_number(5), None);
    }
}
