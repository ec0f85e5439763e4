//! Uploads: reserve, write (the client), commit; or abort, or expire.
//!
//! A reservation holds quota and names the places to write to. Each replica has its own commit. The
//! first commit makes the file and its missing parents; later ones add replicas. A reservation
//! without a commit expires.

use exacat_model::answer::{Upload, UploadTarget};
use exacat_model::operation::SeChoice;
use exacat_model::{
    Answer, At, Checksums, Cursor, Entry, EntryId, Error, ErrorKind, Guid, Lfn, Location, Mode, Mutation,
    OperationId, Pfn, Replica, ReplicaState, Reservation, ReservedReplica, Result, Se, SeName, SeNumber,
    TimeMs,
};
use exacat_store::{EntryLocation, Outcome, PageInProgress, Refusal, UsageOf};

use crate::Catalogue;
use crate::caller::{Caller, PASS, WRITE};
use crate::cursor::{self, CursorOf};
use crate::registry::Names;
use crate::repeat::refused;
use crate::resolve::Spot;
use crate::storage::choose;

/// Most attempts at a commit while others move directories or the file.
const COMMIT_TRIES_MAX: usize = 8;
/// Items of a deletion queue searched for a copy of one file.
const DELETIONS_SEARCHED_MAX: usize = 10_000;

/// A request for an upload reservation.
pub(crate) struct ReserveRequest {
    pub lfn: Lfn,
    pub guid: Option<Guid>,
    pub size: u64,
    pub checksums: Checksums,
    pub job: Option<u64>,
    pub choice: SeChoice,
    pub lifetime_seconds: Option<u64>,
}

/// Copy whose upload has ended.
pub(crate) struct UploadedCopy {
    pub(crate) guid: Guid,
    pub(crate) se: SeName,
    pub(crate) size: u64,
    pub(crate) checksums: Checksums,
}

impl Catalogue {
    pub(crate) async fn upload_reserve(
        &self,
        caller: &Caller,
        id: OperationId,
        request: ReserveRequest,
    ) -> Result<Answer> {
        caller.check_known()?;
        let planned = self.plan_reservation(caller, id, request).await;
        let reservation = match planned {
            Ok(reservation) => reservation,
            Err(error) if error.kind == ErrorKind::Unknown => return Err(error),
            Err(error) => return self.reserved_before(caller, id).await?.ok_or(error),
        };
        let lfn = reservation.lfn.clone();
        match self.apply(caller, id, vec![Mutation::Reserve(Box::new(reservation))]).await?.pop() {
            Some(Outcome::Applied { id: Some(EntryId::Object(guid)), .. }) => {
                self.reserved(caller, guid).await
            }
            Some(Outcome::Refused(refusal)) => Err(refused(lfn, refusal)),
            _ => Err(Error::new(ErrorKind::Internal, "a reservation has no GUID")),
        }
    }

    /// Returns the first answer of this reservation, if the request is a repeat.
    async fn reserved_before(&self, caller: &Caller, id: OperationId) -> Result<Option<Answer>> {
        match self.recall(caller, id).await? {
            Some((_, Some(EntryId::Object(guid)))) => self.reserved(caller, guid).await.map(Some),
            _ => Ok(None),
        }
    }

    async fn reserved(&self, caller: &Caller, guid: Guid) -> Result<Answer> {
        let reservation = self
            .store
            .reservation(guid)
            .await?
            .filter(|reservation| caller.user() == Some(reservation.owner));
        match reservation {
            Some(reservation) => Ok(Answer::Upload(Box::new(upload(&self.registry.names(), reservation)))),
            None => Err(Error::not_found(format!("the reservation of {guid} has ended already"))),
        }
    }

