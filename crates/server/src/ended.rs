//! Log lines about requests that ended.

use crate::instruments::EndedRequests;
use crate::requester::Requester;

impl EndedRequests {
    /// Writes the line that each request has at the level of debugging.
    pub(crate) fn log(&self, requester: &Requester) {
        tracing::debug!(
            request = self.request,
            user = requester.user(),
            client = requester.client(),
            operation = self.operation.name(),
            outcome = self.outcome.name(),
            requests = self.requests,
            items = self.items,
            us = u64::try_from(self.time.as_micros()).unwrap_or(u64::MAX),
            "request ended"
        );
    }

    /// Writes the line of a slow request, after `unwritten` other ones without a line.
    pub(crate) fn log_as_slow(&self, requester: &Requester, unwritten: u64) {
        tracing::warn!(
            request = self.request,
            user = requester.user(),
            client = requester.client(),
            operation = self.operation.name(),
            outcome = self.outcome.name(),
            requests = self.requests,
            items = self.items,
            ms = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX),
            others_not_logged = unwritten,
            "slow request"
        );
    }
}
