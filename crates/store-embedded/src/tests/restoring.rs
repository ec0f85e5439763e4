//! Clones and restores: their results, the files that they leave alone, and the state after a power
//! cut.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Change, DirId, ErrorKind, Result, Revision, TimeMs};
use exacat_store::{Snapshots, Store};

use super::snapshots::{digests, drive, drive_as, name, new_id, open_snapshot, whole};
use super::workload::Workload;
use super::{TestClock, apply, assert_sound, history, mkdir, open, settings, try_open};
use crate::snapshot::{RestorePoint, RestoreRequest, Restored, clone_on, restore_on};
use crate::{Cloned, EmbeddedSettings, EmbeddedStore};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

pub(crate) fn clone(disk: &SimulatedDisk, of: &str, into: &str) -> Result<Cloned> {
    clone_from(disk, "/data", of, into)
}

fn clone_from(disk: &SimulatedDisk, data: &str, of: &str, into: &str) -> Result<Cloned> {
    let settings = EmbeddedSettings { directory: data.into(), ..settings() };
    clone_on(&disk.shared(), &settings, &name(of), Path::new(into), &TestClock::default())
}

pub(crate) fn open_at(disk: &SimulatedDisk, directory: &str) -> Result<Arc<EmbeddedStore>> {
    let settings = EmbeddedSettings { directory: directory.into(), ..settings() };
    EmbeddedStore::open_on(disk.shared(), settings, Arc::new(TestClock::default()))
}

pub(crate) fn restore(disk: &SimulatedDisk, of: &str, point: RestorePoint) -> Result<Restored> {
    restore_with(disk, of, point, None)
}

pub(crate) fn restore_with(
    disk: &SimulatedDisk,
    of: &str,
    point: RestorePoint,
    log_of: Option<&Path>,
) -> Result<Restored> {
    let clock = TestClock::default();
    let request = RestoreRequest { name: &name(of), point, log_of };
    restore_on(&disk.shared(), &settings(), &request, &clock, &mut |_| ())
}

fn files_below(disk: &SimulatedDisk, directory: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = disk.files("").into_iter().filter(|path| path.starts_with(directory));
    files.map(|path| (path.clone(), disk.bytes(&path))).collect()
}

/// Goal: a clone has the snapshot's state, develops by itself, and never touches its origin; so
/// does a clone of a clone. A clone opens even if it has none of the origin's files left.
#[tokio::test]
async fn a_clone_goes_on_by_itself() {
    for seed in 0..6 {
        let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(seed));
        let store = open(&disk);
        drive(&store, &mut workload, 20 + 9 * seed).await;
        store.snapshot(new_id(), &name("s")).await.unwrap();
        let (state, operations) = (whole(&store).await, workload.request());
        let changes = history(&store, 1000).await;
        drive(&store, &mut workload, 10).await;
        let cloned = clone(&disk, "s", "/clone").unwrap();
        assert_eq!(cloned.revision, state.revision);
        store.close().await.unwrap();
        let origin = files_below(&disk, "/data");
        let twin = open_at(&disk, "/clone").unwrap();
        assert_eq!(whole(&twin).await, state, "seed {seed}");
        assert_sound(&twin).await;
        // The clone's history has the changes that were only in the log, and no older ones.
        let page = twin.changes(Revision(0), 1000).await.unwrap();
        assert_eq!(page.changes, changes[page.oldest.0 as usize - 1..state.revision.0 as usize]);
        assert_eq!(page.up_to, state.revision);
        // Later changes of the origin do not exist in the clone.
        twin.apply(operations).await.unwrap();
        drive(&twin, &mut workload, 40).await;
        twin.snapshot(new_id(), &name("of-clone")).await.unwrap();
        let twin_state = whole(&twin).await;
        twin.close().await.unwrap();
        assert_eq!(clone_from(&disk, "/clone", "of-clone", "/clone2").unwrap().revision, twin_state.revision);
        let third = open_at(&disk, "/clone2").unwrap();
        assert_eq!(whole(&third).await, twin_state);
        drive(&third, &mut workload, 120).await;
        let third_state = whole(&third).await;
        assert_sound(&third).await;
        third.close().await.unwrap();
        assert_eq!(whole(&open_at(&disk, "/clone2").unwrap()).await, third_state);
        assert_eq!(whole(&open_at(&disk, "/clone").unwrap()).await, twin_state);
        let same = files_below(&disk, "/data");
        assert!(same == origin, "seed {seed}: a clone touched its origin");
    }
}

