//! Compares the facts that a request's permission was judged by with a state.

use std::collections::BTreeSet;

use exacat_model::{At, Effect, Mutation, RecordKey, Revision};

use super::{Top, View};
use crate::Ancestor;
use crate::judged::{Judged, JudgedEntry};

/// Iterates over the places in the tree that a mutation changes and that its caller needs rights
/// for.
pub fn places(mutation: &Mutation) -> impl Iterator<Item = &At> {
    let (first, second) = match mutation {
        Mutation::Create(new) => (Some(&new.at), None),
        Mutation::Update { at, .. } | Mutation::Remove { at, .. } | Mutation::Commit { at, .. } => {
            (Some(at), None)
        }
        Mutation::Move { from, to, .. } => (Some(from), Some(to)),
        Mutation::Restore { to, .. } | Mutation::RestoreBelow { to, .. } => (Some(to), None),
        Mutation::Purge(_)
        | Mutation::Reserve(_)
        | Mutation::Release { .. }
        | Mutation::Dequeue { .. }
        | Mutation::SetRecord { .. }
        | Mutation::DropRecord { .. } => (None, None),
    };
    first.into_iter().chain(second)
}

/// Says whether a change concerns an account or a token that may identify a caller.
pub fn changes_credentials(effect: &Effect) -> bool {
    let Effect::Recorded { key, before: Some(_), .. } = effect else { return false };
    matches!(key, RecordKey::User(_) | RecordKey::Token(_))
}

/// Says whether the caller would be judged the same for these mutations now. `own` recognises
/// revisions that this request made itself; its own changes do not matter.
pub fn judged_the_same(
    state: &dyn View,
    judged: &Judged,
    mutations: &[Mutation],
    own: &dyn Fn(Revision) -> bool,
) -> bool {
    let known = judged.records.iter().all(|(key, seen)| {
        state.record(*key).is_some_and(|(_, revision)| revision == *seen || own(revision))
    });
    if !known {
        return false;
    }
    if judged.entries.is_none() {
        return true;
    }
    let mut passed = BTreeSet::new();
    mutations.iter().flat_map(places).all(|at| {
        if passed.insert(at.parent) {
            let (way, top) = state.way_up(at.parent);
            // No entry there needs rights; the mutation is refused because of the missing
            // directory.
            if top != Top::Root {
                return true;
            }
            let as_judged = way.iter().all(|above| {
                let fact = Ancestor::of(above).map(|ancestor| JudgedEntry::from(&ancestor));
                fact.is_none_or(|fact| judged.passes(fact)) || own(above.revision)
            });
            if !as_judged {
                return false;
            }
        }
        state.at(at).is_none_or(|entry| judged.allows(JudgedEntry::from(&entry)) || own(entry.revision))
    })
}
