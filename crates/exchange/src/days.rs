//! Times as text, for billions of rows. When printed, consecutive times of one day share the formatted date.

use std::cell::RefCell;
use std::fmt::Write as _;

use exacat_model::TimeMs;

const DAY_MS: u64 = 86_400_000;

/// Cache of the day of the last printed time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Days(RefCell<Day>);

#[derive(Clone, Debug, Default)]
struct Day {
    number: u64,
    /// Date of that day, `2026-03-01T`; empty if none is cached, or the number is beyond the
    /// calendar.
    text: String,
}

impl Days {
    /// Appends a time in its printed form.
    pub(crate) fn push(&self, out: &mut String, time: TimeMs) {
        let (number, ms) = (time.0 / DAY_MS, time.0 % DAY_MS);
        let mut day = self.0.borrow_mut();
        if day.number != number || day.text.is_empty() {
            day.number = number;
            day.text = TimeMs(number * DAY_MS).to_string();
            let date = day.text.find('T').map_or(0, |at| at + 1);
            day.text.truncate(date);
        }
        if day.text.is_empty() || !ms.is_multiple_of(1000) {
            // A write to memory cannot fail.
            let _infallible = write!(out, "{time}");
            return;
        }
        out.push_str(&day.text);
        let seconds = ms / 1000;
        for (value, after) in [(seconds / 3600, ':'), (seconds / 60 % 60, ':'), (seconds % 60, 'Z')] {
            out.push(digit(value / 10));
            out.push(digit(value));
            out.push(after);
        }
    }
}

fn digit(value: u64) -> char {
    char::from(b'0' + (value % 10) as u8)
}

/// Reads a time as [`TimeMs::parse`] does, and also the printed form of a [`TimeMs`] beyond the
/// calendar.
pub(crate) fn read_time(text: &str) -> Result<TimeMs, String> {
    if let Some(Ok(ms)) = text.strip_suffix("ms").map(str::parse) {
        return Ok(TimeMs(ms));
    }
    TimeMs::parse(text).map_err(|error| error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_what_they_print_themselves() {
        let days = Days::default();
        let day = 20_000 * DAY_MS;
        let near = [0, 1, 999, 1000, 59_000, 60_000, 3_599_000, 3_600_000, DAY_MS - 1000, DAY_MS - 1];
        let far = [0, 253_402_300_799_000, 253_402_300_800_000, u64::MAX, u64::MAX / DAY_MS * DAY_MS];
        let times = near.iter().flat_map(|ms| [day + ms, day + DAY_MS + ms]).chain(far);
        for time in times.flat_map(|time| [time, time, time.saturating_add(1000)]) {
            let mut out = "x".to_owned();
            days.push(&mut out, TimeMs(time));
            assert_eq!(out[1..], TimeMs(time).to_string());
        }
    }
}