/// Goal: an impossible place for a clone is reported, and nothing is left there.
#[tokio::test]
async fn a_clone_needs_a_place_of_its_own() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    store.flush().await.unwrap();
    store.snapshot(new_id(), &name("s")).await.unwrap();
    assert_eq!(clone(&disk, "none", "/clone").unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(clone(&disk, "s", "/data").unwrap_err().kind, ErrorKind::Exists);
    disk.mount(Path::new("/far"));
    let far = clone(&disk, "s", "/far/clone").unwrap_err();
    assert!(far.message.contains("another file system") && far.message.contains("backup"), "{far}");
    assert!(files_below(&disk, "/far").is_empty());
    let shared = disk.shared();
    shared.create_directory(Path::new("/mine.unfinished")).unwrap();
    shared.create(Path::new("/mine.unfinished/thesis")).unwrap();
    assert_eq!(clone(&disk, "s", "/mine").unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(files_below(&disk, "/mine.unfinished").len(), 1, "what is somebody's is left alone");
    // Even an empty catalogue can have a snapshot, and a clone.
    let bare = SimulatedDisk::new();
    let store = open(&bare);
    store.snapshot(new_id(), &name("nothing")).await.unwrap();
    let state = whole(&store).await;
    clone(&bare, "nothing", "/clone").unwrap();
    assert_eq!(whole(&open_at(&bare, "/clone").unwrap()).await, state);
}

/// Goal: a clone exists completely or not at all. Method: the power fails at every operation.
#[tokio::test]
async fn cloning_may_be_cut_at_every_step() {
    let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(2));
    let store = open(&disk);
    drive(&store, &mut workload, 25).await;
    drive(&store, &mut workload, 3).await;
    store.snapshot(new_id(), &name("s")).await.unwrap();
    let state = whole(&store).await;
    drop(store);
    let start = disk.copy();
    for step in 1.. {
        let disk = start.copy();
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + step)));
        let made = clone(&disk, "s", "/clone").is_ok();
        let died = disk.is_dead();
        for seed in 0..4 {
            let image = disk.image(&mut Random(seed));
            let there = !files_below(&image, "/clone").is_empty();
            assert!(there || !made, "step {step}");
            if !there {
                clone(&image, "s", "/clone").unwrap();
            }
            assert_eq!(whole(&open_at(&image, "/clone").unwrap()).await, state, "step {step} seed {seed}");
            assert_eq!(whole(&open(&image)).await, state);
        }
        if !died {
            assert!(step > 15, "it has more steps than {step}");
            return;
        }
    }
}

/// Makes a store with a few snapshots in a short history, closed. Returns its changes, and the
/// digest after each.
async fn short_history(seed: u64) -> (SimulatedDisk, Vec<Change>, Vec<u128>, Vec<Revision>) {
    let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(seed));
    let store = open(&disk);
    let mut taken = Vec::new();
    for number in 0..3 {
        drive(&store, &mut workload, 7).await;
        taken.push(store.snapshot(new_id(), &name(&format!("s{number}"))).await.unwrap().revision);
    }
    drive(&store, &mut workload, 9).await;
    let changes = history(&store, 1000).await;
    let digests = digests(&changes);
    assert_eq!(store.digest().await.unwrap(), *digests.last().unwrap());
    drop(store);
    (disk, changes, digests, taken)
}

/// Goal: any point after a snapshot can be restored, to an ordinary catalogue. Method: every
/// revision of short histories, from every snapshot before it, is restored, opened, compared, and
/// changed further. The replaced copy is opened too.
#[tokio::test]
async fn every_revision_after_a_snapshot_can_be_restored() {
    for seed in 0..4 {
        let (disk, changes, digests, taken) = short_history(seed).await;
        for (number, first) in taken.iter().enumerate() {
            for up_to in first.0..=changes.len() as u64 {
                let disk = disk.copy();
                let of = format!("s{number}");
                let restored = restore(&disk, &of, RestorePoint::Revision(Revision(up_to))).unwrap();
                assert_eq!((restored.revision, restored.digest), (Revision(up_to), digests[up_to as usize]));
                let store = open(&disk);
                assert_eq!(store.digest().await.unwrap(), digests[up_to as usize], "{of} {up_to}");
                assert_eq!(history(&store, 1000).await, changes[..up_to as usize], "{of} {up_to}");
                assert_sound(&store).await;
                let mut workload = Workload::new(seed + 1000);
                drive_as(&store, &mut workload, 4, 1).await;
                let later = whole(&store).await;
                drop(store);
                assert_eq!(whole(&open(&disk)).await, later);
                let replaced = restored.replaced_copy.unwrap();
                assert_eq!(replaced, Path::new("/data/replaced/1"));
                let was = open_at(&disk, replaced.to_str().unwrap()).unwrap();
                assert_eq!(was.digest().await.unwrap(), digests[changes.len()]);
                assert_eq!(history(&was, 1000).await, changes);
            }
        }
    }
}

