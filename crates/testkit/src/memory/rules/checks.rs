//! Checks that several rules share: targets, parents, names, storage elements and quotas.

use exacat_model::limits::{DEPTH_MAX, FILE_BYTES_MAX};
use exacat_model::{
    At, DirId, Entry, EntryId, Expect, Guid, Name, Quota, QuotaOf, Record, RecordKey, Replica, Reservation,
    Usage,
};
use exacat_store::Refusal;
use exacat_store::rules::Top;
use exacat_store::rules::refusals::{self, QUOTA_METRICS};

use crate::memory::state::State;

/// Refuses a number above its limit.
pub(super) fn limit(got: usize, max: usize, refusal: fn(usize) -> Refusal) -> Result<(), Refusal> {
    if got > max { Err(refusal(got)) } else { Ok(()) }
}

pub(super) fn size_limit(size: u64) -> Result<(), Refusal> {
    if size > FILE_BYTES_MAX { Err(refusals::too_large(size)) } else { Ok(()) }
}

pub(super) fn not_the_roots(name: &Name) -> Result<(), Refusal> {
    if *name == Name::root() {
        return Err(refusals::root_name());
    }
    Ok(())
}

/// Finds the entry at a place whose directory is alive, and compares it with the expected one.
pub(super) fn target(state: &State, at: &At, expect: Expect) -> Result<Entry, Refusal> {
    if !state.alive(at.parent) {
        return Err(Refusal::ParentGone);
    }
    let entry = state.at(at).ok_or(Refusal::NotFound)?;
    expected(entry, expect)?;
    Ok(entry.clone())
}

pub(super) fn expected(entry: &Entry, expect: Expect) -> Result<(), Refusal> {
    let id_matches = expect.id.is_none_or(|id| id == entry.id());
    let version_matches = expect.revision.is_none_or(|revision| revision == entry.revision);
    if id_matches && version_matches { Ok(()) } else { Err(Refusal::Stale) }
}

/// Checks that the directory is alive and not too deep for another entry.
pub(super) fn parent_takes(state: &State, parent: DirId) -> Result<(), Refusal> {
    let (way, top) = state.way_up(parent);
    if top != Top::Root {
        return Err(Refusal::ParentGone);
    }
    // `way` counts the root and an LFN does not, so with the new name both numbers agree.
    limit(way.len(), DEPTH_MAX, refusals::too_deep)
}

pub(super) fn name_free(state: &State, at: &At) -> Result<(), Refusal> {
    match state.at(at) {
        Some(entry) => Err(Refusal::Exists(entry.id())),
        None => Ok(()),
    }
}

pub(super) fn se_registered(state: &State, replica: &Replica) -> Result<(), Refusal> {
    if replica.is_member() || state.records.contains_key(&RecordKey::Se(replica.se)) {
        return Ok(());
    }
    Err(Refusal::NoSuchSe)
}

/// Returns usage and reservations that count towards a quota, without this entry and this upload
/// reservation.
pub(super) fn counted_without(
    state: &State,
    of: QuotaOf,
    entry: Option<EntryId>,
    reservation: Option<Guid>,
) -> Usage {
    let mut sum = state.counted(of);
    // Counters are exact, so they include the subtracted values.
    if let Some(entry) = entry.and_then(|id| state.find(id)) {
        let owned = match of {
            QuotaOf::User(user) => entry.owner == user,
            QuotaOf::Group(group) => entry.group == group,
        };
        if owned {
            sum = sum.minus(&Usage::of(entry)).unwrap_or_default();
        }
    }
    if let Some(reservation) =
        reservation.and_then(|guid| state.reservations.get(&guid)).filter(|one| reserves_from(one, of))
    {
        sum = sum.minus(&reservation.reserved()).unwrap_or_default();
    }
    sum
}

pub(super) fn reserves_from(reservation: &Reservation, of: QuotaOf) -> bool {
    match of {
        QuotaOf::User(user) => reservation.owner == user,
        QuotaOf::Group(group) => reservation.group == group,
    }
}

/// Returns a quota. Without one no sum has a limit, and none need be computed.
pub(super) fn quota_of(state: &State, of: QuotaOf) -> Option<&Quota> {
    match state.records.get(&RecordKey::Quota(of)) {
        Some((Record::Quota(quota), _)) => Some(quota),
        _ => None,
    }
}

/// Refuses growth of any sum beyond its limit.
pub(super) fn quota_allows(
    state: &State,
    quota: &Quota,
    before: &Usage,
    after: &Usage,
) -> Result<(), Refusal> {
    let sums = [
        (quota.files, u128::from(before.objects()), u128::from(after.objects())),
        (quota.bytes, before.bytes + before.member_bytes, after.bytes + after.member_bytes),
        (quota.replica_bytes, before.replica_bytes, after.replica_bytes),
    ];
    for (what, (limit, before, after)) in QUOTA_METRICS.into_iter().zip(sums) {
        if let Some(limit) = limit
            && after > before
            && after > u128::from(limit)
        {
            let owner = state.records.get(&quota.of.owner_key()).map(|(record, _)| record);
            return Err(Refusal::quota(quota.of, owner, what, limit, after));
        }
    }
    Ok(())
}
