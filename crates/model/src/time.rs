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

impl fmt::Display for TimeMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()) {
            Some(timestamp) => fmt::Display::fmt(&timestamp, f),
            None => write!(f, "{}ms", self.0),
        }
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
}
