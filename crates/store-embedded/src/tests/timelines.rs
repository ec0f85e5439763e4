//! Timelines: every way to give a revision a second time begins one, and revisions before and after
//! it are distinguishable.

use std::path::Path;

use exacat_model::{DirId, ErrorKind, HasRevision, Revision, TimelineId, Timelines};
use exacat_store::{Snapshots, Store};

use super::backups::{back_up_to, restore_of};
use super::restoring::{clone, open_at, restore, restore_with};
use super::snapshots::{name, new_id};
use super::{apply, assert_sound, mkdir, open, settings};
use crate::EmbeddedStore;
use crate::snapshot::RestorePoint;
use exacat_testkit::simulated::SimulatedDisk;

/// Makes so many directories in separate requests.
async fn make(store: &EmbeddedStore, numbers: std::ops::Range<u64>) {
    for number in numbers {
        apply(store, number, vec![mkdir(DirId::ROOT, &format!("d{number}"))]).await;
    }
}

fn timeline_of_last_segment(disk: &SimulatedDisk) -> TimelineId {
    let path = disk.files("").into_iter().rfind(|path| {
        path.starts_with("/data/log") && path.extension().is_some_and(|ending| ending == "log")
    });
    exacat_log::segment::Header::decode("test", &disk.bytes(&path.unwrap())).unwrap().timeline
}

/// Says whether this revision of that timeline is part of the present history.
fn has(timelines: &Timelines, revision: u64, timeline: TimelineId) -> bool {
    timelines.check(Revision(revision), timeline.whole()).is_ok()
}

#[tokio::test]
async fn timeline_stays_the_same_as_long_as_nothing_is_lost() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    make(&store, 0..5).await;
    let first = store.timelines();
    assert_eq!(first.all().len(), 1);
    assert_eq!(timeline_of_last_segment(&disk), first.current());
    store.close().await.unwrap();
    drop(store);
    assert_eq!(open(&disk).timelines(), first);
    let other = open(&SimulatedDisk::new()).timelines();
    assert_ne!(other.current(), first.current());
}

#[tokio::test]
async fn torn_end_of_the_log_begins_a_timeline() {
    // With one group in the segment, which is torn, the segment is made anew. With several it is
    // sealed.
    for kept in [0, 3] {
        let disk = SimulatedDisk::new();
        let store = open(&disk);
        make(&store, 0..kept + 1).await;
        let before = store.timelines().current();
        drop(store);
        let path = disk.files(".log").remove(0);
        disk.damage(&path, |bytes| {
            let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
            bytes[last] ^= 1;
        });
        let store = open(&disk);
        assert_eq!(store.revision().await.unwrap(), Revision(kept));
        let timelines = store.timelines();
        assert!(has(&timelines, kept, before) && !has(&timelines, kept + 1, before));
        assert_eq!(timeline_of_last_segment(&disk), timelines.current());
        make(&store, 10..12).await;
        assert_sound(&store).await;
        drop(store);
        let store = open(&disk);
        assert_eq!(store.timelines(), timelines, "nothing more is lost");
        assert_eq!(store.revision().await.unwrap(), Revision(kept + 2));
        assert_eq!(timelines.at(Revision(kept + 1)), timelines.current());
        assert_sound(&store).await;
    }
}

