//! Speed of the table: CPU time per operation, over catalogues of several sizes and numbers of
//! runs. It prints, and is no test that can fail.
//!
//! `cargo test --release -p exacat-store-embedded -- table::speed --ignored --nocapture`
//!
//! Variables: `SPEED_MILLIONS_OF_ROWS=2,8` sets the sizes, `SPEED_RUNS=16,8,1` the numbers of runs,
//! `SPEED_ONLY=path` the measurements, `SPEED_ROUNDS=3` the repetitions.

#![allow(clippy::print_stdout, reason = "metrics are what it is for")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile, RealDisk};
use exacat_model::{
    At, Body, Checksum, ChecksumAlgorithm, Checksums, DirId, Entry, File, GroupId, Guid, Lfn, Location, Mode,
    Name, Replica, ReplicaState, Revision, SeNumber, TimeMs, UserId,
};

use super::{From, Table, Version, merge_runs, write_memtable};
use crate::memtable::Memtable;
use crate::page::RowRoom;
use crate::run::{Cache, Held, Run, RunHead, RunWriter};
use crate::state::{Above, Directory, Hints, State};

/// Allocator of the server: allocation is a good part of making an entry.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CATALOGUE: [u8; 16] = [1; 16];
const RUNS: usize = 16;
const FILES_PER_DIRECTORY: u64 = 1000;
/// Cache size at which nothing is read from the disk twice.
const CACHE_BYTES: u64 = 4 << 30;
const BATCH: usize = 128;

/// Spreads numbers.
fn scatter(number: u64) -> u64 {
    let mixed = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
}

/// Returns the CPU time of this thread so far, in microseconds.
fn cpu_us() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1000.0
}

/// Runs a selected measurement; prints the best of three rounds, because the machine serves others
/// too.
fn measure(what: &str, count: u64, mut work: impl FnMut()) {
    if std::env::var("SPEED_ONLY").is_ok_and(|only| !what.contains(&only) && !what.starts_with('(')) {
        return;
    }
    let rounds = std::env::var("SPEED_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let best = (0..rounds).map(|_| {
        let before = cpu_us();
        work();
        cpu_us() - before
    });
    print(what, best.fold(f64::MAX, f64::min), count);
}

