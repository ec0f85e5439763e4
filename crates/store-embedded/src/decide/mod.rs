//! Decides a mutation: a pure function of state and mutation to an effect, a refusal, or nothing to
//! do.
//!
//! Nothing is changed here. The input is the state, the mutation, and the revision and time of the
//! change. Preconditions are checked in the order of the contract's table, one function per row.

mod create;
mod edit;
mod judged;
mod place;
mod quota;
mod registry;
mod reservation;

use exacat_model::codec::Encode;
use exacat_model::limits::DEPTH_MAX;
use exacat_model::{
    At, DirId, Effect, Entry, EntryId, Expect, Mutation, Name, PurgeTarget, Revision, TimeMs,
};
use exacat_store::Refusal;
use exacat_store::rules::refusals;

use crate::defect::Defect;
use crate::keyspace;
use crate::page::Row;
use crate::state::State;

/// Stamp of the change, if there will be one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub revision: Revision,
    /// Time of the commit.
    pub time: TimeMs,
}

/// Reasons why there is no effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Declined {
    /// Everything requested is true already.
    Unchanged,
    /// A precondition does not hold.
    Refused(Refusal),
    /// The state contradicts itself, or is unreadable.
    Defect(Defect),
}

impl From<Refusal> for Declined {
    fn from(refusal: Refusal) -> Self {
        Declined::Refused(refusal)
    }
}

impl From<Defect> for Declined {
    fn from(defect: Defect) -> Self {
        Declined::Defect(defect)
    }
}

pub(crate) use create::check_well_formed;
pub(crate) use judged::judged_the_same;
pub(crate) use quota::would_exceed;

type Decision = Result<Effect, Declined>;

/// Decides one mutation.
pub(crate) fn decide(state: &State, context: Context, mutation: Mutation) -> Decision {
    match mutation {
        Mutation::Create(new) => create::create(state, context, *new),
        Mutation::Update { at, expect, edits } => edit::update(state, context, at, expect, edits),
        Mutation::Move { from, expect, to } => place::relocate(state, from, expect, to),
        Mutation::Remove { at, expect, only_empty, lfn } => place::remove(state, at, expect, only_empty, lfn),
        Mutation::Restore { trash, to } => place::restore(state, trash, to),
        Mutation::RestoreBelow { from, expect, to } => place::restore_below(state, from, expect, to),
        Mutation::Purge(target) => place::purge(state, target),
        Mutation::Reserve(reservation) => reservation::reserve(state, context, *reservation),
        Mutation::Commit { guid, se, at, size, checksums } => {
            reservation::commit(state, context, reservation::Written { guid, se, at, size, checksums })
        }
        Mutation::Release { guid, se, only_expired } => {
            reservation::release(state, context, guid, se, only_expired)
        }
        Mutation::Dequeue { se, done } => registry::dequeue(state, se, &done),
        Mutation::SetRecord { record, expect } => registry::set(state, record, expect),
        Mutation::DropRecord { key, expect } => registry::drop(state, key, expect),
    }
}

/// Returns the approximate maximum of bytes that log and memory may need for a mutation. These are
/// its own bytes twice (a value can return as a before), and those of the entries in it.
pub(crate) fn bytes_at_most(state: &State, mutation: &Mutation) -> Result<usize, Defect> {
    /// Bytes for an effect's numbers, and around it.
    const AROUND: usize = 256;
    let look = state.look();
    let bytes = |row: Option<&Row<'_>>| row.map_or(0, Row::bytes);
    let named = match mutation {
        Mutation::Update { at, .. } | Mutation::Remove { at, .. } => look.at(at, bytes)?,
        Mutation::Move { from, .. } | Mutation::RestoreBelow { from, .. } => look.at(from, bytes)?,
        Mutation::Restore { trash, .. } | Mutation::Purge(PurgeTarget::Item(trash)) => {
            look.view.find(keyspace::TRASH, &keyspace::trash_key(*trash), bytes)?
        }
        Mutation::Purge(PurgeTarget::Below { at, .. }) => look.at(at, bytes)?,
        Mutation::Commit { guid, .. } => look.view.find_guid(*guid, bytes)?,
        _ => 0,
    };
    let kept = match mutation {
        Mutation::Commit { guid, .. } | Mutation::Release { guid, .. } => {
            state.reservation(*guid).map(Encode::to_bytes)
        }
        Mutation::Reserve(reservation) => state.reservation(reservation.guid).map(Encode::to_bytes),
        Mutation::SetRecord { record, .. } => state.record(record.key()).map(|(record, _)| record.to_bytes()),
        Mutation::DropRecord { key, .. } => state.record(*key).map(|(record, _)| record.to_bytes()),
        _ => None,
    };
    let edits = match mutation {
        Mutation::Update { edits, .. } => edits.len() * 64,
        _ => 0,
    };
    Ok(AROUND + edits + 2 * named + kept.map_or(0, |bytes| bytes.len()))
}

// ---- shared checks ----

/// Checks that no entry but the root gets the root's name.
fn check_not_root(name: &Name) -> Result<(), Refusal> {
    if *name == Name::root() {
        return Err(refusals::root_name());
    }
    Ok(())
}

fn check_parent(state: &State, parent: DirId) -> Result<(), Refusal> {
    if state.is_alive(parent) { Ok(()) } else { Err(Refusal::ParentGone) }
}

/// Checks that an entry in this directory would not be too deep.
fn check_depth(state: &State, parent: DirId) -> Result<(), Refusal> {
    let depth = state.depth(parent) + 1;
    if depth > DEPTH_MAX {
        return Err(refusals::too_deep(depth));
    }
    Ok(())
}

fn check_free(state: &State, at: &At) -> Result<(), Declined> {
    match state.look().find(at)? {
        Some(entry) => Err(Refusal::Exists(entry.id()).into()),
        None => Ok(()),
    }
}

/// Checks that a name can be taken: the directory is in the tree, the path not too deep, the name
/// free.
fn check_target(state: &State, at: &At) -> Result<(), Declined> {
    check_not_root(&at.name)?;
    check_parent(state, at.parent)?;
    check_depth(state, at.parent)?;
    check_free(state, at)
}

fn check_expected(entry: &Entry, expect: Expect) -> Result<(), Refusal> {
    let id_differs = expect.id.is_some_and(|id: EntryId| id != entry.id());
    if id_differs || expect.revision.is_some_and(|revision| revision != entry.revision) {
        return Err(Refusal::Stale);
    }
    Ok(())
}

/// Returns the entry in the tree at this place, if it is the expected one.
fn found_in_tree(state: &State, at: &At, expect: Expect) -> Result<Entry, Declined> {
    check_parent(state, at.parent)?;
    let entry = state.look().find(at)?.ok_or(Refusal::NotFound)?;
    check_expected(&entry, expect)?;
    Ok(entry)
}
