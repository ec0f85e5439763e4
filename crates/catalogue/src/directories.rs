//! Directories: making many at once, with their parents on request.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use exacat_model::limits::READ_BATCH_MAX;
use exacat_model::{
    Answer, At, EntryId, Error, ErrorKind, Lfn, Mode, Mutation, NewBody, NewEntry, OperationId, Result,
};
use exacat_store::{Ancestor, Outcome, Refusal};

use crate::caller::Caller;
use crate::repeat::{MUTATION_BYTES, refused};
use crate::resolve::{Spot, Vacancy, check_parent_writable, check_passage, first_place};
use crate::{Catalogue, step_id};

/// Most rounds of path resolution, if other requests make or move directories on the way.
const READS_MAX: usize = 16;

/// An existing directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    /// Its number, and the facts that permission depends on.
    pub ancestor: Ancestor,
}

/// Progress on one requested directory.
#[allow(
    clippy::large_enum_variant,
    reason = "lives as long as one batch; a box for each free name costs more"
)]
enum Progress {
    /// Must be resolved (again).
    Unread,
    /// Missing from here on.
    Missing(Vacancy),
    /// Exists, or cannot exist.
    Final(Result<Directory>),
}

/// Directories of one level to make.
struct LevelRequest<'a> {
    /// The paths of the whole request.
    lfns: &'a [Lfn],
    mode: Mode,
    /// Number of the path component that is the level.
    level: usize,
    /// Indices of the paths that miss a directory of this level.
    due: Vec<usize>,
}

impl Catalogue {
    pub(crate) async fn mkdir(
        &self,
        caller: &Caller,
        id: OperationId,
        lfns: &[Lfn],
        parents: bool,
        mode: Option<Mode>,
    ) -> Result<Answer> {
        let mode = mode.unwrap_or(Mode::DIRECTORY);
        let done = if parents {
            let made = self
                .make_directories(caller, LevelIds::of_operation(id, lfns), lfns, mode, ErrorKind::Exists)
                .await?;
            made.into_iter().map(|directory| directory.map(|_| ())).collect()
        } else {
            self.make_without_parents(caller, id, lfns, mode).await?
        };
        Ok(Answer::EachDone(done))
    }

    /// Ensures that each of these directories exists. Makes it and its missing parents with mode
    /// 755, owned by the caller. Returns one answer each, in order; `lfns` may repeat a directory.
    /// A directory that another request makes at the same moment counts as made.
    ///
    /// `id` is the operation's own. This function derives ids from it, so the caller's own requests
    /// under `id` do not conflict. It reads the store once if nothing is missing, and applies once
    /// for each level of missing directories. It checks passage on the way and the right to create.
    /// A caller who then makes an entry in the directory must check [`Directory::ancestor`] for that.
    pub(crate) async fn ensure_directories(
        &self,
        caller: &Caller,
        id: OperationId,
        lfns: &[Lfn],
    ) -> Result<Vec<Result<Directory>>> {
        let ids = LevelIds { id, own: None };
        self.make_directories(caller, ids, lfns, Mode::DIRECTORY, ErrorKind::NotDirectory).await
    }

    /// Makes the requested directories with `mode`, their parents with 755. `taken` is the error
    /// kind for a name that belongs to an entry other than a directory.
    async fn make_directories(
        &self,
        caller: &Caller,
        ids: LevelIds,
        lfns: &[Lfn],
        mode: Mode,
        taken: ErrorKind,
    ) -> Result<Vec<Result<Directory>>> {
        let depths: Vec<usize> = lfns.iter().map(Lfn::depth).collect();
        let mut progress: Vec<Progress> = lfns.iter().map(|_| Progress::Unread).collect();
        let (mut reads_made, mut is_checked) = (0, ids.own.is_none());
        loop {
            if reads_made <= READS_MAX {
                reads_made += usize::from(self.read_existing(caller, lfns, &mut progress, taken).await?);
            }
            // Start with the highest level that misses anything: one request makes all its
            // directories.
            let level_of = |index: usize, vacancy: &Vacancy| depths[index] + 1 - vacancy.missing.len();
            let level = progress.iter().enumerate().filter_map(|(index, one)| match one {
                Progress::Missing(vacancy) => Some(level_of(index, vacancy)),
                _ => None,
            });
            let Some(level) = level.min() else { break };
            let due: Vec<usize> = (0..lfns.len())
                .filter(|index| match &progress[*index] {
                    Progress::Missing(vacancy) => level_of(*index, vacancy) == level,
                    _ => false,
                })
                .collect();
            if ids.own != Some(level) && !std::mem::replace(&mut is_checked, true) {
                // An id of another operation is a conflict before anything is made.
                self.recall(caller, ids.id).await?;
            }
            let request = LevelRequest { lfns, mode, level, due };
            self.make_level(caller, ids, &request, &mut progress).await?;
        }
        let results = progress.into_iter().zip(lfns).map(|(one, lfn)| match one {
            Progress::Final(result) => result,
            Progress::Unread | Progress::Missing(_) => Err(Error::new(
                ErrorKind::Conflict,
                format!("{lfn}: directories on the way came and went while it was made: try again"),
            )),
        });
        Ok(results.collect())
    }

