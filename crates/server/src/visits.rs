//! Clients that were sent to storage elements, and failures that they met there.

use std::collections::HashMap;

use exacat_model::SeNumber;
use parking_lot::Mutex;

/// Protocol of a client that is sent to a storage element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SentBy {
    Xrootd,
    Http,
}

/// Counts of one storage element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visited {
    pub by_xrootd: u64,
    pub by_http: u64,
    pub failures: u64,
}

/// Counts by storage element. Only known storage elements are counted, which bounds the size.
#[derive(Debug, Default)]
pub(crate) struct Visits(Mutex<HashMap<SeNumber, Visited>>);

impl Visits {
    /// Counts a client that is sent to a storage element.
    pub(crate) fn redirected(&self, se: SeNumber, by: SentBy) {
        let mut visits = self.0.lock();
        let visited = visits.entry(se).or_default();
        match by {
            SentBy::Xrootd => visited.by_xrootd += 1,
            SentBy::Http => visited.by_http += 1,
        }
    }

    /// Counts a failure of a storage element that a client reported.
    pub(crate) fn failed(&self, se: SeNumber) {
        self.0.lock().entry(se).or_default().failures += 1;
    }

    /// Returns the counts of a storage element.
    pub(crate) fn of(&self, se: SeNumber) -> Visited {
        self.0.lock().get(&se).copied().unwrap_or_default()
    }
}
