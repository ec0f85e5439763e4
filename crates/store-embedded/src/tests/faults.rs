//! Disks that fail and fill up: refusals, unknown outcomes, and work that continues.

use std::io;

use exacat_model::{DirId, EntryId, ErrorKind, Lfn};
use exacat_store::{ApplyError, Outcome, ResolutionEnd, Store};

use super::workload::Workload;
use super::{apply, assert_sound, file, history, mkdir, open, request, try_open};
use exacat_testkit::simulated::{Fault, SimulatedDisk};

async fn is_there(store: &dyn Store, path: &str) -> bool {
    let resolution = store.resolve(&[Lfn::parse(path).unwrap()]).await.unwrap().remove(0);
    matches!(resolution.end, ResolutionEnd::Found(_))
}

/// Goal: a full disk refuses changes and nothing else, until there is space again.
#[tokio::test]
async fn a_full_disk_refuses_changes_and_recovers() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    disk.set_full(true);
    let mut number = 0;
    let refused = loop {
        number += 1;
        let name = format!("directory-{number}");
        match store
            .apply(request(number, vec![mkdir(DirId::ROOT, &name), mkdir(DirId::ROOT, &format!("{name}b"))]))
            .await
        {
            Ok(_) => assert!(number < 1000, "the segment never fills"),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, ApplyError::Unavailable(_)), "{refused:?}");
    assert!(!is_there(&*store, &format!("/directory-{number}")).await);
    assert!(is_there(&*store, "/directory-1").await);
    assert_eq!(store.status().await.unwrap().warnings.len(), 1);
    assert_sound(&store).await;
    disk.set_full(false);
    apply(&store, number, vec![mkdir(DirId::ROOT, &format!("directory-{number}"))]).await;
    assert!(store.status().await.unwrap().warnings.is_empty());
    let before = (history(&store, 1000).await, store.digest().await.unwrap());
    assert_eq!(before.0.len() as u64, 2 * (number - 1) + 1);
    drop(store);
    let store = open(&disk);
    assert_eq!((history(&store, 1000).await, store.digest().await.unwrap()), before);
}

/// Goal: a request larger than the rest of its segment gets a segment of its own size. One that
/// runs out of disk halfway reports that, and can be repeated.
#[tokio::test]
async fn a_request_may_be_larger_than_a_segment() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    let many = (0..500).map(|number| file(DirId::ROOT, &format!("file-{number}"), number)).collect();
    let outcomes = apply(&store, 1, many).await;
    assert_eq!(outcomes.len(), 500);
    assert!(disk.files(".log").iter().any(|path| disk.bytes(path).len() > 40_000));
    let changes = history(&store, 33).await;
    assert_eq!(changes.iter().map(|change| change.index).collect::<Vec<_>>(), (0..500).collect::<Vec<_>>());
    drop(store);
    assert_eq!(history(&open(&disk), 1000).await, changes);
}

