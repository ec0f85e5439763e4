//! Archiving of sealed segments: the same changes before, during and after; power cuts and failing
//! disks at every step; damage.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::Disk;
use exacat_log::archive::Archive;
use exacat_log::record::Head;
use exacat_log::segment::Header;
use exacat_model::{Change, ErrorKind, Revision};
use exacat_store::{Clock, Store};

use super::workload::Workload;
use super::{TestClock, assert_sound, history, open_without_runs as open, settings, try_open, without_runs};
use crate::EmbeddedStore;
use crate::archive::{ArchiveStep, ArchiveWork};
use crate::history::History;
use crate::identity::Layout;
use crate::inspect::inspect;
use crate::replay;
use crate::replay::Replay;
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

/// Returns the work of a store's archive, in blocks of a few records.
pub(crate) fn work(store: &EmbeddedStore) -> ArchiveWork {
    let clock: Arc<dyn Clock> = Arc::new(TestClock::default());
    let mut work = ArchiveWork::new(store.shared(), &clock, &settings());
    work.block_bytes = 300;
    work
}

/// Works until there is nothing to do; returns the number of steps.
pub(crate) fn run(work: &mut ArchiveWork) -> usize {
    let mut steps = 0;
    while work.step() == ArchiveStep::More {
        steps += 1;
        assert!(steps < 100_000, "it does not end");
    }
    steps
}

/// Makes a log of several segments, with some runs; all work is finished.
async fn log_of(seed: u64, requests: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    let mut workload = Workload::new(seed);
    for number in 0..requests {
        store.apply(workload.request()).await.unwrap();
        if number % 17 == 11 {
            store.flush().await.unwrap();
        }
    }
    drop(store);
    assert!(disk.files(".log").len() > 5, "{:?}", disk.files(".log"));
    disk
}

/// Returns the content of a store, opened with and without its runs: its history in pages of
/// several sizes, and its digest.
async fn hold(disk: &SimulatedDisk) -> (Vec<Change>, u128) {
    let bare = disk.copy();
    without_runs(&bare);
    let mut held: Option<(Vec<Change>, u128)> = None;
    for disk in [disk, &bare] {
        let store = try_open(disk).unwrap_or_else(|error| panic!("it is refused: {error}"));
        assert_sound(&store).await;
        let digest = store.digest().await.unwrap();
        for limit in [1, 7, 1000] {
            let now = (history(&store, limit).await, digest);
            match &held {
                Some(held) => assert_eq!(*held, now, "pages of {limit}"),
                None => held = Some(now),
            }
        }
    }
    held.unwrap()
}

/// Checks that all segments are archived except the last.
fn assert_archived(disk: &SimulatedDisk, segments: usize) {
    assert_eq!((disk.files(".log").len(), disk.files(".logz").len()), (1, segments - 1));
    assert!(disk.files(".unfinished").is_empty());
}

/// Goal: readers notice nothing. Method: the whole history after every single step of the archive,
/// in blocks of several sizes; then opened again, and inspected.
#[tokio::test]
async fn the_history_is_the_same_before_during_and_after() {
    for (seed, block_bytes) in [(1, 1), (2, 700), (3, 256 << 10)] {
        let disk = log_of(seed, 60).await;
        let segments = disk.files(".log").len();
        let before = hold(&disk).await;
        let sound = inspect(&disk.shared(), Path::new("/data")).unwrap();
        let store = open(&disk);
        let mut work = work(&store);
        work.block_bytes = block_bytes;
        let mut steps = 0;
        while work.step() == ArchiveStep::More {
            steps += 1;
            assert_eq!(history(&store, 50).await, before.0, "after step {steps}");
        }
        assert!(steps > 4 * (segments - 1), "the steps are small: {steps}");
        assert_archived(&disk, segments);
        for after in 0..=before.0.len() {
            let page = store.changes(Revision(after as u64), 3).await.unwrap();
            assert_eq!(page.changes, before.0[after..(after + 3).min(before.0.len())]);
            assert_eq!(page.oldest, Revision(1));
        }
        let status = store.status().await.unwrap();
        let figure = |name: &str| status.named_one(name).unwrap();
        let bytes = |ending| disk.files(ending).iter().map(|path| disk.bytes(path).len() as u64).sum::<u64>();
        assert_eq!(figure("log_files"), segments as u64);
        assert_eq!(figure("log_plain_bytes"), bytes(".log"));
        assert_eq!(figure("log_compressed_bytes"), bytes(".logz"));
        assert_eq!(figure("history_oldest_revision"), 1);
        drop((work, store));
        assert_eq!(hold(&disk).await, before);
        let found = inspect(&disk.shared(), Path::new("/data")).unwrap();
        assert_eq!(found, sound, "an inspection finds the same");
    }
}

