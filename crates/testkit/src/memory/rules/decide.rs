//! Decides mutations: one function for each row of the contract's table. It checks the
//! preconditions of the row in order and returns the effect. Nothing is changed here.

use std::collections::BTreeSet;

use exacat_model::limits::{
    EDITS_PER_UPDATE_MAX, GROUPS_PER_USER_MAX, REPLICAS_PER_FILE_MAX, REPLICAS_PER_RESERVATION_MAX,
    RESERVATIONS_PER_USER_MAX, TAGS_PER_ENTRY_MAX,
};
use exacat_model::{
    At, Body, Checksums, DeletionId, DirId, Effect, Entry, EntryId, Expect, ExpectRecord, File, Guid,
    Location, Mutation, NewBody, NewEntry, PurgeTarget, QuotaOf, Record, RecordKey, Replica, ReplicaState,
    Reservation, Revision, SeNumber, SeStatus, TimeMs, TrashId, Usage,
};
use exacat_store::Refusal;
use exacat_store::rules::Top;
use exacat_store::rules::refusals::{self, RecordUse};

use super::checks::{
    counted_without, expected, limit, name_free, not_the_roots, parent_takes, quota_allows, quota_of,
    reserves_from, se_registered, size_limit, target,
};
use super::{Decided, edits};
use crate::memory::state::State;

/// Decides `mutation`; its change would have `revision` and `time`.
pub(crate) fn decide(state: &State, mutation: &Mutation, revision: Revision, time: TimeMs) -> Decided {
    match mutation {
        Mutation::Create(new) => create(state, new, revision, time),
        Mutation::Update { at, expect, edits } => edits::update(state, at, *expect, edits, revision),
        Mutation::Move { from, expect, to } => move_entry(state, from, *expect, to),
        Mutation::Remove { at, expect, only_empty, lfn } => {
            let entry = remove(state, at, *expect, *only_empty)?;
            let previous = Some(entry.revision);
            Ok(Some(Effect::Removed { id: entry.id(), at: at.clone(), lfn: lfn.clone(), previous }))
        }
        Mutation::Restore { trash, to } => restore(state, *trash, to),
        Mutation::RestoreBelow { from, expect, to } => restore_below(state, from, *expect, to),
        Mutation::Purge(target) => purge(state, target),
        Mutation::Reserve(reservation) => reserve(state, reservation, time),
        Mutation::Commit { guid, se, at, size, checksums } => {
            let wish = CommitWish { guid: *guid, se: *se, at, size: *size, checksums };
            commit(state, &wish, revision, time)
        }
        Mutation::Release { guid, se, only_expired } => release(state, *guid, *se, *only_expired, time),
        Mutation::Dequeue { se, done } => dequeue(state, *se, done),
        Mutation::SetRecord { record, expect } => set_record(state, record, *expect),
        Mutation::DropRecord { key, expect } => drop_record(state, *key, *expect),
    }
}

// ---- entries ----

fn create(state: &State, new: &NewEntry, revision: Revision, time: TimeMs) -> Decided {
    well_formed(new)?;
    parent_takes(state, new.at.parent)?;
    name_free(state, &new.at)?;
    let body = match &new.body {
        NewBody::Directory => Body::Directory(DirId(state.next_directory)),
        NewBody::File(file) => {
            let mut file = file.clone();
            file.replicas.sort_by_key(|replica| replica.se);
            Body::File(file)
        }
        NewBody::Collection { guid } => Body::Collection { guid: *guid, members: 0 },
        NewBody::Link { guid, target } => Body::Link { guid: *guid, target: target.clone() },
    };
    let entry = Entry {
        at: new.at.clone(),
        owner: new.owner,
        group: new.group,
        mode: new.mode,
        created: new.created.unwrap_or(time),
        modified: new.modified.unwrap_or(time),
        revision,
        expires: new.expires,
        tags: new.tags.clone(),
        body,
    };
    if let Some(guid) = entry.guid()
        && (state.find(EntryId::Object(guid)).is_some() || state.reservation(guid).is_some())
    {
        return Err(Refusal::GuidInUse);
    }
    for replica in entry.file().into_iter().flat_map(|file| &file.replicas) {
        se_registered(state, replica)?;
    }
    for of in [QuotaOf::User(entry.owner), QuotaOf::Group(entry.group)] {
        let Some(quota) = quota_of(state, of) else { continue };
        let before = counted_without(state, of, None, None);
        let mut after = before;
        after.add(&Usage::of(&entry));
        quota_allows(state, quota, &before, &after)?;
    }
    Ok(Some(Effect::Created { entry: Box::new(entry) }))
}

