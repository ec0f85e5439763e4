//! Numbers of line protocol: values of fields, and times. The common forms are read in one pass; what
//! they do not cover is read again by InfluxDB's rules.

use exacat_model::{FieldRef, FieldType};

use super::precision::Precision;
use super::reason::Reason;

/// Digits whose value always fits into 64 bits, with or without a sign.
const SAFE_DIGITS: usize = 18;
/// Largest whole number up to which each is a float of its own.
const EXACT_MAX: u64 = 1 << 53;
/// Powers of ten that are exact as floats.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];
/// Times that InfluxDB refuses: it keeps the two smallest and the largest for itself.
const TIMES: std::ops::RangeInclusive<i64> = i64::MIN + 2..=i64::MAX - 1;

/// Says whether a value ends here.
fn ends(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at), None | Some(b',' | b' '))
}

/// Adds the digits from `at` to `value`; the sum is wrong beyond [`SAFE_DIGITS`]. Returns it and the place
/// after the digits.
fn digits(bytes: &[u8], mut at: usize, mut value: u64) -> (u64, usize) {
    while let Some(byte @ b'0'..=b'9') = bytes.get(at) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        at += 1;
    }
    (value, at)
}

/// Value of a field that is no text: its type and bits. It stays in registers, where a [`FieldRef`] goes
/// through memory and costs a sixth of the time of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalar {
    kind: FieldType,
    bits: u64,
}

impl Scalar {
    fn float(value: f64) -> Self {
        Scalar { kind: FieldType::Float, bits: value.to_bits() }
    }

    fn integer(value: i64) -> Self {
        Scalar { kind: FieldType::Integer, bits: value as u64 }
    }

    fn unsigned(value: u64) -> Self {
        Scalar { kind: FieldType::Unsigned, bits: value }
    }

    pub(super) fn boolean(value: bool) -> Self {
        Scalar { kind: FieldType::Boolean, bits: value.into() }
    }

    pub(super) fn value(self) -> FieldRef<'static> {
        match self.kind {
            FieldType::Float => FieldRef::Float(f64::from_bits(self.bits)),
            FieldType::Integer => FieldRef::Integer(self.bits as i64),
            FieldType::Unsigned => FieldRef::Unsigned(self.bits),
            FieldType::Boolean => FieldRef::Boolean(self.bits != 0),
            FieldType::Text => FieldRef::Text(""),
        }
    }
}

/// Reads the number at the start, which a comma, a blank or the end follows. Returns it and its length.
#[inline]
pub(super) fn number(bytes: &[u8]) -> Result<(Scalar, usize), Reason> {
    let is_negative = bytes.first() == Some(&b'-');
    let start = usize::from(is_negative);
    let (whole, mut at) = digits(bytes, start, 0);
    if at > start && at - start <= SAFE_DIGITS {
        // The sum of 18 digits fits.
        let signed = if is_negative { (whole as i64).wrapping_neg() } else { whole as i64 };
        match bytes.get(at) {
            Some(b'i') if ends(bytes, at + 1) => return Ok((Scalar::integer(signed), at + 1)),
            Some(b'u') if ends(bytes, at + 1) && !is_negative => {
                return Ok((Scalar::unsigned(whole), at + 1));
            }
            _ => {}
        }
        let (mut mantissa, mut fraction) = (whole, 0);
        if bytes.get(at) == Some(&b'.') {
            let point = at;
            (mantissa, at) = digits(bytes, point + 1, whole);
            fraction = at - point - 1;
        }
        if ends(bytes, at) && at - start <= SAFE_DIGITS && mantissa <= EXACT_MAX {
            // Both are exact, so that the division rounds once and correctly.
            let value = mantissa as f64 / POWERS[fraction];
            return Ok((Scalar::float(if is_negative { -value } else { value }), at));
        }
    }
    by_the_rules(bytes)
}

/// Reads any number: the characters first, as InfluxDB does, so that the reason of a refusal is the same.
#[inline(never)]
fn by_the_rules(bytes: &[u8]) -> Result<(Scalar, usize), Reason> {
    let is_negative = bytes.first() == Some(&b'-');
    let (mut at, mut is_decimal, mut is_scientific, mut suffix) =
        (usize::from(is_negative), false, false, None);
    let mut has_digit = false;
    while !ends(bytes, at) {
        match bytes[at] {
            byte @ (b'i' | b'u') if at > 0 && suffix.is_none() => suffix = Some((byte, at)),
            b'.' if is_decimal => return Err(Reason::InvalidNumber),
            b'.' => is_decimal = true,
            b'e' | b'E' if at > 0 => is_scientific = true,
            b'+' | b'-' if at > 0 && matches!(bytes[at - 1], b'e' | b'E') => {}
            b'0'..=b'9' => has_digit = true,
            _ => return Err(Reason::InvalidNumber),
        }
        at += 1;
    }
    let Some(text) = bytes.get(..at).and_then(|text| str::from_utf8(text).ok()) else {
        return Err(Reason::InvalidNumber);
    };
    let Some((kind, place)) = suffix else {
        // InfluxDB reads the number only if it has an exponent or is long. A short one without digits is
        // refused as a number, a long or scientific one as a float.
        if !has_digit && !is_scientific {
            return Err(Reason::InvalidNumber);
        }
        return match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok((Scalar::float(value), at)),
            _ => Err(Reason::InvalidFloat),
        };
    };
    if is_decimal || is_scientific || !has_digit || place + 1 != at {
        return Err(Reason::InvalidNumber);
    }
    let text = &text[..place];
    match kind {
        b'i' => match text.parse() {
            Ok(value) => Ok((Scalar::integer(value), at)),
            Err(_) => Err(Reason::IntegerRange(text.into())),
        },
        _ if is_negative => Err(Reason::InvalidNumber),
        _ => match text.parse() {
            Ok(value) => Ok((Scalar::unsigned(value), at)),
            Err(_) => Err(Reason::UnsignedRange(text.into())),
        },
    }
}