/// Goal: the writer continues meanwhile. Method: a step after each request, and the archive
/// restarted now and then.
#[tokio::test]
async fn requests_and_steps_alternate() {
    for seed in 10..20 {
        let disk = SimulatedDisk::new();
        let store = open(&disk);
        let mut random = Random(seed);
        let mut workload = Workload::new(seed);
        let mut archive = work(&store);
        for _ in 0..120 {
            store.apply(workload.request()).await.unwrap();
            for _ in 0..random.next(6) {
                archive.step();
            }
            if random.chance(30) {
                archive = work(&store);
            }
        }
        let held = (history(&store, 1000).await, store.digest().await.unwrap());
        drop((archive, store));
        assert!(disk.files(".logz").len() > 2, "some were archived");
        assert_eq!(hold(&disk).await, held, "seed {seed}");
    }
}

/// Goal: a crash at any moment loses nothing. Method: the power fails at every single operation of
/// archiving three segments. Several images of the rest are opened, and archived again.
#[tokio::test]
async fn archiving_may_be_cut_at_every_step() {
    let start = log_of(5, 36).await;
    let segments = start.files(".log").len();
    let before = hold(&start).await;
    for operation in 1.. {
        let disk = start.copy();
        let store = open(&disk);
        let mut archive = work(&store);
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + operation)));
        run(&mut archive);
        let done = disk.files(".logz").len() == segments - 1 && disk.files(".log").len() == 1;
        drop((archive, store));
        for seed in 0..4 {
            let image = disk.image(&mut Random(seed * 1000 + operation));
            assert_eq!(hold(&image.copy()).await, before, "operation {operation} seed {seed}");
            let store = open(&image);
            for path in image.files(".logz") {
                assert!(!image.files(".log").contains(&path.with_extension("log")), "one of both counts");
            }
            run(&mut work(&store));
            assert_archived(&image, segments);
            assert_eq!(history(&store, 100).await, before.0);
        }
        if done {
            assert!(operation > 10, "archiving has more operations than {operation}");
            return;
        }
    }
}

/// Goal: a failing disk costs nothing but time. Method: each operation fails in turn, in each way.
/// The store continues, the operator gets a warning, and the next attempt succeeds.
#[tokio::test]
async fn every_operation_of_archiving_may_fail_once() {
    let start = log_of(6, 36).await;
    let segments = start.files(".log").len();
    let before = hold(&start).await;
    let mut told = 0;
    for operation in 1.. {
        let mut past_the_end = false;
        let kinds = [
            Fault::Once(operation, io::ErrorKind::Other),
            Fault::Once(operation, io::ErrorKind::StorageFull),
            Fault::Short(operation),
        ];
        for fault in kinds {
            let disk = start.copy();
            let store = open(&disk);
            let first = disk.operations();
            let fault = match fault {
                Fault::Once(number, kind) => Fault::Once(first + number, kind),
                _ => Fault::Short(first + operation),
            };
            disk.set_fault(Some(fault));
            let mut archive = work(&store);
            run(&mut archive);
            assert_eq!(history(&store, 100).await, before.0, "{fault:?}");
            told += usize::from(!store.status().await.unwrap().warnings.is_empty());
            archive.try_again();
            run(&mut archive);
            assert_eq!(history(&store, 100).await, before.0, "{fault:?}");
            assert!(store.status().await.unwrap().warnings.is_empty(), "{fault:?}: it is well again");
            past_the_end = disk.operations() < first + operation;
            disk.set_fault(None);
            drop((archive, store));
            assert_eq!(hold(&disk).await, before, "{fault:?}");
            run(&mut work(&open(&disk)));
            assert_archived(&disk, segments);
        }
        if past_the_end {
            break;
        }
    }
    assert!(told > 20, "few failures were told: {told}");
}

