//! Clients that were sent to storage elements, and failures that they met there.

use std::collections::HashMap;

use exacat_model::SeNumber;
use parking_lot::Mutex;

/// Counts by storage element. Only known storage elements are counted, which bounds the size.
#[derive(Debug, Default)]
pub(crate) struct Visits(Mutex<HashMap<SeNumber, (u64, u64)>>);

impl Visits {
    /// Counts a client that is sent to a storage element.
    pub(crate) fn redirected(&self, se: SeNumber) {
        self.0.lock().entry(se).or_default().0 += 1;
    }

    /// Counts a failure of a storage element that a client reported.
    pub(crate) fn failed(&self, se: SeNumber) {
        self.0.lock().entry(se).or_default().1 += 1;
    }

    /// Returns the clients that were sent to a storage element, and its failures.
    pub(crate) fn of(&self, se: SeNumber) -> (u64, u64) {
        self.0.lock().get(&se).copied().unwrap_or_default()
    }
}
