//! Every request an operation makes to the store loses its answer once: before it is done, or after. The client asks
//! again under the same operation id. In the end all is as if nothing had been lost: the same answer, the same
//! number of changes, every counter right.

use std::sync::Arc;

use crate::fixture::{Fixture, lfn, se_name};
use crate::operations::{Target, World, operation, outcome};
use async_trait::async_trait;
use exacat_catalogue::{Catalogue, Settings};
use exacat_model::operation::{Existing, NewFile, NewReplica};
use exacat_model::{
    Answer, Audit, Booking, Checksum, Checksums, Deletion, DeletionId, DirId, EntryId, ErrorKind, FileRef,
    Guid, Lfn, Name, Operation, Record, RecordKey, RecordKind, ReplicaState, Result, Revision, SeNumber, Tag,
    TagKey, TagValue, TimeMs, TrashId, TrashItem,
};
use exacat_store::memory::MemoryStore;
use exacat_store::{
    Account, ApplyError, ChangePage, Due, Located, Outcome, Page, RecordEntry, Request, Store, StoreStatus,
    UsageOf, Walk,
};
use parking_lot::Mutex;

const TARGET: Target = Target { directory_mode: 0o755, file_mode: 0o644 };

/// What happens to one of the requests to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It is done, and the answer is lost.
    Answer,
    /// It is not done, and nobody knows.
    Request,
}

/// A memory store that loses one answer.
struct LossyStore {
    inner: Arc<MemoryStore>,
    /// Requests until the loss, and what is lost then; none if nothing is to be lost any more.
    plan: Mutex<Option<(usize, Loss)>>,
    requests: Mutex<usize>,
}

