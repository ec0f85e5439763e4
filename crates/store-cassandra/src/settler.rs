//! Flusher: decides when changes in the log are written to the tables, many together, while the log
//! goes on.
//!
//! Any server may flush for all. Normally the server whose append crosses a multiple of
//! `SETTLE_CHANGES` (32 768) does. At twice that number any server takes over, because the first
//! one may be gone. When no requests arrive, the server of the last append flushes.

use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Error, ErrorKind, Result, Revision};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::follower::Follower;
use crate::known::Known;
use crate::limits::{SETTLE_AFTER, SETTLE_BYTES, SETTLE_IDLE, UNSETTLED_MAX};
use crate::maintenance::Maintenance;

/// Flusher of one server.
pub(crate) struct Settler {
    maintenance: Arc<Maintenance>,
    task: Option<JoinHandle<Result<Revision>>>,
    /// Last change that this server appended; time since which some of its changes may not be in
    /// the tables.
    appended: Revision,
    since: Option<Instant>,
    /// Random delay per server, so that one of them is first.
    patience: Duration,
}

impl Settler {
    pub fn new(maintenance: Arc<Maintenance>) -> Self {
        let mut random = [0; 1];
        // Without randomness all servers wait for the same time. Two may then flush the same rows,
        // which does no harm.
        let _ = getrandom::fill(&mut random);
        let patience = SETTLE_AFTER.mul_f64(1.0 + f64::from(random[0]) / 255.0);
        Settler { maintenance, task: None, appended: Revision(0), since: None, patience }
    }

    fn follower(&self) -> &Follower {
        &self.maintenance.follower
    }

    /// Changes and bytes that may not be in the tables, and the flushed position.
    fn left(&self) -> (u64, usize, Revision) {
        self.follower().known(|known| {
            (known.head().0 - known.settled().0.min(known.head().0), known.unsettled_bytes(), known.settled())
        })
    }

    fn changes_max(&self) -> u64 {
        self.follower().settings.settle_changes.max(1)
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
            Ok(Ok(settled)) => {
                if settled >= self.appended {
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
    pub async fn begin(&mut self) {
        if !self.is_busy().await && self.left().0 > 0 {
            let maintenance = self.maintenance.clone();
            self.task = Some(tokio::spawn(async move { maintenance.settle().await }));
        }
    }

    /// Notes an appended group, and begins a flush if one is due.
    pub async fn appended(&mut self, first: Revision, last: Revision) {
        self.appended = last;
        let since = *self.since.get_or_insert_with(Instant::now);
        let (changes, bytes, _) = self.left();
        let most = self.changes_max();
        let crossed = (first.0.saturating_sub(1)) / most != last.0 / most;
        let waited = since.elapsed() >= self.patience;
        if crossed || changes >= 2 * most || bytes >= SETTLE_BYTES || waited {
            self.begin().await;
        }
    }

    /// Waits until the log may take more changes that are not in the tables.
    pub async fn make_room(&mut self) -> Result<()> {
        let most = self.changes_max().saturating_mul(UNSETTLED_MAX);
        let full = |(changes, bytes, _): (u64, usize, Revision)| {
            changes >= most || bytes >= SETTLE_BYTES * UNSETTLED_MAX as usize
        };
        if !full(self.left()) {
            return Ok(());
        }
        self.follower().cluster.figures.waited_for_tables();
        self.ended().await;
        if full(self.left()) {
            // Another server may have flushed.
            self.follower().check().await?;
        }
        if full(self.left()) {
            self.maintenance.settle().await?;
        }
        Ok(())
    }

    /// Returns how long to wait for a request before flushing; none if nothing is left.
    pub fn when_idle(&self) -> Option<Duration> {
        let (changes, _, settled) = self.left();
        (changes > 0).then_some(if self.appended > settled { SETTLE_IDLE } else { self.patience })
    }

    /// Flushes if no request came for as long as [`Self::when_idle`] says, unless another server
    /// did.
    pub async fn idle(&mut self) {
        if self.appended <= self.left().2
            && let Err(error) = self.follower().check().await
        {
            tracing::debug!(%error, "the log could not be looked at, it is tried again");
            return;
        }
        self.begin().await;
    }

    /// Writes everything.
    pub async fn finish(&mut self) -> Result<()> {
        self.ended().await;
        let head = self.follower().known(Known::head);
        if self.maintenance.settle().await? < head {
            return Err(Error::new(ErrorKind::Internal, "what was frozen does not reach the head"));
        }
        Ok(())
    }
}
