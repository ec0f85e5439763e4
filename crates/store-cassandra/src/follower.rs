//! Follower: reads the log up to its head, and applies its groups to the row cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use exacat_model::{Consistency, DirId, Error, ErrorKind, Result, Revision};
use exacat_store::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::backoff::Backoff;
use crate::cluster::Cluster;
use crate::freshness::Freshness;
use crate::log::{self, Position};
use crate::opening::permanent_rows;
use crate::peers::Peers;
use crate::row_cache::{Bounds, Group, GroupId, Installed, RowCache, Tail};
use crate::rows::{Key, Row};
use crate::settings::CassandraSettings;

/// Part of a server that follows the log. The other parts share it.
pub(crate) struct Follower {
    pub cluster: Cluster,
    pub clock: Arc<dyn Clock>,
    pub settings: CassandraSettings,
    cache: Mutex<RowCache>,
    position: Mutex<Position>,
    /// Reads of the log head that were begun.
    head_reads: AtomicU64,
    /// Number of the last of them that succeeded.
    head_read: tokio::sync::Mutex<u64>,
    pub freshness: Freshness,
    /// Notified when the log has moved, and when this server closes.
    pub moved: Notify,
    pub backoff: Backoff,
    pub peers: Peers,
    /// Number of groups so far that changed records.
    records_seen: AtomicU64,
    closed: Mutex<Option<String>>,
    /// True once the log turned out to be another branch of the history than this server has read.
    diverged: AtomicBool,
}

impl Follower {
    /// Finds the end of the log, and loads the rows that are always cached.
    pub(crate) async fn open(
        cluster: Cluster,
        settings: &CassandraSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let segments = log::segments(&cluster).await?;
        let Some(last) = segments.last().copied() else {
            return Err(Error::new(ErrorKind::Corrupt, "the log has no beginning"));
        };
        // Read before the tables: changes flushed up to here are then in the tables as read below.
        let flushed = log::flushed_in(&cluster, &segments).await?;
        let bounds = Bounds {
            rows: settings.cache_rows,
            filter_bytes: settings.filter_bytes,
            partition_rows: settings.partition_rows,
        };
        let mut cache = RowCache::new(flushed, bounds);
        for (key, row) in permanent_rows(&cluster).await? {
            cache.insert_permanent(key, row);
        }
        // Serial: it completes an append that is under way, so this server sees every earlier
        // append.
        let end = log::position(&cluster, last, true).await?;
        let first =
            crate::reads::segment_of(&segments, flushed).and_then(|place| segments.get(place)).copied();
        let peers = Peers::new(clock.now())?;
        let follower = Follower {
            cluster,
            clock,
            settings: settings.clone(),
            cache: Mutex::new(cache),
            position: Mutex::new(Position { segment: end.segment, head: flushed, flushed, tail: None }),
            head_reads: AtomicU64::new(0),
            head_read: tokio::sync::Mutex::new(0),
            freshness: Freshness::new(settings.stale_max),
            moved: Notify::new(),
            backoff: Backoff::default(),
            peers,
            records_seen: AtomicU64::new(0),
            closed: Mutex::new(None),
            diverged: AtomicBool::new(false),
        };
        follower.follow(first.unwrap_or(last), end).await?;
        follower.catch_up().await?;
        let (head, last) = follower.cache(|cache| (cache.head(), cache.totals().time));
        if head > Revision(0) {
            follower.clock.opened(last);
        }
        Ok(follower)
    }

    /// Log segment that the next change goes into, as far as this server knows.
    pub(crate) fn segment(&self) -> u64 {
        self.position.lock().segment
    }

    /// End of the log, as far as this server knows.
    pub(crate) fn position(&self) -> Position {
        *self.position.lock()
    }

    /// Notes that the next change goes into this segment, or a later one.
    pub(crate) fn begun(&self, segment: u64) {
        let mut position = self.position.lock();
        position.segment = position.segment.max(segment);
    }

    /// True once the log turned out to be another branch of the history.
    pub(crate) fn has_diverged(&self) -> bool {
        self.diverged.load(SeqCst)
    }

