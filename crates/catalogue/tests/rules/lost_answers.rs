//! Goal: an operation cut off at any of its requests to the store - done but the answer lost, or not done at all - and
//! asked again under the same id ends as if it had never been cut off: same answer, same changes, once.
//! Method: each operation is run over a store that fails its n-th request, for every n, in both ways; then again
//! until it is answered. The history is compared with that of an undisturbed run.

use std::sync::Arc;

use crate::fixture::{Fixture, derived, guid, lfn, lfns, mode, se_name};
use async_trait::async_trait;
use exacat_catalogue::{Catalogue, Settings};
use exacat_model::operation::{Attribute, NewReplica, ReplicaEdit};
use exacat_model::{
    Answer, Audit, Booking, Cursor, Deletion, DeletionId, DirId, Entry, EntryId, ErrorKind, FileRef, Guid,
    Lfn, Name, NewBody, Operation, OperationId, Record, RecordKey, RecordKind, ReplicaState, Result,
    Revision, SeNumber, Tag, TagKey, TagValue, TimeMs, TrashId, TrashItem,
};
use exacat_store::{
    Account, ApplyError, ChangePage, Due, Located, Outcome, Page, RecordEntry, Request, Store, StoreStatus,
    UsageOf, Walk,
};
use parking_lot::Mutex;

/// How the one request fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It is done, and its answer lost.
    AnswerLost,
    /// It is certainly not done.
    NotDone,
    /// It may have been done, and was not.
    NotDoneAndNotKnown,
}

/// A store that fails one request.
struct Lossy {
    inner: Arc<dyn Store>,
    /// Requests until the fault, and which; none once it happened.
    fault: Mutex<Option<(usize, Fault)>>,
}

#[async_trait]
impl Store for Lossy {
    async fn apply(&self, request: Request) -> std::result::Result<Vec<Outcome>, ApplyError> {
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
            None => self.inner.apply(request).await,
            Some(Fault::AnswerLost) => {
                self.inner.apply(request).await?;
                Err(ApplyError::Unknown("the answer was lost".to_owned()))
            }
            Some(Fault::NotDone) => Err(ApplyError::Unavailable("not now".to_owned())),
            Some(Fault::NotDoneAndNotKnown) => Err(ApplyError::Unknown("the request was lost".to_owned())),
        }
    }
    async fn walk(&self, paths: &[Lfn]) -> Result<Vec<Walk>> {
        self.inner.walk(paths).await
    }
    async fn locate(&self, ids: &[EntryId]) -> Result<Vec<Option<Located>>> {
        self.inner.locate(ids).await
    }
    async fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Option<Page<Entry>>> {
        self.inner.list(directory, after, limit).await
    }
    async fn usage(&self, of: &[UsageOf]) -> Result<Vec<Account>> {
        self.inner.usage(of).await
    }
    async fn replicas_on(&self, se: SeNumber, cursor: &[u8], limit: usize) -> Result<(Page<Entry>, Vec<u8>)> {
        self.inner.replicas_on(se, cursor, limit).await
    }
    async fn members(
        &self,
        collection: Guid,
        after: Option<Guid>,
        limit: usize,
    ) -> Result<Option<Page<Guid>>> {
        self.inner.members(collection, after, limit).await
    }
    async fn trash(&self, after: Option<TrashId>, limit: usize) -> Result<Page<TrashItem>> {
        self.inner.trash(after, limit).await
    }
    async fn trash_item(&self, id: TrashId) -> Result<Option<TrashItem>> {
        self.inner.trash_item(id).await
    }
    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
    ) -> Result<Page<Deletion>> {
        self.inner.deletions(se, after, limit).await
    }
    async fn booking(&self, guid: Guid) -> Result<Option<Booking>> {
        self.inner.booking(guid).await
    }
    async fn bookings(&self, after: Option<Guid>, limit: usize) -> Result<Page<Booking>> {
        self.inner.bookings(after, limit).await
    }
    async fn due(&self, now: TimeMs, limit: usize) -> Result<Due> {
        self.inner.due(now, limit).await
    }
    async fn record(&self, key: RecordKey) -> Result<Option<(Record, Revision)>> {
        self.inner.record(key).await
    }
    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Page<RecordEntry>> {
        self.inner.records(kind, after, limit).await
    }
    async fn revision(&self) -> Result<Revision> {
        self.inner.revision().await
    }
    async fn changes(&self, after: Revision, limit: usize) -> Result<ChangePage> {
        self.inner.changes(after, limit).await
    }
    async fn changed(&self, after: Revision) -> Result<()> {
        self.inner.changed(after).await
    }
    async fn audit(&self) -> Result<Audit> {
        self.inner.audit().await
    }
    async fn status(&self) -> Result<StoreStatus> {
        self.inner.status().await
    }
    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

