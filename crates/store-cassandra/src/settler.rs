//! When changes that are in the log are written to the tables: many together, now and then, while the log goes on.
//!
//! Any server can do it for all. So that one does: the one whose append crosses a multiple of a number of changes. Who finds twice as many does it
//! too, for that one may be gone; and when nothing is asked for, who appended last.

use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Error, ErrorKind, Result, Revision};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::known::Known;
use crate::limits::{SETTLE_AFTER, SETTLE_BYTES, SETTLE_IDLE, UNSETTLED_MAX};

/// One server's part in it.
pub(crate) struct Settler {
    engine: Arc<Engine>,
    task: Option<JoinHandle<Result<Revision>>>,
    /// The last change that this server appended, and since when it has some that may not be in the tables.
    appended: Revision,
    since: Option<Instant>,
    /// Servers wait for different times, so that one of them is first.
    patience: Duration,
}

impl Settler {
    pub fn new(engine: Arc<Engine>) -> Self {
        let mut random = [0; 1];
        // Without randomness they wait for the same time, and two may do the same: in vain, and no harm.
        let _ = getrandom::fill(&mut random);
        let patience = SETTLE_AFTER.mul_f64(1.0 + f64::from(random[0]) / 255.0);
        Settler { engine, task: None, appended: Revision(0), since: None, patience }
    }

    /// Changes and bytes that may not be in the tables, and up to where they are.
    fn left(&self) -> (u64, usize, Revision) {
        self.engine.known(|known| {
            (known.head().0 - known.settled().0.min(known.head().0), known.unsettled_bytes(), known.settled())
        })
    }

    fn changes_max(&self) -> u64 {
        self.engine.settings().settle_changes.max(1)
    }

    /// Is one under way? What is done is looked at.
    async fn is_busy(&mut self) -> bool {
        if self.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return true;
        }
        self.ended().await;
        false
    }

    /// Waits for the one under way. If it failed what it should have written stays to be written.
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

    /// Begins to write all there is, unless it is being done.
    pub async fn begin(&mut self) {
        if !self.is_busy().await && self.left().0 > 0 {
            let engine = self.engine.clone();
            self.task = Some(tokio::spawn(async move { engine.settle().await }));
        }
    }

    /// A group was appended.
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

    /// Waits until there is room for more changes that are in the log alone.
    pub async fn make_room(&mut self) -> Result<()> {
        let most = self.changes_max().saturating_mul(UNSETTLED_MAX);
        let full = |(changes, bytes, _): (u64, usize, Revision)| {
            changes >= most || bytes >= SETTLE_BYTES * UNSETTLED_MAX as usize
        };
        if !full(self.left()) {
            return Ok(());
        }
        self.engine.cluster.figures.waited_for_tables();
        self.ended().await;
        if full(self.left()) {
            // Perhaps another server did it.
            self.engine.check().await?;
        }
        if full(self.left()) {
            self.engine.settle().await?;
        }
        Ok(())
    }

    /// How long to wait for a request before what is left is written; none if nothing is left.
    pub fn when_idle(&self) -> Option<Duration> {
        let (changes, _, settled) = self.left();
        (changes > 0).then_some(if self.appended > settled { SETTLE_IDLE } else { self.patience })
    }

    /// Nothing was asked for, for as long as [`Self::when_idle`] says: what is left is written, if nobody else did.
    pub async fn idle(&mut self) {
        if self.appended <= self.left().2
            && let Err(error) = self.engine.check().await
        {
            tracing::debug!(%error, "the log could not be looked at, it is tried again");
            return;
        }
        self.begin().await;
    }

    /// Writes everything.
    pub async fn finish(&mut self) -> Result<()> {
        self.ended().await;
        let head = self.engine.known(Known::head);
        if self.engine.settle().await? < head {
            return Err(Error::new(ErrorKind::Internal, "what was frozen does not reach the head"));
        }
        Ok(())
    }
}
