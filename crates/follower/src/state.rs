//! Distance of a follower to its source. No clock of the other machine is needed: the source says how
//! long ago things were.

use std::time::{Duration, Instant};

use exacat_model::Revision;
use parking_lot::Mutex;

use crate::limits::WAIT;

/// Distance of a follower to its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Changes that the source is known to have, and the follower has not.
    pub revisions: u64,
    /// Time for which the state of the follower may be out of date, in ms.
    pub ms: u64,
}

/// Present situation of a follower.
#[derive(Debug)]
struct Situation {
    /// The last durable change of the source, as it said last.
    source: Revision,
    /// Time up to which the follower has everything, by its own clock.
    current: Instant,
    /// Time of the last request that waits for changes, if one waits now.
    waits_since: Option<Instant>,
    /// Trouble, if the source cannot be followed now.
    trouble: Option<String>,
    /// True while files are copied.
    is_copying: bool,
    copies: u64,
    compared: Compared,
}

/// Comparisons of a filtered follower with its source, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Comparisons of the whole directory.
    pub wholes: u64,
    /// Rows compared by the one that goes on, or by the last one.
    pub rows: u64,
    /// Differences that no change explained.
    pub differences: u64,
}

/// State of a follower, for its answers, its status and its metrics.
#[derive(Debug)]
pub struct FollowState {
    source: String,
    situation: Mutex<Situation>,
}

impl FollowState {
    /// Makes the state of a follower that begins.
    pub fn new(source: &str) -> Self {
        let situation = Situation {
            source: Revision(0),
            current: Instant::now(),
            waits_since: None,
            trouble: None,
            is_copying: false,
            copies: 0,
            compared: Compared::default(),
        };
        FollowState { source: source.to_owned(), situation: Mutex::new(situation) }
    }

    /// Returns the address of the source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the distance of a follower that has `own` durably.
    pub fn lag(&self, own: Revision) -> Lag {
        let situation = self.situation.lock();
        let revisions = situation.source.0.saturating_sub(own.0);
        // A source answers a request that waits as soon as there is a change.
        let is_current = situation.waits_since.is_some_and(|since| since.elapsed() < 2 * WAIT);
        let ms = if revisions == 0 && is_current { 0 } else { situation.current.elapsed().as_millis() };
        Lag { revisions, ms: u64::try_from(ms).unwrap_or(u64::MAX) }
    }

    /// Returns the trouble that keeps the follower from following; none if it follows.
    pub fn trouble(&self) -> Option<String> {
        self.situation.lock().trouble.clone()
    }

    /// Says whether the follower copies files, and how often it began to.
    pub fn copying(&self) -> (bool, u64) {
        let situation = self.situation.lock();
        (situation.is_copying, situation.copies)
    }

    /// Returns the comparisons with the source.
    pub fn comparisons(&self) -> Compared {
        self.situation.lock().compared
    }

    /// Notes the rows that a comparison has seen so far.
    pub(crate) fn compared(&self, rows: u64) {
        self.situation.lock().compared.rows = rows;
    }

    /// Notes that a comparison has seen the whole directory.
    pub(crate) fn compared_whole(&self) {
        self.situation.lock().compared.wholes += 1;
    }

    /// Notes differences that no change explains.
    pub(crate) fn differs(&self, differences: u64) {
        self.situation.lock().compared.differences += differences;
    }

    /// Notes that a request waits for changes, or that none does.
    pub(crate) fn waits(&self, waits: bool) {
        self.situation.lock().waits_since = waits.then(Instant::now);
    }

    /// Notes that the source has this durable change.
    pub(crate) fn heard(&self, durable: Revision) {
        let mut situation = self.situation.lock();
        situation.source = durable;
        situation.trouble = None;
    }

    /// Notes that the follower has everything that the source had so long before `at`.
    pub(crate) fn caught_up(&self, at: Instant, age: Duration) {
        let mut situation = self.situation.lock();
        let current = at.checked_sub(age).unwrap_or(situation.current);
        situation.current = situation.current.max(current);
    }

    /// Notes trouble; true if it is new.
    pub(crate) fn fails(&self, why: &str) -> bool {
        let mut situation = self.situation.lock();
        situation.waits_since = None;
        let is_new = situation.trouble.is_none();
        situation.trouble = Some(why.to_owned());
        is_new
    }

    /// Notes that files are copied, or that all are.
    pub(crate) fn copies(&self, copies: bool) {
        let mut situation = self.situation.lock();
        situation.copies += u64::from(copies && !situation.is_copying);
        situation.is_copying = copies;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: a follower that has everything and waits at its source is not behind; one that cannot
    /// ask gets older.
    #[test]
    fn lag_is_zero_only_while_a_request_waits() {
        let state = FollowState::new("http://a:1");
        state.heard(Revision(7));
        assert_eq!(state.lag(Revision(5)).revisions, 2);
        state.waits(true);
        assert_eq!(state.lag(Revision(7)), Lag { revisions: 0, ms: 0 });
        let long_ago = Instant::now().checked_sub(Duration::from_secs(90)).unwrap();
        state.situation.lock().current = long_ago;
        assert_eq!(state.lag(Revision(7)).ms, 0);
        assert!(state.fails("no route") && !state.fails("no route"));
        assert!(state.lag(Revision(7)).ms >= 90_000);
        state.caught_up(Instant::now(), Duration::from_secs(3));
        assert!((3000..90_000).contains(&state.lag(Revision(7)).ms));
        // What is older than known says nothing new.
        state.caught_up(Instant::now(), Duration::from_secs(50));
        assert!(state.lag(Revision(7)).ms < 50_000);
    }
}
