//! Requests that memory has forgotten: their ids are found in the log, in whatever form, as long as
//! it is kept.

use std::sync::Arc;

use exacat_model::limits::OPERATION_AHEAD_MAX_MS;
use exacat_model::{DirId, EntryId, Fingerprint, Lfn, Mutation, OperationId, Revision, TimeMs, UserId};
use exacat_store::{ApplyError, Clock, Outcome, Request, ResolutionEnd, Store};

use super::archiving::run;
use super::{TestClock, file, mkdir, remove, settings};
use crate::archive::ArchiveWork;
use crate::older::{Older, OlderRecords};
use crate::{EmbeddedSettings, EmbeddedStore, HistoryKept};
use exacat_testkit::simulated::{Random, SimulatedDisk};

/// Number of requests in memory.
const REMEMBERED: usize = 8;

/// A store with little memory for ids, and its clock.
struct Forgetful {
    store: Arc<EmbeddedStore>,
    clock: Arc<TestClock>,
    numbers: u64,
}

impl Forgetful {
    fn open(disk: &SimulatedDisk, clock: Arc<TestClock>) -> Self {
        let settings = EmbeddedSettings { operations_remembered: REMEMBERED, ..settings() };
        let store = EmbeddedStore::open_on(disk.shared(), settings, clock.clone()).unwrap();
        Forgetful { store, clock, numbers: 0 }
    }

    /// Returns a new request, made now.
    fn request(&mut self, mutations: Vec<Mutation>) -> Request {
        self.numbers += 1;
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.numbers.to_le_bytes());
        Request::new(OperationId::new(self.clock.now(), random), UserId(0), mutations)
            .with(Fingerprint(self.numbers))
    }

    async fn apply(&mut self, mutations: Vec<Mutation>) -> Vec<Outcome> {
        let request = self.request(mutations);
        self.store.apply(request).await.unwrap()
    }

    /// Registers so many other files.
    async fn go_on(&mut self, count: u64) {
        for _ in 0..count {
            let name = format!("{:0>120}", self.numbers);
            let number = 1000 + self.numbers;
            let made = self.apply(vec![file(DirId::ROOT, &name, number)]).await;
            assert!(matches!(made[..], [Outcome::Applied { .. }]), "{made:?}");
        }
    }

    /// Returns the entry at `/x`.
    async fn x(&self) -> Option<EntryId> {
        match self.store.resolve(&[Lfn::parse("/x").unwrap()]).await.unwrap().remove(0).end {
            ResolutionEnd::Found(entry) => Some(entry.id()),
            _ => None,
        }
    }

    fn ids_sorted(&self) -> usize {
        self.store.shared().older.lock().segments()
    }

    fn archive(&self, history: HistoryKept) {
        let clock: Arc<dyn Clock> = self.clock.clone();
        run(&mut ArchiveWork::new(self.store.shared(), &clock, &EmbeddedSettings { history, ..settings() }));
    }
}

/// Goal: a repeated removal whose first answer was lost removes nothing, however many requests came
/// meanwhile. This holds after another client registered the name again, after a restart, and from
/// compressed segments. New requests do not search the log.
#[tokio::test]
async fn removal_repeated_after_memory_forgot_it_removes_nothing() {
    let disk = SimulatedDisk::new();
    let clock = Arc::new(TestClock::default());
    let mut one = Forgetful::open(&disk, Arc::clone(&clock));
    one.apply(vec![file(DirId::ROOT, "x", 1)]).await;
    let removal = one.request(vec![remove(DirId::ROOT, "x")]);
    let removed = one.store.apply(removal.clone()).await.unwrap();
    assert!(matches!(removed[..], [Outcome::Applied { .. }]), "{removed:?}");
    one.apply(vec![file(DirId::ROOT, "x", 2)]).await;
    let there = one.x().await;
    assert!(there.is_some());
    one.go_on(100).await;
    assert_eq!(one.ids_sorted(), 0, "no new request was looked for in the log");
    for turn in 0..6 {
        let before = one.store.revision().await.unwrap();
        assert_eq!(one.store.apply(removal.clone()).await.unwrap(), removed, "turn {turn}");
        assert!(one.ids_sorted() > 0);
        let other = removal.clone().with(Fingerprint(u64::MAX));
        let refused = one.store.apply(other).await;
        assert!(matches!(refused, Err(ApplyError::Conflict(_))), "turn {turn}: {refused:?}");
        assert_eq!((one.x().await, one.store.revision().await.unwrap()), (there, before), "turn {turn}");
        match turn {
            0 => one.archive(HistoryKept::All),
            1 => one.go_on(20).await,
            2 => one.store.flush().await.unwrap(),
            _ => {
                drop(one.store);
                let numbers = one.numbers;
                one = Forgetful { numbers, ..Forgetful::open(&disk, Arc::clone(&clock)) };
            }
        }
    }
}

