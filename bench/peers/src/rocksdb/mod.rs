//! RocksDB in this process: a catalogue's rows in it, as one would write it with care.
//!
//! | family | key | value |
//! |---|---|---|
//! | `default` | directory u64, name | GUID, md5, size, time, owner, group, mode, job, storage elements |
//! | `guid` | GUID | directory's number, name |
//! | `se` | storage element u16, directory's number, name | |
//! | `directory` | directory's number, name | the number of that directory |
//!
//! Directories are in memory too, as in exacat. A path is resolved there, and only the file's row is read.

mod db;
mod ffi;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exacat_bench::process::own_cpu_s;
use exacat_model::Result;
use parking_lot::RwLock;

use crate::disk::bytes_in;
use crate::peer::{Form, Measure, Peer, Session, Sizes, Workload, failed};
use crate::report::ROCKSDB;
use crate::tree::{self, FileId, Layout};
use db::{Db, FamilySettings, Settings};

const FILE: usize = 0;
const GUID: usize = 1;
const SE: usize = 2;
const DIRECTORY: usize = 3;
const FAMILIES: [FamilySettings; 4] = [
    FamilySettings { name: c"default", looked_up: true, write_buffer_bytes: 64 << 20 },
    FamilySettings { name: c"guid", looked_up: true, write_buffer_bytes: 64 << 20 },
    FamilySettings { name: c"se", looked_up: false, write_buffer_bytes: 64 << 20 },
    FamilySettings { name: c"directory", looked_up: true, write_buffer_bytes: 16 << 20 },
];
/// The number of the root.
const ROOT: u64 = 1;
/// Groups in flight.
const WRITERS: usize = 4;
/// Readers side by side.
const READERS: usize = 2;
/// Owner, group and mode of every file.
const OWNER: (u32, u32, u16) = (0, 0, 0o644);
/// Bytes of a file's row before its storage elements.
const ROW_BYTES: usize = 66;

fn settings(cache_bytes: u64) -> Settings {
    Settings {
        cache_bytes: usize::try_from(cache_bytes).unwrap_or(usize::MAX),
        block_bytes: 8 << 10,
        filter_bits: 10.0,
        background_jobs: 4,
        write_buffers: 4,
        bytes_per_sync: 1 << 20,
        format_version: 5,
        memtable_filter: 0.1,
        recycled_logs: 4,
    }
}

/// A row's key: a directory and a name in it.
fn key(directory: u64, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + name.len());
    key.extend_from_slice(&directory.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

fn se_key(se: u16, row: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 + row.len());
    key.extend_from_slice(&se.to_be_bytes());
    key.extend_from_slice(row);
    key
}

fn row(file: FileId) -> Vec<u8> {
    let mut row = Vec::with_capacity(ROW_BYTES + 4);
    row.extend_from_slice(&file.guid());
    row.extend_from_slice(&file.md5());
    for number in [file.size(), file.created_ms(), file.job()] {
        row.extend_from_slice(&number.to_be_bytes());
    }
    row.extend_from_slice(&OWNER.0.to_be_bytes());
    row.extend_from_slice(&OWNER.1.to_be_bytes());
    row.extend_from_slice(&OWNER.2.to_be_bytes());
    for se in file.ses() {
        row.extend_from_slice(&se.to_be_bytes());
    }
    row
}

/// Row of a file.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    guid: [u8; 16],
    md5: [u8; 16],
    size: u64,
    created_ms: u64,
    job: u64,
    owner: (u32, u32, u16),
    ses: Vec<u16>,
}

impl Row {
    fn read(row: &[u8]) -> Result<Row> {
        let short = || failed(format!("a row of {} bytes", row.len()));
        let (fixed, ses) = row.split_first_chunk::<ROW_BYTES>().ok_or_else(short)?;
        let u64_at =
            |at: usize| fixed[at..at + 8].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let u32_at =
            |at: usize| fixed[at..at + 4].iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        let (mut guid, mut md5) = ([0; 16], [0; 16]);
        guid.copy_from_slice(&fixed[..16]);
        md5.copy_from_slice(&fixed[16..32]);
        Ok(Row {
            guid,
            md5,
            size: u64_at(32),
            created_ms: u64_at(40),
            job: u64_at(48),
            owner: (u32_at(56), u32_at(60), u16::from(fixed[64]) << 8 | u16::from(fixed[65])),
            ses: ses.chunks_exact(2).map(|se| u16::from(se[0]) << 8 | u16::from(se[1])).collect(),
        })
    }
}