/// Goal: errors distinguish the points that cannot be restored, and have the range of those that
/// can.
#[tokio::test]
async fn points_out_of_range_are_refused_with_the_range() {
    let (disk, changes, digests, taken) = short_history(9).await;
    let before = files_below(&disk, "/data");
    let refused = |of: &str, point| {
        let error = restore(&disk, of, point).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        error.message
    };
    let last = changes.len() as u64;
    let early = refused("s1", RestorePoint::Revision(Revision(taken[1].0 - 1)));
    assert!(early.contains(&taken[1].0.to_string()) && early.contains("earlier snapshot"), "{early}");
    let late = refused("s1", RestorePoint::Revision(Revision(last + 1)));
    assert!(late.contains(&format!("from revision {} to {last}", taken[1].0)), "{late}");
    assert!(refused("s1", RestorePoint::Time(TimeMs(5))).contains("earlier snapshot"));
    assert_eq!(restore(&disk, "none", RestorePoint::AsTaken).unwrap_err().kind, ErrorKind::NotFound);
    assert!(files_below(&disk, "/data") == before, "a refused restore changes nothing");
    // A catalogue in use cannot be restored.
    let store = open(&disk);
    let in_use = restore(&disk, "s1", RestorePoint::AsTaken).unwrap_err();
    assert_eq!(in_use.kind, ErrorKind::Unavailable, "{in_use}");
    drop(store);
    // Times select the last change at or before them. A time beyond the last selects the last.
    for change in &changes[taken[1].0 as usize..] {
        let disk = disk.copy();
        let restored = restore(&disk, "s1", RestorePoint::Time(change.time)).unwrap();
        let wanted = changes.iter().rposition(|other| other.time <= change.time).unwrap() + 1;
        assert_eq!((restored.revision.0, restored.digest), (wanted as u64, digests[wanted]));
    }
    let restored = restore(&disk, "s0", RestorePoint::Time(TimeMs(u64::MAX / 2))).unwrap();
    assert_eq!(restored.revision.0, last);
}

/// Goal: after a restore the catalogue is on another timeline. Snapshots of the old one stay good,
/// each by itself; the log after them is in the replaced copy. Runs never get the number of a
/// snapshot's run.
#[tokio::test]
async fn snapshots_of_another_line_stay_good() {
    let (disk, changes, digests, taken) = short_history(21).await;
    let last = changes.len() as u64;
    let back = taken[0].0 + 2;
    assert!(back < taken[1].0);
    restore(&disk, "s0", RestorePoint::Revision(Revision(back))).unwrap();
    {
        let store = open(&disk);
        let mut workload = Workload::new(5);
        drive_as(&store, &mut workload, 30, 1).await;
        store.snapshot(new_id(), &name("on-new-line")).await.unwrap();
        for number in 0..3 {
            let check = store.verify_snapshot(&name(&format!("s{number}"))).await.unwrap();
            assert_eq!(check.problems, Vec::<String>::new());
        }
    }
    let other_line = restore(&disk, "s2", RestorePoint::Revision(Revision(last))).unwrap_err();
    assert!(other_line.message.contains("does not go on from"), "{other_line}");
    let replaced = Path::new("/data/replaced/1");
    let again = disk.copy();
    let restored =
        restore_with(&again, "s2", RestorePoint::Revision(Revision(last)), Some(replaced)).unwrap();
    assert_eq!(restored.digest, digests[last as usize]);
    let store = open(&again);
    assert_eq!(history(&store, 1000).await, changes, "all of the old line's history is back");
    assert_eq!(store.digest().await.unwrap(), digests[last as usize]);
    assert_sound(&store).await;
    drop(store);
    // The state as taken needs nothing else.
    let restored = restore(&disk, "s2", RestorePoint::AsTaken).unwrap();
    assert_eq!(
        (restored.revision, restored.replaced_copy.as_deref()),
        (taken[2], Some(Path::new("/data/replaced/2")))
    );
    let store = open(&disk);
    assert_eq!(store.digest().await.unwrap(), digests[taken[2].0 as usize]);
    let page = store.changes(Revision(0), 1000).await.unwrap();
    assert_eq!(page.changes, changes[page.oldest.0 as usize - 1..taken[2].0 as usize]);
    let mut workload = Workload::new(77);
    drive_as(&store, &mut workload, 20, 2).await;
    drop(store);
    let new_line = open_snapshot(&disk, "on-new-line").unwrap();
    assert_sound(&new_line).await;
    // Runs with one number in two snapshots are the same file.
    let mut runs: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for path in disk.files(".run").iter().filter(|path| path.starts_with("/data/snapshots")) {
        let bytes = disk.bytes(path);
        let number = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(runs.entry(number).or_insert_with(|| bytes.clone()) == &bytes, "{path:?}");
    }
}

