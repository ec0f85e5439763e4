//! Following paths, fast: look-ups do little else.
//!
//! Most paths asked for lie in a directory that was asked for before. So a table of hints says, by the hash of
//! the path above, which directory that was. A hint may be wrong - the directory moved, another path has the hash -
//! so it is checked: from that directory upwards, name by name, against the path itself. What passes is as true
//! as a walk from the root, at half its cost, with no hash table probed on the way and nothing to be kept in step
//! with moves.

use std::sync::atomic::{AtomicU32, Ordering};

use exacat_model::{DirId, Lfn, Revision};
use exacat_store::{Files, Gate, Gates, Walk, WalkEnd};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::lookup::{AllOrNote, AsOf};
use super::{Above, Directory, Lookup, State};
use crate::defect::Defect;
use crate::keyspace;
use crate::page::Row;

const SLOTS: usize = 1 << 18;

/// Which directory a path was, as far as is remembered. Shared by all readers without a lock.
pub(crate) struct Hints {
    slots: Box<[AtomicU32]>,
}

impl Hints {
    pub fn new() -> Self {
        Hints { slots: (0..SLOTS).map(|_| AtomicU32::new(0)).collect() }
    }

    fn slot(&self, hash: u64) -> &AtomicU32 {
        &self.slots[hash as usize % SLOTS]
    }

    /// A directory that may have the path of this hash; directory 0, which is none, if nothing is known.
    fn get(&self, hash: u64) -> DirId {
        DirId(u64::from(self.slot(hash).load(Ordering::Relaxed)))
    }

    fn set(&self, hash: u64, directory: DirId) {
        if let Ok(number) = u32::try_from(directory.0) {
            self.slot(hash).store(number, Ordering::Relaxed);
        }
    }

    /// Memory taken.
    pub fn bytes(&self) -> u64 {
        (SLOTS * size_of::<AtomicU32>()) as u64
    }
}

fn gate(id: DirId, directory: &Directory) -> Gate {
    Gate { id, owner: directory.owner, group: directory.group, mode: directory.mode }
}

/// Paths worked on together.
const CHUNK: usize = 128;
/// Directories from the last one upwards that are many: those above them are few, and near.
const LEVELS_TOUCHED: usize = 2;

/// One path on its way.
struct Step<'p> {
    parent: &'p str,
    /// Empty for the root, which has no name in a directory.
    name: &'p str,
    /// The path before it lies in the same directory.
    as_before: bool,
    parent_hash: u64,
    hint: DirId,
    /// The directories it passed, by their place in the list of ways; paths of one directory share one.
    way: usize,
    end: StepEnd,
}

/// How far a path came.
#[derive(Clone, Copy)]
enum StepEnd {
    /// Its directory is there; its name may be in it.
    Open,
    /// It is the root.
    Root,
    /// A directory on its way is not there, or is none.
    Short { components: usize },
}

/// The directory a way leads to.
fn last_of(ways: &[Gates], way: usize) -> DirId {
    ways[way].last().map_or(DirId::ROOT, |gate| gate.id)
}