/// Goal: the store never guesses after a failed write or sync. Method: each operation of the disk
/// fails in turn, in each way. After reopening, every answered change must be there, and none that
/// was `Unavailable`.
#[tokio::test]
async fn every_operation_of_the_disk_may_fail_once() {
    let (mut poisoned, mut still_shown) = (0, 0);
    for number in 1.. {
        let mut past_the_end = false;
        let kinds = [
            Fault::Once(number, io::ErrorKind::Other),
            Fault::Once(number, io::ErrorKind::StorageFull),
            Fault::Short(number),
        ];
        for fault in kinds {
            let disk = SimulatedDisk::new();
            disk.set_fault(Some(fault));
            let Ok(store) = try_open(&disk) else {
                disk.set_fault(None);
                assert_sound(&open(&disk)).await;
                continue;
            };
            let mut workload = Workload::new(11);
            let mut answered = 0;
            let mut refused = Vec::new();
            let mut unknown = 0;
            for round in 0..25 {
                let request = workload.request();
                let operation = request.operation;
                match store.apply(request).await {
                    Ok(outcomes) => {
                        assert_eq!(unknown, 0, "{fault:?}: work went on after a failed sync");
                        answered += outcomes
                            .iter()
                            .filter(|outcome| matches!(outcome, Outcome::Applied { .. }))
                            .count();
                    }
                    Err(ApplyError::Unavailable(_)) => refused.push(operation),
                    Err(ApplyError::Unknown(_)) => unknown += 1,
                    Err(error) => panic!("{error:?}"),
                }
                if round == 12 {
                    // The flush may fail, and the test continues.
                    let _may_fail = store.flush().await;
                }
            }
            if unknown > 0 {
                poisoned += 1;
                let durable = store.revision().await.unwrap();
                for number in 1..13 {
                    match store.list(DirId(number), None, 100).await {
                        Err(error) => assert_eq!(error.kind, ErrorKind::Unavailable, "{fault:?}"),
                        // Unchanged state is readable as before.
                        Ok(page) => {
                            let shown = page.map_or(Vec::new(), |page| page.items);
                            let newest = shown.iter().map(|entry| entry.revision).max();
                            assert!(newest <= Some(durable), "{fault:?}: what is not durable was shown");
                            still_shown += 1;
                        }
                    }
                }
            }
            drop(store);
            disk.set_fault(None);
            let store = open(&disk);
            assert_sound(&store).await;
            let changes = history(&store, 1000).await;
            assert!(
                changes.len() >= answered,
                "{fault:?}: {answered} were answered, {} are left",
                changes.len()
            );
            assert!(unknown > 0 || changes.len() == answered, "{fault:?}: something not answered is there");
            assert!(
                !changes.iter().any(|change| refused.contains(&change.operation)),
                "{fault:?}: done though refused"
            );
            past_the_end = disk.operations() < number;
        }
        if past_the_end || number > 400 {
            break;
        }
    }
    assert!(poisoned > 20, "writes and syncs failed in few places: {poisoned}");
    assert!(still_shown > 10, "what did not change is not shown any more: {still_shown}");
}

/// Goal: after a failure of the log, reads show exactly the durable state, and changes are refused.
/// Method: the write or the sync of a group fails, in the writer's thread or the committer's; a
/// reader reads everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_show_the_durable_state_after_a_failure_of_the_log() {
    for (step, at_once) in [(1, 0), (2, 0), (1, usize::MAX), (2, usize::MAX)] {
        let disk = SimulatedDisk::new();
        // Nothing but the log is written: the next operations of the disk are those of the group.
        let settings = crate::EmbeddedSettings {
            commit_at_once_bytes: at_once,
            segment_bytes: 1 << 20,
            memtable_rows: 1 << 20,
            ..super::settings()
        };
        let clock = std::sync::Arc::new(super::TestClock::default());
        let store = crate::EmbeddedStore::open_on(disk.shared(), settings, clock).unwrap();
        apply(&store, 1, vec![mkdir(DirId::ROOT, "a"), super::se(1)]).await;
        apply(&store, 2, (0..200).map(|item| file(DirId(2), &format!("f{item}"), item + 1)).collect()).await;
        let durable = super::snapshots::whole(&store).await;
        disk.set_fault(Some(Fault::Once(disk.operations() + step, io::ErrorKind::Other)));
        let failed =
            store.apply(request(3, vec![mkdir(DirId::ROOT, "lost"), super::remove(DirId(2), "f7")])).await;
        assert!(matches!(failed, Err(ApplyError::Unknown(_))), "{failed:?}");
        let answers = async {
            while store.record(exacat_model::RecordKey::Se(exacat_model::SeNumber(1))).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(60), answers).await;
        waited.expect("reads are refused for good");
        assert!(!is_there(&*store, "/lost").await && is_there(&*store, "/a/f7").await);
        assert_eq!(
            super::snapshots::entries(&store).await.len() as u64,
            store.status().await.unwrap().entries + 1
        );
        assert_eq!(store.status().await.unwrap().revision, durable.revision);
        assert_eq!(history(&store, 1000).await.len() as u64, durable.revision.0);
        let why = store.failure().expect("the failure is told");
        assert_eq!(store.failed().await, why);
        assert!(store.status().await.unwrap().warnings.iter().any(|warning| warning.contains(&why)));
        let refused = store.apply(request(4, vec![mkdir(DirId::ROOT, "b")])).await;
        assert!(matches!(refused, Err(ApplyError::Unavailable(_))), "{refused:?}");
        let again = store.apply(request(3, vec![mkdir(DirId::ROOT, "lost")])).await;
        assert!(matches!(again, Err(ApplyError::Unknown(_))), "{again:?}");
        drop(store);
        disk.set_fault(None);
        let store = open(&disk);
        assert!(history(&store, 1000).await.len() as u64 >= durable.revision.0);
        assert_sound(&store).await;
    }
}

