//! Decides `Move`, `Remove`, `Restore` and `Purge` of the contract's table: the places of entries,
//! and their end.

use exacat_model::{At, DirId, Effect, Entry, Expect, Lfn, PurgeTarget, TrashId};
use exacat_store::Refusal;
use exacat_store::rules::refusals;

use super::{
    Decision, Declined, check_depth, check_expected, check_free, check_not_root, check_parent, check_target,
    found_in_tree,
};
use crate::state::{State, Top};

pub(super) fn relocate(state: &State, from: At, expect: Expect, to: At) -> Decision {
    let entry = found_in_tree(state, &from, expect)?;
    if from == to {
        return Err(Declined::Unchanged);
    }
    check_not_root(&to.name)?;
    check_parent(state, to.parent)?;
    check_depth(state, to.parent)?;
    if let Some(id) = entry.directory()
        && state.way_up(to.parent).any(|(above, _)| above == id)
    {
        return Err(Refusal::Loop.into());
    }
    check_free(state, &to)?;
    Ok(Effect::Moved { id: entry.id(), from, to, previous: Some(entry.revision) })
}

pub(super) fn remove(state: &State, at: At, expect: Expect, only_empty: bool, lfn: Lfn) -> Decision {
    let entry = found_in_tree(state, &at, expect)?;
    let directory = entry.directory();
    if directory == Some(DirId::ROOT) {
        return Err(refusals::root_stays().into());
    }
    if only_empty {
        let directory = directory.ok_or(Refusal::WrongKind)?;
        if !state.is_empty_directory(directory) {
            return Err(Refusal::NotEmpty.into());
        }
    }
    Ok(Effect::Removed { id: entry.id(), at, lfn, previous: Some(entry.revision) })
}

pub(super) fn restore(state: &State, trash: TrashId, to: At) -> Decision {
    let (entry, _) = state.look().trashed(trash)?.ok_or(Refusal::NotFound)?;
    check_target(state, &to)?;
    Ok(Effect::Restored { trash, id: entry.id(), to, previous: Some(entry.revision) })
}

pub(super) fn restore_below(state: &State, from: At, expect: Expect, to: At) -> Decision {
    let entry = below_item(state, &from, expect)?;
    check_target(state, &to)?;
    Ok(Effect::Moved { id: entry.id(), from, to, previous: Some(entry.revision) })
}

/// Returns the entry at this place below an item of the trash.
fn below_item(state: &State, at: &At, expect: Expect) -> Result<Entry, Declined> {
    if !matches!(state.top(at.parent), Some(Top::Trash(_))) {
        return Err(Refusal::ParentGone.into());
    }
    let entry = state.look().find(at)?.ok_or(Refusal::NotFound)?;
    check_expected(&entry, expect)?;
    Ok(entry)
}

pub(super) fn purge(state: &State, target: PurgeTarget) -> Decision {
    let entry = match &target {
        PurgeTarget::Item(trash) => state.look().trashed(*trash)?.ok_or(Refusal::NotFound)?.0,
        PurgeTarget::Below { at, expect } => below_item(state, at, *expect)?,
    };
    if entry.directory().is_some_and(|directory| !state.is_empty_directory(directory)) {
        return Err(Refusal::NotEmpty.into());
    }
    Ok(Effect::Purged { target, entry: Box::new(entry) })
}
