//! Directories, all of them in memory: the place of each, its permissions, the usage below it, and
//! the SEs of its files.
//!
//! They are few compared with files, and every path leads through some. So memory has all of them,
//! by number and by name. Changed ones are written with the next frozen memtable
//! ([`Directories::take_changed`]), and read at opening.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::{DirId, GroupId, Mode, Revision, SeNumber, TrashId, Usage, UserId};
use exacat_store::rules::Top;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::defect::Defect;
use crate::memtable::HandleTable;

/// Parent of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Above {
    /// No parent: the root.
    Nothing,
    /// Directory that contains it.
    Directory(DirId),
    /// The directory is itself an item of the trash.
    Trash(TrashId),
}

/// A directory. Its entry, with times and tags, is a row like that of a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Directory {
    pub above: Above,
    pub name: Box<str>,
    pub owner: UserId,
    pub group: GroupId,
    pub mode: Mode,
    /// Usage of everything below it.
    pub usage: Usage,
    /// Number of files in it with a replica on each SE, in any state.
    ses: Vec<(SeNumber, u32)>,
    /// Last change of its direct content; 0 if there was none since the store was opened.
    pub content: Revision,
    /// Set if it is in the list of changed directories.
    changed: bool,
}

impl Directory {
    pub(crate) fn new(above: Above, name: &str, owner: UserId, group: GroupId, mode: Mode) -> Self {
        let (usage, ses, content) = (Usage::default(), Vec::new(), Revision(0));
        Directory { above, name: name.into(), owner, group, mode, usage, ses, content, changed: false }
    }

    /// Returns the SEs of files in it, with the number of files.
    pub(crate) fn ses(&self) -> &[(SeNumber, u32)] {
        &self.ses
    }

    /// Counts new files with a replica on this SE. True if they are the first.
    pub(crate) fn add_files(&mut self, se: SeNumber, files: u32) -> Result<bool, Defect> {
        match self.ses.binary_search_by_key(&se, |(se, _)| *se) {
            Ok(at) => {
                let count = &mut self.ses[at].1;
                *count = count.checked_add(files).ok_or_else(out_of_range)?;
                Ok(false)
            }
            Err(at) => {
                self.ses.insert(at, (se, files));
                Ok(true)
            }
        }
    }

    /// Counts a file with a replica on this SE that came or went. True if it is the first or was
    /// the last.
    pub(crate) fn move_file(&mut self, se: SeNumber, come: bool) -> Result<bool, Defect> {
        match self.ses.binary_search_by_key(&se, |(se, _)| *se) {
            Ok(at) => {
                let count = &mut self.ses[at].1;
                *count = if come { count.checked_add(1) } else { count.checked_sub(1) }
                    .ok_or_else(out_of_range)?;
                if *count == 0 {
                    self.ses.remove(at);
                    return Ok(true);
                }
                Ok(false)
            }
            Err(at) if come => {
                self.ses.insert(at, (se, 1));
                Ok(true)
            }
            Err(_) => Err(out_of_range()),
        }
    }
}

impl Encode for Directory {
    fn encode(&self, out: &mut Vec<u8>) {
        match self.above {
            Above::Nothing => out.push(0),
            Above::Directory(above) => {
                out.push(1);
                above.encode(out);
            }
            Above::Trash(trash) => {
                out.push(2);
                trash.0.encode(out);
            }
        }
        exacat_model::codec::put_bytes(out, self.name.as_bytes());
        self.owner.encode(out);
        self.group.encode(out);
        self.mode.encode(out);
        self.usage.encode(out);
        exacat_model::codec::put_varint(out, self.ses.len() as u64);
        for (se, count) in &self.ses {
            se.encode(out);
            count.encode(out);
        }
    }
}

