//! A simulated disk in memory that can fail, fill up, hold its syncs, and lose its power.
//!
//! It separates written from synced data. The image after a power cut has everything synced, and
//! any part of the rest:
//!
//! - each sector of each write, or not;
//! - each change of a length, or not;
//! - any first few of the changes of names, because file systems journal those in order.
//!
//! A change of names is synced with its directory; a move between two directories with both. Files
//! in a missing directory are missing too.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use exacat_disk::{Disk, DiskFile};

const SECTOR: usize = 512;

/// A small generator of random numbers; the seed fixes all of them.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next number below a bound.
    pub fn next(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    /// Returns true once in `of` times.
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

/// Number of a directory, in place of a file's.
const DIRECTORY: usize = usize::MAX;

#[derive(Clone)]
enum NameChange {
    Set(PathBuf, usize),
    Unset(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    /// Returns the directories that must be synced for it.
    fn directories(&self) -> [&Path; 2] {
        let (one, other) = match self {
            NameChange::Set(path, _) | NameChange::Unset(path) => (path, path),
            NameChange::Rename(from, to) => (from, to),
        };
        [one, other].map(|path| path.parent().unwrap_or(Path::new("/")))
    }
}

/// A change of names, and the directories among its own that were synced since.
#[derive(Clone)]
struct Pending {
    change: NameChange,
    synced: [bool; 2],
}

/// Fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation with this number fails in this way, once.
    Once(u64, io::ErrorKind),
    /// The read with this number, of any file, fails once.
    Read(u64),
    /// The read with this number, of any file, has one bit flipped: the one with the second number, counted
    /// round and round its bytes.
    FlippedRead(u64, u64),
    /// The write with this number fails after half of its bytes.
    Short(u64),
    /// The power fails at the operation with this number: that one and all later ones fail.
    PowerCut(u64),
}

#[derive(Default)]
struct Inner {
    contents: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    name_changes: Vec<Pending>,
    locked: BTreeSet<PathBuf>,
    operations: u64,
    reads: u64,
    fault: Option<Fault>,
    dead: bool,
    full: bool,
    refuse_runs: bool,
    hold_syncs: bool,
    syncs_waiting: usize,
    hold_reads: bool,
    reads_waiting: usize,
    /// Directories that are file systems of their own.
    devices: Vec<PathBuf>,
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
    /// Counts an operation that changes something, and injects the fault.
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
    /// Creates an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the disk as its users take it.
    pub fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    /// Returns the number of operations so far that changed something.
    pub fn operations(&self) -> u64 {
        self.0.inner.lock().operations
    }

    /// Returns the number of reads so far.
    pub fn reads(&self) -> u64 {
        self.0.inner.lock().reads
    }

    /// Sets the fault to inject.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.0.inner.lock().fault = fault;
    }

    /// Says whether the power is off.
    pub fn is_dead(&self) -> bool {
        self.0.inner.lock().dead
    }

    /// Makes every reservation of space fail, or work again.
    pub fn set_full(&self, full: bool) {
        self.0.inner.lock().full = full;
    }

    /// Removes the space for runs, or gives it back.
    pub fn refuse_runs(&self, refuse: bool) {
        self.0.inner.lock().refuse_runs = refuse;
    }

    /// Makes a directory a file system of its own.
    pub fn mount(&self, directory: &Path) {
        self.0.inner.lock().devices.push(directory.to_owned());
    }

    /// Holds all syncs, or releases them.
    pub fn hold_syncs(&self, hold: bool) {
        self.0.inner.lock().hold_syncs = hold;
        self.0.changed.notify_all();
    }

    /// Holds all reads, or releases them.
    pub fn hold_reads(&self, hold: bool) {
        self.0.inner.lock().hold_reads = hold;
        self.0.changed.notify_all();
    }

    /// Waits until a read is held.
    pub fn wait_for_held_read(&self) {
        let mut inner = self.0.inner.lock();
        while inner.reads_waiting == 0 {
            let timeout = std::time::Duration::from_secs(30);
            assert!(!self.0.changed.wait_for(&mut inner, timeout).timed_out(), "nothing was read");
        }
    }

    /// Says whether a sync is held.
    pub fn is_syncing(&self) -> bool {
        self.0.inner.lock().syncs_waiting > 0
    }

    /// Waits until a sync is held.
    pub fn wait_for_held_sync(&self) {
        let mut inner = self.0.inner.lock();
        while inner.syncs_waiting == 0 {
            let timeout = std::time::Duration::from_secs(30);
            assert!(!self.0.changed.wait_for(&mut inner, timeout).timed_out(), "no sync came");
        }
    }

    /// Returns the disk that a power cut leaves now; one of many, chosen by `random`.
    pub fn image(&self, random: &mut Random) -> SimulatedDisk {
        let inner = self.0.inner.lock();
        let mut names = inner.durable_names.clone();
        let kept = random.next(inner.name_changes.len() as u64 + 1) as usize;
        for pending in &inner.name_changes[..kept] {
            apply_name(&mut names, &pending.change);
        }
        let all = names.clone();
        names.retain(|path, _| is_reachable(&all, path));
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

    /// Returns an independent copy of the disk.
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

    /// Returns the files whose names have this ending, in order.
    pub fn files(&self, ending: &str) -> Vec<PathBuf> {
        let inner = self.0.inner.lock();
        let files = inner.names.iter().filter(|(_, number)| **number != DIRECTORY).map(|(path, _)| path);
        files.filter(|path| path.to_string_lossy().ends_with(ending)).cloned().collect()
    }

    /// Changes a file's bytes unnoticed.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.0.inner.lock();
        let number = inner.names[path];
        let content = &mut inner.contents[number];
        change(&mut content.volatile);
        content.durable = content.volatile.clone();
    }

    /// Returns a file's bytes.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        let inner = self.0.inner.lock();
        inner.contents[inner.names[path]].volatile.clone()
    }

    /// Removes a file unnoticed.
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
            let moved: Vec<PathBuf> = names.keys().filter(|path| path.starts_with(from)).cloned().collect();
            if moved.first() != Some(from) {
                // The directory is missing, and so is everything below it.
                return;
            }
            for path in moved {
                if let Some(number) = names.remove(&path) {
                    names.insert(moved_to(&path, from, to), number);
                }
            }
        }
    }
}

