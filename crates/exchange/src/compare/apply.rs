//! Applies the outcome of a comparison to the present catalogue.
//!
//! Each copy is judged again at the commit: the change requires that the file's entry has the version
//! that was compared. So a repetition changes nothing, and an interrupted application is repeated.

use std::collections::HashSet;

use exacat_model::answer::Stat;
use exacat_model::operation::{Existing, NewFile, NewReplica, Registered, ReplicaEdit};
use exacat_model::{
    Answer, Checksums, Error as ModelError, ErrorKind, FileRef, Guid, Lfn, Operation, Pfn, ReplicaState,
    Revision, Se,
};

use super::classes::Class;
use super::listings::{ClassPaths, ListedPath};
use super::paths::PathRules;
use super::side::State;
use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::limits::{COMPARE_APPLY_BATCH, COMPARE_TOUCHED_MAX, REJECTS_SHOWN_MAX};
use crate::sending::{each_done, unexpected};

/// Result of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Copies that were changed.
    pub changed: u64,
    /// Copies that were so already.
    pub already: u64,
    /// Copies that changed since the comparison, and were left alone.
    pub left: u64,
    /// Copies that the catalogue refused to change.
    pub refused: u64,
    /// The first refusals, with their paths.
    pub refusals: Vec<(String, ModelError)>,
}

impl Applied {
    fn refuse(&mut self, path: &str, error: ModelError) {
        self.refused += 1;
        if self.refusals.len() < REJECTS_SHOWN_MAX {
            self.refusals.push((path.to_owned(), error));
        }
    }
}

/// Returns the state that an application of a class gives to copies; none if it gives none.
pub fn state_for(class: Class) -> Option<ReplicaState> {
    match class {
        Class::Lost => Some(ReplicaState::Lost),
        Class::Found => Some(ReplicaState::Available),
        Class::WrongSize | Class::WrongChecksum => Some(ReplicaState::Suspect),
        _ => None,
    }
}

fn next_batch(paths: &mut ClassPaths) -> Result<Vec<ListedPath>, Error> {
    let mut batch = Vec::new();
    while batch.len() < COMPARE_APPLY_BATCH
        && let Some(path) = paths.next_path()?
    {
        batch.push(path);
    }
    Ok(batch)
}

async fn lfns<C: Catalogue>(catalogue: &C, guids: Vec<Guid>) -> Result<Vec<Result<Lfn, ModelError>>, Error> {
    let count = guids.len();
    match catalogue.call(Operation::Lfns { guids }).await? {
        Answer::Lfns(found) if found.len() == count => Ok(found),
        _ => Err(unexpected("lfns").into()),
    }
}

async fn stats<C: Catalogue>(catalogue: &C, lfns: Vec<Lfn>) -> Result<Vec<Result<Stat, ModelError>>, Error> {
    let count = lfns.len();
    if count == 0 {
        return Ok(Vec::new());
    }
    match catalogue.call(Operation::Stat { lfns, follow: false }).await? {
        Answer::Stats(found) if found.len() == count => Ok(found),
        _ => Err(unexpected("stat").into()),
    }
}

/// Sets the state of copies whose entries have not changed since the comparison.
pub async fn apply_state<C: Catalogue>(
    catalogue: &C,
    se: &Se,
    state: ReplicaState,
    mut paths: ClassPaths,
    mut progress: impl FnMut(u64),
) -> Result<Applied, Error> {
    let mut applied = Applied::default();
    let mut done = 0;
    loop {
        let batch = next_batch(&mut paths)?;
        if batch.is_empty() {
            return Ok(applied);
        }
        done += batch.len() as u64;
        set_states(catalogue, se, state, batch, &mut applied).await?;
        progress(done);
    }
}