impl Lookup<'_> {
    /// Follows each path from the root, as far as it goes.
    pub fn walk(&self, hints: &Hints, paths: &[Lfn]) -> Result<AsOf<Vec<Walk>>, Defect> {
        let mut walks = AllOrNote::with_room(paths.len());
        let mut ways = Vec::new();
        let mut as_of = self.state.directories.shape;
        for paths in paths.chunks(CHUNK) {
            ways.clear();
            for step in self.state.follow(hints, paths, &mut ways) {
                let gates = &ways[step.way];
                walks.take(self.end_of(&step, gates).map(|(end, end_as_of)| {
                    as_of = as_of.max(end_as_of);
                    Walk { gates: gates.clone(), end }
                }))?;
            }
        }
        Ok((walks.end()?, as_of))
    }

    fn end_of(&self, step: &Step<'_>, gates: &Gates) -> Result<AsOf<WalkEnd>, Defect> {
        let (directory, name, components) = match step.end {
            StepEnd::Root => (keyspace::ROOT_IN, "/", 0),
            StepEnd::Open => (gates.last().map_or(DirId::ROOT, |gate| gate.id), step.name, gates.len() - 1),
            // What stands there is no directory, if anything does.
            StepEnd::Short { components } => {
                let name = step.parent[1..].split('/').nth(components).unwrap_or_default();
                (gates.last().map_or(DirId::ROOT, |gate| gate.id), name, components)
            }
        };
        let entry =
            self.view.find(directory, name.as_bytes(), |row| row.map(Row::entry).transpose())??.flatten();
        let as_of = entry.as_ref().map_or_else(|| self.content_of(directory), |entry| entry.revision);
        let end = match (entry, step.end) {
            (None, _) => WalkEnd::Missing { components },
            (Some(entry), StepEnd::Short { .. }) => {
                WalkEnd::Stopped { entry: Box::new(entry), components: components + 1 }
            }
            (Some(entry), _) => WalkEnd::Found(Box::new(entry)),
        };
        Ok((end, as_of))
    }

    /// The files at the ends of the paths.
    pub fn files(&self, hints: &Hints, paths: &[Lfn]) -> Result<AsOf<Files>, Defect> {
        let mut as_of = self.state.directories.shape;
        let mut files = Files { ways: Vec::new(), found: vec![None; paths.len()] };
        let (mut keys, mut places, mut missing) = (Vec::new(), Vec::new(), false);
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
                files.found[place] = row.map_or(Ok(None), |row| row.found_file(way))?;
                Ok(())
            });
            match found {
                // What the others want is noted too.
                Err(Defect::NotInMemory) => missing = true,
                found => found?,
            }
        }
        if missing { Err(Defect::NotInMemory) } else { Ok((files, as_of)) }
    }
}

impl State {
    /// Follows paths to the directories they end in, a chunk of them.
    ///
    /// Nearly all of its time is waiting for memory. So paths are worked on many at once, and what each will need is
    /// first touched, in loops that do nothing else: then the processor waits for many at a time.
    fn follow<'p>(&self, hints: &Hints, paths: &'p [Lfn], ways: &mut Vec<Gates>) -> Vec<Step<'p>> {
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
        // The directories hinted at, and those above them.
        let mut touched = 0u8;
        let mut at: Vec<DirId> = steps.iter().filter(|step| !step.as_before).map(|step| step.hint).collect();
        // One path alone waits for them where it needs them.
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
                ways.push(Gates::new());
            } else if step.as_before {
                step.end = end_before;
            } else {
                let mut gates = Gates::new();
                step.end = self.walk_to_directory(hints, step, &mut gates);
                ways.push(gates);
            }
            step.way = ways.len() - 1;
            end_before = step.end;
        }
        steps
    }

    fn path_hash(&self, path: &str) -> u64 {
        xxh3_64_with_seed(path.as_bytes(), self.seed)
    }

    /// Walks to the directory the last name is to be looked for in, or as far as the way goes.
    fn walk_to_directory(&self, hints: &Hints, step: &Step<'_>, gates: &mut Gates) -> StepEnd {
        let path = step.parent;
        if self.is_at(step.hint, path, gates) {
            return StepEnd::Open;
        }
        gates.clear();
        let Some(root) = self.directory(DirId::ROOT) else { return StepEnd::Short { components: 0 } };
        gates.push(gate(DirId::ROOT, root));
        let mut directory = DirId::ROOT;
        let components = path[1..].split('/').filter(|component| !component.is_empty());
        for (components, component) in components.enumerate() {
            let child = self.directories.child(directory, component.as_bytes());
            let Some((id, found)) = child.and_then(|id| Some((id, self.directory(id)?))) else {
                return StepEnd::Short { components };
            };
            gates.push(gate(id, found));
            directory = id;
        }
        hints.set(step.parent_hash, directory);
        StepEnd::Open
    }

    /// Is this the directory of this path? Then its gates are put into `gates`, which may hold anything if not.
    fn is_at(&self, directory: DirId, path: &str, gates: &mut Gates) -> bool {
        let mut rest = path.as_bytes();
        let mut id = directory;
        loop {
            let Some(directory) = self.directory(id) else { return false };
            gates.push(gate(id, directory));
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
                    gates.reverse();
                    return rest.is_empty() || rest == b"/";
                }
                Above::Trash(_) => return false,
            }
        }
    }
}
