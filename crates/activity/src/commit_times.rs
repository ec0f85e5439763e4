//! Moments in the commit of a group, by which each of its requests knows where its time went.

use std::time::{Duration, Instant};

use crate::state::RequestState;

/// Moments in the commit of a group.
#[derive(Clone, Copy, Debug)]
pub struct CommitTimes {
    /// End of the last wait of the writer for background work, and its duration.
    pub stalled: Option<(Instant, Duration)>,
    /// The writer took up the request.
    pub taken: Instant,
    /// The group was decided.
    pub decided: Instant,
    /// The group was given to the disk.
    pub written: Instant,
    /// The group was durable.
    pub durable: Instant,
    /// The writer had applied the group, where it does so once the group is durable.
    pub applied: Instant,
    /// Enough standbys had the group, where it waits for them.
    pub acknowledged: Instant,
}

impl CommitTimes {
    /// Returns the times of a request that no writer worked on.
    pub fn at(now: Instant) -> Self {
        CommitTimes {
            stalled: None,
            taken: now,
            decided: now,
            written: now,
            durable: now,
            applied: now,
            acknowledged: now,
        }
    }

    /// Divides the wait of a request that was sent at `sent`. The rest is the wait for the writer.
    pub fn parts(&self, sent: Instant) -> [(RequestState, Duration); 5] {
        // A stall counts for a request from the time at which it waited.
        let stalled = self.stalled.map_or(Duration::ZERO, |(ended, lasted)| {
            let before_decided = ended.min(self.decided);
            lasted.min(before_decided.saturating_duration_since(sent))
        });
        let decide = self.decided.saturating_duration_since(self.taken.max(sent));
        let within = self.stalled.is_some_and(|(ended, _)| ended > self.taken);
        let decide = if within { decide.saturating_sub(stalled) } else { decide };
        [
            (RequestState::Backpressure, stalled),
            (RequestState::Decide, decide + self.applied.saturating_duration_since(self.durable)),
            (RequestState::CommitGroup, self.written.saturating_duration_since(self.decided)),
            (RequestState::LogSync, self.durable.saturating_duration_since(self.written)),
            (RequestState::StandbySync, self.acknowledged.saturating_duration_since(self.applied)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a wait are those of its request only, and never more than the wait.
    #[test]
    fn parts_begin_when_the_request_waits() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let times = CommitTimes {
            stalled: Some((at(40), Duration::from_millis(30))),
            taken: at(41),
            decided: at(45),
            written: at(47),
            durable: at(57),
            applied: at(60),
            acknowledged: at(75),
        };
        let parts = |sent| times.parts(sent).map(|(_, time)| time.as_millis());
        assert_eq!(parts(at(0)), [30, 7, 2, 10, 15]);
        // Sent in the middle of the stall, and after the group was taken up.
        assert_eq!(parts(at(35)), [5, 7, 2, 10, 15]);
        assert_eq!(parts(at(44)), [0, 4, 2, 10, 15]);
        assert_eq!(CommitTimes::at(start).parts(start).map(|(_, time)| time), [Duration::ZERO; 5]);
    }
}
