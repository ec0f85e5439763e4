//! Goal: an operation that fails at any of its store requests, and is repeated under the same id,
//! ends as if it had never failed. The request may be done with its answer lost, not done with an
//! unknown outcome, or certainly not done. The result has the same answer, the same changes, each
//! once, and right counters. The steps of the workers behave the same.
//!
//! Method: each operation runs over a store that fails its n-th request, for every n, in each way;
//! then again until it is answered. Its changes are compared with those of an undisturbed run. The
//! test runs every kind of operation that writes once, in a world with an object for each. It also
//! runs operations that take several requests, or could be done in half.

use std::sync::Arc;

use async_trait::async_trait;
use exacat_catalogue::{Catalogue, Settings};
use exacat_model::operation::{Attribute, Existing, NewFile, NewReplica, ReplicaEdit};
use exacat_model::{
    Answer, Checksum, Checksums, Cursor, ErrorKind, FileRef, Lfn, NewBody, OnTimeline, Operation,
    OperationId, ReplicaState, Result, Revision, Tag, TagKey, TagValue, TimeMs, TrashId,
};
use exacat_store::{ApplyError, Clock, Outcome, Request, Store};
use exacat_testkit::{Before, Fronted};
use parking_lot::Mutex;

use crate::fixture::{Fixture, derived, guid, lfn, lfns, mode, se_name};
use crate::operations::{Target, World, operation, outcome};

/// The way a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Done, but the answer is lost.
    AnswerLost,
    /// Not done, but the outcome is unknown.
    RequestLost,
    /// Certainly not done.
    NotDone,
}

impl Fault {
    const ALL: [Fault; 3] = [Fault::AnswerLost, Fault::RequestLost, Fault::NotDone];
}

/// Fails one request to the store behind it.
struct Lossy {
    /// Requests until the fault, and its kind; none once it happened.
    fault: Mutex<Option<(usize, Fault)>>,
    requests: Mutex<usize>,
}

/// Makes a store that fails one request.
fn lossy(store: Arc<dyn Store>, fault: Option<(usize, Fault)>) -> Arc<Fronted<Lossy>> {
    Arc::new(Fronted::new(Lossy { fault: Mutex::new(fault), requests: Mutex::new(0) }, store))
}

#[async_trait]
impl Before for Lossy {
    async fn apply(
        &self,
        request: Request,
        store: &dyn Store,
    ) -> std::result::Result<Vec<Outcome>, ApplyError> {
        *self.requests.lock() += 1;
        let due = {
            let mut fault = self.fault.lock();
            match fault.take() {
                Some((0, kind)) => Some(kind),
                Some((left, kind)) => {
                    *fault = Some((left - 1, kind));
                    None
                }
                None => None,
            }
        };
        match due {
            None => store.apply(request).await,
            Some(Fault::AnswerLost) => {
                store.apply(request).await?;
                Err(ApplyError::Unknown("the answer was lost".to_owned()))
            }
            Some(Fault::RequestLost) => Err(ApplyError::Unknown("the request was lost".to_owned())),
            Some(Fault::NotDone) => Err(ApplyError::Unavailable("not now".to_owned())),
        }
    }
}

// ---- one fault at each request ----

/// An operation to send, with its world.
struct Case {
    fixture: Fixture,
    settings: Settings,
    operation: Operation,
    admin: bool,
}

/// The result of a run.
struct Run {
    answer: Result<Answer>,
    done: Vec<String>,
    /// Number of requests to the store.
    requests: usize,
    /// Number of failed attempts.
    failures: usize,
}

/// Failures before the test stops repeating: more than one fault can cause.
const FAILURES_MAX: usize = 3;

/// Required equality of two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Same {
    /// The same answer, and the same order of changes.
    All,
    /// The same outcome, and the same changes.
    Outcome,
}