impl Decode for Directory {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let above = match reader.byte()? {
            0 => Above::Nothing,
            1 => Above::Directory(DirId::decode(reader)?),
            2 => Above::Trash(TrashId(Revision::decode(reader)?)),
            _ => return Err(reader.error("a directory that is nowhere")),
        };
        let name = reader.text()?.into();
        let (owner, group, mode) =
            (Decode::decode(reader)?, Decode::decode(reader)?, Decode::decode(reader)?);
        let usage = Usage::decode(reader)?;
        let count = reader.length()?;
        let mut ses = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            ses.push((SeNumber::decode(reader)?, u32::decode(reader)?));
        }
        let content = Revision(0);
        Ok(Directory { above, name, owner, group, mode, usage, ses, content, changed: false })
    }
}

/// All directories.
pub(crate) struct Directories {
    /// Directories by number. Numbers are assigned in sequence; those of purged directories stay
    /// empty.
    slots: Vec<Option<Box<Directory>>>,
    /// Index by parent and name; without the root and items of the trash.
    names: HandleTable<u32>,
    present: u64,
    /// Numbers of directories that changed since they were written, each once; some may be gone.
    changed: Vec<u32>,
    /// Last change of a directory's place or permissions; 0 if there was none since the store was
    /// opened.
    pub shape: Revision,
    /// Random per process: no client can choose names that collide.
    seed: u64,
}

fn index_of(id: DirId) -> usize {
    usize::try_from(id.0).unwrap_or(usize::MAX)
}

fn out_of_range() -> Defect {
    Defect::new("a directory's count of files on an SE went out of range")
}

fn no_such(id: DirId) -> Defect {
    Defect::new(format!("there is no directory {}", id.0))
}

impl Directories {
    pub(crate) fn new(seed: u64) -> Self {
        let (slots, names, changed) = (Vec::new(), HandleTable::default(), Vec::new());
        Directories { slots, names, present: 0, changed, shape: Revision(0), seed }
    }

    /// Returns the number of directories, with the root.
    pub(crate) fn len(&self) -> u64 {
        self.present
    }

    /// Returns the number of directories to be written.
    pub(crate) fn changed(&self) -> usize {
        self.changed.len()
    }

    /// Returns the memory taken, approximately.
    pub(crate) fn bytes(&self) -> u64 {
        /// Bytes of a short name, and of two SEs.
        const BESIDE_BYTES: u64 = 32;
        let slots = (self.slots.capacity() * size_of::<Option<Box<Directory>>>()) as u64;
        slots + self.present * (size_of::<Directory>() as u64 + BESIDE_BYTES) + self.names.bytes()
    }

    /// Returns the directory with this number.
    pub(crate) fn get(&self, id: DirId) -> Option<&Directory> {
        self.slots.get(index_of(id))?.as_deref()
    }

    /// Returns the directory with this number for a change.
    pub(crate) fn get_mut(&mut self, id: DirId) -> Result<&mut Directory, Defect> {
        let Some(directory) = self.slots.get_mut(index_of(id)).and_then(Option::as_deref_mut) else {
            return Err(no_such(id));
        };
        if !directory.changed {
            directory.changed = true;
            // The index is that of a slot, and there are at most 2^32.
            self.changed.push(id.0 as u32);
        }
        Ok(directory)
    }

    /// Notes a change of the direct content of a directory. The directory's row does not have it.
    pub(crate) fn content_changed(&mut self, id: DirId, revision: Revision) {
        if let Some(directory) = self.slots.get_mut(index_of(id)).and_then(Option::as_deref_mut) {
            directory.content = revision;
        }
    }