fn moved_to(path: &Path, from: &Path, to: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(below) if below.as_os_str().is_empty() => to.to_owned(),
        Ok(below) => to.join(below),
        Err(_) => path.to_owned(),
    }
}

/// Says whether all parent directories exist. Those at the top always do.
fn is_reachable(names: &BTreeMap<PathBuf, usize>, path: &Path) -> bool {
    let mut above = path.ancestors().skip(1).filter(|path| path.parent().is_some());
    above.all(|path| names.get(path) == Some(&DIRECTORY))
}

impl Inner {
    fn change_name(&mut self, change: NameChange) {
        apply_name(&mut self.names, &change);
        if let NameChange::Rename(from, to) = &change {
            // Unsynced changes of a moved directory apply under its new name.
            for pending in &mut self.name_changes {
                match &mut pending.change {
                    NameChange::Set(path, _) | NameChange::Unset(path) if path != from => {
                        *path = moved_to(path, from, to);
                    }
                    NameChange::Rename(_, path) if path != from => *path = moved_to(path, from, to),
                    _ => {}
                }
            }
        }
        self.name_changes.push(Pending { change, synced: [false; 2] });
    }

    fn number(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.number(path)? {
            DIRECTORY => Err(io::ErrorKind::IsADirectory.into()),
            number => Ok(number),
        }
    }

    /// Checks that the directory of a new name exists.
    fn has_above(&self, path: &Path) -> io::Result<()> {
        match path.parent().filter(|above| above.parent().is_some()) {
            Some(above) if self.number(above)? != DIRECTORY => Err(io::ErrorKind::NotADirectory.into()),
            _ => Ok(()),
        }
    }

    fn is_empty(&self, directory: &Path) -> bool {
        !self.names.keys().any(|path| path.parent() == Some(directory))
    }
}

