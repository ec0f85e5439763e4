//! Path resolution, fast: look-ups do little else.
//!
//! Most requested paths lie in a directory that was requested before. A table of hints leads from
//! the hash of the parent path to that directory. A hint may be wrong: the directory moved, or
//! another path has the hash. So it is checked against the path itself, name by name from that
//! directory upwards. A checked hint is as true as a resolution from the root, at half its cost. It
//! probes no hash table on the way, and nothing must follow moves.

use std::sync::atomic::{AtomicU32, Ordering};

use exacat_model::{DirId, Lfn, Revision};
use exacat_store::{Ancestor, Ancestors, Files, ReadBytes, Resolution, ResolutionEnd};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::lookup::{AllOrNote, AsOf};
use super::{Above, Directory, Lookup, State};
use crate::defect::Defect;
use crate::keyspace;
use crate::page::Row;

const SLOTS: usize = 1 << 18;

/// Remembered directories of paths. All readers share them without a lock.
pub(crate) struct Hints {
    slots: Box<[AtomicU32]>,
}

impl Hints {
    pub(crate) fn new() -> Self {
        Hints { slots: (0..SLOTS).map(|_| AtomicU32::new(0)).collect() }
    }

    fn slot(&self, hash: u64) -> &AtomicU32 {
        &self.slots[hash as usize % SLOTS]
    }

    /// Returns a directory that may have the path of this hash; directory 0, which does not exist,
    /// if there is no hint.
    fn get(&self, hash: u64) -> DirId {
        DirId(u64::from(self.slot(hash).load(Ordering::Relaxed)))
    }

    fn set(&self, hash: u64, directory: DirId) {
        if let Ok(number) = u32::try_from(directory.0) {
            self.slot(hash).store(number, Ordering::Relaxed);
        }
    }

    /// Returns the memory taken.
    pub(crate) fn bytes(&self) -> u64 {
        (SLOTS * size_of::<AtomicU32>()) as u64
    }
}

fn ancestor(id: DirId, directory: &Directory) -> Ancestor {
    Ancestor { id, owner: directory.owner, group: directory.group, mode: directory.mode }
}

/// Number of paths resolved together.
const CHUNK: usize = 128;
/// Number of levels, from the last directory upwards, with many directories. Those above are few,
/// and usually in the processor's cache.
const LEVELS_TOUCHED: usize = 2;

/// One path in progress.
struct Step<'p> {
    parent: &'p str,
    /// Empty for the root, which has no name in a directory.
    name: &'p str,
    /// True if the path before has the same parent.
    as_before: bool,
    parent_hash: u64,
    hint: DirId,
    /// Index in the list of ways; paths of one directory share the way, which has the directories
    /// passed.
    way: usize,
    end: StepEnd,
}

/// Result of following a path.
#[derive(Clone, Copy)]
enum StepEnd {
    /// The directory exists; the name may be in it.
    Open,
    /// The path is the root.
    Root,
    /// A directory on the way is missing, or is none.
    Short { components: usize },
}

/// Returns the directory to which a way leads.
fn last_of(ways: &[Ancestors], way: usize) -> DirId {
    ways[way].last().map_or(DirId::ROOT, |ancestor| ancestor.id)
}

impl Lookup<'_> {
    /// Resolves each path from the root, as far as it goes.
    pub(crate) fn resolve(&self, hints: &Hints, paths: &[Lfn]) -> Result<AsOf<Vec<Resolution>>, Defect> {
        let (mut resolutions, mut bytes) = (AllOrNote::with_room(paths.len()), ReadBytes::default());
        let mut ways = Vec::new();
        let mut as_of = self.state.directories.shape;
        for paths in paths.chunks(CHUNK) {
            ways.clear();
            for step in self.state.follow(hints, paths, &mut ways) {
                let ancestors = &ways[step.way];
                resolutions.take(self.end_of(&step, ancestors).and_then(|(end, end_as_of)| {
                    bytes.add(end.entry())?;
                    as_of = as_of.max(end_as_of);
                    Ok(Resolution { ancestors: ancestors.clone(), end })
                }))?;
            }
        }
        Ok((resolutions.end()?, as_of))
    }

    fn end_of(&self, step: &Step<'_>, ancestors: &Ancestors) -> Result<AsOf<ResolutionEnd>, Defect> {
        let (directory, name, components) = match step.end {
            StepEnd::Root => (keyspace::ROOT_IN, "/", 0),
            StepEnd::Open => {
                (ancestors.last().map_or(DirId::ROOT, |ancestor| ancestor.id), step.name, ancestors.len() - 1)
            }
            // The name that ends the way is missing, or is no directory.
            StepEnd::Short { components } => {
                let name = step.parent[1..].split('/').nth(components).unwrap_or_default();
                (ancestors.last().map_or(DirId::ROOT, |ancestor| ancestor.id), name, components)
            }
        };
        let entry =
            self.view.find(directory, name.as_bytes(), |row| row.map(Row::entry).transpose())??.flatten();
        let as_of = entry.as_ref().map_or_else(|| self.content_of(directory), |entry| entry.revision);
        let end = match (entry, step.end) {
            (None, _) => ResolutionEnd::Missing { components },
            (Some(entry), StepEnd::Short { .. }) => {
                ResolutionEnd::Stopped { entry: Box::new(entry), components: components + 1 }
            }
            (Some(entry), _) => ResolutionEnd::Found(Box::new(entry)),
        };
        Ok((end, as_of))
    }

    /// Returns the files at the ends of the paths.
    pub(crate) fn files(&self, hints: &Hints, paths: &[Lfn]) -> Result<AsOf<Files>, Defect> {
        let mut as_of = self.state.directories.shape;
        let mut files = Files { ways: Vec::new(), found: vec![None; paths.len()] };
        let (mut keys, mut places, mut missing) = (Vec::new(), Vec::new(), false);
        let mut bytes = ReadBytes::default();
        for (begin, paths) in (0..).step_by(CHUNK).zip(paths.chunks(CHUNK)) {
            keys.clear();
            places.clear();
            let steps = self.state.follow(hints, paths, &mut files.ways);
            for (place, step) in (begin..).zip(&steps) {
                if !matches!(step.end, StepEnd::Open) {
                    as_of = as_of.max(self.content_of(last_of(&files.ways, step.way)));
                } else {
                    keys.push((last_of(&files.ways, step.way), step.name.as_bytes()));
                    places.push((place, step.way));
                }
            }
            let found = self.view.find_many(&keys, |key, row| {
                let (place, way) = places[key];
                as_of = as_of.max(match row {
                    Some(row) => Revision(row.revision),
                    None => self.content_of(keys[key].0),
                });
                let file = row.map_or(Ok(None), |row| row.found_file(way))?;
                bytes.add(file.as_ref().map(|found| &found.file))?;
                files.found[place] = file;
                Ok(())
            });
            match found {
                // The pages of the other paths are noted too.
                Err(Defect::NotInMemory) => missing = true,
                found => found?,
            }
        }
        if missing { Err(Defect::NotInMemory) } else { Ok((files, as_of)) }
    }
}

