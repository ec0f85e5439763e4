//! Checks that several rules share: names, places, targets and storage elements.

use exacat_model::limits::{DEPTH_MAX, FILE_BYTES_MAX};
use exacat_model::{At, DirId, Entry, Expect, Name, Replica, SeNumber};

use super::decision::Declined;
use super::refusals;
use super::view::{Top, View, se};
use crate::Refusal;

/// Refuses a number above its limit.
pub(super) fn check_limit(got: usize, max: usize, refusal: fn(usize) -> Refusal) -> Result<(), Refusal> {
    if got > max { Err(refusal(got)) } else { Ok(()) }
}

pub(super) fn check_size(size: u64) -> Result<(), Refusal> {
    if size > FILE_BYTES_MAX { Err(refusals::too_large(size)) } else { Ok(()) }
}

/// Says whether a storage element occurs twice.
pub(super) fn has_duplicate(ses: impl Iterator<Item = SeNumber>) -> bool {
    let mut ses: Vec<SeNumber> = ses.collect();
    ses.sort_unstable();
    ses.windows(2).any(|pair| pair[0] == pair[1])
}

/// Checks that no entry but the root gets the root's name.
pub(super) fn check_not_root(name: &Name) -> Result<(), Refusal> {
    if *name == Name::root() {
        return Err(refusals::root_name());
    }
    Ok(())
}

/// Checks that a directory is in the tree, and not too deep for another entry. Returns whether it
/// is `below`, or anywhere below it.
pub(super) fn check_parent<V: View>(view: &V, parent: DirId, below: Option<DirId>) -> Result<bool, Refusal> {
    // Counts the root, and an LFN does not: with the new name both numbers agree.
    let (mut depth, mut is_below) = (0, false);
    let top = view.climb(parent, |directory| {
        depth += 1;
        is_below |= Some(directory) == below;
    });
    if top != Top::Root {
        return Err(Refusal::ParentGone);
    }
    check_limit(depth, DEPTH_MAX, refusals::too_deep)?;
    Ok(is_below)
}

pub(super) fn check_free<V: View>(view: &V, at: &At) -> Result<(), Declined<V::Error>> {
    match view.at(at)? {
        Some(entry) => Err(Refusal::Exists(entry.id()).into()),
        None => Ok(()),
    }
}

/// Checks that a place can be taken: the directory is in the tree, the path not too deep, the name
/// free.
pub(super) fn check_target<V: View>(view: &V, at: &At) -> Result<(), Declined<V::Error>> {
    check_not_root(&at.name)?;
    check_parent(view, at.parent, None)?;
    check_free(view, at)
}

fn check_expected(entry: &Entry, expect: Expect) -> Result<(), Refusal> {
    let id_differs = expect.id.is_some_and(|id| id != entry.id());
    if id_differs || expect.revision.is_some_and(|revision| revision != entry.revision) {
        return Err(Refusal::Stale);
    }
    Ok(())
}

fn expected_at<V: View>(view: &V, at: &At, expect: Expect) -> Result<Entry, Declined<V::Error>> {
    let entry = view.at(at)?.ok_or(Refusal::NotFound)?;
    check_expected(&entry, expect)?;
    Ok(entry)
}

/// Returns the entry in the tree at this place, if it is the expected one.
pub(super) fn found_in_tree<V: View>(view: &V, at: &At, expect: Expect) -> Result<Entry, Declined<V::Error>> {
    if !view.is_alive(at.parent) {
        return Err(Refusal::ParentGone.into());
    }
    expected_at(view, at, expect)
}

/// Returns the entry at this place below an item of the trash, if it is the expected one.
pub(super) fn found_below_item<V: View>(
    view: &V,
    at: &At,
    expect: Expect,
) -> Result<Entry, Declined<V::Error>> {
    if !matches!(view.climb(at.parent, |_| ()), Top::Trash(_)) {
        return Err(Refusal::ParentGone.into());
    }
    expected_at(view, at, expect)
}

/// Checks that the storage element of a replica is registered.
pub(super) fn check_se<V: View>(view: &V, replica: &Replica) -> Result<(), Refusal> {
    if replica.is_member() || se(view, replica.se).is_some() { Ok(()) } else { Err(Refusal::NoSuchSe) }
}