async fn set_states<C: Catalogue>(
    catalogue: &C,
    se: &Se,
    state: ReplicaState,
    batch: Vec<ListedPath>,
    applied: &mut Applied,
) -> Result<(), Error> {
    let copies: Vec<_> = batch.into_iter().filter_map(|listed| Some((listed.path, listed.copy?))).collect();
    let found = lfns(catalogue, copies.iter().map(|(_, copy)| copy.guid).collect()).await?;
    let mut there = Vec::with_capacity(copies.len());
    for (copy, lfn) in copies.into_iter().zip(found) {
        match lfn {
            Ok(lfn) => there.push((copy, lfn)),
            Err(error) if error.kind == ErrorKind::NotFound => applied.left += 1,
            Err(error) => applied.refuse(&copy.0, error),
        }
    }
    let found = stats(catalogue, there.iter().map(|(_, lfn)| lfn.clone()).collect()).await?;
    let mut edits = Vec::with_capacity(there.len());
    for (((path, copy), _), stat) in there.into_iter().zip(found) {
        let entry = match stat {
            Ok(stat) => stat.entry,
            Err(error) if error.kind == ErrorKind::NotFound => {
                applied.left += 1;
                continue;
            }
            Err(error) => {
                applied.refuse(&path, error);
                continue;
            }
        };
        let file = entry.file().filter(|file| file.guid == copy.guid);
        match file.and_then(|file| file.replica(se.number)) {
            Some(replica) if replica.state == state => applied.already += 1,
            Some(_) if entry.revision == copy.revision => edits.push((path, copy)),
            _ => applied.left += 1,
        }
    }
    if edits.is_empty() {
        return Ok(());
    }
    let asked = edits.iter().map(|(_, copy)| {
        let edits = vec![ReplicaEdit::Unchanged(copy.revision), ReplicaEdit::State(se.name.clone(), state)];
        (FileRef::Guid(copy.guid), edits)
    });
    let answer = catalogue.call(Operation::SetReplicas { edits: asked.collect() }).await?;
    let outcomes = each_done(answer, edits.len(), "set-replicas")?;
    for ((path, _), outcome) in edits.into_iter().zip(outcomes) {
        match outcome {
            Ok(()) => applied.changed += 1,
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) => {
                applied.left += 1
            }
            Err(error) => applied.refuse(&path, error),
        }
    }
    Ok(())
}

/// Paths that changed after the compared state, by hash; another path of the same hash is left alone too.
struct Since<'a, C> {
    state: State<'a, C>,
    up_to: Revision,
    touched: HashSet<u64>,
}

impl<C: Catalogue> Since<'_, C> {
    /// Reads the changes up to now. Adoptions themselves do not count.
    async fn advance(&mut self, se: &Se, rules: &PathRules) -> Result<(), Error> {
        let now = self.state.revision().await?;
        let touched = &mut self.touched;
        let read = self.state.touched(se, self.up_to, now, async |guid, key| {
            if adopted(key, rules, se) != guid {
                touched.insert(xxhash_rust::xxh3::xxh3_64(key.as_bytes()));
            }
            if touched.len() > COMPARE_TOUCHED_MAX {
                return Err(Error::options(format!(
                    "more than {COMPARE_TOUCHED_MAX} copies changed since the compared state: compare a later one"
                )));
            }
            Ok(())
        });
        if read.await?.is_none() {
            return Err(Error::options(
                "the history does not reach back to the compared state, so that changes since then are unknown: \
                 compare a later state",
            ));
        }
        self.up_to = now;
        Ok(())
    }

    fn has(&self, path: &str) -> bool {
        self.touched.contains(&xxhash_rust::xxh3::xxh3_64(path.as_bytes()))
    }
}

fn adopted(path: &str, rules: &PathRules, se: &Se) -> Guid {
    ListedPath { path: path.to_owned(), copy: None, stored: None, deletion: None }.guid(rules, &se.name)
}

/// Registers dark files below a directory, where an operator removes or keeps them.
///
/// A file that the catalogue learned of since the compared state is left alone. If that happened at the
/// same moment, the adoption is taken back. Nothing on the storage is touched.
pub async fn adopt_dark<C: Catalogue>(
    catalogue: &C,
    (se, rules): (&Se, &PathRules),
    (into, compared): (&Lfn, Revision),
    mut paths: ClassPaths,
    mut progress: impl FnMut(u64),
) -> Result<Applied, Error> {
    let state = State { catalogue, store: None };
    let mut since = Since { state, up_to: compared, touched: HashSet::new() };
    let mut applied = Applied::default();
    let mut done = 0;
    loop {
        let batch = next_batch(&mut paths)?;
        if batch.is_empty() {
            return Ok(applied);
        }
        done += batch.len() as u64;
        since.advance(se, rules).await?;
        let files = to_adopt(catalogue, (se, rules), into, (batch, &since), &mut applied).await?;
        let made = register(catalogue, files, &mut applied).await?;
        since.advance(se, rules).await?;
        for (_, file) in made.into_iter().filter(|(path, _)| since.has(path)) {
            take_back(catalogue, se, file).await?;
            applied.changed -= 1;
            applied.left += 1;
        }
        progress(done);
    }
}