#[async_trait]
impl Store for LossyStore {
    async fn apply(&self, request: Request) -> std::result::Result<Vec<Outcome>, ApplyError> {
        *self.requests.lock() += 1;
        let loss = {
            let mut plan = self.plan.lock();
            match plan.take() {
                Some((0, loss)) => Some(loss),
                Some((left, loss)) => {
                    *plan = Some((left - 1, loss));
                    None
                }
                None => None,
            }
        };
        let lost = || ApplyError::Unknown("lost by the test".to_owned());
        match loss {
            Some(Loss::Request) => Err(lost()),
            Some(Loss::Answer) => {
                self.inner.apply(request).await?;
                Err(lost())
            }
            None => self.inner.apply(request).await,
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
    ) -> Result<Option<Page<exacat_model::Entry>>> {
        self.inner.list(directory, after, limit).await
    }
    async fn usage(&self, of: &[UsageOf]) -> Result<Vec<Account>> {
        self.inner.usage(of).await
    }
    async fn replicas_on(
        &self,
        se: SeNumber,
        cursor: &[u8],
        limit: usize,
    ) -> Result<(Page<exacat_model::Entry>, Vec<u8>)> {
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

/// How often an operation is asked before it is given up: more than it has requests.
const ASKED_MAX: usize = 10;

struct Run {
    answer: Result<Answer>,
    changes: u64,
    requests: usize,
    /// How often it was asked.
    asked: usize,
}

/// Asks for one operation in a new world, with one loss on the way; again and again until the answer comes.
async fn run(make: &dyn Fn(&World) -> Operation, admin: bool, plan: Option<(usize, Loss)>) -> Run {
    let world = World::new(Fixture::new().await, TARGET).await;
    let f = &world.fixture;
    let asked_for = make(&world);
    let lossy =
        Arc::new(LossyStore { inner: f.store.clone(), plan: Mutex::new(plan), requests: Mutex::new(0) });
    let settings = Settings { changes_wait_ms: 50, ..Settings::default() };
    let catalogue = Catalogue::open(lossy.clone(), f.clock.clone(), settings).await.unwrap();
    let before = f.store.revision().await.unwrap();
    let caller = if admin { &f.admin } else { &f.alice };
    let id = f.operation_id();
    let mut asked = 0;
    let answer = loop {
        asked += 1;
        let answer = catalogue.execute(caller, id, asked_for.clone()).await;
        match &answer {
            Err(error) if error.kind == ErrorKind::Unknown => {
                assert!(asked < ASKED_MAX, "{asked_for:?}: {error}")
            }
            _ => break answer,
        }
    };
    f.audit().await;
    let changes = f.store.revision().await.unwrap().0 - before.0;
    let requests = *lossy.requests.lock();
    Run { answer, changes, requests, asked }
}

/// Asks without loss, then with each loss there can be.
async fn lose_everything(name: &str, make: &dyn Fn(&World) -> Operation, admin: bool) -> usize {
    let whole = run(make, admin, None).await;
    assert!(outcome_of_all(&whole.answer).starts_with("ok"), "{name}: {:?}", whole.answer);
    let mut losses = 0;
    for place in 0..whole.requests {
        for loss in [Loss::Answer, Loss::Request] {
            let broken = run(make, admin, Some((place, loss))).await;
            let what = format!("{name}, {loss:?} of request {place}");
            assert!(broken.asked > 1 || broken.requests > whole.requests, "{what}: nothing was lost");
            losses += 1;
            assert_eq!(outcome_of_all(&broken.answer), outcome_of_all(&whole.answer), "{what}");
            // A token whose secret was lost gets another: one change more.
            let more = u64::from(name == "token-issue" && loss == Loss::Answer);
            assert_eq!(broken.changes, whole.changes + more, "{what}");
        }
    }
    losses
}

/// What came of it; of many files, of each.
fn outcome_of_all(answer: &Result<Answer>) -> String {
    match answer {
        Ok(Answer::Registered(items)) => {
            let word = |item: &Result<exacat_model::operation::Registered>| match item {
                Ok(registered) => format!("{registered:?}").split('(').next().unwrap().to_owned(),
                Err(error) => error.kind.name().to_owned(),
            };
            format!("ok {}", items.iter().map(word).collect::<Vec<_>>().join(" "))
        }
        // What a purge ended is counted once; a repeat finds it ended.
        Ok(Answer::Purged { next, .. }) => format!("ok {next:?}"),
        Ok(Answer::CollectionEdited { refused, .. }) => format!("ok {refused:?}"),
        other => outcome(other),
    }
}

#[tokio::test]
async fn every_write_survives_every_loss() {
    let mut losses = 0;
    for name in Operation::NAMES {
        let world = World::new(Fixture::new().await, TARGET).await;
        if !operation(&world, name).writes() {
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
        losses += lose_everything(name, &|world| operation(world, name), admin).await;
    }
    assert!(losses > 50, "{losses}");
}

#[tokio::test]
async fn registering_with_parents_members_and_merges_survives_every_loss() {
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
    let whole = run(&make, false, None).await;
    assert_eq!(
        outcome_of_all(&whole.answer),
        "ok Created Merged Merged conflict Created Merged Merged denied Unchanged"
    );
    assert!(lose_everything("register", &make, false).await >= 10);
}

/// A step of a worker that is cut off does what it did; the next one does the rest.
#[tokio::test]
async fn steps_of_workers_survive_every_loss() {
    for loss in [Loss::Answer, Loss::Request] {
        let settings = || Settings { trash_seconds: Some(1), booking_seconds: 10, ..Settings::default() };
        let f = Fixture::with(settings()).await;
        for number in 0..3 {
            f.get(
                &f.alice,
                crate::operations::book(lfn(&format!("/alice/{number}")), 10, &["X::CERN::DISK"]),
            )
            .await;
        }
        f.plant_file("/alice/file", 1, 0o644, 10, vec![]).await;
        f.edit("/alice/file", vec![exacat_model::Edit::Expires(Some(TimeMs(1)))]).await;
        f.clock.advance_ms(20_000);
        let inner = f.store.clone();
        let lossy = Arc::new(LossyStore { inner, plan: Mutex::new(None), requests: Mutex::new(0) });
        let catalogue = Catalogue::open(lossy.clone(), f.clock.clone(), settings()).await.unwrap();
        let before = f.store.revision().await.unwrap().0;
        *lossy.plan.lock() = Some((0, loss));
        assert_eq!(catalogue.expired_bookings_step().await.unwrap_err().kind, ErrorKind::Unknown);
        catalogue.expired_bookings_step().await.unwrap();
        *lossy.plan.lock() = Some((0, loss));
        assert_eq!(catalogue.expired_entries_step().await.unwrap_err().kind, ErrorKind::Unknown);
        catalogue.expired_entries_step().await.unwrap();
        f.clock.advance_ms(2_000);
        *lossy.plan.lock() = Some((0, loss));
        assert_eq!(catalogue.trash_purge_step().await.unwrap_err().kind, ErrorKind::Unknown);
        catalogue.trash_purge_step().await.unwrap();
        // Three bookings released, one file removed, and purged: each once.
        assert_eq!(f.store.revision().await.unwrap().0, before + 5, "{loss:?}");
        f.audit().await;
    }
}