fn well_formed(new: &NewEntry) -> Result<(), Refusal> {
    not_the_roots(&new.at.name)?;
    if !new.tags.is_sorted_by(|one, next| one.key < next.key) {
        return Err(refusals::unsorted_tags());
    }
    limit(new.tags.len(), TAGS_PER_ENTRY_MAX, refusals::too_many_tags)?;
    for tag in &new.tags {
        tag.value.check().map_err(refusals::invalid)?;
    }
    let NewBody::File(file) = &new.body else {
        return Ok(());
    };
    limit(file.replicas.len(), REPLICAS_PER_FILE_MAX, refusals::too_many_replicas)?;
    let ses: BTreeSet<SeNumber> = file.replicas.iter().map(|replica| replica.se).collect();
    if ses.len() < file.replicas.len() {
        return Err(refusals::two_replicas_on_one_se());
    }
    for replica in &file.replicas {
        replica.check().map_err(refusals::invalid)?;
    }
    if file.is_member() && file.replicas.len() > 1 {
        return Err(refusals::replica_beside_member());
    }
    size_limit(file.size.unwrap_or(0))
}

fn move_entry(state: &State, from: &At, expect: Expect, to: &At) -> Decided {
    let entry = target(state, from, expect)?;
    if from == to {
        return Ok(None);
    }
    not_the_roots(&to.name)?;
    parent_takes(state, to.parent)?;
    if let Some(moved) = entry.directory() {
        let (way, _) = state.way_up(to.parent);
        if way.iter().any(|above| above.directory() == Some(moved)) {
            return Err(Refusal::Loop);
        }
    }
    name_free(state, to)?;
    let previous = Some(entry.revision);
    Ok(Some(Effect::Moved { id: entry.id(), from: from.clone(), to: to.clone(), previous }))
}

fn remove(state: &State, at: &At, expect: Expect, only_empty: bool) -> Result<Entry, Refusal> {
    let entry = target(state, at, expect)?;
    if entry.directory() == Some(DirId::ROOT) {
        return Err(refusals::root_stays());
    }
    if only_empty {
        let directory = entry.directory().ok_or(Refusal::WrongKind)?;
        if !state.is_empty(directory) {
            return Err(Refusal::NotEmpty);
        }
    }
    Ok(entry)
}

fn restore(state: &State, trash: TrashId, to: &At) -> Decided {
    let item = state.trashed(trash).ok_or(Refusal::NotFound)?;
    not_the_roots(&to.name)?;
    parent_takes(state, to.parent)?;
    name_free(state, to)?;
    let previous = Some(item.entry.revision);
    Ok(Some(Effect::Restored { trash, id: item.entry.id(), to: to.clone(), previous }))
}

fn restore_below(state: &State, from: &At, expect: Expect, to: &At) -> Decided {
    let entry = below_item(state, from, expect)?;
    not_the_roots(&to.name)?;
    parent_takes(state, to.parent)?;
    name_free(state, to)?;
    let previous = Some(entry.revision);
    Ok(Some(Effect::Moved { id: entry.id(), from: from.clone(), to: to.clone(), previous }))
}

/// Finds an entry below an item of the trash.
fn below_item(state: &State, at: &At, expect: Expect) -> Result<Entry, Refusal> {
    if !matches!(state.way_up(at.parent).1, Top::Trash(_)) {
        return Err(Refusal::ParentGone);
    }
    let entry = state.at(at).ok_or(Refusal::NotFound)?;
    expected(entry, expect)?;
    Ok(entry.clone())
}

fn purge(state: &State, target: &PurgeTarget) -> Decided {
    let entry = match target {
        PurgeTarget::Item(trash) => state.trashed(*trash).ok_or(Refusal::NotFound)?.entry,
        PurgeTarget::Below { at, expect } => below_item(state, at, *expect)?,
    };
    if entry.directory().is_some_and(|directory| !state.is_empty(directory)) {
        return Err(Refusal::NotEmpty);
    }
    Ok(Some(Effect::Purged { target: target.clone(), entry: Box::new(entry) }))
}

// ---- uploads ----

