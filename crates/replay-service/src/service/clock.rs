//! Time of the service: the date, and a clock that only goes forward.

use std::time::Instant;

use exacat_replay::run::live::Now;
use exacat_store::{Clock as _, SystemClock};

/// Source of the present time.
pub(crate) trait ReplayClock: Send + Sync + 'static {
    /// Returns the present time.
    fn now(&self) -> Now;
}

/// Clock of the machine.
pub(crate) struct MachineClock(Instant);

impl Default for MachineClock {
    fn default() -> Self {
        MachineClock(Instant::now())
    }
}

impl ReplayClock for MachineClock {
    fn now(&self) -> Now {
        let monotonic_us = u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX);
        Now { monotonic_us, date_us: SystemClock.now().0.saturating_mul(1000) }
    }
}
