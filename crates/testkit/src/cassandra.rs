//! Stores on a ring that the environment names: `EXACAT_CASSANDRA=127.0.0.1,127.0.0.2`. Without it tests of it are skipped.
//!
//! Making tables takes seconds, so keyspaces are used again: emptied, once whatever used them before has ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use exacat_store::{Store, StoreStatus};
use exacat_store_cassandra::{
    CassandraSettings, CassandraStore, ClusterAccess, PeersAt, clear_schema, create_schema, drop_schema,
};
use parking_lot::Mutex;

use crate::clock::TestClock;
use crate::factory::{End, StoreFactory, UnderTest};

/// The ring's nodes, if there is one; otherwise says that a test is skipped.
pub fn ring() -> Option<String> {
    let hosts = std::env::var("EXACAT_CASSANDRA").ok().filter(|hosts| !hosts.is_empty());
    if hosts.is_none() {
        skipped();
    }
    hosts
}

/// One of a store's figures.
pub fn figure_of(status: &StoreStatus, name: &str) -> u64 {
    let found = status.figures.iter().find(|(figure, _)| figure == name);
    found.map(|(_, value)| *value).unwrap_or_else(|| panic!("no figure {name}"))
}

/// The same, as it is now.
pub async fn figure(store: &dyn Store, name: &str) -> u64 {
    figure_of(&store.status().await.expect("status"), name)
}

/// How one is let in by the ring, if it does not let everyone in: `EXACAT_CASSANDRA_SECURE` names the directory that `cluster/up.sh` wrote that to.
pub fn access() -> ClusterAccess {
    let directory = std::env::var_os("EXACAT_CASSANDRA_SECURE").filter(|directory| !directory.is_empty());
    let Some(directory) = directory.map(PathBuf::from) else { return ClusterAccess::default() };
    ClusterAccess {
        authorities: Some(directory.join("authority.pem")),
        certificate: Some((directory.join("client.pem"), directory.join("client.key"))),
        user: Some(("cassandra".to_owned(), directory.join("password"))),
    }
}

#[allow(clippy::print_stderr, reason = "a test that does nothing says so")]
fn skipped() {
    eprintln!("skipped: EXACAT_CASSANDRA names no ring (make test-cluster starts one)");
}

/// Rows an audit compares together: few, so that there are many partitions of what it sets aside.
const AUDIT_PARTITION_ROWS: u64 = 50;

/// A keyspace, and the stores that used it.
struct Used {
    settings: CassandraSettings,
    stores: Vec<Arc<CassandraStore>>,
}

/// Keyspaces that are free to be used again.
static FREE: Mutex<Vec<Used>> = Mutex::new(Vec::new());
static MADE: AtomicU64 = AtomicU64::new(0);

/// Cassandra stores, each in a keyspace that nobody else uses meanwhile.
#[derive(Clone, Debug)]
pub struct CassandraFactory {
    /// Nodes to begin with.
    pub hosts: String,
    /// Rows a server knows, about; few, so that it forgets often.
    pub rows_known: usize,
    /// Changes of one stretch of the log; few, so that there are many.
    pub stretch_changes: u64,
    /// Changes after which they are written to the tables.
    pub settle_changes: u64,
    /// Bytes of the filter of what is in the tables; 0 for none.
    pub filter_bytes: usize,
    /// Children of a directory that one partition should have; few, so that directories get more partitions.
    pub partition_rows: u64,
    /// How long the history is kept, in milliseconds; none for ever.
    pub history_kept_ms: Option<u64>,
    /// Rows an audit reads a second, at most; 0 for as many as it can.
    pub audit_rows_per_second: u64,
    /// Where its servers reach each other.
    pub peers: PeersAt,
}

impl CassandraFactory {
    /// On the ring of the environment; each server appends for itself, so that they get in each other's way.
    pub fn on(hosts: String) -> Self {
        CassandraFactory {
            hosts,
            rows_known: 100_000,
            stretch_changes: 500,
            settle_changes: 40,
            filter_bytes: 1 << 16,
            partition_rows: 15,
            history_kept_ms: None,
            audit_rows_per_second: 0,
            peers: PeersAt::Nowhere,
        }
    }

