//! Compares the facts that a request's permission was judged by with a state.

use std::collections::BTreeSet;

use exacat_model::{Mutation, Revision};
use exacat_store::Ancestor;
use exacat_store::rules::{Top, places};
use exacat_store::{Judged, JudgedEntry};

use crate::memory::state::State;

/// Says whether the caller would be judged the same for these mutations now. `own` recognises
/// revisions that this request made itself; its own changes do not matter.
pub(crate) fn judged_the_same(
    state: &State,
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
        state.at(at).is_none_or(|entry| judged.allows(JudgedEntry::from(entry)) || own(entry.revision))
    })
}
