//! One server: follows the log, fetches rows for requests, and appends commit groups one by one.
//!
//! ```text
//!   requests ─► decide on cached rows ◄── fetch missing rows, read the log up to its head
//!                     │
//!                     ▼
//!        append, if the head is unchanged ── lost ─► read the log, decide again
//!                     │
//!                     ├─► answers
//!                     └─► many groups later: the tables
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use exacat_model::{Change, Consistency, DirId, Error, ErrorKind, Result, Revision, SeNumber, TimeMs};
use exacat_store::{ApplyError, Clock};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::cluster::{Cluster, failed};
use crate::deciding::{Decided, Waiting, answer_done, decide_group, replay_group, revision_of, take_waiting};
use crate::fetching::{self, FetchedRows};
use crate::freshness::Freshness;
use crate::known::{Bounds, Group, GroupId, Installed, Known, Tail};
use crate::limits::{
    ATTEMPT_PAUSE, FILTER_KEYS_PER_ENTRY, GROUP_CHANGES_MAX, ROUNDS_MAX, ROUNDS_PER_SIZE, TURN_LOOK_EVERY,
};
use crate::log::{self, Appended, Appending, Position};
use crate::peers::{Link, Peers};
use crate::preparing::cql;
use crate::rows::{Key, Row};
use crate::settings::CassandraSettings;
use crate::settle::settle;
use crate::settler::Settler;
use crate::tables::{self, Bound};
use crate::turns::Turns;
use crate::working::{Look, Need};
use crate::{retention, slices};

/// Fetched rows that were not compared with the log yet.
struct Fetched {
    epoch: u64,
    rows: FetchedRows,
    queues: Vec<(SeNumber, FetchedRows)>,
}

/// State of this server.
pub(crate) struct Engine {
    pub cluster: Cluster,
    pub clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    position: Mutex<Position>,
    /// Reads of the log head that were begun.
    looks: AtomicU64,
    /// Number of the last of them that succeeded.
    looking: tokio::sync::Mutex<u64>,
    pub freshness: Freshness,
    /// Reads of the log head for bounded-staleness answers: one at a time per level.
    glancing: [tokio::sync::Mutex<()>; 2],
    pub moved: Notify,
    /// Notified when this server carries out requests itself.
    decides: Notify,
    turns: Turns,
    pub peers: Peers,
    settings: CassandraSettings,
    /// Newest change that another server made for a client of this one, if the client has the
    /// answer.
    answered: AtomicU64,
    /// Number of groups so far that changed records.
    records_seen: AtomicU64,
    closed: Mutex<Option<String>>,
    /// True once the log turned out to be another branch of the history than this server has read.
    diverged: AtomicBool,
}

