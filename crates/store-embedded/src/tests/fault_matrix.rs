//! Flipped bits in files of every kind, and failing reads: detected or without effect, never wrong
//! data.

use std::path::{Path, PathBuf};

use exacat_model::{Change, ErrorKind, Result, Revision};
use exacat_store::{Snapshots, Store};

use super::archiving::{run as run_archive, work as archive_of};
use super::backups::{back_up_to, restore_of};
use super::restoring::open_at;
use super::snapshots::{Whole, drive, name, new_id, open_snapshot, whole};
use super::workload::Workload;
use super::{TestClock, assert_sound, history, open, seeds, settings, try_open};
use crate::inspect::inspect;
use crate::repair::{RepairOptions, repair};
use crate::snapshot::{clone_on, verify_at, verify_backups_on};
use crate::{EmbeddedSettings, EmbeddedStore};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

/// State before the damage.
struct Before {
    whole: Whole,
    changes: Vec<Change>,
    of_snapshot: Whole,
}

const BACKUPS: &str = "/safe/backups";

/// Makes a catalogue with archived and plain segments, runs, a snapshot, a clone of it and a
/// backup; closed.
async fn everything(seed: u64) -> (SimulatedDisk, Before) {
    let (disk, mut workload) = (SimulatedDisk::new(), Workload::new(seed));
    let store = open(&disk);
    drive(&store, &mut workload, 25).await;
    run_archive(&mut archive_of(&store));
    drive(&store, &mut workload, 9).await;
    store.snapshot(new_id(), &name("s")).await.unwrap();
    let of_snapshot = whole(&store).await;
    drive(&store, &mut workload, 8).await;
    back_up_to(&store, BACKUPS).await;
    let before = Before { whole: whole(&store).await, changes: history(&store, 5000).await, of_snapshot };
    drop(store);
    clone_on(&disk.shared(), &settings(), &name("s"), Path::new("/clone"), &TestClock::default()).unwrap();
    (disk, before)
}

/// Returns everything in a store, or the error that reports damage.
async fn read_all(store: &EmbeddedStore) -> Result<(Whole, Vec<Change>, Revision)> {
    let audit = store.audit().await?;
    assert_eq!(audit.findings_total, 0, "a flipped bit was taken for data: {:?}", audit.findings);
    let (mut changes, mut after, mut oldest) = (Vec::new(), Revision(0), Revision(1));
    loop {
        let page = store.changes(after, 50).await?;
        oldest = if changes.is_empty() { page.oldest } else { oldest };
        match page.changes.last() {
            Some(last) => after = last.revision,
            None => return Ok((whole(store).await, changes, oldest)),
        }
        changes.extend(page.changes);
    }
}

/// Opens a possibly damaged store and compares; true if the damage was reported, or cut off as a
/// torn end.
async fn check(
    opened: Result<std::sync::Arc<EmbeddedStore>>,
    wanted: &Whole,
    changes: &[Change],
    what: &str,
) -> bool {
    let told = |error: exacat_model::Error| {
        let kinds = [ErrorKind::Corrupt, ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::Internal];
        assert!(kinds.contains(&error.kind), "{what}: {error}");
        true
    };
    let store = match opened {
        Ok(store) => store,
        Err(error) => return told(error),
    };
    let warned = store.status().await.unwrap().warnings.iter().any(|warning| warning.contains("torn"));
    match read_all(&store).await {
        Err(error) => told(error),
        Ok((now, history, oldest)) => {
            if warned {
                assert!(now.revision <= wanted.revision, "{what}: there is more than there was");
                assert_eq!(history, changes[oldest.0 as usize - 1..now.revision.0 as usize], "{what}");
                return true;
            }
            assert_eq!(now, *wanted, "{what}");
            assert_eq!(history, changes[oldest.0 as usize - 1..now.revision.0 as usize], "{what}");
            false
        }
    }
}

/// Number of damaged files of each kind, and of those that were reported.
#[derive(Default, Debug)]
struct Tally(std::collections::BTreeMap<String, (u64, u64)>);

fn kind_of(path: &Path) -> String {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
    let place = match parts[1] {
        "data" if parts.contains(&"snapshots") => "snapshot",
        "safe" => "backup",
        other => other,
    };
    let file = parts.last().unwrap();
    let file = file.rsplit_once('.').map_or(*file, |(_, ending)| ending);
    format!("{place} {file}")
}

/// Goal: a flipped bit is never taken for data, and an inspection names it. Method: random bits of
/// every file: of the catalogue, a snapshot, a clone and a backup. Reported damage can then be
/// repaired, or the repair lists the losses.
#[tokio::test]
async fn a_flipped_bit_in_any_file_is_told_or_of_no_effect() {
    let mut tally = Tally::default();
    for chosen in seeds(2) {
        let seed = chosen.0;
        let (start, before) = everything(seed).await;
        let mut random = Random(seed ^ 0xb17);
        for path in start.files("") {
            let length = start.bytes(&path).len() as u64;
            if length == 0 {
                continue;
            }
            for _ in 0..3 {
                // Half of the bits are near the start, where most is decided.
                let bound = if random.chance(2) { length.min(200) } else { length };
                let (at, bit) = (random.next(bound) as usize, random.next(8));
                let disk = start.copy();
                disk.damage(&path, |bytes| bytes[at] ^= 1 << bit);
                let what = format!("seed {seed} {path:?} byte {at} bit {bit}");
                let told = look_at(&disk, &path, &before, &what).await;
                let counts = tally.0.entry(kind_of(&path)).or_default();
                counts.0 += 1;
                counts.1 += u64::from(told);
            }
        }
    }
    let kinds = [
        "data log",
        "data logz",
        "data run",
        "data manifest",
        "data CATALOGUE",
        "snapshot SNAPSHOT",
        "snapshot manifest",
        "snapshot CATALOGUE",
        "clone CATALOGUE",
        "clone manifest",
        "backup BACKUPS",
        "backup FILES",
        "backup SNAPSHOT",
        "backup run",
        "backup manifest",
    ];
    for kind in kinds {
        let (tried, told) = tally.0.get(kind).copied().unwrap_or_default();
        assert!(tried > 0 && told > 0, "{kind}: {tried} tried, {told} told: {tally:?}");
    }
}

