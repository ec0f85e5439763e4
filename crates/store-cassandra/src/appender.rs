//! Appender: decides waiting requests in commit groups, and appends the groups one by one.
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

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{Change, Error, ErrorKind, Result};
use exacat_store::ApplyError;
use tokio::sync::mpsc;

use crate::cluster::failed;
use crate::deciding::{Decided, Waiting, answer_done, decide_group, replay_group, revision_of, take_waiting};
use crate::flusher::Flusher;
use crate::follower::Follower;
use crate::limits::{BACKOFF_POLL_EVERY, GROUP_CHANGES_MAX, ROUNDS_MAX, ROUNDS_PER_SIZE};
use crate::log::{Appended, Appending, Position};
use crate::maintenance::Maintenance;
use crate::peers::Link;
use crate::reader::Reader;
use crate::retry;
use crate::row_cache::{Group, RowCache};
use crate::spent::{Spent, timed};

/// Part of a server that appends. The tables follow by its flusher.
pub(crate) struct Appender {
    follower: Arc<Follower>,
    reader: Arc<Reader>,
    maintenance: Arc<Maintenance>,
    flusher: Flusher,
    /// Times of the steps of the present group.
    spent: Spent,
}

/// Reason why a group was not appended.
enum Failure {
    /// Nothing of it was done, or will be.
    Before(Error),
    /// The group may be in the log, with mutations of the first `requests` requests.
    Unknown { error: Error, requests: usize },
}

impl Appender {
    pub(crate) fn new(reader: Arc<Reader>, maintenance: Arc<Maintenance>) -> Self {
        let flusher = Flusher::new(maintenance.clone());
        let follower = reader.follower.clone();
        Appender { follower, reader, maintenance, flusher, spent: Spent::default() }
    }

