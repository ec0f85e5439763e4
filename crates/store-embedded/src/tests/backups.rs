//! Backups: their content, their refusals, and restores from them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{BackupProgress, Change, Cursor, DirId, ErrorKind, Result, Revision};
use exacat_store::{Snapshots, Store};

use super::restoring::open_at;
use super::snapshots::{digests, drive, name, new_id, whole};
use super::workload::Workload;
use super::{TestClock, apply, assert_sound, history, mkdir, open, settings};
use crate::snapshot::{
    BackupSource, RestorePoint, Restored, list_backups_on, restore_backup_on, verify_backups_on,
};
use crate::{EmbeddedSettings, EmbeddedStore};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

const SAFE: &str = "/safe/place";

/// Returns a disk on which `/safe` is another file system, without hard links from or to it.
fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.mount(Path::new("/safe"));
    disk
}

async fn back_up(store: &EmbeddedStore) -> Result<BackupProgress> {
    try_back_up_to(store, SAFE).await
}

pub(crate) async fn back_up_to(store: &EmbeddedStore, place: &str) -> BackupProgress {
    try_back_up_to(store, place).await.unwrap()
}

async fn try_back_up_to(store: &EmbeddedStore, place: &str) -> Result<BackupProgress> {
    let mut cursor = Cursor::default();
    loop {
        let (progress, next) = store.backup(place, &cursor).await?;
        assert!(progress.files_done <= progress.files && progress.bytes_done <= progress.bytes);
        match next {
            Some(next) => cursor = next,
            None => return Ok(progress),
        }
    }
}

fn restore(disk: &SimulatedDisk, of: Option<&str>, point: RestorePoint, into: &str) -> Result<Restored> {
    let settings = EmbeddedSettings { directory: into.into(), ..settings() };
    let source = BackupSource { directory: SAFE.into(), name: of.map(name) };
    restore_backup_on(&disk.shared(), &settings, &source, point, &TestClock::default(), &mut |_| ())
}

/// Restores the newest backup of a directory.
pub(crate) fn restore_of(disk: &SimulatedDisk, place: &str, into: &str) -> Result<Restored> {
    let settings = EmbeddedSettings { directory: into.into(), ..settings() };
    let source = BackupSource { directory: place.into(), name: None };
    let (point, clock) = (RestorePoint::AsTaken, TestClock::default());
    restore_backup_on(&disk.shared(), &settings, &source, point, &clock, &mut |_| ())
}

fn saved(disk: &SimulatedDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = disk.files("").into_iter().filter(|path| path.starts_with("/safe"));
    files.map(|path| (path.clone(), disk.bytes(&path))).collect()
}

