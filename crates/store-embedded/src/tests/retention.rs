//! Retention of the history: each limit at its edge, segments that must never go, and reports on
//! removed ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_log::SegmentReader;
use exacat_log::segment::HEADER_BYTES;
use exacat_model::{Change, DirId, ErrorKind, Mutation, Revision, SeNumber, TimeMs};
use exacat_store::{ApplyError, Clock, Outcome, Store};

use super::archiving::run;
use super::{
    TestClock, apply, assert_sound, at, file, mkdir, open_without_runs as open, request, se, settings,
    try_open, without_runs,
};
use crate::archive::{ArchiveStep, ArchiveWork};
use crate::inspect::inspect;
use crate::{EmbeddedSettings, EmbeddedStore, HistoryKept};
use exacat_testkit::simulated::{Fault, Random, SimulatedDisk};

/// A clock that stands at the time it was set to.
#[derive(Default)]
struct Standing(AtomicU64);

impl Clock for Standing {
    fn now(&self) -> TimeMs {
        TimeMs(self.0.load(Ordering::Relaxed))
    }
}

fn work(store: &EmbeddedStore, kept: HistoryKept, now: TimeMs) -> ArchiveWork {
    let clock: Arc<dyn Clock> = Arc::new(Standing(AtomicU64::new(now.0)));
    ArchiveWork::new(store.shared(), &clock, &EmbeddedSettings { history: kept, ..settings() })
}

/// Returns the kept changes.
async fn kept(store: &EmbeddedStore) -> (Revision, Vec<Change>) {
    let mut changes: Vec<Change> = Vec::new();
    let page = store.changes(Revision(0), 7).await.unwrap();
    let oldest = page.oldest;
    changes.extend(page.changes);
    loop {
        let after = changes.last().map_or(Revision(oldest.0 - 1), |change| change.revision);
        let page = store.changes(after, 7).await.unwrap();
        assert_eq!(page.oldest, oldest);
        if page.changes.is_empty() {
            return (oldest, changes);
        }
        changes.extend(page.changes);
    }
}

/// Returns a name that fills segments.
fn long(number: u64) -> String {
    format!("{number:0>120}")
}

fn first_revisions(store: &EmbeddedStore) -> Vec<u64> {
    store.shared().history.list().iter().map(|segment| segment.first_revision.0).collect()
}

fn log_bytes(disk: &SimulatedDisk) -> u64 {
    [".log", ".logz"]
        .iter()
        .flat_map(|ending| disk.files(ending))
        .map(|path| disk.bytes(&path).len() as u64)
        .sum()
}

/// Makes a store of several archived segments, with two runs at the end; returns it with its
/// changes.
async fn several(disk: &SimulatedDisk) -> (Arc<EmbeddedStore>, Vec<Change>) {
    let store = open(disk);
    for number in 1..90 {
        apply(&store, number, vec![file(DirId::ROOT, &long(number), number)]).await;
    }
    for number in 90..92 {
        store.flush().await.unwrap();
        apply(&store, number, vec![mkdir(DirId::ROOT, &format!("directory-{number}"))]).await;
    }
    run(&mut work(&store, HistoryKept::All, TimeMs(0)));
    assert!(store.shared().history.segments() > 4);
    let changes = kept(&store).await.1;
    assert_eq!(changes.len(), 91);
    (store, changes)
}

/// Goal: the limit of bytes, at its edge: a log that fits exactly stays. Method: the log's bytes,
/// and one less.
#[tokio::test]
async fn bytes_are_kept_up_to_the_limit_and_not_one_more() {
    let disk = SimulatedDisk::new();
    let (store, changes) = several(&disk).await;
    let before = first_revisions(&store);
    let bytes = log_bytes(&disk);
    run(&mut work(&store, HistoryKept::Bytes(bytes), TimeMs(u64::MAX)));
    assert_eq!(first_revisions(&store), before);
    run(&mut work(&store, HistoryKept::Bytes(bytes - 1), TimeMs(0)));
    assert_eq!(first_revisions(&store), before[1..], "one goes, and it is enough");
    let (oldest, left) = kept(&store).await;
    assert_eq!((oldest.0, &left[..]), (before[1], &changes[before[1] as usize - 1..]));
    let files = disk.files(".logz").len() + disk.files(".log").len();
    assert_eq!(files, before.len() - 1);
    let status = store.status().await.unwrap();
    let figure = |name: &str| status.named_one(name).unwrap();
    assert_eq!(figure("history_oldest_revision"), before[1]);
    assert_eq!(figure("log_plain_bytes") + figure("log_compressed_bytes"), log_bytes(&disk));
}