fn check(file: FileId, row: &[u8]) -> Result<()> {
    let found = Row::read(row)?;
    if found.size == file.size() && found.ses == file.ses() {
        return Ok(());
    }
    Err(failed(format!("{} is found, but is {found:?}", file.lfn())))
}

/// Directories by the one they are in and their name.
#[derive(Default)]
struct Directories(HashMap<u64, HashMap<Box<str>, u64>>);

impl Directories {
    fn find(&self, parent: u64, name: &str) -> Option<u64> {
        self.0.get(&parent)?.get(name).copied()
    }

    fn insert(&mut self, parent: u64, name: &str, number: u64) {
        self.0.entry(parent).or_default().insert(name.into(), number);
    }

    fn remove(&mut self, parent: u64, name: &str) {
        if let Some(children) = self.0.get_mut(&parent) {
            children.remove(name);
        }
    }

    /// The row of a path's last component.
    fn key_of(&self, path: &str) -> Result<Vec<u8>> {
        let missing = || failed(format!("no directory of {path}"));
        let (above, name) = path.rsplit_once('/').ok_or_else(missing)?;
        let mut number = ROOT;
        for component in above.split('/').filter(|component| !component.is_empty()) {
            number = self.find(number, component).ok_or_else(missing)?;
        }
        Ok(key(number, name))
    }
}

struct Shared {
    db: Db,
    directories: RwLock<Directories>,
    next_directory: AtomicU64,
    /// Time spent asking whether names and GUIDs are free, and on all of those creates, ns.
    checking_ns: AtomicU64,
    creating_ns: AtomicU64,
}

/// RocksDB.
pub struct Rocks {
    shared: Arc<Shared>,
    directory: PathBuf,
    cache_bytes: u64,
}

/// A thread's view of it.
pub struct RocksSession(Arc<Shared>);

impl Shared {
    /// Opens it; directories are read into memory, as exacat does it.
    fn open(directory: &Path, cache_bytes: u64) -> Result<Shared> {
        let db = Db::open(directory, &settings(cache_bytes), &FAMILIES)?;
        let (mut directories, mut last) = (Directories::default(), ROOT);
        db.scan(DIRECTORY, &[], &[0xff; 9], |key, value| {
            let (parent, name) = key.split_first_chunk::<8>().ok_or_else(|| failed("a short key"))?;
            let number = u64::from_be_bytes(value.try_into().map_err(failed)?);
            directories.insert(u64::from_be_bytes(*parent), &String::from_utf8_lossy(name), number);
            last = last.max(number);
            Ok(())
        })?;
        Ok(Shared {
            db,
            directories: RwLock::new(directories),
            next_directory: AtomicU64::new(last + 1),
            checking_ns: AtomicU64::new(0),
            creating_ns: AtomicU64::new(0),
        })
    }

    /// Are all these keys free?
    fn check_free(&self, family: usize, keys: &[Vec<u8>]) -> Result<()> {
        self.db.get_many(family, keys, |place, value| match value {
            None => Ok(()),
            Some(_) => Err(failed(format!("{:02x?} is taken", keys[place]))),
        })
    }

    fn make_directories(&self, names: &[(u64, String)]) -> Result<()> {
        let keys: Vec<Vec<u8>> = names.iter().map(|(parent, name)| key(*parent, name)).collect();
        self.check_free(DIRECTORY, &keys)?;
        let mut batch = self.db.batch()?;
        let mut made = Vec::with_capacity(names.len());
        for key in &keys {
            let number = self.next_directory.fetch_add(1, Ordering::Relaxed);
            batch.put(DIRECTORY, key, &number.to_be_bytes())?;
            made.push(number);
        }
        self.db.write(&mut batch)?;
        let mut directories = self.directories.write();
        for ((parent, name), number) in names.iter().zip(made) {
            directories.insert(*parent, name, number);
        }
        Ok(())
    }

