//! The end of the log: changes answered before an end mark, or before other evidence, are there, or
//! their loss is reported.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exacat_log::segment::{HEADER_BYTES, Header, Records};
use exacat_model::{Change, DirId, ErrorKind};
use exacat_store::{Snapshots, Store};

use super::snapshots::{name, new_id};
use super::{TestClock, apply, assert_sound, file, history, mark, mkdir, open, settings, try_open};
use crate::{EmbeddedSettings, EmbeddedStore};
use exacat_testkit::simulated::SimulatedDisk;

/// Sends a few requests in one segment, each synced by itself.
async fn drive(store: &EmbeddedStore) -> Vec<Change> {
    apply(store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    for number in 2..6 {
        apply(store, number, vec![file(DirId(2), &format!("file-{number}"), number)]).await;
    }
    history(store, 100).await
}

fn segment(disk: &SimulatedDisk) -> PathBuf {
    disk.files(".log").pop().unwrap()
}

/// Returns the offset of the last record of changes, the offset of the end of the log, and whether
/// an end mark is there.
fn last_record(bytes: &[u8]) -> (usize, usize, bool) {
    let salt = Header::decode("test", bytes).unwrap().salt;
    let mut records = Records::new(bytes, salt, HEADER_BYTES);
    let mut last = HEADER_BYTES;
    while let Some((at, _)) = records.next_record() {
        last = at;
    }
    (last, records.offset(), records.is_marked())
}

/// Goal: damage to the last group is reported once an end mark follows it. Method: a marked store
/// killed, and one closed; each bit of the last record flipped.
#[tokio::test]
async fn flipped_bit_in_last_group_before_mark_is_corrupt() {
    for is_closed in [false, true] {
        let disk = SimulatedDisk::new();
        let store = open(&disk);
        let changes = drive(&store).await;
        match is_closed {
            true => store.close().await.unwrap(),
            false => assert!(mark(&store).await),
        }
        drop(store);
        let path = segment(&disk);
        let (start, end, is_marked) = last_record(&disk.bytes(&path));
        assert!(is_marked, "closed: {is_closed}");
        let mark_at = end - exacat_log::record::MARK_BYTES;
        for at in start..mark_at {
            for bit in 0..8 {
                let damaged = disk.copy();
                super::without_runs(&damaged);
                damaged.damage(&path, |bytes| bytes[at] ^= 1 << bit);
                let error =
                    try_open(&damaged).err().unwrap_or_else(|| panic!("byte {at} bit {bit} passed over"));
                assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
            }
        }
        let whole = open(&disk);
        assert_eq!(history(&whole, 100).await, changes);
        assert_sound(&whole).await;
    }
}

/// Goal: the end mark comes without a request. Method: a short idle time; the test waits for the
/// mark, then leaves the store as a kill does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_store_marks_its_end_once() {
    let disk = SimulatedDisk::new();
    let settings = EmbeddedSettings { mark_idle: Duration::from_millis(1), ..settings() };
    let store = EmbeddedStore::open_on(disk.shared(), settings, Arc::new(TestClock::default())).unwrap();
    for round in 0..3 {
        apply(&store, 1 + round, vec![mkdir(DirId::ROOT, &format!("d{round}"))]).await;
        let marked = async {
            while !last_record(&disk.bytes(&segment(&disk))).2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), marked).await.expect("the end was never marked");
        assert!(!mark(&store).await, "one mark is enough");
    }
    let killed = disk.copy();
    let (start, ..) = last_record(&killed.bytes(&segment(&killed)));
    killed.damage(&segment(&killed), |bytes| bytes[start + 20] ^= 1);
    assert_eq!(try_open(&killed).err().unwrap().kind, ErrorKind::Corrupt);
}

/// Goal: end marks cost nothing under load. Method: requests without a pause; each is one write and
/// one sync.
#[tokio::test]
async fn requests_without_pause_are_one_write_and_one_sync_each() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    let before = disk.operations();
    for number in 2..8 {
        apply(&store, number, vec![mkdir(DirId::ROOT, &format!("d{number}"))]).await;
    }
    assert_eq!(disk.operations() - before, 12);
    assert!(!last_record(&disk.bytes(&segment(&disk))).2);
}