    /// Takes requests until no sender is left.
    pub(crate) async fn run(
        mut self,
        mut requests: mpsc::Receiver<Waiting>,
        again: mpsc::WeakSender<Waiting>,
    ) {
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        loop {
            if waiting.is_empty() {
                let next = match self.flusher.when_idle() {
                    None => requests.recv().await,
                    Some(pause) => match tokio::time::timeout(pause, requests.recv()).await {
                        Ok(next) => next,
                        Err(_) => {
                            self.flusher.idle().await;
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
            self.forward(&mut waiting, &again);
            if waiting.is_empty() {
                continue;
            }
            self.maintenance.decides();
            let backed_off = self.back_off().await;
            // Requests that came meanwhile waited less: their time is in the queue.
            waiting.iter_mut().for_each(|one| one.spent.peer += backed_off);
            take_waiting(&mut requests, &mut waiting);
            if let Some(why) = self.follower.closed() {
                for one in waiting.drain(..) {
                    let error = one.not_done(&why);
                    one.answer(Err(error));
                }
                continue;
            }
            if let Err(failure) = self.group(&mut waiting).await {
                self.give_up(&mut waiting, failure);
                retry::pause().await;
            }
        }
        // Flush before ending, if possible: otherwise another server would have to do it.
        if let Err(error) = self.flusher.finish().await {
            tracing::warn!(%error, "the last changes are in the log, and not in the tables: the next server writes them there");
        }
    }

    /// Forwards requests to the server that appends for all, if that is another one.
    fn forward(&self, waiting: &mut VecDeque<Waiting>, again: &mpsc::WeakSender<Waiting>) {
        if let Some(id) = self.follower.peers.to_meet(Instant::now()) {
            let follower = self.follower.clone();
            tokio::spawn(async move { follower.peers.meet(&follower.cluster, id).await });
        }
        let Some(link) = self.follower.peers.link() else { return };
        // None once the store is closed: then this server carries out the rest itself.
        let Some(again) = again.upgrade() else { return };
        let (mine, others): (VecDeque<_>, VecDeque<_>) =
            waiting.drain(..).partition(|one| !one.forwarded && one.outcomes.is_empty());
        *waiting = others;
        for one in mine {
            tokio::spawn(forward_one(self.reader.clone(), link.clone(), one, again.clone()));
        }
    }

    /// Backs off: lets other servers append first, until they did or their time is over. Reads
    /// their groups meanwhile. A failed read is ignored here, because the append meets the same
    /// failure. Returns the time that it took.
    async fn back_off(&self) -> Duration {
        let (mut waited, began) = (false, Instant::now());
        while let Some(left) = self.follower.backoff.wait(Instant::now()) {
            waited = true;
            tokio::time::sleep(left.min(BACKOFF_POLL_EVERY)).await;
            if self.follower.catch_up().await.is_err() {
                break;
            }
        }
        if !waited {
            return Duration::ZERO;
        }
        self.follower.cluster.metrics.backed_off();
        began.elapsed()
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
            one.answer(Err(error));
        }
    }

    /// Decides one commit group and appends it to the log.
    async fn group(&mut self, waiting: &mut VecDeque<Waiting>) -> std::result::Result<(), Failure> {
        // Other servers use clocks of their own. The time of their changes counts as observed here.
        self.follower.clock.witness(self.follower.cache(|cache| cache.totals().time));
        self.spent = Spent::default();
        let committed = {
            let clock = self.follower.clock.clone();
            let decide = |cache: &RowCache, most| decide_group(cache, waiting, clock.trusted(), most);
            self.commit(decide).await
        };
        // After a failure each waiting request is answered.
        let concerned = committed.as_ref().map_or(waiting.len(), |decided| decided.outcomes.len());
        waiting.iter_mut().take(concerned).for_each(|one| one.spent.add(&self.spent));
        answer_done(waiting, committed?.outcomes);
        Ok(())
    }

    /// Appends changes that were made elsewhere, as many as fit into one group, and returns that
    /// number. They follow the last change.
    pub(crate) async fn take_over(&mut self, changes: &[Change]) -> Result<usize> {
        let decide = |cache: &RowCache, most| replay_group(cache, changes, most);
        match self.commit(decide).await {
            Ok(decided) => Ok(decided.changes.len()),
            Err(Failure::Before(error) | Failure::Unknown { error, .. }) => Err(error),
        }
    }

    /// Decides a group, fetching rows until none is missing, and appends it to the log.
    async fn commit(
        &mut self,
        decide: impl Fn(&RowCache, usize) -> std::result::Result<Decided, String>,
    ) -> std::result::Result<Decided, Failure> {
        let mut caught_up = false;
        let mut rounds = 0;
        loop {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err(Failure::Before(failed("be decided on", "other servers are faster, retry")));
            }
            // The rows for many changes may not fit into the cache together: then try fewer
            // changes.
            let most = GROUP_CHANGES_MAX >> (rounds / ROUNDS_PER_SIZE).min(16);
            let began = Instant::now();
            let decided = self.follower.cache(|cache| decide(cache, most.max(1)));
            self.spent.decide += began.elapsed();
            let mut decided = match decided {
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
                let learning = self.reader.learn(needs, decided.epoch);
                timed(&mut self.spent.read, learning).await.map_err(Failure::Before)?;
                caught_up = true;
                continue;
            }
            // Without a change nothing is appended, so no condition confirms the head. One read of
            // it must follow the request: the outcome would be of an older state otherwise.
            let (Some(first), Some(last)) = (decided.changes.first(), decided.changes.last()) else {
                if caught_up {
                    return Ok(decided);
                }
                timed(&mut self.spent.read, self.follower.catch_up()).await.map_err(Failure::Before)?;
                caught_up = true;
                continue;
            };
            let (first, last) = (first.revision, last.revision);
            // Bounds the lag of the tables, because a server that opens reads as much of the log.
            timed(&mut self.spent.tables, self.flusher.make_room()).await.map_err(Failure::Before)?;
            let (head, tail) = self.follower.cache(RowCache::end);
            let tail = match tail {
                Some(tail) if head == decided.head => tail,
                // The group was decided on another head than the present one, or the tail was
                // not read yet.
                _ => {
                    timed(&mut self.spent.read, self.follower.catch_up()).await.map_err(Failure::Before)?;
                    caught_up = true;
                    continue;
                }
            };
            let position = Position { head, ..self.follower.position() };
            let after_images = decided.after_images();
            let appending = Appending::new(
                position,
                tail,
                self.follower.peers.id,
                &decided.changes,
                &after_images,
                self.follower.settings.segment_changes,
            )
            .map_err(Failure::Before)?;
            let began = Instant::now();
            let appended = timed(&mut self.spent.append, appending.append(&self.follower.cluster)).await;
            let requests = decided.outcomes.len();
            match appended.map_err(|error| Failure::Unknown { error, requests })? {
                // Another group came first: read it, and decide again on its result.
                Appended::Lost => {
                    self.follower.cluster.metrics.lost();
                    timed(&mut self.spent.read, self.follower.catch_up()).await.map_err(Failure::Before)?;
                    caught_up = true;
                }
                Appended::Done => {
                    self.follower.cluster.metrics.group(decided.changes.len());
                    self.follower.backoff.own(began);
                    let (id, before) = appending.link();
                    let (by, bytes) = (self.follower.peers.id, appending.after_images_bytes());
                    let group = Group { first, last, id, before: Some(before), by, after_images, bytes };
                    self.follower.install(&group).map_err(|error| Failure::Unknown { error, requests })?;
                    self.follower.moved.notify_waiters();
                    // This append filled its segment. Begin the next one now, so that no reader has
                    // to.
                    if appending.sealed() {
                        timed(&mut self.spent.append, self.maintenance.begin_segment(last, id)).await;
                    }
                    self.flusher.appended(first, last).await;
                    return Ok(decided);
                }
            }
        }
    }

    /// Writes everything to the tables.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.flusher.finish().await
    }
}

/// Forwards a request. If the other server does not answer, this server carries it out.
async fn forward_one(reader: Arc<Reader>, link: Arc<Link>, mut one: Waiting, again: mpsc::Sender<Waiting>) {
    let forwarded = timed(&mut one.spent.peer, link.forward(&one.request)).await;
    match forwarded {
        Some(Ok(outcomes)) => {
            reader.follower.cluster.metrics.forwarded_out();
            let newest = outcomes.iter().filter_map(revision_of).max();
            reader.note_answered(newest.unwrap_or_default());
            one.answer(Ok(outcomes));
        }
        Some(Err(error @ (ApplyError::TooLarge(_) | ApplyError::Conflict(_)))) => {
            one.answer(Err(error));
        }
        Some(Err(_)) | None => {
            reader.follower.peers.leave(&link);
            one.forwarded = true;
            // If this fails, the client gets `Unknown`, because its answer channel is dropped.
            let _ = again.send(one).await;
        }
    }
}
