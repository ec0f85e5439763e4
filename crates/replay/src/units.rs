//! Numbers with their units, for people.

use exacat_model::TimeMs;

const BYTE_UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
/// Characters of a time up to its seconds.
const SECONDS: usize = 19;

/// Returns a value below 1000, and the power of 1000 that it was divided by.
fn scaled(value: f64, powers: usize) -> (f64, usize) {
    let (mut value, mut power) = (value, 0);
    while value >= 999.5 && power + 1 < powers {
        value /= 1000.0;
        power += 1;
    }
    (value, power)
}

/// Formats a number in three digits.
fn three(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats bytes in a few letters, as marks of a scale have them: `2 TB`, `1.5 kB`.
pub(crate) fn size(bytes: f64) -> String {
    let (value, unit) = scaled(bytes, BYTE_UNITS.len());
    if value >= 10.0 || value == value.round() {
        format!("{value:.0} {}", BYTE_UNITS[unit])
    } else {
        format!("{value:.1} {}", BYTE_UNITS[unit])
    }
}

/// Formats bytes in three digits: `999 B`, `1.50 GB`.
pub(crate) fn bytes(bytes: u64) -> String {
    quantity(bytes as f64)
}

/// Formats a difference of bytes with its sign: `+1.50 GB`, `0 B`.
pub(crate) fn signed_bytes(bytes: i64) -> String {
    let sign = match bytes {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!("{sign}{}", quantity(bytes.unsigned_abs() as f64))
}

fn quantity(bytes: f64) -> String {
    match scaled(bytes, BYTE_UNITS.len()) {
        (value, 0) => format!("{value:.0} B"),
        (value, unit) => format!("{} {}", three(value), BYTE_UNITS[unit]),
    }
}

/// Formats bytes a second: `1.50 GB/s`.
pub(crate) fn rate(bytes_each_second: f64) -> String {
    format!("{}/s", quantity(bytes_each_second))
}

/// Formats a count in groups of three digits: `12 345`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Formats a number with a unit prefix, as marks of a scale have it: `950`, `1.5 k`.
pub(crate) fn number(value: f64) -> String {
    const PREFIXES: [&str; 5] = ["", " k", " M", " G", " T"];
    let (value, power) = scaled(value, PREFIXES.len());
    let text = if value >= 10.0 || value == value.round() { format!("{value:.0}") } else { three(value) };
    format!("{text}{}", PREFIXES[power])
}

/// Formats microseconds in at most seven letters: `850 us`, `12.3 ms`, `3.20 s`, `2m05s`, `3h02m`, `2d04h`.
pub(crate) fn duration(us: u64) -> String {
    let seconds = us / 1_000_000;
    match us {
        0..1_000 => format!("{us} us"),
        1_000..999_500 => format!("{} ms", three(us as f64 / 1e3)),
        999_500..120_000_000 => format!("{} s", three(us as f64 / 1e6)),
        _ if seconds < 3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ if seconds < 172_800 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Formats a share of 1 in percent: `99.98 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Formats a time in microseconds since 1970: `2026-11-21 10:00:07 UTC`.
pub(crate) fn time(us: u64) -> String {
    let text = TimeMs(us / 1000).to_string();
    match text.get(..SECONDS) {
        Some(start) if text.as_bytes().get(10) == Some(&b'T') => {
            format!("{} UTC", start.replacen('T', " ", 1))
        }
        _ => text,
    }
}

/// Formats a number and its noun: `1 access`, `2 accesses`.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    let ending = match (number, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {noun}{ending}", count(number))
}

/// Returns a text that a terminal may show: control characters and marks of direction become U+FFFD.
pub(crate) fn harmless(text: &str) -> String {
    let is_mark = |letter: char| matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .map(|letter| if letter.is_control() || is_mark(letter) { '\u{fffd}' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: units change where three digits would not do.
    #[test]
    fn numbers_have_their_units() {
        assert_eq!((size(999.0), size(1500.0), size(2e12)), ("999 B".into(), "1.5 kB".into(), "2 TB".into()));
        assert_eq!(
            [0, 999, 1_500, 999_499, 999_500].map(bytes),
            ["0 B", "999 B", "1.50 kB", "999 kB", "1.00 MB"]
        );
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!([-1_500, 0, 20_000].map(signed_bytes), ["-1.50 kB", "0 B", "+20.0 kB"]);
        assert_eq!(signed_bytes(i64::MIN), "-9.22 EB");
        assert_eq!([0, 999, 1_000, 12_345_678].map(count), ["0", "999", "1 000", "12 345 678"]);
        let times = [0, 999, 1_000, 12_340, 999_500, 3_200_000, 125_000_000, 11_000_000_000, 190_000_000_000];
        let texts = ["0 us", "999 us", "1.00 ms", "12.3 ms", "1.00 s", "3.20 s", "2m05s", "3h03m", "2d04h"];
        assert_eq!(times.map(duration), texts);
        assert_eq!((percent(0.9998), rate(2.5e9)), ("99.98 %".to_owned(), "2.50 GB/s".to_owned()));
        assert_eq!(time(1_700_000_000_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(
            [plural(1, "access"), plural(2_000, "access"), plural(0, "record")],
            ["1 access", "2 000 accesses", "0 records"]
        );
        assert_eq!([950.0, 1_500.0, 2e6].map(number), ["950", "1.50 k", "2 M"]);
    }

    /// Property: no name moves the cursor of a terminal, or the direction of its text.
    #[test]
    fn names_for_terminals_are_harmless() {
        assert_eq!(harmless("a\u{1b}[2J\u{202e}b\n"), "a\u{fffd}[2J\u{fffd}b\u{fffd}");
    }
}
