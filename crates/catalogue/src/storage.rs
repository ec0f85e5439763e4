//! Storage elements: their registry, files and deletion queues, and the choice among them for an
//! upload.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use exacat_model::answer::{DeletionAt, SeUsage, Stat};
use exacat_model::limits::{READ_BATCH_MAX, REPLICAS_PER_RESERVATION_MAX};
use exacat_model::operation::{SeChoice, SeSettings};
use exacat_model::{
    AccountName, Answer, Cursor, Deletion, DeletionId, EntryId, Error, ErrorKind, Guid, Mutation, OnTimeline,
    OperationId, Record, RecordKey, Replica, ReplicaState, Result, Se, SeName, SeNumber, SeStatus,
};
use exacat_store::{Account, EntryLocation, Located, UsageOf};

use crate::Catalogue;
use crate::accounts::{RecordPlan, check_not_gone, gone_name, is_gone};
use crate::caller::Caller;
use crate::cursor::{self, CursorOf};
use crate::registry::Names;
use crate::repeat::refused;

/// List to read again when the timeline of a deletion was replaced.
const DELETIONS: &str = "the deletions";
/// Default quality of service of an upload, if any storage element has it.
const DEFAULT_QOS: &str = "disk";

impl Catalogue {
    pub(crate) async fn se_set(
        &self,
        caller: &Caller,
        id: OperationId,
        settings: SeSettings,
    ) -> Result<Answer> {
        caller.check_operator("to add or change a storage element")?;
        check_not_gone(settings.name.as_str())?;
        let only_new = settings.only_new;
        let what = settings.name.clone();
        let revision = self.set_record(caller, id, &what, |names| {
            match names.se(&settings.name) {
                Ok(_) if only_new => Err(Error::new(
                    ErrorKind::Exists,
                    format!("the storage element {} exists", settings.name),
                )),
                Ok(known) => {
                    Ok(RecordPlan::change(Record::Se((**known).clone()), changed_se(known, &settings)?))
                }
                Err(_) => {
                    let number = new_number(names, settings.number)?;
                    let new = Se {
                        number,
                        name: settings.name.clone(),
                        prefix: String::new(),
                        qos: Vec::new(),
                        status: SeStatus::Online,
                        distances: Vec::new(),
                        https: String::new(),
                    };
                    let record = changed_se(&new, &settings)?;
                    // The operator may choose the number of a dropped storage element.
                    Ok(match names.ses.get(&number) {
                        Some(gone) => RecordPlan::change(Record::Se((**gone).clone()), record),
                        None => RecordPlan::new(record),
                    })
                }
            }
        });
        Ok(Answer::Done { revision: revision.await? })
    }

    pub(crate) async fn se_drop(&self, caller: &Caller, id: OperationId, name: SeName) -> Result<Answer> {
        caller.check_operator("to drop a storage element")?;
        check_not_gone(name.as_str())?;
        let revision = self.drop_record(caller, id, &name, |names| {
            let se = names.se(&name)?;
            let is_last = names.ses.keys().next_back() == Some(&se.number);
            let left_behind = SeName::parse(&gone_name(u32::from(se.number.0)))?;
            let stays = Record::Se(Se {
                name: left_behind,
                prefix: String::new(),
                qos: Vec::new(),
                status: SeStatus::Offline,
                distances: Vec::new(),
                https: String::new(),
                number: se.number,
            });
            Ok((RecordKey::Se(se.number), is_last.then_some(stays)))
        });
        Ok(Answer::Done { revision: revision.await? })
    }

    pub(crate) async fn se_list(&self, caller: &Caller) -> Result<Answer> {
        // Names and prefixes of SEs are in every PFN, so any reader may see them.
        let _ = caller;
        let names = self.registry.names();
        let ses: Vec<&Arc<Se>> = names.ses.values().filter(|se| !is_gone(se.name.as_str())).collect();
        let mut items = Vec::with_capacity(ses.len());
        for some in ses.chunks(READ_BATCH_MAX / 2) {
            let of: Vec<UsageOf> =
                some.iter().flat_map(|se| [UsageOf::Se(se.number), UsageOf::Deletions(se.number)]).collect();
            let accounts = self.store.usage(&of).await?;
            items.extend(some.iter().zip(accounts.chunks(2)).map(|(se, pair)| SeUsage {
                se: (***se).clone(),
                used: pair.first().copied().unwrap_or_default().usage,
                deletions: pair.get(1).copied().unwrap_or_default().usage,
            }));
        }
        Ok(Answer::Ses(items))
    }