fn reserve(state: &State, wish: &Reservation, time: TimeMs) -> Decided {
    if wish.pending.is_empty() {
        return Err(refusals::upload_without_se());
    }
    limit(wish.pending.len(), REPLICAS_PER_RESERVATION_MAX, refusals::too_many_reserved)?;
    let ses: BTreeSet<SeNumber> = wish.pending.iter().map(|pending| pending.se).collect();
    if ses.len() < wish.pending.len() {
        return Err(refusals::upload_twice_on_one_se());
    }
    if ses.contains(&SeNumber::NONE) {
        return Err(refusals::upload_to_no_se());
    }
    if wish.pending.iter().any(|pending| matches!(pending.location, Location::Member { .. })) {
        return Err(refusals::upload_into_archive());
    }
    size_limit(wish.size)?;
    let before = state.reservation(wish.guid);
    if before.as_ref().is_some_and(|before| before.owner != wish.owner) {
        return Err(Refusal::GuidInUse);
    }
    let there = state.find(EntryId::Object(wish.guid));
    if let Some(entry) = there {
        let file = entry.file().filter(|_| in_tree(state, entry)).ok_or(Refusal::GuidInUse)?;
        if file.size != Some(wish.size) {
            return Err(refusals::other_size(file.size, wish.size));
        }
        if file.checksums.contradicts(&wish.checksums) {
            return Err(refusals::other_checksum());
        }
        if wish.pending.iter().any(|pending| file.replica(pending.se).is_some()) {
            return Err(Refusal::ReplicaExists);
        }
    }
    for pending in &wish.pending {
        match state.record(RecordKey::Se(pending.se)) {
            Some((Record::Se(se), _)) if se.status == SeStatus::Online => {}
            _ => return Err(Refusal::NoSuchSe),
        }
    }
    // A replaced reservation has the same owner.
    let others = state.reservations_of(wish.owner).saturating_sub(usize::from(before.is_some()));
    limit(others + 1, RESERVATIONS_PER_USER_MAX, refusals::too_many_uploads)?;
    let mut reservation = wish.clone();
    reservation.exists = there.is_some();
    reservation.created = time;
    reservation.pending.sort_by_key(|pending| pending.se);
    for of in [QuotaOf::User(reservation.owner), QuotaOf::Group(reservation.group)] {
        let Some(quota) = quota_of(state, of) else { continue };
        let rest = counted_without(state, of, None, Some(reservation.guid));
        // `was` includes the replaced reservation: a smaller one in its place must not be refused
        // for a limit that is exceeded already.
        let (mut was, mut will_be) = (rest, rest);
        if let Some(before) = before.as_ref().filter(|before| reserves_from(before, of)) {
            was.add(&before.reserved());
        }
        will_be.add(&reservation.reserved());
        quota_allows(state, quota, &was, &will_be)?;
    }
    Ok(Some(Effect::Reserved { reservation: Box::new(reservation), before: before.map(Box::new) }))
}

fn in_tree(state: &State, entry: &Entry) -> bool {
    state.trash_of(entry.id()).is_none() && state.alive(entry.at.parent)
}

/// Arguments of a commit.
struct CommitWish<'a> {
    guid: Guid,
    se: SeNumber,
    at: &'a At,
    size: u64,
    checksums: &'a Checksums,
}

fn commit(state: &State, wish: &CommitWish<'_>, revision: Revision, time: TimeMs) -> Decided {
    let reservation = state.reservation(wish.guid).ok_or(Refusal::NotFound)?;
    let pending =
        reservation.pending.iter().find(|pending| pending.se == wish.se).ok_or(Refusal::NotFound)?;
    if reservation.expires <= time {
        return Err(Refusal::Expired);
    }
    if reservation.size != wish.size {
        return Err(refusals::other_size_written(reservation.size, wish.size));
    }
    if reservation.checksums.contradicts(wish.checksums) {
        return Err(refusals::other_checksum_written());
    }
    let mut known = reservation.checksums.clone();
    for checksum in wish.checksums.iter() {
        known.add(*checksum).map_err(refusals::checksum)?;
    }
    let replica = Replica { se: wish.se, state: ReplicaState::Available, location: pending.location.clone() };
    let (created, checksums, previous) = match state.find(EntryId::Object(wish.guid)) {
        Some(entry) => {
            if entry.at != *wish.at || !in_tree(state, entry) {
                return Err(Refusal::Stale);
            }
            let file = entry.file().ok_or(Refusal::Stale)?;
            if file.checksums.contradicts(&known) {
                return Err(refusals::other_checksum());
            }
            if file.is_member() {
                return Err(refusals::replica_beside_member());
            }
            match file.replica(wish.se) {
                Some(there) if there.location != replica.location => return Err(Refusal::ReplicaExists),
                Some(_) => {}
                None => {
                    let replicas = file.replicas.len() + 1;
                    limit(replicas, REPLICAS_PER_FILE_MAX, refusals::too_many_replicas)?;
                }
            }
            let mut gained = Checksums::none();
            for checksum in known.iter().filter(|sum| file.checksums.get(sum.algorithm()).is_none()) {
                gained.add(*checksum).map_err(refusals::checksum)?;
            }
            (None, gained, Some(entry.revision))
        }
        None => {
            not_the_roots(&wish.at.name)?;
            parent_takes(state, wish.at.parent)?;
            name_free(state, wish.at)?;
            let file = File {
                guid: wish.guid,
                size: Some(reservation.size),
                checksums: known,
                job: reservation.job,
                replicas: vec![replica.clone()],
            };
            let entry = Entry {
                at: wish.at.clone(),
                owner: reservation.owner,
                group: reservation.group,
                mode: reservation.mode,
                created: time,
                modified: time,
                revision,
                expires: None,
                tags: Vec::new(),
                body: Body::File(file),
            };
            (Some(Box::new(entry)), Checksums::none(), None)
        }
    };
    let (guid, at) = (wish.guid, wish.at.clone());
    Ok(Some(Effect::Committed { guid, at, created, replica, checksums, previous }))
}

