//! Checks whether the permission of a request is still the same (clause A11 of the contract).

use exacat_model::{At, Effect, EntryId, Mutation, RecordKey, Revision};

use super::view::{Top, View};
use crate::{Judged, JudgedEntry};

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

/// Says whether the caller has the same permission for these mutations now. `own` recognises
/// revisions that an earlier attempt of the same request made.
pub fn judged_the_same<V: View>(
    view: &V,
    judged: &Judged,
    mutations: &[Mutation],
    own: impl Fn(Revision) -> bool,
) -> Result<bool, V::Error> {
    let is_same = |key: RecordKey, seen: Revision| {
        view.record(key).is_some_and(|(_, revision)| revision == seen || own(revision))
    };
    if !judged.records.iter().all(|(key, seen)| is_same(*key, *seen)) {
        return Ok(false);
    }
    if judged.entries.is_none() {
        return Ok(true);
    }
    let mut passed = None;
    for at in mutations.iter().flat_map(places) {
        if passed != Some(at.parent) {
            let mut way = Vec::new();
            // Permission at a missing place does not matter: the mutation is refused for the place.
            if view.climb(at.parent, |directory| way.push(directory)) != Top::Root {
                continue;
            }
            for directory in way {
                if view.rights(directory)?.is_some_and(|rights| judged.passes(rights)) {
                    continue;
                }
                let found = view.find(EntryId::Directory(directory))?;
                if !found.is_some_and(|found| own(found.entry.revision)) {
                    return Ok(false);
                }
            }
            passed = Some(at.parent);
        }
        if let Some(entry) = view.at(at)?
            && !judged.allows(JudgedEntry::from(&entry))
            && !own(entry.revision)
        {
            return Ok(false);
        }
    }
    Ok(true)
}