/// An operation, given the item of the trash.
type Asked = Box<dyn Fn(TrashId) -> Operation>;

const SETTINGS: fn() -> Settings = || Settings { purge_step_entries: 3, ..Settings::default() };

/// A small tree, a collection, an item of the trash with things in it.
async fn world() -> (Fixture, TrashId) {
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

/// Runs an operation, and all its pages under one id, until it is answered. Gives the last answer and how many askings
/// failed.
async fn run(catalogue: &Catalogue, f: &Fixture, id: OperationId, operation: &Operation) -> (Answer, usize) {
    let mut operation = operation.clone();
    let mut failures = 0;
    loop {
        match catalogue.execute(&f.alice, id, operation.clone()).await {
            Ok(answer) => match answer.next() {
                Some(cursor) => operation = operation.resumed(cursor.clone()).unwrap(),
                None => return (answer, failures),
            },
            Err(error) if matches!(error.kind, ErrorKind::Unknown | ErrorKind::Unavailable) => failures += 1,
            Err(error) => panic!("{operation:?}: {error:?}"),
        }
        assert!(failures < 3);
    }
}

/// What the changes after a revision did, but for the GUIDs and times made for them.
async fn done_since(f: &Fixture, after: Revision) -> Vec<String> {
    let page = f.store.changes(after, 10_000).await.unwrap();
    page.changes
        .into_iter()
        .map(|change| format!("{} {:?}", change.effect.name(), change.effect.at().map(|at| at.name.clone())))
        .collect()
}

#[tokio::test]
async fn every_operation_survives_every_lost_request() {
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
    let operations: Vec<(&str, Asked)> = vec![
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
        // Undisturbed.
        let (f, item) = world().await;
        let before = f.store.revision().await.unwrap();
        let id = OperationId([0x55; 16]);
        let (expected, _) = run(&f.catalogue, &f, id, &operation(item)).await;
        let done = done_since(&f, before).await;
        assert!(!done.is_empty(), "{name} did nothing");

        for fault in [Fault::AnswerLost, Fault::NotDone, Fault::NotDoneAndNotKnown] {
            for request in 0.. {
                let (f, item) = world().await;
                let before = f.store.revision().await.unwrap();
                let store =
                    Arc::new(Lossy { inner: f.store.clone(), fault: Mutex::new(Some((request, fault))) });
                let catalogue = Catalogue::open(store.clone(), f.clock.clone(), SETTINGS()).await.unwrap();
                let (answer, failures) = run(&catalogue, &f, id, &operation(item)).await;
                let what = format!("{name}: request {request}, {fault:?}");
                match (&answer, &expected) {
                    // How many entries ended is told once, to whoever hears it.
                    (Answer::Purged { .. }, Answer::Purged { .. }) => {}
                    _ => assert_eq!(answer, expected, "{what}"),
                }
                assert_eq!(done_since(&f, before).await, done, "{what}");
                f.audit().await;
                if failures == 0 {
                    assert!(store.fault.lock().is_some(), "{what}: the fault was not told");
                    assert!(request > 0, "{what}: nothing was asked of the store");
                    break;
                }
            }
        }
    }
}