/// Returns the history on a disk, without a store.
fn history_on(disk: &SimulatedDisk) -> History {
    let layout = Layout::new(Path::new("/data"));
    let shared = disk.shared();
    let catalogue = layout.read_identity(&*shared).unwrap().unwrap().id;
    let segments = exacat_log::replay::list_segments(&*shared, &layout.log(), false).unwrap();
    History::new(shared, catalogue, segments)
}

fn archive_on(disk: &SimulatedDisk, path: &Path) -> Archive {
    Archive::open(disk.shared().open_to_read(path).unwrap(), "test".to_owned()).unwrap()
}

/// Returns a disk with archived segments; one of them, with several blocks, that is not the first;
/// and all changes.
async fn archived() -> (SimulatedDisk, PathBuf, Vec<Change>) {
    let disk = log_of(7, 60).await;
    let store = open(&disk);
    run(&mut work(&store));
    let changes = history(&store, 1000).await;
    let several = |path: &PathBuf| archive_on(&disk, path).blocks().len() > 2;
    let path = disk.files(".logz").into_iter().skip(1).find(several).unwrap();
    (disk, path, changes)
}

/// Goal: damage is found and named, never returned as data, and costs no more than its block.
/// Method: each byte of an archived segment changed; then every change of the whole history read by
/// itself.
#[tokio::test]
async fn a_changed_byte_costs_one_block_and_is_named() {
    let (disk, path, changes) = archived().await;
    let archive = archive_on(&disk, &path);
    let blocks = archive.blocks().to_vec();
    let next = blocks.last().unwrap().last_revision.0 + 1;
    let segment = archive.header().first_revision.0..next;
    let last = Revision(changes.len() as u64);
    for at in 0..disk.bytes(&path).len() {
        let damaged = disk.copy();
        damaged.damage(&path, |bytes| bytes[at] ^= 1 << (at % 8));
        let in_block = blocks.iter().position(|block| (block.at..block.end()).contains(&(at as u64)));
        let lost: BTreeSet<u64> = match in_block {
            Some(number) => (blocks[number].first_revision.0..=blocks[number].last_revision.0).collect(),
            None if at < 128 => segment.clone().collect(),
            // The byte is in the index, which readers can do without.
            None => BTreeSet::new(),
        };
        let history = history_on(&damaged);
        for change in &changes {
            let after = Revision(change.revision.0 - 1);
            match history.changes(after, last, 1) {
                Ok(kept) => {
                    assert_eq!(kept.changes, std::slice::from_ref(change), "byte {at}");
                    assert!(!lost.contains(&change.revision.0), "byte {at} was passed over");
                }
                Err(error) => {
                    assert!(lost.contains(&change.revision.0), "byte {at}: {error}");
                    let version = error.kind == ErrorKind::Invalid && (8..10).contains(&at);
                    assert!(error.kind == ErrorKind::Corrupt || version, "{error}");
                    let named = path.display().to_string();
                    assert!(error.message.contains(&named), "names the file: {error}");
                    let block = in_block.map(|number| format!("block {number}, changes "));
                    assert!(block.is_none_or(|block| error.message.contains(&block)), "{error}");
                }
            }
        }
        // A page ends before the damage, and the next begins behind it.
        let pages = history.changes(Revision(0), last, 10_000).unwrap().changes;
        assert_eq!(pages.len() as u64, lost.first().map_or(last.0, |first| first - 1), "byte {at}");
        if at % 5 == 0 {
            let found = inspect(&damaged.shared(), Path::new("/data")).unwrap();
            assert!(
                found.problems[0].contains(&path.display().to_string()),
                "byte {at}: {:?}",
                found.problems
            );
        }
    }
}