    fn hash(&self, parent: DirId, name: &[u8]) -> u64 {
        xxh3_64_with_seed(name, self.seed ^ parent.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the directory with this name in another.
    pub(crate) fn child(&self, parent: DirId, name: &[u8]) -> Option<DirId> {
        let is = |number: &u32| {
            self.get(DirId(u64::from(*number))).is_some_and(|directory| {
                directory.above == Above::Directory(parent) && directory.name.as_bytes() == name
            })
        };
        self.names.find(self.hash(parent, name), is).map(|number| DirId(u64::from(number)))
    }

    /// Adds a directory to the index by name.
    fn link(&mut self, id: DirId) {
        if let Some(directory) = self.get(id)
            && let Above::Directory(parent) = directory.above
        {
            let hash = self.hash(parent, directory.name.as_bytes());
            self.names.insert(hash, id.0 as u32);
        }
    }

    fn unlink(&mut self, id: DirId) -> Result<(), Defect> {
        if let Some(directory) = self.get(id)
            && let Above::Directory(parent) = directory.above
        {
            let hash = self.hash(parent, directory.name.as_bytes());
            if !self.names.remove(hash, id.0 as u32) {
                return Err(Defect::new(format!("directory {} is not found by its name", id.0)));
            }
        }
        Ok(())
    }

    /// Adds a directory as it was written.
    pub(crate) fn load(&mut self, id: DirId, directory: Directory) -> Result<(), Defect> {
        let index = u32::try_from(id.0).map_err(|_| Defect::new("too many directories were made"))?;
        let index = index as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        if self.slots[index].is_some() {
            return Err(Defect::new(format!("directory {} is there already", id.0)));
        }
        self.slots[index] = Some(Box::new(directory));
        self.present += 1;
        self.link(id);
        Ok(())
    }

    /// Adds a new directory.
    pub(crate) fn insert(&mut self, id: DirId, directory: Directory) -> Result<(), Defect> {
        self.load(id, directory)?;
        self.get_mut(id).map(|_| ())
    }

    /// Removes a directory.
    pub(crate) fn remove(&mut self, id: DirId, revision: Revision) -> Result<(), Defect> {
        self.shape = revision;
        self.get_mut(id)?;
        self.unlink(id)?;
        self.slots[index_of(id)] = None;
        self.present -= 1;
        Ok(())
    }

    /// Changes the place or name of a directory.
    pub(crate) fn relocate(
        &mut self,
        id: DirId,
        above: Above,
        name: &str,
        revision: Revision,
    ) -> Result<(), Defect> {
        self.shape = revision;
        self.unlink(id)?;
        let directory = self.get_mut(id)?;
        directory.above = above;
        if &*directory.name != name {
            directory.name = name.into();
        }
        self.link(id);
        Ok(())
    }

    /// Returns the directories that changed since the last call, in the order of their numbers,
    /// encoded; none for one that is gone.
    pub(crate) fn take_changed(&mut self) -> Vec<(DirId, Option<Vec<u8>>)> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        // A filtered follower may make a directory again that it purged meanwhile.
        changed.dedup();
        let rows = changed.into_iter().map(|number| {
            let id = DirId(u64::from(number));
            let directory = self.slots.get_mut(number as usize).and_then(Option::as_deref_mut);
            let bytes = directory.map(|directory| {
                directory.changed = false;
                directory.to_bytes()
            });
            (id, bytes)
        });
        rows.collect()
    }

    /// Returns all directories by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DirId, &Directory)> {
        let all = self.slots.iter().zip(0u64..);
        all.filter_map(|(slot, number)| Some((DirId(number), slot.as_deref()?)))
    }

    /// Returns this directory and those above it, nearest first.
    pub(crate) fn way_up(&self, from: DirId) -> impl Iterator<Item = (DirId, &Directory)> {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let id = next?;
            let directory = self.get(id)?;
            next = match directory.above {
                Above::Directory(above) => Some(above),
                Above::Nothing | Above::Trash(_) => None,
            };
            Some((id, directory))
        })
    }

    /// Passes this directory and those above it to `pass`, nearest first. Returns their upper end.
    pub(crate) fn climb(&self, from: DirId, mut pass: impl FnMut(DirId)) -> Top {
        let mut next = from;
        while let Some(directory) = self.get(next) {
            pass(next);
            match directory.above {
                Above::Directory(above) => next = above,
                Above::Nothing => return Top::Root,
                Above::Trash(trash) => return Top::Trash(trash),
            }
        }
        Top::Nowhere
    }

    /// Returns the path of a directory in the tree; in the trash, from the item downwards.
    pub(crate) fn path_of(&self, directory: DirId) -> Vec<&str> {
        let names = self.way_up(directory).filter(|(id, _)| *id != DirId::ROOT);
        let mut names: Vec<&str> = names.map(|(_, directory)| &*directory.name).collect();
        names.reverse();
        names
    }
}
