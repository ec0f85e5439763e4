//! Checks whether the permission of a request is still the same (clause A11 of the contract).

use exacat_model::{At, EntryId, Mutation, RecordKey, Revision};
use exacat_store::{Judged, JudgedEntry};

use crate::defect::Defect;
use crate::state::{State, Top};

/// Says whether the caller has the same permission for these mutations now. `own` are the revisions
/// that an earlier attempt of the same request made.
pub(crate) fn judged_the_same(
    state: &State,
    judged: &Judged,
    mutations: &[Mutation],
    own: &[Revision],
) -> Result<bool, Defect> {
    // Most requests end at this one comparison.
    if state.rights_changed() <= judged.since {
        return Ok(true);
    }
    let is_known = |key: RecordKey, seen: Revision| {
        state.record(key).is_some_and(|(_, revision)| *revision == seen || own.contains(revision))
    };
    if !judged.records.iter().all(|(key, seen)| is_known(*key, *seen)) {
        return Ok(false);
    }
    if judged.entries.is_none() {
        return Ok(true);
    }
    let mut passed = None;
    for at in mutations.iter().flat_map(exacat_store::rules::places) {
        if passed != Some(at.parent) {
            // Permission at a missing place does not matter: the mutation is refused for the place.
            if state.top(at.parent) != Some(Top::Root) {
                continue;
            }
            if !way_as_judged(state, judged, at, own)? {
                return Ok(false);
            }
            passed = Some(at.parent);
        }
        if let Some(entry) = state.look().find(at)?
            && !judged.allows(JudgedEntry::from(&entry))
            && !own.contains(&entry.revision)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn way_as_judged(state: &State, judged: &Judged, at: &At, own: &[Revision]) -> Result<bool, Defect> {
    for (id, directory) in state.way_up(at.parent) {
        let id = EntryId::Directory(id);
        let (owner, group, mode) = (directory.owner, directory.group, directory.mode);
        if judged.passes(JudgedEntry { id, owner, group, mode }) {
            continue;
        }
        let made = state.look().find_id(id)?.map(|found| found.entry.revision);
        if !made.is_some_and(|made| own.contains(&made)) {
            return Ok(false);
        }
    }
    Ok(true)
}
