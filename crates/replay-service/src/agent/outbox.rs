//! Results that wait until the service has acknowledged them, in messages that stay the same when they are
//! sent again.

use std::collections::VecDeque;

use exacat_replay::run::outcome::AccessResult;
use tokio::time::Instant;

use super::limits::{RESULTS_PER_MESSAGE_MAX, RESULTS_WAIT_MAX, RESULTS_WAITING_MAX};

/// Results that wait for the service.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Results in no message yet, each with the time when it came.
    waiting: VecDeque<(Instant, AccessResult)>,
    /// The message that was sent and not acknowledged.
    sent: Vec<AccessResult>,
    /// Time when its first result came.
    sent_since: Option<Instant>,
}

impl Outbox {
    /// Adds a result.
    pub(crate) fn add(&mut self, now: Instant, result: AccessResult) {
        self.waiting.push_back((now, result));
    }

    /// Returns the number of results that are not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.sent.len()
    }

    /// Says whether so many results wait that the agent takes no items.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= RESULTS_WAITING_MAX
    }

    /// Returns the time from which there is a message to send. Nothing is waited for if nothing else comes.
    pub(crate) fn due(&self, is_last: bool) -> Option<Instant> {
        if self.sent_since.is_some() {
            return self.sent_since;
        }
        let (oldest, _) = self.waiting.front()?;
        let is_now = is_last || self.waiting.len() >= RESULTS_PER_MESSAGE_MAX;
        Some(if is_now { *oldest } else { *oldest + RESULTS_WAIT_MAX })
    }

    /// Returns the message to send: the last one if it was not acknowledged.
    pub(crate) fn message(&mut self) -> Vec<AccessResult> {
        if self.sent.is_empty() {
            let count = self.waiting.len().min(RESULTS_PER_MESSAGE_MAX);
            self.sent_since = self.waiting.front().map(|(came, _)| *came);
            self.sent.extend(self.waiting.drain(..count).map(|(_, result)| result));
        }
        self.sent.clone()
    }

    /// Drops the message, which the service has now.
    pub(crate) fn acknowledge(&mut self) {
        self.sent.clear();
        self.sent_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(item: usize) -> AccessResult {
        AccessResult { item: item as u64, ..AccessResult::default() }
    }

    /// Property: a message that was not acknowledged comes again unchanged, and no result is in two.
    #[test]
    fn messages_come_again_until_they_are_acknowledged() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        assert_eq!(outbox.due(true), None);
        outbox.add(now, result(0));
        assert_eq!(outbox.due(false), Some(now + RESULTS_WAIT_MAX));
        assert_eq!(outbox.due(true), Some(now));
        let first = outbox.message();
        outbox.add(now, result(1));
        assert_eq!(outbox.message(), first);
        outbox.acknowledge();
        assert_eq!(outbox.message(), [result(1)]);
        outbox.acknowledge();
        assert_eq!((outbox.len(), outbox.due(true)), (0, None));
    }

    /// Property: messages and the outbox have their sizes, at the edge.
    #[test]
    fn messages_and_outbox_are_bounded() {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        for item in 0..RESULTS_PER_MESSAGE_MAX {
            assert_ne!(outbox.due(false), Some(now), "{item}");
            outbox.add(now, result(item));
        }
        assert_eq!(outbox.due(false), Some(now), "a whole message waits for nothing");
        outbox.add(now, result(RESULTS_PER_MESSAGE_MAX));
        assert_eq!(outbox.message().len(), RESULTS_PER_MESSAGE_MAX);
        for item in outbox.len()..RESULTS_WAITING_MAX {
            assert!(!outbox.is_full());
            outbox.add(now, result(item));
        }
        assert!(outbox.is_full());
        outbox.acknowledge();
        assert!(!outbox.is_full());
    }
}
