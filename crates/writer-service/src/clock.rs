//! Clock of the service: the time of the day for what is stored, and one that never goes back.

use std::time::Instant;

use exacat_model::TimeMs;
use exacat_store::{Clock as _, SystemClock};

/// Returns the time of the day, for what is stored.
pub(crate) fn wall_time() -> TimeMs {
    SystemClock.now()
}

/// Clock that never goes back: the time of the day at the start, and what has passed since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begun: Instant,
    at_begin: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock { begun: Instant::now(), at_begin: wall_time().0 }
    }

    /// Returns the time in milliseconds.
    pub(crate) fn now(&self) -> u64 {
        self.at_begin + u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
