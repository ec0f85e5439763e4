//! Maintenance: writes the tables, begins log segments and drops old ones, and fills the filter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use exacat_model::{Result, Revision, TimeMs};
use tokio::sync::Notify;

use crate::cluster::failed;
use crate::flush::flush;
use crate::follower::Follower;
use crate::limits::FILTER_KEYS_PER_ENTRY;
use crate::row_cache::{GroupId, RowCache};
use crate::{log, opening, retention};

/// Part of a server that keeps tables, log and filter in order.
pub(crate) struct Maintenance {
    pub follower: Arc<Follower>,
    /// Notified when this server carries out requests itself.
    decides: Notify,
    /// Flushes that are under way.
    flushes: AtomicUsize,
}

/// Counts a flush while it is under way, however it ends.
struct Flushing<'a>(&'a AtomicUsize);

impl<'a> Flushing<'a> {
    fn begin(flushes: &'a AtomicUsize) -> Self {
        flushes.fetch_add(1, SeqCst);
        Flushing(flushes)
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Maintenance {
    pub(crate) fn new(follower: Arc<Follower>) -> Self {
        Maintenance { follower, decides: Notify::new(), flushes: AtomicUsize::new(0) }
    }

    /// Notes that this server carries out a request itself.
    pub(crate) fn decides(&self) {
        // `notify_one` keeps a permit: the filter task may begin to wait later.
        self.decides.notify_one();
    }

    /// Begins the log segment after a full one. If this fails, the next read of the log head does
    /// it.
    pub(crate) async fn begin_segment(&self, last: Revision, tail: GroupId) {
        let next = last.0 + 1;
        match log::begin(&self.follower.cluster, next, Some(tail)).await {
            Ok(()) => self.follower.begun(next),
            Err(error) => {
                tracing::warn!(%error, "a log segment is full, the next one could not be begun yet")
            }
        }
        if let Err(error) = self.forget_history().await {
            tracing::warn!(%error, "log segments past retention could not be dropped yet");
        }
    }

    /// Drops log segments whose last change is past retention. Segments that are not in the tables
    /// yet stay.
    async fn forget_history(&self) -> Result<()> {
        let flushed = self.follower.cache(RowCache::flushed);
        let Some(kept) = self.follower.settings.history_kept_ms else { return Ok(()) };
        let before = TimeMs(self.follower.clock.trusted().0.saturating_sub(kept));
        retention::drop_segments(&self.follower.cluster, before, flushed).await
    }

    /// Flushes: writes the changes that are only in the log to the tables. Returns the position up
    /// to which the tables are then complete.
    pub(crate) async fn flush(&self) -> Result<Revision> {
        let _under_way = Flushing::begin(&self.flushes);
        // On another branch nothing may reach the tables: they belong to the log of the cluster.
        if self.follower.has_diverged() {
            return Err(failed("be written to", "its log is another branch of the history"));
        }
        let Some(frozen) = self.follower.change_cache(RowCache::freeze) else {
            return Ok(self.follower.cache(RowCache::flushed));
        };
        flush(&self.follower.cluster, &frozen).await?;
        let segment = self.follower.note_flushed(frozen.up_to);
        self.follower.cluster.metrics.flushed();
        // Last: the log may claim only rows that are in the tables already.
        log::flushed(&self.follower.cluster, segment, frozen.up_to).await?;
        Ok(frozen.up_to)
    }

    /// Says whether the tables have all changes that this server has read, and no flush is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        // In this order: a flush notes its position before its last statement. A flush that is seen to
        // have done so is therefore still counted, or over.
        self.follower.cache(|cache| cache.flushed() >= cache.head()) && self.flushes.load(SeqCst) == 0
    }

    /// Fills the filter once this server carries out requests itself. A server that forwards all of
    /// them has no use for it.
    pub(crate) async fn fill_filter_when_needed(&self) {
        self.decides.notified().await;
        self.fill_filter().await;
    }

    /// Fills the filter with every key of the tables. Drops it if the tables have too many keys.
    pub(crate) async fn fill_filter(&self) {
        let room = self.follower.cache(|cache| Some((cache.filter_room()?, cache.totals())));
        let Some((room, totals)) = room else { return };
        if totals.entries.saturating_mul(FILTER_KEYS_PER_ENTRY) > room {
            self.follower.change_cache(RowCache::drop_filter);
            return;
        }
        let filled = opening::each_key(&self.follower.cluster, |keys| {
            self.follower.change_cache(|cache| cache.filter_has(keys))
        })
        .await;
        match filled {
            Ok(()) => self.follower.change_cache(RowCache::filter_is_whole),
            Err(error) => {
                tracing::warn!(%error, "the keys of the tables could not be read: each new key costs a read");
                self.follower.change_cache(RowCache::drop_filter);
            }
        }
    }
}