/// Measures the machine's present speed for comparison: dependent reads of memory, and
/// multiplications.
fn reference() {
    const WORDS: usize = 64 << 20;
    let words: Vec<u32> = (0..WORDS as u64).map(|number| scatter(number) as u32 % WORDS as u32).collect();
    let mut at = 1usize;
    measure("(reference: a read of 256 MiB)", 1_000_000, || {
        (0..1_000_000u32).for_each(|number| at = (words[at] ^ number) as usize % WORDS);
        black_box(at);
    });
    let mut value = 1u64;
    measure("(reference: 100 multiplications)", 1_000_000, || {
        (0..100_000_000).for_each(|_| value = black_box(value).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    });
}

fn print(what: &str, cpu_us: f64, count: u64) {
    let each = cpu_us / count as f64;
    println!("  {what:<46} {each:>8.3} us {:>12.0} /s", 1e6 / each);
}

/// Files of a catalogue: the first eighth in one directory, the others in directories of a thousand
/// each.
#[derive(Clone, Copy)]
struct Files {
    rows: u64,
}

impl Files {
    const ONE: DirId = DirId(8);
    /// Number of directories before the first of the many. After them each has two numbers, its own
    /// the second.
    const BEFORE: u64 = 10;

    fn in_one(self) -> u64 {
        self.rows / 8
    }

    fn many(self) -> u64 {
        (self.rows - self.in_one()).div_ceil(FILES_PER_DIRECTORY)
    }

    fn place(self, file: u64) -> Option<u64> {
        Some(file.checked_sub(self.in_one())? / FILES_PER_DIRECTORY)
    }

    fn directory(self, file: u64) -> DirId {
        self.place(file).map_or(Self::ONE, |place| DirId(Self::BEFORE + 2 * place + 1))
    }

    fn name(file: u64) -> String {
        format!("26000{file:09}{:03}.{:012x}.AO2D.root", file % 997, scatter(file) >> 16)
    }

    fn lfn(self, file: u64) -> Lfn {
        let path = match self.place(file) {
            None => "/bench/data/2026/one".to_owned(),
            Some(place) => format!("/bench/data/2026/{:09}/raw", 526_000 + place),
        };
        Lfn::parse(&format!("{path}/{}", Self::name(file))).unwrap()
    }

    fn guid(file: u64) -> Guid {
        let mut guid = [0; 16];
        guid[..8].copy_from_slice(&scatter(file).to_le_bytes());
        guid[8..].copy_from_slice(&scatter(file ^ (1 << 50)).to_le_bytes());
        Guid(guid)
    }

    fn entry(self, file: u64) -> Entry {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&scatter(!file).to_le_bytes());
        digest[8..].copy_from_slice(&scatter(file << 7).to_le_bytes());
        let replica = |offset: u64| Replica {
            se: SeNumber(((file / 7 + offset) % 30) as u16 + 1),
            state: ReplicaState::Available,
            location: Location::Derived,
        };
        let time = TimeMs(1_790_000_000_000 + file / 10);
        Entry {
            at: At { parent: self.directory(file), name: Name::parse(&Self::name(file)).unwrap() },
            owner: UserId(7),
            group: GroupId(3),
            mode: Mode::FILE,
            created: time,
            modified: time,
            revision: Revision(file + 1),
            expires: None,
            tags: Vec::new(),
            body: Body::File(File {
                guid: Self::guid(file),
                size: Some(1_000_000_000 + scatter(file) % 3_000_000_000),
                checksums: Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &digest).unwrap()),
                job: None,
                replicas: vec![replica(0), replica(1)],
            }),
        }
    }

    /// Returns some of them, the same each time.
    fn random(self, count: u64, among: std::ops::Range<u64>) -> Vec<u64> {
        (0..count).map(|number| among.start + scatter(number + 77) % (among.end - among.start)).collect()
    }

    /// Builds a state with the directories, over these runs.
    fn state(self, runs: &[Arc<Run>], cache_bytes: u64) -> State {
        let cache = Arc::new(Cache::new(cache_bytes));
        let mut state = State::new(5, Arc::clone(&cache)).unwrap();
        let directory = |above: u64, name: &str| {
            Directory::new(Above::Directory(DirId(above)), name, UserId(1), GroupId(1), Mode::DIRECTORY)
        };
        let mut put = |number, above, name: &str| {
            state.directories.insert(DirId(number), directory(above, name)).unwrap();
        };
        put(2, 1, "bench");
        put(3, 2, "data");
        put(4, 3, "2026");
        put(Self::ONE.0, 4, "one");
        for place in 0..self.many() {
            put(Self::BEFORE + 2 * place, 4, &format!("{:09}", 526_000 + place));
            put(Self::BEFORE + 2 * place + 1, Self::BEFORE + 2 * place, "raw");
        }
        state.table = Table::new(Arc::new(Version { runs: runs.to_vec() }), cache, 5);
        state
    }
}

fn create(directory: &Path, number: u64, rows_max: u64) -> RunWriter {
    let file =
        |name: String| -> Arc<dyn DiskFile> { Arc::from(RealDisk.create(&directory.join(name)).unwrap()) };
    let head = RunHead { catalogue: CATALOGUE, number, salt: scatter(number) };
    RunWriter::new(file(format!("{number}")), file("scratch".to_owned()), head, rows_max, 4 << 20).unwrap()
}

fn open(directory: &Path, number: u64) -> Arc<Run> {
    let file = Arc::from(RealDisk.open_to_read(&directory.join(number.to_string())).unwrap());
    Arc::new(Run::open(&number.to_string(), file, CATALOGUE).unwrap())
}

