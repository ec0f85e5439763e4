//! Maintenance: writes the tables, begins log segments and drops old ones, and fills the filter.

use std::sync::Arc;

use exacat_model::{Result, Revision, TimeMs};
use tokio::sync::Notify;

use crate::cluster::failed;
use crate::follower::Follower;
use crate::known::{GroupId, Known};
use crate::limits::FILTER_KEYS_PER_ENTRY;
use crate::settle::settle;
use crate::{log, opening, retention};

/// Part of a server that keeps tables, log and filter in order.
pub(crate) struct Maintenance {
    pub follower: Arc<Follower>,
    /// Notified when this server carries out requests itself.
    decides: Notify,
}

impl Maintenance {
    pub fn new(follower: Arc<Follower>) -> Self {
        Maintenance { follower, decides: Notify::new() }
    }

    /// Notes that this server carries out a request itself.
    pub fn decides(&self) {
        // `notify_one` keeps a permit: the filter task may begin to wait later.
        self.decides.notify_one();
    }

    /// Begins the log segment after a full one. If this fails, the next read of the log head does
    /// it.
    pub async fn begin_stretch(&self, last: Revision, tail: GroupId) {
        let next = last.0 + 1;
        match log::begin(&self.follower.cluster, next, Some(tail)).await {
            Ok(()) => self.follower.begun(next),
            Err(error) => {
                tracing::warn!(%error, "a stretch of the log is full, the next one could not be begun yet")
            }
        }
        if let Err(error) = self.forget_history().await {
            tracing::warn!(%error, "stretches of the log that are too old could not be dropped yet");
        }
    }

    /// Drops log segments whose last change is past retention. Segments that are not in the tables
    /// yet stay.
    async fn forget_history(&self) -> Result<()> {
        let settled = self.follower.known(Known::settled);
        let Some(kept) = self.follower.settings.history_kept_ms else { return Ok(()) };
        let before = TimeMs(self.follower.clock.trusted().0.saturating_sub(kept));
        retention::drop_stretches(&self.follower.cluster, before, settled).await
    }

    /// Flushes: writes the changes that are only in the log to the tables. Returns the position up
    /// to which the tables are then complete.
    pub async fn settle(&self) -> Result<Revision> {
        // On another branch nothing may reach the tables: they belong to the log of the cluster.
        if self.follower.has_diverged() {
            return Err(failed("be written to", "its log is another branch of the history"));
        }
        let Some(frozen) = self.follower.change_known(Known::freeze) else {
            return Ok(self.follower.known(Known::settled));
        };
        settle(&self.follower.cluster, &frozen).await?;
        let stretch = self.follower.note_settled(frozen.up_to);
        self.follower.cluster.figures.settled();
        // Last: the log may claim only rows that are in the tables already.
        log::settled(&self.follower.cluster, stretch, frozen.up_to).await?;
        Ok(frozen.up_to)
    }

    /// Fills the filter once this server carries out requests itself. A server that forwards all of
    /// them has no use for it.
    pub async fn fill_filter_when_needed(&self) {
        self.decides.notified().await;
        self.fill_filter().await;
    }

    /// Fills the filter with every key of the tables. Drops it if the tables have too many keys.
    pub async fn fill_filter(&self) {
        let room = self.follower.known(|known| Some((known.filter_room()?, known.totals())));
        let Some((room, totals)) = room else { return };
        if totals.entries.saturating_mul(FILTER_KEYS_PER_ENTRY) > room {
            self.follower.change_known(Known::drop_filter);
            return;
        }
        let filled = opening::each_key(&self.follower.cluster, |keys| {
            self.follower.change_known(|known| known.filter_has(keys))
        })
        .await;
        match filled {
            Ok(()) => self.follower.change_known(Known::filter_is_whole),
            Err(error) => {
                tracing::warn!(%error, "what is in the tables could not be looked through: whether something is new is read each time");
                self.follower.change_known(Known::drop_filter);
            }
        }
    }
}