    fn create(&self, files: &[FileId], paths: &[String]) -> Result<()> {
        let start = Instant::now();
        let keys: Vec<Vec<u8>> = {
            let directories = self.directories.read();
            paths.iter().map(|path| directories.key_of(path)).collect::<Result<_>>()?
        };
        let guids: Vec<Vec<u8>> = files.iter().map(|file| file.guid().to_vec()).collect();
        let checking = Instant::now();
        self.check_free(FILE, &keys)?;
        self.check_free(GUID, &guids)?;
        let checked = checking.elapsed();
        let mut batch = self.db.batch()?;
        for (file, (key, guid)) in files.iter().zip(keys.iter().zip(&guids)) {
            batch.put(FILE, key, &row(*file))?;
            batch.put(GUID, guid, key)?;
            for se in file.ses() {
                batch.put(SE, &se_key(se, key), &[])?;
            }
        }
        self.db.write(&mut batch)?;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.checking_ns.fetch_add(ns(checked), Ordering::Relaxed);
        self.creating_ns.fetch_add(ns(start.elapsed()), Ordering::Relaxed);
        Ok(())
    }

    fn look_up(&self, files: &[FileId], paths: &[String]) -> Result<()> {
        let gone = |file: FileId| failed(format!("{} is gone", file.lfn()));
        let directories = self.directories.read();
        if let ([file], [path]) = (files, paths) {
            let key = directories.key_of(path)?;
            drop(directories);
            return self.db.get(FILE, &key, |row| check(*file, row))?.ok_or_else(|| gone(*file))?;
        }
        let keys: Vec<Vec<u8>> = paths.iter().map(|path| directories.key_of(path)).collect::<Result<_>>()?;
        drop(directories);
        self.db.get_many(FILE, &keys, |place, row| {
            let file = files[place];
            check(file, row.ok_or_else(|| gone(file))?)
        })
    }

    fn by_guid(&self, file: FileId) -> Result<()> {
        let gone = || failed(format!("the GUID of {} is gone", file.lfn()));
        let key = self.db.get(GUID, &file.guid(), <[u8]>::to_vec)?.ok_or_else(gone)?;
        self.db.get(FILE, &key, |row| check(file, row))?.ok_or_else(gone)?
    }

    /// Everything about the files of a directory, as a catalogue would give it.
    fn list(&self, number: u64) -> Result<Vec<(String, Row)>> {
        let mut listed = Vec::new();
        self.db.scan(FILE, &number.to_be_bytes(), &(number + 1).to_be_bytes(), |key, row| {
            let name = String::from_utf8_lossy(key.get(8..).unwrap_or_default()).into_owned();
            listed.push((name, Row::read(row)?));
            Ok(())
        })?;
        Ok(listed)
    }

    fn number_of(&self, path: &str) -> Result<u64> {
        let directories = self.directories.read();
        let key = directories.key_of(path)?;
        let number = self.db.get(DIRECTORY, &key, |value| value.try_into().map(u64::from_be_bytes))?;
        number.ok_or_else(|| failed(format!("no directory {path}")))?.map_err(failed)
    }

    /// Files and bytes below a directory of runs: there are no counters, so the rows are read.
    fn usage(&self, run: u64) -> Result<(u64, u64)> {
        let run = self.number_of(&format!("/data/{}", tree::run_name(run)))?;
        let mut below = Vec::new();
        self.db.scan(DIRECTORY, &run.to_be_bytes(), &(run + 1).to_be_bytes(), |_, number| {
            below.push(u64::from_be_bytes(number.try_into().map_err(failed)?));
            Ok(())
        })?;
        let (mut files, mut bytes) = (0, 0);
        for number in below {
            self.db.scan(FILE, &number.to_be_bytes(), &(number + 1).to_be_bytes(), |_, row| {
                files += 1;
                bytes += Row::read(row)?.size;
                Ok(())
            })?;
        }
        Ok((files, bytes))
    }