    /// Lists the files of an SE in the tree only: trashed files have no path. Usage counts them.
    pub(crate) async fn se_files(
        &self,
        caller: &Caller,
        name: &SeName,
        from: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        caller.check_operator("to list the files on a storage element")?;
        let names = self.registry.names();
        let se = names.se(name)?;
        let position: Option<StoreCursor> = cursor::read(CursorOf::SeFiles, from)?;
        let position = position.map(|position| position.0).unwrap_or_default();
        let (page, next) = self.store.replicas_on(se.number, &position, limit).await?;
        let ids: Vec<EntryId> = page.items.iter().map(|replica| EntryId::Object(replica.guid)).collect();
        let mut items = Vec::with_capacity(ids.len());
        let mut on = HashSet::new();
        let take = |_, found: Option<Located>| {
            // Leave out files that left this SE since the page was read.
            let Some(found) = found else { return };
            if let EntryLocation::Tree(lfn) = found.place
                && let Some(file) = found.entry.file()
                && file.replica(se.number).is_some()
            {
                on.extend(file.replicas.iter().map(|replica| replica.se));
                items.push(Stat {
                    lfn,
                    owner: names.user_name(found.entry.owner),
                    group: names.group_name(found.entry.group),
                    entry: found.entry,
                });
            }
        };
        self.locate_each(&ids, take).await?;
        let mut ses: Vec<(u16, SeName)> = on
            .into_iter()
            .filter_map(|number| Some((number.0, names.ses.get(&number)?.name.clone())))
            .collect();
        ses.sort();
        let next = page.more.then(|| cursor::write(CursorOf::SeFiles, &StoreCursor(next)));
        Ok(Answer::Entries { items, ses, next })
    }

    /// Lists the copies that the SE must delete. The store never queues a copy that its file has or
    /// that is reserved (A10). A second check costs little and a wrong deletion loses data, so this
    /// leaves out such copies.
    pub(crate) async fn se_deletions(
        &self,
        caller: &Caller,
        name: &SeName,
        from: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        caller.check_operator("to list the deletions of a storage element")?;
        let names = self.registry.names();
        let se = names.se(name)?;
        let timelines = self.store.timelines();
        let after: Option<OnTimeline<DeletionId>> = cursor::read(CursorOf::SeDeletions, from)?;
        let after = after.map(|after| timelines.resolve(DELETIONS, after)).transpose()?;
        let page = self.store.deletions(se.number, after, limit).await?;
        let next = match page.items.last() {
            Some(last) if page.more => Some(cursor::write(CursorOf::SeDeletions, &timelines.name(last.id))),
            _ => None,
        };
        let in_use = self.deletions_in_use(se, &page.items).await?;
        let items = page
            .items
            .into_iter()
            .zip(in_use)
            .filter(|(_, in_use)| !in_use)
            .map(|(deletion, _)| DeletionAt {
                id: timelines.name(deletion.id),
                guid: deletion.guid,
                size: deletion.size,
                pfn: pfn_of(&deletion, se),
                queued: deletion.queued,
            })
            .collect();
        Ok(Answer::Deletions { items, next })
    }

    /// For each deletion, says whether a replica or an upload reservation now uses the physical
    /// copy.
    pub(crate) async fn deletions_in_use(&self, se: &Se, deletions: &[Deletion]) -> Result<Vec<bool>> {
        let ids: Vec<EntryId> = deletions.iter().map(|deletion| EntryId::Object(deletion.guid)).collect();
        let mut replicas: Vec<Option<Replica>> = Vec::with_capacity(deletions.len());
        let take = |_, found: Option<Located>| {
            let file = found.as_ref().and_then(|found| found.entry.file());
            replicas.push(file.and_then(|file| file.replica(se.number)).cloned());
        };
        self.locate_each(&ids, take).await?;
        let mut in_use = Vec::with_capacity(deletions.len());
        for (deletion, replica) in deletions.iter().zip(replicas) {
            let pfn = pfn_of(deletion, se);
            let same = |location: &exacat_model::Location| {
                let replica =
                    Replica { se: se.number, state: ReplicaState::Available, location: location.clone() };
                replica.pfn(deletion.guid, Some(se)) == pfn
            };
            let is_replica = replica.is_some_and(|replica| replica.takes_space() && same(&replica.location));
            let is_reserved = match is_replica {
                true => false,
                false => self.store.reservation(deletion.guid).await?.is_some_and(|reservation| {
                    reservation
                        .pending
                        .iter()
                        .any(|pending| pending.se == se.number && same(&pending.location))
                }),
            };
            in_use.push(is_replica || is_reserved);
        }
        Ok(in_use)
    }

