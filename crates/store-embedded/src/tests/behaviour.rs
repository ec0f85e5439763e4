//! Promises of the engine beyond the contract: one process, repeated requests after a restart,
//! bounded pages, its metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use exacat_model::{DirId, ErrorKind, Revision};
use exacat_store::{Outcome, Store};

use super::{TestClock, apply, assert_sound, file, history, mkdir, open, request, settings, try_open};
use crate::{EmbeddedSettings, EmbeddedStore};
use exacat_testkit::simulated::SimulatedDisk;

#[tokio::test]
async fn a_directory_is_one_process_s_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let settings = EmbeddedSettings { segment_bytes: 64 << 10, ..EmbeddedSettings::at(directory.path()) };
    let clock = Arc::new(TestClock::default());
    let store = EmbeddedStore::open(settings.clone(), clock.clone()).unwrap();
    let error = EmbeddedStore::open(settings.clone(), clock.clone()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("another process"), "{error}");
    apply(&store, 1, vec![mkdir(DirId::ROOT, "a")]).await;
    store.close().await.unwrap();
    // Closing suffices: the old handle holds no resource.
    let again = EmbeddedStore::open(settings, clock).unwrap();
    assert_eq!(again.revision().await.unwrap(), Revision(1));
    assert!(store.revision().await.is_err());
    assert!(store.apply(request(2, Vec::new())).await.is_err());
}

/// Goal: clause A6 to the letter, across a restart, clean or not. Applied mutations get their first
/// outcome, refused ones are decided again.
#[tokio::test]
async fn an_answer_can_be_asked_again_after_a_restart() {
    for close in [true, false] {
        let disk = SimulatedDisk::new();
        let store = open(&disk);
        let mutations = vec![mkdir(DirId::ROOT, "a"), mkdir(DirId(3), "below"), mkdir(DirId::ROOT, "b")];
        let first = store.apply(request(1, mutations.clone())).await.unwrap();
        assert!(matches!(first[1], Outcome::Refused(_)));
        assert_eq!(store.apply(request(1, mutations[..1].to_vec())).await.unwrap(), first[..1]);
        if close {
            store.close().await.unwrap();
        }
        drop(store);
        let store = open(&disk);
        let second = store.apply(request(1, mutations.clone())).await.unwrap();
        assert_eq!((&second[0], &second[2]), (&first[0], &first[2]));
        assert!(matches!(second[1], Outcome::Applied { revision: Revision(3), .. }), "{second:?}");
        assert_eq!(store.apply(request(1, mutations.clone())).await.unwrap(), second);
        drop(store);
        let store = open(&disk);
        assert_eq!(store.apply(request(1, mutations)).await.unwrap(), second);
        assert_eq!(history(&store, 10).await.len(), 3);
    }
}

/// Goal: one group may have a request and its repetition. Method: a sync held while both arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_and_its_repetition_may_come_together() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    disk.hold_syncs(true);
    let ask = |number: u64, name: &'static str| {
        let store = store.clone();
        tokio::spawn(
            async move { store.apply(request(number, vec![mkdir(DirId::ROOT, name)])).await.unwrap() },
        )
    };
    let first = ask(1, "a");
    disk.wait_for_held_sync();
    let tasks = [ask(2, "b"), ask(2, "b"), ask(2, "b"), ask(1, "a")];
    disk.hold_syncs(false);
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    assert_eq!(answers[3], first.await.unwrap());
    assert_eq!(history(&store, 10).await.len(), 2);
}

/// Goal: `changes` returns the same for any page size, from any place, across many segments, live
/// and reopened.
#[tokio::test]
async fn changes_page_across_segments() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    for number in 0..60 {
        let mutations =
            (0..7).map(|item| file(DirId::ROOT, &format!("f{number}-{item}"), number * 7 + item)).collect();
        apply(&store, number, mutations).await;
    }
    let all = history(&store, 10_000).await;
    assert_eq!(all.len(), 420);
    assert!(disk.files(".log").len() > 10);
    for round in 0..2 {
        let store = if round == 0 { store.clone() } else { open(&disk.copy()) };
        for limit in [1, 6, 7, 8, 100] {
            assert_eq!(history(&store, limit).await, all, "pages of {limit}");
        }
        for after in 0..=421 {
            let page = store.changes(Revision(after), 3).await.unwrap();
            let from = (after as usize).min(420);
            assert_eq!(page.changes, all[from..(from + 3).min(420)]);
            assert!(page.up_to.0 <= 420.max(after) && page.oldest == Revision(1));
        }
    }
}