/// Goal: the same for a file that is cut off, or too long.
#[tokio::test]
async fn a_cut_off_archive_gives_what_is_whole() {
    let (disk, path, changes) = archived().await;
    let blocks = archive_on(&disk, &path).blocks().to_vec();
    let length = disk.bytes(&path).len();
    let last = Revision(changes.len() as u64);
    for cut in (0..length).step_by(3) {
        let damaged = disk.copy();
        damaged.damage(&path, |bytes| bytes.truncate(cut));
        let whole = blocks.iter().take_while(|block| block.end() <= cut as u64).count();
        let wanted = match cut {
            0..128 => blocks[0].first_revision.0 - 1,
            _ if whole == blocks.len() => last.0,
            _ => blocks[whole].first_revision.0 - 1,
        };
        let history = history_on(&damaged);
        assert_eq!(history.changes(Revision(0), last, 10_000).unwrap().changes, changes[..wanted as usize]);
        if wanted < last.0 {
            let error = history.changes(Revision(wanted), last, 10).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Corrupt);
            assert!(error.message.contains(".logz at byte"), "{error}");
        }
    }
    disk.damage(&path, |bytes| bytes.extend([7; 30]));
    assert_eq!(history_on(&disk).changes(Revision(0), last, 10_000).unwrap().changes, changes);
    let found = inspect(&disk.shared(), Path::new("/data")).unwrap();
    assert_eq!(found.problems.len(), 1, "{:?}", found.problems);
}

/// Goal: opening never continues over damage, and reports it. Method: a block damaged, with no
/// runs; a segment gone; the last one gone.
#[tokio::test]
async fn opening_refuses_what_it_cannot_replay() {
    let (disk, path, _) = archived().await;
    without_runs(&disk);
    let damaged = disk.copy();
    let block = archive_on(&disk, &path).blocks()[1];
    damaged.damage(&path, |bytes| bytes[block.at as usize + 50] ^= 1);
    let error = try_open(&damaged).err().unwrap();
    assert!(error.kind == ErrorKind::Corrupt && error.message.contains("block 1, changes"), "{error}");
    let gone = disk.copy();
    gone.vanish(&path);
    assert_eq!(try_open(&gone).err().unwrap().kind, ErrorKind::Corrupt);
    let headless = disk.copy();
    headless.vanish(&disk.files(".log")[0]);
    let error = try_open(&headless).err().unwrap();
    assert!(error.message.contains("the one after it is missing"), "{error}");
    let foreign = disk.copy();
    let other = disk.bytes(&disk.files(".logz")[2]);
    foreign.damage(&path, |bytes| *bytes = other);
    let error = try_open(&foreign).err().unwrap();
    assert!(error.message.contains("another's name"), "{error}");
}

/// Goal: a damaged segment is not made to look whole. Method: a plain one damaged in its middle,
/// and behind its end.
#[tokio::test]
async fn a_damaged_plain_segment_stays_as_it_is() {
    let start = log_of(8, 40).await;
    let path = start.files(".log")[1].clone();
    for (number, at) in [(0, 200), (1, usize::MAX)] {
        let disk = start.copy();
        let store = open(&disk);
        disk.damage(&path, |bytes| match bytes.get_mut(at) {
            Some(byte) => *byte ^= 1,
            None => bytes.extend([0, 0, 0, 9]),
        });
        let bytes = disk.bytes(&path);
        let mut archive = work(&store);
        run(&mut archive);
        archive.try_again();
        assert_eq!(archive.step(), ArchiveStep::Idle, "it is not tried again");
        assert_eq!(disk.bytes(&path), bytes);
        assert_eq!(disk.files(".logz").len(), start.files(".log").len() - 2, "the others are");
        let warnings = store.status().await.unwrap().warnings;
        assert!(warnings.len() == 1 && warnings[0].contains("it stays as it is"), "{number}: {warnings:?}");
    }
}

/// Goal: the plain segment counts if both exist. Method: an archived one of nonsense beside it, and
/// an unfinished one.
#[tokio::test]
async fn the_plain_segment_wins() {
    let disk = log_of(9, 40).await;
    let before = hold(&disk).await;
    let both = disk.files(".log")[2].with_extension("logz");
    let unfinished = disk.files(".log")[3].with_extension("logz.unfinished");
    for path in [&both, &unfinished] {
        disk.create(path).unwrap().write_at(b"nonsense", 0).unwrap();
    }
    let found = inspect(&disk.shared(), Path::new("/data")).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
    assert_eq!(disk.files(".logz"), [both], "an inspection changes nothing");
    assert_eq!(hold(&disk).await, before);
    assert!(disk.files(".logz").is_empty() && disk.files(".unfinished").is_empty());
}

/// Receiver of a replay that collects the changes, and the records' first revisions.
#[derive(Default)]
struct Collector {
    segments: Vec<u64>,
    records: Vec<(u64, u64)>,
    changes: Vec<Change>,
}

