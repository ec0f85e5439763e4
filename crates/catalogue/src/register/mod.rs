//! Registration of files in bulk: one request to the store for many files, one answer for each
//! file.
//!
//! The module splits a call into parts that fit a request. The split depends on the call alone.
//! Each file has a fixed place in its part's request, and each part a fixed operation id. So a
//! repeated call gets the first outcome of each file (clause A6).
//!
//! An attempt to create a file finds out whether it exists. Where that is no error, the module
//! reads the file and compares it. For [`Existing::Merge`] a second request with the same places
//! adds what the file lacks.

use std::collections::{HashMap, HashSet};

use exacat_model::limits::{BATCH_BYTES_MAX, BATCH_MUTATIONS_MAX};
use exacat_model::operation::{Existing, NewFile, Registered};
use exacat_model::{
    AccountName, Answer, At, EntryId, Error, ErrorKind, File, FileRef, GroupId, Guid, Lfn, Mode, Mutation,
    NewBody, NewEntry, OperationId, Replica, Result, UserId,
};
use exacat_store::{Ancestor, EntryLocation, Outcome, Refusal};

mod call;
mod each;
mod merging;

pub use call::DirectoryCache;
pub(crate) use call::{Call, PartIds, Plan};
use call::{about, replicas_of};
use merging::{Merge, MergePlace, same};

use crate::caller::{Caller, PASS, READ, WRITE};
use crate::repeat::{nothing, refused};
use crate::resolve::{Resolved, Spot};
use crate::trailing::check_new_name;
use crate::{Catalogue, fill_random, step_id};

/// Bytes of one part's request by a generous estimate: half of what the store accepts.
const PART_BYTES_MAX: usize = BATCH_BYTES_MAX / 2;
/// Most attempts at a part, if others change files between the read and the merge. So at most this
/// many files of one call may each set tags of their own on one entry.
const ROUNDS_MAX: usize = 16;

/// The result of a file in one round.
enum FileResult {
    Final(Result<Registered>),
    /// The file changed while it was compared.
    Again,
}

impl Catalogue {
    pub(crate) async fn register(
        &self,
        caller: &Caller,
        id: OperationId,
        files: &[NewFile],
        parents: bool,
        existing: Existing,
    ) -> Result<Answer> {
        caller.check_known()?;
        if files.len() > BATCH_MUTATIONS_MAX {
            return Err(Error::limit("the number of files in one request", files.len(), BATCH_MUTATIONS_MAX));
        }
        let call = Call { caller, files, parents, existing, names: self.names(), cache: None, ways: None };
        let mut answers: Vec<Option<Result<Registered>>> = files.iter().map(|_| None).collect();
        for (number, part) in parts(files).into_iter().enumerate() {
            let step = number as u64 * 3;
            let ids = PartIds {
                create: if number == 0 { id } else { step_id(id, step) },
                merge: step_id(id, step + 1),
                parents: step_id(id, step + 2),
            };
            let found = self.register_part(&call, &ids, &part).await?;
            for (index, answer) in part.iter().zip(found) {
                answers[*index] = Some(answer);
            }
        }
        let lost = || Err(Error::new(ErrorKind::Internal, "a file to register was in no part"));
        Ok(Answer::Registered(answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()))
    }

    async fn register_part(
        &self,
        call: &Call<'_>,
        ids: &PartIds,
        part: &[usize],
    ) -> Result<Vec<Result<Registered>>> {
        let mut round = 0;
        loop {
            round += 1;
            let found = self.register_round(call, ids, part).await?;
            if round >= ROUNDS_MAX || !found.iter().any(|found| matches!(found, FileResult::Again)) {
                let result = |(index, found): (&usize, FileResult)| match found {
                    FileResult::Final(answer) => answer,
                    FileResult::Again => Err(Error::new(
                        ErrorKind::Conflict,
                        format!("{} kept changing while it was registered", call.files[*index].lfn),
                    )),
                };
                return Ok(part.iter().zip(found).map(result).collect());
            }
        }
    }

