//! Dates in the two forms of WebDAV. Written by hand: a listing has two of them in each row.

use exacat_model::{Civil, TimeMs};

/// Last moment of the year 9999: both forms have four digits for a year.
const LAST_MS: u64 = 253_402_300_799_999;

const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Splits a moment. Moments after the year 9999 become its last one.
fn civil(time: TimeMs) -> Civil {
    time.min(TimeMs(LAST_MS)).civil()
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
}