    /// Servers that hand their requests to one of them.
    pub fn together(hosts: String) -> Self {
        CassandraFactory { peers: PeersAt::Anywhere, ..Self::on(hosts) }
    }

    /// Servers that forget all the time, write to the tables all the time, and know nothing of what is not there; with many stretches and partitions.
    pub fn forgetful(hosts: String) -> Self {
        CassandraFactory {
            hosts,
            rows_known: 60,
            stretch_changes: 7,
            settle_changes: 3,
            filter_bytes: 0,
            partition_rows: 3,
            history_kept_ms: None,
            audit_rows_per_second: 0,
            peers: PeersAt::Nowhere,
        }
    }

    fn tune(&self, settings: &mut CassandraSettings) {
        settings.rows_known = self.rows_known;
        settings.stretch_changes = self.stretch_changes;
        settings.settle_changes = self.settle_changes;
        settings.filter_bytes = self.filter_bytes;
        settings.partition_rows = self.partition_rows;
        settings.history_kept_ms = self.history_kept_ms;
        settings.audit_rows_per_second = self.audit_rows_per_second;
        settings.audit_partition_rows = AUDIT_PARTITION_ROWS;
        settings.peers = self.peers;
    }

    async fn keyspace(&self) -> Used {
        let free = FREE.lock().pop();
        if let Some(mut used) = free {
            for store in used.stores.drain(..) {
                // It may have been cut off with the runtime of its test.
                let _ = store.close().await;
            }
            self.tune(&mut used.settings);
            if clear_schema(&used.settings).await.is_ok() {
                return used;
            }
            // It may still be emptied, late: another is made.
        }
        let number = MADE.fetch_add(1, Ordering::SeqCst);
        let keyspace = format!("exacat_test_{}_{number}", std::process::id());
        let mut settings = CassandraSettings::new(&self.hosts, &keyspace).expect("settings");
        self.tune(&mut settings);
        settings.access = access();
        let copies = self.hosts.split(',').count().min(3);
        let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}");
        // What a process of this number left some other day.
        drop_schema(&settings).await.expect("a keyspace is dropped");
        create_schema(&settings, &replication).await.expect("a keyspace is made");
        Used { settings, stores: Vec::new() }
    }
}

/// A catalogue on the ring, and the servers that have had it.
pub struct Servers {
    used: Option<Used>,
    store: Arc<CassandraStore>,
    clock: TestClock,
}

impl Servers {
    /// A new catalogue, with one server.
    pub async fn start(factory: &CassandraFactory, clock: &TestClock) -> Servers {
        let mut used = factory.keyspace().await;
        let store = CassandraStore::open(used.settings.clone(), clock.shared()).await.expect("a store opens");
        used.stores.push(store.clone());
        Servers { used: Some(used), store, clock: clock.clone() }
    }

    /// One more server of the same catalogue.
    pub async fn one_more(&mut self) -> Arc<CassandraStore> {
        let used = self.used.as_mut().expect("it is in use");
        let opened = CassandraStore::open(used.settings.clone(), self.clock.shared()).await;
        let store = opened.expect("a store opens on what others use");
        used.stores.push(store.clone());
        store
    }

    /// Ends all its servers.
    pub async fn end(&mut self) {
        for store in self.used.as_mut().expect("it is in use").stores.drain(..) {
            store.close().await.expect("a store closes");
        }
    }

    /// Keeps a server of it that was opened elsewhere, to see it ended before the keyspace is used again.
    pub fn keep(&mut self, store: Arc<CassandraStore>) {
        self.used.as_mut().expect("it is in use").stores.push(store);
    }

    /// Where the catalogue is.
    pub fn settings(&self) -> &CassandraSettings {
        &self.used.as_ref().expect("it is in use").settings
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        FREE.lock().extend(self.used.take());
    }
}

#[async_trait]
impl StoreFactory for CassandraFactory {
    async fn open(&self, clock: &TestClock) -> Box<dyn UnderTest> {
        Box::new(Servers::start(self, clock).await)
    }
}

#[async_trait]
impl UnderTest for Servers {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Ended without being closed, a server goes on in the background with what it was given: another takes over beside it.
    async fn reopen(&mut self, end: End) {
        if end == End::Close {
            self.store.close().await.expect("a store closes");
        }
        self.store = self.one_more().await;
    }
}
