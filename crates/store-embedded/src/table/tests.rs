//! Compares the table with a map, through any order of freezing, writing and compaction.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, RealDisk};
use exacat_model::{DirId, Entry, Guid, Revision};
use exacat_store::MetricValue;

use super::run_set::Begun;
use super::{From, RunSet, Version, View, merge_runs, write_memtable};
use crate::memtable::Memtable;
use crate::metric_table;
use crate::page::tests::{Model, Random, check_row, entry};
use crate::page::{Row, RowRoom};
use crate::run::{Cache, Reading, Run, RunHead, RunWriter};
use exacat_testkit::simulated::{Fault, Random as SimulatedRandom, SimulatedDisk};

struct Bench<'d> {
    directory: &'d Path,
    runs: u64,
    active: Memtable,
    frozen: Vec<Arc<Memtable>>,
    version: Version,
    cache: Cache,
}

impl<'d> Bench<'d> {
    fn new(directory: &'d Path, seed: u64) -> Self {
        Bench {
            directory,
            runs: 0,
            active: Memtable::new(seed),
            frozen: Vec::new(),
            version: Version::default(),
            cache: Cache::new(1 << 20),
        }
    }

    fn view(&self) -> View<'_> {
        let reading = Reading::waiting(&self.cache);
        View { active: Some(&self.active), frozen: &self.frozen, version: &self.version, reading }
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

    /// Purges an entry.
    fn purge(&mut self, entry: Option<&Entry>, step: u64) {
        if let Some(guid) = entry.and_then(Entry::guid) {
            self.active.put(&Row::purged(&guid, Revision(step))).unwrap();
        }
    }

    fn freeze(&mut self) {
        let active = std::mem::replace(&mut self.active, Memtable::new(self.runs));
        self.frozen.insert(0, Arc::new(active));
    }

    /// Writes the oldest frozen memtable.
    fn write(&mut self) {
        let Some(oldest) = self.frozen.pop() else { return };
        let writer = self.writer(oldest.rows() as u64);
        write_memtable(&oldest, [], writer).unwrap();
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
        assert!(merge_runs(&chosen, below, |_| true, writer, |_| true).unwrap().is_some());
        let merged = self.open(self.runs);
        if !below {
            assert_eq!(merged.rows().1, 0, "nothing older is hidden, so nothing says that it is gone");
        }
        self.version.runs.splice(from..to, [merged]);
    }
}