/// Makes runs with all files, each file in a random one.
fn flush(directory: &Path, files: Files) -> Vec<Arc<Run>> {
    let mut memtables: Vec<Memtable> = (0..RUNS as u64).map(Memtable::new).collect();
    let mut room = RowRoom::default();
    // The order is that of registration, several at a time.
    let mut entries = Vec::new();
    let (mut making, mut putting) = (0.0, 0.0);
    for first in (0..files.rows).step_by(4096) {
        let before = cpu_us();
        entries.clear();
        entries.extend((first..files.rows.min(first + 4096)).map(|file| files.entry(file)));
        let made = cpu_us();
        for entry in &entries {
            let run = scatter(entry.revision.0 ^ 0x5555) as usize % RUNS;
            memtables[run].put(&room.row(entry)).unwrap();
        }
        making += made - before;
        putting += cpu_us() - made;
    }
    print("put, memtables", putting, files.rows);
    print("(entries made for that)", making, files.rows);
    let mut numbers = Vec::new();
    let before = cpu_us();
    for (number, memtable) in (100u64..).zip(&memtables) {
        write_memtable(memtable, [], create(directory, number, memtable.rows() as u64)).unwrap();
        numbers.push(number);
    }
    print("flush", cpu_us() - before, files.rows);
    numbers.into_iter().map(|number| open(directory, number)).collect()
}

fn merge(directory: &Path, runs: Vec<Arc<Run>>, into: usize) -> Vec<Arc<Run>> {
    let rows: u64 = runs.iter().map(|run| run.rows().0).sum();
    let together = runs.len() / into;
    let mut numbers = Vec::new();
    let before = cpu_us();
    for (number, runs) in (0u64..).zip(runs.chunks(together)) {
        let number = number + 1000 * runs.len() as u64;
        let rows = runs.iter().map(|run| run.rows().0).sum();
        merge_runs(runs, false, |_| true, create(directory, number, rows), |_| true).unwrap();
        numbers.push(number);
    }
    print(&format!("merge, {together} to one"), cpu_us() - before, rows);
    for run in &runs {
        std::fs::remove_file(directory.join(run.number().to_string())).unwrap();
    }
    numbers.into_iter().map(|number| open(directory, number)).collect()
}