/// Goal: the log continues behind an end mark, in history and archive as well. Method: marks
/// between requests, over several segments.
#[tokio::test]
async fn log_with_marks_is_read_from_any_change() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    for number in 1..60 {
        apply(&store, number, vec![mkdir(DirId::ROOT, &format!("d{number}"))]).await;
        if number % 3 == 0 {
            assert!(mark(&store).await);
        }
    }
    let changes = history(&store, 7).await;
    assert_eq!(changes.len(), 59);
    super::archiving::run(&mut super::archiving::work(&store));
    assert!(!disk.files(".logz").is_empty());
    assert_eq!(history(&store, 5).await, changes);
    drop(store);
    super::without_runs(&disk);
    let store = open(&disk);
    assert_eq!(history(&store, 100).await, changes);
    assert_sound(&store).await;
    let inspected = crate::inspect::inspect(&disk.copy().shared(), Path::new("/data")).unwrap();
    assert_eq!((inspected.problems, inspected.torn), (Vec::new(), false));
}

// ---- a missing end ----

/// Returns the segments of the catalogue itself.
fn own_segments(disk: &SimulatedDisk) -> Vec<PathBuf> {
    disk.files(".log").into_iter().filter(|path| path.starts_with("/data/log")).collect()
}

/// Checks a store that lost a part of the end of its log: it has everything, or refuses to open and
/// changes nothing.
async fn assert_all_or_refused(damaged: &SimulatedDisk, changes: &[Change], what: &str) -> bool {
    let before: Vec<(PathBuf, Vec<u8>)> =
        damaged.files("").into_iter().map(|path| (path.clone(), damaged.bytes(&path))).collect();
    match try_open(damaged) {
        Ok(store) => {
            assert_eq!(history(&store, 100).await, changes, "{what}");
            assert_sound(&store).await;
            false
        }
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Corrupt, "{what}: {error}");
            for (path, bytes) in before.iter().filter(|(path, _)| path.ends_with(".log")) {
                assert!(damaged.bytes(path) == *bytes, "{what}: {path:?} was changed");
            }
            true
        }
    }
}

/// Goal: however much of the end of the log is cut off or overwritten by zeros, no answered change
/// is lost silently. Method: a store that was closed, and one killed while idle; every length of
/// the last segment, and zeros from every offset on.
#[tokio::test]
async fn last_segment_cut_or_zeroed_by_any_amount_is_refused() {
    for is_closed in [false, true] {
        let disk = SimulatedDisk::new();
        let store = super::open_without_runs(&disk);
        let changes = drive(&store).await;
        match is_closed {
            true => store.close().await.unwrap(),
            false => assert!(mark(&store).await),
        }
        drop(store);
        let path = segment(&disk);
        let whole = disk.bytes(&path);
        let (_, end, _) = last_record(&whole);
        let mut refused = 0;
        for at in (0..whole.len()).filter(|at| *at < end + 16 || at % 64 == 0) {
            let cut = disk.copy();
            cut.damage(&path, |bytes| bytes.truncate(at));
            assert!(
                assert_all_or_refused(&cut, &changes, &format!("cut at {at}, closed: {is_closed}")).await
            );
            let zeroed = disk.copy();
            zeroed.damage(&path, |bytes| bytes[at..].fill(0));
            let what = format!("zeros from {at}, closed: {is_closed}");
            refused += u64::from(assert_all_or_refused(&zeroed, &changes, &what).await);
        }
        assert!(refused > 100, "{refused}");
        let gone = disk.copy();
        gone.vanish(&path);
        assert!(assert_all_or_refused(&gone, &changes, "the segment is gone").await);
    }
}

/// Goal: a snapshot of a later revision is evidence too, and is not harmed. Method: END gone; the
/// segment zeroed from every record on; the snapshot verified after the refusal.
#[tokio::test]
async fn snapshot_of_a_later_revision_is_a_witness() {
    let disk = SimulatedDisk::new();
    let store = super::open_without_runs(&disk);
    let changes = drive(&store).await;
    store.snapshot(new_id(), &name("s")).await.unwrap();
    drop(store);
    let log = own_segments(&disk);
    let path = log[0].clone();
    let last = last_record(&disk.bytes(&path)).0;
    for at in (HEADER_BYTES..=last).step_by(8) {
        let zeroed = disk.copy();
        zeroed.vanish(Path::new("/data/log/END"));
        zeroed.vanish(&log[1]);
        zeroed.damage(&path, |bytes| bytes[at..].fill(0));
        assert!(assert_all_or_refused(&zeroed, &changes, &format!("zeros from {at}")).await);
        // The damage is in a file that the snapshot shares; the opening adds none.
        let of_snapshot = |disk: &SimulatedDisk| -> Vec<(PathBuf, Vec<u8>)> {
            let names = disk.files("").into_iter().filter(|name| name.starts_with("/data/snapshots/s"));
            names.map(|name| (name.clone(), disk.bytes(&name))).collect()
        };
        let before = of_snapshot(&zeroed);
        let error = try_open(&zeroed).err().unwrap();
        assert!(error.message.contains("the snapshot s says"), "zeros from {at}: {error}");
        assert!(of_snapshot(&zeroed) == before, "zeros from {at}: the snapshot was written to");
    }
    // After a restore, another log continues from the snapshot.
    let store = open(&disk);
    apply(&store, 77, vec![mkdir(DirId::ROOT, "later")]).await;
    store.snapshot(new_id(), &name("t")).await.unwrap();
    drop(store);
    super::restoring::restore(&disk, "s", crate::RestorePoint::AsTaken).unwrap();
    let store = open(&disk);
    assert_eq!(history(&store, 100).await, changes, "the later snapshot is of another timeline");
}