/// Returns the value of eight digits, the first in the lowest byte; none if a byte is no digit.
fn eight_digits(bytes: [u8; 8]) -> Option<u64> {
    const HIGH: u64 = 0xf0f0_f0f0_f0f0_f0f0;
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    let word = u64::from_le_bytes(bytes);
    // A digit has 3 in its upper half, also after six is added.
    if word & HIGH != ZEROS || word.wrapping_add(0x0606_0606_0606_0606) & HIGH != ZEROS {
        return None;
    }
    // Pairs of digits, then of pairs, then of these: each step adds the lower place ten, hundred, and ten
    // thousand times.
    let word = word - ZEROS;
    let pairs = (word.wrapping_mul(10).wrapping_add(word >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100).wrapping_add(pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours & 0xffff) * 10_000 + (fours >> 32))
}

/// Reads the time at the end of a line, if there is one. Returns nanoseconds since 1970.
pub(super) fn time(bytes: &[u8], precision: Precision) -> Result<Option<i64>, Reason> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let start = usize::from(bytes[0] == b'-');
    let (mut at, mut value) = (start, 0u64);
    while let Some(eight) = bytes[at..].first_chunk().and_then(|bytes| eight_digits(*bytes)) {
        value = value.wrapping_mul(100_000_000).wrapping_add(eight);
        at += 8;
    }
    (value, at) = digits(bytes, at, value);
    if !matches!(bytes.get(at), None | Some(b' ' | b'\n')) {
        return Err(Reason::BadTimestamp);
    }
    let text = || String::from_utf8_lossy(&bytes[..at]).into_owned();
    let units = if at - start <= SAFE_DIGITS {
        if at == start {
            return Err(Reason::TimestampSyntax(text()));
        }
        if start == 1 { (value as i64).wrapping_neg() } else { value as i64 }
    } else {
        text().parse::<i64>().map_err(|_| Reason::TimestampRange(text()))?
    };
    let time = units.checked_mul(precision.nanoseconds()).filter(|time| TIMES.contains(time));
    let time = time.ok_or(Reason::TimeRange)?;
    if bytes[at..].iter().any(|byte| *byte != b' ') {
        return Err(Reason::InvalidPoint);
    }
    Ok(Some(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FieldRef<'static>, Reason> {
        let (value, length) = number(text.as_bytes())?;
        assert_eq!(length, text.len(), "{text}");
        Ok(value.value())
    }

    /// A float is the one that the standard library reads, to the last bit, by every way of reading.
    #[test]
    fn floats_are_rounded_correctly() {
        let mut texts: Vec<String> = [
            "0",
            "-0",
            "-0.0",
            "1.",
            ".5",
            "-.5",
            "829.02",
            "1e5",
            "1.e5",
            "1E-5",
            "1e+5",
            "5e-324",
            "2.5e-324",
            "2.4703282292062327e-324",
            "1.7976931348623157e308",
            "2.2250738585072011e-308",
            "9007199254740993",
            "9007199254740993.0",
            "900719925474099.3",
            "0.000000000000000001",
            "123456789012345678",
            "1234567890123456789",
            "0.1234567890123456789012345678",
            "00000000000000000000000.5",
            "8.98846567431158e307",
            "1.00000000000000011102230246251565",
            "1e-400",
        ]
        .map(String::from)
        .to_vec();
        let mut state = 7u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            texts.push(format!("{}", f64::from_bits(state)));
            texts.push(format!("{}", (state >> 40) as f64 / 1000.0));
            texts.push(format!("{:.1$}", (state >> 11) as f64 / 1e9, (state % 10) as usize));
        }
        for text in texts.iter().filter(|text| !text.contains(['N', 'n'])) {
            let expected: f64 = text.parse().unwrap();
            assert_eq!(read(text), Ok(FieldRef::Float(expected)), "{text}");
        }
    }

    /// Integers reach to both ends of their types, and not beyond.
    #[test]
    fn integers_reach_the_ends_of_their_types() {
        for value in
            [0, 1, -1, i64::MAX, i64::MIN, i64::MIN + 1, 999_999_999_999_999_999, 1_000_000_000_000_000_000]
        {
            assert_eq!(read(&format!("{value}i")), Ok(FieldRef::Integer(value)));
        }
        for value in [0, 1, u64::MAX, i64::MAX as u64 + 1, 1_000_000_000_000_000_000] {
            assert_eq!(read(&format!("{value}u")), Ok(FieldRef::Unsigned(value)));
        }
        assert_eq!(read("0009223372036854775807i"), Ok(FieldRef::Integer(i64::MAX)));
        assert_eq!(read("-0009223372036854775808i"), Ok(FieldRef::Integer(i64::MIN)));
        assert_eq!(read("00018446744073709551615u"), Ok(FieldRef::Unsigned(u64::MAX)));
        let over = "9223372036854775808";
        assert_eq!(read(&format!("{over}i")), Err(Reason::IntegerRange(over.into())));
        assert_eq!(read("-9223372036854775809i"), Err(Reason::IntegerRange("-9223372036854775809".into())));
        assert_eq!(read("18446744073709551616u"), Err(Reason::UnsignedRange("18446744073709551616".into())));
    }

    /// Refused numbers are those of InfluxDB's own tests.
    #[test]
    fn numbers_that_influxdb_refuses_are_refused() {
        for text in [
            "-", "-i", "-.", ".", "1.0i", "1ii", "1a", "42+3", "-123u", ".1a", "0.-1", "1.1.1", "9ie10",
            "9e10i", "--1u", "nan", "NaN", "nAn", "-nan", "-inf", "1i2", "1iu", "-u", "1_0", "0x10", "1\r",
            "1.5u", ".i",
        ] {
            assert_eq!(read(text), Err(Reason::InvalidNumber), "{text}");
        }
        for text in ["-e-e-e", "1e", "1e400", "-1e400", ".e5", "1e+", "1ee5", "1e5e"] {
            assert_eq!(read(text), Err(Reason::InvalidFloat), "{text}");
        }
        let long = "1".repeat(310);
        assert_eq!(read(&long), Err(Reason::InvalidFloat));
    }

    /// A time is that of its unit, and the ends of the range are InfluxDB's.
    #[test]
    fn times_have_a_unit_and_a_range() {
        let read = |text: &str, precision| time(text.as_bytes(), precision);
        let ns = Precision::Nanoseconds;
        assert_eq!(read("", ns), Ok(None));
        assert_eq!(read("-1", ns), Ok(Some(-1)));
        assert_eq!(read("0", ns), Ok(Some(0)));
        assert_eq!(read("1763000000001000000   ", ns), Ok(Some(1_763_000_000_001_000_000)));
        assert_eq!(read("1763000000001", Precision::Milliseconds), Ok(Some(1_763_000_000_001_000_000)));
        assert_eq!(read("2562047", Precision::Hours), Ok(Some(2_562_047 * 3_600_000_000_000)));
        assert_eq!(read("2562048", Precision::Hours), Err(Reason::TimeRange));
        assert_eq!(read("9223372036854775806", ns), Ok(Some(i64::MAX - 1)));
        assert_eq!(read("-9223372036854775806", ns), Ok(Some(i64::MIN + 2)));
        for text in ["9223372036854775807", "-9223372036854775807", "-9223372036854775808"] {
            assert_eq!(read(text, ns), Err(Reason::TimeRange), "{text}");
        }
        assert_eq!(read("9223372037", Precision::Seconds), Err(Reason::TimeRange));
        for text in ["9223372036854775808", "-92233720368547758078"] {
            assert_eq!(read(text, ns), Err(Reason::TimestampRange(text.into())), "{text}");
        }
        for text in ["-/", "-1?", "1-", "0\\", "1i", "1.5", "12345678x", "1\t", "+1"] {
            assert_eq!(read(text, ns), Err(Reason::BadTimestamp), "{text}");
        }
        assert_eq!(read("-", ns), Err(Reason::TimestampSyntax("-".into())));
        assert_eq!(read("1 12", ns), Err(Reason::InvalidPoint));
    }

    /// Eight digits are what they are one by one.
    #[test]
    fn eight_digits_are_read_at_once() {
        for value in [0, 1, 12_345_678, 87_654_321, 99_999_999, 10_000_000, 9_999] {
            let text = format!("{value:08}");
            assert_eq!(eight_digits(text.as_bytes().try_into().unwrap()), Some(value));
        }
        for byte in 0..=255u8 {
            for place in 0..8 {
                let mut bytes = *b"12345678";
                bytes[place] = byte;
                assert_eq!(eight_digits(bytes).is_some(), byte.is_ascii_digit(), "{byte} at {place}");
            }
        }
    }
}
