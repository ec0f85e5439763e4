//! The check of a catalogue in use: it reports real faults, and none for changes during the check.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use exacat_catalogue::{Catalogue, Settings};
use exacat_model::{
    Answer, At, Audit, Checksums, Deletion, DeletionId, DirId, Edit, Entry, Expect, ExpectRecord, File,
    GroupId, Location, Mode, Mutation, Name, NewBody, NewEntry, Operation, Record, RecordKey, RecordKind,
    ReplicaState, Result, Revision, SeNumber, TimeMs, User, UserId,
};
use exacat_store::{Page, RecordEntry, Store};
use exacat_testkit::{Before, Fronted};
use parking_lot::Mutex;

use crate::fixture::{Fixture, account, apply_as_others, derived, guid};

/// The moment of the changes: once such a page was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Listing(DirId),
    Deletions,
    /// The third page that ends with this user, because the registry is read when the catalogue is
    /// opened and when the check starts. Then pages of users have one each.
    User(UserId),
}

/// Changes of other users during the check.
struct Meanwhile {
    after: After,
    mutations: Mutex<Vec<Mutation>>,
    reached: AtomicUsize,
}

impl Meanwhile {
    async fn reached(&self, after: After, store: &dyn Store) {
        let reached_before = match after == self.after {
            true => self.reached.fetch_add(1, Ordering::Relaxed),
            false => return,
        };
        if reached_before != if matches!(after, After::User(_)) { 2 } else { 0 } {
            return;
        }
        let mutations = std::mem::take(&mut *self.mutations.lock());
        apply_as_others(store, mutations).await;
    }
}

#[async_trait]
impl Before for Meanwhile {
    async fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
        store: &dyn Store,
    ) -> Result<Option<Page<Entry>>> {
        let page = store.list(directory, after, limit).await;
        self.reached(After::Listing(directory), store).await;
        page
    }

    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
        store: &dyn Store,
    ) -> Result<Page<Deletion>> {
        let page = store.deletions(se, after, limit).await;
        self.reached(After::Deletions, store).await;
        page
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
        store: &dyn Store,
    ) -> Result<Page<RecordEntry>> {
        let one_each = kind == RecordKind::User && matches!(self.after, After::User(_));
        let page = store.records(kind, after, if one_each { 1 } else { limit }).await?;
        if let (true, Some(RecordKey::User(last))) = (one_each, page.items.last().map(|item| item.key)) {
            self.reached(After::User(last), store).await;
        }
        Ok(page)
    }
}

/// Checks the fixture's catalogue with `before` in front of its store.
async fn checked(f: &Fixture, before: impl Before) -> Audit {
    let store = Arc::new(Fronted::new(before, f.store.clone()));
    let catalogue = Catalogue::open(store, f.clock.shared(), Settings::default()).await.unwrap();
    match catalogue.execute(&f.op, f.operation_id(), Operation::Fsck).await.unwrap() {
        Answer::Fsck(audit) => audit,
        answer => panic!("{answer:?}"),
    }
}

/// Checks the catalogue while other users change it.
async fn checked_while(f: &Fixture, after: After, mutations: Vec<Mutation>) -> Audit {
    checked(f, Meanwhile { after, mutations: Mutex::new(mutations), reached: AtomicUsize::new(0) }).await
}

fn found(audit: &Audit) -> Vec<&str> {
    audit.findings.iter().map(|finding| finding.what.as_str()).collect()
}

fn set(record: Record) -> Mutation {
    Mutation::SetRecord { record: Box::new(record), expect: ExpectRecord::Any }
}

/// Makes a file of accounts that may be missing, which no rule allows.
fn file(parent: DirId, number: u64, owner: u32) -> Mutation {
    let file = File {
        guid: guid(number),
        size: None,
        checksums: Checksums::none(),
        job: None,
        replicas: Vec::new(),
    };
    Mutation::Create(Box::new(NewEntry {
        at: At { parent, name: Name::parse(&format!("{number:05}")).unwrap() },
        owner: UserId(owner),
        group: GroupId(1),
        mode: Mode::FILE,
        created: None,
        modified: None,
        expires: None,
        tags: Vec::new(),
        body: NewBody::File(file),
    }))
}

fn user(id: u32, name: &str, subjects: &[&str]) -> Record {
    Record::User(User {
        id: UserId(id),
        name: account(name),
        group: GroupId(1),
        groups: Vec::new(),
        roles: Vec::new(),
        may_become: Vec::new(),
        subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(),
        home: None,
        disabled: false,
    })
}

