//! State that the readers, the writer and the background threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use exacat_disk::Disk;
use exacat_model::{Error, ErrorKind, OperationId, Result, Revision, TimeMs};
use parking_lot::{Mutex, RwLock};

use crate::durability::Durability;
use crate::filtered::Positions;
use crate::history::History;
use crate::metrics::Metrics;
use crate::older::Older;
use crate::run::Cache;
use crate::standbys::Standbys;
use crate::state::{Hints, State};

/// State shared by the readers and the writer.
pub(crate) struct Shared {
    pub state: RwLock<State>,
    pub cache: Arc<Cache>,
    pub hints: Hints,
    pub history: Arc<History>,
    pub durability: Durability,
    pub metrics: Metrics,
    pub disk: Arc<dyn Disk>,
    /// Changes of accounts and tokens since the store was opened.
    pub credentials: Arc<AtomicU64>,
    /// Followers that must have a change before it counts.
    pub standbys: Standbys,
    /// Address of the server that takes changes in place of this one, if another one was promoted.
    pub superseded: RwLock<Option<String>>,
    /// Progress of a filtered follower.
    pub positions: Option<Arc<Positions>>,
    /// Changes of records that were followed since the store was opened.
    pub records_followed: AtomicU64,
    /// Index of requests that memory has forgotten and only the log has.
    pub older: Mutex<Older>,
    /// Upper bound of the creation times of forgotten operation ids, in ms.
    forgotten: AtomicU64,
    closed: AtomicBool,
    /// Set once the log or the state has failed.
    has_failed: AtomicBool,
}

impl Shared {
    pub(crate) fn new(state: State, history: History, older: Older, disk: Arc<dyn Disk>) -> Self {
        let durability = Durability::new(state.revision);
        let credentials = Arc::clone(&state.credentials);
        let cache = Arc::clone(state.table.cache());
        Shared {
            state: RwLock::new(state),
            cache,
            hints: Hints::new(),
            history: Arc::new(history),
            durability,
            metrics: Metrics::new(),
            disk,
            credentials,
            standbys: Standbys::default(),
            superseded: RwLock::new(None),
            positions: None,
            records_followed: AtomicU64::new(0),
            older: Mutex::new(older),
            forgotten: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Reason why the log failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        let has_failed = self.has_failed.load(Ordering::Acquire);
        has_failed.then(|| self.durability.ended().as_deref().unwrap_or("the log failed").to_owned())
    }

    /// Sets the time before which every forgotten operation id was made.
    pub(crate) fn set_forgotten(&self, made: TimeMs) {
        self.forgotten.store(made.0, Ordering::Relaxed);
    }

    /// Says whether a request of this id may have been applied and then forgotten by memory.
    pub(crate) fn may_have_forgotten(&self, id: OperationId) -> bool {
        id.made().0 < self.forgotten.load(Ordering::Relaxed)
    }

    /// Stops all writing until the store is opened again. Reads answer from the durable state
    /// (`standby`).
    pub(crate) fn fail(&self, why: &str) {
        tracing::error!(why, "the store stops writing until it is opened again");
        self.metrics.warn("stopped", why);
        self.has_failed.store(true, Ordering::Release);
        self.durability.end(why);
    }

    /// Notes that changes up to this one count from now on.
    pub(crate) fn durable(&self, revision: Revision, changes: u64) {
        self.durability.advance(revision);
        self.metrics.changes.fetch_add(changes, Ordering::Relaxed);
    }

    /// Refuses all further requests.
    pub(crate) fn refuse(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Refuses all further requests and wakes every waiter with the reason.
    pub(crate) fn close(&self, why: &str) {
        self.refuse();
        self.durability.end(why);
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            let why = self.durability.ended();
            return Err(Error::new(ErrorKind::Unavailable, why.as_deref().unwrap_or("the store is closed")));
        }
        Ok(())
    }
}