    fn rename(&self, run: u64, back: bool) -> Result<()> {
        let (plain, moved) = (tree::run_name(run), tree::run_name_moved(run));
        let (from, to) = if back { (moved, plain) } else { (plain, moved) };
        let number = self.number_of(&format!("/data/{from}"))?;
        let mut directories = self.directories.write();
        let data = directories.find(ROOT, "data").ok_or_else(|| failed("no /data"))?;
        self.check_free(DIRECTORY, &[key(data, &to)])?;
        let mut batch = self.db.batch()?;
        batch.delete(DIRECTORY, &key(data, &from))?;
        batch.put(DIRECTORY, &key(data, &to), &number.to_be_bytes())?;
        self.db.write(&mut batch)?;
        directories.remove(data, &from);
        directories.insert(data, &to, number);
        Ok(())
    }
}

impl Session for RocksSession {
    /// The work, and the paths it is about.
    type Prepared = (Workload, Vec<String>);

    fn prepare(&self, work: &Workload) -> Result<Self::Prepared> {
        let paths = match work {
            Workload::MakeDirectories(directories) => directories.clone().map(tree::directory_path).collect(),
            Workload::Create(files) | Workload::LookUp(files) => {
                files.iter().map(|file| file.lfn()).collect()
            }
            Workload::Miss(file) => vec![file.lfn()],
            Workload::List { directory, .. } => vec![tree::directory_path(*directory)],
            Workload::ByGuid(_) | Workload::Rename { .. } | Workload::Usage { .. } => Vec::new(),
        };
        Ok((work.clone(), paths))
    }

    async fn perform(&mut self, (work, paths): Self::Prepared) -> Result<()> {
        let counted = |listed: u64, files: u64| {
            if listed == files { Ok(()) } else { Err(failed(format!("{listed} of {files} files"))) }
        };
        match work {
            Workload::MakeDirectories(_) => {
                let names: Vec<(u64, String)> = {
                    let directories = self.0.directories.read();
                    let named = |path: &String| {
                        let key = directories.key_of(path)?;
                        let (parent, name) =
                            key.split_first_chunk::<8>().ok_or_else(|| failed("a short key"))?;
                        Ok((u64::from_be_bytes(*parent), String::from_utf8_lossy(name).into_owned()))
                    };
                    paths.iter().map(named).collect::<Result<_>>()?
                };
                self.0.make_directories(&names)
            }
            Workload::Create(files) => self.0.create(&files, &paths),
            Workload::LookUp(files) => self.0.look_up(&files, &paths),
            Workload::ByGuid(file) => self.0.by_guid(file),
            Workload::Miss(_) => {
                let path = paths.first().ok_or_else(|| failed("no path"))?;
                let key = self.0.directories.read().key_of(path)?;
                match self.0.db.get(FILE, &key, |_| ())? {
                    None => Ok(()),
                    Some(()) => Err(failed(format!("{path} is found"))),
                }
            }
            Workload::List { files, .. } => {
                let path = paths.first().ok_or_else(|| failed("no path"))?;
                let number = self.0.number_of(path)?;
                counted(self.0.list(number)?.len() as u64, files)
            }
            Workload::Rename { run, back } => self.0.rename(run, back),
            Workload::Usage { run, files } => counted(self.0.usage(run)?.0, files),
        }
    }
}

impl Rocks {
    /// A new one in this directory.
    pub fn start(directory: &Path, cache_bytes: u64) -> Result<Rocks> {
        let shared = Arc::new(Shared::open(directory, cache_bytes)?);
        Ok(Rocks { shared, directory: directory.to_owned(), cache_bytes })
    }
}

impl Peer for Rocks {
    type Session = RocksSession;
    const BLOCKING: bool = true;
    const IN_PROCESS: bool = true;