impl Engine {
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
        for (key, row) in slices::always_known(&cluster).await? {
            known.insert_always(key, row);
        }
        // Serial: it completes an append that is under way, so this server sees every earlier
        // append.
        let end = log::position(&cluster, last, true).await?;
        let first =
            crate::reads::stretch_of(&stretches, settled).and_then(|place| stretches.get(place)).copied();
        let peers = Peers::new(clock.now())?;
        let engine = Engine {
            cluster,
            clock,
            known: Mutex::new(known),
            position: Mutex::new(Position { stretch: end.stretch, head: settled, settled, tail: None }),
            looks: AtomicU64::new(0),
            looking: tokio::sync::Mutex::new(0),
            freshness: Freshness::new(settings.stale_max),
            glancing: Default::default(),
            moved: Notify::new(),
            decides: Notify::new(),
            turns: Turns::default(),
            peers,
            settings: settings.clone(),
            answered: AtomicU64::new(0),
            records_seen: AtomicU64::new(0),
            closed: Mutex::new(None),
            diverged: AtomicBool::new(false),
        };
        engine.follow(first.unwrap_or(last), end).await?;
        engine.check().await?;
        let (head, last) = engine.known(|known| (known.head(), known.totals().time));
        if head > Revision(0) {
            engine.clock.opened(last);
        }
        Ok(engine)
    }

    pub fn settings(&self) -> &CassandraSettings {
        &self.settings
    }

    /// Log segment that the next change goes into, as far as this server knows.
    pub fn stretch(&self) -> u64 {
        self.position.lock().stretch
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

    fn still_open(&self) -> Result<()> {
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

    /// Makes the row cache as fresh as `level` requires. False for `latest`, which always reads the
    /// log head itself.
    async fn freshen(&self, level: Consistency) -> Result<bool> {
        self.freshness.asked(level);
        let glancing = match level {
            Consistency::Latest => return Ok(false),
            // A client must see its own forwarded change, whichever server made it.
            _ if self.known(Known::head).0 < self.answered.load(SeqCst) => {
                return self.check().await.map(|()| true);
            }
            _ if self.freshness.is_fresh(level, Instant::now()) => {
                self.freshness.answered_without_look();
                return Ok(true);
            }
            Consistency::Quorum => return self.check().await.map(|()| true),
            Consistency::LocalQuorum => &self.glancing[0],
            Consistency::One => &self.glancing[1],
        };
        let _one = glancing.lock().await;
        if !self.freshness.is_fresh(level, Instant::now()) {
            self.glance(level).await?;
        }
        Ok(true)
    }

    /// Reads the log head from fewer replicas than a quorum. An older head than the cached one
    /// means nothing. A quorum decided a newer one, whichever replica shows it. The groups up to it
    /// are read at QUORUM, so the row cache stays exact.
    async fn glance(&self, level: Consistency) -> Result<()> {
        let began = Instant::now();
        let position = *self.position.lock();
        // The segment is full or missing: an ordinary read finds how the log continues. The same
        // holds for groups that cannot be read yet.
        let Some(head) = glimpse(&self.cluster, position.stretch, level).await? else {
            return self.check().await;
        };
        // Later appends rest on the groups, not on this head: so it carries no tail.
        let end = Position { stretch: position.stretch, head, settled: Revision(0), tail: None };
        if self.follow(position.stretch, end).await.is_err() {
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

    fn install(&self, group: &Group) -> Result<()> {
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

    async fn fetch(&self, needs: BTreeSet<Need>, epoch: u64) -> Result<Fetched> {
        let mut fetched = Fetched { epoch, rows: Vec::new(), queues: Vec::new() };
        let mut keys = Vec::new();
        for need in needs {
            match need {
                Need::Row(key) => keys.push(key),
                Need::Queue(se) => fetched.queues.push((se, slices::whole_queue(self, se).await?)),
            }
        }
        let reads = self.known(|known| fetching::reads(known, keys))?;
        let mut work: Vec<BoxFuture<'_, Result<FetchedRows>>> = Vec::with_capacity(reads.len());
        for read in reads {
            work.push(read.run(&self.cluster).boxed());
        }
        let found = Cluster::all(work).await?;
        fetched.rows = found.into_iter().flatten().collect();
        Ok(fetched)
    }

    /// Fetches the needed rows, then reads the log up to its present head, then caches the rows.
    async fn learn(&self, needs: BTreeSet<Need>, epoch: u64) -> Result<()> {
        self.cluster.figures.round();
        let fetched = self.fetch(needs, epoch).await?;
        self.check().await?;
        let mut known = self.known.lock();
        for (se, rows) in fetched.queues {
            known.fetched_queue(fetched.epoch, se, rows);
        }
        known.fetched(fetched.epoch, fetched.rows);
        Ok(())
    }

    /// Answers from one state: that of the head at some moment after this call.
    pub async fn answer<T>(&self, ask: impl Fn(&Look<'_>) -> Result<T>) -> Result<T> {
        self.answer_at(Consistency::Latest, ask).await
    }

    /// Answers from one state, as old as the level allows. Rows are fetched and checked against the
    /// log as for any other answer.
    pub async fn answer_at<T>(&self, level: Consistency, ask: impl Fn(&Look<'_>) -> Result<T>) -> Result<T> {
        self.still_open()?;
        let mut checked = self.freshen(level).await?;
        for _ in 0..ROUNDS_MAX {
            self.still_open()?;
            let (result, needs, epoch) = self.known(|known| {
                let look = Look::new(known, None);
                let result = ask(&look);
                (result, look.needs(), known.epoch())
            });
            if !needs.is_empty() {
                self.learn(needs, epoch).await?;
                checked = true;
            } else if checked {
                return result;
            } else {
                self.check().await?;
                checked = true;
            }
        }
        Err(failed("be read", "what was asked for changes too fast, ask again"))
    }

    /// Answers about a slice whose rows were fetched since `epoch`. Returns none if `ask` needs
    /// more rows, and [`Again`] if the rows must be fetched again.
    pub async fn answer_slice<T>(
        &self,
        epoch: u64,
        ask: impl Fn(&Look<'_>) -> Result<Option<T>>,
    ) -> Result<std::result::Result<Option<T>, Again>> {
        self.check().await?;
        for _ in 0..ROUNDS_MAX {
            self.still_open()?;
            let (result, needs, now) = self.known(|known| {
                let look = Look::new(known, None);
                let result = (known.epoch() == epoch).then(|| ask(&look));
                (result, look.needs(), known.epoch())
            });
            if now != epoch {
                return Ok(Err(Again));
            }
            if needs.is_empty() {
                return result.transpose().map(|found| Ok(found.flatten()));
            }
            self.learn(needs, epoch).await?;
        }
        Err(failed("be read", "what was asked for changes too fast, ask again"))
    }

    /// Reports that all children of a directory were read. The cache keeps them if the directory is
    /// listed repeatedly.
    pub fn listed(&self, epoch: u64, directory: DirId, rows: &[(Key, Arc<Row>)]) {
        self.known.lock().listed(epoch, directory, rows);
    }

    // ---- writing ----

    /// Takes requests until no sender is left.
    pub async fn run(
        self: Arc<Self>,
        mut requests: mpsc::Receiver<Waiting>,
        again: mpsc::WeakSender<Waiting>,
    ) {
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        let mut settler = Settler::new(self.clone());
        loop {
            if waiting.is_empty() {
                let next = match settler.when_idle() {
                    None => requests.recv().await,
                    Some(pause) => match tokio::time::timeout(pause, requests.recv()).await {
                        Ok(next) => next,
                        Err(_) => {
                            settler.idle().await;
                            continue;
                        }
                    },
                };
                match next {
                    Some(request) => waiting.push_back(request),
                    None => break,
                }
            }
            take_waiting(&mut requests, &mut waiting);
            self.clone().hand_over(&mut waiting, &again);
            if waiting.is_empty() {
                continue;
            }
            // `notify_one` keeps a permit: the filter task may begin to wait later.
            self.decides.notify_one();
            self.give_way().await;
            take_waiting(&mut requests, &mut waiting);
            if let Some(why) = self.closed() {
                for one in waiting.drain(..) {
                    let error = one.not_done(&why);
                    let _ = one.answer.send(Err(error));
                }
                continue;
            }
            if let Err(failure) = self.clone().group(&mut waiting, &mut settler).await {
                self.give_up(&mut waiting, failure);
                tokio::time::sleep(ATTEMPT_PAUSE).await;
            }
        }
        // Flush before ending, if possible: otherwise another server would have to do it.
        if let Err(error) = settler.finish().await {
            tracing::warn!(%error, "the last changes are in the log, and not in the tables: the next server writes them there");
        }
    }

    /// Forwards requests to the server that appends for all, if that is another one.
    fn hand_over(self: Arc<Self>, waiting: &mut VecDeque<Waiting>, again: &mpsc::WeakSender<Waiting>) {
        if let Some(id) = self.peers.to_meet(Instant::now()) {
            let engine = self.clone();
            tokio::spawn(async move { engine.peers.meet(&engine.cluster, id).await });
        }
        let Some(link) = self.peers.link() else { return };
        // None once the store is closed: then this server carries out the rest itself.
        let Some(again) = again.upgrade() else { return };
        let (mine, others): (VecDeque<_>, VecDeque<_>) =
            waiting.drain(..).partition(|one| !one.asked_elsewhere && one.outcomes.is_empty());
        *waiting = others;
        for one in mine {
            tokio::spawn(self.clone().asked(link.clone(), one, again.clone()));
        }
    }

    /// Forwards a request. If the other server does not answer, this server carries it out.
    async fn asked(self: Arc<Self>, link: Arc<Link>, mut one: Waiting, again: mpsc::Sender<Waiting>) {
        match link.ask(&one.request).await {
            Some(Ok(outcomes)) => {
                self.cluster.figures.handed_over();
                let newest = outcomes.iter().filter_map(revision_of).max();
                self.answered.fetch_max(newest.map_or(0, |newest| newest.0), SeqCst);
                let _ = one.answer.send(Ok(outcomes));
            }
            Some(Err(error @ (ApplyError::TooLarge(_) | ApplyError::Conflict(_)))) => {
                let _ = one.answer.send(Err(error));
            }
            Some(Err(_)) | None => {
                self.peers.leave(&link);
                one.asked_elsewhere = true;
                // If this fails, the client gets `Unknown`, because its answer channel is dropped.
                let _ = again.send(one).await;
            }
        }
    }

    /// Backs off: lets other servers append first, until they did or their time is over. Reads
    /// their groups meanwhile. A failed read is ignored here, because the append meets the same
    /// failure.
    async fn give_way(&self) {
        let mut waited = false;
        while let Some(left) = self.turns.wait(Instant::now()) {
            waited = true;
            tokio::time::sleep(left.min(TURN_LOOK_EVERY)).await;
            if self.check().await.is_err() {
                break;
            }
        }
        if waited {
            self.cluster.figures.gave_way();
        }
    }

    /// Answers every waiting request with an error.
    fn give_up(&self, waiting: &mut VecDeque<Waiting>, failure: Failure) {
        let (error, appended) = match failure {
            Failure::Before(error) => (error, 0),
            Failure::Unknown { error, requests } => (error, requests),
        };
        tracing::error!(%error, "requests could not be carried out");
        for (number, one) in waiting.drain(..).enumerate() {
            let error = match number < appended {
                true => ApplyError::Unknown(error.message.clone()),
                false => one.not_done(&error.message),
            };
            let _ = one.answer.send(Err(error));
        }
    }

    /// Decides one commit group and appends it to the log.
    async fn group(
        self: Arc<Self>,
        waiting: &mut VecDeque<Waiting>,
        settler: &mut Settler,
    ) -> std::result::Result<(), Failure> {
        // Other servers use clocks of their own. The time of their changes counts as observed here.
        self.clock.witness(self.known(|known| known.totals().time));
        let committed = {
            let now = || self.clock.trusted();
            let decide = |known: &Known, most| decide_group(known, waiting, now(), most);
            self.clone().commit(decide, settler).await
        };
        answer_done(waiting, committed?.outcomes);
        Ok(())
    }

    /// Appends changes that were made elsewhere, as many as fit into one group, and returns that
    /// number. They follow the last change.
    pub async fn take_over(self: Arc<Self>, changes: &[Change], settler: &mut Settler) -> Result<usize> {
        let decide = |known: &Known, most| replay_group(known, changes, most);
        match self.commit(decide, settler).await {
            Ok(decided) => Ok(decided.changes.len()),
            Err(Failure::Before(error) | Failure::Unknown { error, .. }) => Err(error),
        }
    }

    /// Decides a group, fetching rows until none is missing, and appends it to the log.
    async fn commit(
        self: Arc<Self>,
        decide: impl Fn(&Known, usize) -> std::result::Result<Decided, String>,
        settler: &mut Settler,
    ) -> std::result::Result<Decided, Failure> {
        let mut checked = false;
        let mut rounds = 0;
        loop {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err(Failure::Before(failed("be decided on", "others are faster, ask again")));
            }
            // The rows for many changes may not fit into the cache together: then try fewer
            // changes.
            let most = GROUP_CHANGES_MAX >> (rounds / ROUNDS_PER_SIZE).min(16);
            let mut decided = match self.known(|known| decide(known, most.max(1))) {
                Ok(decided) => decided,
                Err(defect) => {
                    let why = format!("the tables contradict themselves, exacat fsck says more: {defect}");
                    return Err(Failure::Before(Error::new(ErrorKind::Corrupt, why)));
                }
            };
            // The rules ran without these rows: discard the result, fetch all of them at once, and
            // decide again.
            if !decided.needs.is_empty() {
                let needs = std::mem::take(&mut decided.needs);
                self.learn(needs, decided.epoch).await.map_err(Failure::Before)?;
                checked = true;
                continue;
            }
            // Without a change nothing is appended, so no condition confirms the head. One read of
            // it must follow the request: the outcome would be of an older state otherwise.
            let (Some(first), Some(last)) = (decided.changes.first(), decided.changes.last()) else {
                if checked {
                    return Ok(decided);
                }
                self.check().await.map_err(Failure::Before)?;
                checked = true;
                continue;
            };
            let (first, last) = (first.revision, last.revision);
            // Bounds the lag of the tables, because a server that opens reads as much of the log.
            settler.make_room().await.map_err(Failure::Before)?;
            let (head, tail) = self.known(Known::end);
            let tail = match tail {
                Some(tail) if head == decided.head => tail,
                // The group was decided on another head than the present one, or the tail is not
                // known yet.
                _ => {
                    self.check().await.map_err(Failure::Before)?;
                    checked = true;
                    continue;
                }
            };
            let position = Position { head, ..*self.position.lock() };
            let images = decided.images();
            let appending = Appending::new(
                position,
                tail,
                self.peers.id,
                &decided.changes,
                &images,
                self.settings.stretch_changes,
            )
            .map_err(Failure::Before)?;
            let began = Instant::now();
            let appended = appending.append(&self.cluster).await;
            let requests = decided.outcomes.len();
            match appended.map_err(|error| Failure::Unknown { error, requests })? {
                // Another group came first: read it, and decide again on its result.
                Appended::Lost => {
                    self.cluster.figures.lost();
                    self.check().await.map_err(Failure::Before)?;
                    checked = true;
                }
                Appended::Done => {
                    self.cluster.figures.group(decided.changes.len());
                    self.turns.own(began);
                    let (id, before) = appending.link();
                    let (by, bytes) = (self.peers.id, appending.images_bytes());
                    let group = Group { first, last, id, before: Some(before), by, images, bytes };
                    self.install(&group).map_err(|error| Failure::Unknown { error, requests })?;
                    self.moved.notify_waiters();
                    // This append filled its segment. Begin the next one now, so that no reader has
                    // to.
                    if appending.sealed() {
                        self.begin_stretch(last, id).await;
                    }
                    settler.appended(first, last).await;
                    return Ok(decided);
                }
            }
        }
    }

    /// Begins the log segment after a full one. If this fails, the next read of the log head does
    /// it.
    async fn begin_stretch(&self, last: Revision, tail: GroupId) {
        let next = last.0 + 1;
        match log::begin(&self.cluster, next, Some(tail)).await {
            Ok(()) => {
                let mut position = self.position.lock();
                position.stretch = position.stretch.max(next);
            }
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
        let settled = self.known(Known::settled);
        let Some(kept) = self.settings.history_kept_ms else { return Ok(()) };
        let before = TimeMs(self.clock.trusted().0.saturating_sub(kept));
        retention::drop_stretches(&self.cluster, before, settled).await
    }

    /// Flushes: writes the changes that are only in the log to the tables. Returns the position up
    /// to which the tables are then complete.
    pub(crate) async fn settle(&self) -> Result<Revision> {
        // On another branch nothing may reach the tables: they belong to the log of the cluster.
        if self.diverged.load(SeqCst) {
            return Err(failed("be written to", "its log is another branch of the history"));
        }
        let Some(frozen) = self.known.lock().freeze() else { return Ok(self.known(Known::settled)) };
        settle(&self.cluster, &frozen).await?;
        self.known.lock().settle(frozen.up_to);
        let stretch = {
            let mut position = self.position.lock();
            position.settled = position.settled.max(frozen.up_to);
            position.stretch
        };
        self.cluster.figures.settled();
        // Last: the log may claim only rows that are in the tables already.
        log::settled(&self.cluster, stretch, frozen.up_to).await?;
        Ok(frozen.up_to)
    }

    /// Fills the filter once this server carries out requests itself. A server that forwards all of
    /// them has no use for it.
    pub async fn fill_filter_when_needed(self: Arc<Self>) {
        self.decides.notified().await;
        self.fill_filter().await;
    }

    /// Fills the filter with every key of the tables. Drops it if the tables have too many keys.
    pub async fn fill_filter(self: Arc<Self>) {
        let room = self.known(|known| Some((known.filter_room()?, known.totals())));
        let Some((room, totals)) = room else { return };
        if totals.entries.saturating_mul(FILTER_KEYS_PER_ENTRY) > room {
            self.known.lock().drop_filter();
            return;
        }
        let filled = slices::each_key(&self.cluster, |keys| self.known.lock().filter_has(keys)).await;
        match filled {
            Ok(()) => self.known.lock().filter_is_whole(),
            Err(error) => {
                tracing::warn!(%error, "what is in the tables could not be looked through: whether something is new is read each time");
                self.known.lock().drop_filter();
            }
        }
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

/// Reads the head of a log segment at this level. None if the segment is full, or the replicas that
/// answered have nothing of it.
async fn glimpse(cluster: &Cluster, stretch: u64, level: Consistency) -> Result<Option<Revision>> {
    let bound = Bound {
        text: cql!("SELECT head, next FROM log WHERE stretch = ? LIMIT 1"),
        values: vec![tables::big(stretch)],
    };
    let Some(mut row) = cluster.read_one_at(&bound, level).await? else { return Ok(None) };
    let (head, next) = (row.maybe_big()?, row.maybe_big()?);
    Ok(head.filter(|_| next.is_none()).map(Revision))
}

/// Error: the rows of a slice must be fetched again.
pub(crate) struct Again;

/// Reason why a group was not appended.
enum Failure {
    /// Nothing of it was done, or will be.
    Before(Error),
    /// The group may be in the log, with mutations of the first `requests` requests.
    Unknown { error: Error, requests: usize },
}