/// Goal: an account made during the check is known, however many entries refer to it.
#[tokio::test]
async fn accounts_made_meanwhile_are_known() {
    let f = Fixture::new().await;
    let later = f.plant_directory("/later", 1, 0o755).await;
    let files = (0..150).map(|number| file(DirId::ROOT, 5000 + number, 999));
    f.apply(0, files.chain([file(later, 6000, 77)]).collect()).await;
    let audit = checked_while(&f, After::Listing(later), vec![set(user(77, "new", &[]))]).await;
    assert_eq!(audit.findings_total, 150, "{:?}", audit.findings.last());
    assert!(audit.findings.iter().all(|finding| finding.detail.contains("999")), "{audit:?}");
}

/// Goal: a fault corrected since it was read is not reported.
#[tokio::test]
async fn what_is_put_right_meanwhile_is_not_wrong() {
    let f = Fixture::new().await;
    f.apply(0, vec![file(DirId::ROOT, 5000, 77)]).await;
    assert_eq!(found(&checked_while(&f, After::Deletions, Vec::new()).await), ["owner"]);
    let at = f.entry("/05000").await.unwrap().at;
    let edits = vec![Edit::Owner(UserId(1))];
    let given = Mutation::Update { at, expect: Expect::ANY, edits };
    let audit = checked_while(&f, After::Listing(DirId::ROOT), vec![given]).await;
    assert_eq!(audit.findings_total, 0, "{audit:?}");
}

/// Goal: a deletion is no fault if it left the queue because its copy was registered again.
#[tokio::test]
async fn a_copy_registered_again_meanwhile_is_not_wrong() {
    let f = Fixture::new().await;
    let replica = derived(1, ReplicaState::Available);
    f.plant_file("/alice/file", 1, 0o644, 10, vec![replica.clone()]).await;
    f.edit("/alice/file", vec![Edit::DropReplica { se: SeNumber(1), delete: true }]).await;
    let at = f.entry("/alice/file").await.unwrap().at;
    let edits = vec![Edit::PutReplica(replica)];
    let registered = Mutation::Update { at, expect: Expect::ANY, edits };
    let audit = checked_while(&f, After::Deletions, vec![registered]).await;
    assert_eq!(audit.findings_total, 0, "{audit:?}");
    assert!(audit.checked.contains(&("deletions".to_owned(), 1)), "{audit:?}");
}

/// A store with a wrong deletion in its queue.
struct Misled(Deletion);

#[async_trait]
impl Before for Misled {
    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
        store: &dyn Store,
    ) -> Result<Page<Deletion>> {
        if se != SeNumber(1) || after >= Some(self.0.id) {
            return store.deletions(se, after, limit).await;
        }
        Ok(Page { items: vec![self.0.clone()], more: true })
    }
}

#[tokio::test]
async fn a_copy_in_use_that_waits_for_deletion_is_found() {
    let f = Fixture::new().await;
    let replicas = vec![derived(1, ReplicaState::Available)];
    let guid = f.plant_file("/alice/file", 1, 0o644, 10, replicas).await;
    for id in
        [(7, 0), (7, 3), (0, 0)].map(|(revision, index)| DeletionId { revision: Revision(revision), index })
    {
        let location = Location::Derived;
        let misled = Misled(Deletion { id, guid, size: None, location, queued: TimeMs(0) });
        assert_eq!(found(&checked(&f, misled).await), ["deletion"], "{id:?}");
    }
}

/// Goal: a subject that moves from one user to another during the check is not reported as doubled.
/// It belongs to one user at any time, though the check sees it with two.
#[tokio::test]
async fn a_subject_that_moves_meanwhile_is_not_doubled() {
    let f = Fixture::new().await;
    let users = |subjects: [&[&str]; 2]| {
        vec![set(user(61, "sixty-one", subjects[0])), set(user(62, "sixty-two", subjects[1]))]
    };
    f.apply(0, users([&["/CN=x"], &[]])).await;
    let moved = users([&[], &["/CN=x"]]);
    let audit = checked_while(&f, After::User(UserId(61)), moved).await;
    assert_eq!(audit.findings_total, 0, "{audit:?}");
    f.apply(0, vec![set(user(61, "sixty-one", &["/CN=x"]))]).await;
    assert_eq!(found(&checked_while(&f, After::Listing(DirId::ROOT), Vec::new()).await), ["subject"]);
}
