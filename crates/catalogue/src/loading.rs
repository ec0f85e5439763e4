//! Files that are to be loaded in bulk: judged as those to register are, and then the store's matter.

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{NewEntry, OperationId, Result};

use crate::caller::Caller;
use crate::register::{Call, PartIds, Plan};
use crate::{Catalogue, step_id};

impl Catalogue {
    /// What is to be made for those of `files` at the places `which`, in directories that are made where they are missing;
    /// none for one that cannot be made so: registering it tells why. Nothing is made but directories.
    ///
    /// At most as many files as one operation may register.
    pub async fn files_to_load(
        &self,
        caller: &Caller,
        id: OperationId,
        files: &[NewFile],
        which: &[usize],
    ) -> Result<Vec<Option<NewEntry>>> {
        caller.check_known()?;
        // It matters only where a file is there, and that is looked at when it is registered.
        let existing = Existing::Refuse;
        let call = Call { caller, files, parents: true, existing, names: self.names() };
        let ids = PartIds { create: id, merge: step_id(id, 1), parents: step_id(id, 2) };
        let plans = self.plan(&call, &ids, which).await?;
        let new = plans.into_iter().map(|plan| match plan {
            Plan::Create(new) => Some(*new),
            Plan::Closed(_) | Plan::Refused(_) => None,
        });
        Ok(new.collect())
    }
}
