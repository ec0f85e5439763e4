//! Applies changes to a state. A function of the change and the state before only, so a history
//! reproduces the state (clause H3).

use exacat_model::{
    Body, Change, Deletion, DeletionId, Effect, Entry, FieldChange, Guid, Location, PurgeTarget, QuotaOf,
    Record, RecordKey, Replica, Reservation, SeNumber, TrashId,
};
use exacat_store::rules::Trashed;

use super::edits::Edited;
use crate::memory::state::State;

/// Applies a change. None if an item that the effect names does not exist: then no history contains
/// the change.
pub(crate) fn perform(state: &mut State, change: &Change) -> Option<()> {
    let revision = change.revision;
    match &change.effect {
        Effect::Created { entry } => {
            if let Body::Directory(id) = entry.body {
                state.next_directory = id.0 + 1;
            }
            if let Body::Collection { guid, .. } = entry.body {
                state.begin_members(guid);
            }
            place(state, (**entry).clone())?;
            for replica in entry.file().into_iter().flat_map(|file| &file.replicas) {
                wanted(state, entry.guid()?, replica);
            }
            Some(())
        }
        Effect::Updated { at, id, fields, .. } => {
            let entry = state.at(at).filter(|entry| entry.id() == *id)?;
            let mut edited = Edited::new(entry.clone());
            // A deletion has the size known when the replica was dropped.
            let mut gone = Vec::new();
            for field in fields {
                if let FieldChange::Replica { before: Some(replica), deletion: Some(id), .. } = field {
                    gone.push((*id, replica, edited.entry.file()?.size));
                }
                edited.change(field);
            }
            edited.entry.revision = revision;
            if let Body::Collection { guid, .. } = edited.entry.body {
                for (member, is) in edited.members {
                    state.set_member(guid, member, is);
                }
            }
            state.put_entry(edited.entry);
            for field in fields {
                if let FieldChange::Replica { after: Some(replica), .. } = field {
                    wanted(state, id.object()?, replica);
                }
            }
            for (deletion, replica, size) in gone {
                let (guid, location) = (id.object()?, replica.location.clone());
                queue(
                    state,
                    replica.se,
                    Deletion { id: deletion, guid, size, location, queued: change.time },
                );
            }
            Some(())
        }
        Effect::Moved { id, from, to, .. } => {
            let entry = state.take_entry(from).filter(|entry| entry.id() == *id)?;
            place(state, Entry { at: to.clone(), revision, ..entry })
        }
        Effect::Removed { id, at, lfn, .. } => {
            let entry = state.take_entry(at).filter(|entry| entry.id() == *id)?;
            let entry = Entry { revision, ..entry };
            let item = Trashed { lfn: lfn.clone(), entry, removed_by: change.who, removed: change.time };
            state.put_trashed(TrashId(revision), item);
            Some(())
        }
        Effect::Restored { trash, id, to, .. } => {
            let item = state.take_trashed(*trash).filter(|item| item.entry.id() == *id)?;
            place(state, Entry { at: to.clone(), revision, ..item.entry })
        }
        Effect::Purged { target, entry } => {
            match target {
                PurgeTarget::Item(trash) => state.take_trashed(*trash).map(|item| item.entry),
                PurgeTarget::Below { at, .. } => state.take_entry(at),
            }
            .filter(|there| there.id() == entry.id())?;
            if let Body::Collection { guid, .. } = entry.body {
                state.forget_members(guid);
            }
            if let Some(file) = entry.file() {
                let kept = file.replicas.iter().filter(|replica| replica.takes_space());
                for (replica, index) in kept.zip(0..) {
                    let id = DeletionId { revision, index };
                    let (guid, size, location) = (file.guid, file.size, replica.location.clone());
                    queue(state, replica.se, Deletion { id, guid, size, location, queued: change.time });
                }
            }
            Some(())
        }
        Effect::Reserved { reservation, before } => {
            state.put_reservation((**reservation).clone());
            for pending in &reservation.pending {
                take_off_queue(state, pending.se, reservation.guid, &pending.location);
            }
            if let Some(before) = before {
                give_up(state, change, before, None);
            }
            Some(())
        }
        Effect::Committed { guid, at, created, replica, checksums, .. } => {
            match created {
                Some(entry) => place(state, (**entry).clone())?,
                None => {
                    let mut entry = state.at(at).filter(|entry| entry.guid() == Some(*guid))?.clone();
                    entry.revision = revision;
                    let Body::File(file) = &mut entry.body else { return None };
                    file.replicas.retain(|other| other.se != replica.se);
                    file.replicas.push(replica.clone());
                    file.replicas.sort_by_key(|replica| replica.se);
                    for checksum in checksums.iter() {
                        file.checksums.add(*checksum).ok()?;
                    }
                    state.put_entry(entry);
                }
            }
            wanted(state, *guid, replica);
            let reservation = state.reservation(*guid)?;
            end_pending(state, Reservation { exists: true, ..reservation }, Some(replica.se));
            Some(())
        }
        Effect::Released { reservation, se } => {
            let kept = state.reservation(reservation.guid)?;
            end_pending(state, kept, *se);
            give_up(state, change, reservation, *se);
            Some(())
        }
        Effect::Dequeued { se, done } => {
            for id in done {
                state.take_deletion(*se, *id)?;
            }
            Some(())
        }
        Effect::Recorded { key, before, after } => {
            match after {
                Some(record) => state.put_record(*key, Some((**record).clone()), revision),
                None => drop_record(state, *key, revision),
            }
            if let (Some(Record::Se(before)), Some(Record::Se(after))) = (before.as_deref(), after.as_deref())
                && before.prefix != after.prefix
            {
                // The change may alter derived PFNs.
                for deletion in state.deletions_on(after.number) {
                    if state.in_use(after.number, deletion.guid, &deletion.location) {
                        state.take_deletion(after.number, deletion.id);
                    }
                }
            }
            Some(())
        }
    }
}

