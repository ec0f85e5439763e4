//! Locations of files: the most frequent request, so the shortest path to the answer. A batch takes
//! one read of the store, and a second one for the archives of members. Each answer is built from
//! data that is there already, for the caller to keep or to write out at once.

use exacat_model::answer::{ReplicaAtRef, WhereisRef};
use exacat_model::limits::READ_BATCH_MAX;
use exacat_model::{
    AccountName, Answer, Body, EntryId, Error, ErrorKind, File, FileRef, Guid, Kind, Lfn, Location, Replica,
    ReplicaState, Result, Se, SeNumber, SeStatus,
};
use exacat_store::{EntryLocation, Files, FoundFile, Located, ReadBytes};
use futures::future::BoxFuture;
use smallvec::SmallVec;

use crate::Catalogue;
use crate::caller::{Caller, PASS, READ};
use crate::execute::boxed;
use crate::registry::Names;
use crate::resolve::{Resolved, check_passage};
use crate::trailing::no_directory;

/// Takes the answers of a batch, in the order of its questions.
pub type EachWhereis<'a> = &'a mut (dyn FnMut(Result<&WhereisRef<'_>>) + Send);

/// A storage element as this batch sees it.
struct Seen<'a> {
    number: SeNumber,
    /// None if it is not known.
    se: Option<&'a Se>,
    offline: bool,
    /// Distance from the client's site; an unlisted site is farther than all listed ones.
    distance: u32,
}

/// The storage elements of this batch, each looked up once.
struct Elements<'a> {
    names: &'a Names,
    site: Option<&'a AccountName>,
    seen: SmallVec<[Seen<'a>; 16]>,
    /// Likely index into `seen`, by the last bits of a number.
    likely: [u8; LIKELY],
}

const LIKELY: usize = 64;

impl<'a> Elements<'a> {
    fn new(names: &'a Names, site: Option<&'a AccountName>) -> Self {
        Elements { names, site, seen: SmallVec::new(), likely: [0; LIKELY] }
    }

    /// Returns the index of a storage element in `seen`.
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
            offline: se.is_none_or(|se| se.status == SeStatus::Offline),
            distance,
        });
        self.seen.len() - 1
    }
}

/// The file that a path or a GUID leads to, or the refusal.
type FileResult = Result<File>;

/// The archive of a member: its file, nothing if it is in the trash or gone, or a refusal.
enum Archive {
    File(File),
    Gone,
    Closed,
}

/// The archives of a batch's members, in the order of their GUIDs.
type Archives = Vec<(Guid, Archive)>;

impl Catalogue {
    /// Answers a batch, and keeps the answers.
    pub(crate) async fn whereis(
        &self,
        caller: &Caller,
        files: Vec<FileRef>,
        site: Option<&AccountName>,
    ) -> Result<Answer> {
        let mut answers = Vec::with_capacity(files.len().min(READ_BATCH_MAX));
        self.whereis_of_admitted(caller, files, site, &mut |found| {
            answers.push(found.map(|found| found.to_owned()));
        })
        .await?;
        Ok(Answer::Whereis(answers))
    }