/// Goal: segments that wait for compression do not count against the limit: they are compressed
/// first.
#[tokio::test]
async fn plain_segments_are_compressed_before_any_is_removed() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    for number in 1..90 {
        apply(&store, number, vec![file(DirId::ROOT, &long(number), number)]).await;
    }
    store.flush().await.unwrap();
    let before = first_revisions(&store);
    let (plain, limit) = (log_bytes(&disk), log_bytes(&disk) - 4096);
    run(&mut work(&store, HistoryKept::Bytes(limit), TimeMs(0)));
    assert_eq!(first_revisions(&store), before);
    assert!(log_bytes(&disk) < plain);
}

/// Goal: the limit of days, at its edge. Method: the clock exactly at the limit after the last
/// change of the first segment, and a millisecond later.
#[tokio::test]
async fn days_are_kept_to_the_millisecond() {
    let disk = SimulatedDisk::new();
    let (store, changes) = several(&disk).await;
    let before = first_revisions(&store);
    let edge = changes[before[1] as usize - 2].time.plus_ms(30 * 24 * 3600 * 1000);
    run(&mut work(&store, HistoryKept::Days(30), edge));
    assert_eq!(first_revisions(&store), before);
    run(&mut work(&store, HistoryKept::Days(30), edge.plus_ms(1)));
    assert_eq!(first_revisions(&store), before[1..]);
}

/// Goal: segments that cannot be archived do not stay for ever either. Method: their index is
/// damaged, or they are plain: then the next one's beginning gives their minimum age.
#[tokio::test]
async fn damaged_segments_grow_old_too() {
    let disk = SimulatedDisk::new();
    let (store, _) = several(&disk).await;
    let before = first_revisions(&store);
    let path = disk.files(".logz").remove(0);
    disk.damage(&path, |bytes| bytes.truncate(bytes.len() - 5));
    let next = kept(&store).await.1[before[1] as usize - 1].time;
    let edge = next.plus_ms(24 * 3600 * 1000);
    run(&mut work(&store, HistoryKept::Days(1), TimeMs(edge.0 - 20_000)));
    assert_eq!(first_revisions(&store), before);
    run(&mut work(&store, HistoryKept::Days(1), edge));
    assert_eq!(first_revisions(&store)[0], before[1]);
}

/// Goal: segments that opening needs never go, nor the last one, however small the limit. Method:
/// no run; a run in the middle; one at the end.
#[tokio::test]
async fn what_opening_needs_stays() {
    let far = TimeMs(u64::MAX);
    for kept_ in [HistoryKept::Bytes(0), HistoryKept::Days(1)] {
        let disk = SimulatedDisk::new();
        let store = open(&disk);
        for number in 1..100 {
            apply(&store, number, vec![file(DirId::ROOT, &long(number), number)]).await;
        }
        let before = first_revisions(&store);
        run(&mut work(&store, kept_, far));
        assert_eq!(first_revisions(&store), before, "no run, so all is needed");
        drop(store);
        assert_sound(&open(&disk)).await;

        let store = open(&disk);
        store.flush().await.unwrap();
        for number in 100..200 {
            apply(&store, number, vec![file(DirId::ROOT, &long(number), number)]).await;
        }
        let (floor, before) = (99, first_revisions(&store));
        run(&mut work(&store, kept_, far));
        let first = before.iter().filter(|first| **first <= floor + 1).max().unwrap();
        assert_eq!(
            first_revisions(&store)[0],
            *first,
            "what begins at or before change {} is needed",
            floor + 1
        );
        let (digest, left) = (store.digest().await.unwrap(), kept(&store).await);
        drop(store);
        let store = open(&disk);
        assert_eq!((store.digest().await.unwrap(), kept(&store).await), (digest, left));

        apply(&store, 200, vec![mkdir(DirId::ROOT, "a")]).await;
        store.flush().await.unwrap();
        apply(&store, 201, vec![mkdir(DirId::ROOT, "b")]).await;
        store.flush().await.unwrap();
        let last = *first_revisions(&store).last().unwrap();
        run(&mut work(&store, kept_, far));
        assert_eq!(first_revisions(&store)[first_revisions(&store).len() - 1], last, "the last one stays");
        drop(store);
        assert_sound(&open(&disk)).await;
    }
}