/// Runs an operation, and all its pages under one id, with one fault on the way, until it is
/// answered.
async fn run(case: Case, fault: Option<(usize, Fault)>) -> Run {
    let Case { fixture: f, settings, mut operation, admin } = case;
    let before = f.store.revision().await.unwrap();
    let store = lossy(f.store.clone(), fault);
    let catalogue = Catalogue::open(store.clone(), f.clock.shared(), settings).await.unwrap();
    let caller = if admin { &f.admin } else { &f.alice };
    let id = OperationId::new(f.clock.now(), [0x55; 10]);
    let mut failures = 0;
    let answer = loop {
        let begun = f.store.revision().await.unwrap();
        match catalogue.execute(caller, id, operation.clone()).await {
            Ok(answer) => match answer.next() {
                Some(cursor) => operation = operation.resumed(cursor.clone()).unwrap(),
                None => break Ok(answer),
            },
            Err(error) if matches!(error.kind, ErrorKind::Unknown | ErrorKind::Unavailable) => {
                failures += 1;
                // The outcome "certainly not done" means no change at all, not even a directory on
                // the way.
                if error.kind == ErrorKind::Unavailable {
                    assert_eq!(f.store.revision().await.unwrap(), begun, "{operation:?}: {error}");
                }
            }
            Err(error) => break Err(error),
        }
        assert!(failures < FAILURES_MAX, "{operation:?}");
    };
    f.audit().await;
    let requests = *store.before.requests.lock();
    Run { answer, done: done_since(&f, before).await, requests, failures }
}

/// Returns the effects of the changes after a revision, without new GUIDs and times.
async fn done_since(f: &Fixture, after: Revision) -> Vec<String> {
    let page = f.store.changes(after, 10_000).await.unwrap();
    page.changes
        .into_iter()
        .map(|change| format!("{} {:?}", change.effect.name(), change.effect.at().map(|at| at.name.clone())))
        .collect()
}

/// Runs without a fault, then with each fault at each request. Returns the number of faults.
async fn cut_off_everywhere(name: &str, same: Same, begin: impl AsyncFn() -> Case) -> usize {
    let whole = run(begin().await, None).await;
    assert!(whole.answer.is_ok(), "{name}: {:?}", whole.answer);
    assert!(!whole.done.is_empty() && whole.requests > 0, "{name} did nothing");
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    let mut faults = 0;
    for request in 0..whole.requests {
        for fault in Fault::ALL {
            let cut = run(begin().await, Some((request, fault))).await;
            let what = format!("{name}, {fault:?} at request {request}");
            assert!(cut.failures > 0 || cut.requests > whole.requests, "{what}: nothing was cut off");
            faults += 1;
            match (same, &cut.answer, &whole.answer) {
                (Same::Outcome, answer, expected) => {
                    assert!(outcome_of_all(expected).starts_with("ok"), "{what}: {expected:?}");
                    assert_eq!(outcome_of_all(answer), outcome_of_all(expected), "{what}");
                }
                // The number of purged entries is reported once, to the caller who receives it.
                (Same::All, Ok(Answer::Purged { .. }), Ok(Answer::Purged { .. })) => {}
                (Same::All, answer, expected) => assert_eq!(answer, expected, "{what}"),
            }
            if name == "token-issue" && fault == Fault::AnswerLost {
                // A token whose secret was lost gets another: one change more.
                assert_eq!(cut.done.len(), whole.done.len() + 1, "{what}");
                continue;
            }
            assert_eq!(sorted(&cut.done), sorted(&whole.done), "{what}");
            if same == Same::All {
                assert_eq!(cut.done, whole.done, "{what}");
            }
        }
    }
    faults
}

/// Returns the outcome; for many files, that of each.
fn outcome_of_all(answer: &Result<Answer>) -> String {
    match answer {
        Ok(Answer::Registered(items)) => {
            let word = |item: &Result<exacat_model::operation::Registered>| match item {
                Ok(registered) => format!("{registered:?}").split('(').next().unwrap().to_owned(),
                Err(error) => error.kind.name().to_owned(),
            };
            format!("ok {}", items.iter().map(word).collect::<Vec<_>>().join(" "))
        }
        // A purged entry counts once; a repeat finds it gone.
        Ok(Answer::Purged { next, .. }) => format!("ok {next:?}"),
        Ok(Answer::CollectionEdited { refused, .. }) => format!("ok {refused:?}"),
        other => outcome(other),
    }
}

// ---- every kind ----

const TARGET: Target = Target { directory_mode: 0o755, file_mode: 0o644 };

async fn in_the_world(make: impl Fn(&World) -> Operation, admin: bool) -> Case {
    let world = World::new(Fixture::new().await, TARGET).await;
    let operation = make(&world);
    Case { fixture: world.fixture, settings: Settings::default(), operation, admin }
}

