//! One server's part: it follows the log, fetches what is asked for, and puts groups into the log, one after the other.
//!
//! ```text
//!   requests ─► decide on what is known ◄── fetch what is not, read the log up to its head
//!                     │
//!                     ▼
//!        make sure that the group before is in the tables
//!                     │
//!                     ▼
//!        append, if the head is what it was ── lost ─► read the log, decide again
//!                     │
//!                     ├─► answers
//!                     └─► the tables
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use exacat_model::{Error, ErrorKind, Result, Revision, SeNumber};
use exacat_store::{ApplyError, Clock};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::cluster::{Cluster, Faults, failed};
use crate::deciding::{Waiting, decide_group};
use crate::known::{Group, Known};
use crate::limits::{ATTEMPT_PAUSE, GROUP_CHANGES_MAX, ROUNDS_MAX};
use crate::log::{self, Appended, Appending, Position};
use crate::rows::{Key, Row};
use crate::settings::CassandraSettings;
use crate::settle::settle;
use crate::slices;
use crate::tables::{self, Columns};
use crate::working::{Look, Need};

/// Rows as the tables have them; none where there is none.
type FetchedRows = Vec<(Key, Option<Row>)>;

/// What was fetched, and not compared with the log yet.
struct Fetched {
    epoch: u64,
    rows: FetchedRows,
    queues: Vec<(SeNumber, FetchedRows)>,
}

/// A group on its way to the tables: its last change, and the stretch that begins after it, if it filled the one before.
type Settling = tokio::task::JoinHandle<Result<(Revision, Option<u64>)>>;

/// What this server is and knows.
pub(crate) struct Engine {
    pub cluster: Cluster,
    pub clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    position: Mutex<Position>,
    last_group: Mutex<Arc<Group>>,
    /// Looks at the head that were begun.
    looks: AtomicU64,
    /// The last of them that succeeded.
    looking: tokio::sync::Mutex<u64>,
    pub moved: Notify,
    stretch_changes: u64,
    closed: Mutex<Option<String>>,
}

