//! Reader: answers questions on the row cache, and fetches the rows that are missing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use exacat_activity::{RequestState, on};
use exacat_model::{Consistency, Result, Revision, SeNumber};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::cluster::{Cluster, failed};
use crate::fetching::{self, FetchedRows};
use crate::follower::Follower;
use crate::limits::ROUNDS_MAX;
use crate::row_cache::RowCache;
use crate::slice::whole_queue;
use crate::working::{CacheView, Need};

/// Part of a server that answers questions.
pub(crate) struct Reader {
    pub follower: Arc<Follower>,
    /// Newest change that another server made for a client of this one, if the client has the
    /// answer.
    answered: AtomicU64,
    /// Reads of the log head for bounded-staleness answers: one at a time per level.
    polling: [tokio::sync::Mutex<()>; 2],
}

/// Fetched rows that were not compared with the log yet.
struct Fetched {
    epoch: u64,
    rows: FetchedRows,
    queues: Vec<(SeNumber, FetchedRows)>,
}

/// Error: the rows of a slice must be fetched again.
pub(crate) struct Again;

impl Reader {
    pub(crate) fn new(follower: Arc<Follower>) -> Self {
        Reader { follower, answered: AtomicU64::new(0), polling: Default::default() }
    }

    /// Notes that a client has the answer of a change that another server made.
    pub(crate) fn note_answered(&self, newest: Revision) {
        self.answered.fetch_max(newest.0, SeqCst);
    }

    /// Makes the row cache as fresh as `level` requires. False for `latest`, which always reads the
    /// log head itself.
    async fn refresh(&self, level: Consistency) -> Result<bool> {
        self.follower.freshness.count_requested(level);
        let polling = match level {
            Consistency::Latest => return Ok(false),
            // A client must see its own forwarded change, whichever server made it.
            _ if self.follower.cache(RowCache::head).0 < self.answered.load(SeqCst) => {
                return self.follower.catch_up().await.map(|()| true);
            }
            _ if self.follower.freshness.is_fresh(level, Instant::now()) => {
                self.follower.freshness.answered_without_head_read();
                return Ok(true);
            }
            Consistency::Quorum => return self.follower.catch_up().await.map(|()| true),
            Consistency::LocalQuorum => &self.polling[0],
            Consistency::One => &self.polling[1],
        };
        let _one = polling.lock().await;
        if !self.follower.freshness.is_fresh(level, Instant::now()) {
            self.follower.poll(level).await?;
        }
        Ok(true)
    }

    async fn fetch(&self, needs: BTreeSet<Need>, epoch: u64) -> Result<Fetched> {
        let mut fetched = Fetched { epoch, rows: Vec::new(), queues: Vec::new() };
        let mut keys = Vec::new();
        for need in needs {
            match need {
                Need::Row(key) => keys.push(key),
                Need::Queue(se) => fetched.queues.push((se, whole_queue(&self.follower, se).await?)),
            }
        }
        let reads = self.follower.cache(|cache| fetching::reads(cache, keys))?;
        let mut work: Vec<BoxFuture<'_, Result<FetchedRows>>> = Vec::with_capacity(reads.len());
        for read in reads {
            work.push(read.run(&self.follower.cluster).boxed());
        }
        let found = Cluster::all(work).await?;
        fetched.rows = found.into_iter().flatten().collect();
        Ok(fetched)
    }

    /// Fetches the needed rows, then reads the log up to its present head, then caches the rows.
    pub(crate) async fn learn(&self, needs: BTreeSet<Need>, epoch: u64) -> Result<()> {
        self.follower.cluster.metrics.round();
        let fetched = self.fetch(needs, epoch).await?;
        self.follower.catch_up().await?;
        self.follower.change_cache(|cache| {
            for (se, rows) in fetched.queues {
                cache.fetched_queue(fetched.epoch, se, rows);
            }
            cache.fetched(fetched.epoch, fetched.rows);
        });
        Ok(())
    }

    /// Answers from one state: that of the head at some moment after this call.
    pub(crate) async fn answer<T>(&self, ask: impl Fn(&CacheView<'_>) -> Result<T>) -> Result<T> {
        self.answer_at(Consistency::Latest, ask).await
    }

    /// Answers from one state, as old as the level allows. Rows are fetched and checked against the
    /// log as for any other answer.
    pub(crate) async fn answer_at<T>(
        &self,
        level: Consistency,
        ask: impl Fn(&CacheView<'_>) -> Result<T>,
    ) -> Result<T> {
        self.follower.still_open()?;
        let mut caught_up = on(RequestState::ClusterRead, self.refresh(level)).await?;
        for _ in 0..ROUNDS_MAX {
            self.follower.still_open()?;
            let (result, needs, epoch) = self.follower.cache(|cache| {
                let view = CacheView::new(cache, None);
                let result = ask(&view);
                (result, view.needs(), cache.epoch())
            });
            if !needs.is_empty() {
                on(RequestState::ClusterRead, self.learn(needs, epoch)).await?;
                caught_up = true;
            } else if caught_up {
                return result;
            } else {
                on(RequestState::ClusterRead, self.follower.catch_up()).await?;
                caught_up = true;
            }
        }
        Err(failed("be read", "the requested rows change too fast, retry"))
    }

    /// Answers about a slice whose rows were fetched since `epoch`. Returns none if `ask` needs
    /// more rows, and [`Again`] if the rows must be fetched again.
    pub(crate) async fn answer_slice<T>(
        &self,
        epoch: u64,
        ask: impl Fn(&CacheView<'_>) -> Result<Option<T>>,
    ) -> Result<std::result::Result<Option<T>, Again>> {
        on(RequestState::ClusterRead, self.follower.catch_up()).await?;
        for _ in 0..ROUNDS_MAX {
            self.follower.still_open()?;
            let (result, needs, now) = self.follower.cache(|cache| {
                let view = CacheView::new(cache, None);
                let result = (cache.epoch() == epoch).then(|| ask(&view));
                (result, view.needs(), cache.epoch())
            });
            if now != epoch {
                return Ok(Err(Again));
            }
            if needs.is_empty() {
                return result.transpose().map(|found| Ok(found.flatten()));
            }
            on(RequestState::ClusterRead, self.learn(needs, epoch)).await?;
        }
        Err(failed("be read", "the requested rows change too fast, retry"))
    }
}
