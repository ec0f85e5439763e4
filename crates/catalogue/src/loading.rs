//! Files for a bulk load: judges them like files to register, then passes them to the store.

use std::collections::HashMap;

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{Lfn, NewEntry, OperationId, Result};
use exacat_store::Gate;
use parking_lot::Mutex;

use crate::caller::Caller;
use crate::register::{Call, PartIds, Plan};
use crate::{Catalogue, step_id};

/// Most directories that a load remembers; an unordered listing returns to them again and again.
const KNOWN_MAX: usize = 1 << 20;

/// Directories that a load found or made. Only for a load that owns the store and neither moves nor
/// removes entries, because it assumes that a directory found once still exists.
#[derive(Default)]
pub struct KnownDirectories(Mutex<HashMap<Lfn, Gate>>);

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
        known: &KnownDirectories,
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
            known: Some(known),
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

    /// Returns the directories of these paths. Looks them up only if they are not remembered, and
    /// makes missing ones.
    pub(crate) async fn known_directories(
        &self,
        call: &Call<'_>,
        known: &KnownDirectories,
        ids: &PartIds,
        lfns: &[Lfn],
    ) -> Result<Vec<Result<Gate>>> {
        let mut found: Vec<Option<Result<Gate>>> = {
            let known = known.0.lock();
            lfns.iter().map(|lfn| known.get(lfn).map(|gate| Ok(*gate))).collect()
        };
        let unknown: Vec<usize> = (0..lfns.len()).filter(|number| found[*number].is_none()).collect();
        if !unknown.is_empty() {
            let wanted: Vec<Lfn> = unknown.iter().map(|number| lfns[*number].clone()).collect();
            let made = self.ensure_directories(call.caller, ids.parents, &wanted).await?;
            let mut known = known.0.lock();
            if known.len() + wanted.len() > KNOWN_MAX {
                known.clear();
            }
            for ((number, lfn), made) in unknown.into_iter().zip(wanted).zip(made) {
                if let Ok(directory) = &made {
                    known.insert(lfn, directory.gate);
                }
                found[number] = Some(made.map(|directory| directory.gate));
            }
        }
        let missing = |lfn: &Lfn| Err(exacat_model::Error::not_found(format!("{lfn} is not there")));
        Ok(found.into_iter().zip(lfns).map(|(gate, lfn)| gate.unwrap_or_else(|| missing(lfn))).collect())
    }
}
