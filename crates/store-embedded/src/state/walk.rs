//! Following paths, fast: look-ups do little else.
//!
//! Most paths asked for lie in a directory that was asked for before. So a table of hints says, by the hash of
//! the path above, which directory that was. A hint may be wrong - the directory moved, another path has the hash -
//! so it is checked: from that directory upwards, name by name, against the path itself. What passes is as true
//! as a walk from the root, at half its cost, with no hash table probed on the way and nothing to be kept in step
//! with moves.

use std::sync::atomic::{AtomicU32, Ordering};

use exacat_model::{DirId, Lfn};
use exacat_store::{Gate, Gates, Walk, WalkEnd};
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
    /// Its directory is there, and its name is to be looked for in it.
    open: bool,
    name_hash: u64,
    likely: Option<Handle>,
}

impl State {
    /// Follows each path from the root, as far as it goes.
    ///
    /// Nearly all of its time is waiting for memory: a catalogue does not fit into a processor's caches. So paths
    /// are worked on many at once, and what each will need is first touched, one kind of thing after the other, in
    /// loops that do nothing else: then the processor waits for many at a time. It makes three out of one.
    pub fn walk(&self, hints: &Hints, paths: &[Lfn]) -> Result<Vec<Walk>, Defect> {
        let mut walks = Vec::with_capacity(paths.len());
        for paths in paths.chunks(CHUNK) {
            self.walk_chunk(hints, paths, &mut walks)?;
        }
        Ok(walks)
    }

    fn walk_chunk(&self, hints: &Hints, paths: &[Lfn], walks: &mut Vec<Walk>) -> Result<(), Defect> {
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(paths.len());
        for path in paths {
            let (parent, name) = path.split_last().unwrap_or_default();
            let as_before = steps.last().is_some_and(|last| last.parent == parent);
            let hint = if as_before { DirId(0) } else { hints.get(self.path_hash(parent)) };
            steps.push(Step { parent, name, as_before, hint, open: false, name_hash: 0, likely: None });
        }
        let mut touched = 0u8;
        for step in steps.iter().filter(|step| !step.as_before) {
            touched ^= self.directory(step.hint).map_or(0, |directory| directory.owner.0 as u8);
        }
        for step in steps.iter().filter(|step| !step.as_before) {
            touched ^= self.directory(step.hint).map_or(0, |directory| self.arena.touch(directory.handle));
        }
        let start = walks.len();
        let mut open_before = false;
        for step in &mut steps {
            // As long as it is not found, it is missing after the last gate.
            let mut walk = Walk { gates: Gates::new(), end: WalkEnd::Missing { components: 0 } };
            match walks.last() {
                _ if step.name.is_empty() => self.walk_to_root(&mut walk)?,
                Some(before) if step.as_before => {
                    step.open = open_before;
                    walk = before.clone();
                }
                _ => step.open = self.walk_to_directory(hints, step, &mut walk)?,
            }
            open_before = step.open;
            walks.push(walk);
        }
        let walks = &mut walks[start..];
        for (step, walk) in steps.iter_mut().zip(walks.iter()).filter(|(step, _)| step.open) {
            let directory = walk.gates.last().map_or(DirId::ROOT, |gate| gate.id);
            step.name_hash = self.name_hash(directory, step.name.as_bytes());
        }
        for step in steps.iter_mut().filter(|step| step.open) {
            step.likely = self.names.likely(step.name_hash);
        }
        for step in &steps {
            touched ^= step.likely.map_or(0, |handle| self.arena.touch(handle));
        }
        std::hint::black_box(touched);
        for (step, walk) in steps.iter().zip(walks).filter(|(step, _)| step.open) {
            let directory = walk.gates.last().map_or(DirId::ROOT, |gate| gate.id);
            if let Some(handle) = self.find_hashed(step.name_hash, directory, step.name.as_bytes()) {
                walk.end = WalkEnd::Found(Box::new(self.entry(handle)?));
            }
        }
        Ok(())
    }

    fn walk_to_root(&self, walk: &mut Walk) -> Result<(), Defect> {
        let root = self.directory(DirId::ROOT).ok_or_else(|| Defect::new("there is no root"))?;
        walk.end = WalkEnd::Found(Box::new(self.entry(root.handle)?));
        Ok(())
    }

    fn path_hash(&self, path: &str) -> u64 {
        xxh3_64_with_seed(path.as_bytes(), self.seed)
    }

    /// Walks to the directory the last name is to be looked for in. False if the way ends before.
    fn walk_to_directory(&self, hints: &Hints, step: &Step<'_>, walk: &mut Walk) -> Result<bool, Defect> {
        let path = step.parent;
        if !self.is_at(step.hint, path, &mut walk.gates) {
            walk.gates.clear();
            let root = self.directory(DirId::ROOT).ok_or_else(|| Defect::new("there is no root"))?;
            walk.gates.push(gate(DirId::ROOT, root));
            let mut directory = DirId::ROOT;
            let components = path[1..].split('/').filter(|component| !component.is_empty());
            for (followed, component) in components.enumerate() {
                let Some(handle) = self.find_name(directory, component.as_bytes()) else {
                    walk.end = WalkEnd::Missing { components: followed };
                    return Ok(false);
                };
                let front = self.front(handle)?;
                let Some(id) = front.directory()? else {
                    let entry = Box::new(front.entry()?);
                    walk.end = WalkEnd::Stopped { entry, components: followed + 1 };
                    return Ok(false);
                };
                let found =
                    self.directory(id).ok_or_else(|| Defect(format!("there is no directory {}", id.0)))?;
                walk.gates.push(gate(id, found));
                directory = id;
            }
            hints.set(self.path_hash(path), directory);
        }
        walk.end = WalkEnd::Missing { components: walk.gates.len() - 1 };
        Ok(true)
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