/// Goal: a backup has everything, and a further one copies only what is new. Everything can be
/// restored, with the history, up to any point since the first.
#[tokio::test]
async fn backups_share_files_and_bring_everything_back() {
    for seed in 0..4 {
        let (disk, mut workload) = (disk(), Workload::new(seed));
        let store = open(&disk);
        let mut wanted = Vec::new();
        for round in 0..3 {
            drive(&store, &mut workload, 12 + 4 * round).await;
            if round == 1 {
                store.flush().await.unwrap();
            }
            let before = saved(&disk);
            let progress = back_up(&store).await.unwrap();
            assert_eq!((progress.files_done, progress.bytes_done), (progress.files, progress.bytes));
            assert_eq!(round == 0, progress.bytes_copied == progress.bytes, "{progress:?}");
            let after = saved(&disk);
            for (path, bytes) in &before {
                assert!(path.ends_with("BACKUPS") || after.get(path) == Some(bytes), "{path:?} changed");
            }
            let new: u64 = after
                .iter()
                .filter(|(path, _)| !before.contains_key(*path) && !path.starts_with("/safe/place/backups"))
                .filter(|(path, _)| !path.ends_with("BACKUPS"))
                .map(|(_, bytes)| bytes.len() as u64)
                .sum();
            assert_eq!(progress.bytes_copied, new, "only what is new is copied");
            // Nothing changed since, so this backup exists already.
            let same = back_up(&store).await.unwrap();
            assert_eq!((same.name, same.bytes_copied), (progress.name.clone(), 0));
            wanted.push((progress.name, whole(&store).await));
        }
        let changes = history(&store, 1000).await;
        let digests = digests(&changes);
        drive(&store, &mut workload, 5).await;
        drop(store);
        let listed = list_backups_on(&disk.shared(), Path::new(SAFE)).unwrap();
        assert_eq!(listed.len(), 3);
        assert_eq!(verify_backups_on(&disk.shared(), Path::new(SAFE)).unwrap(), Vec::<String>::new());
        assert!(!disk.files("").iter().any(|path| path.to_string_lossy().contains("pinned")));
        for (number, (of, state)) in wanted.iter().enumerate() {
            let into = format!("/back{number}");
            let restored = restore(&disk, Some(of), RestorePoint::AsTaken, &into).unwrap();
            assert_eq!((restored.revision, restored.replaced_copy), (state.revision, None));
            let back = open_at(&disk, &into).unwrap();
            assert_eq!(whole(&back).await, *state);
            assert_eq!(history(&back, 1000).await, changes[..state.revision.0 as usize]);
            assert_sound(&back).await;
            drive(&back, &mut workload, 3).await;
        }
        let (first, last) = (wanted[0].1.revision.0, wanted[2].1.revision.0);
        for up_to in (first..=last).step_by(5) {
            let into = format!("/point{up_to}");
            let point = RestorePoint::Revision(Revision(up_to));
            assert_eq!(restore(&disk, None, point, &into).unwrap().digest, digests[up_to as usize]);
            let back = open_at(&disk, &into).unwrap();
            assert_eq!(back.digest().await.unwrap(), digests[up_to as usize], "up to {up_to}");
            assert_eq!(history(&back, 1000).await, changes[..up_to as usize]);
        }
        let early = restore(&disk, None, RestorePoint::Revision(Revision(first - 1)), "/early").unwrap_err();
        assert!(early.message.contains("no backup") && early.message.contains(&wanted[0].0), "{early}");
        let late = restore(&disk, None, RestorePoint::Revision(Revision(last + 1)), "/late").unwrap_err();
        assert!(late.message.contains(&last.to_string()), "{late}");
        assert!(!disk.files("").iter().any(|path| path.starts_with("/late") || path.starts_with("/early")));
    }
}

/// Returns a catalogue with a backup, and its state.
async fn backed_up() -> (SimulatedDisk, super::snapshots::Whole, Vec<Change>) {
    let (disk, mut workload) = (disk(), Workload::new(6));
    let store = open(&disk);
    drive(&store, &mut workload, 25).await;
    back_up(&store).await.unwrap();
    let wanted = (whole(&store).await, history(&store, 1000).await);
    drop(store);
    (disk, wanted.0, wanted.1)
}

/// Goal: a damaged file of a backup is found and named, by a check and by a restore.
#[tokio::test]
async fn a_damaged_backup_is_refused_and_named() {
    let (disk, ..) = backed_up().await;
    for (path, bytes) in saved(&disk) {
        let shared = path.starts_with("/safe/place/runs") || path.starts_with("/safe/place/log");
        for at in (0..bytes.len()).step_by(bytes.len() / 5 + 1) {
            let damaged = disk.copy();
            damaged.damage(&path, |bytes| bytes[at] ^= 2);
            let refused = restore(&damaged, None, RestorePoint::AsTaken, "/back").unwrap_err();
            assert!(matches!(refused.kind, ErrorKind::Corrupt | ErrorKind::Invalid), "{path:?}: {refused}");
            if shared {
                assert!(refused.message.contains(path.to_str().unwrap()), "{refused}");
                let found = verify_backups_on(&damaged.shared(), Path::new(SAFE)).unwrap();
                assert!(found.len() == 1 && found[0].contains(path.to_str().unwrap()), "{found:?}");
            }
            assert!(!damaged.files("").iter().any(|path| path.starts_with("/back")), "{path:?}");
        }
        if shared {
            let missing = disk.copy();
            missing.vanish(&path);
            let refused = restore(&missing, None, RestorePoint::AsTaken, "/back").unwrap_err();
            assert!(refused.message.contains(path.to_str().unwrap()), "{refused}");
        }
    }
}

/// Goal: damage in the catalogue is not backed up as if it were intact.
#[tokio::test]
async fn damage_in_the_catalogue_does_not_get_into_a_backup() {
    let (disk, mut workload) = (disk(), Workload::new(6));
    let store = open(&disk);
    drive(&store, &mut workload, 30).await;
    store.close().await.unwrap();
    for run in disk.files(".run") {
        let damaged = disk.copy();
        damaged.mount(Path::new("/safe"));
        // The byte is in the middle of a page.
        damaged.damage(&run, |bytes| bytes[200] ^= 1);
        let Ok(store) = super::try_open(&damaged) else { continue };
        let refused = back_up(&store).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Corrupt);
        assert!(refused.message.contains(run.file_name().unwrap().to_str().unwrap()), "{refused}");
        assert_eq!(list_backups_on(&damaged.shared(), Path::new(SAFE)).unwrap(), []);
    }
}

