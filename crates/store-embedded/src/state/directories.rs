//! Directories: all of them, in memory. Where each is, who may pass it, what is below it, and which SEs its files are on.
//!
//! They are few beside files, and every path leads through some: so they are kept whole, found by number and by name.
//! What changed is written with the next memtable that is frozen ([`Directories::take_changed`]), and read at opening.

use exacat_model::codec::{Decode, DecodeError, Encode, Reader};
use exacat_model::{DirId, GroupId, Mode, Revision, SeNumber, TrashId, Usage, UserId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::defect::Defect;
use crate::memtable::HandleTable;

/// What is above a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Above {
    /// Nothing: it is the root.
    Nothing,
    /// The directory it is in.
    Directory(DirId),
    /// It is itself an item of the trash.
    Trash(TrashId),
}

/// Where the way up from a directory ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Top {
    /// At the root: it is alive.
    Root,
    /// At an item of the trash.
    Trash(TrashId),
}

/// One of them. Its entry, with times and tags, is a row as that of a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Directory {
    pub above: Above,
    pub name: Box<str>,
    pub owner: UserId,
    pub group: GroupId,
    pub mode: Mode,
    /// All that is below it.
    pub usage: Usage,
    /// How many files in it have a replica on each SE, of any state.
    ses: Vec<(SeNumber, u32)>,
    /// The last change of what is directly in it; 0 if there was none since the store was opened.
    pub content: Revision,
    /// It is noted as changed.
    changed: bool,
}

impl Directory {
    pub fn new(above: Above, name: &str, owner: UserId, group: GroupId, mode: Mode) -> Self {
        let (usage, ses, content) = (Usage::default(), Vec::new(), Revision(0));
        Directory { above, name: name.into(), owner, group, mode, usage, ses, content, changed: false }
    }

    /// The SEs that files in it are on, with how many.
    pub fn ses(&self) -> &[(SeNumber, u32)] {
        &self.ses
    }

    /// So many files with a replica on this SE came. Are they the first?
    pub fn add_files(&mut self, se: SeNumber, files: u32) -> Result<bool, Defect> {
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

    /// A file with a replica on this SE came, or went. Is it the first, or was it the last?
    pub fn move_file(&mut self, se: SeNumber, come: bool) -> Result<bool, Defect> {
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

/// All of them.
pub(crate) struct Directories {
    /// By number. Numbers are given in sequence; those of purged directories stay empty.
    slots: Vec<Option<Box<Directory>>>,
    /// By where they are and what they are called; the root is not among them, nor are items of the trash.
    names: HandleTable<u32>,
    present: u64,
    /// Numbers of those that changed since they were written, each once; some may be gone.
    changed: Vec<u32>,
    /// The last change of where one of them is, or of who may pass it; 0 if there was none since the store was opened.
    pub shape: Revision,
    /// Random per process: nobody can choose names that fall together.
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
    pub fn new(seed: u64) -> Self {
        let (slots, names, changed) = (Vec::new(), HandleTable::default(), Vec::new());
        Directories { slots, names, present: 0, changed, shape: Revision(0), seed }
    }

    /// How many there are, the root among them.
    pub fn len(&self) -> u64 {
        self.present
    }

    /// How many are to be written.
    pub fn changed(&self) -> usize {
        self.changed.len()
    }

    /// Memory taken, about.
    pub fn bytes(&self) -> u64 {
        /// A short name, and two SEs.
        const BESIDE_BYTES: u64 = 32;
        let slots = (self.slots.capacity() * size_of::<Option<Box<Directory>>>()) as u64;
        slots + self.present * (size_of::<Directory>() as u64 + BESIDE_BYTES) + self.names.bytes()
    }

    /// The directory of this number.
    pub fn get(&self, id: DirId) -> Option<&Directory> {
        self.slots.get(index_of(id))?.as_deref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: DirId) -> Result<&mut Directory, Defect> {
        let Some(directory) = self.slots.get_mut(index_of(id)).and_then(Option::as_deref_mut) else {
            return Err(no_such(id));
        };
        if !directory.changed {
            directory.changed = true;
            // The index is that of a slot, and there are no more than 2^32.
            self.changed.push(id.0 as u32);
        }
        Ok(directory)
    }

    /// What is directly in a directory changed. Nothing of that is written with it.
    pub fn content_changed(&mut self, id: DirId, revision: Revision) {
        if let Some(directory) = self.slots.get_mut(index_of(id)).and_then(Option::as_deref_mut) {
            directory.content = revision;
        }
    }

    fn hash(&self, parent: DirId, name: &[u8]) -> u64 {
        xxh3_64_with_seed(name, self.seed ^ parent.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The directory of this name in that one.
    pub fn child(&self, parent: DirId, name: &[u8]) -> Option<DirId> {
        let is = |number: &u32| {
            self.get(DirId(u64::from(*number))).is_some_and(|directory| {
                directory.above == Above::Directory(parent) && directory.name.as_bytes() == name
            })
        };
        self.names.find(self.hash(parent, name), is).map(|number| DirId(u64::from(number)))
    }

    /// Makes it found by its name.
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

    /// Puts one as it was written.
    pub fn load(&mut self, id: DirId, directory: Directory) -> Result<(), Defect> {
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

    /// Puts a new one.
    pub fn insert(&mut self, id: DirId, directory: Directory) -> Result<(), Defect> {
        self.load(id, directory)?;
        self.get_mut(id).map(|_| ())
    }

    /// Takes one away.
    pub fn remove(&mut self, id: DirId, revision: Revision) -> Result<(), Defect> {
        self.shape = revision;
        self.get_mut(id)?;
        self.unlink(id)?;
        self.slots[index_of(id)] = None;
        self.present -= 1;
        Ok(())
    }

    /// It is elsewhere now, or called otherwise.
    pub fn relocate(
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

    /// Those that changed since this was asked last, in the order of their numbers, as bytes; none if it is gone.
    pub fn take_changed(&mut self) -> Vec<(DirId, Option<Vec<u8>>)> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        // One that was made and purged meanwhile, and made known twice, cannot be: numbers are given once.
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

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (DirId, &Directory)> {
        let all = self.slots.iter().zip(0u64..);
        all.filter_map(|(slot, number)| Some((DirId(number), slot.as_deref()?)))
    }

    /// This directory and those above it, nearest first.
    pub fn way_up(&self, from: DirId) -> impl Iterator<Item = (DirId, &Directory)> {
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

    /// Where the way up from this directory ends; none if there is no such directory.
    pub fn top(&self, from: DirId) -> Option<Top> {
        match self.way_up(from).last()?.1.above {
            Above::Nothing => Some(Top::Root),
            Above::Trash(trash) => Some(Top::Trash(trash)),
            Above::Directory(_) => None,
        }
    }

    /// The path of a directory in the tree; of one in the trash, from the item downwards.
    pub fn path_of(&self, directory: DirId) -> Vec<&str> {
        let names = self.way_up(directory).filter(|(id, _)| *id != DirId::ROOT);
        let mut names: Vec<&str> = names.map(|(_, directory)| &*directory.name).collect();
        names.reverse();
        names
    }
}
