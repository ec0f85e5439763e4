//! Servers that append at the same time take turns: who just did, and sees that others do too, lets them go first.
//!
//! An append holds only if the log ends where its server thinks it does. Of two servers that both append as fast as they can, the one that
//! lost has to read first what the other appended, and is late again; and of two that are under way both take long, for they outbid each other. So the one that won
//! waits until the other has appended too, or has had time for it. What comes meanwhile goes into one group with the rest.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits::{OTHERS_SEEN_FOR, TURN_MAX, TURN_TIMES};

/// See the module.
#[derive(Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When another server's append was seen last.
    others: Option<Instant>,
    /// When the last own append was done, and how long it took.
    own: Option<(Instant, Duration)>,
}

impl Turns {
    /// Another server's append was seen.
    pub fn another(&self) {
        self.state.lock().others = Some(Instant::now());
    }

    /// An own append was done, that was begun then.
    pub fn own(&self, began: Instant) {
        self.state.lock().own = Some((Instant::now(), began.elapsed()));
    }

    /// Whose turn is it at this moment? Nothing if it is one's own, otherwise how long it is not.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let state = self.state.lock();
        let (others, (done, took)) = (state.others?, state.own?);
        if now.saturating_duration_since(others) > OTHERS_SEEN_FOR || others > done {
            // Nobody else is there, or others had their turn since.
            return None;
        }
        let until = done + took.saturating_mul(TURN_TIMES).min(TURN_MAX);
        until.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn who_won_waits_while_others_are_there() {
        let turns = Turns::default();
        let now = Instant::now();
        assert_eq!(turns.wait(now), None);
        turns.own(now - Duration::from_millis(10));
        assert_eq!(turns.wait(Instant::now()), None, "nobody else is there");
        turns.another();
        assert_eq!(turns.wait(Instant::now()), None, "they had their turn");
        turns.own(Instant::now() - Duration::from_millis(10));
        let wait = turns.wait(Instant::now()).unwrap();
        assert!(wait > Duration::from_millis(5) && wait <= TURN_MAX, "{wait:?}");
        turns.own(Instant::now() - Duration::from_secs(10));
        assert!(turns.wait(Instant::now()).unwrap() <= TURN_MAX);
        assert_eq!(turns.wait(Instant::now() + TURN_MAX), None, "it is over");
        assert_eq!(turns.wait(Instant::now() + OTHERS_SEEN_FOR + Duration::from_millis(1)), None);
    }
}
