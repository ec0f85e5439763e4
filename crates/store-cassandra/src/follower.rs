//! Follower: reads the log up to its head, and applies its groups to the row cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use exacat_model::{Consistency, DirId, Error, ErrorKind, Result, Revision};
use exacat_store::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::freshness::Freshness;
use crate::known::{Bounds, Group, GroupId, Installed, Known, Tail};
use crate::log::{self, Position};
use crate::opening::always_known;
use crate::peers::Peers;
use crate::rows::{Key, Row};
use crate::settings::CassandraSettings;
use crate::turns::Turns;

/// Part of a server that follows the log. The other parts share it.
pub(crate) struct Follower {
    pub cluster: Cluster,
    pub clock: Arc<dyn Clock>,
    pub settings: CassandraSettings,
    known: Mutex<Known>,
    position: Mutex<Position>,
    /// Reads of the log head that were begun.
    looks: AtomicU64,
    /// Number of the last of them that succeeded.
    looking: tokio::sync::Mutex<u64>,
    pub freshness: Freshness,
    /// Notified when the log has moved, and when this server closes.
    pub moved: Notify,
    pub turns: Turns,
    pub peers: Peers,
    /// Number of groups so far that changed records.
    records_seen: AtomicU64,
    closed: Mutex<Option<String>>,
    /// True once the log turned out to be another branch of the history than this server has read.
    diverged: AtomicBool,
}

impl Follower {
    /// Finds the end of the log, and loads the rows that are always cached.
    pub async fn open(cluster: Cluster, settings: &CassandraSettings, clock: Arc<dyn Clock>) -> Result<Self> {
        let stretches = log::stretches(&cluster).await?;
        let Some(last) = stretches.last().copied() else {
            return Err(Error::new(ErrorKind::Corrupt, "the log has no beginning"));
        };
        // Read before the tables: changes flushed up to here are then in the tables as read below.
        let settled = log::settled_in(&cluster, &stretches).await?;
        let bounds = Bounds {
            rows: settings.rows_known,
            filter_bytes: settings.filter_bytes,
            partition_rows: settings.partition_rows,
        };
        let mut known = Known::new(settled, bounds);
        for (key, row) in always_known(&cluster).await? {
            known.insert_always(key, row);
        }
        // Serial: it completes an append that is under way, so this server sees every earlier
        // append.
        let end = log::position(&cluster, last, true).await?;
        let first =
            crate::reads::stretch_of(&stretches, settled).and_then(|place| stretches.get(place)).copied();
        let peers = Peers::new(clock.now())?;
        let follower = Follower {
            cluster,
            clock,
            settings: settings.clone(),
            known: Mutex::new(known),
            position: Mutex::new(Position { stretch: end.stretch, head: settled, settled, tail: None }),
            looks: AtomicU64::new(0),
            looking: tokio::sync::Mutex::new(0),
            freshness: Freshness::new(settings.stale_max),
            moved: Notify::new(),
            turns: Turns::default(),
            peers,
            records_seen: AtomicU64::new(0),
            closed: Mutex::new(None),
            diverged: AtomicBool::new(false),
        };
        follower.follow(first.unwrap_or(last), end).await?;
        follower.check().await?;
        let (head, last) = follower.known(|known| (known.head(), known.totals().time));
        if head > Revision(0) {
            follower.clock.opened(last);
        }
        Ok(follower)
    }

    /// Log segment that the next change goes into, as far as this server knows.
    pub fn stretch(&self) -> u64 {
        self.position.lock().stretch
    }

    /// End of the log, as far as this server knows.
    pub fn position(&self) -> Position {
        *self.position.lock()
    }

    /// Notes that the next change goes into this segment, or a later one.
    pub fn begun(&self, stretch: u64) {
        let mut position = self.position.lock();
        position.stretch = position.stretch.max(stretch);
    }

    /// True once the log turned out to be another branch of the history.
    pub fn has_diverged(&self) -> bool {
        self.diverged.load(SeqCst)
    }

