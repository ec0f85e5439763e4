//! Rights to groups of elements, whose values the history keeps beside the catalogue.

use exacat_model::{AccountName, Answer, Error, ErrorKind, GroupSettings, Lfn, Operation, Result};

use crate::Catalogue;
use crate::caller::{Caller, ElementAccess};

impl Catalogue {
    /// Refuses a caller who may not use a group of elements in this way.
    pub fn check_elements(
        &self,
        caller: &Caller,
        group: &GroupSettings,
        access: ElementAccess,
    ) -> Result<()> {
        let names = self.names();
        let group_id = |name: &AccountName| names.group(name).ok().map(|group| group.id);
        caller.check_elements(group, access, self.settings.anonymous_reads, group_id)
    }

    /// Refuses a caller who may not make groups of elements.
    pub fn check_new_elements(&self, caller: &Caller) -> Result<()> {
        caller.check_operator("making a group of elements")
    }

    /// Refuses an operation on elements: a server with a history answers it instead of the catalogue.
    pub(crate) fn no_elements(&self, caller: &Caller, operation: &Operation) -> Result<Answer> {
        let changes =
            matches!(operation, Operation::ElementGroupDrop { .. } | Operation::ElementWrite { .. });
        if matches!(operation, Operation::ElementGroupSet { .. }) {
            caller.check_operator("making a group of elements")?;
        } else if changes || !self.settings.anonymous_reads {
            caller.check_known()?;
        }
        caller.check_scope(&Lfn::root())?;
        Err(Error::new(
            ErrorKind::Unavailable,
            "this server keeps no history of elements: exacat serve --history does",
        ))
    }
}
