//! Decides `Reserve`, `Commit` and `Release` of the contract's table: upload reservations.

use exacat_model::limits::{REPLICAS_PER_FILE_MAX, REPLICAS_PER_RESERVATION_MAX, RESERVATIONS_PER_USER_MAX};
use exacat_model::{
    At, Body, Checksums, Effect, Entry, EntryId, File, Guid, Location, Replica, ReplicaState, Reservation,
    SeNumber, SeStatus,
};

use super::checks::{check_limit, check_size, check_target, has_duplicate};
use super::decision::{Context, Decision, Declined};
use super::quota::{Counted, check_change};
use super::refusals;
use super::view::{View, se};
use crate::Refusal;

pub(super) fn reserve<V: View>(
    view: &V,
    context: Context,
    mut reservation: Reservation,
) -> Decision<V::Error> {
    check_well_formed(&reservation)?;
    let before = view.reservation(reservation.guid);
    if before.as_ref().is_some_and(|before| before.owner != reservation.owner) {
        return Err(Refusal::GuidInUse.into());
    }
    reservation.exists = check_file(view, &reservation)?;
    let online = |number| se(view, number).is_some_and(|se| se.status == SeStatus::Online);
    if !reservation.pending.iter().all(|replica| online(replica.se)) {
        return Err(Refusal::NoSuchSe.into());
    }
    // A replaced reservation has the same owner.
    let others = view.reservations_of(reservation.owner).saturating_sub(usize::from(before.is_some()));
    check_limit(others + 1, RESERVATIONS_PER_USER_MAX, refusals::too_many_uploads)?;
    let replaced = before.as_deref().map(Counted::from);
    check_change(view, replaced.as_ref(), replaced.as_ref(), &Counted::from(&reservation))?;
    reservation.created = context.time;
    reservation.pending.sort_by_key(|replica| replica.se);
    Ok(Effect::Reserved {
        reservation: Box::new(reservation),
        before: before.map(|before| Box::new(before.into_owned())),
    })
}

fn check_well_formed(reservation: &Reservation) -> Result<(), Refusal> {
    let pending = &reservation.pending;
    if pending.is_empty() {
        return Err(refusals::upload_without_se());
    }
    check_limit(pending.len(), REPLICAS_PER_RESERVATION_MAX, refusals::too_many_reserved)?;
    if has_duplicate(pending.iter().map(|replica| replica.se)) {
        return Err(refusals::upload_twice_on_one_se());
    }
    if pending.iter().any(|replica| replica.se == SeNumber::NONE) {
        return Err(refusals::upload_to_no_se());
    }
    if pending.iter().any(|replica| matches!(replica.location, Location::Member { .. })) {
        return Err(refusals::upload_into_archive());
    }
    check_size(reservation.size)
}

/// Says whether the file exists; fails if it differs from the upload.
fn check_file<V: View>(view: &V, reservation: &Reservation) -> Result<bool, Declined<V::Error>> {
    let Some(found) = view.find(EntryId::Object(reservation.guid))? else { return Ok(false) };
    if !view.is_in_tree(&found) {
        return Err(Refusal::GuidInUse.into());
    }
    let file = found.entry.file().ok_or(Refusal::GuidInUse)?;
    if file.size != Some(reservation.size) {
        return Err(refusals::other_size(file.size, reservation.size).into());
    }
    if file.checksums.contradicts(&reservation.checksums) {
        return Err(refusals::other_checksum().into());
    }
    if reservation.pending.iter().any(|pending| file.replica(pending.se).is_some()) {
        return Err(Refusal::ReplicaExists.into());
    }
    Ok(true)
}

/// Written data, as a commit describes it.
pub(super) struct Written {
    pub guid: Guid,
    pub se: SeNumber,
    pub at: At,
    pub size: u64,
    pub checksums: Checksums,
}

pub(super) fn commit<V: View>(view: &V, context: Context, written: Written) -> Decision<V::Error> {
    let reservation = view.reservation(written.guid).ok_or(Refusal::NotFound)?;
    let pending =
        reservation.pending.iter().find(|pending| pending.se == written.se).ok_or(Refusal::NotFound)?;
    if reservation.expires <= context.time {
        return Err(Refusal::Expired.into());
    }
    if written.size != reservation.size {
        return Err(refusals::other_size_written(reservation.size, written.size).into());
    }
    if reservation.checksums.contradicts(&written.checksums) {
        return Err(refusals::other_checksum_written().into());
    }
    let mut checksums = reservation.checksums.clone();
    for checksum in written.checksums.iter() {
        checksums.add(*checksum).map_err(refusals::checksum)?;
    }
    let replica =
        Replica { se: written.se, state: ReplicaState::Available, location: pending.location.clone() };
    match view.find(EntryId::Object(written.guid))? {
        Some(found) => {
            let in_tree = view.is_in_tree(&found);
            let gained = check_present(&found.entry, in_tree, &written.at, &replica, &checksums)?;
            let (guid, at) = (written.guid, written.at);
            let previous = Some(found.entry.revision);
            Ok(Effect::Committed { guid, at, created: None, replica, checksums: gained, previous })
        }
        None => {
            check_target(view, &written.at)?;
            let created = Box::new(Entry {
                at: written.at.clone(),
                owner: reservation.owner,
                group: reservation.group,
                mode: reservation.mode,
                created: context.time,
                modified: context.time,
                revision: context.revision,
                expires: None,
                tags: Vec::new(),
                body: Body::File(File {
                    guid: reservation.guid,
                    size: Some(reservation.size),
                    checksums,
                    job: reservation.job,
                    replicas: vec![replica.clone()],
                }),
            });
            let (guid, at) = (written.guid, written.at);
            let (created, checksums) = (Some(created), Checksums::none());
            Ok(Effect::Committed { guid, at, created, replica, checksums, previous: None })
        }
    }
}

/// Checks that the existing file may get this replica. Returns the checksums that it gets with it.
fn check_present(
    entry: &Entry,
    in_tree: bool,
    at: &At,
    replica: &Replica,
    checksums: &Checksums,
) -> Result<Checksums, Refusal> {
    if !in_tree || entry.at != *at {
        return Err(Refusal::Stale);
    }
    let file = entry.file().ok_or(Refusal::Stale)?;
    if file.checksums.contradicts(checksums) {
        return Err(refusals::other_checksum());
    }
    if file.is_member() {
        return Err(refusals::replica_beside_member());
    }
    match file.replica(replica.se) {
        Some(there) if there.location != replica.location => return Err(Refusal::ReplicaExists),
        Some(_) => {}
        None => {
            check_limit(file.replicas.len() + 1, REPLICAS_PER_FILE_MAX, refusals::too_many_replicas)?;
        }
    }
    let mut gained = Checksums::none();
    for checksum in checksums.iter().filter(|checksum| file.checksums.get(checksum.algorithm()).is_none()) {
        gained.add(*checksum).map_err(refusals::checksum)?;
    }
    Ok(gained)
}

pub(super) fn release<V: View>(
    view: &V,
    context: Context,
    guid: Guid,
    se: Option<SeNumber>,
    only_expired: bool,
) -> Decision<V::Error> {
    let reservation = view.reservation(guid).ok_or(Refusal::NotFound)?;
    if se.is_some_and(|se| !reservation.pending.iter().any(|pending| pending.se == se)) {
        return Err(Refusal::NotFound.into());
    }
    if only_expired && reservation.expires > context.time {
        return Err(Refusal::Stale.into());
    }
    Ok(Effect::Released { reservation: Box::new(reservation.into_owned()), se })
}