    /// Reason why this server does nothing any more; none while it is open.
    pub(crate) fn closed(&self) -> Option<String> {
        self.closed.lock().clone()
    }

    /// Closes this server because the log of the cluster does not follow from the cached state. The
    /// server never adopts another branch, because its answers may be missing there.
    fn diverge(&self, what: &str) -> Error {
        let why = format!(
            "the log of the cluster is another branch of the history than this server has followed: {what}. The server is \
             closed. Find the node that lost appends or was restored and repair the keyspace, then start the server again"
        );
        if !self.diverged.swap(true, SeqCst) {
            self.cluster.metrics.diverged();
            tracing::error!("{why}");
        }
        self.close(&why);
        Error::new(ErrorKind::Corrupt, why)
    }

    pub(crate) fn close(&self, why: &str) {
        self.closed.lock().get_or_insert_with(|| why.to_owned());
        self.moved.notify_waiters();
    }

    /// Fails once this server is closed.
    pub(crate) fn still_open(&self) -> Result<()> {
        match self.closed() {
            Some(why) => Err(Error::new(ErrorKind::Unavailable, why)),
            None => Ok(()),
        }
    }

    /// Number of groups so far that changed records.
    pub(crate) fn records_seen(&self) -> u64 {
        self.records_seen.load(SeqCst)
    }

    pub(crate) fn cache<T>(&self, see: impl FnOnce(&RowCache) -> T) -> T {
        see(&self.cache.lock())
    }

    /// Changes the row cache. It stays exact.
    pub(crate) fn change_cache<T>(&self, change: impl FnOnce(&mut RowCache) -> T) -> T {
        change(&mut self.cache.lock())
    }

