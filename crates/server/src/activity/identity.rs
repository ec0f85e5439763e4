//! Identity of a request, for the log lines that the work on it writes.

use std::net::IpAddr;
use std::sync::Arc;

use exacat_activity::owner;
use exacat_model::AccountName;

use crate::requester::Requester;

/// The number, the user and the client of a request.
#[derive(Debug)]
pub struct RequestIdentity {
    number: u64,
    user: Option<AccountName>,
    client: Option<IpAddr>,
    /// Outcome, once it is known.
    #[cfg(feature = "otel")]
    outcome: parking_lot::Mutex<Option<crate::instruments::Ended>>,
}

impl RequestIdentity {
    pub(super) fn new(number: u64, requester: Option<&Requester>) -> Self {
        let user = requester.and_then(|requester| requester.caller.name().cloned());
        RequestIdentity {
            number,
            user,
            client: requester.and_then(|requester| requester.host),
            #[cfg(feature = "otel")]
            outcome: parking_lot::Mutex::new(None),
        }
    }

    /// Returns the number that `exacat sessions` and `exacat slow` show.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Notes the outcome.
    #[cfg(feature = "otel")]
    pub(crate) fn note(&self, outcome: crate::instruments::Ended) {
        *self.outcome.lock() = Some(outcome);
    }

    /// Returns the outcome, and forgets it: an identity may serve one request after another.
    #[cfg(feature = "otel")]
    pub(super) fn outcome(&self) -> Option<crate::instruments::Ended> {
        self.outcome.lock().take()
    }

    /// Returns the user's name; empty without one.
    pub fn user(&self) -> &str {
        self.user.as_ref().map_or("", AccountName::as_str)
    }

    /// Returns the client's host; none for a process on the server's machine.
    pub fn client(&self) -> Option<IpAddr> {
        self.client
    }
}

/// Returns the request that this thread works on now.
pub fn current_request() -> Option<Arc<RequestIdentity>> {
    owner()?.downcast().ok()
}
