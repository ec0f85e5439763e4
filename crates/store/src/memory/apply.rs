//! What a change does to the state. Needs nothing but the change and the state before: so a history gives the
//! state again (clause H3). What does not fit the state is refused as corrupt, for it cannot be a history.

use std::collections::btree_map::Entry as Slot;

use exacat_model::{
    At, Body, Booking, Change, Deletion, DeletionId, Effect, Entry, Error, ErrorKind, FieldChange, Guid,
    Location, PurgeTarget, QuotaOf, Record, RecordKey, Replica, Result, SeNumber, TrashId,
};

use super::edits::Edited;
use super::state::{State, Trashed};
use crate::Outcome;

fn corrupt(change: &Change, what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("change {} ({}) does not follow: {what}", change.revision.0, change.effect.name()),
    )
}

/// Does what the change says.
pub(super) fn apply(state: &mut State, change: Change) -> Result<()> {
    if change.revision.0 != state.revision.0 + 1 {
        return Err(corrupt(&change, "it is not the next"));
    }
    if change.time < state.time {
        return Err(corrupt(&change, "its time is before the last one's"));
    }
    perform(state, &change).ok_or_else(|| corrupt(&change, "what it names is not as it was"))?;
    state.revision = change.revision;
    state.time = change.time;
    let outcome = Outcome::Applied { revision: change.revision, id: change.effect.entry_id() };
    state.remember(change.operation, change.index, outcome);
    state.changes.push(change);
    Ok(())
}

/// None if something the effect names is not there.
fn perform(state: &mut State, change: &Change) -> Option<()> {
    let revision = change.revision;
    match &change.effect {
        Effect::Created { entry } => {
            if let Body::Directory(id) = entry.body {
                state.next_directory = id.0 + 1;
            }
            if let Body::Collection { guid, .. } = entry.body {
                state.members.insert(guid, Default::default());
            }
            place(state, (**entry).clone())?;
            for replica in entry.file().into_iter().flat_map(|file| &file.replicas) {
                wanted(state, entry.guid()?, replica);
            }
            Some(())
        }
        Effect::Updated { at, id, fields } => {
            let entry = state.at(at).filter(|entry| entry.id() == *id)?.clone();
            let guid = entry.guid().filter(|guid| state.members.contains_key(guid));
            let members = guid.and_then(|guid| state.members.remove(&guid)).unwrap_or_default();
            let mut edited = Edited { entry, members };
            // Sizes are those known when a replica was dropped.
            let mut gone = Vec::new();
            for field in fields {
                if let FieldChange::Replica { before: Some(replica), deletion: Some(id), .. } = field {
                    gone.push((*id, replica, edited.entry.file()?.size));
                }
                edited.change(field);
            }
            edited.entry.revision = revision;
            if let Some(guid) = guid {
                state.members.insert(guid, edited.members);
            }
            *state.at_mut(at)? = edited.entry;
            for field in fields {
                if let FieldChange::Replica { after: Some(replica), .. } = field {
                    wanted(state, id.object()?, replica);
                }
            }
            for (deletion, replica, size) in gone {
                queue(state, change, deletion, replica.se, id.object()?, size, &replica.location);
            }
            Some(())
        }
        Effect::Moved { id, from, to } => {
            let entry = take(state, from).filter(|entry| entry.id() == *id)?;
            place(state, Entry { at: to.clone(), revision, ..entry })
        }
        Effect::Removed { id, at, lfn } => {
            let entry = take(state, at).filter(|entry| entry.id() == *id)?;
            let entry = Entry { revision, ..entry };
            let item = Trashed { lfn: lfn.clone(), entry, removed_by: change.who, removed: change.time };
            state.trash.insert(TrashId(revision), item);
            Some(())
        }
        Effect::Restored { trash, id, to } => {
            let item = state.trash.remove(trash).filter(|item| item.entry.id() == *id)?;
            place(state, Entry { at: to.clone(), revision, ..item.entry })
        }
        Effect::Purged { target, entry } => {
            match target {
                PurgeTarget::Item(trash) => state.trash.remove(trash).map(|item| item.entry),
                PurgeTarget::Below { at, .. } => take(state, at),
            }
            .filter(|there| there.id() == entry.id())?;
            if let Some(guid) = entry.guid() {
                state.members.remove(&guid);
            }
            if let Some(file) = entry.file() {
                let kept = file.replicas.iter().filter(|replica| replica.takes_space());
                for (replica, index) in kept.zip(0..) {
                    let id = DeletionId { revision, index };
                    queue(state, change, id, replica.se, file.guid, file.size, &replica.location);
                }
            }
            Some(())
        }
        Effect::Booked { booking, before } => {
            state.bookings.insert(booking.guid, (**booking).clone());
            for pending in &booking.pending {
                take_off_queue(state, pending.se, booking.guid, &pending.location);
            }
            if let Some(before) = before {
                give_up(state, change, before, None);
            }
            Some(())
        }
        Effect::Committed { guid, at, created, replica, checksums } => {
            match created {
                Some(entry) => place(state, (**entry).clone())?,
                None => {
                    let entry = state.at_mut(at).filter(|entry| entry.guid() == Some(*guid))?;
                    entry.revision = revision;
                    let Body::File(file) = &mut entry.body else { return None };
                    file.replicas.retain(|other| other.se != replica.se);
                    file.replicas.push(replica.clone());
                    file.replicas.sort_by_key(|replica| replica.se);
                    for checksum in checksums.iter() {
                        file.checksums.add(*checksum).ok()?;
                    }
                }
            }
            wanted(state, *guid, replica);
            let booking = state.bookings.get_mut(guid)?;
            booking.exists = true;
            end_pending(state, *guid, Some(replica.se))
        }
        Effect::Released { booking, se } => {
            end_pending(state, booking.guid, *se)?;
            give_up(state, change, booking, *se);
            Some(())
        }
        Effect::Dequeued { se, done } => {
            for id in done {
                state.deletions.remove(&(*se, *id))?;
            }
            Some(())
        }
        Effect::Recorded { key, before, after } => {
            match after {
                Some(record) => {
                    state.records.insert(*key, ((**record).clone(), revision));
                }
                None => drop_record(state, *key),
            }
            if let (Some(Record::Se(before)), Some(Record::Se(after))) = (before.as_deref(), after.as_deref())
                && before.prefix != after.prefix
            {
                // Derived PFNs are others now.
                let queued: Vec<_> =
                    state.deletions.keys().filter(|(se, _)| *se == after.number).copied().collect();
                for key in queued {
                    let deletion = state.deletions.get(&key)?;
                    if state.in_use(key.0, deletion.guid, &deletion.location) {
                        state.deletions.remove(&key);
                    }
                }
            }
            Some(())
        }
    }
}