/// Goal: opening works if the log does not begin with the first change, and otherwise reports what
/// is missing.
#[tokio::test]
async fn a_log_that_begins_later_needs_its_runs() {
    let disk = SimulatedDisk::new();
    let (store, _) = several(&disk).await;
    let digest = store.digest().await.unwrap();
    run(&mut work(&store, HistoryKept::Bytes(0), TimeMs(0)));
    let left = kept(&store).await;
    assert!(left.0 > Revision(1));
    drop(store);
    let store = open(&disk);
    assert_eq!((store.digest().await.unwrap(), kept(&store).await), (digest, left.clone()));
    assert_sound(&store).await;
    drop(store);
    let found = inspect(&disk.shared(), Path::new("/data")).unwrap();
    assert_eq!((found.problems.len(), found.audit.findings_total), (0, 0), "{:?}", found.problems);
    assert_eq!(found.revision, Revision(91));
    without_runs(&disk);
    let error = try_open(&disk).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.message.contains(&format!("begins with change {}", left.0.0)), "{error}");
    assert!(!inspect(&disk.shared(), Path::new("/data")).unwrap().problems.is_empty());
}

/// Goal: a run may end exactly at the end of a segment that is removed later. Method: one after
/// each request, so that some end exactly there.
#[tokio::test]
async fn a_run_may_end_where_what_went_ended() {
    let disk = SimulatedDisk::new();
    let mut store = open(&disk);
    let mut gone = 0;
    for number in 1..120 {
        apply(&store, number, vec![file(DirId::ROOT, &long(number), number)]).await;
        store.flush().await.unwrap();
        let before = first_revisions(&store).len();
        run(&mut work(&store, HistoryKept::Bytes(0), TimeMs(0)));
        gone += before - first_revisions(&store).len();
        if number % 3 == 0 {
            let digest = store.digest().await.unwrap();
            drop(store);
            store = open(&disk);
            assert_eq!(store.digest().await.unwrap(), digest, "after request {number}");
        }
    }
    assert!(gone > 3);
    assert_eq!(store.revision().await.unwrap(), Revision(119));
}