    /// Attempts a part once. Sends files with a result of an earlier round again; the store returns their
    /// first outcome.
    async fn register_round(
        &self,
        call: &Call<'_>,
        ids: &PartIds,
        part: &[usize],
    ) -> Result<Vec<FileResult>> {
        let plans = self.plan(call, ids, part).await?;
        let mut mutations = Vec::with_capacity(part.len());
        let mut refusals = Vec::with_capacity(part.len());
        for plan in plans {
            let (mutation, why) = match plan {
                Plan::Create(new) => (Mutation::Create(new), None),
                // Hold the place: a repeat must find each file at the same place of its request.
                Plan::Closed(error) => (nothing(), Some((error, true))),
                Plan::Refused(error) => (nothing(), Some((error, false))),
            };
            mutations.push(mutation);
            refusals.push(why);
        }
        let outcomes = self.apply(call.caller, ids.create, mutations).await?;
        let mut found = Vec::with_capacity(part.len());
        // Places of the files that exist, or may exist; with the error if they do not.
        let mut there = Vec::new();
        for (place, (outcome, why)) in outcomes.into_iter().zip(refusals).enumerate() {
            let file = &call.files[part[place]];
            let answer = match (outcome, why) {
                (Outcome::Applied { id: Some(EntryId::Object(guid)), .. }, _) => {
                    Ok(Registered::Created(guid))
                }
                (_, Some((error, may_be_there))) => {
                    if may_be_there && call.existing != Existing::Refuse {
                        there.push((place, Some(error)));
                        found.push(FileResult::Again);
                        continue;
                    }
                    Err(error)
                }
                (Outcome::Refused(Refusal::Exists(_)), None) if call.existing != Existing::Refuse => {
                    there.push((place, None));
                    found.push(FileResult::Again);
                    continue;
                }
                (Outcome::Refused(refusal), None) => Err(self.not_created(call.caller, file, refusal).await),
                (_, None) => Err(Error::new(ErrorKind::Internal, "a file was created without a GUID")),
            };
            found.push(FileResult::Final(answer));
        }
        if !there.is_empty() {
            self.compare(call, ids, part, there, &mut found).await?;
        }
        Ok(found)
    }

    /// Judges each file of a part as far as possible without the store's decision.
    pub(crate) async fn plan(&self, call: &Call<'_>, ids: &PartIds, part: &[usize]) -> Result<Vec<Plan>> {
        let archives = self.archives(call, part).await?;
        let mut fresh = fresh_guids(self, call, part)?;
        let mut facts = Vec::with_capacity(part.len());
        for (place, index) in part.iter().enumerate() {
            let file = &call.files[*index];
            let archive = archives.get(&place);
            facts.push(match (file.guid.or_else(|| fresh.next()), archive) {
                (_, Some(Err(error))) => Err(error.clone()),
                (Some(guid), archive) => {
                    Facts::of(call, file, guid, archive.and_then(|archive| archive.as_ref().ok()).copied())
                }
                (None, _) => Err(Error::new(ErrorKind::Internal, "too few GUIDs were made")),
            });
        }
        let directories = self.directories_of(call, ids, part, &facts).await?;
        let mut plans = Vec::with_capacity(part.len());
        for ((index, facts), directory) in part.iter().zip(facts).zip(directories.of_place) {
            let file = &call.files[*index];
            plans.push(match (facts, directory) {
                (Err(error), _) => Plan::Refused(error),
                (Ok(facts), Some(directory)) => match &directories.found[directory] {
                    Ok(ancestor) if call.caller.is_granted_by(ancestor, WRITE | PASS) => {
                        match file.lfn.file_name() {
                            Some(name) => {
                                Plan::Create(Box::new(facts.entry(file, At { parent: ancestor.id, name })))
                            }
                            None => Plan::Refused(is_root()),
                        }
                    }
                    Ok(_) => Plan::Closed(Error::denied(format!(
                        "{}: you may not change the directory it is in (no w)",
                        file.lfn
                    ))),
                    Err(error) => Plan::Refused(error.clone()),
                },
                (Ok(_), None) => Plan::Refused(is_root()),
            });
        }
        Ok(plans)
    }

