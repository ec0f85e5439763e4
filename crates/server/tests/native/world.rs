//! Server for a test, over a memory store that can be made slow, to wait, or to panic.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use exacat_model::limits::TAG_TEXT_BYTES_MAX;
use exacat_model::operation::{Existing, NewFile, UserSettings};
use exacat_model::{
    AccountName, Answer, DirId, Entry, Lfn, Name, Operation, Result, Tag, TagKey, TagValue, TokenId,
};
use exacat_server::{Limits, RunningServer, Server, ServerSettings, WorkerSettings};
use exacat_store::{ApplyError, Outcome, Page, Request, Resolution, Store, SystemClock};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};
use exacat_testkit::memory::MemoryStore;
use exacat_testkit::{Before, Fronted, TestClock, settings};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::new_id;

/// Controls of the store, for tests.
pub(crate) struct Hooks {
    /// Listings wait while this is true.
    pub hold_lists: watch::Sender<bool>,
    /// Listings that pass before all further ones wait.
    pub lists_until_held: AtomicU64,
    /// Path resolution waits while this is true.
    pub hold_walks: watch::Sender<bool>,
    /// Mutations wait while this is true.
    pub hold_applies: watch::Sender<bool>,
    /// Least processor time of a page of a listing.
    pub list_time: Mutex<Duration>,
    /// Paths whose resolution panics.
    pub panics: Mutex<BTreeSet<Lfn>>,
    /// Pages listed.
    pub lists: AtomicU64,
    /// Listings that have started.
    pub lists_begun: AtomicU64,
    /// Mutations that have arrived.
    pub applies_begun: AtomicU64,
    /// Calls that resolved paths.
    pub resolutions: AtomicU64,
    /// Times that the store was closed.
    pub closed: AtomicU64,
}

async fn pass(hold: &watch::Sender<bool>) {
    let _ = hold.subscribe().wait_for(|hold| !*hold).await;
}

/// The hooks in front of the store.
struct Hooked(Arc<Hooks>);

#[async_trait]
impl Before for Hooked {
    async fn apply(
        &self,
        request: Request,
        store: &dyn Store,
    ) -> std::result::Result<Vec<Outcome>, ApplyError> {
        self.0.applies_begun.fetch_add(1, Ordering::SeqCst);
        pass(&self.0.hold_applies).await;
        store.apply(request).await
    }

    async fn apply_each(
        &self,
        requests: Vec<Request>,
        store: &dyn Store,
    ) -> Vec<std::result::Result<Vec<Outcome>, ApplyError>> {
        self.0.applies_begun.fetch_add(requests.len() as u64, Ordering::SeqCst);
        pass(&self.0.hold_applies).await;
        store.apply_each(requests).await
    }

    async fn resolve(&self, paths: &[Lfn], store: &dyn Store) -> Result<Vec<Resolution>> {
        self.0.resolutions.fetch_add(1, Ordering::SeqCst);
        if paths.iter().any(|path| self.0.panics.lock().contains(path)) {
            panic!("a secret of the inside");
        }
        if *self.0.hold_walks.borrow() {
            pass(&self.0.hold_walks).await;
        }
        store.resolve(paths).await
    }

    async fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
        store: &dyn Store,
    ) -> Result<Option<Page<Entry>>> {
        if self.0.lists_begun.fetch_add(1, Ordering::SeqCst) >= self.0.lists_until_held.load(Ordering::SeqCst)
        {
            self.0.hold_lists.send_if_modified(|hold| !std::mem::replace(hold, true));
        }
        pass(&self.0.hold_lists).await;
        let until = Instant::now() + *self.0.list_time.lock();
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        self.0.lists.fetch_add(1, Ordering::SeqCst);
        store.list(directory, after, limit).await
    }

    async fn close(&self, store: &dyn Store) -> Result<()> {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
        store.close().await
    }
}

/// A server, its store's hooks and its clock.
pub(crate) struct World {
    pub server: RunningServer,
    pub hooks: Arc<Hooks>,
    pub clock: TestClock,
    pub directory: Arc<tempfile::TempDir>,
    #[allow(dead_code, reason = "the tests of other protocols start it again")]
    settings: ServerSettings,
    #[allow(dead_code, reason = "the tests of other protocols start it again")]
    store: Arc<MemoryStore>,
    _let_go: LetGo,
}

/// Releases all held calls when a test ends or fails, because the runtime waits for them.
pub(crate) struct LetGo(Arc<Hooks>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.lists_until_held.store(u64::MAX, Ordering::SeqCst);
        for hold in [&self.0.hold_lists, &self.0.hold_walks, &self.0.hold_applies] {
            hold.send_replace(false);
        }
    }
}

pub(crate) fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

pub(crate) fn account(text: &str) -> AccountName {
    AccountName::parse(text).unwrap()
}

impl World {
    pub(crate) async fn new() -> Self {
        World::with(|_| {}).await
    }

    pub(crate) async fn with_limits(set: impl FnOnce(&mut Limits)) -> Self {
        World::with(|settings| set(&mut settings.limits)).await
    }

    /// Starts a server over an embedded store, which the hooks are not in front of.
    #[allow(dead_code, reason = "only some protocols ask for past states")]
    pub(crate) async fn embedded() -> Self {
        World::over(
            |_| {},
            |settings, _| {
                let place = EmbeddedSettings::at(settings.directory.with_file_name("embedded"));
                EmbeddedStore::open(place, Arc::new(SystemClock)).unwrap()
            },
        )
        .await
    }