/// Goal: clause A6 if the record of a remembered request is gone: the outcome is unknown, and it is
/// never done again.
#[tokio::test]
async fn a_request_whose_outcomes_are_gone_is_not_done_again() {
    let disk = SimulatedDisk::new();
    let (store, changes) = several(&disk).await;
    // One request was done in part, and its rest later: one of its records goes, the other stays.
    let both = vec![mkdir(DirId::ROOT, "first"), mkdir(DirId::ROOT, "second")];
    let outcomes = store.apply(request(1, both)).await.unwrap();
    let revision = |outcome: &Outcome| match outcome {
        Outcome::Applied { revision, .. } => revision.0,
        other => panic!("{other:?}"),
    };
    assert_eq!((revision(&outcomes[0]), revision(&outcomes[1])), (1, 92));
    run(&mut work(&store, HistoryKept::Bytes(0), TimeMs(0)));
    let oldest = kept(&store).await.0;
    assert!(oldest.0 > 2);
    for round in 0..2 {
        let store = if round == 0 { store.clone() } else { open(&disk.copy()) };
        let revision = store.revision().await.unwrap();
        for number in 1..=91 {
            // These mutations would be applied if the request were not remembered.
            let mutations = vec![mkdir(DirId::ROOT, &format!("again-{round}-{number}"))];
            match store.apply(request(number, mutations)).await {
                Ok(_) => assert!(number >= oldest.0, "request {number}"),
                Err(ApplyError::Unknown(what)) => {
                    assert!(number < oldest.0, "{what}");
                    let revision = changes[number as usize - 1].revision.0;
                    assert!(what.contains(&format!("revision {revision} ")), "{what}");
                    assert!(what.contains("not kept any more"), "{what}");
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(store.revision().await.unwrap(), revision, "nothing was done");
    }
}

/// Goal: the listing of a storage element never leaves out files silently that moved meanwhile
/// (clause R3). Method: the moves are no longer in the history when the listing reaches them.
#[tokio::test]
async fn a_listing_that_needs_what_is_gone_says_so() {
    let disk = SimulatedDisk::new();
    let store = open(&disk);
    apply(&store, 1, vec![se(1), mkdir(DirId::ROOT, "a")]).await;
    let mut number = 1;
    let mut write = async |mutations: Vec<Mutation>| {
        number += 1;
        apply(&store, number, mutations).await;
    };
    for item in 0..4 {
        let mut mutation = file(DirId(2), &format!("f{item}"), item);
        if let Mutation::Create(entry) = &mut mutation
            && let exacat_model::NewBody::File(file) = &mut entry.body
        {
            file.replicas.push(exacat_model::Replica {
                se: SeNumber(1),
                state: exacat_model::ReplicaState::Available,
                location: exacat_model::Location::Derived,
            });
        }
        write(vec![mutation]).await;
    }
    let (page, cursor) = store.replicas_on(SeNumber(1), &[], 3).await.unwrap();
    assert_eq!(page.items.len(), 3);
    let from = at(DirId(2), "f0");
    write(vec![Mutation::Move { from, expect: exacat_model::Expect::ANY, to: at(DirId::ROOT, "f0") }]).await;
    // This reads to the end of the files; moved ones come after it.
    let (_, moved) = store.replicas_on(SeNumber(1), &cursor, 10).await.unwrap();
    assert!(!moved.is_empty());
    let (page, _) = store.replicas_on(SeNumber(1), &moved, 10).await.unwrap();
    assert_eq!(page.items.len(), 1, "as long as it is kept");
    for item in 0..120 {
        write(vec![mkdir(DirId::ROOT, &format!("d{item}"))]).await;
    }
    store.flush().await.unwrap();
    run(&mut work(&store, HistoryKept::Bytes(0), TimeMs(0)));
    let error = store.replicas_on(SeNumber(1), &moved, 10).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains("begin it again"), "{error}");
}

/// Goal: segments go oldest first, through any crash and failing disk. Method: the power, or the
/// disk, fails at every operation of archiving and removing; the rest opens, and has no gap.
#[tokio::test]
async fn removing_may_be_cut_at_every_step() {
    let start = SimulatedDisk::new();
    let (store, changes) = several(&start).await;
    let digest = store.digest().await.unwrap();
    drop(store);
    for operation in 1.. {
        let mut past_the_end = false;
        for cut in [true, false] {
            let disk = start.copy();
            let store = open(&disk);
            let number = disk.operations() + operation;
            disk.set_fault(Some(match cut {
                true => Fault::PowerCut(number),
                false => Fault::Once(number, std::io::ErrorKind::Other),
            }));
            let mut removing = work(&store, HistoryKept::Bytes(0), TimeMs(0));
            run(&mut removing);
            past_the_end = disk.operations() < number;
            if !cut {
                let told = !store.status().await.unwrap().warnings.is_empty();
                assert_eq!(told, !past_the_end, "operation {operation}");
                run(&mut removing);
                assert!(store.status().await.unwrap().warnings.is_empty(), "operation {operation}");
                assert_eq!(removing.step(), ArchiveStep::Idle);
            }
            drop((removing, store));
            for seed in 0..4 {
                let image = if cut { disk.image(&mut Random(seed)) } else { disk.copy() };
                let store = open(&image);
                let (oldest, left) = kept(&store).await;
                assert_eq!(left, changes[oldest.0 as usize - 1..], "operation {operation}");
                assert_eq!(store.digest().await.unwrap(), digest);
            }
        }
        if past_the_end {
            assert!(operation > 8, "removing has more operations than {operation}");
            return;
        }
    }
}

/// Goal: a present reader of a removed segment reads it to its end; a later one finds it gone.
#[tokio::test]
async fn a_reader_may_have_open_what_goes() {
    let disk = SimulatedDisk::new();
    let (store, _) = several(&disk).await;
    let history = &store.shared().history;
    let (oldest, catalogue) = (history.list().remove(0), history.catalogue());
    let mut open = SegmentReader::open(&**history.disk(), &oldest, catalogue).unwrap().unwrap();
    run(&mut work(&store, HistoryKept::Bytes(0), TimeMs(0)));
    assert!(history.oldest() > oldest.first_revision);
    let head = open.next_head(HEADER_BYTES as u64).unwrap().unwrap().1;
    assert_eq!(head.first_revision, oldest.first_revision);
    assert!(SegmentReader::open(&**history.disk(), &oldest, catalogue).unwrap().is_none());
    assert!(history.record(Revision(1)).unwrap().is_none());
}

/// Goal: readers of the changes get all of them in order, or learn what they missed, while the
/// thread removes segments. Method: two readers, one from the end on and one always from the start,
/// beside a writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_are_told_what_the_thread_removed() {
    let disk = SimulatedDisk::new();
    let segment = settings().segment_bytes;
    let settings = EmbeddedSettings { archive: true, history: HistoryKept::Bytes(2 * segment), ..settings() };
    let store = EmbeddedStore::open_on(disk.shared(), settings, Arc::new(TestClock::default())).unwrap();
    const LAST: u64 = 400;
    let read = |from_the_start: bool| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut after = Revision(0);
            let mut missed = 0;
            while after.0 < LAST {
                let asked = if from_the_start { Revision(0) } else { after };
                let page = store.changes(asked, 20).await.unwrap();
                let first = page.oldest.max(Revision(asked.0 + 1)).0;
                missed += u64::from(first > asked.0 + 1);
                for (change, wanted) in page.changes.iter().zip(first..) {
                    assert_eq!(change.revision.0, wanted);
                }
                after = page.up_to.max(Revision(first - 1));
                if from_the_start {
                    after = store.revision().await.unwrap();
                }
                tokio::task::yield_now().await;
            }
            missed
        })
    };
    let (following, from_the_start) = (read(false), read(true));
    for number in 1..=LAST {
        apply(&store, number, vec![file(DirId::ROOT, &long(number), number)]).await;
        if number % 40 == 0 {
            store.flush().await.unwrap();
        }
    }
    following.await.unwrap();
    from_the_start.await.unwrap();
    store.flush().await.unwrap();
    store.shared().history.notifier.wait_until_resting();
    let oldest = store.changes(Revision(0), 1).await.unwrap().oldest;
    assert!(oldest.0 > LAST / 2, "{oldest:?}");
    assert!(log_bytes(&disk) <= 2 * segment, "{}", log_bytes(&disk));
}

/// Goal: limits that keep nothing are refused. Method: each at its edge.
#[tokio::test]
async fn limits_that_keep_nothing_are_refused() {
    let segment = settings().segment_bytes;
    for (history, good) in [
        (HistoryKept::All, true),
        (HistoryKept::Days(0), false),
        (HistoryKept::Days(1), true),
        (HistoryKept::Days(u32::MAX), true),
        (HistoryKept::Bytes(2 * segment - 1), false),
        (HistoryKept::Bytes(2 * segment), true),
    ] {
        let settings = EmbeddedSettings { history, ..settings() };
        let clock = Arc::new(Standing::default());
        let opened = EmbeddedStore::open_on(SimulatedDisk::new().shared(), settings, clock);
        assert_eq!(opened.is_ok(), good, "{history:?}");
        if let Err(error) = opened {
            assert_eq!(error.kind, ErrorKind::Invalid);
        }
    }
}
