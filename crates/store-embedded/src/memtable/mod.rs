//! The memtable: rows newer than every run, found by name, by GUID, and in order.
//!
//! It takes rows until it has as many as a new run should have. Then it is frozen, written to a
//! run, and dropped. So it is small, and a look-up in it never waits for a disk.

mod arena;
mod children;
mod flat;
mod handles;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use exacat_model::{DirId, Guid};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::defect::Defect;
use crate::page::Row;

use arena::{Arena, Handle};
use children::Children;
pub(crate) use handles::HandleTable;

/// Rows in memory.
#[derive(Default)]
pub(crate) struct Memtable {
    seed: u64,
    arena: Arena,
    names: HandleTable<Handle>,
    guids: HandleTable<Handle>,
    directories: BTreeMap<u64, Children>,
    scratch: Vec<u8>,
}

impl Memtable {
    /// Creates an empty memtable. `seed` is random, so that no client can choose names that
    /// collide.
    pub(crate) fn new(seed: u64) -> Self {
        Memtable { seed, ..Memtable::default() }
    }

    /// Returns the hash of a name in this memtable.
    pub(crate) fn name_hash(&self, directory: DirId, name: &[u8]) -> u64 {
        xxh3_64_with_seed(name, self.seed ^ directory.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn guid_hash(&self, guid: Guid) -> u64 {
        xxh3_64_with_seed(&guid.0, self.seed)
    }

    /// Returns the number of rows, with notes of removals.
    pub(crate) fn rows(&self) -> usize {
        self.names.len()
    }

    /// Returns the memory taken.
    pub(crate) fn bytes(&self) -> u64 {
        let (arena, _) = self.arena.bytes();
        // A child has four bytes, and a third more where lists have room to grow; a directory has
        // some 80 of its own.
        let children = self.rows() as u64 * 16 / 3 + self.directories.len() as u64 * 80;
        arena + self.names.bytes() + self.guids.bytes() + children
    }

    fn read(&self, handle: Handle) -> Result<Row<'_>, Defect> {
        Ok(flat::row(self.arena.get(handle))?)
    }

    fn handle(&self, directory: DirId, name: &[u8]) -> Option<Handle> {
        self.handle_of(self.name_hash(directory, name), directory, name)
    }

    fn handle_of(&self, hash: u64, directory: DirId, name: &[u8]) -> Option<Handle> {
        self.names.find(hash, |handle| flat::stands_at(self.arena.get(*handle), directory, name))
    }

    /// Returns the row of a name, which may note a removal.
    pub(crate) fn find(&self, directory: DirId, name: &[u8]) -> Result<Option<Row<'_>>, Defect> {
        self.find_hashed(self.name_hash(directory, name), directory, name)
    }