    /// Returns the directory of each file, and makes it on request. Looks each directory up once,
    /// however many files go there.
    async fn directories_of(
        &self,
        call: &Call<'_>,
        ids: &PartIds,
        part: &[usize],
        facts: &[Result<Facts>],
    ) -> Result<Directories> {
        let mut of_place = Vec::with_capacity(part.len());
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut lfns = Vec::new();
        let mut last: Option<(&str, usize)> = None;
        for (index, facts) in part.iter().zip(facts) {
            let lfn = &call.files[*index].lfn;
            let Some((parent, _)) = lfn.split_last().filter(|_| facts.is_ok()) else {
                of_place.push(None);
                continue;
            };
            // Files mostly come sorted by directory.
            let number = match last {
                Some((same, number)) if same == parent => number,
                _ => *numbers.entry(parent).or_insert_with(|| {
                    lfns.extend(lfn.parent());
                    lfns.len() - 1
                }),
            };
            last = Some((parent, number));
            of_place.push(Some(number));
        }
        let mut found: Vec<Result<Ancestor>> = Vec::with_capacity(lfns.len());
        let mut missing = Vec::new();
        if let Some(cache) = call.cache {
            let found = self.cached_directories(call, cache, ids, &lfns).await?;
            return Ok(Directories { of_place, found });
        }
        for (number, spot) in self.spots(call.caller, &lfns, true).await?.into_iter().enumerate() {
            if call.parents && matches!(spot, Ok(Spot::Vacant(_))) {
                missing.push(number);
            }
            if let (Some(ways), Ok(Spot::Taken(resolved))) = (call.ways, &spot)
                && let Some(ancestor) = Ancestor::of(&resolved.entry)
            {
                let mut way = resolved.ancestors.clone();
                way.push(ancestor);
                ways.lock().insert(ancestor.id, way);
            }
            found.push(ancestor_at(spot, &lfns[number]));
        }
        if !missing.is_empty() {
            let wanted: Vec<Lfn> = missing.iter().map(|number| lfns[*number].clone()).collect();
            // An id of another operation is a conflict before any directory is made.
            self.recall(call.caller, ids.create).await?;
            let made = self.ensure_directories(call.caller, ids.parents, &wanted).await?;
            for (number, directory) in missing.into_iter().zip(made) {
                found[number] = directory.map(|directory| directory.ancestor);
            }
        }
        Ok(Directories { of_place, found })
    }

    /// Returns the archives that contain files of a part, by place.
    async fn archives(&self, call: &Call<'_>, part: &[usize]) -> Result<HashMap<usize, Result<Guid>>> {
        let mut lfns = Vec::new();
        let mut guids = Vec::new();
        let (mut lfn_places, mut guid_places) = (Vec::new(), Vec::new());
        for (place, index) in part.iter().enumerate() {
            match &call.files[*index].member_of {
                Some((FileRef::Lfn(lfn), _)) => {
                    lfns.push(lfn.clone());
                    lfn_places.push(place);
                }
                Some((FileRef::Guid(guid), _)) => {
                    guids.push(*guid);
                    guid_places.push(place);
                }
                None => {}
            }
        }
        let mut archives = HashMap::new();
        if !lfns.is_empty() {
            let found = self.resolve_all(call.caller, &lfns, true).await?;
            archives.extend(
                lfn_places.into_iter().zip(found.into_iter().map(|found| archive(call.caller, found?))),
            );
        }
        if !guids.is_empty() {
            let found = self.resolve_guids(call.caller, &guids).await?;
            archives.extend(
                guid_places.into_iter().zip(found.into_iter().map(|found| archive(call.caller, found?))),
            );
        }
        Ok(archives)
    }

    /// Gives the files that exist, or may exist, their results.
    async fn compare(
        &self,
        call: &Call<'_>,
        ids: &PartIds,
        part: &[usize],
        there: Vec<(usize, Option<Error>)>,
        found: &mut [FileResult],
    ) -> Result<()> {
        let lfns: Vec<Lfn> = there.iter().map(|(place, _)| call.files[part[*place]].lfn.clone()).collect();
        let spots = self.spots(call.caller, &lfns, false).await?;
        let archives = self.archives(call, part).await?;
        let mut merge = Merge::new(part.len());
        for ((place, closed), spot) in there.into_iter().zip(spots) {
            let file = &call.files[part[place]];
            found[place] = match (spot, closed) {
                (Err(error), _) => FileResult::Final(Err(error)),
                (Ok(Spot::Vacant(_)), Some(error)) => FileResult::Final(Err(error)),
                // The file was removed between the two reads.
                (Ok(Spot::Vacant(_)), None) => FileResult::Again,
                (Ok(Spot::Taken(resolved)), _) if !call.caller.has_entry(&resolved.entry, READ) => {
                    // A difference would reveal the file's contents.
                    let message = format!("{} exists, and you may not read it (no r)", file.lfn);
                    FileResult::Final(Err(Error::new(ErrorKind::Exists, message)))
                }
                (Ok(Spot::Taken(resolved)), _) => {
                    let archive = archives.get(&place).and_then(|archive| archive.as_ref().ok()).copied();
                    match call.existing {
                        Existing::Merge => {
                            merge.add(call, place, file, archive, *resolved);
                            continue;
                        }
                        _ => FileResult::Final(same(call, file, archive, &resolved.entry)),
                    }
                }
            };
        }
        if merge.is_empty() {
            return Ok(());
        }
        let (mutations, slots) = merge.into_request();
        let outcomes = self.apply(call.caller, ids.merge, mutations).await?;
        for ((place, slot), outcome) in slots.into_iter().enumerate().zip(outcomes) {
            let Some(slot) = slot else { continue };
            found[place] = match (outcome, slot) {
                (Outcome::Applied { id: Some(EntryId::Object(guid)), .. }, _) => {
                    FileResult::Final(Ok(Registered::Merged(guid)))
                }
                (_, MergePlace::Refused(error)) => FileResult::Final(Err(error)),
                (_, MergePlace::Later)
                | (Outcome::Refused(Refusal::Stale | Refusal::NotFound | Refusal::ParentGone), _) => {
                    FileResult::Again
                }
                (Outcome::Refused(refusal), MergePlace::Sent(_)) => {
                    FileResult::Final(Err(refused(&call.files[part[place]].lfn, refusal)))
                }
                (_, MergePlace::Sent(guid)) => FileResult::Final(Ok(Registered::Unchanged(guid))),
            };
        }
        Ok(())
    }
}

