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

    /// Memory taken.
    pub fn bytes(&self) -> u64 {
        (SLOTS * size_of::<AtomicU32>()) as u64
    }
}

fn gate(id: DirId, directory: &Directory) -> Gate {
    Gate { id, owner: directory.owner, group: directory.group, mode: directory.mode }
}

impl State {
    /// Follows each path from the root, as far as it goes.
    pub fn walk(&self, hints: &Hints, paths: &[Lfn]) -> Result<Vec<Walk>, Defect> {
        let mut walks = Vec::with_capacity(paths.len());
        // The directory of the path before: neighbours in a batch often share it.
        let mut last: Option<(&str, Gates)> = None;
        for path in paths {
            let Some((parent, name)) = path.split_last() else {
                let handle = self.find_id(exacat_model::EntryId::Directory(DirId::ROOT));
                let root = self.entry(handle.ok_or_else(|| Defect::new("there is no root"))?)?;
                walks.push(Walk { gates: Gates::new(), end: WalkEnd::Found(Box::new(root)) });
                continue;
            };
            let gates = match &last {
                Some((path, gates)) if *path == parent => gates.clone(),
                _ => match self.directory_of(hints, parent)? {
                    Ok(gates) => {
                        last = Some((parent, gates.clone()));
                        gates
                    }
                    Err(short) => {
                        walks.push(short);
                        continue;
                    }
                },
            };
            let Some(directory) = gates.last().map(|gate| gate.id) else {
                return Err(Defect::new("a path without a directory"));
            };
            let end = match self.find_name(directory, name.as_bytes()) {
                Some(handle) => WalkEnd::Found(Box::new(self.entry(handle)?)),
                None => WalkEnd::Missing { components: gates.len() - 1 },
            };
            walks.push(Walk { gates, end });
        }
        Ok(walks)
    }

    /// The gates down to the directory of this path, itself included; or how the walk ends before it.
    fn directory_of(&self, hints: &Hints, path: &str) -> Result<Result<Gates, Walk>, Defect> {
        let slot = hints.slot(xxh3_64_with_seed(path.as_bytes(), self.seed));
        let hint = DirId(u64::from(slot.load(Ordering::Relaxed)));
        if let Some(gates) = self.gates_if(hint, path) {
            return Ok(Ok(gates));
        }
        let root = self.directory(DirId::ROOT).ok_or_else(|| Defect::new("there is no root"))?;
        let mut gates = Gates::new();
        gates.push(gate(DirId::ROOT, root));
        let mut directory = DirId::ROOT;
        let components = path[1..].split('/').filter(|component| !component.is_empty());
        for (followed, component) in components.enumerate() {
            let Some(handle) = self.find_name(directory, component.as_bytes()) else {
                return Ok(Err(Walk { gates, end: WalkEnd::Missing { components: followed } }));
            };
            let front = self.front(handle)?;
            let Some(id) = front.directory()? else {
                let entry = Box::new(front.entry()?);
                return Ok(Err(Walk { gates, end: WalkEnd::Stopped { entry, components: followed + 1 } }));
            };
            let found =
                self.directory(id).ok_or_else(|| Defect(format!("there is no directory {}", id.0)))?;
            gates.push(gate(id, found));
            directory = id;
        }
        if let Ok(number) = u32::try_from(directory.0) {
            slot.store(number, Ordering::Relaxed);
        }
        Ok(Ok(gates))
    }

    /// The gates down to this directory, if it has this path.
    fn gates_if(&self, directory: DirId, path: &str) -> Option<Gates> {
        let mut gates = Gates::new();
        let mut rest = path.as_bytes();
        let mut id = directory;
        loop {
            let directory = self.directory(id)?;
            gates.push(gate(id, directory));
            match directory.above {
                Above::Directory(above) => {
                    let name = packed::name_of(self.arena.get(directory.handle));
                    rest = rest.strip_suffix(name)?.strip_suffix(b"/")?;
                    id = above;
                }
                Above::Nothing if rest.is_empty() || rest == b"/" => break,
                Above::Nothing | Above::Trash(_) => return None,
            }
        }
        gates.reverse();
        Some(gates)
    }
}
