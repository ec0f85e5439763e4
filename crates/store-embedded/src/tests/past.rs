//! Past states: each is the state that the store had, whatever happened to its files since.

use std::sync::Arc;

use exacat_model::{DirId, ErrorKind, PastPoint, Revision, TimeMs};
use exacat_store::{ApplyError, PastRoute, PastStart, PastStates, Snapshots, Store};

use super::archiving::{self, run};
use super::restoring::restore;
use super::snapshots::{Whole, drive, name, new_id, whole};
use super::workload::Workload;
use super::{apply, assert_sound, history, mkdir, open, open_without_runs, request, seeds, try_open};
use crate::EmbeddedStore;
use crate::settings::PAST_CHANGES_MAX;
use crate::snapshot::RestorePoint;
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

fn at(revision: u64) -> PastPoint {
    PastPoint::Revision(Revision(revision).into())
}

fn hidden_files(disk: &SimulatedDisk) -> Vec<std::path::PathBuf> {
    let files = disk.files("").into_iter();
    files.filter(|path| path.to_string_lossy().contains("/snapshots/.")).collect()
}

/// Removes the oldest segments of the log, as retention does, up to the one with this change.
fn forget(disk: &SimulatedDisk, store: &EmbeddedStore, up_to: Revision) {
    let segments = store.shared().history.list();
    for pair in segments.windows(2).filter(|pair| pair[1].first_revision <= up_to) {
        *pair[0].form_to_change() = exacat_log::Form::Gone;
        for path in [pair[0].path.clone(), pair[0].archived_path()] {
            if disk.files("").contains(&path) {
                disk.vanish(&path);
            }
        }
        store.shared().history.remove_oldest(&pair[0]);
    }
}

/// States that a store had: the digest, and the time of the last change.
async fn note(store: &EmbeddedStore, seen: &mut Vec<(Revision, u128)>) {
    let state = (store.revision().await.unwrap(), store.digest().await.unwrap());
    if seen.last() != Some(&state) {
        seen.push(state);
    }
}

/// Property: the state at every revision has the digest that the store had then, and the state at every
/// time is that after the last change before it. Method: random workloads with small segments and
/// memtables; snapshots are taken and dropped, segments archived and runs compacted on the way.
#[tokio::test]
async fn state_at_every_revision_is_the_one_that_the_store_had() {
    let mut starts = [0; 3];
    for seed in seeds(6) {
        let disk = SimulatedDisk::new();
        let (mut workload, mut random) = (Workload::new(seed.0), Random(seed.0 ^ 0x5eed));
        let store = open(&disk);
        let (mut seen, mut taken) = (Vec::new(), Vec::new());
        for number in 0..60u64 {
            note(&store, &mut seen).await;
            store.apply(workload.request()).await.unwrap();
            match random.next(8) {
                0 => {
                    let text = format!("s{number}");
                    store.snapshot(new_id(), &name(&text)).await.unwrap();
                    taken.push(text);
                }
                1 if !taken.is_empty() => {
                    let text = taken.remove(random.next(taken.len() as u64) as usize);
                    store.drop_snapshot(new_id(), &name(&text)).await.unwrap();
                }
                2 => store.flush().await.unwrap(),
                3 => drop(run(&mut archiving::work(&store))),
                _ => {}
            }
        }
        note(&store, &mut seen).await;
        let changes = history(&store, 1000).await;
        for (revision, digest) in &seen {
            let route = store.route(at(revision.0)).await.unwrap();
            assert!(route.revision == *revision && route.changes <= revision.0, "{route:?}");
            starts[match route.start {
                PastStart::Beginning => 0,
                PastStart::Snapshot(_) => 1,
                PastStart::Present => 2,
            }] += 1;
            let past = store.open_past(*revision).await.unwrap();
            assert_eq!(past.digest().await.unwrap(), *digest, "seed {} revision {}", seed.0, revision.0);
            assert_eq!(past.revision().await.unwrap(), *revision);
            assert_sound(&past).await;
        }
        // In the middle of a request, too: nobody saw that state, but the log has it.
        for change in changes.iter().step_by(7) {
            assert_eq!(
                store.open_past(change.revision).await.unwrap().revision().await.unwrap(),
                change.revision
            );
        }
        for pair in changes.windows(2).filter(|pair| pair[0].time < pair[1].time) {
            for time in [pair[0].time, TimeMs(pair[1].time.0 - 1)] {
                let route = store.route(PastPoint::Time(time)).await.unwrap();
                assert_eq!(route.revision, pair[0].revision, "seed {} {time}", seed.0);
            }
        }
        let before = TimeMs(changes[0].time.0 - 1);
        assert_eq!(store.route(PastPoint::Time(before)).await.unwrap().revision, Revision(0));
        assert!(hidden_files(&disk).is_empty(), "{:?}", hidden_files(&disk));
    }
    assert!(starts.iter().all(|count| *count > 0), "every kind of start: {starts:?}");
}