impl Catalogue {
    /// Returns the reason why a file was not created. Names the trash, if a removed file of the
    /// caller's has the GUID.
    async fn not_created(&self, caller: &Caller, file: &NewFile, refusal: Refusal) -> Error {
        if refusal == Refusal::GuidInUse
            && let Some(guid) = file.guid
            && self.is_own_in_trash(caller, guid).await
        {
            return Error::new(
                ErrorKind::Exists,
                format!(
                    "{}: the GUID {guid} is that of a file in the trash: restore or purge that first (exacat \
                     trash ls names it)",
                    file.lfn
                ),
            );
        }
        refused(&file.lfn, refusal)
    }

    /// True if the caller owns a trashed entry with this GUID. Other callers learn nothing of it.
    async fn is_own_in_trash(&self, caller: &Caller, guid: Guid) -> bool {
        let found = self.store.locate(&[EntryId::Object(guid)]).await;
        let located = found.ok().and_then(|mut found| found.pop().flatten());
        located
            .is_some_and(|found| matches!(found.place, EntryLocation::Trash(_)) && caller.owns(&found.entry))
    }
}

/// The directories of a part.
struct Directories {
    /// By place: the index into `found`; none for an invalid file.
    of_place: Vec<Option<usize>>,
    found: Vec<Result<Ancestor>>,
}

/// A file to register, with numbers in place of names.
struct Facts {
    guid: Guid,
    owner: UserId,
    group: GroupId,
    replicas: Vec<Replica>,
}

impl Facts {
    fn of(call: &Call<'_>, file: &NewFile, guid: Guid, archive: Option<Guid>) -> Result<Facts> {
        check_new_name(&file.lfn)?;
        let (owner, group) = owner_and_group(call, file.owner.as_ref(), file.group.as_ref())
            .map_err(|error| about(&file.lfn, error))?;
        let replicas =
            replicas_of(&call.names, file, guid, archive).map_err(|error| about(&file.lfn, error))?;
        Ok(Facts { guid, owner, group, replicas })
    }

    fn entry(self, file: &NewFile, at: At) -> NewEntry {
        let mut tags = file.tags.clone();
        tags.sort_by(|a, b| a.key.cmp(&b.key));
        NewEntry {
            at,
            owner: self.owner,
            group: self.group,
            mode: file.mode.unwrap_or(Mode::FILE),
            created: None,
            modified: file.modified,
            expires: file.expires,
            tags,
            body: NewBody::File(File {
                guid: self.guid,
                size: file.size,
                checksums: file.checksums.clone(),
                job: file.job,
                replicas: self.replicas,
            }),
        }
    }
}