impl Disk for SimulatedDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        let mut missing: Vec<&Path> = path.ancestors().filter(|path| path.parent().is_some()).collect();
        missing.reverse();
        for directory in missing {
            match inner.number(directory) {
                Ok(DIRECTORY) => {}
                Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
                // A data directory is made before anything depends on it.
                Err(_) if directory.parent().is_some_and(|above| above.parent().is_none()) => {
                    inner.names.insert(directory.to_owned(), DIRECTORY);
                    inner.durable_names.insert(directory.to_owned(), DIRECTORY);
                }
                Err(_) => {
                    inner.operation()?;
                    inner.change_name(NameChange::Set(directory.to_owned(), DIRECTORY));
                }
            }
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let inner = self.0.inner.lock();
        if inner.number(directory)? != DIRECTORY {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let inside = inner.names.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let number = self.0.inner.lock().file(path)?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), number }))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open_to_read(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        inner.has_above(path)?;
        if inner.refuse_runs && path.extension().is_some_and(|end| end == "run") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let number = match inner.file(path) {
            Ok(number) => {
                // The file is the same under all its names.
                let content = &mut inner.contents[number];
                content.volatile.clear();
                content.unsynced.push(Unsynced::Length(0));
                number
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                inner.contents.push(Content::default());
                let number = inner.contents.len() - 1;
                inner.change_name(NameChange::Set(path.to_owned(), number));
                number
            }
            Err(error) => return Err(error),
        };
        Ok(Box::new(SimulatedFile { disk: self.clone(), number }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        inner.has_above(to)?;
        match (inner.number(from)?, inner.number(to)) {
            (DIRECTORY, Ok(DIRECTORY)) if !inner.is_empty(to) => {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            (DIRECTORY, Ok(DIRECTORY)) | (_, Err(_)) => {}
            (DIRECTORY, Ok(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            (_, Ok(DIRECTORY)) => return Err(io::ErrorKind::IsADirectory.into()),
            (_, Ok(_)) => {}
        }
        inner.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        let number = inner.file(from)?;
        inner.has_above(to)?;
        if inner.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if inner.devices.iter().any(|device| from.starts_with(device) != to.starts_with(device)) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        inner.change_name(NameChange::Set(to.to_owned(), number));
        Ok(())
    }

    fn names_of(&self, path: &Path) -> io::Result<u64> {
        let inner = self.0.inner.lock();
        let number = inner.file(path)?;
        Ok(inner.names.values().filter(|other| **other == number).count() as u64)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        inner.file(path)?;
        inner.change_name(NameChange::Unset(path.to_owned()));
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        if inner.number(path)? != DIRECTORY {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if !inner.is_empty(path) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        inner.change_name(NameChange::Unset(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut inner = self.0.inner.lock();
        inner.operation()?;
        let pending = std::mem::take(&mut inner.name_changes);
        for mut one in pending {
            for (synced, of) in one.synced.iter_mut().zip(one.change.directories()) {
                *synced |= of == directory;
            }
            if one.synced == [true; 2] {
                apply_name(&mut inner.durable_names, &one.change);
            } else {
                inner.name_changes.push(one);
            }
        }
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
        let mut inner = self.disk.0.inner.lock();
        inner.reads_waiting += 1;
        self.disk.0.changed.notify_all();
        while inner.hold_reads {
            self.disk.0.changed.wait(&mut inner);
        }
        inner.reads_waiting -= 1;
        inner.reads += 1;
        if inner.fault == Some(Fault::Read(inner.reads)) {
            return Err(io::Error::other("the disk cannot read this"));
        }
        let bytes = &inner.contents[self.number].volatile;
        let from = (offset as usize).min(bytes.len());
        let count = into.len().min(bytes.len() - from);
        into[..count].copy_from_slice(&bytes[from..from + count]);
        if let Some(Fault::FlippedRead(number, bit)) = inner.fault
            && number == inner.reads
            && count > 0
        {
            let bit = bit as usize % (8 * count);
            into[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.disk.0.inner.lock();
        let outcome = inner.operation();
        let short = matches!(inner.fault, Some(Fault::Short(number)) if number == inner.operations);
        let written = match (&outcome, short) {
            (Ok(()), false) => bytes,
            // A failed write may have written any part; this one writes half.
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