    /// Reason why this server does nothing any more; none while it is open.
    pub fn closed(&self) -> Option<String> {
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
            self.cluster.figures.diverged();
            tracing::error!("{why}");
        }
        self.close(&why);
        Error::new(ErrorKind::Corrupt, why)
    }

    pub fn close(&self, why: &str) {
        self.closed.lock().get_or_insert_with(|| why.to_owned());
        self.moved.notify_waiters();
    }

    /// Fails once this server is closed.
    pub fn still_open(&self) -> Result<()> {
        match self.closed() {
            Some(why) => Err(Error::new(ErrorKind::Unavailable, why)),
            None => Ok(()),
        }
    }

    /// Number of groups so far that changed records.
    pub fn records_seen(&self) -> u64 {
        self.records_seen.load(SeqCst)
    }

    pub fn known<T>(&self, see: impl FnOnce(&Known) -> T) -> T {
        see(&self.known.lock())
    }

    /// Changes the row cache. It stays exact.
    pub fn change_known<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.known.lock())
    }

    /// Reads the log up to a head that is not older than this call. Concurrent calls share one
    /// read.
    pub async fn check(&self) -> Result<()> {
        let before = self.looks.load(SeqCst);
        let mut succeeded = self.looking.lock().await;
        if *succeeded > before {
            // Another caller began a read after this call, and it is done.
            return Ok(());
        }
        let this = self.looks.fetch_add(1, SeqCst) + 1;
        let position = *self.position.lock();
        let began = Instant::now();
        let end = self.end_of_log(position.stretch).await?;
        match self.follow(position.stretch, end).await {
            // An append under way may be on one replica only: its head is visible and its changes
            // are not. A serial read completes it first.
            Err(error) if error.kind == ErrorKind::Corrupt && !self.diverged.load(SeqCst) => {
                let end = log::position(&self.cluster, position.stretch, true).await?;
                self.follow(position.stretch, end).await?;
            }
            followed => followed?,
        }
        self.freshness.looked(Consistency::Quorum, began);
        *succeeded = this;
        Ok(())
    }

    /// Returns the end of the log, which is at or after the known end. Any other end is another
    /// branch of the history.
    async fn end_of_log(&self, stretch: u64) -> Result<Position> {
        let known = self.known(Known::end);
        let end = log::position(&self.cluster, stretch, false).await?;
        if goes_on(known, &end) {
            return Ok(end);
        }
        // A plain read may miss the end of an append under way. A serial read completes it first.
        let end = log::position(&self.cluster, stretch, true).await?;
        if goes_on(known, &end) {
            return Ok(end);
        }
        let (head, tail) = (known.0.0, known.1.flatten());
        Err(self.diverge(&format!(
            "it ended with change {head}, group {}, and ends with change {}, group {} now",
            shown(tail),
            end.head.0,
            shown(end.tail.flatten()),
        )))
    }

    /// Reads the log up to a head that fewer replicas than a quorum showed. An older head than the
    /// cached one means nothing. A quorum decided a newer one, whichever replica shows it. The
    /// groups up to it are read at QUORUM, so the row cache stays exact.
    pub async fn glance(&self, level: Consistency) -> Result<()> {
        let began = Instant::now();
        let stretch = self.stretch();
        // The segment is full or missing: an ordinary read finds how the log continues. The same
        // holds for groups that cannot be read yet.
        let Some(head) = log::glimpse(&self.cluster, stretch, level).await? else {
            return self.check().await;
        };
        // Later appends rest on the groups, not on this head: so it carries no tail.
        let end = Position { stretch, head, settled: Revision(0), tail: None };
        if self.follow(stretch, end).await.is_err() {
            return self.check().await;
        }
        self.freshness.looked(level, began);
        Ok(())
    }

    async fn follow(&self, mut stretch: u64, end: Position) -> Result<()> {
        let before = self.known(Known::head);
        while self.known(Known::head) < end.head {
            let head = self.known(Known::head);
            let mut pages = log::Groups::of(stretch, head);
            while let Some(groups) = pages.next(&self.cluster).await? {
                groups.iter().try_for_each(|group| self.install(group))?;
                groups.iter().for_each(|group| self.peers.saw(group.by));
            }
            if self.known(Known::head) >= end.head {
                break;
            }
            let next = log::stretches(&self.cluster).await?.into_iter().find(|first| *first > stretch);
            match next {
                Some(next) if next <= end.stretch => stretch = next,
                _ if self.known(Known::head) > head => {}
                _ => {
                    let why = format!("change {} of the log cannot be read", head.0 + 1);
                    return Err(Error::new(ErrorKind::Corrupt, why));
                }
            }
        }
        let mut position = self.position.lock();
        if end.stretch > position.stretch {
            position.stretch = end.stretch;
        }
        position.settled = position.settled.max(end.settled);
        position.head = position.head.max(self.known(Known::head));
        let settled = position.settled;
        drop(position);
        let mut known = self.known.lock();
        if let Some(tail) = end.tail {
            known.take_tail(end.head, tail);
        }
        known.settle(settled);
        drop(known);
        if self.known(Known::head) > before {
            self.turns.another();
            self.moved.notify_waiters();
        }
        Ok(())
    }

    /// Applies the next group of the log to the row cache.
    pub fn install(&self, group: &Group) -> Result<()> {
        let mut known = self.known.lock();
        let is_new = group.last > known.head();
        match known.install(group) {
            Installed::Yes => {}
            Installed::Gap => {
                let why = format!("the log has change {} and not all before it", group.first.0);
                return Err(Error::new(ErrorKind::Corrupt, why));
            }
            Installed::OtherBranch => {
                let (head, tail) = known.end();
                drop(known);
                return Err(self.diverge(&format!(
                    "group {} of changes {} to {} follows group {}, and the last one read, up to change {}, is group {}",
                    shown(Some(group.id)),
                    group.first.0,
                    group.last.0,
                    shown(group.before),
                    head.0,
                    shown(tail.flatten()),
                )));
            }
        }
        // Counted under the lock, so that a reader that sees the new group also sees the new count.
        if is_new && group.images.iter().any(|image| matches!(image.key, Key::Record(_))) {
            self.records_seen.fetch_add(1, SeqCst);
        }
        Ok(())
    }

    /// Notes that the tables are complete up to here. Returns the segment of the next change.
    pub fn note_settled(&self, up_to: Revision) -> u64 {
        self.known.lock().settle(up_to);
        let mut position = self.position.lock();
        position.settled = position.settled.max(up_to);
        position.stretch
    }

    /// Reports that all children of a directory were read. The cache keeps them if the directory is
    /// listed repeatedly.
    pub fn listed(&self, epoch: u64, directory: DirId, rows: &[(Key, Arc<Row>)]) {
        self.known.lock().listed(epoch, directory, rows);
    }
}

/// Says whether a log with this end can follow from the end that was known before the read.
fn goes_on((head, tail): (Revision, Option<Tail>), end: &Position) -> bool {
    let same = |tail: Tail| end.tail.is_none_or(|now| now == tail);
    end.head > head || end.head == head && tail.is_none_or(same)
}

/// Formats a group's id for a person.
fn shown(id: Option<GroupId>) -> String {
    id.map_or_else(|| "none".to_owned(), |id| format!("{:032x}", u128::from_be_bytes(id)))
}
