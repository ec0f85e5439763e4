//! Decides `Book`, `Commit` and `Release` of the contract's table: upload reservations.

use exacat_model::limits::{BOOKINGS_PER_USER_MAX, REPLICAS_PER_BOOKING_MAX, REPLICAS_PER_FILE_MAX};
use exacat_model::{
    At, Body, Booking, Checksums, Effect, Entry, File, Guid, Location, Replica, ReplicaState, SeNumber,
    SeStatus,
};
use exacat_store::Refusal;
use exacat_store::rules::refusals;

use super::create::check_size;
use super::quota::{Counted, check_change};
use super::{Context, Decision, Declined, check_target};
use crate::state::State;

fn counted(booking: &Booking) -> Counted {
    Counted { owner: booking.owner, group: booking.group, usage: booking.reserved() }
}

pub(super) fn book(state: &State, context: Context, mut booking: Booking) -> Decision {
    check_well_formed(&booking)?;
    let before = state.booking(booking.guid);
    if before.is_some_and(|before| before.owner != booking.owner) {
        return Err(Refusal::GuidInUse.into());
    }
    booking.exists = check_file(state, &booking)?;
    let online = |se| state.se(se).is_some_and(|se| se.status == SeStatus::Online);
    if !booking.pending.iter().all(|replica| online(replica.se)) {
        return Err(Refusal::NoSuchSe.into());
    }
    let others = state.accounts.bookings.get(&booking.owner).copied().unwrap_or(0) as usize;
    let others = others - usize::from(before.is_some()).min(others);
    if others >= BOOKINGS_PER_USER_MAX {
        return Err(refusals::too_many_uploads(others + 1).into());
    }
    let replaced = before.map(counted);
    check_change(state, replaced.as_ref(), replaced.as_ref(), &counted(&booking))?;
    booking.created = context.time;
    booking.pending.sort_by_key(|replica| replica.se);
    Ok(Effect::Booked { booking: Box::new(booking), before: before.map(|before| Box::new(before.clone())) })
}

fn check_well_formed(booking: &Booking) -> Result<(), Refusal> {
    let pending = &booking.pending;
    if pending.is_empty() {
        return Err(refusals::upload_without_se());
    }
    if pending.len() > REPLICAS_PER_BOOKING_MAX {
        return Err(refusals::too_many_reserved(pending.len()));
    }
    let mut ses: Vec<SeNumber> = pending.iter().map(|replica| replica.se).collect();
    ses.sort_unstable();
    if ses.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(refusals::upload_twice_on_one_se());
    }
    if ses.contains(&SeNumber::NONE) {
        return Err(refusals::upload_to_no_se());
    }
    if pending.iter().any(|replica| matches!(replica.location, Location::Member { .. })) {
        return Err(refusals::upload_into_archive());
    }
    check_size(Some(booking.size))
}

/// Says whether the file exists; fails if it differs from the upload.
fn check_file(state: &State, booking: &Booking) -> Result<bool, Declined> {
    let look = state.look();
    let Some(found) = look.find_guid(booking.guid)? else { return Ok(false) };
    if !look.is_in_tree(&found) {
        return Err(Refusal::GuidInUse.into());
    }
    let file = found.entry.file().ok_or(Refusal::GuidInUse)?;
    if file.size != Some(booking.size) {
        return Err(refusals::other_size(file.size, booking.size).into());
    }
    if file.checksums.contradicts(&booking.checksums) {
        return Err(refusals::other_checksum().into());
    }
    if booking.pending.iter().any(|pending| file.replica(pending.se).is_some()) {
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

pub(super) fn commit(state: &State, context: Context, written: Written) -> Decision {
    let booking = state.booking(written.guid).ok_or(Refusal::NotFound)?;
    let pending = booking.pending.iter().find(|pending| pending.se == written.se).ok_or(Refusal::NotFound)?;
    if booking.expires <= context.time {
        return Err(Refusal::Expired.into());
    }
    if written.size != booking.size {
        return Err(refusals::other_size_written(booking.size, written.size).into());
    }
    if booking.checksums.contradicts(&written.checksums) {
        return Err(refusals::other_checksum_written().into());
    }
    let mut checksums = booking.checksums.clone();
    for checksum in written.checksums.iter() {
        checksums.add(*checksum).map_err(refusals::checksum)?;
    }
    let replica =
        Replica { se: written.se, state: ReplicaState::Available, location: pending.location.clone() };
    match state.look().find_guid(written.guid)? {
        Some(found) => {
            let in_tree = state.look().is_in_tree(&found);
            let gained = check_present(&found.entry, in_tree, &written.at, &replica, &checksums)?;
            let (guid, at) = (written.guid, written.at);
            let previous = Some(found.entry.revision);
            Ok(Effect::Committed { guid, at, created: None, replica, checksums: gained, previous })
        }
        None => {
            check_target(state, &written.at)?;
            let created = Box::new(Entry {
                at: written.at.clone(),
                owner: booking.owner,
                group: booking.group,
                mode: booking.mode,
                created: context.time,
                modified: context.time,
                revision: context.revision,
                expires: None,
                tags: Vec::new(),
                body: Body::File(File {
                    guid: booking.guid,
                    size: Some(booking.size),
                    checksums,
                    job: booking.job,
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
        None if file.replicas.len() >= REPLICAS_PER_FILE_MAX => {
            return Err(refusals::too_many_replicas(file.replicas.len() + 1));
        }
        _ => {}
    }
    let mut gained = Checksums::none();
    for checksum in checksums.iter().filter(|checksum| file.checksums.get(checksum.algorithm()).is_none()) {
        gained.add(*checksum).map_err(refusals::checksum)?;
    }
    Ok(gained)
}

pub(super) fn release(
    state: &State,
    context: Context,
    guid: Guid,
    se: Option<SeNumber>,
    only_expired: bool,
) -> Decision {
    let booking = state.booking(guid).ok_or(Refusal::NotFound)?;
    if se.is_some_and(|se| !booking.pending.iter().any(|pending| pending.se == se)) {
        return Err(Refusal::NotFound.into());
    }
    if only_expired && booking.expires > context.time {
        return Err(Refusal::Stale.into());
    }
    Ok(Effect::Released { booking: Box::new(booking.clone()), se })
}