async fn look_at(disk: &SimulatedDisk, path: &Path, before: &Before, what: &str) -> bool {
    if path.starts_with("/safe") {
        let verified = verify_backups_on(&disk.shared(), Path::new(BACKUPS));
        let told = verified.map_or(true, |problems| !problems.is_empty());
        return match restore_of(disk, BACKUPS, "/back") {
            Err(error) => {
                assert!(
                    matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::NotFound),
                    "{what}: {error}"
                );
                true
            }
            Ok(_) => {
                let wrong = check(open_at(disk, "/back"), &before.whole, &before.changes, what).await;
                assert!(!wrong, "{what}: what was restored is damaged");
                told
            }
        };
    }
    if path.starts_with("/clone") {
        return check(open_at(disk, "/clone"), &before.of_snapshot, &before.changes, what).await;
    }
    if path.starts_with("/data/snapshots") {
        let told = check(open_snapshot(disk, "s"), &before.of_snapshot, &before.changes, what).await;
        let layout = crate::identity::Layout::new(Path::new("/data/snapshots/s"));
        let verified = verify_at(&disk.shared(), &layout);
        let problems = verified.map_or(true, |check| !check.problems.is_empty());
        return told || problems;
    }
    let inspected = inspect(&disk.shared(), Path::new("/data"));
    let named = inspected.as_ref().map_or(true, |found| !found.problems.is_empty() || found.torn);
    let copy = disk.copy();
    let told = check(try_open(&copy), &before.whole, &before.changes, what).await;
    assert!(named || !told, "{what}: an inspection passes over it");
    if named && inspected.is_ok_and(|found| !found.problems.is_empty()) {
        let options = RepairOptions { from: Some(PathBuf::from(BACKUPS)), accept_loss: true };
        let repaired =
            repair(&disk.shared(), &settings(), &options, &TestClock::default(), &mut |_| ()).unwrap();
        if repaired.losses_total == 0 {
            assert_eq!(repaired.digest, before.whole.digest, "{what}");
        }
        assert_sound(&open(disk)).await;
    }
    named
}

/// Goal: a failing read is an error, not data, and passes without any change. Method: each read of
/// opening, of an audit and of the history fails in turn, once.
#[tokio::test]
async fn every_reading_may_fail_once() {
    let (start, before) = everything(5).await;
    let (mut refused, mut failed) = (0, 0);
    let mut number = 1;
    loop {
        let disk = start.copy();
        disk.set_fault(Some(Fault::Read(disk.reads() + number)));
        let reached = match try_open(&disk) {
            Err(error) => {
                assert!(
                    matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Corrupt),
                    "{number}: {error}"
                );
                refused += 1;
                true
            }
            Ok(store) => {
                let read = read_all_small_cache(&store).await;
                failed += u64::from(read.is_err());
                let reached = disk.reads() >= number;
                drop(store);
                reached
            }
        };
        disk.set_fault(None);
        let store = open(&disk);
        assert_eq!(whole(&store).await, before.whole, "reading {number}");
        assert_eq!(history(&store, 5000).await, before.changes, "reading {number}");
        drop(store);
        if !reached || number > 600 {
            break;
        }
        // All of the first reads, which are those of opening, then some.
        number += 1 + number / 25;
    }
    assert!(refused > 5 && failed > 2, "{refused} openings and {failed} readings failed");
}

async fn read_all_small_cache(store: &EmbeddedStore) -> Result<()> {
    store.audit().await?;
    let mut after = Revision(0);
    loop {
        let page = store.changes(after, 50).await?;
        match page.changes.last() {
            Some(last) => after = last.revision,
            None => return Ok(()),
        }
    }
}

/// Goal: without space for runs, nothing is lost and reads continue; with space again the store
/// recovers by itself. Method: runs refused in the middle of a workload; the result compared with
/// that on a disk that was never full.
#[tokio::test]
async fn a_disk_too_full_for_runs_recovers_by_itself() {
    for chosen in seeds(3) {
        let seed = chosen.0;
        let (disk, never_full) = (SimulatedDisk::new(), SimulatedDisk::new());
        let settings = || EmbeddedSettings { memtable_rows: 40, ..settings() };
        let open = |disk: &SimulatedDisk| {
            EmbeddedStore::open_on(disk.shared(), settings(), std::sync::Arc::new(TestClock::default()))
                .unwrap()
        };
        let (store, other) = (open(&disk), open(&never_full));
        let (mut workload, mut same) = (Workload::new(seed), Workload::new(seed));
        for number in 0..60 {
            if number == 15 {
                disk.refuse_runs(true);
            }
            if number == 45 {
                disk.refuse_runs(false);
            }
            let outcomes = store.apply(workload.request()).await.unwrap();
            assert_eq!(outcomes, other.apply(same.request()).await.unwrap());
            store.resolve(&[exacat_model::Lfn::root()]).await.unwrap();
        }
        let recovers = async {
            while store.flush().await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), recovers).await.unwrap();
        other.flush().await.unwrap();
        assert!(store.status().await.unwrap().warnings.is_empty());
        assert_sound(&store).await;
        let entries = |whole: Whole| whole;
        let (one, two) = (entries(whole(&store).await), entries(whole(&other).await));
        assert_eq!(one.revision, two.revision);
    }
}
