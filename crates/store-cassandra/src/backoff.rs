//! Back-off between servers that append at the same time: the server that just appended lets the
//! others go first.
//!
//! An append holds only if the log ends where its server expects. Of two servers that append as
//! fast as they can, the loser must first read the other's append, and is late again. Two appends
//! in flight outbid each other's Paxos rounds, so both take long. So the winner waits until the
//! other server has appended too, or had time for it. Requests that arrive meanwhile go into one
//! group with the rest.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits::{BACKOFF_MAX, BACKOFF_TIMES, OTHERS_SEEN_FOR};

/// See the module.
#[derive(Default)]
pub(crate) struct Backoff {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Time another server's append was last seen.
    others: Option<Instant>,
    /// Time the last own append ended, and its duration.
    own: Option<(Instant, Duration)>,
}

impl Backoff {
    /// Notes another server's append.
    pub(crate) fn another(&self) {
        self.state.lock().others = Some(Instant::now());
    }

    /// Notes an own append that began then.
    pub(crate) fn own(&self, began: Instant) {
        self.state.lock().own = Some((Instant::now(), began.elapsed()));
    }

    /// Returns how long this server must still wait; none if it may append.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let state = self.state.lock();
        let (others, (done, took)) = (state.others?, state.own?);
        if now.saturating_duration_since(others) > OTHERS_SEEN_FOR || others > done {
            // No other server appends, or another one had its turn since.
            return None;
        }
        let until = done + took.saturating_mul(BACKOFF_TIMES).min(BACKOFF_MAX);
        until.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn who_won_waits_while_others_are_there() {
        let backoff = Backoff::default();
        let now = Instant::now();
        assert_eq!(backoff.wait(now), None);
        backoff.own(now - Duration::from_millis(10));
        assert_eq!(backoff.wait(Instant::now()), None, "nobody else is there");
        backoff.another();
        assert_eq!(backoff.wait(Instant::now()), None, "they had their turn");
        backoff.own(Instant::now() - Duration::from_millis(10));
        let wait = backoff.wait(Instant::now()).unwrap();
        assert!(wait > Duration::from_millis(5) && wait <= BACKOFF_MAX, "{wait:?}");
        backoff.own(Instant::now() - Duration::from_secs(10));
        assert!(backoff.wait(Instant::now()).unwrap() <= BACKOFF_MAX);
        assert_eq!(backoff.wait(Instant::now() + BACKOFF_MAX), None, "it is over");
        assert_eq!(backoff.wait(Instant::now() + OTHERS_SEEN_FOR + Duration::from_millis(1)), None);
    }
}