impl Engine {
    /// Finds the end of the log and what must always be known.
    pub async fn open(
        settings: &CassandraSettings,
        clock: Arc<dyn Clock>,
        faults: Option<Arc<dyn Faults>>,
    ) -> Result<Self> {
        let cluster = Cluster::open(settings, faults).await?;
        let stretches = log::stretches(&cluster).await?;
        let Some(stretch) = stretches.last().copied() else {
            return Err(Error::new(ErrorKind::Corrupt, "the log has no beginning"));
        };
        // Serial: whoever opens sees what was appended before, however the append ended.
        let position = log::position(&cluster, stretch, true).await?;
        let mut group = log::last_group(&cluster, position.stretch).await?;
        if group.is_none() && position.head.0 > 0 {
            let before = stretches.iter().rev().find(|first| **first < position.stretch);
            group = match before {
                Some(before) => log::last_group(&cluster, *before).await?,
                None => None,
            };
        }
        let group = group.unwrap_or_default();
        if group.last < position.head {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("the log ends with change {}, its head says {}", group.last.0, position.head.0),
            ));
        }
        let position = Position { head: group.last, ..position };
        // Records before the group that may not be in the tables.
        let mut known = Known::new(Revision(group.first.0.saturating_sub(1)), settings.rows_known);
        for (key, row) in slices::all_records(&cluster).await? {
            known.insert_record(key, row);
        }
        known.install(&group);
        let engine = Engine {
            cluster,
            clock,
            known: Mutex::new(known),
            position: Mutex::new(position),
            last_group: Mutex::new(Arc::new(group)),
            looks: AtomicU64::new(0),
            looking: tokio::sync::Mutex::new(0),
            moved: Notify::new(),
            stretch_changes: settings.stretch_changes,
            closed: Mutex::new(None),
        };
        engine.check().await?;
        Ok(engine)
    }

    /// Why nothing more is done, if that is so.
    pub fn closed(&self) -> Option<String> {
        self.closed.lock().clone()
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

    pub fn known<T>(&self, see: impl FnOnce(&Known) -> T) -> T {
        see(&self.known.lock())
    }

    /// Reads the log up to the head as it is after this was called. Those who call it together share one look.
    pub async fn check(&self) -> Result<()> {
        let before = self.looks.load(SeqCst);
        let mut succeeded = self.looking.lock().await;
        if *succeeded > before {
            // Somebody began to look after this was called, and is done.
            return Ok(());
        }
        let this = self.looks.fetch_add(1, SeqCst) + 1;
        let position = *self.position.lock();
        let end = log::position(&self.cluster, position.stretch, false).await?;
        self.follow(position.stretch, end).await?;
        *succeeded = this;
        Ok(())
    }

    async fn follow(&self, mut stretch: u64, end: Position) -> Result<()> {
        let before = self.known(Known::head);
        while self.known(Known::head) < end.head {
            let head = self.known(Known::head);
            for group in log::groups(&self.cluster, stretch, head).await? {
                self.install(group)?;
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
        drop(position);
        if self.known(Known::head) > before {
            self.moved.notify_waiters();
        }
        Ok(())
    }

    fn install(&self, group: Group) -> Result<()> {
        let mut known = self.known.lock();
        let is_new = group.last > known.head();
        if !known.install(&group) {
            let why = format!("the log has change {} and not all before it", group.first.0);
            return Err(Error::new(ErrorKind::Corrupt, why));
        }
        if is_new {
            *self.last_group.lock() = Arc::new(group);
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
        fetched.rows = Cluster::all(keys.into_iter().map(|key| async move {
            let Some(bound) = tables::select(&key) else {
                return Err(Error::new(ErrorKind::Corrupt, format!("{key:?} is never read alone")));
            };
            let rows = self.cluster.slice(&bound, None).await?.rows;
            let row =
                rows.into_iter().next().map(|row| tables::row_of(&key, Columns::new(row))).transpose()?;
            Ok((key, row))
        }))
        .await?;
        Ok(fetched)
    }

    /// Fetches what is needed, and takes it in once the log was read up to where it was after that.
    async fn learn(&self, needs: BTreeSet<Need>, epoch: u64) -> Result<()> {
        let fetched = self.fetch(needs, epoch).await?;
        self.check().await?;
        let mut known = self.known.lock();
        for (se, rows) in fetched.queues {
            known.fetched_queue(fetched.epoch, se, rows);
        }
        known.fetched(fetched.epoch, fetched.rows);
        Ok(())
    }

    /// Answers from one state: that of the head, at some moment after this was called.
    pub async fn answer<T>(&self, ask: impl Fn(&Look<'_>) -> Result<T>) -> Result<T> {
        let mut checked = false;
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

    /// The same for a slice, of which `rows` were fetched since `epoch`: none if `ask` says that these are too few, or if they must be
    /// fetched again.
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

    // ---- writing ----

    /// Takes requests as they come, until nobody can send any more.
    pub async fn run(self: Arc<Self>, mut requests: mpsc::Receiver<Waiting>) {
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        let mut settling: Option<Settling> = None;
        loop {
            if waiting.is_empty() {
                match requests.recv().await {
                    Some(request) => waiting.push_back(request),
                    None => break,
                }
            }
            while waiting.len() < GROUP_CHANGES_MAX {
                match requests.try_recv() {
                    Ok(request) => waiting.push_back(request),
                    Err(_) => break,
                }
            }
            if let Some(why) = self.closed() {
                for one in waiting.drain(..) {
                    let error = if one.outcomes.is_empty() {
                        ApplyError::Unavailable(why.clone())
                    } else {
                        ApplyError::Unknown(why.clone())
                    };
                    let _ = one.answer.send(Err(error));
                }
                continue;
            }
            if let Err(failure) = self.clone().group(&mut waiting, &mut settling).await {
                self.give_up(&mut waiting, failure);
                tokio::time::sleep(ATTEMPT_PAUSE).await;
            }
        }
        if let Some(settling) = settling {
            let _ = settling.await;
        }
    }

    /// Answers all who wait that it could not be done.
    fn give_up(&self, waiting: &mut VecDeque<Waiting>, failure: Failure) {
        let (error, appended) = match failure {
            Failure::Before(error) => (error, 0),
            Failure::Unknown { error, requests } => (error, requests),
        };
        tracing::error!(%error, "requests could not be carried out");
        for (number, one) in waiting.drain(..).enumerate() {
            let error = if number < appended || !one.outcomes.is_empty() {
                ApplyError::Unknown(error.message.clone())
            } else {
                ApplyError::Unavailable(error.message.clone())
            };
            let _ = one.answer.send(Err(error));
        }
    }

    /// Decides one group and puts it into the log.
    async fn group(
        self: Arc<Self>,
        waiting: &mut VecDeque<Waiting>,
        settling: &mut Option<Settling>,
    ) -> std::result::Result<(), Failure> {
        let mut checked = false;
        let mut rounds = 0;
        loop {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err(Failure::Before(failed("be decided on", "others are faster, ask again")));
            }
            let decided = self.known(|known| decide_group(known, waiting, self.clock.now()));
            let decided = match decided {
                Ok(decided) => decided,
                Err(defect) => {
                    let why = format!("the tables contradict themselves, exacat fsck says more: {defect}");
                    return Err(Failure::Before(Error::new(ErrorKind::Corrupt, why)));
                }
            };
            if !decided.needs.is_empty() {
                self.learn(decided.needs, decided.epoch).await.map_err(Failure::Before)?;
                checked = true;
                continue;
            }
            if decided.changes.is_empty() {
                if checked {
                    answer(waiting, decided.outcomes);
                    return Ok(());
                }
                self.check().await.map_err(Failure::Before)?;
                checked = true;
                continue;
            }
            self.settle_last(settling, decided.head).await.map_err(Failure::Before)?;
            let position = Position { head: decided.head, ..*self.position.lock() };
            let images = decided.images();
            let appending = Appending::new(position, &decided.changes, &images, self.stretch_changes)
                .map_err(Failure::Before)?;
            let appended = appending.append(&self.cluster).await;
            let requests = decided.outcomes.len();
            match appended.map_err(|error| Failure::Unknown { error, requests })? {
                Appended::Lost => {
                    self.cluster.figures.lost();
                    self.check().await.map_err(Failure::Before)?;
                    checked = true;
                }
                Appended::Done => {
                    self.cluster.figures.group(decided.changes.len());
                    let (Some(first), Some(last)) = (decided.changes.first(), decided.changes.last()) else {
                        return Ok(());
                    };
                    let group = Group { first: first.revision, last: last.revision, images };
                    self.install(group.clone()).map_err(|error| Failure::Unknown { error, requests })?;
                    self.moved.notify_waiters();
                    answer(waiting, decided.outcomes);
                    let engine = self.clone();
                    let sealed = appending.sealed();
                    *settling = Some(tokio::spawn(async move {
                        let last = group.last;
                        settle(&engine.cluster, &group).await?;
                        log::settled(&engine.cluster, position.stretch, last).await?;
                        let next = sealed.then_some(last.0 + 1);
                        if let Some(next) = next {
                            log::begin(&engine.cluster, next).await?;
                        }
                        Ok((last, next))
                    }));
                    return Ok(());
                }
            }
        }
    }

    /// Makes sure that everything up to `head` is in the tables: only the last group may not be, and nothing is appended before it is.
    async fn settle_last(&self, settling: &mut Option<Settling>, head: Revision) -> Result<()> {
        if let Some(task) = settling.take() {
            match task.await {
                Ok(Ok((settled, next))) => {
                    let mut position = self.position.lock();
                    position.settled = position.settled.max(settled);
                    position.stretch = position.stretch.max(next.unwrap_or(0));
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a group is not in the tables yet, it is written again")
                }
                Err(error) => tracing::warn!(%error, "a group is not in the tables yet, it is written again"),
            }
        }
        if self.position.lock().settled >= head {
            return Ok(());
        }
        let group = self.last_group.lock().clone();
        if group.last >= head && group.first <= head {
            settle(&self.cluster, &group).await?;
            self.cluster.figures.foreign();
        } else if head.0 > 0 {
            return Err(Error::new(ErrorKind::Corrupt, "the last group of the log is not known"));
        }
        let mut position = self.position.lock();
        position.settled = position.settled.max(head);
        Ok(())
    }
}

/// The rows of a slice have to be fetched again.
pub(crate) struct Again;

/// Why a group did not come about.
enum Failure {
    /// Nothing of it was or will be done.
    Before(Error),
    /// It may be in the log, with mutations of so many of the requests.
    Unknown { error: Error, requests: usize },
}

/// Gives those their answers whose mutations are all done with.
fn answer(waiting: &mut VecDeque<Waiting>, outcomes: Vec<Vec<exacat_store::Outcome>>) {
    let mut unfinished = VecDeque::new();
    for outcomes in outcomes {
        let Some(mut one) = waiting.pop_front() else { break };
        one.outcomes.extend(outcomes);
        if one.outcomes.len() >= one.request.mutations.len() {
            let _ = one.answer.send(Ok(one.outcomes));
        } else {
            unfinished.push_back(one);
        }
    }
    // Only the last that was looked at can be unfinished.
    while let Some(one) = unfinished.pop_back() {
        waiting.push_front(one);
    }
}