#[tokio::test]
async fn every_kind_of_operation_survives_every_fault() {
    let mut faults = 0;
    for name in Operation::NAMES {
        let world = World::new(Fixture::new().await, TARGET).await;
        if !operation(&world, name).writes() {
            continue;
        }
        // The reference store keeps no snapshots; the embedded one's tests do these.
        if name.starts_with("snapshot-") || *name == *"backup" {
            continue;
        }
        let admin = matches!(
            name,
            "se-set"
                | "se-drop"
                | "se-deleted"
                | "user-set"
                | "user-drop"
                | "group-add"
                | "group-drop"
                | "quota-set"
        );
        let begin = async || in_the_world(|world| operation(world, name), admin).await;
        faults += cut_off_everywhere(name, Same::Outcome, begin).await;
    }
    assert!(faults > 75, "{faults}");
}

#[tokio::test]
async fn registering_with_parents_members_and_merges_survives_every_fault() {
    let make = |world: &World| {
        let on = |se: &str| NewReplica { se: se_name(se), pfn: None, state: ReplicaState::Available };
        let tag = Tag { key: TagKey::parse("run").unwrap(), value: TagValue::Integer(1) };
        let file = |path: &str| NewFile::named(lfn(path));
        let files = vec![
            file("/alice/a/b/1"),
            NewFile { replicas: vec![on("X::FNAL::DISK")], ..file("/place/here/file") },
            NewFile {
                replicas: vec![on("X::CERN::TAPE")],
                tags: vec![tag.clone()],
                ..file("/place/here/file")
            },
            NewFile { size: Some(99), ..file("/place/here/file") },
            NewFile {
                member_of: Some((FileRef::Lfn(lfn("/alice/a/b/1")), "x".to_owned())),
                ..file("/alice/c/m")
            },
            NewFile { tags: vec![tag], ..file("/alice/a/b/1") },
            NewFile {
                checksums: Checksums::one(Checksum::parse("adler32:5").unwrap()),
                guid: Some(world.archive),
                ..file("/place/here/zip")
            },
            file("/bob/denied"),
            file("/place/here/file"),
        ];
        Operation::Register { files, parents: true, existing: Existing::Merge }
    };
    let begin = async || in_the_world(make, false).await;
    let whole = run(begin().await, None).await;
    assert_eq!(
        outcome_of_all(&whole.answer),
        "ok Created Merged Merged conflict Created Merged Merged denied Unchanged"
    );
    assert!(cut_off_everywhere("register", Same::Outcome, begin).await >= 15);
}

// ---- operations of several requests, or with parts ----

/// Makes an operation, given the item of the trash.
type Make = Box<dyn Fn(OnTimeline<TrashId>) -> Operation>;

const SETTINGS: fn() -> Settings = || Settings { purge_step_entries: 3, ..Settings::default() };

/// Makes a small tree, a collection, and an item of the trash with contents.
async fn world() -> (Fixture, OnTimeline<TrashId>) {
    let f = Fixture::with(SETTINGS()).await;
    for path in ["/alice/d", "/alice/d/e", "/alice/gone", "/alice/gone/x", "/alice/gone/y"] {
        f.plant_directory(path, 1, 0o755).await;
    }
    for path in ["/alice/f", "/alice/g", "/alice/d/f", "/alice/gone/f", "/alice/gone/x/f", "/alice/gone/x/g"]
    {
        f.plant_file(path, 1, 0o644, 5, vec![derived(1, ReplicaState::Available)]).await;
    }
    f.plant("/alice/set", 1, 0o644, NewBody::Collection { guid: guid(7000) }).await;
    let item = f.remove(&f.alice, "/alice/gone").await.unwrap();
    (f, item)
}

