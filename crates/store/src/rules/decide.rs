//! Decides a mutation: a pure function of state and mutation to an effect, a refusal, or nothing to
//! do.
//!
//! Nothing is changed here. The input is the state, the mutation, and the revision and time of the
//! change. Preconditions are checked in the order of the contract's table, one function per row.

use exacat_model::Mutation;

use super::decision::{Context, Decision};
use super::view::View;
use super::{create, edit, place, registry, reservation};

/// Decides one mutation.
pub fn decide<V: View>(view: &V, context: Context, mutation: Mutation) -> Decision<V::Error> {
    match mutation {
        Mutation::Create(new) => create::create(view, context, *new),
        Mutation::Update { at, expect, edits } => edit::update(view, context, at, expect, edits),
        Mutation::Move { from, expect, to } => place::relocate(view, from, expect, to),
        Mutation::Remove { at, expect, only_empty, lfn } => place::remove(view, at, expect, only_empty, lfn),
        Mutation::Restore { trash, to } => place::restore(view, trash, to),
        Mutation::RestoreBelow { from, expect, to } => place::restore_below(view, from, expect, to),
        Mutation::Purge(target) => place::purge(view, target),
        Mutation::Reserve(reservation) => reservation::reserve(view, context, *reservation),
        Mutation::Commit { guid, se, at, size, checksums } => {
            reservation::commit(view, context, reservation::Written { guid, se, at, size, checksums })
        }
        Mutation::Release { guid, se, only_expired } => {
            reservation::release(view, context, guid, se, only_expired)
        }
        Mutation::Dequeue { se, done } => registry::dequeue(view, se, &done),
        Mutation::SetRecord { record, expect } => registry::set(view, record, expect),
        Mutation::DropRecord { key, expect } => registry::drop(view, key, expect),
    }
}
