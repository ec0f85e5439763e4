//! Following paths, fast: look-ups do little else.
//!
//! Most paths asked for lie in a directory that was asked for before. So a table of hints says, by the hash of
//! the path above, which directory that was. A hint may be wrong - the directory moved, another path has the hash -
//! so it is checked: from that directory upwards, name by name, against the path itself. What passes is as true
//! as a walk from the root, at half its cost, with no hash table probed on the way and nothing to be kept in step
//! with moves.

use std::sync::atomic::{AtomicU32, Ordering};

use exacat_model::{DirId, Lfn};
use exacat_store::{Files, Gate, Gates, Walk, WalkEnd};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::arena::Handle;
use super::{Above, Defect, Directory, State, packed};

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

/// One path on its way.
struct Step<'p> {
    parent: &'p str,
    /// Empty for the root, which has no name in a directory.
    name: &'p str,
    /// The path before it lies in the same directory.
    as_before: bool,
    hint: DirId,
    /// The directories it passed, by their place in the list of ways; paths of one directory share one.
    way: usize,
    end: StepEnd,
    name_hash: u64,
    likely: Option<Handle>,
}

/// How far a path came.
#[derive(Clone, Copy)]
enum StepEnd {
    /// Its directory is there; its name is, or is not, in it.
    Open { found: Option<Handle> },
    /// It is the root.
    Root(Handle),
    /// A directory on its way is not there.
    Missing { components: usize },
    /// Something on its way is no directory.
    Stopped { at: Handle, components: usize },
}

impl StepEnd {
    fn is_open(self) -> bool {
        matches!(self, StepEnd::Open { .. })
    }
}

/// The directory a way leads to.
fn last_of(ways: &[Gates], way: usize) -> DirId {
    ways[way].last().map_or(DirId::ROOT, |gate| gate.id)
}

impl State {
    /// Follows each path from the root, as far as it goes.
    pub fn walk(&self, hints: &Hints, paths: &[Lfn]) -> Result<Vec<Walk>, Defect> {
        let mut walks = Vec::with_capacity(paths.len());
        let mut ways = Vec::new();
        for paths in paths.chunks(CHUNK) {
            ways.clear();
            for step in self.follow(hints, paths, &mut ways)? {
                let gates = ways[step.way].clone();
                let end = match step.end {
                    StepEnd::Open { found: Some(handle) } | StepEnd::Root(handle) => {
                        WalkEnd::Found(Box::new(self.entry(handle)?))
                    }
                    StepEnd::Open { found: None } => WalkEnd::Missing { components: gates.len() - 1 },
                    StepEnd::Missing { components } => WalkEnd::Missing { components },
                    StepEnd::Stopped { at, components } => {
                        WalkEnd::Stopped { entry: Box::new(self.entry(at)?), components }
                    }
                };
                walks.push(Walk { gates, end });
            }
        }
        Ok(walks)
    }

    /// The files at the ends of the paths.
    pub fn files(&self, hints: &Hints, paths: &[Lfn]) -> Result<Files, Defect> {
        let mut files = Files { ways: Vec::new(), found: Vec::with_capacity(paths.len()) };
        for paths in paths.chunks(CHUNK) {
            for step in self.follow(hints, paths, &mut files.ways)? {
                let found = match step.end {
                    StepEnd::Open { found: Some(handle) } => self.front(handle)?.found_file(step.way)?,
                    _ => None,
                };
                files.found.push(found);
            }
        }
        Ok(files)
    }

    /// Follows paths, a chunk of them.
    ///
    /// Nearly all of its time is waiting for memory: a catalogue does not fit into a processor's caches. So paths
    /// are worked on many at once, and what each will need is first touched, one kind of thing after the other, in
    /// loops that do nothing else: then the processor waits for many at a time. It makes three out of one.
    fn follow<'p>(
        &self,
        hints: &Hints,
        paths: &'p [Lfn],
        ways: &mut Vec<Gates>,
    ) -> Result<Vec<Step<'p>>, Defect> {
        let mut steps: Vec<Step<'p>> = Vec::with_capacity(paths.len());
        for path in paths {
            let (parent, name) = path.split_last().unwrap_or_default();
            let as_before = steps.last().is_some_and(|last| last.parent == parent);
            let hint = if as_before { DirId(0) } else { hints.get(self.path_hash(parent)) };
            let end = StepEnd::Open { found: None };
            steps.push(Step { parent, name, as_before, hint, way: 0, end, name_hash: 0, likely: None });
        }
        let mut touched = 0u8;
        for step in steps.iter().filter(|step| !step.as_before) {
            touched ^= self.directory(step.hint).map_or(0, |directory| directory.owner.0 as u8);
        }
        for step in steps.iter().filter(|step| !step.as_before) {
            touched ^= self.directory(step.hint).map_or(0, |directory| self.arena.touch(directory.handle));
        }
        let mut end_before = StepEnd::Open { found: None };
        for step in &mut steps {
            if step.name.is_empty() {
                let root = self.directory(DirId::ROOT).ok_or_else(|| Defect::new("there is no root"))?;
                step.end = StepEnd::Root(root.handle);
                ways.push(Gates::new());
            } else if step.as_before {
                step.end = end_before;
            } else {
                ways.push(Gates::new());
                if let Some(gates) = ways.last_mut() {
                    step.end = self.walk_to_directory(hints, step, gates)?;
                }
            }
            step.way = ways.len() - 1;
            end_before = step.end;
        }
        for step in steps.iter_mut().filter(|step| step.end.is_open()) {
            step.name_hash = self.name_hash(last_of(ways, step.way), step.name.as_bytes());
        }
        for step in steps.iter_mut().filter(|step| step.end.is_open()) {
            step.likely = self.names.likely(step.name_hash);
        }
        for step in &steps {
            touched ^= step.likely.map_or(0, |handle| self.arena.touch(handle));
        }
        std::hint::black_box(touched);
        for step in steps.iter_mut().filter(|step| step.end.is_open()) {
            let directory = last_of(ways, step.way);
            let found = self.find_hashed(step.name_hash, directory, step.name.as_bytes());
            step.end = StepEnd::Open { found };
        }
        Ok(steps)
    }

    fn path_hash(&self, path: &str) -> u64 {
        xxh3_64_with_seed(path.as_bytes(), self.seed)
    }

    /// Walks to the directory the last name is to be looked for in, or as far as the way goes.
    fn walk_to_directory(
        &self,
        hints: &Hints,
        step: &Step<'_>,
        gates: &mut Gates,
    ) -> Result<StepEnd, Defect> {
        let path = step.parent;
        if !self.is_at(step.hint, path, gates) {
            gates.clear();
            let root = self.directory(DirId::ROOT).ok_or_else(|| Defect::new("there is no root"))?;
            gates.push(gate(DirId::ROOT, root));
            let mut directory = DirId::ROOT;
            let components = path[1..].split('/').filter(|component| !component.is_empty());
            for (followed, component) in components.enumerate() {
                let Some(handle) = self.find_name(directory, component.as_bytes()) else {
                    return Ok(StepEnd::Missing { components: followed });
                };
                let Some(id) = self.front(handle)?.directory()? else {
                    return Ok(StepEnd::Stopped { at: handle, components: followed + 1 });
                };
                let found =
                    self.directory(id).ok_or_else(|| Defect(format!("there is no directory {}", id.0)))?;
                gates.push(gate(id, found));
                directory = id;
            }
            hints.set(self.path_hash(path), directory);
        }
        Ok(StepEnd::Open { found: None })
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
                    let name = packed::name_of(self.arena.get(directory.handle));
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
