//! Past states of the catalogue: each is a catalogue of its own, over the store as it was.
//!
//! Entries, their owners and modes, and the names of users, groups and storage elements are those of that
//! time. The caller is who it is now: account, groups and roles.

use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Operation, Past, PastPoint, Result, Revision};
use exacat_store::{PastRoute, PastStates};

use crate::Catalogue;
use crate::caller::Caller;

impl Catalogue {
    /// Refuses an operation that cannot be about a past state, and a caller who may not read one. A state
    /// takes work to make, so the caller must be known.
    pub fn admit_to_past(&self, caller: &Caller, operation: &Operation) -> Result<()> {
        Past::check(operation)?;
        self.admit_reader(caller)?;
        if caller.user().is_none() {
            let what = "present a token: anonymous callers read the present state only";
            return Err(Error::new(ErrorKind::Unauthenticated, what));
        }
        Ok(())
    }

    fn past_states(&self) -> Result<&dyn PastStates> {
        self.store.as_past_states().ok_or_else(|| {
            Error::invalid(
                "past states need the log of an embedded store: this server has a cluster, or serves a snapshot",
            )
        })
    }

    /// Finds the state at a point, and the work to make it.
    pub async fn past_route(&self, point: PastPoint) -> Result<PastRoute> {
        self.past_states()?.route(point).await
    }

    /// Opens the catalogue as it was after a change.
    pub async fn past(&self, revision: Revision) -> Result<Arc<Catalogue>> {
        let store = self.past_states()?.open(revision).await?;
        Catalogue::open(store, Arc::clone(&self.clock), self.settings.clone()).await
    }
}
