//! Applies effects to a state, without any decision. The result depends on the change and the state
//! before only, so a history reproduces the state (clause H3).

use exacat_model::{
    At, Body, Deletion, DeletionId, DirId, Effect, Entry, EntryId, FieldChange, Guid, Location, PurgeTarget,
    QuotaOf, Record, RecordKey, Replica, Reservation, SeNumber, TrashId,
};

use super::decision::Misfit;
use super::fields::{change_field, file_of, put_replica};
use super::state::{Stamp, State};
use super::view::{Trashed, is_in_use};

fn misfit<T, E: From<Misfit>>(what: impl Into<String>) -> Result<T, E> {
    Err(Misfit::new(what).into())
}

/// Applies the effect of a change. `encoded` are its canonical bytes, if the caller has them: then
/// it was decided on this very state, and its place is not checked again.
pub fn perform<S: State>(
    state: &mut S,
    stamp: Stamp,
    effect: &Effect,
    encoded: Option<&[u8]>,
) -> Result<(), S::Error> {
    match effect {
        // The effect's bytes are its number, then the entry, and nothing else.
        Effect::Created { entry } => create(state, entry, encoded.and_then(|bytes| bytes.get(1..))),
        Effect::Updated { at, id, fields, .. } => update(state, stamp, at, *id, fields),
        Effect::Moved { id, from, to, .. } => {
            let old = standing(state, from, *id)?;
            if let Some(moved) = old.directory() {
                let mut is_below = false;
                state.climb(to.parent, |directory| is_below |= directory == moved);
                if is_below {
                    return misfit(format!("directory {} would move below itself", moved.0));
                }
            }
            check_free(state, to)?;
            let new = Entry { at: to.clone(), revision: stamp.revision, ..old.clone() };
            state.relocate(&old, new)
        }
        Effect::Removed { id, at, lfn, .. } => {
            let old = standing(state, at, *id)?;
            if old.directory() == Some(DirId::ROOT) {
                return misfit("the root cannot be removed");
            }
            let entry = Entry { revision: stamp.revision, ..old.clone() };
            let item = Trashed { lfn: lfn.clone(), entry, removed_by: stamp.who, removed: stamp.time };
            state.put_trashed(TrashId(stamp.revision), &old, item)
        }
        Effect::Restored { trash, id, to, .. } => {
            check_free(state, to)?;
            let item = trashed(state, *trash, *id)?;
            let new = Entry { at: to.clone(), revision: stamp.revision, ..item.entry.clone() };
            state.restore(*trash, &item, new)
        }
        Effect::Purged { target, entry } => purge(state, stamp, target, entry.id()),
        Effect::Reserved { reservation, before } => {
            state.set_reservation(reservation.guid, Some((**reservation).clone()))?;
            for pending in &reservation.pending {
                take_off_queue(state, pending.se, reservation.guid, &pending.location)?;
            }
            match before {
                Some(before) => give_up(state, stamp, before, None),
                None => Ok(()),
            }
        }
        Effect::Committed { guid, at, created, replica, checksums, .. } => {
            match created {
                Some(entry) => create(state, entry, None)?,
                None => {
                    let old = standing(state, at, EntryId::Object(*guid))?;
                    let mut new = old.clone();
                    let file = file_of(&mut new)?;
                    put_replica(file, replica.se, Some(replica.clone()));
                    for checksum in checksums.iter() {
                        file.checksums.add(*checksum).map_err(|error| Misfit(error.message))?;
                    }
                    new.revision = stamp.revision;
                    state.replace(&old, new)?;
                    wanted(state, *guid, replica)?;
                }
            }
            end_pending(state, *guid, Some(replica.se), true)
        }
        Effect::Released { reservation, se } => {
            end_pending(state, reservation.guid, *se, false)?;
            give_up(state, stamp, reservation, *se)
        }
        Effect::Dequeued { se, done } => done.iter().try_for_each(|id| state.take_deletion(*se, *id)),
        Effect::Recorded { key, before, after } => {
            let Some(record) = after else { return drop_record(state, *key) };
            state.put_record((**record).clone(), stamp.revision)?;
            match (before.as_deref(), &**record) {
                (Some(Record::Se(before)), Record::Se(after)) if before.prefix != after.prefix => {
                    dequeue_copies_in_use(state, after.number)
                }
                _ => Ok(()),
            }
        }
    }
}