fn release(state: &State, guid: Guid, se: Option<SeNumber>, only_expired: bool, time: TimeMs) -> Decided {
    let reservation = state.reservation(guid).ok_or(Refusal::NotFound)?;
    if se.is_some_and(|se| reservation.pending.iter().all(|pending| pending.se != se)) {
        return Err(Refusal::NotFound);
    }
    if only_expired && reservation.expires > time {
        return Err(Refusal::Stale);
    }
    Ok(Some(Effect::Released { reservation: Box::new(reservation), se }))
}

fn dequeue(state: &State, se: SeNumber, done: &[DeletionId]) -> Decided {
    limit(done.len(), EDITS_PER_UPDATE_MAX, refusals::too_many_deletions)?;
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for id in done {
        if seen.insert(*id) && state.deletion(se, *id).is_some() {
            found.push(*id);
        }
    }
    if found.is_empty() {
        return Err(Refusal::NotFound);
    }
    Ok(Some(Effect::Dequeued { se, done: found }))
}

// ---- records ----

fn record_expected(there: Option<&(Record, Revision)>, expect: ExpectRecord) -> Result<(), Refusal> {
    let as_expected = match expect {
        ExpectRecord::Any => true,
        ExpectRecord::Absent => there.is_none(),
        ExpectRecord::Version(revision) => there.is_some_and(|(_, last)| *last == revision),
    };
    if as_expected { Ok(()) } else { Err(Refusal::Stale) }
}

fn set_record(state: &State, record: &Record, expect: ExpectRecord) -> Decided {
    match record {
        Record::Se(se) => se.check().map_err(refusals::invalid)?,
        Record::User(user) => limit(user.groups.len(), GROUPS_PER_USER_MAX, refusals::too_many_groups)?,
        Record::Group(_) | Record::Quota(_) | Record::Token(_) => {}
    }
    let key = record.key();
    let there = state.record(key);
    record_expected(there.as_ref(), expect)?;
    if let Some(name) = record.unique_name()
        && state.record_named(key.kind(), name).is_some_and(|other| other != key)
    {
        return Err(refusals::name_in_use(key.kind(), name));
    }
    let needs: Vec<RecordKey> = match record {
        Record::User(user) => {
            user.groups.iter().chain([&user.group]).map(|group| RecordKey::Group(*group)).collect()
        }
        Record::Token(token) => vec![RecordKey::User(token.user)],
        Record::Quota(quota) => vec![match quota.of {
            QuotaOf::User(user) => RecordKey::User(user),
            QuotaOf::Group(group) => RecordKey::Group(group),
        }],
        Record::Group(_) | Record::Se(_) => Vec::new(),
    };
    if !needs.iter().all(|need| state.record(*need).is_some()) {
        return Err(Refusal::NotFound);
    }
    let before = there.map(|(before, _)| Box::new(before));
    if before.as_deref() == Some(record) {
        return Ok(None);
    }
    Ok(Some(Effect::Recorded { key, before, after: Some(Box::new(record.clone())) }))
}

fn drop_record(state: &State, key: RecordKey, expect: ExpectRecord) -> Decided {
    let there = state.record(key).ok_or(Refusal::NotFound)?;
    record_expected(Some(&there), expect)?;
    if let Some(reason) = in_use(state, key) {
        return Err(refusals::in_use(reason));
    }
    Ok(Some(Effect::Recorded { key, before: Some(Box::new(there.0)), after: None }))
}

fn in_use(state: &State, key: RecordKey) -> Option<RecordUse> {
    let owns = |of: QuotaOf| !state.counted(of).is_empty();
    match key {
        RecordKey::User(id) if id == exacat_model::UserId::ADMIN => Some(RecordUse::AdminUser),
        RecordKey::Group(id) if id == exacat_model::GroupId::ADMIN => Some(RecordUse::AdminGroup),
        RecordKey::User(id) => owns(QuotaOf::User(id)).then_some(RecordUse::Owner),
        RecordKey::Group(id) => {
            if owns(QuotaOf::Group(id)) {
                Some(RecordUse::OwningGroup)
            } else {
                state.has_users(id).then_some(RecordUse::GroupOfUsers)
            }
        }
        RecordKey::Se(se) => state.se_in_use(se).then_some(RecordUse::StorageElement),
        RecordKey::Quota(_) | RecordKey::Token(_) => None,
    }
}