/// Puts an entry at its place; none if the name is taken.
fn place(state: &mut State, entry: Entry) -> Option<()> {
    if state.at(&entry.at).is_some() {
        return None;
    }
    state.put_entry(entry);
    Some(())
}

/// Queues a copy for deletion, unless the file or an upload reservation of the GUID still has it.
fn queue(state: &mut State, se: SeNumber, deletion: Deletion) {
    if !state.in_use(se, deletion.guid, &deletion.location) {
        state.put_deletion(se, deletion);
    }
}

/// Queues the pending copies of an ended upload reservation for deletion, on one SE or on all.
fn give_up(state: &mut State, change: &Change, was: &Reservation, se: Option<SeNumber>) {
    let ended = was.pending.iter().filter(|pending| se.is_none_or(|se| se == pending.se));
    for (pending, index) in ended.zip(0..) {
        let id = DeletionId { revision: change.revision, index };
        let (guid, size, location) = (was.guid, Some(was.size), pending.location.clone());
        queue(state, pending.se, Deletion { id, guid, size, location, queued: change.time });
    }
}

/// Takes a file's replica off the deletion queue.
fn wanted(state: &mut State, guid: Guid, replica: &Replica) {
    if replica.takes_space() {
        take_off_queue(state, replica.se, guid, &replica.location);
    }
}

/// Takes every deletion of this physical copy off the SE's queue, whichever file it belonged to.
fn take_off_queue(state: &mut State, se: SeNumber, guid: Guid, location: &Location) {
    let pfn = state.pfn(se, guid, location);
    for id in state.deletions_of(se, &pfn) {
        state.take_deletion(se, id);
    }
}

/// Ends one pending replica of an upload reservation, or all; ends the reservation with the last
/// one.
fn end_pending(state: &mut State, mut reservation: Reservation, se: Option<SeNumber>) {
    reservation.pending.retain(|pending| se.is_some_and(|se| pending.se != se));
    if reservation.pending.is_empty() {
        state.drop_reservation(reservation.guid);
    } else {
        state.put_reservation(reservation);
    }
}

/// Drops a record; for a user or a group also the records that belong to it alone.
fn drop_record(state: &mut State, key: RecordKey, revision: exacat_model::Revision) {
    state.put_record(key, None, revision);
    match key {
        RecordKey::User(user) => {
            state.put_record(RecordKey::Quota(QuotaOf::User(user)), None, revision);
            for token in state.tokens_of(user) {
                state.put_record(token, None, revision);
            }
        }
        RecordKey::Group(group) => {
            state.put_record(RecordKey::Quota(QuotaOf::Group(group)), None, revision);
        }
        RecordKey::Se(_) | RecordKey::Quota(_) | RecordKey::Token(_) => {}
    }
}
