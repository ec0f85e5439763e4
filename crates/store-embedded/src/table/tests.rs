//! The table against a map, through any order of freezing, writing and merging.

use std::path::Path;
use std::sync::Arc;

use exacat_model::{DirId, Entry, Guid, Revision};

use super::{From, Version, View, merge_runs, write_memtable};
use crate::disk::{Disk, RealDisk};
use crate::memtable::Memtable;
use crate::page::tests::{Model, Random, check_row, entry};
use crate::page::{Row, RowRoom};
use crate::run::{Cache, Run, RunHead, RunWriter};

struct Bench<'d> {
    directory: &'d Path,
    runs: u64,
    active: Memtable,
    frozen: Vec<Arc<Memtable>>,
    version: Version,
    cache: Cache,
}

impl Bench<'_> {
    fn view(&self) -> View<'_> {
        View { active: &self.active, frozen: &self.frozen, version: &self.version, cache: &self.cache }
    }

    fn writer(&mut self, rows_max: u64) -> RunWriter {
        self.runs += 1;
        let file = |name: &str| Arc::from(RealDisk.create(&self.directory.join(name)).unwrap());
        let head = RunHead { catalogue: [1; 16], number: self.runs, salt: self.runs * 77 };
        RunWriter::new(file(&format!("{}", self.runs)), file("scratch"), head, rows_max, 1000).unwrap()
    }

    fn open(&self, number: u64) -> Arc<Run> {
        let file = Arc::from(RealDisk.open_to_read(&self.directory.join(number.to_string())).unwrap());
        Arc::new(Run::open(&number.to_string(), file, [1; 16]).unwrap())
    }

    fn freeze(&mut self) {
        let active = std::mem::replace(&mut self.active, Memtable::new(self.runs));
        self.frozen.insert(0, Arc::new(active));
    }

    /// Writes the oldest frozen memtable.
    fn write(&mut self) {
        let Some(oldest) = self.frozen.pop() else { return };
        let writer = self.writer(oldest.rows() as u64);
        write_memtable(&oldest, writer).unwrap();
        let run = self.open(self.runs);
        self.version.runs.insert(0, run);
    }

    /// Merges some neighbours.
    fn merge(&mut self, random: &mut Random) {
        let runs = self.version.runs.len();
        if runs < 2 {
            return;
        }
        let from = random.next(runs as u64 - 1) as usize;
        let to = from + 2 + random.next((runs - from - 1) as u64) as usize;
        let chosen: Vec<Arc<Run>> = self.version.runs[from..to].to_vec();
        let writer = self.writer(chosen.iter().map(|run| run.rows().0).sum());
        let below = to < runs;
        assert!(merge_runs(&chosen, below, &self.cache, writer, |_| true).unwrap().is_some());
        let merged = self.open(self.runs);
        if !below {
            assert_eq!(merged.rows().1, 0, "nothing older is hidden, so nothing says that it is gone");
        }
        self.version.runs.splice(from..to, [merged]);
    }
}

