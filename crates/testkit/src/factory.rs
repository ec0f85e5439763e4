//! Factories of stores: fresh, with a clock that a test can turn. A store that survives its process
//! can be opened again.

use std::sync::Arc;

use async_trait::async_trait;
use exacat_model::{Change, Revision};
use exacat_store::Store;
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};
use tempfile::TempDir;

use crate::clock::TestClock;
use crate::memory::MemoryStore;

/// End of a store before it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreEnd {
    /// Closed.
    Close,
    /// Dropped, as at the end of a process.
    Drop,
}

/// Makes stores of one kind.
#[async_trait]
pub trait StoreFactory: Send + Sync {
    /// Makes a fresh store.
    async fn open(&self, clock: &TestClock) -> Box<dyn UnderTest>;
}

/// A store under test, with its surroundings that keep it alive.
#[async_trait]
pub trait UnderTest: Send + Sync {
    /// Returns the store. A test drops it before it opens it again.
    fn store(&self) -> Arc<dyn Store>;

    /// Ends the store and opens it again on its data.
    async fn reopen(&mut self, end: StoreEnd);

    /// Says whether the fingerprints of requests survive [`reopen`](Self::reopen). Those of the
    /// memory store do not: it is replayed from its changes, which have none, and an unknown
    /// fingerprint differs from none.
    fn keeps_fingerprints(&self) -> bool {
        true
    }
}

/// Factory of memory stores. Only their changes survive: opened again, a store is replayed from
/// them (clause H3).
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFactory;

struct Memory {
    store: Arc<MemoryStore>,
    clock: TestClock,
}

#[async_trait]
impl StoreFactory for MemoryFactory {
    async fn open(&self, clock: &TestClock) -> Box<dyn UnderTest> {
        let store = Arc::new(MemoryStore::new(clock.shared()));
        Box::new(Memory { store, clock: clock.clone() })
    }
}

#[async_trait]
impl UnderTest for Memory {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn reopen(&mut self, end: StoreEnd) {
        let changes = self.store.history();
        if end == StoreEnd::Close {
            self.store.close().await.expect("a store closes");
        }
        let again = MemoryStore::replay(changes, self.clock.shared()).expect("changes can be replayed");
        self.store = Arc::new(again);
    }

    fn keeps_fingerprints(&self) -> bool {
        false
    }
}

/// Returns the whole history of a store.
pub async fn all_changes(store: &dyn Store) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let mut after = Revision(0);
    loop {
        let page = store.changes(after, 1000).await.expect("changes are read");
        if page.changes.is_empty() {
            return changes;
        }
        after = page.up_to;
        changes.extend(page.changes);
    }
}

/// Factory of embedded stores, each in a temporary directory of its own.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedFactory {
    /// Bytes of a log segment; few, so that there are many segments.
    pub segment_bytes: u64,
    /// Rows of a memtable; few, so that there are many sorted runs.
    pub memtable_rows: usize,
}

impl EmbeddedFactory {
    /// Segments and memtables so small that a short test has many of them.
    pub const SMALL: EmbeddedFactory = EmbeddedFactory { segment_bytes: 16 << 10, memtable_rows: 300 };

    /// Segments and memtables as small as a test of many thousands of changes allows.
    pub const LARGE: EmbeddedFactory = EmbeddedFactory { segment_bytes: 4 << 20, memtable_rows: 50_000 };
}

struct Embedded {
    /// None only while it is opened again.
    store: Option<Arc<EmbeddedStore>>,
    settings: EmbeddedSettings,
    clock: TestClock,
    /// Removed with the test.
    _directory: TempDir,
}

#[async_trait]
impl StoreFactory for EmbeddedFactory {
    async fn open(&self, clock: &TestClock) -> Box<dyn UnderTest> {
        let directory = TempDir::with_prefix("exacat-test-").expect("a temporary directory");
        let settings = EmbeddedSettings {
            segment_bytes: self.segment_bytes,
            memtable_rows: self.memtable_rows,
            ..EmbeddedSettings::at(directory.path())
        };
        let store = EmbeddedStore::open(settings.clone(), clock.shared()).expect("a store opens");
        Box::new(Embedded { store: Some(store), settings, clock: clock.clone(), _directory: directory })
    }
}

#[async_trait]
impl UnderTest for Embedded {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().expect("it is open")
    }

    async fn reopen(&mut self, end: StoreEnd) {
        let store = self.store.take().expect("it is open");
        if end == StoreEnd::Close {
            store.close().await.expect("a store closes");
        }
        let store = Arc::into_inner(store).expect("the test still holds the store it has opened again");
        drop(store);
        let again = EmbeddedStore::open(self.settings.clone(), self.clock.shared());
        self.store = Some(again.expect("a store opens on what it left"));
    }
}