    /// Resolves the paths that need it. Returns true if there was one.
    async fn read_existing(
        &self,
        caller: &Caller,
        lfns: &[Lfn],
        progress: &mut [Progress],
        taken: ErrorKind,
    ) -> Result<bool> {
        let indices: Vec<usize> =
            (0..lfns.len()).filter(|index| matches!(progress[*index], Progress::Unread)).collect();
        if indices.is_empty() {
            return Ok(false);
        }
        let spots = if indices.len() == lfns.len() {
            self.spots(caller, lfns, true).await?
        } else {
            let paths: Vec<Lfn> = indices.iter().map(|index| lfns[*index].clone()).collect();
            self.spots(caller, &paths, true).await?
        };
        for (index, spot) in indices.into_iter().zip(spots) {
            let lfn = &lfns[index];
            progress[index] = match spot {
                Err(error) => Progress::Final(Err(error)),
                Ok(Spot::Taken(resolved)) => Progress::Final(match Ancestor::of(&resolved.entry) {
                    Some(ancestor) => Ok(Directory { ancestor }),
                    None => Err(Error::new(taken, format!("{lfn} is there and is no directory"))),
                }),
                // The missing part must be the end of the requested path. Otherwise a link leads
                // nowhere, and its target is not ours to make.
                Ok(Spot::Vacant(vacancy)) => {
                    let asked = lfn.components().rev();
                    let missing = vacancy.missing.iter().rev().map(|name| Some(name.as_str()));
                    if missing.eq(asked.map(Some).chain(std::iter::repeat(None)).take(vacancy.missing.len()))
                    {
                        Progress::Missing(vacancy)
                    } else {
                        let error = format!("{lfn}: a link leads to {}, which is not there", vacancy.lfn);
                        Progress::Final(Err(Error::not_found(error)))
                    }
                }
            };
        }
        Ok(true)
    }

    /// Makes the due directories of one level.
    async fn make_level(
        &self,
        caller: &Caller,
        ids: LevelIds,
        request: &LevelRequest<'_>,
        progress: &mut [Progress],
    ) -> Result<()> {
        let LevelRequest { lfns, mode, level, due } = request;
        let (mode, level) = (*mode, *level);
        // Positions follow from the request, not from the missing directories: see `repeat`.
        let prefixes: BTreeSet<&str> = lfns.iter().filter_map(|lfn| prefix(lfn, level)).collect();
        let positions: BTreeMap<&str, usize> = prefixes.into_iter().zip(0..).collect();
        let asked: HashSet<&str> = lfns.iter().map(Lfn::as_str).collect();
        let idle = || Err(Error::new(ErrorKind::Internal, "nothing is to be made at this position"));
        let mut items: Vec<Result<Mutation>> = positions.iter().map(|_| idle()).collect();
        let mut modes = vec![mode; items.len()];
        for index in due {
            let (Progress::Missing(vacancy), Some(path)) = (&progress[*index], prefix(&lfns[*index], level))
            else {
                continue;
            };
            let position = positions[path];
            if items[position].is_ok() {
                continue;
            }
            if !asked.contains(path) {
                modes[position] = Mode::DIRECTORY;
            }
            items[position] = check_passage(caller, &vacancy.ancestors, &vacancy.lfn)
                .and_then(|()| check_parent_writable(caller, vacancy.ancestors.last(), &vacancy.lfn))
                .and_then(|()| first_place(vacancy))
                .map(|at| new_directory(caller, at, modes[position]));
        }
        // Positions after the last due one need not be held.
        let last =
            due.iter().filter_map(|index| prefix(&lfns[*index], level)).map(|path| positions[path]).max();
        items.truncate(last.map_or(0, |last| last + 1));
        let outcomes = self.apply_each(caller, ids.of(level), items, MUTATION_BYTES).await?;
        for index in due {
            let Some(path) = prefix(&lfns[*index], level) else { continue };
            let position = positions[path];
            let one = std::mem::replace(&mut progress[*index], Progress::Unread);
            let Progress::Missing(mut vacancy) = one else { continue };
            progress[*index] = match &outcomes[position] {
                Err(error) => Progress::Final(Err(error.clone())),
                Ok(Outcome::Applied { id: Some(EntryId::Directory(number)), .. }) => {
                    let ancestor = Ancestor {
                        id: *number,
                        owner: caller.acting_user(),
                        group: caller.group(),
                        mode: modes[position],
                    };
                    vacancy.ancestors.push(ancestor);
                    vacancy.missing.remove(0);
                    match vacancy.missing.is_empty() {
                        true => Progress::Final(Ok(Directory { ancestor })),
                        false => Progress::Missing(vacancy),
                    }
                }
                // Another request was faster, or removed the parent: resolve the path again.
                Ok(Outcome::Refused(Refusal::Exists(_) | Refusal::ParentGone)) => Progress::Unread,
                Ok(Outcome::Refused(refusal)) => {
                    Progress::Final(Err(refused(&lfns[*index], refusal.clone())))
                }
                Ok(Outcome::Applied { .. } | Outcome::Unchanged) => {
                    Progress::Final(Err(Error::new(ErrorKind::Internal, "a directory without a number")))
                }
            };
        }
        Ok(())
    }