/// Goal: the memtable bounds the memory and the replay at opening; compaction keeps the runs few.
#[tokio::test]
async fn memtables_become_runs_and_runs_are_merged() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    for number in 0..1200 {
        apply(&store, number, vec![file(DirId::ROOT, &format!("f{number}"), number)]).await;
    }
    store.flush().await.unwrap();
    let status = store.status().await.unwrap();
    let figure = |name: &str| status.named_one(name).unwrap();
    assert!(figure("flushes_total") >= 15, "{}", figure("flushes_total"));
    assert_eq!((figure("rows_in_memory"), figure("memtables_being_written")), (0, 0));
    assert!(figure("runs") <= 24, "{}", figure("runs"));
    assert_sound(&store).await;
    drop(store);
    let store = open(&disk);
    assert_sound(&store).await;
    assert_eq!(store.status().await.unwrap().entries, 1200);
}

#[tokio::test]
async fn settings_out_of_range_and_foreign_files_are_refused() {
    let clock = Arc::new(TestClock::default());
    for (bytes, good) in [(4095, false), (4096, true), (1 << 30, true), ((1 << 30) + 1, false)] {
        let disk = SimulatedDisk::new();
        let settings = EmbeddedSettings { segment_bytes: bytes, ..settings() };
        if bytes == 1 << 30 {
            continue; // It would take the memory it says.
        }
        assert_eq!(EmbeddedStore::open_on(disk.shared(), settings, clock.clone()).is_ok(), good, "{bytes}");
    }
    let (one, other) = (SimulatedDisk::new(), SimulatedDisk::new());
    for disk in [&one, &other] {
        apply(&open(disk), 1, vec![mkdir(DirId::ROOT, "a")]).await;
    }
    let (theirs, ours) = (other.files(".log").remove(0), one.files(".log").remove(0));
    let bytes = other.bytes(&theirs);
    one.damage(&ours, |ours| *ours = bytes);
    assert_eq!(try_open(&one).err().unwrap().kind, ErrorKind::Corrupt, "another catalogue's log");
    let catalogue = other.files("CATALOGUE").remove(0);
    other.vanish(&catalogue);
    assert_eq!(try_open(&other).err().unwrap().kind, ErrorKind::Corrupt, "a log that is nobody's");
}

/// Goal: without space for runs, requests are refused with an explanation before memory is used up,
/// and reads continue. With space again the store recovers by itself. Method: a disk on which only
/// the log has space.
#[tokio::test]
async fn memory_is_bounded_when_runs_have_no_space() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    disk.refuse_runs(true);
    let mut made = 0u64;
    let error = loop {
        let mutations =
            (0..2000).map(|item| file(DirId::ROOT, &format!("f{}", made + item), made + item)).collect();
        match store.apply(request(made, mutations)).await {
            Ok(_) => made += 2000,
            Err(error) => break error,
        }
        assert!(made < 100_000, "memory is not bounded");
    };
    assert!(
        matches!(&error, exacat_store::ApplyError::Unavailable(why) if why.contains("runs")),
        "{error:?}"
    );
    assert_eq!(store.status().await.unwrap().entries, made);
    assert_eq!(store.status().await.unwrap().warnings.len(), 1);
    disk.refuse_runs(false);
    let again = || store.apply(request(made, vec![mkdir(DirId::ROOT, "again")]));
    while again().await.is_err() {
        tokio::task::yield_now().await;
    }
    store.flush().await.unwrap();
    assert!(store.status().await.unwrap().warnings.is_empty());
    assert_sound(&store).await;
}

/// Goal: while runs are merged the metrics count them, and afterwards none. Method: a thread that looks all
/// the time, until it has seen some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_count_runs_while_they_are_merged() {
    let store = open(&SimulatedDisk::new());
    let merging = |store: &EmbeddedStore| store.shared().metrics.merging().len();
    let (seen, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let looks = {
        let (store, seen, ended) = (Arc::clone(&store), Arc::clone(&seen), Arc::clone(&ended));
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                seen.fetch_max(merging(&store), Ordering::Relaxed);
            }
        })
    };
    let mut number = 0;
    while seen.load(Ordering::Relaxed) == 0 {
        number += 1;
        assert!(number < 100_000, "no merge was seen");
        apply(&store, number, vec![mkdir(DirId::ROOT, &format!("d{number}"))]).await;
    }
    assert!(seen.load(Ordering::Relaxed) >= 2, "a merge has several runs");
    let until = Instant::now() + Duration::from_secs(60);
    while merging(&store) > 0 {
        assert!(Instant::now() < until, "merges do not end");
        tokio::task::yield_now().await;
    }
    ended.store(true, Ordering::Relaxed);
    looks.join().unwrap();
}
