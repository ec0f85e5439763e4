//! A server for a test: over a memory store that can be made slow, to wait, or to panic.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use exacat_model::operation::{Existing, NewFile, UserSettings};
use exacat_model::{
    AccountName, Answer, Audit, Booking, Deletion, DeletionId, DirId, Entry, EntryId, Guid, Lfn, Name,
    Operation, Record, RecordKey, RecordKind, Result, Revision, SeNumber, TimeMs, TokenId, TrashId,
    TrashItem,
};
use exacat_server::{Limits, RunningServer, Server, ServerSettings, WorkerSettings};
use exacat_store::memory::MemoryStore;
use exacat_store::{
    Account, ApplyError, ChangePage, Clock, Due, Located, Outcome, Page, RecordEntry, Request, Store,
    StoreStatus, UsageOf, Walk,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::new_id;

/// A clock a test turns.
#[derive(Debug)]
pub struct TestClock(AtomicU64);

impl TestClock {
    pub fn turn(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> TimeMs {
        TimeMs(self.0.load(Ordering::SeqCst))
    }
}

/// What a test does to the store.
pub struct Hooks {
    /// Listings wait while this is true.
    pub hold_lists: watch::Sender<bool>,
    /// Following paths waits while this is true.
    pub hold_walks: watch::Sender<bool>,
    /// Mutations wait while this is true.
    pub hold_applies: watch::Sender<bool>,
    /// A page of a listing takes at least this long, of a processor.
    pub list_time: Mutex<Duration>,
    /// Following one of these paths panics.
    pub panics: Mutex<BTreeSet<Lfn>>,
    /// Pages listed.
    pub lists: AtomicU64,
    /// Listings that have begun.
    pub lists_begun: AtomicU64,
    /// Mutations that have come in.
    pub applies_begun: AtomicU64,
    /// Calls that followed paths.
    pub walks: AtomicU64,
    /// Closed.
    pub closed: AtomicU64,
}

pub struct HookedStore {
    inner: MemoryStore,
    pub hooks: Arc<Hooks>,
}

async fn pass(hold: &watch::Sender<bool>) {
    let _ = hold.subscribe().wait_for(|hold| !*hold).await;
}

#[async_trait]
impl Store for HookedStore {
    async fn apply(&self, request: Request) -> std::result::Result<Vec<Outcome>, ApplyError> {
        self.hooks.applies_begun.fetch_add(1, Ordering::SeqCst);
        pass(&self.hooks.hold_applies).await;
        self.inner.apply(request).await
    }

    async fn walk(&self, paths: &[Lfn]) -> Result<Vec<Walk>> {
        self.hooks.walks.fetch_add(1, Ordering::SeqCst);
        if paths.iter().any(|path| self.hooks.panics.lock().contains(path)) {
            panic!("a secret of the inside");
        }
        if *self.hooks.hold_walks.borrow() {
            pass(&self.hooks.hold_walks).await;
        }
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
        self.hooks.lists_begun.fetch_add(1, Ordering::SeqCst);
        pass(&self.hooks.hold_lists).await;
        let until = Instant::now() + *self.hooks.list_time.lock();
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        self.hooks.lists.fetch_add(1, Ordering::SeqCst);
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
        self.hooks.closed.fetch_add(1, Ordering::SeqCst);
        self.inner.close().await
    }
}

/// A server, its store's hooks and its clock.
pub struct World {
    pub server: RunningServer,
    pub hooks: Arc<Hooks>,
    pub clock: Arc<TestClock>,
    pub directory: Arc<tempfile::TempDir>,
}

/// 2026-11-21.
const START_MS: u64 = 1_795_219_200_000;

pub fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

pub fn account(text: &str) -> AccountName {
    AccountName::parse(text).unwrap()
}

impl World {
    pub async fn new() -> Self {
        World::with(|_| {}).await
    }

    pub async fn with_limits(set: impl FnOnce(&mut Limits)) -> Self {
        World::with(|settings| set(&mut settings.limits)).await
    }

    pub async fn with(set: impl FnOnce(&mut ServerSettings)) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let clock = Arc::new(TestClock(AtomicU64::new(START_MS)));
        let hooks = Arc::new(Hooks {
            hold_lists: watch::Sender::new(false),
            hold_walks: watch::Sender::new(false),
            hold_applies: watch::Sender::new(false),
            list_time: Mutex::new(Duration::ZERO),
            panics: Mutex::new(BTreeSet::new()),
            lists: AtomicU64::new(0),
            lists_begun: AtomicU64::new(0),
            applies_begun: AtomicU64::new(0),
            walks: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        });
        let mut settings = ServerSettings::new(directory.path().join("data"));
        settings.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        settings.workers = WorkerSettings { enabled: false, ..WorkerSettings::default() };
        set(&mut settings);
        let store = HookedStore {
            inner: MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>),
            hooks: Arc::clone(&hooks),
        };
        let server = Server::start_over(settings, Arc::new(store)).await.unwrap();
        World { server, hooks, clock, directory }
    }

    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Carries an operation out as the administrator, past the server.
    pub async fn admin(&self, operation: Operation) -> Answer {
        let catalogue = self.server.catalogue();
        let admin = catalogue.caller_named(&account("admin")).await.unwrap();
        catalogue.execute(&admin, new_id(), operation).await.unwrap()
    }

    /// A directory everybody may write into.
    pub async fn directory(&self, name: &str) -> Lfn {
        let lfn = lfn(name);
        let mode = Some(exacat_model::Mode::new(0o777).unwrap());
        self.admin(Operation::Mkdir { lfns: vec![lfn.clone()], parents: true, mode }).await;
        lfn
    }

    /// So many files `f000000` … below a directory.
    pub async fn files(&self, directory: &str, count: usize) -> Vec<Lfn> {
        let lfns: Vec<Lfn> = (0..count).map(|number| lfn(&format!("{directory}/f{number:06}"))).collect();
        for part in lfns.chunks(1000) {
            let files = part.iter().cloned().map(NewFile::named).collect();
            let register = Operation::Register { files, parents: true, existing: Existing::Refuse };
            match self.admin(register).await {
                Answer::Registered(outcomes) => {
                    assert!(outcomes.iter().all(std::result::Result::is_ok), "{outcomes:?}")
                }
                other => panic!("{other:?}"),
            }
        }
        lfns
    }

    /// A user, changed or made.
    pub async fn user(&self, name: &str, set: impl FnOnce(&mut UserSettings)) {
        let mut settings = UserSettings {
            name: account(name),
            group: None,
            groups: None,
            roles: None,
            may_become: None,
            subjects: None,
            home: None,
            disabled: None,
            only_new: false,
        };
        set(&mut settings);
        self.admin(Operation::UserSet(settings)).await;
    }

    /// A token of a user.
    pub async fn token(&self, user: &str, lifetime_seconds: u64) -> (TokenId, String) {
        let issue = Operation::TokenIssue {
            user: Some(account(user)),
            scope: Lfn::root(),
            write: true,
            lifetime_seconds,
            note: String::new(),
        };
        match self.admin(issue).await {
            Answer::TokenIssued { token, secret } => (token.id, secret),
            other => panic!("{other:?}"),
        }
    }

    /// A new user's token.
    pub async fn new_user(&self, name: &str) -> String {
        self.user(name, |_| {}).await;
        self.token(name, 3600).await.1
    }

    /// A figure of the server's status.
    pub async fn figure(&self, part: &str, name: &str) -> u64 {
        let mut client = crate::client::Client::admin(self).await;
        match client.call(Operation::Status).await.unwrap() {
            Answer::Status(parts) => parts
                .iter()
                .find(|have| have.part == part)
                .and_then(|part| part.figures.iter().find(|(have, _)| have == name))
                .map_or(0, |(_, value)| *value),
            other => panic!("{other:?}"),
        }
    }
}