/// Goal: without any segment, a snapshot of a timeline that a restore left proves nothing, and one
/// of the present timeline does.
#[tokio::test]
async fn snapshot_of_a_left_timeline_is_no_witness_of_an_empty_log() {
    let disk = SimulatedDisk::new();
    let store = super::open_without_runs(&disk);
    store.snapshot(new_id(), &name("empty")).await.unwrap();
    drive(&store).await;
    store.snapshot(new_id(), &name("later")).await.unwrap();
    drop(store);
    let without_log = |disk: &SimulatedDisk| {
        let gone = disk.copy();
        own_segments(&gone).iter().for_each(|path| gone.vanish(path));
        gone.vanish(Path::new("/data/log/END"));
        gone
    };
    let error = try_open(&without_log(&disk)).err().unwrap();
    assert!(error.message.contains("the snapshot later says"), "{error}");
    super::restoring::restore(&disk, "empty", crate::RestorePoint::AsTaken).unwrap();
    let store = super::open_without_runs(&disk);
    assert_eq!(history(&store, 100).await, [], "restored to the start");
    drop(store);
    assert!(try_open(&without_log(&disk)).is_ok(), "the later snapshot is of another timeline");
}

/// Goal: a run outside of the manifest is evidence too, as after a power cut between the two.
/// Method: the earlier manifest put back, END gone, the log zeroed from any offset before the last
/// change. An incomplete run proves nothing.
#[tokio::test]
async fn run_that_no_manifest_names_is_a_witness() {
    let disk = SimulatedDisk::new();
    let store = super::open_without_runs(&disk);
    let changes = drive(&store).await;
    let before = disk.copy();
    store.flush().await.unwrap();
    drop(store);
    let run = disk.files(".run").pop().unwrap();
    let manifest = Path::new("/data/runs/manifest");
    let old = before.files("").contains(&manifest.to_owned()).then(|| before.bytes(manifest));
    match old {
        Some(bytes) => disk.damage(manifest, |now| *now = bytes.clone()),
        None => disk.vanish(manifest),
    }
    disk.vanish(Path::new("/data/log/END"));
    let path = segment(&disk);
    let last = last_record(&disk.bytes(&path)).0;
    for at in (HEADER_BYTES..=last).step_by(8) {
        let zeroed = disk.copy();
        zeroed.damage(&path, |bytes| bytes[at..].fill(0));
        let error = try_open(&zeroed).err().unwrap_or_else(|| panic!("zeros from {at} passed over"));
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
        assert!(zeroed.files(".run").contains(&run), "zeros from {at}: the evidence was removed");
    }
    let zeroed = disk.copy();
    zeroed.damage(&path, |bytes| bytes[last..].fill(0));
    assert!(try_open(&zeroed).err().unwrap().message.contains("which no manifest names, says that change"));
    // A repair takes the state from the run. It lists the history as lost, until the operator
    // accepts that.
    let lost = zeroed.copy();
    let asked = repair(&lost, None, false).unwrap();
    assert!(!asked.done && asked.losses.iter().any(|loss| loss.which == "changes 5 to 5"), "{asked:?}");
    let repaired = repair(&lost, None, true).unwrap();
    assert_eq!((repaired.done, repaired.revision, repaired.entries), (true, asked.revision, asked.entries));
    assert_sound(&open(&lost)).await;
    // Half a run is one that was being written.
    zeroed.damage(&run, |bytes| bytes.truncate(bytes.len() / 2));
    assert_eq!(history(&open(&zeroed), 100).await.len(), changes.len() - 1);
    let whole = open(&disk);
    assert_eq!(history(&whole, 100).await, changes);
    assert_sound(&whole).await;
}

