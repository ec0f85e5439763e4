//! Rate limit for log lines: writes a bounded number per second, and counts the others.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Most lines written in one second.
pub(crate) const LINES_PER_SECOND_MAX: u32 = 5;

/// Decides whether a line is written.
#[derive(Debug, Default)]
pub(crate) struct Paced(Mutex<Second>);

#[derive(Debug, Default)]
struct Second {
    begun: Option<Instant>,
    written: u32,
    unwritten: u64,
}

impl Paced {
    /// Returns none if a line must be left out `now`, otherwise the number of lines left out before
    /// it.
    pub(crate) fn line(&self, now: Instant) -> Option<u64> {
        let mut second = self.0.lock();
        let over =
            second.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= Duration::from_secs(1));
        if over {
            (second.begun, second.written) = (Some(now), 0);
        }
        if second.written >= LINES_PER_SECOND_MAX {
            second.unwritten += 1;
            return None;
        }
        second.written += 1;
        Some(std::mem::take(&mut second.unwritten))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_not_written() {
        let (paced, start) = (Paced::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        for line in 0..LINES_PER_SECOND_MAX {
            assert_eq!(paced.line(at(u64::from(line))), Some(0));
        }
        for ms in 100..900 {
            assert_eq!(paced.line(at(ms)), None);
        }
        assert_eq!(paced.line(at(1000)), Some(800));
        assert_eq!(paced.line(at(1001)), Some(0));
    }
}