// ---- entries ----

/// Returns the entry at this place, of this identity.
fn standing<S: State>(state: &S, at: &At, id: EntryId) -> Result<Entry, S::Error> {
    match state.at(at)? {
        Some(entry) if entry.id() == id => Ok(entry),
        _ => misfit(format!("{id:?} is not called {:?} in directory {}", at.name, at.parent.0)),
    }
}

/// Returns an item of the trash, of this identity.
fn trashed<S: State>(state: &S, trash: TrashId, id: EntryId) -> Result<Trashed, S::Error> {
    match state.trashed(trash)? {
        Some(item) if item.entry.id() == id => Ok(item),
        _ => misfit(format!("{id:?} is not trash item {}", trash.0.0)),
    }
}

fn check_free<S: State>(state: &S, at: &At) -> Result<(), S::Error> {
    match state.at(at)? {
        Some(_) => misfit(format!("{:?} is taken in directory {}", at.name, at.parent.0)),
        None => Ok(()),
    }
}

fn create<S: State>(state: &mut S, entry: &Entry, encoded: Option<&[u8]>) -> Result<(), S::Error> {
    match entry.body {
        Body::Directory(id) if !state.takes_directory(id) => {
            return misfit(format!("directory {} is not the next one", id.0));
        }
        Body::Collection { members, .. } if members != 0 => return misfit("a new collection has members"),
        _ => {}
    }
    state.insert(entry, encoded)?;
    match entry.file() {
        Some(file) => file.replicas.iter().try_for_each(|replica| wanted(state, file.guid, replica)),
        None => Ok(()),
    }
}

fn update<S: State>(
    state: &mut S,
    stamp: Stamp,
    at: &At,
    id: EntryId,
    fields: &[FieldChange],
) -> Result<(), S::Error> {
    let old = standing(state, at, id)?;
    let mut new = old.clone();
    let mut gone = Vec::new();
    for field in fields {
        // A deletion has the size that was known when the replica was dropped.
        if let FieldChange::Replica { before: Some(replica), deletion: Some(id), .. } = field {
            gone.push((*id, replica, new.size()));
        }
        change_field(&mut new, field)?;
        if let (FieldChange::Member { guid, added }, Body::Collection { guid: collection, .. }) =
            (field, &new.body)
        {
            state.set_member(*collection, *guid, *added)?;
        }
    }
    new.revision = stamp.revision;
    let guid = new.guid();
    state.replace(&old, new)?;
    let Some(guid) = guid else { return Ok(()) };
    for field in fields {
        if let FieldChange::Replica { after: Some(replica), .. } = field {
            wanted(state, guid, replica)?;
        }
    }
    gone.into_iter().try_for_each(|(id, replica, size)| {
        let location = replica.location.clone();
        queue(state, replica.se, Deletion { id, guid, size, location, queued: stamp.time })
    })
}

fn purge<S: State>(state: &mut S, stamp: Stamp, target: &PurgeTarget, id: EntryId) -> Result<(), S::Error> {
    let (entry, item) = match target {
        PurgeTarget::Item(trash) => {
            let item = trashed(state, *trash, id)?;
            (item.entry.clone(), Some((*trash, item)))
        }
        PurgeTarget::Below { at, .. } => (standing(state, at, id)?, None),
    };
    if let Some(directory) = entry.directory()
        && (directory == DirId::ROOT || !state.is_empty(directory))
    {
        return misfit(format!("directory {} cannot be purged", directory.0));
    }
    match item {
        Some((trash, item)) => state.purge_trashed(trash, &item)?,
        None => state.purge(&entry)?,
    }
    if let Body::Collection { guid, .. } = entry.body {
        state.forget_members(guid)?;
    }
    let Some(file) = entry.file() else { return Ok(()) };
    let copies = file.replicas.iter().filter(|replica| replica.takes_space());
    for (index, replica) in (0..).zip(copies) {
        let id = DeletionId { revision: stamp.revision, index };
        let (guid, size, location) = (file.guid, file.size, replica.location.clone());
        queue(state, replica.se, Deletion { id, guid, size, location, queued: stamp.time })?;
    }
    Ok(())
}

