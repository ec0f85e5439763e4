//! Flusher: decides when changes in the log are written to the tables, many together, while the log
//! goes on.
//!
//! Any server may flush for all. Normally the server whose append crosses a multiple of
//! `FLUSH_CHANGES` (32 768) does. At twice that number any server takes over, because the first
//! one may be gone. When no requests arrive, the server of the last append flushes.

use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Error, ErrorKind, Result, Revision};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::follower::Follower;
use crate::limits::{FLUSH_AFTER, FLUSH_BYTES, FLUSH_IDLE, UNFLUSHED_MAX};
use crate::maintenance::Maintenance;
use crate::row_cache::RowCache;

/// Flusher of one server.
pub(crate) struct Flusher {
    maintenance: Arc<Maintenance>,
    task: Option<JoinHandle<Result<Revision>>>,
    /// Last change that this server appended; time since which some of its changes may not be in
    /// the tables.
    appended: Revision,
    since: Option<Instant>,
    /// Random delay per server, so that one of them is first.
    patience: Duration,
}

impl Flusher {
    pub(crate) fn new(maintenance: Arc<Maintenance>) -> Self {
        let mut random = [0; 1];
        // Without randomness all servers wait for the same time. Two may then flush the same rows,
        // which does no harm.
        let _ = getrandom::fill(&mut random);
        let patience = FLUSH_AFTER.mul_f64(1.0 + f64::from(random[0]) / 255.0);
        Flusher { maintenance, task: None, appended: Revision(0), since: None, patience }
    }

    fn follower(&self) -> &Follower {
        &self.maintenance.follower
    }

    /// Changes and bytes that may not be in the tables, and the flushed position.
    fn left(&self) -> (u64, usize, Revision) {
        self.follower().cache(|cache| {
            (cache.head().0 - cache.flushed().0.min(cache.head().0), cache.unflushed_bytes(), cache.flushed())
        })
    }

    fn changes_max(&self) -> u64 {
        self.follower().settings.flush_changes.max(1)
    }

    /// Says whether a flush is under way. Collects the result of a finished one.
    async fn is_busy(&mut self) -> bool {
        if self.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return true;
        }
        self.ended().await;
        false
    }

    /// Waits for the flush under way. After a failure its rows stay to be written.
    async fn ended(&mut self) {
        let Some(task) = self.task.take() else { return };
        match task.await {
            Ok(Ok(flushed)) => {
                if flushed >= self.appended {
                    self.since = None;
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "changes are not in the tables yet, they are written again")
            }
            Err(error) => tracing::warn!(%error, "changes are not in the tables yet, they are written again"),
        }
    }

    /// Begins a flush, unless one is under way.
    pub(crate) async fn begin(&mut self) {
        if !self.is_busy().await && self.left().0 > 0 {
            let maintenance = self.maintenance.clone();
            self.task = Some(tokio::spawn(async move { maintenance.flush().await }));
        }
    }

    /// Notes an appended group, and begins a flush if one is due.
    pub(crate) async fn appended(&mut self, first: Revision, last: Revision) {
        self.appended = last;
        let since = *self.since.get_or_insert_with(Instant::now);
        let (changes, bytes, _) = self.left();
        let most = self.changes_max();
        let crossed = (first.0.saturating_sub(1)) / most != last.0 / most;
        let waited = since.elapsed() >= self.patience;
        if crossed || changes >= 2 * most || bytes >= FLUSH_BYTES || waited {
            self.begin().await;
        }
    }

    /// Waits until the log may take more changes that are not in the tables.
    pub(crate) async fn make_room(&mut self) -> Result<()> {
        let most = self.changes_max().saturating_mul(UNFLUSHED_MAX);
        let full = |(changes, bytes, _): (u64, usize, Revision)| {
            changes >= most || bytes >= FLUSH_BYTES * UNFLUSHED_MAX as usize
        };
        if !full(self.left()) {
            return Ok(());
        }
        self.follower().cluster.metrics.waited_for_tables();
        self.ended().await;
        if full(self.left()) {
            // Another server may have flushed.
            self.follower().catch_up().await?;
        }
        if full(self.left()) {
            self.maintenance.flush().await?;
        }
        Ok(())
    }

    /// Returns how long to wait for a request before flushing; none if nothing is left.
    pub(crate) fn when_idle(&self) -> Option<Duration> {
        let (changes, _, flushed) = self.left();
        (changes > 0).then_some(if self.appended > flushed { FLUSH_IDLE } else { self.patience })
    }

    /// Flushes if no request came for as long as [`Self::when_idle`] says, unless another server
    /// did.
    pub(crate) async fn idle(&mut self) {
        if self.appended <= self.left().2
            && let Err(error) = self.follower().catch_up().await
        {
            tracing::debug!(%error, "the log head could not be read, another attempt follows");
            return;
        }
        self.begin().await;
    }

    /// Writes everything.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.ended().await;
        let head = self.follower().cache(RowCache::head);
        if self.maintenance.flush().await? < head {
            return Err(Error::new(ErrorKind::Internal, "the flushed changes do not reach the head"));
        }
        Ok(())
    }
}
