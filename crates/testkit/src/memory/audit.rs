//! The audit of the memory store. It has no counters or indices, so it checks the state itself:
//! unreachable entries, duplicate identities, missing references, and sums that disagree.

use std::collections::BTreeSet;

use exacat_model::{Audit, Body, DirId, Entry, EntryId, RecordKey, Revision, SeNumber, Usage};
use exacat_store::rules::Top;

use super::apply;
use super::reads::place_text;
use super::state::State;

/// Checks everything, and that the changes reproduce the state.
pub(super) fn audit(state: &State) -> Audit {
    let mut audit =
        Audit { revision: state.revision, checked: Vec::new(), findings: Vec::new(), findings_total: 0 };
    entries(state, &mut audit);
    usage(state, &mut audit);
    collections(state, &mut audit);
    reservations(state, &mut audit);
    records(state, &mut audit);
    deletions(state, &mut audit);
    history(state, &mut audit);
    audit
}

fn checked(audit: &mut Audit, what: &str, count: usize) {
    audit.checked.push((what.to_owned(), count as u64));
}

/// Checks that each entry is at its own place, reachable, with a unique identity and replicas on
/// existing storage elements.
fn entries(state: &State, audit: &mut Audit) {
    let mut seen: BTreeSet<EntryId> = BTreeSet::from([state.root.id()]);
    for (parent, children) in &state.entries {
        if state.way_up(*parent).1 == Top::Nowhere {
            audit.find("reach", parent.0, "entries are in a directory that cannot be reached");
        }
        for (name, entry) in children {
            if entry.at.parent != *parent || entry.at.name != *name {
                audit.find("place", place_text(&entry.at), format!("it is kept at {} {name}", parent.0));
            }
        }
    }
    let mut count = 0;
    for entry in state.all() {
        count += 1;
        if !seen.insert(entry.id()) {
            audit.find("identity", place_text(&entry.at), "another entry has its id");
        }
        if entry.directory().is_some_and(|id| id.0 >= state.next_directory) {
            audit.find("identity", place_text(&entry.at), "its number is still to be given");
        }
        if entry.revision > state.revision {
            audit.find("revision", place_text(&entry.at), "it is of a change that is not there");
        }
        replicas(state, entry, audit);
    }
    checked(audit, "entries", count);
}

fn replicas(state: &State, entry: &Entry, audit: &mut Audit) {
    let Some(file) = entry.file() else { return };
    if !file.replicas.is_sorted_by(|one, next| one.se < next.se) {
        audit.find("replicas", place_text(&entry.at), "they are not sorted, or two are on one SE");
    }
    for replica in &file.replicas {
        let registered = state.records.contains_key(&RecordKey::Se(replica.se));
        if replica.check().is_err() || (replica.se != SeNumber::NONE && !registered) {
            audit.find("replicas", place_text(&entry.at), format!("a bad one on SE {}", replica.se.0));
        }
    }
}

/// Checks that the sums by directory, owner and group give the same total.
fn usage(state: &State, audit: &mut Audit) {
    let mut total = Usage::default();
    for entry in state.all().chain([&state.root]) {
        total.add(&Usage::of(entry));
    }
    let mut by_place = state.usage_below(DirId::ROOT);
    by_place.add(&Usage::of(&state.root));
    for item in state.trash.values() {
        by_place.add(&Usage::of(&item.entry));
        if let Some(directory) = item.entry.directory() {
            by_place.add(&state.usage_below(directory));
        }
    }
    let (mut by_owner, mut by_group) = (Usage::default(), Usage::default());
    let owners: BTreeSet<_> = state.all().chain([&state.root]).map(|entry| entry.owner).collect();
    let groups: BTreeSet<_> = state.all().chain([&state.root]).map(|entry| entry.group).collect();
    for owner in &owners {
        by_owner.add(&state.usage_where(|entry| entry.owner == *owner));
    }
    for group in &groups {
        by_group.add(&state.usage_where(|entry| entry.group == *group));
    }
    for (what, sum) in [("places", by_place), ("owners", by_owner), ("groups", by_group)] {
        if sum != total {
            audit.find("usage", what, format!("{sum:?} is not the total {total:?}"));
        }
    }
    checked(audit, "owners", owners.len());
    checked(audit, "groups", groups.len());
}

