//! Time in the catalogue: milliseconds since the Unix epoch, UTC.

use std::fmt;

use crate::canonical_newtype;
use crate::error::{Error, Result};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeMs(pub u64);

canonical_newtype!(TimeMs);

impl TimeMs {
    /// Reads a time in one of these forms:
    ///
    /// - RFC 3339 (`2026-11-21T10:00:00Z`, any offset);
    /// - a date (`2026-11-21`, midnight UTC);
    /// - a date and time with a blank (`2014-10-24 12:20:25`, UTC);
    /// - whole seconds since the epoch.
    pub fn parse(text: &str) -> Result<Self> {
        let bad =
            || Error::invalid(format!("not a time (RFC 3339, a date, or seconds since 1970): {text:.100?}"));
        let trimmed = text.trim();
        if !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit()) {
            let seconds: u64 = trimmed.parse().map_err(|_| bad())?;
            let milliseconds = seconds.checked_mul(1000).ok_or_else(bad)?;
            // Refuses times beyond the year 9999, where the other forms end.
            let printable = i64::try_from(milliseconds).ok().map(jiff::Timestamp::from_millisecond);
            return if matches!(printable, Some(Ok(_))) { Ok(TimeMs(milliseconds)) } else { Err(bad()) };
        }
        let milliseconds = if let Ok(timestamp) = trimmed.parse::<jiff::Timestamp>() {
            timestamp.as_millisecond()
        } else {
            let civil: jiff::civil::DateTime = trimmed.parse().map_err(|_| bad())?;
            civil.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| bad())?.timestamp().as_millisecond()
        };
        u64::try_from(milliseconds).map(TimeMs).map_err(|_| bad())
    }

    /// Adds `ms` milliseconds; stays at the end of time rather than wrap.
    pub fn plus_ms(self, ms: u64) -> Self {
        TimeMs(self.0.saturating_add(ms))
    }
}

/// A moment, split for printing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// From 0 for Thursday, the weekday of 1970-01-01.
    pub weekday: u64,
    /// Year.
    pub year: u64,
    /// From 1.
    pub month: u64,
    /// From 1.
    pub day: u64,
    /// Hour.
    pub hour: u64,
    /// Minute.
    pub minute: u64,
    /// Second.
    pub second: u64,
    /// Millisecond.
    pub millisecond: u64,
}

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Last moment that the library prints: the year 9999 ends first elsewhere.
const LAST_PRINTED_MS: u64 = 253_402_207_200_000;
/// Bytes of the longest text of a time that is read.
const TEXT_BYTES_MAX: usize = b"1970-01-01T00:00:00.000Z".len();

impl TimeMs {
    /// Splits a moment, in UTC. By hand, because listings print two moments in each row.
    pub fn civil(self) -> Civil {
        let (days, ms) = (self.0 / DAY_MS, self.0 % DAY_MS);
        // Counts years from March, so that the leap day is the last day of a year. An era has 400 years.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Civil {
            weekday: days % 7,
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: ms / 3_600_000,
            minute: ms / 60_000 % 60,
            second: ms / 1000 % 60,
            millisecond: ms % 1000,
        }
    }
}

impl Civil {
    /// Appends RFC 3339 to `out`, with so many of the millisecond's digits as are not zero.
    fn write(&self, out: &mut [u8; TEXT_BYTES_MAX]) -> usize {
        let mut put = |at: usize, digits: &[u64]| {
            digits.iter().enumerate().for_each(|(index, digit)| out[at + index] = b'0' + (digit % 10) as u8);
        };
        put(0, &[self.year / 1000, self.year / 100, self.year / 10, self.year]);
        put(5, &[self.month / 10, self.month]);
        put(8, &[self.day / 10, self.day]);
        put(11, &[self.hour / 10, self.hour]);
        put(14, &[self.minute / 10, self.minute]);
        put(17, &[self.second / 10, self.second]);
        let ms = self.millisecond;
        put(20, &[ms / 100, ms / 10, ms]);
        let digits = if ms.is_multiple_of(100) {
            1
        } else if ms.is_multiple_of(10) {
            2
        } else {
            3
        };
        let end = if ms == 0 { 19 } else { 20 + digits };
        for (at, mark) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
            out[at] = mark;
        }
        if ms > 0 {
            out[19] = b'.';
        }
        out[end] = b'Z';
        end + 1
    }
}

impl fmt::Display for TimeMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > LAST_PRINTED_MS {
            return write!(f, "{}ms", self.0);
        }
        let mut text = [0; TEXT_BYTES_MAX];
        let length = self.civil().write(&mut text);
        f.write_str(text.get(..length).and_then(|text| str::from_utf8(text).ok()).ok_or(fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_forms_are_read() {
        for (text, ms) in [
            ("1970-01-01T00:00:01Z", 1_000),
            ("2014-10-24 12:20:25", 1_414_153_225_000),
            ("2014-10-24T14:20:25+02:00", 1_414_153_225_000),
            ("2014-10-24", 1_414_108_800_000),
            ("1414153225", 1_414_153_225_000),
        ] {
            assert_eq!(TimeMs::parse(text).unwrap(), TimeMs(ms), "{text}");
        }
        for bad in ["", "yesterday", "1960-01-01T00:00:00Z", "99999999999999999999", "999999999999999"] {
            assert!(TimeMs::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(TimeMs(1_414_153_225_000).to_string(), "2014-10-24T12:20:25Z");
        assert_eq!(TimeMs(u64::MAX).to_string(), format!("{}ms", u64::MAX));
    }

    /// Goal: the text is that of the library which reads it, on every day of 400 years.
    #[test]
    fn text_agrees_with_the_library() {
        let of_library = |ms: u64| {
            jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap()).ok().map(|time| time.to_string())
        };
        for day in 0..146_097 {
            let ms = day * DAY_MS + day * 1_000_003 % DAY_MS;
            assert_eq!(Some(TimeMs(ms).to_string()), of_library(ms));
        }
        for ms in 0..1001 {
            assert_eq!(Some(TimeMs(ms).to_string()), of_library(ms));
            assert_eq!(TimeMs::parse(&TimeMs(ms).to_string()), Ok(TimeMs(ms)));
        }
        assert_eq!(Some(TimeMs(LAST_PRINTED_MS).to_string()), of_library(LAST_PRINTED_MS));
        assert_eq!(of_library(LAST_PRINTED_MS + 1), None);
    }
}