    fn name(&self) -> &'static str {
        ROCKSDB
    }

    fn settings(&self) -> Vec<String> {
        let set = settings(self.cache_bytes);
        vec![
            format!(
                "in process; rows for file, GUID and each replica; every batch synced, {WRITERS} writers, {READERS} readers; \
                 names and GUIDs are checked by batched look-ups before the write (not one step with it); no usage, no history"
            ),
            format!(
                "{} KiB blocks, LZ4, at the bottom ZSTD; bloom filters of {} bits and indices resident; hashed blocks; {} MiB of \
                 LRU cache; memtables {} x 64 MiB a family, with filters; dynamic level sizes; {} background threads; logs recycled; \
                 pipelined writes",
                set.block_bytes >> 10,
                set.filter_bits,
                set.cache_bytes >> 20,
                set.write_buffers,
                set.background_jobs
            ),
        ]
    }

    fn forms(&self, measure: Measure) -> &'static [Form] {
        match measure {
            Measure::CreateSingle => &[],
            _ => &[""],
        }
    }

    async fn set_up(&self, layout: &Layout) -> Result<()> {
        self.shared.make_directories(&[(ROOT, "data".to_owned())])?;
        let data = self.shared.directories.read().find(ROOT, "data").ok_or_else(|| failed("no /data"))?;
        let runs: Vec<(u64, String)> = (0..layout.runs()).map(|run| (data, tree::run_name(run))).collect();
        runs.chunks(tree::GROUP as usize).try_for_each(|runs| self.shared.make_directories(runs))
    }

    async fn sessions(&self, measure: Measure, _form: Form) -> Result<Vec<RocksSession>> {
        let count = match measure {
            Measure::CreateGroups | Measure::MakeDirectories => WRITERS,
            Measure::Rename | Measure::Scan | Measure::Usage => 1,
            _ => READERS,
        };
        Ok((0..count).map(|_| RocksSession(Arc::clone(&self.shared))).collect())
    }

    fn cpu_s(&self) -> f64 {
        own_cpu_s()
    }

    async fn flush(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let flush = move || (0..FAMILIES.len()).try_for_each(|family| shared.db.flush(family));
        tokio::task::spawn_blocking(flush).await.map_err(failed)?
    }

    async fn is_busy(&self) -> Result<bool> {
        let mut busy = false;
        for family in 0..FAMILIES.len() {
            for name in [
                c"rocksdb.compaction-pending",
                c"rocksdb.num-running-compactions",
                c"rocksdb.num-running-flushes",
            ] {
                busy |= self.shared.db.figure(family, name)? != Some(0);
            }
        }
        Ok(busy)
    }

    fn sizes(&self) -> Result<Sizes> {
        Ok(Sizes {
            data: bytes_in(&self.directory, |name| name.ends_with(".sst"))?,
            log: bytes_in(&self.directory, |name| name.ends_with(".log"))?,
        })
    }

    fn notes(&self, measure: Measure) -> Vec<String> {
        let (checking, all) = (&self.shared.checking_ns, &self.shared.creating_ns);
        let all = all.load(Ordering::Relaxed);
        if measure != Measure::CreateGroups || all == 0 {
            return Vec::new();
        }
        let share = 100.0 * checking.load(Ordering::Relaxed) as f64 / all as f64;
        vec![format!("asking whether names and GUIDs are free took {share:.0} % of the time of its groups")]
    }

    async fn kill_and_open(self, file: FileId) -> Result<(Rocks, Duration)> {
        let Rocks { shared, directory, cache_bytes } = self;
        // It is closed without a flush: what is in memtables must come from its log.
        let shared = Arc::into_inner(shared).ok_or_else(|| failed("RocksDB is still being asked"))?;
        let open = move || {
            drop(shared);
            let start = Instant::now();
            let rocks = Rocks::start(&directory, cache_bytes)?;
            rocks.shared.look_up(&[file], &[file.lfn()])?;
            Ok((rocks, start.elapsed()))
        };
        tokio::task::spawn_blocking(open).await.map_err(failed)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row says what was put into it, and one that is cut off is an error.
    #[test]
    fn rows_are_read_as_written() {
        let file = FileId { directory: 700, number: 3 };
        let bytes = row(file);
        let read = Row::read(&bytes).unwrap();
        let expected = Row {
            guid: file.guid(),
            md5: file.md5(),
            size: file.size(),
            created_ms: file.created_ms(),
            job: file.job(),
            owner: OWNER,
            ses: file.ses().to_vec(),
        };
        assert_eq!(read, expected);
        assert!(check(file, &bytes).is_ok());
        assert!(check(FileId { number: 4, ..file }, &bytes).is_err());
        assert!(Row::read(&bytes[..ROW_BYTES - 1]).is_err());
    }
}