/// Checks that each collection has its set of members, of the stated size, and nothing else has
/// one.
fn collections(state: &State, audit: &mut Audit) {
    let mut found = BTreeSet::new();
    for entry in state.all() {
        if let Body::Collection { guid, members } = &entry.body {
            found.insert(*guid);
            let kept = state.members.get(guid).map(|set| set.len() as u64);
            if kept != Some(*members) {
                audit.find("members", guid, format!("it says {members}, {kept:?} are kept"));
            }
        }
    }
    for guid in state.members.keys().filter(|guid| !found.contains(guid)) {
        audit.find("members", guid, "they are of no collection");
    }
    checked(audit, "collections", found.len());
}

/// Checks that each upload reservation is under its own GUID, has pending replicas on registered
/// storage elements, and knows whether its file exists.
fn reservations(state: &State, audit: &mut Audit) {
    for (guid, reservation) in &state.reservations {
        if reservation.guid != *guid || reservation.pending.is_empty() {
            audit.find("reservations", guid, "it is of another GUID, or nothing is pending");
        }
        for pending in &reservation.pending {
            if !state.records.contains_key(&RecordKey::Se(pending.se)) {
                audit.find("reservations", guid, format!("SE {} is not registered", pending.se.0));
            }
        }
        // The reverse is possible: the file was purged after the reservation.
        if !reservation.exists && state.find(EntryId::Object(*guid)).is_some() {
            audit.find("reservations", guid, "the file is there, and it says it is not");
        }
    }
    checked(audit, "reservations", state.reservations.len());
}

/// Checks that each record is under its own key, has a unique name, and refers to existing records.
fn records(state: &State, audit: &mut Audit) {
    let mut names = BTreeSet::new();
    for (key, (record, _)) in &state.records {
        let which = format!("{key:?}");
        if record.key() != *key {
            audit.find("records", &which, "it is kept under another key");
        }
        if record.unique_name().is_some_and(|name| !names.insert((key.kind(), name.to_owned()))) {
            audit.find("records", &which, "another has its name");
        }
        if record.refers_to().is_some_and(|needs| !state.records.contains_key(&needs)) {
            audit.find("records", &which, "it refers to a record that is not there");
        }
    }
    checked(audit, "records", state.records.len());
}

/// Checks that each deletion is on a registered storage element, of a copy that its file does not
/// have.
fn deletions(state: &State, audit: &mut Audit) {
    for ((se, id), deletion) in &state.deletions {
        if !state.records.contains_key(&RecordKey::Se(*se)) {
            audit.find("deletions", format!("{id:?}"), format!("SE {} is not registered", se.0));
        }
        if state.in_use(*se, deletion.guid, &deletion.location) {
            audit.find("deletions", format!("{id:?}"), format!("{} is in use on SE {}", deletion.guid, se.0));
        }
    }
    checked(audit, "deletions", state.deletions.len());
}

/// Checks that the changes reproduce this state (clause H3).
fn history(state: &State, audit: &mut Audit) {
    let mut again = State::new();
    for (change, expected) in state.changes.iter().zip(1..) {
        if change.revision != Revision(expected) {
            audit.find("history", change.revision.0, "it is not the next");
        }
        if let Err(error) = apply::apply(&mut again, change.clone()) {
            audit.find("history", change.revision.0, error);
            return;
        }
    }
    let same = again.root == state.root
        && again.entries == state.entries
        && again.trash == state.trash
        && again.members == state.members
        && again.reservations == state.reservations
        && again.records == state.records
        && again.deletions == state.deletions
        && again.next_directory == state.next_directory
        && again.revision == state.revision;
    if !same {
        audit.find("history", "the state", "the changes, applied again, do not give it");
    }
    checked(audit, "changes", state.changes.len());
}