    /// Returns the row of a name; `hash` is that of the name.
    pub(crate) fn find_hashed(
        &self,
        hash: u64,
        directory: DirId,
        name: &[u8],
    ) -> Result<Option<Row<'_>>, Defect> {
        self.handle_of(hash, directory, name).map(|handle| self.read(handle)).transpose()
    }

    /// Loads the index entry for a name of this hash into the processor's cache. The result has no
    /// meaning.
    pub(crate) fn touch_index(&self, hash: u64) -> u8 {
        self.names.touch(hash)
    }

    /// Loads the row for a name of this hash, as the next step.
    pub(crate) fn touch_row(&self, hash: u64) -> u8 {
        self.names.likely(hash).map_or(0, |handle| self.arena.touch(handle))
    }

    /// Returns the row of a GUID. If the GUID was purged and then used again, the later use counts.
    pub(crate) fn find_guid(&self, guid: Guid) -> Result<Option<Row<'_>>, Defect> {
        let hash = self.guid_hash(guid);
        let row_of = |handle: &Handle| self.read(*handle).ok().filter(|row| row.guid() == Some(guid));
        let found = self
            .guids
            .find(hash, |handle| row_of(handle).is_some_and(|row| !row.is_gone()))
            .or_else(|| self.guids.find(hash, |handle| row_of(handle).is_some()));
        found.map(|handle| self.read(handle)).transpose()
    }

    /// Puts a row, and replaces the one of its key.
    pub(crate) fn put(&mut self, row: &Row<'_>) -> Result<(), Defect> {
        let mut bytes = std::mem::take(&mut self.scratch);
        flat::put(row, &mut bytes);
        let done = self.put_bytes(row, &bytes);
        self.scratch = bytes;
        done
    }

    fn put_bytes(&mut self, row: &Row<'_>, bytes: &[u8]) -> Result<(), Defect> {
        let full = || Defect::new("the memory for rows is full");
        let missing = || Defect::new("an index of the rows in memory misses one");
        let hash = self.name_hash(row.parent, row.name);
        let Some(old) = self.handle(row.parent, row.name) else {
            let handle = self.arena.insert(bytes).ok_or_else(full)?;
            self.names.insert(hash, handle);
            if let Some(guid) = row.guid() {
                self.guids.insert(self.guid_hash(guid), handle);
            }
            let Memtable { arena, directories, .. } = self;
            let children = directories.entry(row.parent.0).or_default();
            children.insert(handle, row.name, |other| flat::name_of(arena.get(other)));
            return Ok(());
        };
        let old_guid = self.read(old)?.guid();
        let new = if self.arena.overwrite(old, bytes) {
            old
        } else {
            let new = self.arena.insert(bytes).ok_or_else(full)?;
            let Memtable { names, arena, directories, .. } = self;
            let children = directories.get_mut(&row.parent.0).ok_or_else(missing)?;
            let listed = children.replace(old, new, row.name, |other| flat::name_of(arena.get(other)));
            if !names.replace(hash, old, new) || !listed {
                return Err(missing());
            }
            new
        };
        match (old_guid, row.guid()) {
            (Some(before), Some(after)) if before == after => {
                if old != new && !self.guids.replace(self.guid_hash(after), old, new) {
                    return Err(missing());
                }
            }
            (before, after) => {
                if let Some(before) = before
                    && !self.guids.remove(self.guid_hash(before), old)
                {
                    return Err(missing());
                }
                if let Some(after) = after {
                    self.guids.insert(self.guid_hash(after), new);
                }
            }
        }
        if old != new {
            self.arena.remove(old);
        }
        Ok(())
    }

    /// Returns the rows of one directory from this name on, in order; with `after`, only behind it.
    pub(crate) fn within<'m>(
        &'m self,
        directory: DirId,
        name: &[u8],
        after: bool,
    ) -> impl Iterator<Item = Result<Row<'m>, Defect>> + use<'m> {
        let children = self.directories.get(&directory.0).map(|children| {
            let at = if after { None } else { self.handle(directory, name) };
            at.into_iter().chain(children.after(Some(name), |other| flat::name_of(self.arena.get(other))))
        });
        children.into_iter().flatten().map(|handle| self.read(handle))
    }

    /// Says whether it has any row of this directory.
    pub(crate) fn has_any(&self, directory: DirId) -> bool {
        self.directories.contains_key(&directory.0)
    }

    /// Returns the rows from this key on, in order; with `after`, only behind it.
    pub(crate) fn from<'m>(
        &'m self,
        directory: DirId,
        name: &[u8],
        after: bool,
    ) -> impl Iterator<Item = Result<Row<'m>, Defect>> + use<'m> {
        let in_it = self.within(directory, name, after);
        let behind = directory.0.checked_add(1).map(|next| self.directories.range(next..));
        let behind = behind.into_iter().flatten();
        let behind = behind
            .flat_map(|(_, children)| children.after(None, |other| flat::name_of(self.arena.get(other))));
        in_it.chain(behind.map(|handle| self.read(handle)))
    }
}
