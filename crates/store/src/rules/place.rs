//! Decides `Move`, `Remove`, `Restore` and `Purge` of the contract's table: the places of entries,
//! and their end.

use exacat_model::{At, DirId, Effect, Expect, Lfn, PurgeTarget, TrashId};

use super::checks::{
    check_free, check_not_root, check_parent, check_target, found_below_item, found_in_tree,
};
use super::decision::{Decision, Declined};
use super::refusals;
use super::view::View;
use crate::Refusal;

pub(super) fn relocate<V: View>(view: &V, from: At, expect: Expect, to: At) -> Decision<V::Error> {
    let entry = found_in_tree(view, &from, expect)?;
    if from == to {
        return Err(Declined::Unchanged);
    }
    check_not_root(&to.name)?;
    if check_parent(view, to.parent, entry.directory())? {
        return Err(Refusal::Loop.into());
    }
    check_free(view, &to)?;
    Ok(Effect::Moved { id: entry.id(), from, to, previous: Some(entry.revision) })
}

pub(super) fn remove<V: View>(
    view: &V,
    at: At,
    expect: Expect,
    only_empty: bool,
    lfn: Lfn,
) -> Decision<V::Error> {
    let entry = found_in_tree(view, &at, expect)?;
    let directory = entry.directory();
    if directory == Some(DirId::ROOT) {
        return Err(refusals::root_stays().into());
    }
    if only_empty {
        let directory = directory.ok_or(Refusal::WrongKind)?;
        if !view.is_empty(directory) {
            return Err(Refusal::NotEmpty.into());
        }
    }
    Ok(Effect::Removed { id: entry.id(), at, lfn, previous: Some(entry.revision) })
}

pub(super) fn restore<V: View>(view: &V, trash: TrashId, to: At) -> Decision<V::Error> {
    let entry = view.trashed(trash)?.ok_or(Refusal::NotFound)?.entry;
    check_target(view, &to)?;
    Ok(Effect::Restored { trash, id: entry.id(), to, previous: Some(entry.revision) })
}

pub(super) fn restore_below<V: View>(view: &V, from: At, expect: Expect, to: At) -> Decision<V::Error> {
    let entry = found_below_item(view, &from, expect)?;
    check_target(view, &to)?;
    Ok(Effect::Moved { id: entry.id(), from, to, previous: Some(entry.revision) })
}

pub(super) fn purge<V: View>(view: &V, target: PurgeTarget) -> Decision<V::Error> {
    let entry = match &target {
        PurgeTarget::Item(trash) => view.trashed(*trash)?.ok_or(Refusal::NotFound)?.entry,
        PurgeTarget::Below { at, expect } => found_below_item(view, at, *expect)?,
    };
    if entry.directory().is_some_and(|directory| !view.is_empty(directory)) {
        return Err(Refusal::NotEmpty.into());
    }
    Ok(Effect::Purged { target, entry: Box::new(entry) })
}
