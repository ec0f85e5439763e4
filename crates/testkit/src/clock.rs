//! Clock that a test turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::TimeMs;
use exacat_store::{CLOCK_JUMP, Clock, Uptime, WatchedClock};

/// Clock that stands until it is turned; clones are the same clock.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// Start of every clock: in 2027.
    pub const START: TimeMs = TimeMs(1_800_000_000_000);

    /// Makes a clock at [`TestClock::START`].
    pub fn new() -> Self {
        TestClock(Arc::new(AtomicU64::new(Self::START.0)))
    }

    /// Turns it forward by so many milliseconds, or back.
    pub fn turn(&self, ms: i64) {
        self.0.store(self.now().0.saturating_add_signed(ms), Ordering::SeqCst);
    }

    /// Sets its time.
    pub fn set(&self, time: TimeMs) {
        self.0.store(time.0, Ordering::SeqCst);
    }

    /// Watches it by `passed`, a clock that counts the time that really passes.
    pub fn watched(&self, passed: &TestClock) -> Arc<dyn Clock> {
        Arc::new(WatchedClock::new(self.shared(), Arc::new(passed.clone()), CLOCK_JUMP))
    }

    /// Returns it as a store takes it.
    pub fn shared(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }
}

impl Default for TestClock {
    fn default() -> Self {
        TestClock::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> TimeMs {
        TimeMs(self.0.load(Ordering::SeqCst))
    }
}

impl Uptime for TestClock {
    fn elapsed_ms(&self) -> u64 {
        self.now().0
    }
}
