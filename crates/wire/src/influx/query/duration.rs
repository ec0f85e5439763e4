//! Durations and times of InfluxQL.

/// Nanoseconds of one second.
const SECOND: i64 = 1_000_000_000;

/// Reads a duration such as `1h30m`: nanoseconds. The error is InfluxDB's text.
pub fn duration(text: &str) -> Result<i64, String> {
    let (mut rest, mut sum) = (text, 0i64);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|char: char| char.is_ascii_digit()).len();
        let count: i64 = rest[..digits].parse().map_err(|_| "invalid duration")?;
        let units = [
            ("ns", 1),
            ("u", 1_000),
            ("µ", 1_000),
            ("ms", SECOND / 1000),
            ("m", 60 * SECOND),
            ("s", SECOND),
            ("h", 3600 * SECOND),
            ("d", 86_400 * SECOND),
            ("w", 7 * 86_400 * SECOND),
        ];
        let unit =
            units.iter().find(|(name, _)| rest[digits..].starts_with(name)).ok_or("invalid duration")?;
        rest = &rest[digits + unit.0.len()..];
        sum = count.checked_mul(unit.1).and_then(|part| sum.checked_add(part)).ok_or_else(|| {
            format!("overflowed duration {count}{}: choose a smaller duration or INF", unit.0)
        })?;
    }
    if text.is_empty() { Err("invalid duration".into()) } else { Ok(sum) }
}

/// Reads a time in quotes: RFC 3339, a date, or a date and time with a blank, in UTC. Returns nanoseconds
/// since 1970.
pub(super) fn time(text: &str) -> Result<i64, String> {
    let invalid = || "invalid timestamp string".to_owned();
    // The library reads more forms than InfluxDB has, all of them beyond a date.
    let timestamp = match text.parse::<jiff::Timestamp>() {
        Ok(timestamp) => timestamp,
        Err(_) => {
            let civil: jiff::civil::DateTime = text.parse().map_err(|_| invalid())?;
            civil.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| invalid())?.timestamp()
        }
    };
    let bound = if timestamp.as_second() < 0 { "underflows" } else { "overflows" };
    i64::try_from(timestamp.as_nanosecond()).map_err(|_| format!("time {timestamp} {bound} time literal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations have the units of InfluxDB, and an end.
    #[test]
    fn durations_are_read() {
        for (text, nanoseconds) in [
            ("0s", 0),
            ("10s", 10 * SECOND),
            ("1h30m", 5400 * SECOND),
            ("1d", 86_400 * SECOND),
            ("2w", 14 * 86_400 * SECOND),
            ("15ms", 15_000_000),
            ("1m1ms", 60 * SECOND + 1_000_000),
            ("5u", 5_000),
            ("5µ", 5_000),
            ("7ns", 7),
            ("15250w", 15_250 * 7 * 86_400 * SECOND),
        ] {
            assert_eq!(duration(text), Ok(nanoseconds), "{text}");
        }
        for text in ["", "3", "1000", "w", "ms", "1.2w", "10x", "10n", "99999999999999999999s"] {
            assert_eq!(duration(text), Err("invalid duration".into()), "{text}");
        }
        let overflow = "overflowed duration 15251w: choose a smaller duration or INF";
        assert_eq!(duration("15251w"), Err(overflow.into()));
    }

    /// Times are read in the forms of InfluxDB, down to the nanosecond.
    #[test]
    fn times_are_read() {
        let base = 1_763_000_000 * SECOND;
        for (text, nanoseconds) in [
            ("2025-11-13T02:13:20Z", base),
            ("2025-11-13T03:13:20+01:00", base),
            ("2025-11-13 02:13:20", base),
            ("2025-11-13 02:13:20.000001", base + 1000),
            ("2025-11-13T02:13:20.123456789Z", base + 123_456_789),
            ("1970-01-01", 0),
            ("1969-12-31", -86_400 * SECOND),
        ] {
            assert_eq!(time(text), Ok(nanoseconds), "{text}");
        }
        for text in ["", "x", "2025-13-01", "2025-11-13T", "now"] {
            assert_eq!(time(text), Err("invalid timestamp string".into()), "{text}");
        }
        assert!(time("2300-01-01").unwrap_err().contains("overflows"));
        assert!(time("1600-01-01").unwrap_err().contains("underflows"));
    }
}