    pub(crate) async fn se_deleted(
        &self,
        caller: &Caller,
        id: OperationId,
        name: &SeName,
        done: &[OnTimeline<DeletionId>],
    ) -> Result<Answer> {
        caller.check_operator("to take deletions off a storage element's queue")?;
        let timelines = self.store.timelines();
        let done = done.iter().map(|id| timelines.resolve(DELETIONS, *id)).collect::<Result<_>>()?;
        let names = self.registry.names();
        let number = match names.se(name) {
            Ok(se) => se.number,
            Err(error) => {
                // The storage element was dropped: a repeated request gets its first outcome.
                let Some((revision, _)) = self.recall(caller, id).await? else { return Err(error) };
                return Ok(Answer::Done { revision });
            }
        };
        let outcome = match self.apply(caller, id, vec![Mutation::Dequeue { se: number, done }]).await?.pop()
        {
            Some(exacat_store::Outcome::Refused(refusal)) => {
                return Err(refused(format!("the deletion queue of {name}"), refusal));
            }
            Some(outcome) => outcome,
            None => return Err(Error::new(ErrorKind::Internal, "the store gave no outcome")),
        };
        Ok(Answer::Done { revision: self.revision_of(&outcome).await? })
    }

    /// Returns the sum of what waits for deletion on all storage elements.
    pub(crate) async fn deletions_waiting(&self) -> Result<exacat_model::Usage> {
        let names = self.registry.names();
        let of: Vec<UsageOf> = names.ses.keys().map(|number| UsageOf::Deletions(*number)).collect();
        let mut sum = exacat_model::Usage::default();
        for some in of.chunks(READ_BATCH_MAX) {
            self.store.usage(some).await?.iter().for_each(|Account { usage, .. }| sum.add(usage));
        }
        Ok(sum)
    }
}

/// The store's own bytes within one of our cursors.
struct StoreCursor(Vec<u8>);

impl exacat_model::codec::Encode for StoreCursor {
    fn encode(&self, out: &mut Vec<u8>) {
        exacat_model::codec::put_bytes(out, &self.0);
    }
}
impl exacat_model::codec::Decode for StoreCursor {
    fn decode(
        reader: &mut exacat_model::codec::Reader<'_>,
    ) -> std::result::Result<Self, exacat_model::codec::DecodeError> {
        Ok(StoreCursor(reader.bytes()?.to_vec()))
    }
}

fn pfn_of(deletion: &Deletion, se: &Se) -> String {
    let location = deletion.location.clone();
    Replica { se: se.number, state: ReplicaState::Available, location }.pfn(deletion.guid, Some(se))
}

/// Returns the number of a new SE: the requested one, or the highest plus one.
fn new_number(names: &Names, wanted: Option<u16>) -> Result<SeNumber> {
    if let Some(number) = wanted {
        let number = SeNumber(number);
        return match names.ses.get(&number) {
            Some(se) if !is_gone(se.name.as_str()) => {
                Err(Error::new(ErrorKind::Exists, format!("{} has the number {}", se.name, number.0)))
            }
            _ => Ok(number),
        };
    }
    let last = names.ses.keys().next_back().map_or(0, |number| number.0);
    match last.checked_add(1) {
        Some(next) => Ok(SeNumber(next)),
        None => Err(Error::new(
            ErrorKind::Limit,
            "the numbers of storage elements are used up to the last, 65535: give one that is free",
        )),
    }
}

fn changed_se(known: &Se, settings: &SeSettings) -> Result<Record> {
    let mut se = known.clone();
    if let Some(number) = settings.number
        && number != se.number.0
    {
        return Err(Error::invalid(format!("{} has the number {}, for ever", se.name, se.number.0)));
    }
    if let Some(prefix) = &settings.prefix {
        se.prefix.clone_from(prefix);
    }
    if let Some(qos) = &settings.qos {
        se.qos.clone_from(qos);
        se.qos.sort();
        se.qos.dedup();
    }
    if let Some(https) = &settings.https {
        se.https.clone_from(https);
    }
    se.status = settings.status.unwrap_or(se.status);
    for (site, distance) in &settings.distances {
        match se.distances.binary_search_by(|(known, _)| known.cmp(site)) {
            Ok(index) => se.distances[index].1 = *distance,
            Err(index) => se.distances.insert(index, (site.clone(), *distance)),
        }
    }
    se.check()?;
    Ok(Record::Se(se))
}