    async fn plan_reservation(
        &self,
        caller: &Caller,
        id: OperationId,
        request: ReserveRequest,
    ) -> Result<Reservation> {
        let owner = caller.check_known()?;
        let expires = self.expiry(request.lifetime_seconds)?;
        let (lfn, file) = self.upload_place(caller, &request).await?;
        let names = self.registry.names();
        let holding: Vec<SeNumber> = match file.as_ref().and_then(Entry::file) {
            Some(file) => file.replicas.iter().map(|replica| replica.se).collect(),
            None => Vec::new(),
        };
        let (guid, earlier) = match request.guid {
            Some(guid) => {
                (guid, self.store.reservation(guid).await?.filter(|reservation| reservation.owner == owner))
            }
            None => (self.new_guid()?, None),
        };
        let chosen = choose(&names, &request.choice, guid, &holding)?;
        let mut pending = Vec::with_capacity(chosen.len());
        for se in &chosen {
            let reserved = earlier.as_ref().and_then(|earlier| {
                earlier
                    .pending
                    .iter()
                    .find(|pending| pending.se == se.number)
                    .map(|known| known.location.clone())
            });
            let location = match (reserved, request.guid) {
                (Some(location), _) => location,
                (None, None) => Location::Derived,
                (None, Some(guid)) => self.unused_location(se, guid, id).await?,
            };
            pending.push(ReservedReplica { se: se.number, location });
        }
        Ok(Reservation {
            guid,
            lfn,
            owner,
            group: caller.group(),
            mode: Mode::FILE,
            size: request.size,
            checksums: request.checksums,
            job: request.job,
            created: self.clock.trusted(),
            expires,
            pending,
            exists: file.is_some(),
        })
    }

    /// Returns the expiry of a reservation.
    fn expiry(&self, lifetime_seconds: Option<u64>) -> Result<TimeMs> {
        let seconds = lifetime_seconds.unwrap_or(self.settings.reservation_seconds);
        if seconds == 0 {
            return Err(Error::invalid("a reservation that lasts 0 seconds ends before it begins"));
        }
        let max = self.settings.reservation_seconds_max;
        if seconds > max {
            let (seconds, max) = (usize::try_from(seconds).unwrap_or(usize::MAX), max as usize);
            return Err(Error::limit("the lifetime of a reservation in seconds", seconds, max));
        }
        Ok(self.clock.trusted().plus_ms(seconds.saturating_mul(1000)))
    }

    /// Returns the path for the file, and the file itself if it exists and gets further replicas.
    async fn upload_place(&self, caller: &Caller, request: &ReserveRequest) -> Result<(Lfn, Option<Entry>)> {
        if request.lfn.is_root() {
            return Err(Error::invalid("/ is the root directory, no name for a file"));
        }
        match self.spot(caller, &request.lfn, false).await? {
            Spot::Taken(resolved) => {
                let entry = resolved.entry;
                let lfn = resolved.lfn;
                let Some(file) = entry.file().filter(|file| Some(file.guid) == request.guid) else {
                    return Err(Error::new(
                        ErrorKind::Exists,
                        format!("{lfn} exists: reserve another name, or give its GUID to add replicas"),
                    ));
                };
                if !caller.has_entry(&entry, WRITE) {
                    return Err(Error::denied(format!("{lfn}: you may not add replicas to it (no w)")));
                }
                if file.is_member() {
                    return Err(Error::invalid(format!(
                        "{lfn} is inside an archive, its replicas are the archive's"
                    )));
                }
                if file.size.is_some_and(|size| size != request.size) {
                    return Err(Error::new(
                        ErrorKind::Conflict,
                        format!("{lfn} has {} bytes, not {}", file.size.unwrap_or(0), request.size),
                    ));
                }
                if file.checksums.contradicts(&request.checksums) {
                    return Err(Error::new(ErrorKind::Conflict, format!("{lfn} has another checksum")));
                }
                Ok((lfn, Some(entry)))
            }
            Spot::Vacant(vacancy) => {
                let lfn = vacancy.lfn;
                match vacancy.ancestors.last() {
                    Some(ancestor) if caller.is_granted_by(ancestor, WRITE | PASS) => {}
                    _ => {
                        return Err(Error::denied(format!(
                            "{lfn}: you may not change the nearest directory above it that is there (no w)"
                        )));
                    }
                }
                if let Some(guid) = request.guid {
                    self.check_guid_unused(caller, guid).await?;
                }
                Ok((lfn, None))
            }
        }
    }

    /// Refuses a GUID that already belongs to an entry.
    async fn check_guid_unused(&self, caller: &Caller, guid: Guid) -> Result<()> {
        match self.store.locate(&[EntryId::Object(guid)]).await?.pop().flatten() {
            None => Ok(()),
            Some(found) => {
                // Others learn only that it is taken, because a GUID names one entry and nothing
                // else.
                let place = match found.place {
                    _ if !caller.owns(&found.entry) => "in use",
                    EntryLocation::Trash(_) => "that of an entry in the trash",
                    EntryLocation::Tree(_) => "that of an entry of another name",
                };
                Err(Error::new(ErrorKind::Exists, format!("the GUID {guid} is {place}")))
            }
        }
    }