    /// Reads the log up to a head that is not older than this call. Concurrent calls share one
    /// read.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let before = self.head_reads.load(SeqCst);
        let mut succeeded = self.head_read.lock().await;
        if *succeeded > before {
            // Another caller began a read after this call, and it is done.
            return Ok(());
        }
        let this = self.head_reads.fetch_add(1, SeqCst) + 1;
        let position = *self.position.lock();
        let began = Instant::now();
        let end = self.end_of_log(position.segment).await?;
        match self.follow(position.segment, end).await {
            // An append under way may be on one replica only: its head is visible and its changes
            // are not. A serial read completes it first.
            Err(error) if error.kind == ErrorKind::Corrupt && !self.diverged.load(SeqCst) => {
                let end = log::position(&self.cluster, position.segment, true).await?;
                self.follow(position.segment, end).await?;
            }
            followed => followed?,
        }
        self.freshness.note_head_read(Consistency::Quorum, began);
        *succeeded = this;
        Ok(())
    }

    /// Returns the end of the log, which is at or after the known end. Any other end is another
    /// branch of the history.
    async fn end_of_log(&self, segment: u64) -> Result<Position> {
        let cache = self.cache(RowCache::end);
        let end = log::position(&self.cluster, segment, false).await?;
        if continues(cache, &end) {
            return Ok(end);
        }
        // A plain read may miss the end of an append under way. A serial read completes it first.
        let end = log::position(&self.cluster, segment, true).await?;
        if continues(cache, &end) {
            return Ok(end);
        }
        let (head, tail) = (cache.0.0, cache.1.flatten());
        Err(self.diverge(&format!(
            "it ended with change {head}, group {}, and ends with change {}, group {} now",
            hex_of(tail),
            end.head.0,
            hex_of(end.tail.flatten()),
        )))
    }

    /// Reads the log up to a head that fewer replicas than a quorum showed. An older head than the
    /// cached one means nothing. A quorum decided a newer one, whichever replica shows it. The
    /// groups up to it are read at QUORUM, so the row cache stays exact.
    pub(crate) async fn poll(&self, level: Consistency) -> Result<()> {
        let began = Instant::now();
        let segment = self.segment();
        // The segment is full or missing: an ordinary read finds how the log continues. The same
        // holds for groups that cannot be read yet.
        let Some(head) = log::read_head(&self.cluster, segment, level).await? else {
            return self.catch_up().await;
        };
        // Later appends rest on the groups, not on this head: so it carries no tail.
        let end = Position { segment, head, flushed: Revision(0), tail: None };
        if self.follow(segment, end).await.is_err() {
            return self.catch_up().await;
        }
        self.freshness.note_head_read(level, began);
        Ok(())
    }

    async fn follow(&self, mut segment: u64, end: Position) -> Result<()> {
        let before = self.cache(RowCache::head);
        while self.cache(RowCache::head) < end.head {
            let head = self.cache(RowCache::head);
            let mut pages = log::Groups::of(segment, head);
            while let Some(groups) = pages.next(&self.cluster).await? {
                groups.iter().try_for_each(|group| self.install(group))?;
                groups.iter().for_each(|group| self.peers.saw(group.by));
            }
            if self.cache(RowCache::head) >= end.head {
                break;
            }
            let next = log::segments(&self.cluster).await?.into_iter().find(|first| *first > segment);
            match next {
                Some(next) if next <= end.segment => segment = next,
                _ if self.cache(RowCache::head) > head => {}
                _ => {
                    let why = format!("change {} of the log cannot be read", head.0 + 1);
                    return Err(Error::new(ErrorKind::Corrupt, why));
                }
            }
        }
        let mut position = self.position.lock();
        if end.segment > position.segment {
            position.segment = end.segment;
        }
        position.flushed = position.flushed.max(end.flushed);
        position.head = position.head.max(self.cache(RowCache::head));
        let flushed = position.flushed;
        drop(position);
        let mut cache = self.cache.lock();
        if let Some(tail) = end.tail {
            cache.take_tail(end.head, tail);
        }
        cache.flush(flushed);
        drop(cache);
        if self.cache(RowCache::head) > before {
            self.backoff.another();
            self.moved.notify_waiters();
        }
        Ok(())
    }

    /// Applies the next group of the log to the row cache.
    pub(crate) fn install(&self, group: &Group) -> Result<()> {
        let mut cache = self.cache.lock();
        let is_new = group.last > cache.head();
        match cache.install(group) {
            Installed::Yes => {}
            Installed::Gap => {
                let why = format!("the log has change {} and not all before it", group.first.0);
                return Err(Error::new(ErrorKind::Corrupt, why));
            }
            Installed::OtherBranch => {
                let (head, tail) = cache.end();
                drop(cache);
                return Err(self.diverge(&format!(
                    "group {} of changes {} to {} follows group {}, and the last one read, up to change {}, is group {}",
                    hex_of(Some(group.id)),
                    group.first.0,
                    group.last.0,
                    hex_of(group.before),
                    head.0,
                    hex_of(tail.flatten()),
                )));
            }
        }
        // Counted under the lock, so that a reader that sees the new group also sees the new count.
        if is_new && group.after_images.iter().any(|after_image| matches!(after_image.key, Key::Record(_))) {
            self.records_seen.fetch_add(1, SeqCst);
        }
        Ok(())
    }

    /// Notes that the tables are complete up to here. Returns the segment of the next change.
    pub(crate) fn note_flushed(&self, up_to: Revision) -> u64 {
        self.cache.lock().flush(up_to);
        let mut position = self.position.lock();
        position.flushed = position.flushed.max(up_to);
        position.segment
    }

    /// Reports that all children of a directory were read. The cache keeps them if the directory is
    /// listed repeatedly.
    pub(crate) fn listed(&self, epoch: u64, directory: DirId, rows: &[(Key, Arc<Row>)]) {
        self.cache.lock().listed(epoch, directory, rows);
    }
}

/// Says whether a log with this end can follow from the end that was known before the read.
fn continues((head, tail): (Revision, Option<Tail>), end: &Position) -> bool {
    let same = |tail: Tail| end.tail.is_none_or(|now| now == tail);
    end.head > head || end.head == head && tail.is_none_or(same)
}

/// Formats a group's id for a person.
fn hex_of(id: Option<GroupId>) -> String {
    id.map_or_else(|| "none".to_owned(), |id| format!("{:032x}", u128::from_be_bytes(id)))
}