/// Returns the distance from a site to a storage element; the farthest if it is not known.
pub(crate) fn distance(se: &Se, site: Option<&AccountName>) -> u32 {
    let known = site.and_then(|site| se.distances.iter().find(|(name, _)| name == site));
    known.map_or(u32::MAX, |(_, distance)| *distance)
}

/// Chooses the storage elements of an upload:
///
/// - those requested by name;
/// - the requested count for each quality of service, nearest first;
/// - without a request, one of quality `disk`, or any if no storage element has that.
///
/// Among equally near ones the GUID decides, so files spread evenly and a repeat chooses the same.
/// `holding` have a replica already.
pub(crate) fn choose(
    names: &Names,
    choice: &SeChoice,
    guid: Guid,
    holding: &[SeNumber],
) -> Result<Vec<Arc<Se>>> {
    let excluded = choice.excluded.iter().map(|name| names.se(name).map(|se| se.number));
    // A missing SE is excluded anyway.
    let excluded: HashSet<SeNumber> = excluded.flatten().chain(holding.iter().copied()).collect();
    let mut chosen: Vec<Arc<Se>> = Vec::new();
    for name in &choice.wanted {
        let se = names.se(name)?;
        if holding.contains(&se.number) {
            return Err(Error::new(ErrorKind::Exists, format!("{name} holds a replica of it already")));
        }
        if excluded.contains(&se.number) {
            return Err(Error::invalid(format!("{name} is both wanted and excluded")));
        }
        if se.status != SeStatus::Online {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("{name} is {}: nothing can be written there now", se.status.name()),
            ));
        }
        if se.prefix.is_empty() {
            return Err(Error::invalid(format!(
                "{name} has no prefix: it is not known where to write on it"
            )));
        }
        if !chosen.iter().any(|other| other.number == se.number) {
            chosen.push(se.clone());
        }
    }
    let mut by_qos: Vec<(Option<AccountName>, u32)> =
        choice.qos.iter().map(|(qos, count)| (Some(qos.clone()), *count)).collect();
    if chosen.is_empty() && by_qos.iter().all(|(_, count)| *count == 0) {
        let default = AccountName::parse(DEFAULT_QOS)?;
        let has_default = names.ses.values().any(|se| se.qos.contains(&default));
        by_qos = vec![(has_default.then_some(default), 1)];
    }
    let total = by_qos.iter().fold(chosen.len(), |sum, (_, count)| sum.saturating_add(*count as usize));
    if total > REPLICAS_PER_RESERVATION_MAX {
        return Err(Error::limit(
            "the number of replicas of one upload",
            total,
            REPLICAS_PER_RESERVATION_MAX,
        ));
    }
    for (qos, count) in by_qos {
        let usable = |se: &&Arc<Se>| {
            se.status == SeStatus::Online
                && !se.prefix.is_empty()
                && qos.as_ref().is_none_or(|qos| se.qos.contains(qos))
                && !excluded.contains(&se.number)
                && !chosen.iter().any(|other| other.number == se.number)
        };
        let mut candidates: Vec<&Arc<Se>> = names.ses.values().filter(usable).collect();
        if candidates.len() < count as usize {
            return Err(too_few(names, qos.as_ref(), candidates.len(), count));
        }
        candidates.sort_by_cached_key(|se| {
            (distance(se, choice.site.as_ref()), Reverse(weight(guid, se.number)), se.number)
        });
        let picked: Vec<Arc<Se>> = candidates.into_iter().take(count as usize).cloned().collect();
        chosen.extend(picked);
    }
    Ok(chosen)
}

fn too_few(names: &Names, qos: Option<&AccountName>, usable: usize, wanted: u32) -> Error {
    let Some(qos) = qos else {
        return Error::new(
            ErrorKind::Unavailable,
            "no storage element can be written now: all are excluded, hold a replica already, are not online or have \
             no prefix",
        );
    };
    if !names.ses.values().any(|se| se.qos.contains(qos)) {
        return Error::not_found(format!("no storage element has the quality of service {qos}"));
    }
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{wanted} storage elements of quality of service {qos} were asked for, {usable} can be written now: the \
             others are excluded, hold a replica already, are not online or have no prefix"
        ),
    )
}

/// Returns a number for a pair of file and SE; the greatest wins. So each file has its own order of
/// SEs, and a new SE changes the choice of few files.
fn weight(guid: Guid, se: SeNumber) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in guid.0.into_iter().chain(se.0.to_le_bytes()) {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // The last bytes must affect all bits: the finish of splitmix64.
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
