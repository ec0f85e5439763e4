//! Servers that append at the same time take turns: who just did, and sees that others do too, lets them go first.
//!
//! An append holds only if the log ends where its server thinks it does. Of two servers that both append as fast as they can, the one that
//! lost has to read first what the other appended, and is late again; and of two that are under way both take long, for they outbid each other. So the one that won
//! waits until the other has appended too, or has had time for it. What comes meanwhile goes into one group with the rest.
//!
//! Who is late again and again shows nothing of itself: it cannot be told from one that has nothing to append. So turns that nobody used are followed by
//! longer ones, ever more rarely, for a while: who is there gets one that is long enough, and who is alone waits little.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits::{OTHERS_SEEN_FOR, TURN_MAX, TURN_TIMES, TURNS_IN_VAIN_MAX};

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
    /// Own appends since the last turn of others, and turns that nobody used.
    appends: u32,
    in_vain: u32,
}

impl Turns {
    /// Another server's append was seen.
    pub fn another(&self) {
        let mut state = self.state.lock();
        state.others = Some(Instant::now());
        (state.appends, state.in_vain) = (0, 0);
    }

    /// An own append was done, that was begun then.
    pub fn own(&self, began: Instant) {
        let mut state = self.state.lock();
        state.own = Some((Instant::now(), began.elapsed()));
        state.appends += 1;
    }

    /// Whose turn is it at this moment? Nothing if it is one's own, otherwise how long it is not.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        let mut state = self.state.lock();
        let (others, (done, took)) = (state.others?, state.own?);
        if now.saturating_duration_since(others) > OTHERS_SEEN_FOR || others > done {
            // Nobody else is there, or others had their turn since.
            return None;
        }
        let in_vain = state.in_vain.min(TURNS_IN_VAIN_MAX);
        if state.appends < 4u32.pow(in_vain) {
            return None;
        }
        let turn = took.saturating_mul(TURN_TIMES << in_vain).min(TURN_MAX);
        let left = (done + turn).checked_duration_since(now).filter(|wait| !wait.is_zero());
        if left.is_none() {
            state.appends = 0;
            state.in_vain += 1;
        }
        left
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

    /// Goal: whoever is late again and again gets a turn that is long enough, and soon; and who is alone does not wait for nobody.
    #[test]
    fn turns_nobody_uses_are_longer_and_rarer() {
        let turns = Turns::default();
        let took = Duration::from_millis(5);
        turns.another();
        let mut given = Vec::new();
        let (mut appends, mut over) = (0, Instant::now());
        while given.len() < 6 {
            turns.own(Instant::now() - took);
            appends += 1;
            if let Some(wait) = turns.wait(Instant::now()) {
                given.push((appends, wait));
                appends = 0;
                over = Instant::now() + TURN_MAX;
                assert_eq!(turns.wait(over), None, "nobody used it");
            }
        }
        assert!(over > Instant::now());
        assert_eq!(given.iter().map(|(appends, _)| *appends).collect::<Vec<_>>(), [1, 4, 16, 64, 64, 64]);
        assert!(given.windows(2).take(3).all(|two| two[1].1 > two[0].1), "{given:?}");
        assert!(given.iter().all(|(_, wait)| *wait <= TURN_MAX));
        turns.another();
        turns.own(Instant::now() - took);
        assert!(turns.wait(Instant::now()).is_some(), "somebody was there: as at first");
    }
}