fn look_up(files: Files, runs: &[Arc<Run>]) {
    let memory: usize = runs.iter().map(|run| run.memory_bytes()).sum();
    println!(
        "{} rows in {} runs, {:.2} bytes of memory a row",
        files.rows,
        runs.len(),
        memory as f64 / files.rows as f64
    );
    reference();
    let state = files.state(runs, CACHE_BYTES);
    let (hints, held) = (Hints::new(), Held::default());
    let look = state.look_with(None);
    let many = files.in_one()..files.rows;
    // One pass loads everything into memory.
    let mut rows = state.table.view(None).from(From::START).unwrap();
    while rows.next().unwrap().is_some() {}
    let sample = files.random(400_000, many.clone());
    let names: Vec<(DirId, String)> =
        sample.iter().map(|file| (files.directory(*file), Files::name(*file))).collect();
    let near: Vec<(DirId, String)> =
        (many.start..many.start + 400_000).map(|file| (files.directory(file), Files::name(file))).collect();
    for file in &sample {
        // This also loads the blocks of GUIDs into memory.
        assert!(look.has_guid(Files::guid(*file)).unwrap());
    }
    let hurried = state.look_with(Some(&held));
    let found = |names: &[(DirId, String)]| {
        for (directory, name) in names {
            let row =
                hurried.view.find(*directory, name.as_bytes(), |row| row.unwrap().found_file(0).unwrap());
            black_box(row.unwrap().unwrap());
        }
    };
    measure("file by name, random", 400_000, || found(&names));
    measure("file by name, one directory after the other", 400_000, || found(&near));
    let paths = |files_of: Vec<u64>| -> Vec<Lfn> { files_of.iter().map(|file| files.lfn(*file)).collect() };
    let random = paths(sample.clone());
    let near: Vec<Lfn> = paths((many.start..many.start + 400_000).collect());
    let one: Vec<Lfn> = paths(files.random(400_000, 0..files.in_one()));
    let walk = |paths: &[Lfn], batch: usize| {
        for paths in paths.chunks(batch) {
            let found = hurried.files(&hints, paths).unwrap();
            assert!(found.0.found.iter().all(Option::is_some));
            black_box(found);
        }
    };
    walk(&random, BATCH);
    measure("path, random, 128 in a batch", 400_000, || walk(&random, BATCH));
    measure("path, directory after directory, 128", 400_000, || walk(&near, BATCH));
    measure("path, one directory, random in it, 128", 400_000, || walk(&one, BATCH));
    measure("path, random, alone", 400_000, || walk(&random, 1));
    let missed: Vec<(DirId, String)> =
        sample.iter().map(|file| (files.directory(*file), format!("{}x", Files::name(*file)))).collect();
    measure("name that is not there", 400_000, || {
        for (directory, name) in &missed {
            assert!(!black_box(hurried.view.has(*directory, name.as_bytes())).unwrap());
        }
    });
    measure("GUID that is not there", 400_000, || {
        for file in &sample {
            assert!(!black_box(hurried.has_guid(Files::guid(*file ^ (1 << 45)))).unwrap());
        }
    });
    measure("has GUID", 400_000, || {
        for file in &sample {
            assert!(hurried.has_guid(Files::guid(*file)).unwrap());
        }
    });
    measure("first page of the one directory, 1000 entries", 100, || {
        for _ in 0..100 {
            black_box(look.list(Files::ONE, None, 1000)).unwrap();
        }
    });
    measure("list, the one directory by pages of 1000", files.in_one(), || {
        let (mut after, mut seen) = (None, 0);
        loop {
            let page = look.list(Files::ONE, after.as_ref(), 1000).unwrap().0.unwrap();
            seen += page.items.len() as u64;
            after = page.items.last().map(|entry| entry.at.name.clone());
            if !page.more {
                break;
            }
        }
        assert_eq!(seen, files.in_one());
    });
    measure("list, directories of 1000", files.rows - files.in_one(), || {
        for place in 0..files.many() {
            let directory = DirId(Files::BEFORE + 2 * place + 1);
            black_box(look.list(directory, None, 1000).unwrap().0.unwrap());
        }
    });
    measure("rows in order, not made entries", files.rows, || {
        let mut rows = state.table.view(None).from(From::START).unwrap();
        while let Some(row) = rows.next().unwrap() {
            black_box(row.size);
        }
    });
    measure("empty directory", 100_000, || {
        for number in 0..100_000u64 {
            let directory = DirId(Files::BEFORE + 2 * (number % files.many()));
            black_box(look.list(directory, None, 1000).unwrap().0.unwrap());
        }
    });
    let cold = files.state(runs, 1 << 20);
    let cold_look = cold.look_with(None);
    measure("file by name, random, from the disk's cache", 100_000, || {
        for (directory, name) in &names[..100_000] {
            let row =
                cold_look.view.find(*directory, name.as_bytes(), |row| row.unwrap().found_file(0).unwrap());
            black_box(row.unwrap().unwrap());
        }
    });
}

#[test]
#[ignore = "measures, and takes minutes"]
fn speed() {
    let millions = std::env::var("SPEED_MILLIONS_OF_ROWS").unwrap_or_else(|_| "2,8".to_owned());
    for millions in millions.split(',') {
        let files = Files { rows: millions.parse::<u64>().unwrap() * 1_000_000 };
        let directory = tempfile::tempdir().unwrap();
        println!("\n{} rows, made", files.rows);
        let mut runs = flush(directory.path(), files);
        let numbers = std::env::var("SPEED_RUNS").unwrap_or_else(|_| "16,8,1".to_owned());
        for number in numbers.split(',') {
            let number = number.parse().unwrap();
            if number < runs.len() {
                runs = merge(directory.path(), runs, number);
            }
            look_up(files, &runs);
        }
    }
}
