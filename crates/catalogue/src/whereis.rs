//! Where the bytes of files are: the question that is asked most, so the shortest way from the question to the
//! answer. One read of the store for a batch, a second for the archives of members; a PFN is made once.

use exacat_model::answer::{ReplicaAt, Whereis};
use exacat_model::limits::READ_BATCH_MAX;
use exacat_model::{
    AccountName, Answer, Body, Entry, EntryId, Error, ErrorKind, File, FileRef, Guid, Lfn, Location, Replica,
    ReplicaState, Result, Se, SeName, SeNumber, SeStatus,
};
use exacat_store::{Located, Place, WalkEnd};
use smallvec::SmallVec;

use crate::Catalogue;
use crate::caller::{Caller, READ};
use crate::registry::Names;
use crate::resolve::check_passage;

/// A storage element as this batch sees it.
struct Seen<'a> {
    number: SeNumber,
    /// None if it is not known.
    se: Option<&'a Se>,
    /// The batch's own: many threads give the same names at once.
    name: Option<SeName>,
    offline: bool,
    /// From the site of whoever asks; a site that is not listed is farther than all that are.
    distance: u32,
}

/// The storage elements met in this batch, each looked at once.
struct Elements<'a> {
    names: &'a Names,
    site: Option<&'a AccountName>,
    seen: SmallVec<[Seen<'a>; 16]>,
    /// Where among those seen a number may be found, by its last bits.
    likely: [u8; LIKELY],
}

const LIKELY: usize = 64;

impl<'a> Elements<'a> {
    fn new(names: &'a Names, site: Option<&'a AccountName>) -> Self {
        Elements { names, site, seen: SmallVec::new(), likely: [0; LIKELY] }
    }

    /// The place of a storage element among those seen.
    fn place(&mut self, number: SeNumber) -> usize {
        let likely = usize::from(number.0) % LIKELY;
        let place = usize::from(self.likely[likely]);
        if self.seen.get(place).is_some_and(|seen| seen.number == number) {
            return place;
        }
        let place = match self.seen.iter().position(|seen| seen.number == number) {
            Some(place) => place,
            None => self.see(number),
        };
        self.likely[likely] = place as u8;
        place
    }

    fn see(&mut self, number: SeNumber) -> usize {
        let se = self.names.ses.get(&number).map(|se| &**se);
        let distance = match (self.site, se) {
            (None, Some(_)) => 0,
            (_, None) => u32::MAX,
            (Some(site), Some(se)) => {
                let listed = se.distances.iter().find(|(other, _)| other == site);
                listed.map_or(u32::MAX, |(_, distance)| *distance)
            }
        };
        self.seen.push(Seen {
            number,
            se,
            name: se.map(|se| se.name.unshared()),
            offline: se.is_none_or(|se| se.status == SeStatus::Offline),
            distance,
        });
        self.seen.len() - 1
    }
}

/// A member's place in the batch, its archive, and its name there.
struct MemberOf {
    index: usize,
    archive: Guid,
    member: String,
}

impl Catalogue {
    /// Replicas best first. Copying and lost ones are not offered, for they cannot be read. What is on an SE that
    /// is offline comes last, for it can only be waited for; before it suspect replicas, before them available
    /// ones; among equals the nearest to `site`, then the lowest SE number.
    pub(crate) async fn whereis(
        &self,
        caller: &Caller,
        files: Vec<FileRef>,
        site: Option<&AccountName>,
    ) -> Result<Answer> {
        let count = files.len();
        if count > READ_BATCH_MAX {
            return Err(Error::limit("the number of files in one request", count, READ_BATCH_MAX));
        }
        let mut paths = Vec::with_capacity(count);
        let mut guids = Vec::new();
        let mut by_guid = Vec::with_capacity(count);
        for file in files {
            by_guid.push(matches!(file, FileRef::Guid(_)));
            match file {
                FileRef::Lfn(lfn) => paths.push(lfn),
                FileRef::Guid(guid) => guids.push(guid),
            }
        }
        let walks = if paths.is_empty() { Vec::new() } else { self.store.walk(&paths).await? };
        let located = if guids.is_empty() { Vec::new() } else { self.resolve_guids(caller, &guids).await? };

        let names = self.registry.names();
        let mut elements = Elements::new(&names, site);
        let mut members = Vec::new();
        let mut answers = Vec::with_capacity(count);
        let mut walked = paths.into_iter().zip(walks);
        let mut located = located.into_iter();
        for (index, by_guid) in by_guid.into_iter().enumerate() {
            let short = || Error::new(ErrorKind::Internal, "the store gave too few answers");
            let found: Result<(Lfn, Box<Entry>)> = if by_guid {
                located.next().ok_or_else(short)?.map(|resolved| (resolved.lfn, Box::new(resolved.entry)))
            } else {
                let (lfn, walk) = walked.next().ok_or_else(short)?;
                match walk.end {
                    WalkEnd::Found(entry) if !matches!(entry.body, Body::Link { .. }) => caller
                        .check_scope(&lfn)
                        .and_then(|()| check_passage(caller, &walk.gates, &lfn))
                        .map(|()| (lfn, entry)),
                    _ => self
                        .resolve_walk(caller, lfn, walk, true)
                        .await
                        .map(|resolved| (resolved.lfn, Box::new(resolved.entry))),
                }
            };
            answers.push(found.and_then(|(lfn, entry)| {
                let file = readable_file(caller, &lfn, entry)?;
                let File { guid, size, checksums, replicas, .. } = file;
                if let [Replica { location: Location::Member { archive, member }, state, .. }] = &replicas[..]
                {
                    if offered(*state) {
                        members.push(MemberOf { index, archive: *archive, member: member.clone() });
                    }
                    return Ok(Whereis { guid, size, checksums, replicas: Vec::new() });
                }
                let replicas = offers(&mut elements, guid, replicas);
                Ok(Whereis { guid, size, checksums, replicas })
            }));
        }
        if !members.is_empty() {
            self.place_members(caller, &mut elements, members, &mut answers).await?;
        }
        Ok(Answer::Whereis(answers))
    }