/// Goal: refusal of places that cannot have a backup or a restored catalogue.
#[tokio::test]
async fn places_that_are_taken_are_refused() {
    let (disk, ..) = backed_up().await;
    let taken = restore(&disk, None, RestorePoint::AsTaken, "/data").unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Exists, "{taken}");
    assert_eq!(
        restore(&disk, Some("r1"), RestorePoint::AsTaken, "/back").unwrap_err().kind,
        ErrorKind::NotFound
    );
    let other = open_at(&disk, "/other").unwrap();
    apply(&other, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    let refused = other.backup(SAFE, &Cursor::default()).await.unwrap_err();
    assert!(refused.message.contains("another catalogue"), "{refused}");
    assert_eq!(other.backup("relative", &Cursor::default()).await.unwrap_err().kind, ErrorKind::Invalid);
    let long = format!("/{}", "d".repeat(exacat_model::limits::DIRECTORY_PATH_BYTES_MAX));
    assert_eq!(other.backup(&long, &Cursor::default()).await.unwrap_err().kind, ErrorKind::Limit);
    disk.shared().create_directory(Path::new("/full")).unwrap();
    disk.shared().create(Path::new("/full/thesis")).unwrap();
    assert_eq!(other.backup("/full", &Cursor::default()).await.unwrap_err().kind, ErrorKind::Invalid);
    // Only one backup runs at a time, and a finished one cannot continue.
    let (_, cursor) = other.backup("/elsewhere", &Cursor::default()).await.unwrap();
    let cursor = cursor.unwrap();
    assert_eq!(other.backup("/third", &Cursor::default()).await.unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(other.backup("/elsewhere", &Cursor(vec![9; 8])).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(other.backup("/elsewhere", &Cursor(vec![9; 7])).await.unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(other.backup("/elsewhere", &cursor).await.unwrap().1, None);
    assert_eq!(other.backup("/elsewhere", &cursor).await.unwrap_err().kind, ErrorKind::Conflict);
}

/// Goal: a backup exists completely or not at all, and the next one completes it. Method: the power
/// fails at every operation.
#[tokio::test]
async fn backing_up_may_be_cut_at_every_step() {
    let (disk, mut workload) = (disk(), Workload::new(11));
    let store = open(&disk);
    drive(&store, &mut workload, 8).await;
    back_up(&store).await.unwrap();
    drive(&store, &mut workload, 8).await;
    let state = whole(&store).await;
    drop(store);
    let start = disk.copy();
    for step in 1.. {
        let disk = start.copy();
        disk.mount(Path::new("/safe"));
        let store = open(&disk);
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + step)));
        let done = back_up(&store).await.is_ok();
        let died = disk.is_dead();
        drop(store);
        for seed in 0..3 {
            let image = disk.image(&mut Random(seed));
            image.mount(Path::new("/safe"));
            let backups = list_backups_on(&image.shared(), Path::new(SAFE)).unwrap();
            assert!(backups.len() == 2 || (backups.len() == 1 && !done), "step {step}");
            assert_eq!(verify_backups_on(&image.shared(), Path::new(SAFE)).unwrap(), Vec::<String>::new());
            let store = open(&image);
            assert_eq!(back_up(&store).await.unwrap().revision, state.revision, "step {step} seed {seed}");
            drop(store);
            restore(&image, None, RestorePoint::AsTaken, "/back").unwrap();
            assert_eq!(whole(&open_at(&image, "/back").unwrap()).await, state, "step {step} seed {seed}");
        }
        if !died {
            assert!(step > 30, "it has more steps than {step}");
            return;
        }
    }
}