/// Property: an open past state stays as it is while the snapshot that it came from is dropped, the
/// runs are compacted and the log is forgotten; it takes no changes, and has no past of its own.
#[tokio::test]
async fn open_past_state_outlives_its_files() {
    let disk = SimulatedDisk::new();
    let (store, mut workload) = (open(&disk), Workload::new(5));
    let (mut wanted, mut opened): (Vec<Whole>, Vec<Arc<EmbeddedStore>>) = (Vec::new(), Vec::new());
    for text in ["one", "two"] {
        drive(&store, &mut workload, 20).await;
        store.snapshot(new_id(), &name(text)).await.unwrap();
        drive(&store, &mut workload, 3).await;
        let state = whole(&store).await;
        opened.push(store.open_past(state.revision).await.unwrap());
        wanted.push(state);
    }
    for text in ["one", "two"] {
        store.drop_snapshot(new_id(), &name(text)).await.unwrap();
    }
    drive(&store, &mut workload, 60).await;
    store.flush().await.unwrap();
    let end = store.revision().await.unwrap();
    forget(&disk, &store, end);
    for (past, wanted) in opened.iter().zip(&wanted) {
        assert_eq!(whole(past).await, *wanted);
        let refused = past.apply(request(1 << 40, vec![mkdir(DirId::ROOT, "new")])).await.unwrap_err();
        assert!(matches!(refused, ApplyError::Unavailable(_)), "{refused:?}");
        assert!(past.as_past_states().is_none() && past.as_snapshots().is_none());
    }
    drop(store);
    assert_eq!(whole(&opened[0]).await, wanted[0], "it does not need the catalogue open");
}

/// Limit: [`PAST_CHANGES_MAX`] changes are read, and not one more. The refusal says how many, and after
/// what. A snapshot makes the state near again.
#[tokio::test]
async fn changes_are_read_up_to_the_limit_and_not_one_more() {
    let disk = SimulatedDisk::new();
    let store = open_without_runs(&disk);
    for number in 0..PAST_CHANGES_MAX + 2 {
        apply(&store, number, vec![mkdir(DirId::ROOT, &format!("d{number}"))]).await;
    }
    let route = store.route(at(PAST_CHANGES_MAX)).await.unwrap();
    let (revision, start) = (Revision(PAST_CHANGES_MAX), PastStart::Beginning);
    assert_eq!(route, PastRoute { revision, start, changes: PAST_CHANGES_MAX });
    let past = store.open_past(revision).await.unwrap();
    assert_eq!(past.status().await.unwrap().entries, PAST_CHANGES_MAX);
    for refused in [
        store.route(at(PAST_CHANGES_MAX + 1)).await.unwrap_err(),
        store.open_past(Revision(PAST_CHANGES_MAX + 1)).await.err().unwrap(),
    ] {
        assert_eq!(refused.kind, ErrorKind::Limit);
        let wanted = format!(
            "the state after revision {} is {0} changes after the beginning of the history, and at most \
             {PAST_CHANGES_MAX} are read",
            PAST_CHANGES_MAX + 1
        );
        assert_eq!(refused.message, wanted);
    }
    store.flush().await.unwrap();
    store.snapshot(new_id(), &name("near")).await.unwrap();
    apply(&store, 5000, vec![mkdir(DirId::ROOT, "later")]).await;
    store.flush().await.unwrap();
    let route = store.route(at(PAST_CHANGES_MAX + 2)).await.unwrap();
    assert_eq!((route.start, route.changes), (PastStart::Snapshot(name("near")), 0));
    assert_eq!(store.route(at(PAST_CHANGES_MAX + 3)).await.unwrap().start, PastStart::Present);
}

/// Points after the present, of the future, and before the kept history are refused with the range.
#[tokio::test]
async fn points_outside_of_the_kept_history_are_refused() {
    let disk = SimulatedDisk::new();
    let (store, mut workload) = (open(&disk), Workload::new(2));
    drive(&store, &mut workload, 30).await;
    store.snapshot(new_id(), &name("kept")).await.unwrap();
    let kept = store.revision().await.unwrap();
    let kept_digest = store.digest().await.unwrap();
    drive(&store, &mut workload, 60).await;
    store.flush().await.unwrap();
    let end = store.revision().await.unwrap();
    let changes = history(&store, 1000).await;
    let refused = store.route(at(end.0 + 1)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotFound);
    assert!(refused.message.contains(&format!("the last one is {}", end.0)), "{refused}");
    let refused = store.route(PastPoint::Time(TimeMs(u64::MAX >> 16))).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotFound);
    assert!(refused.message.contains("in the future"), "{refused}");

    forget(&disk, &store, end);
    let oldest = store.shared().history.oldest();
    assert!(oldest > Revision(kept.0 + 1), "the log begins after the snapshot");
    // The snapshot has its own part of the log, and nothing after it.
    assert_eq!(store.open_past(kept).await.unwrap().digest().await.unwrap(), kept_digest);
    let time = changes[kept.0 as usize - 1].time;
    assert_eq!(store.route(PastPoint::Time(time)).await.unwrap().revision, kept);
    let route = store.route(at(kept.0)).await.unwrap();
    let first = Revision(kept.0 - route.changes);
    for lost in [kept.0 + 1, oldest.0 - 1, first.0 - 1, 0] {
        let refused = store.route(at(lost)).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NotFound, "{lost}");
        let said = [format!("the log begins with change {}", oldest.0), format!("of revision {}", first.0)];
        assert!(said.iter().all(|part| refused.message.contains(part)), "{refused}");
        assert_eq!(store.open_past(Revision(lost)).await.err().unwrap().kind, ErrorKind::NotFound);
    }
    for lost in [changes[0].time, changes[kept.0 as usize + 8].time] {
        let refused = store.route(PastPoint::Time(lost)).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NotFound, "{lost}");
    }
    store.drop_snapshot(new_id(), &name("kept")).await.unwrap();
    assert_eq!(store.route(at(kept.0)).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(store.open_past(end).await.unwrap().digest().await.unwrap(), store.digest().await.unwrap());
}