    /// Gives members the replicas of their archives, `?ZIP=member` after each; none if the archive is in the trash or
    /// gone. Who may not read the archive is refused: being let into a file is not being let into all that is
    /// packed with it.
    async fn place_members(
        &self,
        caller: &Caller,
        elements: &mut Elements<'_>,
        members: Vec<MemberOf>,
        answers: &mut [Result<Whereis>],
    ) -> Result<()> {
        let mut archives: Vec<Guid> = members.iter().map(|member| member.archive).collect();
        archives.sort_unstable();
        archives.dedup();
        let ids: Vec<EntryId> = archives.iter().map(|guid| EntryId::Object(*guid)).collect();
        let located = self.store.locate(&ids).await?;
        let offers_of: Vec<Option<Vec<ReplicaAt>>> = located
            .into_iter()
            .map(|found| match found {
                Some(Located { entry, place: Place::Tree(lfn), gates }) => {
                    caller.check_scope(&lfn).and_then(|()| check_passage(caller, &gates, &lfn)).ok()?;
                    let File { guid, replicas, .. } = readable_file(caller, &lfn, Box::new(entry)).ok()?;
                    Some(offers(elements, guid, replicas))
                }
                _ => Some(Vec::new()),
            })
            .collect();
        for MemberOf { index, archive, member } in members {
            let Ok(position) = archives.binary_search(&archive) else { continue };
            match &offers_of[position] {
                Some(offers) => {
                    if let Ok(whereis) = &mut answers[index] {
                        whereis.replicas = offers.iter().map(|offer| member_at(offer, &member)).collect();
                    }
                }
                None => answers[index] = Err(Error::denied("you may not read the archive it is in")),
            }
        }
        Ok(())
    }
}

fn member_at(archive: &ReplicaAt, member: &str) -> ReplicaAt {
    const ZIP: &str = "?ZIP=";
    let mut pfn = String::with_capacity(archive.pfn.len() + ZIP.len() + member.len());
    pfn.push_str(&archive.pfn);
    pfn.push_str(ZIP);
    pfn.push_str(member);
    ReplicaAt { se: archive.se.clone(), state: archive.state, pfn }
}

/// The file an entry is, if the caller may read it.
fn readable_file(caller: &Caller, lfn: &Lfn, entry: Box<Entry>) -> Result<File> {
    let readable = caller.has_entry(&entry, READ);
    let kind = entry.kind();
    match entry.body {
        Body::File(file) if readable => Ok(file),
        Body::File(_) => Err(Error::denied(format!("you may not read {lfn} (no r)"))),
        _ => Err(Error::new(ErrorKind::NotFile, format!("{lfn} is a {}, not a file", kind.name()))),
    }
}

fn offered(state: ReplicaState) -> bool {
    matches!(state, ReplicaState::Available | ReplicaState::Suspect)
}

/// A replica that can be read, with what orders it among the others.
struct Candidate {
    replica: Replica,
    /// Its storage element's place among those seen.
    place: usize,
    /// Smaller is better.
    rank: (bool, bool, u32, SeNumber),
}

/// The replicas that can be read, best first.
fn offers(elements: &mut Elements<'_>, guid: Guid, replicas: Vec<Replica>) -> Vec<ReplicaAt> {
    let mut candidates: SmallVec<[Candidate; 4]> = SmallVec::new();
    for replica in replicas {
        if !offered(replica.state) || replica.is_member() {
            continue;
        }
        let place = elements.place(replica.se);
        let Seen { offline, distance, .. } = elements.seen[place];
        let rank = (offline, replica.state != ReplicaState::Available, distance, replica.se);
        candidates.push(Candidate { replica, place, rank });
    }
    if candidates.len() > 1 {
        candidates.sort_unstable_by_key(|candidate| candidate.rank);
    }
    let mut offers: Vec<ReplicaAt> = Vec::with_capacity(candidates.len());
    // The path that follows from the GUID is the same on each SE: which offer has it, and where it begins there.
    let mut derived: Option<(usize, usize)> = None;
    for Candidate { replica, place, .. } in candidates {
        let Seen { se, name, .. } = &elements.seen[place];
        let state = replica.state;
        let pfn = match (replica.location, se) {
            (Location::Explicit(pfn), _) => pfn.into_string(),
            (Location::Derived, Some(se)) => {
                let mut pfn = String::with_capacity(se.prefix.len() + Guid::STORAGE_PATH_BYTES);
                pfn.push_str(&se.prefix);
                match derived {
                    Some((offer, begin)) => pfn.push_str(&offers[offer].pfn[begin..]),
                    None => {
                        derived = Some((offers.len(), pfn.len()));
                        guid.push_storage_path(&mut pfn);
                    }
                }
                pfn
            }
            // Without its SE's prefix it cannot be said where it is; a member is where its archive is.
            (Location::Derived, None) | (Location::Member { .. }, _) => continue,
        };
        offers.push(ReplicaAt { se: name.clone(), state, pfn });
    }
    offers
}
