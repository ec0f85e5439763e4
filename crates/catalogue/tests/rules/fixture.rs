//! Fixture: a catalogue over a memory store with a manual clock, users, storage elements, some
//! directories, and short request helpers.
//!
//! Users: `admin` (role admin), `op` (role operator), `alice` and `carol` (both also in the group
//! `physics`), `bob`. Each has a group of its own name. Storage elements: 1 `X::CERN::DISK`, 2
//! `X::FNAL::DISK`, 3 `X::CERN::TAPE` (read-only), 4 `X::GONE::DISK` (offline). Directories:
//! `/alice`, `/bob`, `/carol` (each its owner's, 755), `/open` (admin's, 777).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_catalogue::{Caller, Catalogue, Settings};
use exacat_model::{
    AccountName, Answer, Cursor, Edit, Entry, EntryId, ErrorKind, Expect, ExpectRecord, File, Group, GroupId,
    Guid, Lfn, Location, Mode, Mutation, NewBody, NewEntry, OnTimeline, Operation, OperationId, Pfn, Record,
    Replica, ReplicaState, Result, Role, Se, SeName, SeNumber, SeStatus, SnapshotName, TrashId, User, UserId,
};
use exacat_model::{At, Checksums, DirId};
use exacat_store::{Clock, Outcome, Request, ResolutionEnd, Store};
use exacat_testkit::TestClock;
use exacat_testkit::memory::MemoryStore;

pub(crate) fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

pub(crate) fn lfns<const N: usize>(texts: [&str; N]) -> Vec<Lfn> {
    texts.into_iter().map(lfn).collect()
}

pub(crate) fn account(text: &str) -> AccountName {
    AccountName::parse(text).unwrap()
}

pub(crate) fn snapshot_name(text: &str) -> SnapshotName {
    SnapshotName::parse(text).unwrap()
}

pub(crate) fn se_name(text: &str) -> SeName {
    SeName::parse(text).unwrap()
}