/// Goal: the newest row of each key is found, in memory, frozen or in runs of any age; by name, by
/// GUID, and in order from anywhere. Method: random changes and moves, with freezing, writing and
/// compaction at any moment between them, against a map.
#[test]
fn the_newest_row_is_what_is_there() {
    for seed in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::new(directory.path(), seed);
        let random = &mut Random(seed);
        let (mut model, mut room) = (Model::new(), RowRoom::default());
        let mut once: Vec<Guid> = Vec::new();
        for step in 0..12_000u64 {
            let parent = 5 + random.next(6);
            let name = format!("f{:03}.root", random.next(200));
            let key = (parent, name.clone().into_bytes());
            let there = model.get(&key).cloned();
            match (there, random.next(4)) {
                (Some(gone), 0) => {
                    bench.active.put(&Row::gone(DirId(parent), name.as_bytes(), Revision(step))).unwrap();
                    bench.purge(gone.as_ref(), step);
                    model.remove(&key);
                }
                (Some(Some(mut moved)), 1) => {
                    // Moves the file to another name, with its GUID.
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
                    match there {
                        Some(Some(old)) if step % 2 == 0 => new.body = old.body,
                        Some(old) => bench.purge(old.as_ref(), step),
                        None => {
                            // A purged GUID may come again.
                            let again = once.get(random.next(once.len() as u64 + 1) as usize).copied();
                            if let (Some(again), exacat_model::Body::File(file)) = (again, &mut new.body)
                                && !model.values().flatten().any(|entry| entry.guid() == Some(again))
                            {
                                file.guid = again;
                            }
                        }
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
            view.find_guid(guid, |row| check_row(row.unwrap(), key, entry)).unwrap();
        }
    }
    assert_eq!(all.next_there().unwrap(), None);
    let there: HashSet<Guid> =
        model.values().filter_map(|entry| entry.as_ref().and_then(Entry::guid)).collect();
    for guid in once {
        assert_eq!(view.find_guid(*guid, |row| row.is_some()).unwrap(), there.contains(guid));
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

/// Goal: the metrics of tiers count the runs that are being merged, and no others.
#[test]
fn metrics_of_tiers_count_runs_that_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(directory.path(), 1);
    // Two runs of one tier, and a much larger one.
    for (run, rows) in [(1, 10), (2, 10), (3, 5000)] {
        for number in 0..rows {
            let name = format!("{run}-{number}");
            bench.active.put(&RowRoom::default().row(&entry(&mut Random(number), 5, &name))).unwrap();
        }
        bench.freeze();
        bench.write();
    }
    let merging = |numbers: &[u64]| -> Vec<MetricValue> {
        let samples = bench.version.metrics(&numbers.iter().copied().collect()).into_iter();
        let counts = samples.filter(|sample| std::ptr::eq(sample.metric, &metric_table::TIER_MERGING));
        counts.map(|sample| sample.value).collect()
    };
    let number = MetricValue::Number;
    assert_eq!(merging(&[]), [number(0), number(0)]);
    // A merged run may be gone from the list already.
    assert_eq!(merging(&[1, 2, 99]), [number(2), number(0)]);
    assert_eq!(merging(&[3]), [number(0), number(1)]);
}

/// Goal: an interrupted compaction leaves nothing behind that could pass for a run.
#[test]
fn a_merge_that_is_stopped_makes_no_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(directory.path(), 1);
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
    let stopped = merge_runs(
        &runs,
        true,
        |_| true,
        writer,
        |writer| {
            rows = writer.rows();
            rows < 300
        },
    );
    assert_eq!((stopped.unwrap(), rows), (None, 300));
    let file = Arc::from(RealDisk.open_to_read(&directory.path().join("3")).unwrap());
    assert!(Run::open("3", file, [1; 16]).is_err());
}

/// Goal: after a power cut at any moment, the manifest's runs are whole and complete up to its
/// revision, and no other files remain. Method: random rows, runs and compactions on the simulated
/// disk. The disk is cut off at any operation, opened again on any image that the cut may leave,
/// and used further.
#[test]
fn a_power_cut_leaves_the_runs_of_one_revision() {
    let mut cuts = 0;
    for seed in 0..150 {
        let random = &mut SimulatedRandom(seed);
        let mut disk = SimulatedDisk::default();
        let mut history: Vec<Model> = vec![Model::new()];
        for _ in 0..6 {
            cuts += 1;
            let operations = disk.operations() + 1 + random.next(120);
            disk.set_fault(Some(Fault::PowerCut(operations)));
            let _cut_off = work(&disk, random, &mut history);
            disk = disk.image(random);
            let run_set = RunSet::open(disk.shared(), Path::new("/runs"), [1; 16]).unwrap();
            let revision = run_set.revision().0.0 as usize;
            assert!(revision + 2 >= history.len(), "seed {seed}: {revision} of {}", history.len());
            history.truncate(revision + 1);
            let (active, cache) = (Memtable::new(1), Cache::new(1 << 20));
            let reading = Reading::waiting(&cache);
            let view = View { active: Some(&active), frozen: &[], version: run_set.version(), reading };
            let mut all = view.from(From::START).unwrap();
            for (key, entry) in &history[revision] {
                check_row(&all.next_there().unwrap().unwrap(), key, entry);
            }
            assert_eq!(all.next_there().unwrap(), None);
            let files = disk.files("").len();
            assert!(
                files <= run_set.version().runs.len() + 2,
                "{files} files of {} runs",
                run_set.version().runs.len()
            );
        }
    }
    assert!(cuts > 500);
}

/// Adds rows, run by run, and merges, until the disk fails. The state of revision n is
/// `history[n]`.
fn work(
    disk: &SimulatedDisk,
    random: &mut SimulatedRandom,
    history: &mut Vec<Model>,
) -> exacat_model::Result<()> {
    let mut run_set = RunSet::open(disk.shared(), Path::new("/runs"), [1; 16])?;
    let mut room = RowRoom::default();
    loop {
        let mut model = history.last().cloned().unwrap_or_default();
        let mut memtable = Memtable::new(3);
        for _ in 0..1 + random.next(60) {
            let (parent, name) = (5 + random.next(3), format!("f{:02}", random.next(40)));
            let key = (parent, name.clone().into_bytes());
            if random.chance(3) && model.remove(&key).is_some() {
                memtable.put(&Row::gone(DirId(parent), name.as_bytes(), Revision(1)))?;
            } else {
                let new = entry(&mut Random(random.next(1 << 40)), parent, &name);
                memtable.put(&room.row(&new))?;
                model.insert(key, Some(new));
            }
        }
        // The run may count even if the call fails.
        history.push(model);
        let revision = Revision(history.len() as u64 - 1);
        let Begun { number, writer } = run_set.begin(memtable.rows() as u64)?;
        let rows = write_memtable(&memtable, [], writer)?;
        run_set.add(number, rows, revision, Default::default())?;
        let merge = match run_set.mergeable(&HashSet::new()) {
            Some(merge) => Some(merge),
            None if run_set.version().runs.len() > 1 && random.chance(3) => {
                Some((run_set.version().runs[..2].to_vec(), run_set.version().runs.len() > 2))
            }
            None => None,
        };
        if let Some((runs, below)) = merge {
            let Begun { number, writer } = run_set.begin(runs.iter().map(|run| run.rows().0).sum())?;
            let give_up = random.chance(4);
            match merge_runs(&runs, below, |_| true, writer, |_| !give_up)? {
                Some(rows) => run_set.put_in_place_of(&runs, number, rows)?,
                None => run_set.give_up(number),
            }
        }
    }
}