/// Goal: a snapshot brings back a catalogue of which nothing else is readable.
#[tokio::test]
async fn a_ruined_catalogue_is_restored() {
    let (disk, _, digests, taken) = short_history(33).await;
    for path in disk.files("") {
        let ruin = disk.copy();
        if path.starts_with("/data/log") || path.starts_with("/data/runs") {
            // The file vanishes from the catalogue only. Damage to it would also hit the snapshot,
            // which shares the file.
            ruin.vanish(&path);
            let restored = restore(&ruin, "s2", RestorePoint::AsTaken).unwrap();
            assert_eq!(restored.digest, digests[taken[2].0 as usize]);
            let store = open(&ruin);
            assert_eq!(store.digest().await.unwrap(), digests[taken[2].0 as usize], "{path:?}");
            assert_sound(&store).await;
        }
    }
}

/// Goal: a restore is done completely or not at all. Method: the power fails at each of its
/// operations, and then at every operation of completing it at the next opening.
#[tokio::test]
async fn restoring_may_be_cut_at_every_step() {
    let (start, changes, digests, taken) = short_history(4).await;
    let up_to = taken[1].0 + 3;
    let (old, new) = (digests[changes.len()], digests[up_to as usize]);
    assert_ne!(old, new);
    let mut completed = 0;
    for step in 1.. {
        let disk = start.copy();
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + step)));
        let done = restore(&disk, "s1", RestorePoint::Revision(Revision(up_to))).is_ok();
        let died = disk.is_dead();
        for seed in 0..4 {
            let image = disk.image(&mut Random(seed));
            if seed == 0 {
                // The next opening is cut as well, somewhere.
                image.set_fault(Some(Fault::PowerCut(image.operations() + 1 + step % 13)));
                let _cut = try_open(&image);
            }
            let image = if seed == 0 { image.image(&mut Random(step)) } else { image };
            let marked = !image.files("/RESTORE").is_empty();
            let store = try_open(&image).unwrap_or_else(|error| panic!("step {step} seed {seed}: {error}"));
            let digest = store.digest().await.unwrap();
            assert!(digest == new || (digest == old && !done), "step {step} seed {seed}");
            let wanted = if digest == new { &changes[..up_to as usize] } else { &changes[..] };
            assert_eq!(history(&store, 1000).await, *wanted, "step {step} seed {seed}");
            assert_sound(&store).await;
            assert!(!image.files("").iter().any(|path| path.starts_with("/data/restore.prepared")));
            assert!(image.files("/RESTORE").is_empty());
            completed += usize::from(marked && digest == new);
            drop(store);
            if digest == new {
                let replaced = open_at(&image, "/data/replaced/1").unwrap();
                assert_eq!(replaced.digest().await.unwrap(), old);
            }
        }
        if !died {
            assert!(step > 40, "it has more steps than {step}");
            break;
        }
    }
    assert!(completed > 10, "opening completed only {completed}");
}

/// Opens a store with everything in one memtable unless it is flushed, so that a snapshot has many
/// segments.
fn open_wide(disk: &SimulatedDisk) -> Arc<EmbeddedStore> {
    let settings = EmbeddedSettings { memtable_rows: 1 << 20, ..settings() };
    EmbeddedStore::open_on(disk.shared(), settings, Arc::new(TestClock::default())).unwrap()
}