    /// Returns a location on an SE for a copy of a file that may have been there before. The
    /// derived PFN of an earlier, aborted copy may still wait for deletion. Then the new copy gets
    /// a PFN of its own, so that it is not deleted in place of the old one.
    async fn unused_location(&self, se: &Se, guid: Guid, id: OperationId) -> Result<Location> {
        let waiting = self.store.usage(&[UsageOf::Deletions(se.number)]).await?;
        if waiting.iter().all(|account| account.usage.is_empty()) {
            return Ok(Location::Derived);
        }
        let page = self.store.deletions(se.number, None, DELETIONS_SEARCHED_MAX).await?;
        if !page.more && !page.items.iter().any(|deletion| deletion.guid == guid) {
            return Ok(Location::Derived);
        }
        let replica = Replica { se: se.number, state: ReplicaState::Available, location: Location::Derived };
        let own = id.0.iter().rev().take(6).map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(Location::Explicit(Pfn::parse(&format!("{}.{own}", replica.pfn(guid, Some(se))))?))
    }

    pub(crate) async fn upload_commit(
        &self,
        caller: &Caller,
        id: OperationId,
        copy: UploadedCopy,
    ) -> Result<Answer> {
        let UploadedCopy { guid, se, size, checksums } = copy;
        caller.check_known()?;
        let names = self.registry.names();
        for _ in 0..COMMIT_TRIES_MAX {
            let at = match self.commit_place(caller, id, &names, guid, &se).await {
                Ok(at) => at,
                Err(error) if error.kind.is_retryable() => return Err(error),
                Err(error) => {
                    return match self.recall(caller, id).await? {
                        Some((revision, _)) => Ok(Answer::Done { revision }),
                        None => Err(error),
                    };
                }
            };
            let number = names.se(&se)?.number;
            let commit = Mutation::Commit { guid, se: number, at, size, checksums: checksums.clone() };
            match self.apply(caller, id, vec![commit]).await?.pop() {
                // The file or a directory above it moved, or another commit made the file: resolve
                // again.
                Some(Outcome::Refused(Refusal::Stale | Refusal::ParentGone | Refusal::Exists(_))) => {}
                Some(Outcome::Refused(refusal)) => {
                    return Err(refused(format!("the upload of {guid} to {se}"), refusal));
                }
                Some(outcome) => return Ok(Answer::Done { revision: self.revision_of(&outcome).await? }),
                None => return Err(Error::new(ErrorKind::Internal, "the store gave no outcome")),
            }
        }
        Err(Error::new(ErrorKind::Conflict, format!("{guid} kept moving while it was committed: try again")))
    }

    /// Returns the place of a reservation's file, and makes missing parents.
    async fn commit_place(
        &self,
        caller: &Caller,
        id: OperationId,
        names: &Names,
        guid: Guid,
        se: &SeName,
    ) -> Result<At> {
        let reservation = self.own_reservation(caller, guid, caller.is_admin()).await?;
        let number = names.se(se)?.number;
        if !reservation.pending.iter().any(|pending| pending.se == number) {
            return Err(Error::not_found(format!(
                "nothing is reserved for {guid} on {se}: it was committed or given up already"
            )));
        }
        if reservation.expires <= self.clock.trusted() {
            return Err(Error::not_found(format!("the reservation of {guid} has expired: reserve it again")));
        }
        if reservation.exists {
            return match self.store.locate(&[EntryId::Object(guid)]).await?.pop().flatten() {
                Some(found) if matches!(found.place, EntryLocation::Tree(_)) => {
                    caller.passes_by(&found.ancestors);
                    Ok(found.entry.at)
                }
                _ => Err(Error::not_found(format!("{guid} was removed since its upload was reserved"))),
            };
        }
        // An admin may commit for the owner; the owner still owns the new parents.
        let owner = names.users.get(&reservation.owner).filter(|owner| caller.user() != Some(owner.id));
        let as_owner = owner.map(|owner| Caller::of(owner, Lfn::root(), true));
        let maker = as_owner.as_ref().unwrap_or(caller);
        match self.spot(maker, &reservation.lfn, false).await? {
            Spot::Taken(resolved) if resolved.entry.guid() == Some(guid) => Ok(resolved.entry.at),
            Spot::Taken(resolved) => Err(Error::new(
                ErrorKind::Exists,
                format!("{} was made by another since its upload was reserved", resolved.lfn),
            )),
            Spot::Vacant(vacancy) => {
                let (parent, name) = match (vacancy.lfn.parent(), vacancy.lfn.file_name()) {
                    (Some(parent), Some(name)) => (parent, name),
                    _ => return Err(Error::invalid("/ is the root directory, no name for a file")),
                };
                let ancestor = match (vacancy.missing.len(), vacancy.ancestors.last()) {
                    (1, Some(ancestor)) => *ancestor,
                    _ => match self.ensure_directories(maker, id, &[parent]).await?.pop() {
                        Some(directory) => directory?.ancestor,
                        None => return Err(Error::new(ErrorKind::Internal, "no answer about a directory")),
                    },
                };
                if !maker.is_granted_by(&ancestor, WRITE | PASS) {
                    return Err(Error::denied(format!(
                        "{}: you may not change the directory it is in (no w)",
                        vacancy.lfn
                    )));
                }
                Ok(At { parent: ancestor.id, name })
            }
        }
    }

