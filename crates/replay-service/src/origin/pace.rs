//! Bandwidth: tells a sender when its next bytes may leave.

use std::time::Duration;

use tokio::time::Instant;

use super::limits::{PACE_BEHIND_MAX, PACE_BYTES_MAX, PACE_BYTES_MIN, PACES_PER_SECOND};

/// Sender of bytes with a bandwidth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Bytes a second.
    rate: u64,
    /// Time at which all bytes that were granted will have left.
    free_at: Instant,
}

/// Returns the most bytes that are granted at once at a bandwidth.
pub(super) fn grant_of(rate: u64) -> u64 {
    (rate / PACES_PER_SECOND).clamp(PACE_BYTES_MIN, PACE_BYTES_MAX)
}

impl Pace {
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        Pace { rate: rate.max(1), free_at: now }
    }

    /// Returns the bytes a second.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// Reserves the time of so many bytes, and returns the time at which they may leave.
    pub(super) fn reserve(&mut self, bytes: u64, now: Instant) -> Instant {
        let oldest = now.checked_sub(PACE_BEHIND_MAX).unwrap_or(now);
        let begin = self.free_at.max(oldest);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        self.free_at = begin + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: many small sends last as long as their bytes need, whoever waits how long between them.
    #[test]
    fn bytes_leave_at_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(1000, start);
        let mut now = start;
        for _ in 0..100 {
            // The sender wakes a little late each time.
            now = now.max(pace.reserve(10, now)) + Duration::from_millis(1);
        }
        let lasted = now - start;
        assert!(lasted >= Duration::from_millis(990) && lasted < Duration::from_millis(1010), "{lasted:?}");
    }

    #[test]
    fn a_rest_earns_no_more_than_the_bound() {
        let start = Instant::now() + Duration::from_secs(100);
        let mut pace = Pace::new(1000, start - Duration::from_secs(50));
        assert_eq!(pace.reserve(1000, start), start - PACE_BEHIND_MAX);
        assert_eq!(pace.reserve(1, start), start - PACE_BEHIND_MAX + Duration::from_secs(1));
    }

    #[test]
    fn grants_are_small_and_not_too_small() {
        assert_eq!(grant_of(1), PACE_BYTES_MIN);
        assert_eq!(grant_of(PACES_PER_SECOND * 10_000), 10_000);
        assert_eq!(grant_of(u64::MAX), PACE_BYTES_MAX);
    }
}