/// After a restore, a bare revision of two timelines is refused, and one with the timeline of today
/// is not. A snapshot of a replaced timeline is never a start.
#[tokio::test]
async fn revisions_of_a_replaced_timeline_are_refused() {
    let disk = SimulatedDisk::new();
    let (store, mut workload) = (open(&disk), Workload::new(7));
    drive(&store, &mut workload, 10).await;
    store.snapshot(new_id(), &name("common")).await.unwrap();
    let common = store.revision().await.unwrap();
    drive(&store, &mut workload, 10).await;
    store.snapshot(new_id(), &name("replaced")).await.unwrap();
    let replaced = store.revision().await.unwrap();
    let old = store.timelines().current();
    drop(store);
    restore(&disk, "common", RestorePoint::AsTaken).unwrap();
    let store = open(&disk);
    let mut digests = Vec::new();
    for number in 0..replaced.0 + 5 - common.0 {
        apply(&store, 9000 + number, vec![mkdir(DirId::ROOT, &format!("new{number}"))]).await;
        digests.push((store.revision().await.unwrap(), store.digest().await.unwrap()));
    }
    assert_eq!(store.route(at(replaced.0)).await.unwrap_err().kind, ErrorKind::Conflict);
    let on = |timeline: exacat_model::TimelineId| {
        let position = format!("{}.{}", replaced.0, timeline.tag());
        store.route(PastPoint::Revision(position.parse().unwrap()))
    };
    assert_eq!(on(old).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(on(store.timelines().current()).await.unwrap().revision, replaced);
    for (revision, digest) in digests {
        let past = store.open_past(revision).await.unwrap();
        assert_eq!(past.digest().await.unwrap(), digest, "revision {}", revision.0);
    }
    assert_eq!(store.route(at(common.0)).await.unwrap().revision, common);
}

/// Property: a power cut at any step of the work leaves no trace behind, and takes nothing away.
#[tokio::test]
async fn making_a_past_state_may_be_cut_at_every_step() {
    let disk = SimulatedDisk::new();
    let (store, mut workload) = (open(&disk), Workload::new(11));
    drive(&store, &mut workload, 25).await;
    store.snapshot(new_id(), &name("s")).await.unwrap();
    drive(&store, &mut workload, 15).await;
    let (state, point) = (whole(&store).await, store.revision().await.unwrap().0);
    drop(store);
    for revision in [point / 2, point] {
        for step in (1..).step_by(3) {
            let cut = disk.copy();
            let store = open(&cut);
            cut.set_fault(Some(Fault::PowerCut(cut.operations() + step)));
            let done = store.open_past(Revision(revision)).await.map(drop);
            let died = cut.is_dead();
            drop(store);
            let image = cut.image(&mut Random(step));
            let store = try_open(&image).unwrap();
            assert!(hidden_files(&image).is_empty(), "step {step}: {:?}", hidden_files(&image));
            assert_eq!(whole(&store).await, state, "step {step}");
            assert_eq!(store.snapshots().await.unwrap().len(), 1);
            if !died {
                done.unwrap();
                break;
            }
        }
    }
}

/// A store that closes gives up the state that it is making, and leaves no links behind.
#[tokio::test]
async fn closed_store_makes_no_state() {
    let disk = SimulatedDisk::new();
    let (store, mut workload) = (open_without_runs(&disk), Workload::new(3));
    drive(&store, &mut workload, 4).await;
    let end = store.revision().await.unwrap();
    store.close().await.unwrap();
    for refused in [store.route(at(1)).await.err(), store.open_past(end).await.err()] {
        assert_eq!(refused.unwrap().kind, ErrorKind::Unavailable);
    }
    assert!(hidden_files(&disk).is_empty());
}