/// Goal: a snapshot shares no file that is still written to. Method: three checks: the names of its
/// last segment; its bytes after a torn end of the catalogue's log was cut off; a snapshot that
/// shares the segment, as older releases made them.
#[tokio::test]
async fn cutting_a_torn_end_leaves_snapshots_as_they_were() {
    for is_shared in [false, true] {
        let disk = SimulatedDisk::new();
        let store = super::open_without_runs(&disk);
        let changes = drive(&store).await;
        store.snapshot(new_id(), &name("s")).await.unwrap();
        apply(&store, 9, vec![mkdir(DirId::ROOT, "after")]).await;
        drop(store);
        let own = own_segments(&disk).pop().unwrap();
        let copy = Path::new("/data/snapshots/s/log").join(own.file_name().unwrap());
        let shared = disk.shared();
        assert_eq!(shared.names_of(&copy).unwrap(), 1);
        if is_shared {
            shared.remove(&copy).unwrap();
            shared.hard_link(&own, &copy).unwrap();
        }
        let (start, end, _) = last_record(&disk.bytes(&own));
        disk.damage(&own, |bytes| bytes[start + 60] ^= 1);
        let was = disk.bytes(&copy);
        let torn = disk.bytes(&own)[start..end].to_vec();
        let store = open(&disk);
        assert_eq!(history(&store, 100).await, changes);
        let warnings = store.status().await.unwrap().warnings.join("\n");
        assert!(warnings.contains("may be among them") && !warnings.contains("not answered"), "{warnings}");
        assert!(disk.bytes(&copy) == was, "the snapshot was changed, shared: {is_shared}");
        let check = crate::snapshot::verify_at(
            &shared,
            &crate::identity::Layout::new(Path::new("/data/snapshots/s")),
        );
        assert_eq!(check.unwrap().problems, Vec::<String>::new());
        // The bytes that were cut off are still in a file.
        let kept: Vec<PathBuf> = disk
            .files("")
            .into_iter()
            .filter(|path| path.to_string_lossy().contains("/data/log/cut-"))
            .collect();
        assert_eq!(kept.len(), 1);
        let kept = disk.bytes(&kept[0]);
        assert!(torn.starts_with(&kept) && torn[kept.len()..].iter().all(|byte| *byte == 0));
        apply(&store, 10, vec![mkdir(DirId::ROOT, "again")]).await;
        drop(store);
        assert_eq!(history(&open(&disk), 100).await.len(), changes.len() + 1);
    }
}

