//! Dates in the two forms of WebDAV. Written by hand: a listing has two of them in each row.

use exacat_model::TimeMs;

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Last moment of the year 9999: both forms have four digits for a year.
const LAST_MS: u64 = 253_402_300_799_999;

const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// A moment, split for printing.
struct Civil {
    weekday: u64,
    year: u64,
    /// From 1.
    month: u64,
    /// From 1.
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

/// Splits a moment. Moments after the year 9999 become its last one.
fn civil(time: TimeMs) -> Civil {
    let ms = time.0.min(LAST_MS);
    let (days, seconds) = (ms / DAY_MS, ms % DAY_MS / 1000);
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
        hour: seconds / 3600,
        minute: seconds / 60 % 60,
        second: seconds % 60,
    }
}

/// Returns the last two decimal digits of a number.
fn two(number: u64) -> [u8; 2] {
    [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

/// Appends a date as `Fri, 24 Oct 2014 12:20:25 GMT`.
pub(super) fn push_http_date(out: &mut Vec<u8>, time: TimeMs) {
    let civil = civil(time);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let pick = |names: &[&'static [u8; 3]], place: u64| {
        usize::try_from(place).ok().and_then(|place| names.get(place).copied()).unwrap_or(b"Jan")
    };
    text[..3].copy_from_slice(pick(&WEEKDAYS, civil.weekday));
    text[5..7].copy_from_slice(&two(civil.day));
    text[8..11].copy_from_slice(pick(&MONTHS, civil.month - 1));
    text[12..14].copy_from_slice(&two(civil.year / 100));
    text[14..16].copy_from_slice(&two(civil.year));
    text[17..19].copy_from_slice(&two(civil.hour));
    text[20..22].copy_from_slice(&two(civil.minute));
    text[23..25].copy_from_slice(&two(civil.second));
    out.extend_from_slice(&text);
}

/// Appends a date as `2014-10-24T12:20:25Z`.
pub(super) fn push_rfc3339_date(out: &mut Vec<u8>, time: TimeMs) {
    let civil = civil(time);
    let mut text = *b"1970-01-01T00:00:00Z";
    text[..2].copy_from_slice(&two(civil.year / 100));
    text[2..4].copy_from_slice(&two(civil.year));
    text[5..7].copy_from_slice(&two(civil.month));
    text[8..10].copy_from_slice(&two(civil.day));
    text[11..13].copy_from_slice(&two(civil.hour));
    text[14..16].copy_from_slice(&two(civil.minute));
    text[17..19].copy_from_slice(&two(civil.second));
    out.extend_from_slice(&text);
}

/// Returns a time as HTTP headers have it: `Fri, 24 Oct 2014 12:20:25 GMT`.
pub fn http_date(time: TimeMs) -> String {
    let mut out = Vec::new();
    push_http_date(&mut out, time);
    String::from_utf8(out).unwrap_or_default()
}

/// Returns a time in seconds as RFC 3339 has it: `2014-10-24T12:20:25Z`.
pub fn rfc3339_date(time: TimeMs) -> String {
    let mut out = Vec::new();
    push_rfc3339_date(&mut out, time);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_print_in_both_forms() {
        for (ms, http, rfc3339) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00Z"),
            (951_827_696_999, "Tue, 29 Feb 2000 12:34:56 GMT", "2000-02-29T12:34:56Z"),
            (1_414_153_225_000, "Fri, 24 Oct 2014 12:20:25 GMT", "2014-10-24T12:20:25Z"),
            (4_107_542_399_000, "Sun, 28 Feb 2100 23:59:59 GMT", "2100-02-28T23:59:59Z"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!((http_date(TimeMs(ms)), rfc3339_date(TimeMs(ms))), (http.into(), rfc3339.into()));
        }
    }

    /// Goal: the calendar agrees with the one of the model, on every day of 400 years.
    #[test]
    fn dates_agree_with_the_calendar_of_the_model() {
        for day in 0..146_097 {
            let time = TimeMs(day * DAY_MS + day * 1000 % DAY_MS / 1000 * 1000);
            assert_eq!(rfc3339_date(time), time.to_string());
        }
    }
}