/// Returns the owner and group of a new entry. Another owner takes an admin.
fn owner_and_group(
    call: &Call<'_>,
    owner: Option<&AccountName>,
    group: Option<&AccountName>,
) -> Result<(UserId, GroupId)> {
    let caller = call.caller;
    let (owner, default_group) = match owner {
        None => (caller.check_known()?, caller.group()),
        Some(name) => {
            let user = call.names.user(name)?;
            if caller.user() != Some(user.id) && !caller.is_admin() {
                return Err(Error::denied(format!("to register a file for {name} takes the role admin")));
            }
            (user.id, user.group)
        }
    };
    let group = match group {
        None => default_group,
        Some(name) => {
            let group = call.names.group(name)?;
            if !caller.is_in(group.id) && !caller.is_admin() {
                return Err(Error::denied(format!("you are not in the group {name}")));
            }
            group.id
        }
    };
    Ok((owner, group))
}

/// Splits a call into parts, each a list of indices into `files`. Files inside archives of the same
/// call come last. The split depends on `files` alone, so a repeat is split the same way.
fn parts(files: &[NewFile]) -> Vec<Vec<usize>> {
    let mut parts = Vec::new();
    let mut bytes = usize::MAX;
    let mut add = |index: usize, new_wave: bool| {
        let more = encoded_bytes(&files[index]);
        if new_wave || bytes.saturating_add(more) > PART_BYTES_MAX {
            parts.push(Vec::with_capacity(if new_wave { 0 } else { files.len() }));
            bytes = 0;
        }
        bytes += more;
        if let Some(part) = parts.last_mut() {
            part.push(index);
        }
    };
    if files.iter().all(|file| file.member_of.is_none()) {
        (0..files.len()).for_each(|index| add(index, false));
        return parts;
    }
    let lfns: HashSet<&Lfn> = files.iter().map(|file| &file.lfn).collect();
    let guids: HashSet<Guid> = files.iter().filter_map(|file| file.guid).collect();
    let (second, first): (Vec<usize>, Vec<usize>) =
        (0..files.len()).partition(|index| match &files[*index].member_of {
            Some((FileRef::Lfn(lfn), _)) => lfns.contains(lfn),
            Some((FileRef::Guid(guid), _)) => guids.contains(guid),
            None => false,
        });
    first.into_iter().for_each(|index| add(index, false));
    second.into_iter().enumerate().for_each(|(count, index)| add(index, count == 0));
    parts
}

/// Returns an upper bound for the file's bytes in a request to the store.
fn encoded_bytes(file: &NewFile) -> usize {
    let replicas: usize = file
        .replicas
        .iter()
        .map(|replica| 24 + replica.pfn.as_ref().map_or(0, |pfn| pfn.as_str().len()))
        .sum();
    let member = file.member_of.as_ref().map_or(0, |(_, member)| 48 + member.len());
    let tags: usize = file
        .tags
        .iter()
        .map(|tag| {
            let value = if let exacat_model::TagValue::Text(text) = &tag.value { text.len() } else { 0 };
            tag.key.as_str().len() + value + 32
        })
        .sum();
    320 + file.lfn.split_last().map_or(0, |(_, name)| name.len()) + replicas + member + tags
}

/// Makes GUIDs for the files without one, from one draw of randomness.
fn fresh_guids(catalogue: &Catalogue, call: &Call<'_>, part: &[usize]) -> Result<impl Iterator<Item = Guid>> {
    let count = part.iter().filter(|index| call.files[**index].guid.is_none()).count();
    let mut random = vec![[0u8; 10]; count];
    fill_random(random.as_flattened_mut())?;
    let now = catalogue.clock.trusted();
    Ok(random.into_iter().map(move |random| Guid::v7(now, random)))
}

fn ancestor_at(spot: Result<Spot>, lfn: &Lfn) -> Result<Ancestor> {
    match spot? {
        Spot::Taken(resolved) => Ancestor::of(&resolved.entry)
            .ok_or_else(|| Error::new(ErrorKind::NotDirectory, format!("{lfn} is no directory"))),
        Spot::Vacant(_) => Err(Error::not_found(format!("the directory {lfn} is not there"))),
    }
}

/// Checks that the entry can have members and that the caller may read it; returns its GUID.
fn archive(caller: &Caller, found: Resolved) -> Result<Guid> {
    let Some(file) = found.entry.file() else {
        return Err(Error::new(ErrorKind::NotFile, format!("{} is no file, so no archive", found.lfn)));
    };
    if file.is_member() {
        return Err(Error::invalid(format!("{} is inside an archive itself", found.lfn)));
    }
    if !caller.has_entry(&found.entry, READ) {
        return Err(Error::denied(format!("you may not read the archive {}", found.lfn)));
    }
    Ok(file.guid)
}

fn is_root() -> Error {
    Error::invalid("/ is the root directory, no name for a file")
}