/// Goal: archived segments serve like plain ones: snapshots and clones have them, restores cut
/// them, and backups have each once. Method: all but the last segment archived, on either side of
/// snapshots.
#[tokio::test]
async fn archived_segments_serve_as_plain_ones() {
    let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(12));
    let store = open_wide(&disk);
    for _ in 0..10 {
        store.apply(workload.request()).await.unwrap();
    }
    store.flush().await.unwrap();
    store.snapshot(new_id(), &name("s0")).await.unwrap();
    let from = store.revision().await.unwrap();
    for _ in 0..40 {
        store.apply(workload.request()).await.unwrap();
    }
    super::backups::back_up_to(&store, "/safe").await;
    super::archiving::run(&mut super::archiving::work(&store));
    store.snapshot(new_id(), &name("s1")).await.unwrap();
    let copied = super::backups::back_up_to(&store, "/safe").await.bytes_copied;
    assert_eq!(copied, 0, "nothing is new but the form");
    let state = whole(&store).await;
    for _ in 0..10 {
        store.apply(workload.request()).await.unwrap();
    }
    super::archiving::run(&mut super::archiving::work(&store));
    super::backups::back_up_to(&store, "/fresh").await;
    let archived = disk.files(".logz");
    let of = |place: &str| archived.iter().filter(|path| path.starts_with(place)).count();
    assert!(of("/data/log") > 3 && of("/data/snapshots/s1") > 3 && of("/fresh") > 3, "{archived:?}");
    assert_eq!(of("/safe"), 0);
    let (changes, last) = (history(&store, 1000).await, whole(&store).await);
    let digests = digests(&changes);
    let check = store.verify_snapshot(&name("s1")).await.unwrap();
    assert_eq!((check.problems, check.changes), (Vec::<String>::new(), state.revision.0 - from.0));
    drop(store);
    assert_eq!(whole(&open_snapshot(&disk, "s1").unwrap()).await, state);
    clone(&disk, "s1", "/clone").unwrap();
    let twin = open_at(&disk, "/clone").unwrap();
    assert_eq!(whole(&twin).await, state);
    assert_eq!(history(&twin, 1000).await.last(), changes[..state.revision.0 as usize].last());
    for up_to in (from.0..=changes.len() as u64).step_by(3) {
        let disk = disk.copy();
        let restored = restore(&disk, "s0", RestorePoint::Revision(Revision(up_to))).unwrap();
        assert_eq!(restored.digest, digests[up_to as usize], "up to {up_to}");
        let store = open(&disk);
        assert_eq!(store.digest().await.unwrap(), digests[up_to as usize], "up to {up_to}");
        assert_eq!(history(&store, 1000).await, changes[..up_to as usize], "up to {up_to}");
    }
    for (of, state) in [("/safe", &state), ("/fresh", &last)] {
        let into = format!("/back{of}");
        super::backups::restore_of(&disk, of, &into).unwrap();
        let back = open_at(&disk, &into).unwrap();
        assert_eq!(whole(&back).await, *state, "{of}");
        assert_eq!(history(&back, 1000).await, changes[..state.revision.0 as usize], "{of}");
    }
}

/// Goal: if the log after a snapshot is no longer complete, only existing states are restored, and
/// nothing is invented.
#[tokio::test]
async fn a_gap_in_the_log_is_not_bridged() {
    let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(3));
    let store = open(&disk);
    drive(&store, &mut workload, 10).await;
    let taken = store.snapshot(new_id(), &name("s")).await.unwrap().revision;
    drive(&store, &mut workload, 60).await;
    store.flush().await.unwrap();
    let changes = history(&store, 1000).await;
    drop(store);
    // The oldest segments go, one after the other.
    let firsts: Vec<u64> = (disk.files(".log").iter())
        .filter(|path| path.starts_with("/data/log"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
        .collect();
    let own_end = firsts.iter().find(|first| **first > taken.0).unwrap() - 1;
    let digests = digests(&changes);
    let last = changes.len() as u64;
    let log = |first: u64| PathBuf::from(format!("/data/log/{first:020}.log"));
    for first in &firsts[..firsts.len() - 1] {
        disk.vanish(&log(*first));
        let kept_from = firsts[firsts.iter().position(|other| other == first).unwrap() + 1];
        let to_end = restore(&disk.copy(), "s", RestorePoint::Revision(Revision(last)));
        let to_now = restore(&disk.copy(), "s", RestorePoint::Time(TimeMs(u64::MAX / 2)));
        if kept_from <= own_end + 1 {
            assert_eq!(to_end.unwrap().digest, digests[last as usize], "from {kept_from}");
            assert_eq!(to_now.unwrap().revision.0, last);
            continue;
        }
        let refused = to_end.unwrap_err();
        assert!(refused.message.contains(&format!("to {own_end}")), "{refused}");
        let refused = to_now.unwrap_err();
        assert!(refused.message.contains(&format!("--until {own_end}")), "{refused}");
        let copy = disk.copy();
        let restored = restore(&copy, "s", RestorePoint::Revision(Revision(own_end))).unwrap();
        assert_eq!(restored.digest, digests[own_end as usize]);
        assert_eq!(open(&copy).digest().await.unwrap(), digests[own_end as usize]);
    }
    assert!(firsts.iter().filter(|first| **first > own_end + 1).count() > 2, "{firsts:?} {own_end}");
}