impl Replay for Collector {
    fn segment(&mut self, _: &str, header: &Header) -> exacat_model::Result<()> {
        self.segments.push(header.first_revision.0);
        Ok(())
    }

    fn record(&mut self, _: &str, _: u64, head: Head, _: usize) -> exacat_model::Result<()> {
        self.records.push((head.first_revision.0, head.last_revision().0));
        Ok(())
    }

    fn change(&mut self, _: &str, _: u64, change: Change) -> exacat_model::Result<()> {
        self.changes.push(change);
        Ok(())
    }
}

/// Goal: a replay may begin after any change, in the middle of a record and of a segment of either
/// form. Method: each revision, on a log half of which is archived.
#[tokio::test]
async fn a_replay_may_begin_after_any_change() {
    let disk = log_of(4, 40).await;
    let store = open(&disk);
    let mut archive = work(&store);
    while disk.files(".logz").len() < 4 {
        assert_eq!(archive.step(), ArchiveStep::More);
    }
    let all = history(&store, 1000).await;
    drop((archive, store));
    let shared = disk.shared();
    let layout = Layout::new(Path::new("/data"));
    let catalogue = layout.read_identity(&*shared).unwrap().unwrap().id;
    let segments = exacat_log::replay::list_segments(&*shared, &layout.log(), true).unwrap();
    let replay = |segments: &[_], start| {
        let mut into = Collector::default();
        replay::replay(&*shared, catalogue, segments, start, &mut into).map(|end| (into, end.unwrap()))
    };
    let (whole, end) = replay(&segments, Revision(0)).unwrap();
    assert_eq!(whole.changes, all);
    for after in 0..=all.len() {
        let revision = Revision(after as u64);
        let (some, its_end) = replay(&segments, revision).unwrap();
        assert_eq!((&some.changes[..], its_end), (&all[after..], end), "after {after}");
        let told = |records: &[(u64, u64)]| records.iter().filter(|(_, last)| *last > revision.0).count();
        assert_eq!(some.records.len(), told(&whole.records));
        let begun = whole.segments.iter().filter(|first| **first > revision.0).count();
        assert_eq!(some.segments.len(), begun, "after {after}: a segment that begins is told");
    }
    let beyond = replay(&segments, Revision(all.len() as u64 + 1)).err().unwrap();
    assert!(beyond.kind == ErrorKind::Corrupt && beyond.message.contains("before change"), "{beyond}");
    let kept = &segments[2..];
    let first = kept[0].first_revision;
    assert!(replay(kept, Revision(first.0 - 1)).is_ok());
    let missing = replay(kept, Revision(first.0 - 2)).err().unwrap();
    assert!(missing.kind == ErrorKind::Corrupt && missing.message.contains("missing"), "{missing}");
}

/// Goal: the thread does the same as the steps, beside readers and the writer, and ends with the
/// store. Method: stores opened and dropped while it works; then one is left to finish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_thread_archives_beside_everybody() {
    let disk = SimulatedDisk::new();
    let settings = crate::EmbeddedSettings { archive: true, ..settings() };
    let open = || {
        let clock = Arc::new(TestClock::default());
        EmbeddedStore::open_on(disk.shared(), settings.clone(), clock).unwrap()
    };
    let mut workload = Workload::new(30);
    let mut changes: Vec<Change> = Vec::new();
    for round in 0..12 {
        let store = open();
        for _ in 0..round * 2 {
            store.apply(workload.request()).await.unwrap();
        }
        let reading = tokio::spawn({
            let store = store.clone();
            async move { history(&store, 40).await }
        });
        let now = reading.await.unwrap();
        assert_eq!(now[..changes.len()], changes[..]);
        changes = now;
        if round % 2 == 0 {
            store.close().await.unwrap();
        }
        drop(store);
        assert!(disk.files(".unfinished").is_empty(), "what it had begun is gone");
    }
    let store = open();
    store.shared().history.notifier.wait_until_resting();
    assert_archived(&disk, store.shared().history.segments());
    assert_eq!(history(&store, 1000).await, changes);
    // A further segment is archived after it is sealed.
    let segments = store.shared().history.segments();
    while store.shared().history.segments() == segments {
        store.apply(workload.request()).await.unwrap();
    }
    store.shared().history.notifier.wait_until_resting();
    assert_archived(&disk, store.shared().history.segments());
}
