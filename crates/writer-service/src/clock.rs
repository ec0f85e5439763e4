//! Clock of the service: the time of the day for what is stored, and one that never goes back.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use exacat_model::TimeMs;

/// Returns the time of the day, for what is stored.
#[allow(clippy::disallowed_methods, reason = "the service has the one clock of its machine")]
pub(crate) fn wall_time() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Clock that never goes back: the time of the day at the start, and what has passed since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begun: Instant,
    at_begin: u64,
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "the service has the one clock of its machine")]
    pub(crate) fn new() -> Self {
        Clock { begun: Instant::now(), at_begin: wall_time().0 }
    }

    /// Returns the time in milliseconds.
    pub(crate) fn now(&self) -> u64 {
        self.at_begin + u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