type Adoption = (String, NewFile);

async fn to_adopt<C: Catalogue>(
    catalogue: &C,
    (se, rules): (&Se, &PathRules),
    into: &Lfn,
    (batch, since): (Vec<ListedPath>, &Since<'_, C>),
    applied: &mut Applied,
) -> Result<Vec<Adoption>, Error> {
    let guids: Vec<Guid> = batch.iter().map(|listed| listed.guid(rules, &se.name)).collect();
    let found = lfns(catalogue, guids.clone()).await?;
    let mut files = Vec::with_capacity(batch.len());
    for ((listed, guid), known) in batch.into_iter().zip(guids).zip(found) {
        let lfn = match Lfn::parse(&format!("{}{}", into.as_str().trim_end_matches('/'), listed.path)) {
            Ok(lfn) => lfn,
            Err(error) => {
                applied.refuse(&listed.path, error);
                continue;
            }
        };
        match known {
            Ok(known) if known == lfn => applied.already += 1,
            Ok(_) => applied.left += 1,
            Err(_) if since.has(&listed.path) => applied.left += 1,
            Err(_) => {
                let is_derived = listed.derived(rules).is_some();
                let pfn = match is_derived {
                    true => None,
                    false => match Pfn::parse(&rules.pfn(&listed.path)) {
                        Ok(pfn) => Some(pfn),
                        Err(error) => {
                            applied.refuse(&listed.path, error);
                            continue;
                        }
                    },
                };
                let stored = listed.stored.as_ref();
                let mut checksums = Checksums::none();
                if let Some(checksum) = stored.and_then(|stored| stored.checksum) {
                    checksums = Checksums::one(checksum);
                }
                let replica = NewReplica { se: se.name.clone(), pfn, state: ReplicaState::Available };
                let size = stored.and_then(|stored| stored.size);
                let file = NewFile {
                    guid: Some(guid),
                    size,
                    checksums,
                    replicas: vec![replica],
                    ..NewFile::named(lfn)
                };
                files.push((listed.path, file));
            }
        }
    }
    Ok(files)
}

async fn register<C: Catalogue>(
    catalogue: &C,
    files: Vec<Adoption>,
    applied: &mut Applied,
) -> Result<Vec<Adoption>, Error> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let asked = files.iter().map(|(_, file)| file.clone()).collect();
    let register = Operation::Register { files: asked, parents: true, existing: Existing::Same };
    let outcomes = match catalogue.call(register).await? {
        Answer::Registered(outcomes) if outcomes.len() == files.len() => outcomes,
        _ => return Err(unexpected("register").into()),
    };
    let mut made = Vec::with_capacity(files.len());
    for ((path, file), outcome) in files.into_iter().zip(outcomes) {
        match outcome {
            Ok(Registered::Created(_)) => {
                applied.changed += 1;
                made.push((path, file));
            }
            Ok(_) => applied.already += 1,
            Err(error) if matches!(error.kind, ErrorKind::Exists | ErrorKind::Conflict) => applied.left += 1,
            Err(error) => applied.refuse(&path, error),
        }
    }
    Ok(made)
}

/// Forgets an adopted file, without a deletion of its copy.
async fn take_back<C: Catalogue>(catalogue: &C, se: &Se, file: NewFile) -> Result<(), Error> {
    let drop = ReplicaEdit::Drop { se: se.name.clone(), delete: false };
    let edits = vec![(FileRef::Lfn(file.lfn.clone()), vec![drop])];
    let answer = catalogue.call(Operation::SetReplicas { edits }).await?;
    for outcome in each_done(answer, 1, "set-replicas")? {
        outcome?;
    }
    catalogue.call(Operation::Remove { lfn: file.lfn, recursive: false, directory: false }).await?;
    Ok(())
}