    /// Answers [`Operation::Whereis`](exacat_model::Operation::Whereis), but passes each answer to
    /// `each` as soon as it is built, and does not keep it.
    pub fn whereis_each<'a>(
        &'a self,
        caller: &'a Caller,
        files: Vec<FileRef>,
        site: Option<&'a AccountName>,
        each: EachWhereis<'a>,
    ) -> BoxFuture<'a, Result<()>> {
        boxed(async move {
            self.admit_reader(caller)?;
            self.whereis_of_admitted(caller, files, site, each).await
        })
    }

    /// Answers a batch with replicas, best first. It does not offer copying and lost ones, because
    /// they cannot be read. The order is:
    ///
    /// 1. on an online SE before an offline one, for which a reader can only wait;
    /// 2. with a PFN before those without: their PFN would follow from a prefix that is not known;
    /// 3. available before suspect;
    /// 4. nearest to `site` first, then lowest SE number.
    async fn whereis_of_admitted(
        &self,
        caller: &Caller,
        asked: Vec<FileRef>,
        site: Option<&AccountName>,
        each: EachWhereis<'_>,
    ) -> Result<()> {
        let count = asked.len();
        if count > READ_BATCH_MAX {
            return Err(Error::limit("the number of files in one request", count, READ_BATCH_MAX));
        }
        let mut paths = Vec::with_capacity(count);
        let mut guids = Vec::new();
        let mut by_guid = Vec::with_capacity(count);
        for file in asked {
            by_guid.push(matches!(file, FileRef::Guid(_)));
            match file {
                FileRef::Lfn(lfn) => paths.push(lfn),
                FileRef::Guid(guid) => guids.push(guid),
            }
        }
        let mut files = if paths.is_empty() { Files::default() } else { self.store.files(&paths).await? };
        let passable: Vec<bool> = files
            .ways
            .iter()
            .map(|way| way.iter().all(|ancestor| caller.is_granted_by(ancestor, PASS)))
            .collect();
        // A file out of reach gets the answer of a missing one, after the same work.
        for (lfn, found) in paths.iter().zip(&mut files.found) {
            found.take_if(|found| !passable[found.way] || caller.check_scope(lfn).is_err());
        }
        let others = self.whereis_of_others(caller, &paths, &files.found).await?;
        let located = if guids.is_empty() { Vec::new() } else { self.resolve_guids(caller, &guids).await? };
        let located: Vec<FileResult> =
            located.into_iter().map(|found| found.and_then(|found| readable_file(caller, found))).collect();
        let mut archives = Vec::new();
        files.found.iter().flatten().for_each(|found| archives.extend(archive_of(&found.file)));
        others.iter().chain(&located).flatten().for_each(|file| archives.extend(archive_of(file)));
        let archives = self.archives_of(caller, archives).await?;

        let names = self.names_seen().await?;
        let mut elements = Elements::new(&names, site);
        let mut walked = paths.iter().zip(&files.found);
        let (mut others, mut located) = (others.into_iter(), located.into_iter());
        for by_guid in by_guid {
            let short = || Error::new(ErrorKind::Internal, "the store gave too few answers");
            if by_guid {
                let found = located.next().ok_or_else(short)?;
                elements.answer(found.as_ref().map_err(Error::clone), &archives, each);
                continue;
            }
            match walked.next().ok_or_else(short)? {
                (lfn, Some(_)) if lfn.must_be_directory() => {
                    elements.answer(Err(no_directory(lfn, Kind::File)), &archives, each);
                }
                (lfn, Some(FoundFile { owner, group, mode, file, .. })) => {
                    let allowed = check_readable(caller.has(*owner, *group, *mode, READ), lfn);
                    elements.answer(allowed.map(|()| file), &archives, each);
                }
                (_, None) => {
                    let found = others.next().ok_or_else(short)?;
                    elements.answer(found.as_ref().map_err(Error::clone), &archives, each);
                }
            }
        }
        Ok(())
    }

    /// Resolves the paths that do not end directly at a file: follows links, and reports what the
    /// others are.
    async fn whereis_of_others(
        &self,
        caller: &Caller,
        paths: &[Lfn],
        found: &[Option<FoundFile>],
    ) -> Result<Vec<FileResult>> {
        let others = paths.iter().zip(found).filter(|(_, found)| found.is_none());
        let others: Vec<Lfn> = others.map(|(lfn, _)| lfn.clone()).collect();
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let resolutions = self.store.resolve(&others).await?;
        let mut files = Vec::with_capacity(others.len());
        for (lfn, resolution) in others.into_iter().zip(resolutions) {
            let resolved = self.resolve_from(caller, lfn, resolution, true).await;
            files.push(resolved.and_then(|resolved| readable_file(caller, resolved)));
        }
        Ok(files)
    }

    /// Returns these archives, each once. Refuses an archive that the caller may not read: a right
    /// to one file is no right to everything packed with it.
    async fn archives_of(&self, caller: &Caller, mut guids: Vec<Guid>) -> Result<Archives> {
        if guids.is_empty() {
            return Ok(Vec::new());
        }
        guids.sort_unstable();
        guids.dedup();
        let ids: Vec<EntryId> = guids.iter().map(|guid| EntryId::Object(*guid)).collect();
        let mut archives = Vec::with_capacity(ids.len());
        let take = |_, found| {
            archives.push(match found {
                Some(Located { entry, place: EntryLocation::Tree(lfn), ancestors }) => {
                    let passed =
                        caller.check_scope(&lfn).and_then(|()| check_passage(caller, &ancestors, &lfn));
                    match passed.and_then(|()| readable_file(caller, Resolved { lfn, entry, ancestors })) {
                        Ok(file) => Archive::File(file),
                        Err(_) => Archive::Closed,
                    }
                }
                _ => Archive::Gone,
            });
        };
        self.locate_each(&ids, take).await?;
        // Each is that of one request, but together they may be those of many.
        let mut bytes = ReadBytes::default();
        for archive in &archives {
            bytes.add(if let Archive::File(file) = archive { Some(file) } else { None })?;
        }
        Ok(guids.into_iter().zip(archives).collect())
    }
}