#[tokio::test]
async fn what_could_be_done_in_half_survives_every_fault() {
    let text = "x".repeat(8000);
    let long: Vec<Tag> = (0..60)
        .map(|n| Tag { key: TagKey::parse(&format!("k{n}")).unwrap(), value: TagValue::Text(text.clone()) })
        .collect();
    let four = lfns(["/alice/f", "/alice/g", "/alice/d", "/alice/d/e"]);
    let many_lfns: Vec<Lfn> = four.iter().cycle().take(20).cloned().collect();
    let put = ReplicaEdit::Put(NewReplica {
        se: se_name("X::FNAL::DISK"),
        pfn: None,
        state: ReplicaState::Available,
    });
    let operations: Vec<(&str, Make)> = vec![
        (
            "mkdir",
            Box::new(|_| Operation::Mkdir {
                lfns: lfns(["/alice/n", "/alice/n/m", "/alice/n/m/o", "/alice/p"]),
                parents: false,
                mode: None,
            }),
        ),
        (
            "mkdir -p",
            Box::new(|_| Operation::Mkdir {
                lfns: lfns(["/alice/n/m/o", "/alice/n/m", "/alice/p/q/r/s", "/alice/d/n"]),
                parents: true,
                mode: Some(mode(0o700)),
            }),
        ),
        ("link", Box::new(|_| Operation::Link { lfn: lfn("/alice/l"), target: lfn("/x") })),
        (
            "set",
            Box::new(|_| Operation::SetAttributes {
                lfns: lfns(["/alice/f", "/alice/d"]),
                attributes: vec![Attribute::Mode(mode(0o700))],
            }),
        ),
        (
            "replicas",
            Box::new(move |_| Operation::SetReplicas {
                edits: vec![
                    (FileRef::Lfn(lfn("/alice/f")), vec![put.clone()]),
                    (FileRef::Lfn(lfn("/alice/g")), vec![put.clone()]),
                ],
            }),
        ),
        ("mv", Box::new(|_| Operation::Move { from: lfn("/alice/d"), to: lfn("/alice/m") })),
        ("mv into", Box::new(|_| Operation::Move { from: lfn("/alice/f"), to: lfn("/alice/d/e") })),
        ("rm", Box::new(|_| Operation::Remove { lfn: lfn("/alice/d"), recursive: true, directory: false })),
        ("restore", Box::new(|item| Operation::TrashRestore { id: item, to: None })),
        ("restore to", Box::new(|item| Operation::TrashRestore { id: item, to: Some(lfn("/alice/d")) })),
        ("purge", Box::new(|item| Operation::TrashPurge { id: item, cursor: Cursor::default() })),
        // Long enough for several requests.
        (
            "tags",
            Box::new(move |_| Operation::TagSet {
                lfns: many_lfns.clone(),
                set: long.clone(),
                unset: vec![],
            }),
        ),
        (
            "collection",
            Box::new(|_| Operation::CollectionCreate {
                lfn: lfn("/alice/c"),
                tags: vec![Tag::parse("a=1").unwrap()],
            }),
        ),
        (
            "members",
            Box::new(|_| Operation::CollectionEdit {
                lfn: lfn("/alice/set"),
                add: vec![FileRef::Lfn(lfn("/alice/f")), FileRef::Lfn(lfn("/alice/g"))],
                remove: vec![],
            }),
        ),
    ];
    for (name, operation) in operations {
        let begin = async || {
            let (fixture, item) = world().await;
            Case { fixture, settings: SETTINGS(), operation: operation(item), admin: false }
        };
        cut_off_everywhere(name, Same::All, begin).await;
    }
}

// ---- workers ----

/// Goal: an interrupted step of a worker keeps its changes; the next one does the rest.
#[tokio::test]
async fn steps_of_workers_survive_every_fault() {
    for fault in Fault::ALL {
        let settings = || Settings { trash_seconds: Some(1), reservation_seconds: 10, ..Settings::default() };
        let f = Fixture::with(settings()).await;
        for number in 0..3 {
            f.get(
                &f.alice,
                crate::operations::reserve(lfn(&format!("/alice/{number}")), 10, &["X::CERN::DISK"]),
            )
            .await;
        }
        f.plant_file("/alice/file", 1, 0o644, 10, vec![]).await;
        f.edit("/alice/file", vec![exacat_model::Edit::Expires(Some(TimeMs(1)))]).await;
        f.clock.turn(20_000);
        let store = lossy(f.store.clone(), None);
        let catalogue = Catalogue::open(store.clone(), f.clock.shared(), settings()).await.unwrap();
        let kind = if fault == Fault::NotDone { ErrorKind::Unavailable } else { ErrorKind::Unknown };
        let before = f.store.revision().await.unwrap().0;
        *store.before.fault.lock() = Some((0, fault));
        assert_eq!(catalogue.expired_reservations_step().await.unwrap_err().kind, kind);
        catalogue.expired_reservations_step().await.unwrap();
        *store.before.fault.lock() = Some((0, fault));
        assert_eq!(catalogue.expired_entries_step().await.unwrap_err().kind, kind);
        catalogue.expired_entries_step().await.unwrap();
        f.clock.turn(2_000);
        *store.before.fault.lock() = Some((0, fault));
        assert_eq!(catalogue.trash_purge_step().await.unwrap_err().kind, kind);
        catalogue.trash_purge_step().await.unwrap();
        // Three reservations released, one file removed, and purged: each once.
        assert_eq!(f.store.revision().await.unwrap().0, before + 5, "{fault:?}");
        f.audit().await;
    }
}