/// Goal: no answer shows a change that could still be lost (decision 0006). Method: a sync that
/// does not return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_waits_until_what_it_saw_is_durable() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    disk.hold_syncs(true);
    let writing = tokio::spawn({
        let store = store.clone();
        async move { store.apply(request(2, vec![mkdir(DirId::ROOT, "b")])).await }
    });
    disk.wait_for_held_sync();
    let mut reading = tokio::spawn({
        let store = store.clone();
        async move { is_there(&*store, "/b").await }
    });
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), &mut reading).await;
    assert!(early.is_err(), "the read did not wait");
    assert_eq!(store.revision().await.unwrap().0, 1);
    assert_eq!(history(&store, 10).await.len(), 1);
    disk.hold_syncs(false);
    assert!(reading.await.unwrap());
    assert!(writing.await.unwrap().is_ok());
    assert_eq!(store.locate(&[EntryId::Directory(DirId(3))]).await.unwrap().len(), 1);
}

/// Goal: an audit of a live store blocks no writes, and is of one state. Method: a read of the
/// audit that does not return; changes meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_go_on_while_a_live_store_is_audited() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, (0..2000).map(|item| file(DirId::ROOT, &format!("f{item}"), item + 1)).collect()).await;
    store.flush().await.unwrap();
    let before = store.revision().await.unwrap();
    // The filter of the run may be wrong about a name. The page is in memory when the change looks there.
    let names: Vec<Lfn> = (2..20).map(|number| Lfn::parse(&format!("/d{number}")).unwrap()).collect();
    store.resolve(&names).await.unwrap();
    disk.hold_reads(true);
    let auditing = tokio::spawn({
        let store = store.clone();
        async move { store.audit().await }
    });
    disk.wait_for_held_read();
    for number in 2..20 {
        apply(&store, number, vec![mkdir(DirId::ROOT, &format!("d{number}"))]).await;
    }
    assert!(!auditing.is_finished());
    disk.hold_reads(false);
    let audit = auditing.await.unwrap().unwrap();
    assert_eq!((audit.revision, audit.findings_total), (before, 0));
    assert_sound(&store).await;
    // Without space for runs the audit runs all the same.
    disk.refuse_runs(true);
    apply(&store, 20, vec![mkdir(DirId::ROOT, "further")]).await;
    assert_eq!(store.audit().await.unwrap().revision, store.revision().await.unwrap());
    disk.refuse_runs(false);
}

/// Goal: the queue is bounded; callers that find it full wait, and all are answered. Method: as
/// above, with more requests than there are places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_for_a_place_in_the_queue() {
    let disk = SimulatedDisk::new();
    let settings =
        crate::EmbeddedSettings { queue_requests_max: 4, queue_bytes_max: 64 << 10, ..super::settings() };
    let clock = std::sync::Arc::new(super::TestClock::default());
    let store = crate::EmbeddedStore::open_on(disk.shared(), settings, clock).unwrap();
    disk.hold_syncs(true);
    let tasks: Vec<_> = (0..200u64)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                store.apply(request(number, vec![mkdir(DirId::ROOT, &format!("d{number}"))])).await
            })
        })
        .collect();
    disk.wait_for_held_sync();
    disk.hold_syncs(false);
    for task in tasks {
        assert!(task.await.unwrap().is_ok());
    }
    assert_eq!(history(&store, 1000).await.len(), 200);
    let status = store.status().await.unwrap();
    let most = status.named_one("group_requests_max").unwrap();
    assert!(most <= 64, "a group of {most} out of a queue of 4 and 64 KiB");
}
