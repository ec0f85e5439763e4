//! Stores on a ring that the environment names: `EXACAT_CASSANDRA=127.0.0.1,127.0.0.2`. Their tests
//! are ignored unless they are asked for, as `make test-cluster` does.
//!
//! Making tables takes seconds, so keyspaces are used again: emptied, once their last users have
//! ended.

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
use crate::factory::{StoreEnd, StoreFactory, UnderTest};
use crate::waiting::eventually;

/// Returns the ring's nodes.
pub fn ring() -> String {
    let hosts = std::env::var("EXACAT_CASSANDRA").ok().filter(|hosts| !hosts.is_empty());
    hosts.expect("EXACAT_CASSANDRA names a ring: make test-cluster starts one")
}

/// Returns one of a store's metrics.
pub fn figure_of(status: &StoreStatus, name: &str) -> u64 {
    status.named_one(name).unwrap_or_else(|| panic!("no figure {name}"))
}

/// Returns the present value of a metric.
pub async fn figure(store: &dyn Store, name: &str) -> u64 {
    figure_of(&store.status().await.expect("status"), name)
}

/// Waits until an answered server sends no statements any more: flushes go on after an answer.
pub async fn at_rest(store: &CassandraStore) {
    eventually("a server to come to rest", || store.is_at_rest()).await;
}

/// Returns the credentials of a ring with access control: `EXACAT_CASSANDRA_SECURE` names the
/// directory to which `cluster/up.sh` wrote them.
pub fn access() -> ClusterAccess {
    let directory = std::env::var_os("EXACAT_CASSANDRA_SECURE").filter(|directory| !directory.is_empty());
    let Some(directory) = directory.map(PathBuf::from) else { return ClusterAccess::default() };
    ClusterAccess {
        authorities: Some(directory.join("authority.pem")),
        certificate: Some((directory.join("client.pem"), directory.join("client.key"))),
        user: Some(("cassandra".to_owned(), directory.join("password"))),
    }
}

/// Rows an audit compares together: few, so that its spill has many partitions.
const AUDIT_PARTITION_ROWS: u64 = 50;

/// A keyspace, and the stores that used it.
struct Used {
    settings: CassandraSettings,
    stores: Vec<Arc<CassandraStore>>,
}

/// Keyspaces that are free to be used again.
static FREE: Mutex<Vec<Used>> = Mutex::new(Vec::new());
static MADE: AtomicU64 = AtomicU64::new(0);

/// Factory of Cassandra stores, each in a keyspace that no other test uses meanwhile.
#[derive(Clone, Debug)]
pub struct CassandraFactory {
    /// Contact nodes.
    pub hosts: String,
    /// Approximate rows in a server's cache; few, so that it evicts often.
    pub cache_rows: usize,
    /// Changes of one log segment; few, so that there are many.
    pub segment_changes: u64,
    /// Changes after which a server flushes.
    pub flush_changes: u64,
    /// Bytes of the filter of existing keys; 0 for none.
    pub filter_bytes: usize,
    /// Children of a directory per partition; few, so that directories get more partitions.
    pub partition_rows: u64,
    /// Time that the history is kept, in milliseconds; none for ever.
    pub history_kept_ms: Option<u64>,
    /// Rows an audit reads a second at most; 0 for no limit.
    pub audit_rows_per_second: u64,
    /// Addresses where its servers reach each other.
    pub peers: PeersAt,
}

impl CassandraFactory {
    /// Makes a factory on the ring of the environment. Each server appends for itself, so that they
    /// contend.
    pub fn on(hosts: String) -> Self {
        CassandraFactory {
            hosts,
            cache_rows: 100_000,
            segment_changes: 500,
            flush_changes: 40,
            filter_bytes: 1 << 16,
            partition_rows: 15,
            history_kept_ms: None,
            audit_rows_per_second: 0,
            peers: PeersAt::Nowhere,
        }
    }

    /// Makes a factory of servers that forward their requests to one of them.
    pub fn together(hosts: String) -> Self {
        CassandraFactory { peers: PeersAt::Anywhere, ..Self::on(hosts) }
    }

    /// Makes a factory of servers that evict and flush all the time, without a filter, with many
    /// log segments and partitions.
    pub fn forgetful(hosts: String) -> Self {
        CassandraFactory {
            hosts,
            cache_rows: 60,
            segment_changes: 7,
            flush_changes: 3,
            filter_bytes: 0,
            partition_rows: 3,
            history_kept_ms: None,
            audit_rows_per_second: 0,
            peers: PeersAt::Nowhere,
        }
    }

    fn tune(&self, settings: &mut CassandraSettings) {
        settings.cache_rows = self.cache_rows;
        settings.segment_changes = self.segment_changes;
        settings.flush_changes = self.flush_changes;
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
            // A truncation may still take effect late: make another keyspace.
        }
        let number = MADE.fetch_add(1, Ordering::SeqCst);
        let keyspace = format!("exacat_test_{}_{number}", std::process::id());
        let mut settings = CassandraSettings::new(&self.hosts, &keyspace).expect("settings");
        self.tune(&mut settings);
        settings.access = access();
        let copies = self.hosts.split(',').count().min(3);
        let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}");
        // Left by an earlier process of this number.
        drop_schema(&settings).await.expect("a keyspace is dropped");
        create_schema(&settings, &replication).await.expect("a keyspace is made");
        Used { settings, stores: Vec::new() }
    }
}

/// A catalogue on the ring, and all servers of it so far.
pub struct Servers {
    used: Option<Used>,
    store: Arc<CassandraStore>,
    clock: TestClock,
}

impl Servers {
    /// Makes a new catalogue, with one server.
    pub async fn start(factory: &CassandraFactory, clock: &TestClock) -> Servers {
        let mut used = factory.keyspace().await;
        let store = CassandraStore::open(used.settings.clone(), clock.shared()).await.expect("a store opens");
        used.stores.push(store.clone());
        Servers { used: Some(used), store, clock: clock.clone() }
    }

    /// Opens one more server of the same catalogue.
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

    /// Keeps a server of it that was opened elsewhere, to end it before the keyspace is used again.
    pub fn keep(&mut self, store: Arc<CassandraStore>) {
        self.used.as_mut().expect("it is in use").stores.push(store);
    }

    /// Settings of the catalogue.
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

    /// A server that is not closed continues its work in the background, beside the next one.
    async fn reopen(&mut self, end: StoreEnd) {
        if end == StoreEnd::Close {
            self.store.close().await.expect("a store closes");
        }
        self.store = self.one_more().await;
    }
}