    pub(crate) async fn with(set: impl FnOnce(&mut ServerSettings)) -> Self {
        World::over(set, |_, fronted| fronted).await
    }

    /// Starts a server over a store that is made from its settings and the hooked one.
    async fn over(
        set: impl FnOnce(&mut ServerSettings),
        choose: impl FnOnce(&ServerSettings, Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let clock = TestClock::new();
        let hooks = Arc::new(Hooks {
            hold_lists: watch::Sender::new(false),
            lists_until_held: AtomicU64::new(u64::MAX),
            hold_walks: watch::Sender::new(false),
            hold_applies: watch::Sender::new(false),
            list_time: Mutex::new(Duration::ZERO),
            panics: Mutex::new(BTreeSet::new()),
            lists: AtomicU64::new(0),
            lists_begun: AtomicU64::new(0),
            applies_begun: AtomicU64::new(0),
            resolutions: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        });
        let mut settings = ServerSettings::new(directory.path().join("data"));
        settings.clock = clock.shared();
        settings.workers = WorkerSettings { enabled: false, ..WorkerSettings::default() };
        if let Some(http) = &mut settings.http {
            http.plain = vec!["127.0.0.0/8".parse().unwrap()];
        }
        set(&mut settings);
        let store = Arc::new(MemoryStore::new(clock.shared()));
        let fronted = Fronted::new(Hooked(Arc::clone(&hooks)), store.clone());
        let chosen = choose(&settings, Arc::new(fronted));
        let server = Server::start_over(settings.clone(), chosen).await.unwrap();
        let let_go = LetGo(Arc::clone(&hooks));
        World { server, hooks, clock, directory, settings, store, _let_go: let_go }
    }

    /// Restarts with the same catalogue and data directory: the new server lacks the first one's
    /// memory.
    #[allow(dead_code, reason = "the tests of other protocols start it again")]
    pub(crate) async fn restarted(self) -> Self {
        let World { server, hooks, clock, directory, settings, store, _let_go } = self;
        server.shutdown();
        server.wait().await.unwrap();
        let store = Arc::new(MemoryStore::replay(store.history(), clock.shared()).unwrap());
        let fronted = Fronted::new(Hooked(Arc::clone(&hooks)), store.clone());
        let server = Server::start_over(settings.clone(), Arc::new(fronted)).await.unwrap();
        World { server, hooks, clock, directory, settings, store, _let_go }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Runs an operation as the administrator, past the server.
    pub(crate) async fn admin(&self, operation: Operation) -> Answer {
        let catalogue = self.server.catalogue();
        let admin = catalogue.caller_named(&account("admin")).await.unwrap();
        catalogue.execute(&admin, new_id(), operation).await.unwrap()
    }

    /// Makes a directory that everybody may write into.
    pub(crate) async fn directory(&self, name: &str) -> Lfn {
        let lfn = lfn(name);
        let mode = Some(exacat_model::Mode::new(0o777).unwrap());
        self.admin(Operation::Mkdir { lfns: vec![lfn.clone()], parents: true, mode }).await;
        lfn
    }

    /// Makes `count` files `f000000` … below a directory.
    pub(crate) async fn files(&self, directory: &str, count: usize) -> Vec<Lfn> {
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

    /// Makes such files, each with tags of about 900 KiB.
    pub(crate) async fn large_files(&self, directory: &str, count: usize) -> Vec<Lfn> {
        let lfns = self.files(directory, count).await;
        let tag = |number| Tag {
            key: TagKey::parse(&format!("k{number}")).unwrap(),
            value: TagValue::Text("v".repeat(TAG_TEXT_BYTES_MAX)),
        };
        let set: Vec<Tag> = (0..112).map(tag).collect();
        for some in lfns.chunks(4) {
            let tag = Operation::TagSet { lfns: some.to_vec(), set: set.clone(), unset: Vec::new() };
            match self.admin(tag).await {
                Answer::EachDone(done) => assert!(done.iter().all(std::result::Result::is_ok), "{done:?}"),
                other => panic!("{other:?}"),
            }
        }
        lfns
    }

    /// Makes or changes a user.
    pub(crate) async fn user(&self, name: &str, set: impl FnOnce(&mut UserSettings)) {
        let mut settings = settings::user(name);
        set(&mut settings);
        self.admin(Operation::UserSet(Box::new(settings))).await;
    }

    /// Issues a token of a user.
    pub(crate) async fn token(&self, user: &str, lifetime_seconds: u64) -> (TokenId, String) {
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

    /// Makes a new user, and returns its token.
    pub(crate) async fn new_user(&self, name: &str) -> String {
        self.user(name, |_| {}).await;
        self.token(name, 3600).await.1
    }

    /// Returns a metric from the server's status.
    pub(crate) async fn figure(&self, part: &str, name: &str) -> u64 {
        let mut client = crate::client::Client::admin(self).await;
        match client.call(Operation::Status).await.unwrap() {
            Answer::Status(parts) => parts
                .iter()
                .find(|have| have.part == part)
                .and_then(|part| part.metrics.iter().find(|(have, _)| have == name))
                .map_or(0, |(_, value)| *value),
            other => panic!("{other:?}"),
        }
    }
}