    /// Makes directories whose parents must exist. Shorter paths come first, so that one may be the
    /// parent of another.
    async fn make_without_parents(
        &self,
        caller: &Caller,
        id: OperationId,
        lfns: &[Lfn],
        mode: Mode,
    ) -> Result<Vec<Result<()>>> {
        if lfns.len() > READ_BATCH_MAX {
            return Err(Error::limit("the number of paths in one request", lfns.len(), READ_BATCH_MAX));
        }
        let mut levels: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, lfn) in lfns.iter().enumerate() {
            levels.entry(lfn.depth()).or_default().push(index);
        }
        let ids = LevelIds::of_operation(id, lfns);
        let mut done: Vec<Result<()>> = lfns.iter().map(|_| Ok(())).collect();
        if levels.len() > 1 {
            self.recall(caller, id).await?;
        }
        for (level, indices) in levels {
            let paths: Vec<Lfn> = indices.iter().map(|index| lfns[*index].clone()).collect();
            let spots = self.spots(caller, &paths, false).await?;
            // Index by position instead of zipping with the paths: a closure over borrowed items
            // would keep the future from being sent between threads.
            let items = spots.into_iter().enumerate().map(|(position, spot)| {
                let lfn = &paths[position];
                let (vacancy, at) = vacant(spot?, lfn)?;
                check_parent_writable(caller, vacancy.ancestors.last(), lfn)?;
                Ok(new_directory(caller, at, mode))
            });
            let step = ids.of(level);
            let made = self
                .apply_each_done(caller, step, items, MUTATION_BYTES, |position| paths[position].clone())
                .await?;
            for (index, result) in indices.into_iter().zip(made) {
                done[index] = result;
            }
        }
        Ok(done)
    }
}

/// Returns the place of a single missing name. An error if the name is taken or its directory is
/// missing too.
pub(crate) fn vacant(spot: Spot, lfn: &Lfn) -> Result<(Vacancy, At)> {
    match spot {
        Spot::Taken(_) => Err(Error::new(ErrorKind::Exists, format!("{lfn} is there already"))),
        Spot::Vacant(vacancy) if vacancy.missing.len() == 1 => {
            let at = first_place(&vacancy)?;
            Ok((vacancy, at))
        }
        Spot::Vacant(vacancy) => {
            let there = vacancy.lfn.depth() + 1 - vacancy.missing.len();
            let parent = Lfn::from_names(vacancy.lfn.components().take(there));
            Err(Error::not_found(format!("{lfn}: the directory {parent} is not there")))
        }
    }
}

/// Ids under which the directories of each level are made.
#[derive(Clone, Copy)]
struct LevelIds {
    id: OperationId,
    /// Level that has the operation's own id; none if the caller uses that itself.
    own: Option<usize>,
}

impl LevelIds {
    /// Ids of an operation that makes only directories. The last level has the operation's own id,
    /// so that the store knows it when another operation comes under it.
    fn of_operation(id: OperationId, lfns: &[Lfn]) -> Self {
        LevelIds { id, own: lfns.iter().map(Lfn::depth).max() }
    }

    fn of(self, level: usize) -> OperationId {
        if self.own == Some(level) { self.id } else { step_id(self.id, level as u64) }
    }
}

/// Returns the first `level` components of a path, as text; none if it has fewer.
fn prefix(lfn: &Lfn, level: usize) -> Option<&str> {
    let text = lfn.as_str();
    let mut slashes = text.bytes().enumerate().skip(1).filter(|(_, byte)| *byte == b'/').map(|(at, _)| at);
    match level.checked_sub(1)? {
        _ if lfn.is_root() => None,
        skipped => match slashes.nth(skipped) {
            Some(end) => Some(&text[..end]),
            None => (lfn.depth() == level).then_some(text),
        },
    }
}

fn new_directory(caller: &Caller, at: At, mode: Mode) -> Mutation {
    Mutation::Create(Box::new(NewEntry {
        at,
        owner: caller.acting_user(),
        group: caller.group(),
        mode,
        created: None,
        modified: None,
        expires: None,
        tags: Vec::new(),
        body: NewBody::Directory,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_whole_components() {
        let lfn = Lfn::parse("/a/bc/d").unwrap();
        let found: Vec<Option<&str>> = (0..5).map(|level| prefix(&lfn, level)).collect();
        assert_eq!(found, [None, Some("/a"), Some("/a/bc"), Some("/a/bc/d"), None]);
        assert_eq!(prefix(&Lfn::root(), 1), None);
    }
}