/// Puts an entry where it says; none if the name is taken.
fn place(state: &mut State, entry: Entry) -> Option<()> {
    let At { parent, name } = entry.at.clone();
    match state.entries.entry(parent).or_default().entry(name) {
        Slot::Vacant(slot) => {
            slot.insert(entry);
            Some(())
        }
        Slot::Occupied(_) => None,
    }
}

/// Takes away what stands there.
fn take(state: &mut State, at: &At) -> Option<Entry> {
    let children = state.entries.get_mut(&at.parent)?;
    let entry = children.remove(&at.name);
    if children.is_empty() {
        state.entries.remove(&at.parent);
    }
    entry
}

/// Queues a copy for deletion, unless the file or a booking of the GUID has it still.
fn queue(
    state: &mut State,
    change: &Change,
    id: DeletionId,
    se: SeNumber,
    guid: Guid,
    size: Option<u64>,
    location: &Location,
) {
    if state.in_use(se, guid, location) {
        return;
    }
    let deletion = Deletion { id, guid, size, location: location.clone(), queued: change.time };
    state.deletions.insert((se, id), deletion);
}

/// Queues what a booking that was had pending, on one SE or on all.
fn give_up(state: &mut State, change: &Change, was: &Booking, se: Option<SeNumber>) {
    let ended = was.pending.iter().filter(|pending| se.is_none_or(|se| se == pending.se));
    for (pending, index) in ended.zip(0..) {
        let id = DeletionId { revision: change.revision, index };
        queue(state, change, id, pending.se, was.guid, Some(was.size), &pending.location);
    }
}

/// A file has this replica now: nobody shall delete it.
fn wanted(state: &mut State, guid: Guid, replica: &Replica) {
    if replica.takes_space() {
        take_off_queue(state, replica.se, guid, &replica.location);
    }
}

/// Takes every deletion of this physical copy off the SE's queue, whichever file it was of.
fn take_off_queue(state: &mut State, se: SeNumber, guid: Guid, location: &Location) {
    let pfn = state.pfn(se, guid, location);
    let same = |deletion: &Deletion| state.pfn(se, deletion.guid, &deletion.location) == pfn;
    let found: Vec<_> = state
        .deletions
        .iter()
        .filter(|((of, _), deletion)| *of == se && same(deletion))
        .map(|(key, _)| *key)
        .collect();
    for key in found {
        state.deletions.remove(&key);
    }
}

/// Ends one pending replica of a booking, or all; and the booking with the last.
fn end_pending(state: &mut State, guid: Guid, se: Option<SeNumber>) -> Option<()> {
    let booking = state.bookings.get_mut(&guid)?;
    booking.pending.retain(|pending| se.is_some_and(|se| pending.se != se));
    if booking.pending.is_empty() {
        state.bookings.remove(&guid);
    }
    Some(())
}

/// Drops a record, and with a user or a group what belongs to it alone.
fn drop_record(state: &mut State, key: RecordKey) {
    state.records.remove(&key);
    match key {
        RecordKey::User(user) => {
            state.records.remove(&RecordKey::Quota(QuotaOf::User(user)));
            state
                .records
                .retain(|_, (record, _)| !matches!(record, Record::Token(token) if token.user == user));
        }
        RecordKey::Group(group) => {
            state.records.remove(&RecordKey::Quota(QuotaOf::Group(group)));
        }
        RecordKey::Se(_) | RecordKey::Quota(_) | RecordKey::Token(_) => {}
    }
}