/// Goal: a restore from a backup is done completely or not at all, and can be repeated. Method: the
/// power fails at every operation.
#[tokio::test]
async fn restoring_a_backup_may_be_cut_at_every_step() {
    let (start, state, changes) = backed_up().await;
    for step in 1.. {
        let disk = start.copy();
        disk.set_fault(Some(Fault::PowerCut(disk.operations() + step)));
        let done = restore(&disk, None, RestorePoint::AsTaken, "/back").is_ok();
        let died = disk.is_dead();
        for seed in 0..4 {
            let image = disk.image(&mut Random(seed));
            let begun = image.files("").iter().any(|path| path.starts_with("/back"));
            let marked = !image.files("/RESTORE").is_empty() || !image.files("/back/CATALOGUE").is_empty();
            assert!(marked || !done, "step {step}");
            if marked && seed % 2 == 0 {
                // Opening completes the restore.
                assert_eq!(whole(&open_at(&image, "/back").unwrap()).await, state, "step {step} seed {seed}");
            } else if marked {
                let there = restore(&image, None, RestorePoint::AsTaken, "/back").unwrap_err();
                assert_eq!(there.kind, ErrorKind::Exists, "{there}");
            } else {
                if begun {
                    // The directory is no empty catalogue, and does not open as one.
                    let half = open_at(&image, "/back").map(drop).unwrap_err();
                    assert!(half.message.contains("run it again"), "step {step}: {half}");
                }
                restore(&image, None, RestorePoint::AsTaken, "/back").unwrap();
            }
            let back = open_at(&image, "/back").unwrap();
            assert_eq!(whole(&back).await, state, "step {step} seed {seed}");
            assert_eq!(history(&back, 1000).await, changes);
        }
        if !died {
            assert!(step > 30, "it has more steps than {step}");
            return;
        }
    }
}

/// Goal: a complete backup and restore on real files, where links work but do not cross file
/// systems.
#[tokio::test]
async fn real_files_are_backed_up_cloned_and_restored() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let real = EmbeddedSettings { directory: data.clone(), ..settings() };
    let clock: Arc<dyn exacat_store::Clock> = Arc::new(TestClock::default());
    let store = EmbeddedStore::open(real.clone(), Arc::clone(&clock)).unwrap();
    let mut workload = Workload::new(50);
    drive(&store, &mut workload, 60).await;
    store.snapshot(new_id(), &name("s")).await.unwrap();
    let state = whole(&store).await;
    let safe = place.path().join("safe");
    let mut cursor = Cursor::default();
    while let (_, Some(next)) = store.backup(safe.to_str().unwrap(), &cursor).await.unwrap() {
        cursor = next;
    }
    drive(&store, &mut workload, 30).await;
    assert!(!store.diff(&name("s"), None, &Cursor::default(), 100).await.unwrap().0.is_empty());
    let view = EmbeddedStore::open_snapshot(real.clone(), &name("s"), Arc::clone(&clock)).unwrap();
    assert_eq!(whole(&view).await, state);
    EmbeddedStore::clone_snapshot(&real, &name("s"), &place.path().join("clone"), &*clock).unwrap();
    store.close().await.unwrap();
    let mut told = 0;
    let restored =
        EmbeddedStore::restore(&real, &name("s"), RestorePoint::AsTaken, None, &*clock, &mut |_| told += 1);
    assert_eq!(restored.unwrap().revision, state.revision);
    assert!(EmbeddedStore::has_backups(&safe).unwrap() && !EmbeddedStore::has_backups(&data).unwrap());
    let source = BackupSource { directory: safe.clone(), name: None };
    let back = EmbeddedSettings { directory: place.path().join("back"), ..settings() };
    EmbeddedStore::restore_backup(&back, &source, RestorePoint::AsTaken, &*clock, &mut |_| told += 1)
        .unwrap();
    assert!(told > 0);
    assert_eq!(EmbeddedStore::verify_backups(&safe, &mut |_| ()).unwrap(), Vec::<String>::new());
    for directory in [data, place.path().join("clone"), place.path().join("back")] {
        let settings = EmbeddedSettings { directory: directory.clone(), ..settings() };
        let opened = EmbeddedStore::open(settings, Arc::clone(&clock)).unwrap();
        assert_eq!(whole(&opened).await, state, "{directory:?}");
        assert_sound(&opened).await;
    }
}

/// Goal: a place that cannot have backups is refused at once, as a lasting error.
#[tokio::test]
async fn impossible_place_is_refused_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let settings = EmbeddedSettings::at(directory.path().join("store"));
    let store = EmbeddedStore::open(settings, Arc::new(TestClock::default())).unwrap();
    apply(&store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for place in [file.as_path(), &file.join("below"), Path::new("/dev/null"), Path::new("/proc/nowhere")] {
        let error = try_back_up_to(&store, place.to_str().unwrap()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{}: {error}", place.display());
        assert!(!error.kind.is_retryable() && error.message.contains("choose"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x");
    store.close().await.unwrap();
}