/// Goal: whatever is in memory, frozen or in runs of any age, the newest row of each key is what is there; by name, by
/// GUID, in order from anywhere. Method: random changes, moves among them, with freezing, writing and merging between
/// them at any moment, against a map.
#[test]
fn the_newest_row_is_what_is_there() {
    for seed in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench {
            directory: directory.path(),
            runs: 0,
            active: Memtable::new(seed),
            frozen: Vec::new(),
            version: Version::default(),
            cache: Cache::new(1 << 20),
        };
        let random = &mut Random(seed);
        let (mut model, mut room) = (Model::new(), RowRoom::default());
        let mut once: Vec<Guid> = Vec::new();
        for step in 0..12_000u64 {
            let parent = 5 + random.next(6);
            let name = format!("f{:03}.root", random.next(200));
            let key = (parent, name.clone().into_bytes());
            let there = model.get(&key).cloned();
            match (there, random.next(4)) {
                (Some(_), 0) => {
                    bench.active.put(&Row::gone(DirId(parent), name.as_bytes(), Revision(step))).unwrap();
                    model.remove(&key);
                }
                (Some(Some(mut moved)), 1) => {
                    // To another name, with its GUID.
                    let other = format!("g{:03}.root", random.next(400));
                    let place = (parent + 1, other.clone().into_bytes());
                    if !model.contains_key(&place) {
                        bench.active.put(&Row::gone(DirId(parent), name.as_bytes(), Revision(step))).unwrap();
                        model.remove(&key);
                        moved.at.parent = DirId(parent + 1);
                        moved.at.name = exacat_model::Name::parse(&other).unwrap();
                        bench.active.put(&room.row(&moved)).unwrap();
                        model.insert(place, Some(moved));
                    }
                }
                (there, _) => {
                    let mut new = entry(random, parent, &name);
                    if let (Some(Some(old)), true) = (there, step % 2 == 0) {
                        new.body = old.body;
                    }
                    once.extend(new.guid());
                    bench.active.put(&room.row(&new)).unwrap();
                    model.insert(key, Some(new));
                }
            }
            match random.next(600) {
                0 => bench.freeze(),
                1 => bench.write(),
                2 => bench.merge(random),
                _ => {}
            }
            if step % 2000 == 1999 {
                check(&bench.view(), &model, &once, random);
            }
        }
        assert!(bench.runs > 5);
    }
}

fn check(view: &View<'_>, model: &Model, once: &[Guid], random: &mut Random) {
    let mut all = view.from(From::START).unwrap();
    for (key, entry) in model {
        check_row(&all.next_there().unwrap().unwrap(), key, entry);
        view.find(DirId(key.0), &key.1, |row| check_row(row.unwrap(), key, entry)).unwrap();
        if let Some(guid) = entry.as_ref().and_then(Entry::guid) {
            assert_eq!(view.find_guid(guid).unwrap(), Some((DirId(key.0), key.1.clone())));
        }
    }
    assert_eq!(all.next_there().unwrap(), None);
    let there: std::collections::HashSet<Guid> =
        model.values().filter_map(|entry| entry.as_ref().and_then(Entry::guid)).collect();
    for guid in once {
        assert_eq!(view.find_guid(*guid).unwrap().is_some(), there.contains(guid));
    }
    for _ in 0..200 {
        let (directory, name) = (4 + random.next(10), format!("f{:03}.root", random.next(220)));
        let key = (directory, name.clone().into_bytes());
        assert_eq!(
            view.find(DirId(directory), name.as_bytes(), |row| row.is_some()).unwrap(),
            model.contains_key(&key)
        );
        for after in [false, true] {
            let wanted = model.iter().find(|(other, _)| if after { **other > key } else { **other >= key });
            let from = From { directory: DirId(directory), name: name.as_bytes(), after };
            match (view.from(from).unwrap().next_there().unwrap(), wanted) {
                (None, None) => {}
                (Some(row), Some((key, entry))) => check_row(&row, key, entry),
                (row, wanted) => panic!("{row:?} instead of {wanted:?}"),
            }
        }
    }
}

/// Goal: a merge that is told to stop leaves nothing behind that could be taken for a run.
#[test]
fn a_merge_that_is_stopped_makes_no_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench {
        directory: directory.path(),
        runs: 0,
        active: Memtable::new(1),
        frozen: Vec::new(),
        version: Version::default(),
        cache: Cache::new(1 << 20),
    };
    for round in 0..2 {
        for number in 0..500u64 {
            let name = format!("{round}-{number}");
            bench.active.put(&RowRoom::default().row(&entry(&mut Random(number), 5, &name))).unwrap();
        }
        bench.freeze();
        bench.write();
    }
    let runs = bench.version.runs.clone();
    let writer = bench.writer(1000);
    let mut rows = 0;
    let stopped = merge_runs(&runs, true, &bench.cache, writer, |writer| {
        rows = writer.rows();
        rows < 300
    });
    assert_eq!((stopped.unwrap(), rows), (None, 300));
    let file = Arc::from(RealDisk.open_to_read(&directory.path().join("3")).unwrap());
    assert!(Run::open("3", file, [1; 16]).is_err());
}