/// Goal: if the necessary history is gone, nothing is done, and the error has the reason.
#[tokio::test]
async fn request_from_before_the_kept_history_is_unknown() {
    let disk = SimulatedDisk::new();
    let mut one = Forgetful::open(&disk, Arc::default());
    let make = one.request(vec![mkdir(DirId::ROOT, "d")]);
    let never = one.request(vec![mkdir(DirId::ROOT, "e")]);
    one.store.apply(make.clone()).await.unwrap();
    one.go_on(100).await;
    one.store.flush().await.unwrap();
    one.archive(HistoryKept::Bytes(2 * settings().segment_bytes));
    assert!(one.store.shared().history.oldest() > Revision(1));
    let before = one.store.revision().await.unwrap();
    for request in [make, never] {
        match one.store.apply(request).await {
            Err(ApplyError::Unknown(why)) => assert!(why.contains("too old"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(one.store.revision().await.unwrap(), before);
    // Remembered and new requests need no history.
    let recent = one.request(vec![mkdir(DirId::ROOT, "f")]);
    let first = one.store.apply(recent.clone()).await.unwrap();
    assert_eq!(one.store.apply(recent).await.unwrap(), first);
}

/// Goal: runs of any size give every record of every id, and of no other. Method: some requests are
/// repeated when a refused part has become possible, so that they have records far apart. The
/// result is compared with a scan of the log.
#[tokio::test]
async fn sorted_ids_give_what_a_scan_of_the_log_gives() {
    for run_ids in [1, 3, 7, 1000] {
        let disk = SimulatedDisk::new();
        let mut one = Forgetful::open(&disk, Arc::default());
        let mut random = Random(run_ids as u64);
        let mut asked: Vec<Request> = Vec::new();
        for number in 0..80u64 {
            let name = format!("{number:0>100}");
            let to_come = format!("{:0>100}", number + 1 + random.next(20));
            let request = one.request(vec![mkdir(DirId::ROOT, &name), remove(DirId::ROOT, &to_come)]);
            one.store.apply(request.clone()).await.unwrap();
            asked.push(request);
            let again = asked[random.next(asked.len() as u64) as usize].clone();
            one.store.apply(again).await.unwrap();
        }
        one.store.flush().await.unwrap();
        if run_ids == 3 {
            one.archive(HistoryKept::All);
        }
        let history = &one.store.shared().history;
        let durable = one.store.revision().await.unwrap();
        let mut scanned = Vec::new();
        assert!(
            history
                .heads(Revision(1), durable, |head| {
                    scanned.push((head.operation, head.first_revision));
                    true
                })
                .unwrap()
        );
        let of = |id: OperationId| -> Vec<Revision> {
            scanned.iter().filter(|(other, _)| *other == id).map(|(_, revision)| *revision).collect()
        };
        assert!(asked.iter().any(|request| of(request.operation).len() > 1), "some have several");
        let begin = || Older::new(disk.shared(), "/data/sorted".into()).with_runs_of(run_ids);
        let mut older = begin();
        let mut ids: Vec<OperationId> = asked.iter().map(|request| request.operation).collect();
        ids.push(OperationId::new(TimeMs(1_790_000_040_000), [0xff; 10]));
        for id in ids {
            let expected = OlderRecords::Records(of(id));
            assert_eq!(older.find(history, id, durable).unwrap(), expected, "{id:?}");
            assert_eq!(begin().find(history, id, durable).unwrap(), expected, "{id:?} alone");
        }
    }
}

/// Goal: the search for an id goes back only to its time of making, less the time that an id may be
/// ahead.
#[tokio::test]
async fn log_from_before_an_id_was_made_is_not_looked_at() {
    let disk = SimulatedDisk::new();
    let mut one = Forgetful::open(&disk, Arc::default());
    one.go_on(200).await;
    let history = &one.store.shared().history;
    let durable = one.store.revision().await.unwrap();
    let all = history.segments();
    let begin = || Older::new(disk.shared(), "/data/sorted".into());
    let now = one.clock.now();
    let mut older = begin();
    older.find(history, OperationId::new(now, [0; 10]), durable).unwrap();
    let few = older.segments();
    assert!(few < all / 2, "{few} of {all}");
    let mut older = begin();
    older
        .find(history, OperationId::new(TimeMs(now.0 - OPERATION_AHEAD_MAX_MS * 5), [0; 10]), durable)
        .unwrap();
    assert!(older.segments() > few);
    let mut older = begin();
    older.find(history, OperationId::new(TimeMs(0), [0; 10]), durable).unwrap();
    assert_eq!(older.segments(), all);
}

/// Goal: a changed page of sorted ids gives an unknown outcome, never a request done twice.
#[tokio::test]
async fn damaged_sorted_ids_are_an_unknown_outcome() {
    let disk = SimulatedDisk::new();
    let mut one = Forgetful::open(&disk, Arc::default());
    let make = one.request(vec![mkdir(DirId::ROOT, "d")]);
    let made = one.store.apply(make.clone()).await.unwrap();
    one.go_on(60).await;
    *one.store.shared().older.lock() = Older::new(disk.shared(), "/data/operations".into()).with_runs_of(5);
    assert_eq!(one.store.apply(make.clone()).await.unwrap(), made);
    for path in disk.files(".ids") {
        disk.damage(&path, |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1));
    }
    let answer = one.store.apply(make).await;
    assert!(matches!(answer, Err(ApplyError::Unknown(_))), "{answer:?}");
}
