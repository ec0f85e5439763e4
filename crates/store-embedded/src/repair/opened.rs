//! State that opening a catalogue would give, when all its files are intact.

use std::sync::Arc;

use exacat_model::{ErrorKind, Result, Revision, TimeMs};

use super::context::RepairContext;
use crate::recovery::recover;
use crate::table::RunSet;

/// State of a catalogue whose files are all intact.
pub(super) struct StateFound {
    pub revision: Revision,
    pub time: TimeMs,
    pub entries: u64,
    pub digest: u128,
    /// Problems of the state in spite of that.
    pub problems: Vec<String>,
}

/// Builds the state that opening would give, and audits it. Changes nothing.
pub(super) fn state_of(context: &RepairContext<'_>) -> Result<StateFound> {
    let (disk, data) = (context.disk, context.data);
    let recovered = RunSet::look_at(Arc::clone(disk), &data.runs(), context.identity.clone())
        .and_then(|run_set| recover(disk, data, context.identity.id, run_set, context.settings, false));
    let recovered = match recovered {
        Ok(recovered) => recovered,
        Err(error) if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Internal) => {
            let problems = vec![error.message];
            return Ok(StateFound {
                revision: Revision(0),
                time: TimeMs(0),
                entries: 0,
                digest: 0,
                problems,
            });
        }
        Err(error) => return Err(error),
    };
    let state = &recovered.state;
    let problems = match state.audit() {
        Ok(audit) => audit
            .findings
            .iter()
            .map(|item| format!("{}: {}: {}", item.what, item.which, item.detail))
            .collect(),
        Err(defect) => vec![defect.to_string()],
    };
    let (revision, time, entries, digest) = (state.revision, state.time, state.entries, state.digest());
    Ok(StateFound { revision, time, entries, digest, problems })
}