// ---- upload reservations ----

/// Ends the pending replica of an upload reservation on one SE, or all. The reservation ends with
/// the last one. `committed` says that its file exists now.
fn end_pending<S: State>(
    state: &mut S,
    guid: Guid,
    se: Option<SeNumber>,
    committed: bool,
) -> Result<(), S::Error> {
    let Some(reservation) = state.reservation(guid) else {
        return misfit(format!("there is no reservation of {guid}"));
    };
    let mut left = reservation.into_owned();
    left.pending.retain(|replica| se.is_some_and(|se| replica.se != se));
    left.exists |= committed;
    let left = if left.pending.is_empty() { None } else { Some(left) };
    state.set_reservation(guid, left)
}

/// Queues the pending replicas of an upload reservation for deletion, on one SE or on all.
fn give_up<S: State>(
    state: &mut S,
    stamp: Stamp,
    was: &Reservation,
    se: Option<SeNumber>,
) -> Result<(), S::Error> {
    let ended = was.pending.iter().filter(|replica| se.is_none_or(|se| replica.se == se));
    for (index, replica) in (0..).zip(ended) {
        let id = DeletionId { revision: stamp.revision, index };
        let (guid, size, location) = (was.guid, Some(was.size), replica.location.clone());
        queue(state, replica.se, Deletion { id, guid, size, location, queued: stamp.time })?;
    }
    Ok(())
}

// ---- deletion queues ----

/// Queues a copy for deletion, unless the file or an upload reservation of the GUID still uses it.
fn queue<S: State>(state: &mut S, se: SeNumber, deletion: Deletion) -> Result<(), S::Error> {
    if is_in_use(state, se, deletion.guid, &deletion.location)? {
        return Ok(());
    }
    state.put_deletion(se, deletion)
}

/// Takes deletions of this copy off the queue, because a file has the replica now.
fn wanted<S: State>(state: &mut S, guid: Guid, replica: &Replica) -> Result<(), S::Error> {
    if !replica.takes_space() {
        return Ok(());
    }
    take_off_queue(state, replica.se, guid, &replica.location)
}

/// Takes every deletion of this physical copy off the SE's queue, whichever file it belonged to.
fn take_off_queue<S: State>(
    state: &mut S,
    se: SeNumber,
    guid: Guid,
    location: &Location,
) -> Result<(), S::Error> {
    let copies = state.deletions_of(se, guid, location)?;
    copies.into_iter().try_for_each(|id| state.take_deletion(se, id))
}

/// Takes copies off the queue that are in use after a change of the SE's prefix: derived PFNs
/// changed with it.
fn dequeue_copies_in_use<S: State>(state: &mut S, se: SeNumber) -> Result<(), S::Error> {
    let mut found = Vec::new();
    state.each_deletion(se, |deletion| {
        if is_in_use(state, se, deletion.guid, &deletion.location)? {
            found.push(deletion.id);
        }
        Ok(())
    })?;
    found.into_iter().try_for_each(|id| state.take_deletion(se, id))
}

// ---- records ----

/// Drops a record; for a user or a group also the records that belong to it alone.
fn drop_record<S: State>(state: &mut S, key: RecordKey) -> Result<(), S::Error> {
    state.drop_record(key)?;
    match key {
        RecordKey::User(user) => {
            state.tokens_of(user).into_iter().try_for_each(|token| state.drop_record(token))?;
            state.drop_record(RecordKey::Quota(QuotaOf::User(user)))
        }
        RecordKey::Group(group) => state.drop_record(RecordKey::Quota(QuotaOf::Group(group))),
        RecordKey::Se(_) | RecordKey::Quota(_) | RecordKey::Token(_) => Ok(()),
    }
}
