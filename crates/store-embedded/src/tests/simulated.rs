//! A disk in memory that can fail, fill up, hold its syncs, and lose its power.
//!
//! What was written and what was synced are kept apart. The image a power cut leaves has what was synced, and of what
//! was written since any part: each sector of each write or not, each change of a length or not, and of the changes of
//! names any first few (file systems journal those in order).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::disk::{Disk, DiskFile};

const SECTOR: usize = 512;

/// A small generator; its seed says everything.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    pub fn chance(&mut self, of: u64) -> bool {
        self.next(of) == 0
    }
}

#[derive(Clone)]
enum Unsynced {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Clone, Default)]
struct Content {
    volatile: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Unsynced>,
}

#[derive(Clone)]
enum NameChange {
    Set(PathBuf, usize),
    Unset(PathBuf),
    Rename(PathBuf, PathBuf),
}

/// What is to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation of this number fails so, once.
    Once(u64, io::ErrorKind),
    /// A write of this number fails after half of its bytes.
    Short(u64),
    /// The power goes at the operation of this number: it and all after it fail.
    PowerCut(u64),
}

#[derive(Default)]
struct Inner {
    contents: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    name_changes: Vec<NameChange>,
    locked: BTreeSet<PathBuf>,
    operations: u64,
    fault: Option<Fault>,
    dead: bool,
    full: bool,
    refuse_runs: bool,
    hold_syncs: bool,
    syncs_waiting: usize,
}

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

/// The disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct SimulatedDisk(Arc<Shared>);

impl Inner {
    /// Counts an operation that changes something, and lets the fault happen.
    fn operation(&mut self) -> io::Result<()> {
        if self.dead {
            return Err(io::Error::other("the power is gone"));
        }
        self.operations += 1;
        match self.fault {
            Some(Fault::Once(number, kind)) if number == self.operations => Err(kind.into()),
            Some(Fault::PowerCut(number)) if number == self.operations => {
                self.dead = true;
                Err(io::Error::other("the power is gone"))
            }
            _ => Ok(()),
        }
    }
}

fn extend(bytes: &mut Vec<u8>, length: usize) {
    if bytes.len() < length {
        bytes.resize(length, 0);
    }
}

fn write(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    extend(bytes, offset + data.len());
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

impl SimulatedDisk {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    /// Operations so far that changed something.
    pub fn operations(&self) -> u64 {
        self.0.inner.lock().operations
    }

    pub fn set_fault(&self, fault: Option<Fault>) {
        self.0.inner.lock().fault = fault;
    }

    /// From now on nothing more can be reserved, or can again.
    pub fn set_full(&self, full: bool) {
        self.0.inner.lock().full = full;
    }

    /// From now on there is no space for runs, or there is again.
    pub fn refuse_runs(&self, refuse: bool) {
        self.0.inner.lock().refuse_runs = refuse;
    }

    /// From now on syncs do not return, or do again.
    pub fn hold_syncs(&self, hold: bool) {
        self.0.inner.lock().hold_syncs = hold;
        self.0.changed.notify_all();
    }

    /// Waits until a sync is held.
    pub fn wait_for_held_sync(&self) {
        let mut inner = self.0.inner.lock();
        while inner.syncs_waiting == 0 {
            let timeout = std::time::Duration::from_secs(30);
            assert!(!self.0.changed.wait_for(&mut inner, timeout).timed_out(), "no sync came");
        }
    }

    /// The disk that a power cut now leaves; one of many, chosen by `random`.
    pub fn image(&self, random: &mut Random) -> SimulatedDisk {
        let inner = self.0.inner.lock();
        let mut names = inner.durable_names.clone();
        let kept = random.next(inner.name_changes.len() as u64 + 1) as usize;
        for change in &inner.name_changes[..kept] {
            apply_name(&mut names, change);
        }
        let contents: Vec<Content> = inner
            .contents
            .iter()
            .map(|content| {
                let mut bytes = content.durable.clone();
                for unsynced in &content.unsynced {
                    match unsynced {
                        Unsynced::Length(length) if random.chance(2) => bytes.resize(*length as usize, 0),
                        Unsynced::Length(_) => {}
                        Unsynced::Write(offset, data) => {
                            let style = random.next(4);
                            for (index, sector) in data.chunks(SECTOR).enumerate() {
                                let persists = match style {
                                    0 => true,
                                    1 => false,
                                    _ => random.chance(2),
                                };
                                if persists {
                                    write(&mut bytes, *offset as usize + index * SECTOR, sector);
                                }
                            }
                        }
                    }
                }
                Content { volatile: bytes.clone(), durable: bytes, unsynced: Vec::new() }
            })
            .collect();
        let image = Inner { contents, names: names.clone(), durable_names: names, ..Inner::default() };
        SimulatedDisk(Arc::new(Shared { inner: Mutex::new(image), changed: Condvar::new() }))
    }

    /// The same disk as it is, on its own from now on.
    pub fn copy(&self) -> SimulatedDisk {
        let inner = self.0.inner.lock();
        let contents = inner
            .contents
            .iter()
            .map(|content| Content {
                volatile: content.volatile.clone(),
                durable: content.volatile.clone(),
                unsynced: Vec::new(),
            })
            .collect();
        let names = inner.names.clone();
        let copy = Inner { contents, names: names.clone(), durable_names: names, ..Inner::default() };
        SimulatedDisk(Arc::new(Shared { inner: Mutex::new(copy), changed: Condvar::new() }))
    }

    /// The files whose names end so, in order.
    pub fn files(&self, ending: &str) -> Vec<PathBuf> {
        let inner = self.0.inner.lock();
        inner.names.keys().filter(|path| path.to_string_lossy().ends_with(ending)).cloned().collect()
    }

    /// Changes a file's bytes behind everybody's back.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.0.inner.lock();
        let number = inner.names[path];
        let content = &mut inner.contents[number];
        change(&mut content.volatile);
        content.durable = content.volatile.clone();
    }

    /// A file's bytes.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        let inner = self.0.inner.lock();
        inner.contents[inner.names[path]].volatile.clone()
    }

    /// Removes a file behind everybody's back.
    pub fn vanish(&self, path: &Path) {
        let mut inner = self.0.inner.lock();
        inner.names.remove(path);
        inner.durable_names.remove(path);
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Set(path, number) => {
            names.insert(path.clone(), *number);
        }
        NameChange::Unset(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to) => {
            if let Some(number) = names.remove(from) {
                names.insert(to.clone(), number);
            }
        }
    }
}

