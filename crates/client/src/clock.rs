//! Estimate of the server's time, which operation ids contain.
//!
//! The server tells its time in the handshake, and in each of its pings. From then on the client
//! adds the time of its own monotonic clock. So neither the system clock of the client's machine
//! nor a step of it matters.

use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::TimeMs;
use tokio::time::Instant;

/// Estimate of the server's clock.
#[derive(Debug)]
pub(crate) struct ServerClock {
    started: Instant,
    /// Server's time at the start, in milliseconds; wraps before 1970.
    at_start: AtomicU64,
}

impl ServerClock {
    pub(crate) fn new() -> Self {
        ServerClock { started: Instant::now(), at_start: AtomicU64::new(0) }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes in a time that the server just sent. It took some time to arrive, so the estimate is a
    /// little behind, never ahead.
    pub(crate) fn told(&self, now: TimeMs) {
        self.at_start.store(now.0.wrapping_sub(self.elapsed_ms()), Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> TimeMs {
        TimeMs(self.at_start.load(Ordering::Relaxed).wrapping_add(self.elapsed_ms()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clock_goes_on_from_the_last_time_the_server_said() {
        let mut clock = ServerClock::new();
        for said in [1_790_000_000_000, 5] {
            clock.told(TimeMs(said));
            // Simulates an earlier start, and so the time that passed since the server's message.
            clock.started -= Duration::from_millis(1500);
            let passed = clock.now().0 - said;
            assert!((1500..61_500).contains(&passed), "{passed} ms");
        }
    }
}
