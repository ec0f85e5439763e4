//! The join against a naive comparison in memory, on random catalogues and dumps.

use std::collections::{BTreeMap, BTreeSet};

use exacat_model::{Checksum, ChecksumAlgorithm, Checksums, Guid, Revision, TimeMs};

use super::super::classes::Earlier;
use super::super::record::{CatalogueCopy, StoredFile, WaitingDeletion};
use super::super::sorter::{Order, Sorter};
use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

fn guid(number: u64) -> Guid {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Guid(bytes)
}

fn checksum(number: u64) -> Checksum {
    Checksum::new(ChecksumAlgorithm::Adler32, &(number as u32 + 1).to_be_bytes()).unwrap()
}

/// A world: what each source says about each path, at most one copy a path and state.
#[derive(Default)]
struct World {
    before: BTreeMap<String, (Guid, ReplicaState)>,
    after: BTreeMap<String, CatalogueCopy>,
    dump: BTreeMap<String, StoredFile>,
    touched: BTreeSet<String>,
    waiting: BTreeMap<String, TimeMs>,
    waited: BTreeSet<String>,
    uploads: BTreeSet<String>,
    repeats: u64,
}

/// Time at which the window begins.
const FROM: TimeMs = TimeMs(1000);

impl World {
    fn random(random: &mut Random) -> World {
        let mut world = World::default();
        let states = [
            ReplicaState::Available,
            ReplicaState::Available,
            ReplicaState::Suspect,
            ReplicaState::Lost,
            ReplicaState::Copying,
        ];
        for number in 0..random.below(400) {
            let path = format!("/d{}/f{number}", number % 7);
            let state = |random: &mut Random| states[random.below(5) as usize];
            if random.below(4) > 0 {
                world.before.insert(path.clone(), (guid(random.below(2)), state(random)));
            }
            if random.below(4) > 0 {
                let copy = CatalogueCopy {
                    guid: guid(random.below(2)),
                    state: state(random),
                    revision: Revision(number),
                    size: (random.below(5) > 0).then(|| random.below(2)),
                    checksums: match random.below(3) {
                        0 => Checksums::none(),
                        which => Checksums::one(checksum(which)),
                    },
                };
                world.after.insert(path.clone(), copy);
            }
            if random.below(4) > 0 {
                let size = (random.below(5) > 0).then(|| random.below(2));
                let checksum = (random.below(3) > 0).then(|| checksum(1 + random.below(2)));
                world.dump.insert(path.clone(), StoredFile { size, checksum });
            }
            for (one_in, set) in [(10, 0), (12, 1), (12, 2), (15, 3)] {
                if random.below(one_in) == 0 {
                    match set {
                        0 => drop(world.touched.insert(path.clone())),
                        1 => drop(world.waiting.insert(path.clone(), TimeMs(900 + random.below(200)))),
                        2 => drop(world.waited.insert(path.clone())),
                        _ => drop(world.uploads.insert(path.clone())),
                    }
                }
            }
        }
        world
    }

    fn records(&self, sorter: &mut Sorter, random: &mut Random) -> u64 {
        let mut rest = Vec::new();
        let mut repeats = 0;
        let mut push = |path: &str, fact: Fact| {
            rest.clear();
            fact.put(&mut rest);
            sorter.push(path.as_bytes(), (&rest, &[])).unwrap();
        };
        for (path, file) in &self.dump {
            push(path, Fact::Dump(*file));
            if random.below(9) == 0 {
                push(path, Fact::Dump(*file));
                repeats += 1;
            }
        }
        self.before.iter().for_each(|(path, (guid, state))| push(path, Fact::Before(*guid, *state)));
        self.after.iter().for_each(|(path, copy)| push(path, Fact::After(copy.clone())));
        self.touched.iter().for_each(|path| push(path, Fact::Touched));
        self.waited.iter().for_each(|path| push(path, Fact::DeletionBefore));
        self.uploads.iter().for_each(|path| push(path, Fact::Upload));
        for (path, queued) in &self.waiting {
            push(
                path,
                Fact::Deletion(WaitingDeletion { id: "1".to_owned(), queued: *queued, size: Some(1) }),
            );
        }
        repeats
    }

