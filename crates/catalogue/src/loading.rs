//! Files for a bulk load: judges them like files to register, then passes them to the store.

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{NewEntry, OperationId, Result};

use crate::caller::Caller;
use crate::register::{Call, DirectoryCache, PartIds, Plan};
use crate::{Catalogue, step_id};

impl Catalogue {
    /// Plans new entries for the `files` at the indices `which`, and makes missing directories.
    /// Returns none for a file that cannot be created this way: registering it gives the reason.
    /// Makes nothing but directories.
    ///
    /// `which` may have at most as many files as one operation may register.
    pub async fn files_to_load(
        &self,
        caller: &Caller,
        id: OperationId,
        files: &[NewFile],
        which: &[usize],
        cache: &DirectoryCache,
    ) -> Result<Vec<Option<NewEntry>>> {
        caller.check_known()?;
        // Matters only for a file that exists already, and registration handles that one.
        let existing = Existing::Refuse;
        let call = Call {
            caller,
            files,
            parents: true,
            existing,
            names: self.names(),
            cache: Some(cache),
            ways: None,
        };
        let ids = PartIds { create: id, merge: step_id(id, 1), parents: step_id(id, 2) };
        let plans = self.plan(&call, &ids, which).await?;
        let new = plans.into_iter().map(|plan| match plan {
            Plan::Create(new) => Some(*new),
            Plan::Closed(_) | Plan::Refused(_) => None,
        });
        Ok(new.collect())
    }
}