/// Goal: a backup of a later revision is evidence too, when the next backup is made. Method: all
/// other evidence gone.
#[tokio::test]
async fn backup_of_a_later_revision_is_a_witness() {
    let disk = SimulatedDisk::new();
    let store = super::open_without_runs(&disk);
    drive(&store).await;
    super::backups::back_up_to(&store, "/safe/backups").await;
    drop(store);
    disk.vanish(Path::new("/data/log/END"));
    let path = own_segments(&disk).pop().unwrap();
    let (start, ..) = last_record(&disk.bytes(&path));
    disk.damage(&path, |bytes| bytes[start..].fill(0));
    let store = super::open_without_runs(&disk);
    let error = store.backup("/safe/backups", &exacat_model::Cursor::default()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    assert!(error.message.contains("exacat restore"), "{error}");
}

/// Goal: the number of files with bytes that were cut off is bounded, and the newest stay.
#[tokio::test]
async fn cut_off_ends_are_kept_up_to_a_bound() {
    let disk = SimulatedDisk::new();
    let kept = || {
        disk.files("").into_iter().filter(|path| path.to_string_lossy().contains("/cut-")).collect::<Vec<_>>()
    };
    for round in 0..exacat_log::CUTS_KEPT_MAX as u64 + 3 {
        let store = super::open_without_runs(&disk);
        apply(&store, 1 + round, vec![mkdir(DirId::ROOT, &format!("d{round}"))]).await;
        drop(store);
        let path = segment(&disk);
        let (start, ..) = last_record(&disk.bytes(&path));
        disk.damage(&path, |bytes| bytes[start + 30] ^= 1);
    }
    drop(open(&disk));
    let names: Vec<String> = kept().iter().map(|path| path.display().to_string()).collect();
    assert_eq!(names.len(), exacat_log::CUTS_KEPT_MAX);
    let newest = exacat_log::CUTS_KEPT_MAX + 3;
    assert!(names.last().unwrap().contains(&format!("cut-{newest:06}-")), "{names:?}");
}

/// Goal: a store whose log was refused can be repaired, and the losses are listed. Method: the end
/// overwritten by zeros, and cut off; without any copy, and with a backup.
#[tokio::test]
async fn log_that_ends_too_early_is_repaired_with_the_loss_listed() {
    for has_backup in [false, true] {
        for is_cut in [false, true] {
            let disk = SimulatedDisk::new();
            let store = super::open_without_runs(&disk);
            let changes = drive(&store).await;
            if has_backup {
                super::backups::back_up_to(&store, "/safe/backups").await;
            }
            store.close().await.unwrap();
            drop(store);
            super::without_runs(&disk);
            let path = own_segments(&disk).pop().unwrap();
            let from = has_backup.then_some("/safe/backups");
            let (start, ..) = last_record(&disk.bytes(&path));
            disk.damage(&path, |bytes| match is_cut {
                true => bytes.truncate(start),
                false => bytes[start..].fill(0),
            });
            let what = format!("backup: {has_backup}, cut: {is_cut}");
            let error = try_open(&disk.copy()).err().unwrap();
            assert!(error.message.contains("fsck --offline --repair"), "{what}: {error}");
            let inspected = crate::inspect::inspect(&disk.copy().shared(), Path::new("/data")).unwrap();
            assert!(!inspected.problems.is_empty(), "{what}");
            let asked = repair(&disk, from, false).unwrap();
            assert!(!asked.problems.is_empty(), "{what}");
            let repaired = if asked.done {
                asked
            } else {
                assert!(asked.losses.iter().any(|loss| loss.what == "changes"), "{what}: {asked:?}");
                repair(&disk, from, true).unwrap()
            };
            assert!(repaired.done, "{what}: {repaired:?}");
            let left = if has_backup { changes.len() } else { changes.len() - 1 };
            assert_eq!(repaired.revision.0 as usize, left, "{what}: {repaired:?}");
            let store = open(&disk);
            assert_eq!(history(&store, 100).await, changes[..left], "{what}");
            assert_sound(&store).await;
            apply(&store, 99, vec![mkdir(DirId::ROOT, "after")]).await;
        }
    }
}

fn repair(
    disk: &SimulatedDisk,
    from: Option<&str>,
    accept_loss: bool,
) -> exacat_model::Result<crate::repair::Repaired> {
    let options = crate::repair::RepairOptions { from: from.map(PathBuf::from), accept_loss };
    crate::repair::repair(&disk.shared(), &settings(), &options, &TestClock::default(), &mut |_| ())
}

/// Goal: evidence written under load survives the end of the process, without a sync. Method: notes
/// at every commit; then the process is killed and its last group made zeros.
#[tokio::test]
async fn evidence_under_load_needs_no_sync() {
    let disk = SimulatedDisk::new();
    let settings = EmbeddedSettings { mark_idle: Duration::ZERO, memtable_rows: 1 << 20, ..settings() };
    let store = EmbeddedStore::open_on(disk.shared(), settings, Arc::new(TestClock::default())).unwrap();
    drive(&store).await;
    let noted = async {
        let directory = Path::new("/data/log");
        let id = crate::identity::Layout::new(Path::new("/data"))
            .read_identity(&*disk.shared())
            .unwrap()
            .unwrap()
            .id;
        while exacat_log::log_end::read(&*disk.shared(), directory, id).unwrap().unwrap().revision.0 < 5 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), noted).await.expect("the end was never noted");
    let killed = disk.copy();
    let (start, ..) = last_record(&killed.bytes(&segment(&killed)));
    killed.damage(&segment(&killed), |bytes| bytes[start..].fill(0));
    assert_eq!(try_open(&killed).err().unwrap().kind, ErrorKind::Corrupt);
}

/// Goal: nothing is appended to a segment of an earlier format. Method: the header of an empty
/// segment made one of version 1.
#[tokio::test]
async fn empty_segment_of_an_older_version_is_replaced() {
    let disk = SimulatedDisk::new();
    drop(open(&disk));
    let path = segment(&disk);
    disk.damage(&path, |bytes| {
        let header = Header { version: 1, reserved: 0, ..Header::decode("test", bytes).unwrap() };
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    });
    let store = open(&disk);
    let changes = drive(&store).await;
    drop(store);
    assert_eq!(disk.files(".log").len(), 1);
    assert_eq!(Header::decode("test", &disk.bytes(&path)).unwrap().version, exacat_log::segment::VERSION);
    assert_eq!(history(&open(&disk), 100).await, changes);
}