    /// The class of a path by the words of the documentation, written apart from the join.
    fn class(&self, path: &String, judge: Judge) -> Option<Class> {
        let (dump, after) = (self.dump.get(path), self.after.get(path));
        let queued = self.waiting.contains_key(path) || self.waited.contains(path);
        let Some(copy) = after else {
            if dump.is_none() {
                let old =
                    self.waiting.get(path).is_some_and(|queued| *queued < FROM || self.waited.contains(path));
                return (old && !self.touched.contains(path)).then_some(Class::Deleted);
            }
            let known = queued
                || self.uploads.contains(path)
                || self.touched.contains(path)
                || self.before.contains_key(path);
            return Some(match judge.earlier {
                _ if known => Class::OnTheWay,
                Earlier::Unknown => Class::Undecided,
                _ if judge.hidden => Class::Undecided,
                _ => Class::Dark,
            });
        };
        if copy.state == ReplicaState::Copying || self.uploads.contains(path) {
            return Some(Class::OnTheWay);
        }
        let class = match (dump, copy.state == ReplicaState::Lost) {
            (None, true) => return Some(Class::KnownLost),
            (None, false) => Class::Lost,
            (Some(_), true) => Class::Found,
            (Some(file), false) => {
                let sizes = copy.size.zip(file.size).is_some_and(|(a, b)| a != b);
                let sums = file.checksum.is_some_and(|sum| copy.checksums.iter().any(|known| *known != sum));
                match (sizes, sums) {
                    (true, _) => Class::WrongSize,
                    (_, true) => Class::WrongChecksum,
                    _ => return Some(Class::Same),
                }
            }
        };
        let changed = match judge.earlier {
            Earlier::Unknown => return Some(Class::Undecided),
            Earlier::Changes => self.touched.contains(path),
            Earlier::State => {
                let same = self.before.get(path).is_some_and(|(guid, state)| {
                    *guid == copy.guid
                        && *state != ReplicaState::Copying
                        && (*state == ReplicaState::Lost) == (copy.state == ReplicaState::Lost)
                });
                !same || self.touched.contains(path)
            }
        };
        Some(if changed { Class::OnTheWay } else { class })
    }
}

/// The join gives each path the class of a naive comparison, whether the records fit in memory or not.
#[test]
fn join_equals_a_naive_comparison() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut world = World::random(&mut random);
        for earlier in [Earlier::State, Earlier::Changes, Earlier::Unknown] {
            let judge = Judge { earlier, from: Some(FROM), hidden: random.below(4) == 0 };
            let memory = [1 << 20, 3000][random.below(2) as usize];
            let mut sorter = Sorter::new(Order::Hash(seed), memory, directory.path());
            world.repeats = world.records(&mut sorter, &mut random);
            let joined =
                join(sorter.sorted().unwrap(), judge, (true, Some(Class::Lost)), directory.path()).unwrap();
            let mut expected: BTreeMap<Class, Vec<String>> = BTreeMap::new();
            let paths: BTreeSet<&String> =
                world.dump.keys().chain(world.after.keys()).chain(world.waiting.keys()).collect();
            for path in paths {
                if let Some(class) = world.class(path, judge) {
                    expected.entry(class).or_default().push(path.clone());
                }
            }
            assert_eq!((joined.repeats, joined.shared), (world.repeats, 0), "seed {seed}");
            for class in Class::ALL {
                let count = expected.get(&class).map_or(0, Vec::len) as u64;
                assert_eq!(joined.counts.count(class), count, "seed {seed} {class:?} {judge:?}");
            }
            for (class, collector) in joined.listed.into_iter().chain(joined.applied) {
                let mut paths = collector.paths().unwrap();
                let mut found = Vec::new();
                while let Some(listed) = paths.next_path().unwrap() {
                    found.push(listed.path);
                }
                assert_eq!(found, expected.get(&class).cloned().unwrap_or_default(), "seed {seed} {class:?}");
            }
        }
    }
}

/// Two files with one path are judged one by one, and counted.
#[test]
fn copies_that_share_a_path_are_judged_one_by_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut sorter = Sorter::new(Order::Hash(1), 1 << 20, directory.path());
    let mut push = |fact: Fact| {
        let mut rest = Vec::new();
        fact.put(&mut rest);
        sorter.push(b"/d/a", (&rest, &[])).unwrap();
    };
    push(Fact::Dump(StoredFile { size: Some(5), checksum: None }));
    for (number, size) in [(1, 5), (2, 6)] {
        push(Fact::After(CatalogueCopy {
            guid: guid(number),
            state: ReplicaState::Available,
            revision: Revision(1),
            size: Some(size),
            checksums: Checksums::none(),
        }));
    }
    let judge = Judge { earlier: Earlier::Changes, from: None, hidden: false };
    let joined = join(sorter.sorted().unwrap(), judge, (false, None), directory.path()).unwrap();
    assert_eq!((joined.shared, joined.matched, joined.expected), (2, 2, 2));
    assert_eq!((joined.counts.count(Class::Same), joined.counts.count(Class::WrongSize)), (1, 1));
}