/// Returns a GUID with this number in it.
pub(crate) fn guid(number: u64) -> Guid {
    let mut bytes = [0xaa; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Guid(bytes)
}

pub(crate) fn mode(bits: u16) -> Mode {
    Mode::new(bits).unwrap()
}

/// Returns a replica with the PFN that follows from its SE.
pub(crate) fn derived(se: u16, state: ReplicaState) -> Replica {
    Replica { se: SeNumber(se), state, location: Location::Derived }
}

/// Returns a replica at a PFN.
pub(crate) fn explicit(se: u16, pfn: &str) -> Replica {
    Replica {
        se: SeNumber(se),
        state: ReplicaState::Available,
        location: Location::Explicit(Pfn::parse(pfn).unwrap()),
    }
}

/// Names and numbers of the users, with their groups and roles.
const ACCOUNTS: [(&str, u32, &[u32], &[Role]); 4] = [
    ("alice", 1, &[10], &[]),
    ("bob", 2, &[], &[]),
    ("carol", 4, &[10], &[]),
    ("op", 3, &[], &[Role::Operator]),
];

pub(crate) struct Fixture {
    pub catalogue: Arc<Catalogue>,
    pub store: Arc<MemoryStore>,
    pub clock: TestClock,
    pub admin: Caller,
    pub op: Caller,
    pub alice: Caller,
    pub bob: Caller,
    pub carol: Caller,
    pub anonymous: Caller,
    numbers: AtomicU64,
}

fn user(name: &str, id: u32, groups: &[u32], roles: &[Role]) -> User {
    User {
        id: UserId(id),
        name: account(name),
        group: GroupId(id),
        groups: groups.iter().map(|group| GroupId(*group)).collect(),
        roles: roles.to_vec(),
        may_become: Vec::new(),
        subjects: Vec::new(),
        home: None,
        disabled: false,
    }
}

fn storage_element(number: u16, name: &str, status: SeStatus, prefix: &str, near: &[(&str, u32)]) -> Record {
    Record::Se(Se {
        number: SeNumber(number),
        name: se_name(name),
        prefix: prefix.to_owned(),
        qos: Vec::new(),
        status,
        distances: near.iter().map(|(site, distance)| (account(site), *distance)).collect(),
        https: String::new(),
    })
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        // A wait for changes must end soon in a test.
        Self::with(Settings { changes_wait_ms: 50, ..Settings::default() }).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let clock = TestClock::new();
        let store = Arc::new(MemoryStore::new(clock.shared()));
        let mut records = vec![Record::Group(Group { id: GroupId(10), name: account("physics") })];
        for (name, id, groups, roles) in ACCOUNTS {
            records.push(Record::Group(Group { id: GroupId(id), name: account(name) }));
            records.push(Record::User(user(name, id, groups, roles)));
        }
        records.push(storage_element(
            1,
            "X::CERN::DISK",
            SeStatus::Online,
            "root://cern//d",
            &[("CERN", 0), ("FNAL", 9)],
        ));
        records.push(storage_element(
            2,
            "X::FNAL::DISK",
            SeStatus::Online,
            "root://fnal//d",
            &[("CERN", 9), ("FNAL", 0)],
        ));
        records.push(storage_element(
            3,
            "X::CERN::TAPE",
            SeStatus::ReadOnly,
            "root://tape//d",
            &[("CERN", 1)],
        ));
        records.push(storage_element(
            4,
            "X::GONE::DISK",
            SeStatus::Offline,
            "root://gone//d",
            &[("CERN", 0)],
        ));
        let mutations = records
            .into_iter()
            .map(|record| Mutation::SetRecord { record: Box::new(record), expect: ExpectRecord::Absent })
            .collect();
        let request = Request::new(OperationId([0xff; 16]), UserId::ADMIN, mutations);
        for outcome in store.apply(request).await.unwrap() {
            assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        }
        let catalogue = Catalogue::open(store.clone(), clock.shared(), settings).await.unwrap();
        let caller = |name: &str| {
            let (name, id, groups, roles) =
                ACCOUNTS.into_iter().find(|(account, ..)| *account == name).unwrap();
            Caller::of(&user(name, id, groups, roles), Lfn::root(), true)
        };
        let fixture = Fixture {
            catalogue,
            admin: Caller::of(&user("admin", 0, &[], &[Role::Admin]), Lfn::root(), true),
            op: caller("op"),
            alice: caller("alice"),
            bob: caller("bob"),
            carol: caller("carol"),
            anonymous: Caller::anonymous(),
            store,
            clock,
            numbers: AtomicU64::new(1),
        };
        for (path, owner, bits) in
            [("/alice", 1, 0o755), ("/bob", 2, 0o755), ("/carol", 4, 0o755), ("/open", 0, 0o777)]
        {
            fixture.plant(path, owner, bits, NewBody::Directory).await;
        }
        fixture
    }

    /// Returns the same user with a token for a subtree only.
    pub(crate) fn scoped(&self, name: &str, scope: &str, write: bool) -> Caller {
        let (name, id, groups, roles) = ACCOUNTS.into_iter().find(|(account, ..)| *account == name).unwrap();
        Caller::of(&user(name, id, groups, roles), lfn(scope), write)
    }

    /// Returns a new number.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a new operation id.
    pub(crate) fn operation_id(&self) -> OperationId {
        // The first bytes hold the version and the variant of the id's form.
        let mut random = [0; 10];
        random[3..].copy_from_slice(&self.number().to_be_bytes()[1..]);
        OperationId::new(self.clock.now(), random)
    }

    /// Sends an operation under a new operation id.
    pub(crate) async fn ask(&self, caller: &Caller, operation: Operation) -> Result<Answer> {
        self.catalogue.execute(caller, self.operation_id(), operation).await
    }

    /// Sends an operation that must succeed.
    pub(crate) async fn get(&self, caller: &Caller, operation: Operation) -> Answer {
        let text = format!("{operation:?}");
        self.ask(caller, operation).await.unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    /// Sends an operation that must be refused; returns the kind of error.
    pub(crate) async fn refusal(&self, caller: &Caller, operation: Operation) -> ErrorKind {
        let text = format!("{operation:?}");
        match self.ask(caller, operation).await {
            Ok(answer) => panic!("{text}: {answer:?}"),
            Err(error) => error.kind,
        }
    }

    /// Sends an operation on one item; returns the item's result.
    pub(crate) async fn one(&self, caller: &Caller, operation: Operation) -> Result<()> {
        match self.ask(caller, operation).await? {
            Answer::EachDone(items) if items.len() == 1 => items.into_iter().next().unwrap(),
            answer => panic!("not one item: {answer:?}"),
        }
    }

    /// Applies mutations directly to the store, past all rules; all must be applied.
    pub(crate) async fn apply(&self, who: u32, mutations: Vec<Mutation>) -> Vec<Outcome> {
        let request = Request::new(self.operation_id(), UserId(who), mutations);
        let outcomes = self.store.apply(request).await.unwrap();
        for outcome in &outcomes {
            assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
        }
        outcomes
    }

    /// Makes an entry past all rules; its parent must exist. The group has the owner's number.
    pub(crate) async fn plant(&self, path: &str, owner: u32, bits: u16, body: NewBody) -> EntryId {
        let path = lfn(path);
        let parent = self.entry(path.parent().unwrap().as_str()).await.unwrap();
        let new = NewEntry {
            at: At { parent: parent.directory().unwrap(), name: path.file_name().unwrap() },
            owner: UserId(owner),
            group: GroupId(owner),
            mode: mode(bits),
            created: None,
            modified: None,
            expires: None,
            tags: Vec::new(),
            body,
        };
        match self.apply(owner, vec![Mutation::Create(Box::new(new))]).await.pop() {
            Some(Outcome::Applied { id: Some(id), .. }) => id,
            outcome => panic!("{outcome:?}"),
        }
    }

    /// Makes a directory past all rules.
    pub(crate) async fn plant_directory(&self, path: &str, owner: u32, bits: u16) -> DirId {
        match self.plant(path, owner, bits, NewBody::Directory).await {
            EntryId::Directory(id) => id,
            EntryId::Object(_) => unreachable!(),
        }
    }

    /// Makes a file past all rules.
    pub(crate) async fn plant_file(
        &self,
        path: &str,
        owner: u32,
        bits: u16,
        size: u64,
        replicas: Vec<Replica>,
    ) -> Guid {
        let guid = guid(self.number());
        let file = File { guid, size: Some(size), checksums: Checksums::none(), job: None, replicas };
        self.plant(path, owner, bits, NewBody::File(file)).await;
        guid
    }

    /// Edits an entry past all rules.
    pub(crate) async fn edit(&self, path: &str, edits: Vec<Edit>) {
        let at = self.entry(path).await.unwrap().at;
        self.apply(0, vec![Mutation::Update { at, expect: Expect::ANY, edits }]).await;
    }

    /// Returns the entry of a path, past all permissions; follows no links.
    pub(crate) async fn entry(&self, path: &str) -> Option<Entry> {
        match self.store.resolve(&[lfn(path)]).await.unwrap().pop().unwrap().end {
            ResolutionEnd::Found(entry) => Some(*entry),
            _ => None,
        }
    }

    /// True if the path has an entry, past all permissions.
    pub(crate) async fn is_there(&self, path: &str) -> bool {
        self.entry(path).await.is_some()
    }

    /// Checks that every index and counter is right.
    pub(crate) async fn audit(&self) {
        let audit = self.store.audit().await.unwrap();
        assert_eq!(audit.findings_total, 0, "{audit:?}");
    }

    /// Passes all pages of a long answer to `take`, each with at most `limit` items.
    pub(crate) async fn pages(&self, caller: &Caller, operation: Operation, mut take: impl FnMut(Answer)) {
        let mut next = Some(operation);
        let mut pages = 0;
        while let Some(operation) = next {
            let answer = self.get(caller, operation.clone()).await;
            next = answer.next().map(|cursor| operation.resumed(cursor.clone()).unwrap());
            take(answer);
            pages += 1;
            assert!(pages < 100_000, "the pages do not end");
        }
    }

    /// Returns the paths of a find, page by page.
    pub(crate) async fn found(
        &self,
        caller: &Caller,
        below: &str,
        filter: exacat_model::Filter,
        limit: u32,
    ) -> Vec<String> {
        let mut paths = Vec::new();
        let operation =
            Operation::Find { lfn: lfn(below), filter: Box::new(filter), cursor: Cursor::default(), limit };
        self.pages(caller, operation, |answer| match answer {
            Answer::Entries { items, .. } => {
                assert!(limit == 0 || items.len() <= limit as usize);
                paths.extend(items.into_iter().map(|stat| stat.lfn.to_string()));
            }
            answer => panic!("{answer:?}"),
        })
        .await;
        paths
    }

    /// Removes an entry, with everything below it.
    pub(crate) async fn remove(&self, caller: &Caller, path: &str) -> Result<OnTimeline<TrashId>> {
        let operation = Operation::Remove { lfn: lfn(path), recursive: true, directory: false };
        match self.ask(caller, operation).await? {
            Answer::Removed { id } => Ok(id),
            answer => panic!("{answer:?}"),
        }
    }
}

/// Applies changes of other users below the catalogue, if there are any. Each must succeed.
pub(crate) async fn apply_as_others(store: &dyn Store, mutations: Vec<Mutation>) {
    if mutations.is_empty() {
        return;
    }
    let request = Request::new(OperationId([0xee; 16]), UserId::ADMIN, mutations);
    for outcome in store.apply(request).await.unwrap() {
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }
}