    /// Returns a reservation that the caller may end: its own, or anyone's if `all`.
    async fn own_reservation(&self, caller: &Caller, guid: Guid, all: bool) -> Result<Reservation> {
        let reservation = self.store.reservation(guid).await?;
        let reservation =
            reservation.ok_or_else(|| Error::not_found(format!("nothing is reserved for {guid}")))?;
        if caller.user() != Some(reservation.owner) && !all {
            return Err(Error::denied(format!("the upload of {guid} is another's")));
        }
        caller.check_scope(&reservation.lfn)?;
        Ok(reservation)
    }

    pub(crate) async fn upload_abort(
        &self,
        caller: &Caller,
        id: OperationId,
        guid: Guid,
        se: Option<SeName>,
    ) -> Result<Answer> {
        caller.check_known()?;
        let planned = match self.own_reservation(caller, guid, caller.is_operator()).await {
            Err(error) => Err(error),
            Ok(_) => match se.map(|name| self.registry.names().se(&name).map(|se| se.number)).transpose() {
                Ok(se) => Ok(Mutation::Release { guid, se, only_expired: false }),
                Err(error) => Err(error),
            },
        };
        let outcome = self.apply_planned(caller, id, format!("the upload of {guid}"), planned).await?;
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    pub(crate) async fn upload_list(&self, caller: &Caller, from: &Cursor, limit: usize) -> Result<Answer> {
        let user = caller.check_known()?;
        let names = self.registry.names();
        let mut after: Option<Guid> = cursor::read(CursorOf::Uploads, from)?;
        let mut items = PageInProgress::new(limit, 0);
        let mut scanned = 0;
        loop {
            let page = self.store.reservations(after, limit).await?;
            scanned += page.items.len();
            let mut rest = page.items.into_iter();
            for reservation in rest.by_ref() {
                after = Some(reservation.guid);
                let mine = caller.is_operator() || reservation.owner == user;
                if mine && caller.scope().contains(&reservation.lfn) {
                    items.push(upload(&names, reservation));
                    if items.is_full() {
                        break;
                    }
                }
            }
            let more = page.more || rest.len() > 0;
            // A page takes a bounded time, however few of the reservations are the caller's.
            if !more || items.is_full() || scanned >= self.settings.find_scan_entries {
                let next = after.filter(|_| more).map(|after| cursor::write(CursorOf::Uploads, &after));
                return Ok(Answer::Uploads { items: items.end(more).items, next });
            }
        }
    }
}

/// Describes a reservation with names and PFNs.
fn upload(names: &Names, reservation: Reservation) -> Upload {
    let target = |pending: &ReservedReplica| {
        let se = names.ses.get(&pending.se)?;
        let replica =
            Replica { se: pending.se, state: ReplicaState::Copying, location: pending.location.clone() };
        Some(UploadTarget { se: se.name.clone(), pfn: replica.pfn(reservation.guid, Some(se)) })
    };
    let targets = reservation.pending.iter().filter_map(target).collect();
    Upload { owner: names.user_name(reservation.owner), targets, reservation }
}
