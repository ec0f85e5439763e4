//! Values as people read them.

use std::fmt::Write as _;

use exacat_model::{Lfn, TimeMs};
use exacat_wire::percent;

/// Separator of thousands: a narrow blank that does not break.
const THOUSANDS: char = '\u{202f}';
/// Units of bytes.
const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

/// True for letters that people do not see, or that change the order of those that they see.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a text of users with every hidden letter written out, as `\u{202e}`.
pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_hidden(letter) {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    out
}

/// Returns a number with its thousands apart.
pub(super) fn count(number: u128) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(THOUSANDS);
        }
        out.push(digit);
    }
    out
}

/// Returns bytes with three digits and a decimal unit.
pub(super) fn bytes(number: u128) -> String {
    if number < 1000 {
        return format!("{number} B");
    }
    // In tenths of a percent of the unit, so that rounding up may reach the next unit.
    let mut unit = 1;
    let mut divisor: u128 = 1000;
    while unit + 1 < UNITS.len() && number * 1000 >= divisor * 999_500 {
        unit += 1;
        divisor *= 1000;
    }
    let hundredths = (number * 100 + divisor / 2) / divisor;
    match hundredths {
        0..1000 => format!("{}.{:02} {}", hundredths / 100, hundredths % 100, UNITS[unit]),
        1000..10_000 => format!("{}.{} {}", hundredths / 100, hundredths % 100 / 10, UNITS[unit]),
        _ => format!("{} {}", count((number + divisor / 2) / divisor), UNITS[unit]),
    }
}

/// Returns a span of time in its two largest units.
pub(super) fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Returns a moment in UTC, to the second.
pub(super) fn time(time: TimeMs) -> String {
    let civil = time.civil();
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
    )
}

/// Returns the URL of a page about an entry. `page` is the start of its path.
pub(super) fn url(page: &str, lfn: &Lfn) -> String {
    let mut out = page.as_bytes().to_vec();
    percent::push_encoded(&mut out, lfn.as_str());
    String::from_utf8(out).unwrap_or_default()
}

/// Appends a parameter to a URL, unless its value is empty.
pub(super) fn with(mut url: String, name: &str, value: &str) -> String {
    if value.is_empty() {
        return url;
    }
    url.push(if url.contains('?') { '&' } else { '?' });
    url.push_str(name);
    url.push('=');
    let mut encoded = Vec::with_capacity(value.len());
    percent::push_encoded(&mut encoded, value);
    url.push_str(&String::from_utf8(encoded).unwrap_or_default());
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: bytes have three digits at the edges of each unit.
    #[test]
    fn bytes_are_rounded_to_three_digits() {
        for (number, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (1_234_567, "1.23 MB"),
            (12_345_678, "12.3 MB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (u128::from(u64::MAX), "18.4 EB"),
            (u128::MAX / 1_000_000_000, "340\u{202f}282\u{202f}366\u{202f}921 EB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!([count(0), count(1234), count(999_999)], ["0", "1\u{202f}234", "999\u{202f}999"]);
    }

    /// Property: marks that turn text around, and control characters, are shown as their numbers.
    #[test]
    fn hidden_letters_are_written_out() {
        assert_eq!(visible("a\u{202e}gpj.exe\n\u{1b}[31m"), "a\\u{202e}gpj.exe\\u{a}\\u{1b}[31m");
        assert_eq!(visible("żółw שלום 文件 <b>"), "żółw שלום 文件 <b>");
    }

    /// Property: a URL has no byte of a name that could end an attribute or a header.
    #[test]
    fn urls_of_entries_are_plain() {
        let lfn = Lfn::parse("/a b/\"<>&'\r\n?#%/ż").unwrap();
        let url = with(url("/browse", &lfn), "next", "/x?y=1&z");
        assert_eq!(url, "/browse/a%20b/%22%3C%3E%26%27%0D%0A%3F%23%25/%C5%BC?next=/x%3Fy%3D1%26z");
        assert_eq!(with("/a?b".into(), "c", ""), "/a?b");
        assert_eq!(time(TimeMs(0)), "1970-01-01 00:00:00");
    }

    #[test]
    fn spans_have_their_two_largest_units() {
        assert_eq!([span(59), span(3599), span(90_000)], ["59 s", "59 min 59 s", "1 d 1 h"]);
    }
}