/// Returns the archive of a member, the file's name in it, and whether it can be read.
fn member_of(file: &File) -> Option<(Guid, &str, bool)> {
    match &file.replicas[..] {
        [Replica { location: Location::Member { archive, member }, state, .. }] => {
            Some((*archive, member, offered(*state)))
        }
        _ => None,
    }
}

fn archive_of(file: &File) -> Option<Guid> {
    member_of(file).map(|(archive, ..)| archive)
}

fn check_readable(readable: bool, lfn: &Lfn) -> Result<()> {
    if readable { Ok(()) } else { Err(Error::denied(format!("you may not read {lfn} (no r)"))) }
}

/// Returns the file of an entry, if the caller may read it.
fn readable_file(caller: &Caller, Resolved { lfn, entry, .. }: Resolved) -> Result<File> {
    let readable = caller.has_entry(&entry, READ);
    let kind = entry.kind();
    match entry.body {
        Body::File(file) => check_readable(readable, &lfn).map(|()| file),
        _ => Err(Error::new(ErrorKind::NotFile, format!("{lfn} is a {}, not a file", kind.name()))),
    }
}

fn offered(state: ReplicaState) -> bool {
    matches!(state, ReplicaState::Available | ReplicaState::Suspect)
}

/// A readable replica, with its rank.
struct Candidate<'f> {
    replica: &'f Replica,
    /// Index of its storage element in `seen`.
    place: usize,
    /// Rank; smaller is better.
    rank: (bool, bool, bool, u32, SeNumber),
}

impl Elements<'_> {
    /// Builds an answer. A member has the replicas of its archive with `?ZIP=member` after each
    /// PFN; none if the archive is in the trash or gone.
    fn answer(&mut self, file: Result<&File>, archives: &Archives, each: EachWhereis<'_>) {
        let file = match file {
            Ok(file) => file,
            Err(error) => return each(Err(error)),
        };
        let Some((archive, member, readable)) = member_of(file) else {
            return self.offer(file, file, ["", ""], each);
        };
        let place = archives.binary_search_by_key(&archive, |(guid, _)| *guid);
        match place.ok().filter(|_| readable).map(|place| &archives[place].1) {
            Some(Archive::File(archive)) => self.offer(file, archive, ["?ZIP=", member], each),
            Some(Archive::Closed) => each(Err(Error::denied("you may not read the archive it is in"))),
            Some(Archive::Gone) | None => each(Ok(&whereis(file, &[]))),
        }
    }

    /// Answers for `file` with the replicas of `physical`, and `suffix` after each PFN.
    fn offer(&mut self, file: &File, physical: &File, suffix: [&str; 2], each: EachWhereis<'_>) {
        let mut candidates: SmallVec<[Candidate<'_>; 4]> = SmallVec::new();
        for replica in &physical.replicas {
            if !offered(replica.state) || replica.is_member() {
                continue;
            }
            let place = self.place(replica.se);
            let Seen { offline, distance, .. } = self.seen[place];
            let placeless = replica.location == Location::Derived
                && self.seen[place].se.is_some_and(|se| !se.is_place_known());
            let rank = (offline, placeless, replica.state != ReplicaState::Available, distance, replica.se);
            candidates.push(Candidate { replica, place, rank });
        }
        if candidates.len() > 1 {
            candidates.sort_unstable_by_key(|candidate| candidate.rank);
        }
        let path = physical.guid.storage_path();
        let offers: SmallVec<[ReplicaAtRef<'_>; 4]> = candidates
            .iter()
            .filter_map(|Candidate { replica, place, .. }| {
                let se = self.seen[*place].se;
                let [before, after] = suffix;
                let pfn = match (&replica.location, se) {
                    (Location::Explicit(pfn), _) => [pfn.as_str(), "", before, after],
                    (Location::Derived, Some(se)) if !se.is_place_known() => [""; 4],
                    (Location::Derived, Some(se)) => [&se.prefix, path.as_str(), before, after],
                    // A location needs its SE's prefix; a member is where its archive is.
                    (Location::Derived, None) | (Location::Member { .. }, _) => return None,
                };
                Some(ReplicaAtRef { se: se.map(|se| &se.name), state: replica.state, pfn })
            })
            .collect();
        each(Ok(&whereis(file, &offers)));
    }
}

fn whereis<'a>(file: &'a File, replicas: &'a [ReplicaAtRef<'a>]) -> WhereisRef<'a> {
    WhereisRef { guid: file.guid, size: file.size, checksums: &file.checksums, replicas }
}
