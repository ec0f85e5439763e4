//! The store: the contract, on an engine.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use exacat_activity::{RequestState, on, split};
use exacat_model::limits::{PAGE_ITEMS_MAX, PAGE_MEMORY_MAX};
use exacat_model::{
    At, Audit, Consistency, Deletion, DeletionId, DirId, Entry, EntryId, Error, ErrorKind, Guid, Lfn,
    Measured, Name, Record, RecordKey, RecordKind, Reservation, Result, Revision, SeNumber, TimeMs,
    TimelineId, Timelines, TrashId, TrashItem,
};
use exacat_store::rules::Top;
use exacat_store::{
    Account, ApplyError, ChangePage, Clock, Due, Located, Outcome, Page, PageInProgress, ReadBytes,
    RecordEntry, ReplicasPage, Request, Resolution, Store, StoreStatus, StoredReplica, Trace, Traces,
    UsageOf, within_batch,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::appender::Appender;
use crate::audit;
use crate::cluster::{Cluster, Faults};
use crate::deciding::{Answer, Answered};
use crate::follower::Follower;
use crate::intake::Intake;
use crate::layout::SE_SHARDS;
use crate::limits::POLL_EVERY;
use crate::maintenance::Maintenance;
use crate::metric_table;
use crate::peers::{self, Serving};
use crate::reader::Reader;
use crate::row_cache::RowCache;
use crate::rows::{Key, Row};
use crate::schema::status_of;
use crate::server_states::{self, OwnState};
use crate::settings::CassandraSettings;
use crate::slice::Slice;
use crate::slices::{self, Enough, Item};
use crate::working::{CacheView, climb, entry_at, find, item, record, reservation, totals};
use crate::{log, preparing, reads};

/// Catalogue on a cluster, as one server of any number of them opens it.
pub struct CassandraStore {
    follower: Arc<Follower>,
    reader: Arc<Reader>,
    intake: Intake,
    maintenance: Arc<Maintenance>,
    /// None if it neither serves other servers nor forwards to them.
    serving: Option<Arc<Serving>>,
    running: Arc<Mutex<Option<tokio::task::JoinHandle<()>>>>,
    /// Background task that makes later requests faster.
    preparing: tokio::task::AbortHandle,
    /// Consistency level of its reads.
    level: Consistency,
    /// A single timeline: servers know of no restore of a cluster.
    timelines: Arc<Timelines>,
    own_state: Arc<OwnState>,
}

impl CassandraStore {
    /// Opens the catalogue in a keyspace. Refuses a keyspace without one, or of an unknown version.
    pub async fn open(settings: CassandraSettings, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        Self::open_with(settings, clock, None).await
    }

    /// Opens the catalogue over a connection that a test can make fail.
    pub async fn open_with(
        settings: CassandraSettings,
        clock: Arc<dyn Clock>,
        faults: Option<Arc<dyn Faults>>,
    ) -> Result<Arc<Self>> {
        let cluster = Cluster::open(&settings, faults).await?;
        let status = status_of(&cluster.session, &settings.keyspace).await?;
        status.usable(&settings)?;
        let catalogue = status.catalogue.map_or([0; 16], |id| id.0);
        let follower = Arc::new(Follower::open(cluster, &settings, clock).await?);
        let reader = Arc::new(Reader::new(follower.clone()));
        let maintenance = Arc::new(Maintenance::new(follower.clone()));
        let (intake, queue, again) = Intake::new(follower.clone());
        let running = tokio::spawn(Appender::new(reader.clone(), maintenance.clone()).run(queue, again));
        let serving = peers::begin(&follower, &intake).await?.map(Arc::new);
        let preparing = tokio::spawn({
            let maintenance = maintenance.clone();
            async move {
                preparing::prepare_all(&maintenance.follower.cluster).await;
                maintenance.fill_filter_when_needed().await;
            }
        })
        .abort_handle();
        Ok(Arc::new(CassandraStore {
            follower,
            reader,
            intake,
            maintenance,
            serving,
            running: Arc::new(Mutex::new(Some(running))),
            preparing,
            level: Consistency::Latest,
            timelines: Arc::new(Timelines::new(TimelineId::of_catalogue(catalogue))),
            own_state: Arc::default(),
        }))
    }

    /// Says whether the tables have all changes that this server has read, and no flush is under way.
    /// Once its requests are answered too, this server sends no write before the next one. For tests
    /// that count statements or lose them.
    pub fn is_at_rest(&self) -> bool {
        self.maintenance.is_at_rest()
    }
}

fn lost() -> ApplyError {
    ApplyError::Unknown("the answer is lost: retry with the same operation id".to_owned())
}

/// Waits for the answer to a request. The wait is in the queue while it lasts, and is divided into the steps
/// of the commit afterwards.
async fn answered(answer: oneshot::Receiver<Answered>) -> Answer {
    let (answer, spent) = on(RequestState::CommitQueue, answer).await.map_err(|_| lost())?;
    split(RequestState::CommitQueue, &spent.parts());
    answer
}

/// Maps the first items of a slice to a page of at most `limit`; `all` says that no other follows.
fn page<T: Measured>(
    items: &[Item<'_>],
    (limit, all): (usize, bool),
    mut each: impl FnMut(&Item<'_>) -> Option<T>,
) -> Page<T> {
    let (mut page, mut items) = (PageInProgress::new(limit, 0), items.iter());
    while !page.is_full()
        && let Some(item) = items.next()
    {
        if let Some(item) = each(item) {
            page.push(item);
        }
    }
    page.end(!all || items.len() > 0)
}

fn bad_cursor() -> Error {
    Error::invalid("not a cursor of a listing of replicas")
}

#[async_trait]
impl Store for CassandraStore {
    async fn apply(&self, request: Request) -> std::result::Result<Vec<Outcome>, ApplyError> {
        let answer = on(RequestState::CommitQueue, self.intake.send(request)).await?;
        answered(answer).await
    }

    async fn apply_each(&self, requests: Vec<Request>) -> Vec<std::result::Result<Vec<Outcome>, ApplyError>> {
        let mut sent = Vec::with_capacity(requests.len());
        for request in requests {
            sent.push(on(RequestState::CommitQueue, self.intake.send(request)).await);
        }
        let mut answers = Vec::with_capacity(sent.len());
        for answer in sent {
            answers.push(match answer {
                Ok(answer) => answered(answer).await,
                Err(error) => Err(error),
            });
        }
        answers
    }

    async fn resolve(&self, paths: &[Lfn]) -> Result<Vec<Resolution>> {
        within_batch(paths.len())?;
        self.reader
            .answer_at(self.level, |view| {
                let mut bytes = ReadBytes::default();
                let resolve = |path| {
                    let resolution = reads::resolve(view, path);
                    bytes.add(resolution.end.entry()).map(|()| resolution)
                };
                paths.iter().map(resolve).collect()
            })
            .await
    }

    async fn locate(&self, ids: &[EntryId]) -> Result<Vec<Option<Located>>> {
        within_batch(ids.len())?;
        self.reader
            .answer_at(self.level, |view| {
                let mut bytes = ReadBytes::default();
                let locate = |id: &EntryId| {
                    let located = reads::locate(view, *id);
                    bytes.add(located.as_ref().map(|located| &located.entry)).map(|()| located)
                };
                ids.iter().map(locate).collect()
            })
            .await
    }

    async fn standing(&self, places: &[At]) -> Result<Vec<Option<Entry>>> {
        within_batch(places.len())?;
        self.reader
            .answer_at(self.level, |view| {
                let mut bytes = ReadBytes::default();
                let standing = |at| {
                    let entry = entry_at(view, at);
                    bytes.add(entry.as_ref()).map(|()| entry)
                };
                places.iter().map(standing).collect()
            })
            .await
    }

    async fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Option<Page<Entry>>> {
        let slice = Slice::Children(directory, after.cloned());
        let ask = |view: &CacheView<'_>, items: &[Item<'_>], all| {
            if !reads::is_directory(view, directory) {
                return Ok(Enough::Yes(None));
            }
            let entry = |(_, row): &Item<'_>| match &***row {
                Row::Entry(entry) => Some(entry.clone()),
                _ => None,
            };
            Ok(Enough::Yes(Some(page(items, (limit, all), entry))))
        };
        slices::ask(&self.reader, &slice, limit, ask).await
    }

    async fn usage(&self, of: &[UsageOf]) -> Result<Vec<Account>> {
        within_batch(of.len())?;
        self.reader
            .answer_at(self.level, |view| Ok(of.iter().map(|of| reads::account(view, *of)).collect()))
            .await
    }

    async fn replicas_on(&self, se: SeNumber, cursor: &[u8], limit: usize) -> Result<ReplicasPage> {
        let after = match cursor {
            [] => None,
            [shard, guid @ ..] if *shard < SE_SHARDS => {
                Some((*shard, Guid(guid.try_into().map_err(|_| bad_cursor())?)))
            }
            _ => return Err(bad_cursor()),
        };
        let slice = Slice::OnSe(se, after);
        let ask = |view: &CacheView<'_>, items: &[Item<'_>], all| {
            let mut next = cursor.to_vec();
            let replica = |(key, _): &Item<'_>| {
                let Key::OnSe { shard, guid, .. } = key else { return None };
                next = [&[*shard][..], &guid.0].concat();
                find(view, EntryId::Object(*guid)).and_then(|found| StoredReplica::of(found.entry, se))
            };
            let page = page(items, (limit, all), replica);
            Ok(Enough::Yes((page, next)))
        };
        slices::ask(&self.reader, &slice, limit, ask).await
    }

    async fn members(
        &self,
        collection: Guid,
        after: Option<Guid>,
        limit: usize,
    ) -> Result<Option<Page<Guid>>> {
        let slice = Slice::Members(collection, after);
        let ask = |view: &CacheView<'_>, items: &[Item<'_>], all| {
            let found = find(view, EntryId::Object(collection));
            let is_one = found.is_some_and(|found| found.entry.kind() == exacat_model::Kind::Collection);
            let guid = |(key, _): &Item<'_>| match key {
                Key::Member { guid, .. } => Some(*guid),
                _ => None,
            };
            Ok(Enough::Yes(is_one.then(|| page(items, (limit, all), guid))))
        };
        slices::ask(&self.reader, &slice, limit, ask).await
    }

    async fn trash(&self, after: Option<TrashId>, limit: usize) -> Result<Page<TrashItem>> {
        let ask = |view: &CacheView<'_>, items: &[Item<'_>], all| {
            let item = |(key, row): &Item<'_>| match (*key, &***row) {
                (Key::Trash(id), Row::Trash(item)) => Some(reads::trash_item(view, *id, item)),
                _ => None,
            };
            Ok(Enough::Yes(page(items, (limit, all), item)))
        };
        slices::ask(&self.reader, &Slice::Trash(after), limit, ask).await
    }

    async fn trash_item(&self, id: TrashId) -> Result<Option<TrashItem>> {
        self.reader
            .answer_at(self.level, |view| Ok(item(view, id).map(|item| reads::trash_item(view, id, &item))))
            .await
    }

    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
    ) -> Result<Page<Deletion>> {
        let ask = |_: &CacheView<'_>, items: &[Item<'_>], all| {
            let deletion = |(_, row): &Item<'_>| match &***row {
                Row::Deletion(deletion) => Some(deletion.clone()),
                _ => None,
            };
            Ok(Enough::Yes(page(items, (limit, all), deletion)))
        };
        slices::ask(&self.reader, &Slice::Deletions(se, after), limit, ask).await
    }

    async fn reservation(&self, guid: Guid) -> Result<Option<Reservation>> {
        self.reader.answer_at(self.level, |view| Ok(reservation(view, guid))).await
    }

    async fn reservations(&self, after: Option<Guid>, limit: usize) -> Result<Page<Reservation>> {
        let ask = |_: &CacheView<'_>, items: &[Item<'_>], all| {
            let reservation = |(_, row): &Item<'_>| match &***row {
                Row::Reservation(reservation) => Some(reservation.clone()),
                _ => None,
            };
            Ok(Enough::Yes(page(items, (limit, all), reservation)))
        };
        slices::ask(&self.reader, &Slice::Reservations(after), limit, ask).await
    }

    async fn due(&self, now: TimeMs, limit: usize) -> Result<Due> {
        let reservations = |view: &CacheView<'_>, items: &[Item<'_>], all| {
            let due = |(key, _): &Item<'_>| match key {
                Key::ReservationDue { guid, .. } => reservation(view, *guid),
                _ => None,
            };
            Ok(Enough::Yes(page(items, (limit, all), due).items))
        };
        let reservations =
            slices::ask(&self.reader, &Slice::ReservationsDue(now), limit, reservations).await?;
        let entries = |view: &CacheView<'_>, items: &[Item<'_>], all: bool| {
            let mut due = PageInProgress::new(limit, 0);
            for (key, _) in items {
                let Key::Due { id, .. } = key else { continue };
                // Entries below an item of the trash are not due.
                let found = find(view, *id).filter(|found| {
                    found.trash.is_none() && climb(view, found.entry.at.parent, &mut |_| ()) == Top::Root
                });
                if let Some(found) = found {
                    due.push(found.entry);
                }
                if due.is_full() {
                    return Ok(Enough::Yes(due.end(true).items));
                }
            }
            Ok(if all { Enough::Yes(due.end(false).items) } else { Enough::No })
        };
        let entries = slices::ask(&self.reader, &Slice::Due(now), limit, entries).await?;
        Ok(Due { reservations, entries })
    }

    async fn record(&self, key: RecordKey) -> Result<Option<(Record, Revision)>> {
        self.reader.answer_at(self.level, |view| Ok(record(view, key))).await
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Page<RecordEntry>> {
        self.reader
            .answer_at(self.level, |view| {
                let keys = reads::records_after(view, kind, after);
                let entry = |key: &RecordKey| {
                    let (record, revision) = record(view, *key)?;
                    Some(RecordEntry { key: *key, record, revision })
                };
                Ok(Page::of(keys.iter().filter_map(entry), limit))
            })
            .await
    }

    async fn revision(&self) -> Result<Revision> {
        self.reader.answer_at(self.level, |view| Ok(view.cache.head())).await
    }

    fn timelines(&self) -> Arc<Timelines> {
        self.timelines.clone()
    }

    async fn changes(&self, after: Revision, limit: usize) -> Result<ChangePage> {
        let limit = limit.min(PAGE_ITEMS_MAX);
        let head = self.revision().await?;
        let mut changes: Vec<exacat_model::Change> = Vec::new();
        let mut bytes = 0;
        let segments = log::segments(&self.follower.cluster).await?;
        let oldest = Revision(segments.first().copied().unwrap_or(1));
        let first = reads::segment_of(&segments, after).unwrap_or(0);
        for segment in segments.get(first..).unwrap_or_default() {
            let last = changes.last().map_or(after, |change| change.revision);
            if changes.len() >= limit || last >= head || bytes >= PAGE_MEMORY_MAX {
                break;
            }
            let left = (limit - changes.len(), PAGE_MEMORY_MAX - bytes);
            let found = log::changes(&self.follower.cluster, *segment, last, left).await?;
            bytes += found.iter().map(Measured::bytes).sum::<usize>();
            changes.extend(found);
        }
        // Later changes are for the next page: none is beyond the head that was read.
        changes.retain(|change| change.revision <= head);
        let up_to = changes.last().map_or(head.min(after), |change| change.revision);
        Ok(ChangePage { changes, up_to, oldest })
    }

    /// The tables have no traces: the catalogue finds them in the log.
    async fn traces(&self, of: &[Trace]) -> Result<Traces> {
        within_batch(of.len())?;
        Ok(Traces { found: vec![None; of.len()], since: self.revision().await? })
    }

    async fn changed(&self, after: Revision) -> Result<()> {
        loop {
            // Registered before the read, so that a change between the two is not missed.
            let moved = self.follower.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            // At `latest`, whatever the level of this store: it must not sleep over a change.
            if self.reader.answer(|view| Ok(view.cache.head())).await? > after {
                return Ok(());
            }
            // Only a read of the log head shows another server's change.
            let _ = tokio::time::timeout(POLL_EVERY, moved).await;
        }
    }

    async fn audit(&self) -> Result<Audit> {
        audit::audit(&self.follower).await
    }

    async fn status(&self) -> Result<StoreStatus> {
        let (head, totals, cache) = self
            .reader
            .answer_at(self.level, |view| Ok((view.cache.head(), totals(view), view.cache.len())))
            .await?;
        let mut metrics = vec![
            metric_table::TRASH_ITEMS.is(totals.trash),
            metric_table::RESERVATIONS.is(totals.reservations),
            metric_table::DELETIONS.is(totals.deletions),
            metric_table::ROWS_CACHED.is(cache as u64),
            metric_table::ROWS_CACHED_LIMIT.is(self.follower.settings.cache_rows as u64),
        ];
        let cluster = &self.follower.cluster;
        metrics.extend(self.follower.cache(|cache| cache.metrics()));
        metrics.extend(cluster.metrics.list());
        metrics.extend(cluster.nodes.metrics());
        metrics.extend(self.follower.freshness.metrics(Instant::now()));
        let (all, away) = cluster.nodes_away();
        metrics.push(metric_table::NODES.is(all));
        metrics.push(metric_table::NODES_AWAY.is(away.len() as u64));
        metrics.extend(cluster.nodes.metrics_of_each());
        let warning = |node: &String| {
            format!("node {node} of the cluster is not connected: repair the keyspace once it is back")
        };
        Ok(StoreStatus {
            kind: "cassandra".to_owned(),
            revision: head,
            entries: totals.entries,
            metrics,
            warnings: away.iter().map(warning).collect(),
        })
    }

    fn with_bounded_staleness(&self, level: Consistency) -> Option<Arc<dyn Store>> {
        Some(Arc::new(CassandraStore {
            follower: self.follower.clone(),
            reader: self.reader.clone(),
            intake: self.intake.clone(),
            maintenance: self.maintenance.clone(),
            serving: self.serving.clone(),
            running: self.running.clone(),
            preparing: self.preparing.clone(),
            level,
            timelines: self.timelines.clone(),
            own_state: self.own_state.clone(),
        }))
    }

    async fn show_state(&self, state: &[u8]) -> Result<()> {
        self.own_state.show(&self.follower, state).await
    }

    async fn states_of_others(&self, limit: usize) -> Result<Vec<Vec<u8>>> {
        server_states::of_others(&self.follower, limit).await
    }

    fn records_seen(&self) -> u64 {
        self.follower.records_seen()
    }

    fn seen_revision(&self) -> Revision {
        self.follower.cache(RowCache::head)
    }

    fn credentials_seen(&self) -> u64 {
        self.follower.records_seen()
    }

    async fn close(&self) -> Result<()> {
        self.follower.close("the store is closed");
        self.intake.close();
        if let Some(serving) = &self.serving {
            serving.end(&self.follower).await;
        }
        self.preparing.abort();
        let running = self.running.lock().take();
        if let Some(running) = running {
            running.await.map_err(|error| {
                Error::new(ErrorKind::Internal, format!("the appender ended with an error: {error}"))
            })?;
        }
        Ok(())
    }
}