impl Inner {
    fn change_name(&mut self, change: NameChange) {
        apply_name(&mut self.names, &change);
        self.name_changes.push(change);
    }
}

impl Disk for SimulatedDisk {
    fn create_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let inner = self.0.inner.lock();
        let inside = inner.names.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let number = *self.0.inner.lock().names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), number }))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open_to_read(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        if inner.refuse_runs && path.extension().is_some_and(|end| end == "run") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let number = inner.contents.len();
        inner.contents.push(Content::default());
        inner.change_name(NameChange::Set(path.to_owned(), number));
        Ok(Box::new(SimulatedFile { disk: self.clone(), number }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        inner.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        if !inner.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        inner.change_name(NameChange::Unset(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        inner.durable_names = inner.names.clone();
        inner.name_changes.clear();
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        struct Guard(SimulatedDisk, PathBuf);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.0.inner.lock().locked.remove(&self.1);
            }
        }
        if !self.0.inner.lock().locked.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Guard(self.clone(), path.to_owned())))
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(if self.0.inner.lock().full { 0 } else { 1 << 40 })
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    number: usize,
}

impl DiskFile for SimulatedFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let inner = self.disk.0.inner.lock();
        let bytes = &inner.contents[self.number].volatile;
        let from = (offset as usize).min(bytes.len());
        let count = into.len().min(bytes.len() - from);
        into[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.disk.0.inner.lock();
        let outcome = inner.operation();
        let short = matches!(inner.fault, Some(Fault::Short(number)) if number == inner.operations);
        let written = match (&outcome, short) {
            (Ok(()), false) => bytes,
            // A failed write may have written any part; this one half.
            (Ok(()), true) => &bytes[..bytes.len() / 2],
            (Err(_), _) if inner.dead => bytes,
            (Err(_), _) => &bytes[..bytes.len() / 2],
        };
        let content = &mut inner.contents[self.number];
        write(&mut content.volatile, offset as usize, written);
        content.unsynced.push(Unsynced::Write(offset, written.to_vec()));
        match short {
            true => Err(io::ErrorKind::WriteZero.into()),
            false => outcome,
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.disk.0.inner.lock();
        inner.syncs_waiting += 1;
        self.disk.0.changed.notify_all();
        while inner.hold_syncs {
            self.disk.0.changed.wait(&mut inner);
        }
        inner.syncs_waiting -= 1;
        inner.operation()?;
        let content = &mut inner.contents[self.number];
        content.durable = content.volatile.clone();
        content.unsynced.clear();
        Ok(())
    }

    fn preallocate(&self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.0.inner.lock();
        inner.operation()?;
        if inner.full && (inner.contents[self.number].volatile.len() as u64) < length {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let content = &mut inner.contents[self.number];
        extend(&mut content.volatile, length as usize);
        content.unsynced.push(Unsynced::Length(length.max(content.volatile.len() as u64)));
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.0.inner.lock();
        inner.operation()?;
        let content = &mut inner.contents[self.number];
        content.volatile.resize(length as usize, 0);
        content.unsynced.push(Unsynced::Length(length));
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.0.inner.lock().contents[self.number].volatile.len() as u64)
    }
}