#[tokio::test]
async fn restores_begin_timelines_that_part_where_they_restored_to() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    make(&store, 0..10).await;
    let taken = store.snapshot(new_id(), &name("s")).await.unwrap();
    let a = store.timelines().current();
    assert_eq!(taken.timeline, Some(a));
    make(&store, 10..20).await;
    store.close().await.unwrap();
    drop(store);

    let restored = restore(&disk, "s", RestorePoint::Revision(Revision(15))).unwrap();
    let store = open(&disk);
    let b = store.timelines().current();
    assert!(has(&store.timelines(), 15, a) && !has(&store.timelines(), 16, a));
    assert_eq!(timeline_of_last_segment(&disk), b);
    make(&store, 30..40).await;
    store.close().await.unwrap();
    drop(store);

    restore(&disk, "s", RestorePoint::AsTaken).unwrap();
    let store = open(&disk);
    let timelines = store.timelines();
    for (revision, timeline) in [(10, a), (10, b)] {
        assert!(has(&timelines, revision, timeline) && !has(&timelines, revision + 1, timeline));
    }
    store.close().await.unwrap();
    drop(store);

    // This brings back the changes that were replaced first: the new timeline continues the first
    // one.
    let replaced = restored.replaced_copy.unwrap();
    restore_with(&disk, "s", RestorePoint::Revision(Revision(20)), Some(&replaced)).unwrap();
    let store = open(&disk);
    let timelines = store.timelines();
    assert!(has(&timelines, 20, a) && has(&timelines, 15, b) && !has(&timelines, 16, b));
    assert_eq!(timelines.at(Revision(16)), a);
    let named = timelines.name(Revision(16));
    assert_eq!(
        timelines.resolve("the list", Revision(16).on(b.tag())).unwrap_err().kind,
        ErrorKind::Conflict
    );
    assert_eq!(timelines.resolve("the list", named), Ok(Revision(16)));
    assert_sound(&store).await;
}

#[tokio::test]
async fn backup_restored_elsewhere_is_on_a_timeline_of_its_own() {
    let disk = SimulatedDisk::new();
    disk.mount(Path::new("/safe"));
    let store = open(&disk);
    make(&store, 0..10).await;
    back_up_to(&store, "/safe/place").await;
    let a = store.timelines().current();
    make(&store, 10..12).await;
    restore_of(&disk, "/safe/place", "/back").unwrap();
    let back = open_at(&disk, "/back").unwrap();
    let timelines = back.timelines();
    assert_ne!(timelines.current(), a);
    assert!(has(&timelines, 10, a) && !has(&timelines, 11, a));
    assert!(!has(&store.timelines(), 11, timelines.current()), "the origin never heard of it");
}

#[tokio::test]
async fn clone_parts_from_its_origin_at_the_snapshot() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    make(&store, 0..10).await;
    store.snapshot(new_id(), &name("s")).await.unwrap();
    let a = store.timelines().current();
    clone(&disk, "s", "/clone").unwrap();
    let twin = open_at(&disk, "/clone").unwrap();
    let timelines = twin.timelines();
    assert!(has(&timelines, 10, a) && !has(&timelines, 11, a));
    make(&twin, 20..30).await;
    assert_sound(&twin).await;
}

/// Goal: a catalogue of the format before timelines has one that follows from its id, and keeps it.
#[tokio::test]
async fn catalogue_without_timelines_has_one_that_follows_from_its_id() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    make(&store, 0..5).await;
    store.close().await.unwrap();
    drop(store);
    let path = Path::new("/data/CATALOGUE");
    let text = String::from_utf8(disk.bytes(path)).unwrap();
    let id = text.lines().nth(2).unwrap();
    let old = format!("exacat catalogue\nversion 1\n{id}\n");
    let old = crate::checked_text::with_checksum(old);
    let shared = disk.shared();
    exacat_disk::replace_small(&*shared, Path::new("/data"), "CATALOGUE", old.as_bytes()).unwrap();
    let segment = disk.files(".log").remove(0);
    let v1 = |disk: &SimulatedDisk| {
        disk.damage(&segment, |bytes| {
            let header = exacat_log::segment::Header::decode("test", bytes).unwrap();
            let timeline = TimelineId::of_catalogue(header.catalogue);
            let header = exacat_log::segment::Header { version: 1, reserved: 0, timeline, ..header };
            bytes[..exacat_log::segment::HEADER_BYTES].copy_from_slice(&header.encode());
        });
    };
    v1(&disk);
    let timeline = timeline_of_last_segment(&disk);
    let store = open(&disk);
    assert_eq!(store.timelines().current(), timeline);
    make(&store, 5..200).await;
    assert_eq!(timeline_of_last_segment(&disk), timeline, "further segments say the same");
    store.snapshot(new_id(), &name("s")).await.unwrap();
    make(&store, 200..210).await;
    store.close().await.unwrap();
    drop(store);
    restore(&disk, "s", RestorePoint::AsTaken).unwrap();
    let store = open(&disk);
    assert!(has(&store.timelines(), 200, timeline) && !has(&store.timelines(), 201, timeline));
    assert!(settings().segment_bytes < 1 << 20, "segments are small");
}