impl State {
    /// Follows a chunk of paths to their directories.
    ///
    /// Nearly all of its time is waiting for memory. So it works on many paths at once, and first
    /// loads the data of all of them, in loops that do nothing else. The processor then waits for
    /// many loads at a time.
    fn follow<'p>(&self, hints: &Hints, paths: &'p [Lfn], ways: &mut Vec<Ancestors>) -> Vec<Step<'p>> {
        let mut steps: Vec<Step<'p>> = Vec::with_capacity(paths.len());
        for path in paths {
            let (parent, name) = path.split_last().unwrap_or_default();
            let as_before = steps.last().is_some_and(|last| last.parent == parent);
            let parent_hash = if as_before { 0 } else { self.path_hash(parent) };
            let (hint, end) = (DirId(0), StepEnd::Open);
            steps.push(Step { parent, name, as_before, parent_hash, hint, way: 0, end });
        }
        for step in steps.iter_mut().filter(|step| !step.as_before) {
            step.hint = hints.get(step.parent_hash);
        }
        // Load the hinted directories, and those above them.
        let mut touched = 0u8;
        let mut at: Vec<DirId> = steps.iter().filter(|step| !step.as_before).map(|step| step.hint).collect();
        // A single path gains nothing from loading early.
        let levels = if steps.len() > 1 { LEVELS_TOUCHED } else { 0 };
        for _ in 0..levels {
            for id in &at {
                touched ^= self.directory(*id).map_or(0, |directory| directory.owner.0 as u8);
            }
            for id in &mut at {
                let Some(directory) = self.directory(*id) else { continue };
                touched ^= directory.name.as_bytes().first().copied().unwrap_or(0);
                *id = match directory.above {
                    Above::Directory(above) => above,
                    Above::Nothing | Above::Trash(_) => DirId(0),
                };
            }
        }
        std::hint::black_box(touched);
        let mut end_before = StepEnd::Open;
        for step in &mut steps {
            if step.name.is_empty() {
                step.end = StepEnd::Root;
                ways.push(Ancestors::new());
            } else if step.as_before {
                step.end = end_before;
            } else {
                let mut ancestors = Ancestors::new();
                step.end = self.resolve_directory(hints, step, &mut ancestors);
                ways.push(ancestors);
            }
            step.way = ways.len() - 1;
            end_before = step.end;
        }
        steps
    }

    fn path_hash(&self, path: &str) -> u64 {
        xxh3_64_with_seed(path.as_bytes(), self.seed)
    }

    /// Follows a path to the directory of its last name, or as far as the way goes.
    fn resolve_directory(&self, hints: &Hints, step: &Step<'_>, ancestors: &mut Ancestors) -> StepEnd {
        let path = step.parent;
        if self.is_at(step.hint, path, ancestors) {
            return StepEnd::Open;
        }
        ancestors.clear();
        let Some(root) = self.directory(DirId::ROOT) else { return StepEnd::Short { components: 0 } };
        ancestors.push(ancestor(DirId::ROOT, root));
        let mut directory = DirId::ROOT;
        let components = path[1..].split('/').filter(|component| !component.is_empty());
        for (components, component) in components.enumerate() {
            let child = self.directories.child(directory, component.as_bytes());
            let Some((id, found)) = child.and_then(|id| Some((id, self.directory(id)?))) else {
                return StepEnd::Short { components };
            };
            ancestors.push(ancestor(id, found));
            directory = id;
        }
        hints.set(step.parent_hash, directory);
        StepEnd::Open
    }

    /// Says whether this is the directory of this path. If so, `ancestors` gets its ancestor
    /// permissions; otherwise `ancestors` may have anything.
    fn is_at(&self, directory: DirId, path: &str, ancestors: &mut Ancestors) -> bool {
        let mut rest = path.as_bytes();
        let mut id = directory;
        loop {
            let Some(directory) = self.directory(id) else { return false };
            ancestors.push(ancestor(id, directory));
            match directory.above {
                Above::Directory(above) => {
                    let name = directory.name.as_bytes();
                    let Some(before) = rest.strip_suffix(name).and_then(|rest| rest.strip_suffix(b"/"))
                    else {
                        return false;
                    };
                    rest = before;
                    id = above;
                }
                Above::Nothing => {
                    ancestors.reverse();
                    return rest.is_empty() || rest == b"/";
                }
                Above::Trash(_) => return false,
            }
        }
    }
}
