//! Times as sources write them.

use crate::limits::TIME_US_MAX;

/// Reads a time: a number of seconds (also with a fraction), milliseconds, microseconds or nanoseconds since
/// 1970, told apart by its size, or a date with a time, as RFC 3339 or SQL has it. Without a zone it is UTC.
///
/// # Errors
/// Says what is wrong.
pub fn parse_time_us(text: &str) -> Result<u64, &'static str> {
    let text = text.trim();
    let within = |time: u64| (time <= TIME_US_MAX).then_some(time).ok_or("the time is behind the year 9999");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !whole.is_empty() && is_number(whole) && is_number(fraction) {
        let number: u64 = whole.parse().map_err(|_| "the time is too large")?;
        if !fraction.is_empty() || number < SECONDS_BELOW {
            let micros = format!("{fraction:0<6}");
            let micros: u64 = micros.get(..6).and_then(|micros| micros.parse().ok()).unwrap_or(0);
            let seconds = number.checked_mul(1_000_000).and_then(|time| time.checked_add(micros));
            return within(seconds.unwrap_or(u64::MAX));
        }
        return within(match number {
            ..MILLIS_BELOW => number.saturating_mul(1000),
            MILLIS_BELOW..MICROS_BELOW => number,
            _ => number / 1000,
        });
    }
    let zoned: Option<jiff::Timestamp> = text.parse().ok();
    let time = match zoned {
        Some(time) => time,
        None => {
            let civil: jiff::civil::DateTime = text.parse().map_err(|_| "the time cannot be read")?;
            let zoned = civil.to_zoned(jiff::tz::TimeZone::UTC);
            zoned.map_err(|_| "the time cannot be read")?.timestamp()
        }
    };
    within(u64::try_from(time.as_microsecond()).map_err(|_| "the time is before 1970")?)
}

/// Bounds of numbers without a fraction: until the year 5138 in seconds, and since 1973 in the others.
const SECONDS_BELOW: u64 = 100_000_000_000;
const MILLIS_BELOW: u64 = 100_000_000_000_000;
const MICROS_BELOW: u64 = 100_000_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_forms_are_the_same() {
        let expected = Ok(1_608_526_077_294_000);
        for text in [
            "1608526077.294",
            "1608526077.2940001",
            "1608526077294",
            "1608526077294000",
            "1608526077294000000",
            "2020-12-21T04:47:57.294Z",
            "2020-12-21T05:47:57.294+01:00",
            "2020-12-21 04:47:57.294",
            " 2020-12-21T04:47:57.294 ",
        ] {
            assert_eq!(parse_time_us(text), expected, "{text}");
        }
        assert_eq!(parse_time_us("1608526077"), Ok(1_608_526_077_000_000));
        assert_eq!(parse_time_us("0"), Ok(0));
        for bad in [
            "",
            ".",
            ".5",
            "-1",
            "1e9",
            "now",
            "1969-12-31T23:59:59Z",
            "99999999999999999999",
            "2020-13-01T00:00:00Z",
        ] {
            assert!(parse_time_us(bad).is_err(), "{bad}");
        }
        assert!(parse_time_us("99999999999.5").is_ok());
        assert!(parse_time_us("999999999999.5").is_err(), "seconds behind the year 9999");
    }
}
