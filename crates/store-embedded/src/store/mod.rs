//! Implements `exacat_store::Store` over the shared state, the log and the writer.

mod following;
mod loading;
mod offline;
mod open;
mod past;
mod snapshots;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use async_trait::async_trait;
use exacat_activity::{RequestState, blocking, on, on_from_now, split};
use exacat_disk::random_u64;
use exacat_model::limits::{OPERATIONS_REMEMBERED, PAGE_ITEMS_MAX, PAGE_MEMORY_MAX};
use exacat_model::{
    At, Audit, Deletion, DeletionId, DirId, Entry, EntryId, Error, ErrorKind, Guid, Lfn, Measured, Name,
    OperationId, Record, RecordKey, RecordKind, Reservation, Result, Revision, SeNumber, TimeMs, Timelines,
    TrashId, TrashItem,
};
use exacat_store::{
    Account, Ancestors, ApplyError, ChangePage, Due, Files, Followed, Located, Page, PageInProgress,
    PastStates, RecordEntry, ReplicasPage, Request, Resolution, ResolutionEnd, Snapshots, Store, StoreStatus,
    Trace, Traces, Trail, UsageOf, within_batch,
};
use parking_lot::{Mutex, RwLockReadGuard};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::blocking::on_blocking_thread;
use crate::command::{Answered, Command, Weighed};
use crate::compactor::Pending;
use crate::defect::Defect;
use crate::durability::Durability;
use crate::history::KeptChanges;
use crate::metric_table;
use crate::older::Older;
use crate::run::{Cache, Held};
use crate::settings::{ASK_AGAIN_MAX, EmbeddedSettings, SNAPSHOT_CACHE_BYTES};
use crate::shared::Shared;
use crate::snapshot::SnapshotService;
use crate::state::{AsOf, Lookup, MovedSince, Operations, REPLICAS_CURSOR_BYTES_MAX, State};

/// Audits the state in the runs once all of `pending` is in them; blocks no other request. None if
/// the runs cannot be written.
fn audit_runs(shared: &Shared, pending: &Pending) -> Option<Result<Audit>> {
    if let Err(why) = pending.wait() {
        tracing::warn!(
            why,
            "writing pauses during the audit, because the memtable cannot be written into a sorted run"
        );
        return None;
    }
    let version = Arc::clone(shared.state.read().table.version());
    let audit = || {
        let (seed, cache) = (random_u64()?, Arc::new(Cache::new(SNAPSHOT_CACHE_BYTES)));
        let state = match version.runs.is_empty() {
            true => State::new(seed, cache)?,
            false => State::load(seed, version, cache, &mut Operations::new(OPERATIONS_REMEMBERED))?,
        };
        Ok(state.audit()?)
    };
    Some(audit())
}

const TRASH: &str = "the trash";
const RESERVATIONS: &str = "upload reservations";
const HISTORY: &str = "the history";

/// Bytes of requests per semaphore permit, so that the permit count fits into a semaphore.
const PERMIT_BYTES: usize = 1024;

/// The embedded store.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    settings: EmbeddedSettings,
    /// Queue to the writer. None once this store is dropped, which ends the writer.
    commands: Option<mpsc::Sender<Command>>,
    bytes: Arc<Semaphore>,
    permits: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
    service: Arc<SnapshotService>,
    timelines: Arc<Timelines>,
    /// Reason why this store refuses changes, if it is a snapshot or a follower.
    read_only: Option<&'static str>,
}

impl EmbeddedStore {
    pub(crate) fn new(
        shared: Arc<Shared>,
        settings: EmbeddedSettings,
        commands: mpsc::Sender<Command>,
        thread: JoinHandle<()>,
        service: SnapshotService,
    ) -> Self {
        let permits = (settings.queue_bytes_max / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS.min(1 << 30));
        let timelines = Arc::new(service.timelines().clone());
        let read_only = match (&settings.follows, &*shared.superseded.read()) {
            (Some(_), _) => Some("this server follows another, and takes no changes"),
            (None, Some(_)) => {
                Some("another server was promoted in place of this one, which takes no changes")
            }
            (None, None) => None,
        };
        EmbeddedStore {
            shared,
            settings,
            timelines,
            commands: Some(commands),
            bytes: Arc::new(Semaphore::new(permits)),
            permits,
            thread: Mutex::new(Some(thread)),
            service: Arc::new(service),
            read_only,
        }
    }

    /// Opens a read-only store over a snapshot.
    pub(crate) fn of_snapshot(
        shared: Arc<Shared>,
        settings: EmbeddedSettings,
        service: SnapshotService,
    ) -> Self {
        let timelines = Arc::new(service.timelines().clone());
        EmbeddedStore {
            shared,
            settings,
            timelines,
            commands: None,
            bytes: Arc::new(Semaphore::new(1)),
            permits: 1,
            thread: Mutex::new(None),
            service: Arc::new(service),
            read_only: Some("this is a snapshot, it cannot be changed"),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    pub(crate) fn service(&self) -> &Arc<SnapshotService> {
        &self.service
    }

    /// Returns the revisions that readers know: those of the source, for a filtered follower.
    fn shown_revisions(&self) -> &Durability {
        self.shared.positions.as_ref().map_or(&self.shared.durability, |positions| &positions.durability)
    }

    /// Refuses a read of something that a filtered follower does not have.
    fn check_has(&self, what: &str) -> Result<()> {
        self.settings.under.as_ref().map_or(Ok(()), |under| Err(self.elsewhere(under, what)))
    }

    /// Says where a filtered follower's reader finds what is not here.
    fn elsewhere(&self, under: &Lfn, what: &str) -> Error {
        let source = self.settings.follows.as_deref().unwrap_or("its source");
        Error::invalid(format!("this follower has only {under}: ask {source} for {what}"))
    }

    /// Returns the paths below the directory of a filtered follower, if others are among them. The
    /// directories above it have other content here.
    fn only_under(&self, paths: &[Lfn]) -> Option<(&Lfn, Vec<Lfn>)> {
        let under = self.settings.under.as_ref()?;
        let inside: Vec<Lfn> = paths.iter().filter(|path| under.contains(path)).cloned().collect();
        (inside.len() < paths.len()).then_some((under, inside))
    }

    /// Writes the memtable into a sorted run now. Without this call the writer does so when the
    /// memtable is full.
    pub async fn flush(&self) -> Result<()> {
        self.ask(|reply| Command::Flush { reply }).await?
    }

    /// Returns the digest of the last committed state. Equal states have equal digests, whatever
    /// their history.
    pub async fn digest(&self) -> Result<u128> {
        self.read(|state| Ok(state.digest())).await
    }

    /// Locks the current state for reading.
    fn state(&self) -> RwLockReadGuard<'_, State> {
        let lock = &self.shared.state;
        lock.try_read().unwrap_or_else(|| blocking(RequestState::StateLock, || lock.read()))
    }

    /// Answers from the current state, once the state that it saw is durable.
    async fn read<T>(&self, answer: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        let (answer, revision) = self.read_now(answer)?;
        on(RequestState::DurableRead, self.shared.durability.reached(revision)).await?;
        Ok(answer)
    }

    /// Answers like `read`, but does not wait for standbys, which need accounts to come here.
    async fn read_written<T>(&self, answer: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        let (answer, revision) = self.read_now(answer)?;
        on(RequestState::DurableRead, self.shared.durability.written_reached(revision)).await?;
        Ok(answer)
    }

    /// Answers from the current state, and returns its last change, which may not be durable yet.
    fn read_now<T>(&self, answer: impl FnOnce(&State) -> Result<T>) -> Result<(T, Revision)> {
        self.shared.check_open()?;
        let state = self.state();
        check_switched_on(&state)?;
        Ok((answer(&state)?, state.revision))
    }

    /// Answers from the current state, once the state that it saw is durable. Missing pages are
    /// read without the lock, and the answer is then computed again on the state of that moment.
    async fn look<T>(
        &self,
        mut answer: impl FnMut(Lookup<'_>) -> std::result::Result<T, Defect>,
    ) -> Result<T> {
        self.look_as_of(|look| Ok((answer(look)?, look.state.revision))).await
    }

    /// Answers like `look`, but waits only until the changes behind the answer are durable. The
    /// answer was true then and still is.
    async fn look_as_of<T>(
        &self,
        answer: impl FnMut(Lookup<'_>) -> std::result::Result<AsOf<T>, Defect>,
    ) -> Result<T> {
        self.shared.check_open()?;
        let (answer, as_of) = self.look_now(answer)?;
        on(RequestState::DurableRead, self.shared.durability.reached(as_of)).await?;
        Ok(answer)
    }

    fn look_now<T>(&self, mut answer: impl FnMut(Lookup<'_>) -> std::result::Result<T, Defect>) -> Result<T> {
        let held = Held::default();
        for _ in 0..ASK_AGAIN_MAX {
            {
                let state = self.state();
                check_switched_on(&state)?;
                match answer(state.look_with(Some(&held))) {
                    Ok(answer) => return Ok(answer),
                    Err(Defect::NotInMemory) => {}
                    Err(other) => return Err(other.into()),
                }
            }
            blocking(RequestState::PageRead, || held.read(&self.shared.cache))?;
        }
        // The answer keeps asking for more pages: it is better that the others wait once.
        let state = self.state();
        Ok(blocking(RequestState::PageRead, || answer(state.look()))?)
    }

    /// Returns the kept changes after one revision, up to another revision that is durable.
    async fn history(&self, after: Revision, up_to: Revision, limit: usize) -> Result<KeptChanges> {
        let history = Arc::clone(&self.shared.history);
        on(RequestState::HistoryRead, on_blocking_thread(move || history.changes(after, up_to, limit))).await
    }

    /// Returns the end of a listing of a storage element: files on it that moved to a place that
    /// the listing had already passed.
    async fn moved_since(&self, since: MovedSince, se: SeNumber, limit: usize) -> Result<ReplicasPage> {
        if limit == 0 {
            return Ok((Page { items: Vec::new(), more: true }, since.cursor()));
        }
        let KeptChanges { changes, oldest } = self.history(since.after, since.up_to, PAGE_ITEMS_MAX).await?;
        if since.after < since.up_to && since.after.0 + 1 < oldest.0 {
            // Moves since then are lost, and a listing may leave out nothing (clause R3).
            let what = "the changes since this listing began are not kept any more: begin it again";
            return Err(Error::new(ErrorKind::Conflict, what));
        }
        self.look(|look| {
            let mut page = PageInProgress::new(limit, 0);
            let mut given: HashSet<EntryId> = HashSet::new();
            let mut next = MovedSince { after: since.up_to, ..since };
            for change in &changes {
                next.after = change.revision;
                if let Some(id) = MovedSince::moved_back(&change.effect)
                    && given.insert(id)
                    && let Some(replica) = look.if_on_se(id, se)?
                {
                    page.push(replica);
                }
                if page.is_full() {
                    break;
                }
            }
            let more = next.after < since.up_to;
            Ok((page.end(more), if more { next.cursor() } else { Vec::new() }))
        })
        .await
    }

    /// Sends the writer a command, which it runs between two commit groups, and returns the answer.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T> {
        let closed = || Error::new(ErrorKind::Unavailable, self.read_only.unwrap_or("the store is closed"));
        self.shared.check_open()?;
        let (reply, answer) = oneshot::channel();
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        let answered = async {
            commands.send(command(reply)).await.map_err(|_| closed())?;
            answer.await.map_err(|_| closed())
        };
        on_from_now(RequestState::CommitQueue, answered).await
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // The writer ends with its queue, and still does everything that is in it.
        self.commands = None;
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}

/// Returns the error for a request that the writer dropped. A writer that ends normally drops a
/// request only before it begins it. A writer that panicked may have dropped it halfway, so the
/// outcome is unknown.
fn lost() -> ApplyError {
    ApplyError::Unknown("the store closed before it answered: ask again".to_owned())
}

/// Refuses to answer while no single consistent state exists.
fn check_switched_on(state: &State) -> Result<()> {
    match state.switched_off {
        Some(why) => Err(Error::new(ErrorKind::Unavailable, why)),
        None => Ok(()),
    }
}

fn page(limit: usize) -> usize {
    limit.min(PAGE_ITEMS_MAX)
}

impl EmbeddedStore {
    /// Sends requests of `bytes` bytes in all to the writer, and waits for their outcomes.
    async fn submit(
        &self,
        requests: Vec<Weighed>,
        bytes: usize,
    ) -> std::result::Result<Vec<Answered>, ApplyError> {
        let closed = || ApplyError::Unavailable(self.read_only.unwrap_or("the store is closed").to_owned());
        if let Some(why) = self.read_only {
            return Err(ApplyError::Unavailable(why.to_owned()));
        }
        if let Some(by) = &*self.shared.superseded.read() {
            return Err(ApplyError::Unavailable(format!("{by} was promoted: send changes there")));
        }
        self.shared.check_open().map_err(|error| ApplyError::Unavailable(error.message))?;
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        for Weighed { request, .. } in &requests {
            if self.shared.may_have_forgotten(request.operation) {
                self.sort_older(request.operation).await;
            }
        }
        let permits = bytes.div_ceil(PERMIT_BYTES).clamp(1, self.permits);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        let began = Instant::now();
        let answered = async {
            let permit = Arc::clone(&self.bytes).acquire_many_owned(permits).await.map_err(|_| closed())?;
            let (reply, answer) = oneshot::channel();
            commands.send(Command::Apply { requests, reply, permit }).await.map_err(|_| closed())?;
            answer.await.map_err(|_| lost())
        };
        let (answers, times) = on_from_now(RequestState::CommitQueue, answered).await?;
        split(RequestState::CommitQueue, &times.parts(began));
        Ok(answers)
    }
}

impl EmbeddedStore {
    /// Sorts the older ids that the writer will need, so that the writer does not have to.
    async fn sort_older(&self, id: OperationId) {
        let shared = Arc::clone(&self.shared);
        let sorted = on(
            RequestState::HistoryRead,
            on_blocking_thread(move || {
                let durable = shared.durability.written();
                Older::prepare(&shared.older, &shared.history, id, durable)
            }),
        );
        if let Err(error) = sorted.await {
            // The writer meets the same error and reports it.
            tracing::debug!(%error, "cannot sort the ids of older requests");
        }
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn apply(&self, request: Request) -> Answered {
        let bytes = request.weigh()?;
        let mut answers = self.submit(vec![Weighed { request, bytes }], bytes).await?;
        answers.pop().unwrap_or_else(|| Err(lost()))
    }

    async fn apply_each(&self, requests: Vec<Request>) -> Vec<Answered> {
        let (mut weighed, mut sum) = (Vec::with_capacity(requests.len()), 0);
        let mut refused = Vec::with_capacity(requests.len());
        for request in requests {
            refused.push(request.weigh().map_or_else(Some, |bytes| {
                weighed.push(Weighed { request, bytes });
                sum += bytes;
                None
            }));
        }
        let mut answers = self.submit(weighed, sum).await.map(Vec::into_iter);
        let mut next = || match &mut answers {
            Ok(answers) => answers.next().unwrap_or_else(|| Err(lost())),
            Err(error) => Err(error.clone()),
        };
        refused.into_iter().map(|refused| refused.map_or_else(&mut next, Err)).collect()
    }

    async fn resolve(&self, paths: &[Lfn]) -> Result<Vec<Resolution>> {
        within_batch(paths.len())?;
        let Some((under, inside)) = self.only_under(paths) else {
            return self.look_as_of(|look| look.resolve(&self.shared.hints, paths)).await;
        };
        let mut found = self.look_as_of(|look| look.resolve(&self.shared.hints, &inside)).await?.into_iter();
        let elsewhere = |path: &Lfn| Resolution {
            ancestors: Ancestors::new(),
            end: ResolutionEnd::Elsewhere(Box::new(self.elsewhere(under, path.as_str()))),
        };
        let of = |path| if under.contains(path) { found.next() } else { Some(elsewhere(path)) };
        Ok(paths.iter().filter_map(of).collect())
    }

    async fn files(&self, paths: &[Lfn]) -> Result<Files> {
        within_batch(paths.len())?;
        let Some((under, inside)) = self.only_under(paths) else {
            return self.look_as_of(|look| look.files(&self.shared.hints, paths)).await;
        };
        let files = self.look_as_of(|look| look.files(&self.shared.hints, &inside)).await?;
        let mut found = files.found.into_iter();
        // A path that is elsewhere ends at no file here.
        let found =
            paths.iter().map(|path| if under.contains(path) { found.next()? } else { None }).collect();
        Ok(Files { found, ..files })
    }

    async fn locate(&self, ids: &[EntryId]) -> Result<Vec<Option<Located>>> {
        within_batch(ids.len())?;
        self.look_as_of(|look| look.locate_all(ids)).await
    }

    async fn standing(&self, places: &[At]) -> Result<Vec<Option<Entry>>> {
        within_batch(places.len())?;
        self.look(|look| look.standing(places)).await
    }

    async fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Option<Page<Entry>>> {
        self.look_as_of(|look| look.list(directory, after, page(limit))).await
    }

    async fn usage(&self, of: &[UsageOf]) -> Result<Vec<Account>> {
        within_batch(of.len())?;
        if of.iter().any(|of| matches!(of, UsageOf::User(_) | UsageOf::Group(_))) {
            self.check_has("the usage of users and groups")?;
        }
        self.read(|state| Ok(of.iter().map(|of| state.usage(*of)).collect())).await
    }

    async fn replicas_on(&self, se: SeNumber, cursor: &[u8], limit: usize) -> Result<ReplicasPage> {
        let bad = || Error::invalid("this is no cursor of a listing of a storage element");
        if cursor.len() > REPLICAS_CURSOR_BYTES_MAX {
            return Err(bad());
        }
        if let Some(since) = MovedSince::parse(cursor, self.shared.durability.revision()) {
            return self.moved_since(since, se, page(limit)).await;
        }
        self.look(|look| look.replicas_on(se, cursor, page(limit))).await?.ok_or_else(bad)
    }

    async fn members(
        &self,
        collection: Guid,
        after: Option<Guid>,
        limit: usize,
    ) -> Result<Option<Page<Guid>>> {
        self.look(|look| look.members(collection, after, page(limit))).await
    }

    async fn trash(&self, after: Option<TrashId>, limit: usize) -> Result<Page<TrashItem>> {
        self.check_has(TRASH)?;
        self.look(|look| look.trash_page(after, page(limit))).await
    }

    async fn trash_item(&self, id: TrashId) -> Result<Option<TrashItem>> {
        self.check_has(TRASH)?;
        self.look(|look| look.trash_item(id)).await
    }

    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
    ) -> Result<Page<Deletion>> {
        self.check_has("deletion queues")?;
        self.look(|look| look.deletions(se, after, page(limit))).await
    }

    async fn reservation(&self, guid: Guid) -> Result<Option<Reservation>> {
        self.check_has(RESERVATIONS)?;
        self.read(|state| Ok(state.reservation(guid).cloned())).await
    }

    async fn reservations(&self, after: Option<Guid>, limit: usize) -> Result<Page<Reservation>> {
        self.check_has(RESERVATIONS)?;
        self.read(|state| Ok(state.reservations_page(after, page(limit)))).await
    }

    async fn due(&self, now: TimeMs, limit: usize) -> Result<Due> {
        let limit = page(limit);
        let reservations = self.read(|state| Ok(state.due_reservations(now, limit))).await?;
        let mut entries = Vec::new();
        let mut cursor = None;
        // Several rounds happen only where very many entries below the trash are skipped. Each
        // round takes the lock anew, so that no writer waits long. Each entry was due in the state
        // that showed it.
        loop {
            let found = self.look(|look| look.due_entries(now, limit - entries.len(), cursor)).await?;
            entries.extend(found.0);
            cursor = found.1;
            if cursor.is_none() || entries.iter().map(Measured::bytes).sum::<usize>() >= PAGE_MEMORY_MAX {
                return Ok(Due { reservations, entries });
            }
        }
    }

    async fn record(&self, key: RecordKey) -> Result<Option<(Record, Revision)>> {
        self.read_written(|state| Ok(state.record(key).cloned())).await
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Page<RecordEntry>> {
        self.read_written(|state| Ok(state.records_page(kind, after, page(limit)))).await
    }

    fn seen_revision(&self) -> Revision {
        self.shown_revisions().revision()
    }

    fn credentials_seen(&self) -> u64 {
        self.shared.credentials.load(Ordering::Acquire)
    }

    async fn revision(&self) -> Result<Revision> {
        self.shared.check_open()?;
        Ok(self.shown_revisions().revision())
    }

    fn timelines(&self) -> Arc<Timelines> {
        Arc::clone(&self.timelines)
    }

    async fn changes(&self, after: Revision, limit: usize) -> Result<ChangePage> {
        self.shared.check_open()?;
        self.check_has(HISTORY)?;
        let up_to = self.shared.durability.revision();
        let limit = page(limit);
        let KeptChanges { changes, oldest } = self.history(after, up_to, limit).await?;
        let up_to = match changes.last() {
            Some(last) => last.revision,
            None if limit == 0 => after.min(up_to),
            None => up_to,
        };
        Ok(ChangePage { changes, up_to, oldest })
    }

    async fn trail(&self, id: EntryId, from: Revision, limit: usize) -> Result<Trail> {
        self.shared.check_open()?;
        self.check_has(HISTORY)?;
        let up_to = self.shared.durability.revision();
        let (history, limit) = (Arc::clone(&self.shared.history), page(limit));
        on(RequestState::HistoryRead, on_blocking_thread(move || history.trail(id, from.min(up_to), limit)))
            .await
    }

    async fn traces(&self, of: &[Trace]) -> Result<Traces> {
        within_batch(of.len())?;
        self.check_has(HISTORY)?;
        self.look(|look| look.traces(of)).await
    }

    async fn changed(&self, after: Revision) -> Result<()> {
        self.shared.check_open()?;
        let next = Revision(after.0.saturating_add(1));
        tokio::select! {
            reached = self.shown_revisions().reached(next) => reached,
            // The source's revisions do not end with the log here.
            _ = self.shared.durability.end_reached() => self.shared.durability.reached(next).await,
        }
    }

    async fn audit(&self) -> Result<Audit> {
        if self.commands.is_none() {
            return self.read(|state| state.audit().map_err(Error::from)).await;
        }
        match self.ask(|reply| Command::Freeze { reply }).await? {
            // The runs hold an immutable state, so writing goes on during the audit.
            Ok(pending) => {
                let shared = Arc::clone(&self.shared);
                let audit = move || audit_runs(&shared, &pending).transpose();
                match on(RequestState::PageRead, on_blocking_thread(audit)).await? {
                    Some(audit) => Ok(audit),
                    None => self.ask(|reply| Command::Audit { reply }).await?,
                }
            }
            Err(_) => self.ask(|reply| Command::Audit { reply }).await?,
        }
    }

    async fn status(&self) -> Result<StoreStatus> {
        let (entries, memory, counts) =
            self.read_written(|state| Ok((state.entries, state.memory(), state.counts()))).await?;
        let metrics = &self.shared.metrics;
        let free = self.shared.disk.free_bytes(&self.settings.directory).unwrap_or(0);
        let waiting =
            self.commands.as_ref().map_or(0, |commands| commands.max_capacity() - commands.capacity());
        let hints = self.shared.hints.bytes();
        let memory_sum = memory.iter().map(|(_, bytes)| bytes).sum::<u64>() + hints;
        let mut list = counts;
        list.extend(memory.map(|(part, bytes)| metric_table::MEMORY.of(part, bytes)));
        list.push(metric_table::MEMORY.of("hints", hints));
        list.push(metric_table::MEMORY_SUM.is(memory_sum));
        list.extend(self.shared.cache.metrics());
        list.extend(self.shared.history.metrics());
        let version = Arc::clone(self.shared.state.read().table.version());
        list.extend(version.metrics(&metrics.merging()));
        let mut warnings = metrics.warnings();
        warnings.extend(crate::compactor::debt_warning(version.owed()));
        list.push(metric_table::DISK_FREE.is(free));
        list.push(metric_table::QUEUE.is(waiting as u64));
        list.extend(metrics.list());
        Ok(StoreStatus {
            kind: "embedded".to_owned(),
            revision: self.shown_revisions().revision(),
            entries,
            metrics: list,
            warnings,
        })
    }

    async fn close(&self) -> Result<()> {
        if self.shared.check_open().is_err() {
            return Ok(());
        }
        if self.commands.is_none() {
            self.shared.close("the store is closed");
            return Ok(());
        }
        self.ask(|reply| Command::Close { reply }).await
    }

    fn read_only(&self) -> Option<&'static str> {
        self.read_only
    }

    fn failure(&self) -> Option<String> {
        self.shared.failure()
    }

    async fn failed(&self) -> String {
        let why = self.shared.durability.end_reached().await;
        if self.shared.failure().is_none() {
            // The store was closed, which is no failure.
            std::future::pending::<()>().await;
        }
        why
    }

    fn following(&self) -> Option<String> {
        self.settings.follows.clone().or_else(|| self.shared.superseded.read().clone())
    }

    fn under(&self) -> Option<&Lfn> {
        self.settings.under.as_ref()
    }

    fn records_seen(&self) -> u64 {
        self.shared.records_followed.load(Ordering::Acquire)
    }

    fn as_followed(&self) -> Option<&dyn Followed> {
        // A snapshot has no log that goes on, and a filtered follower has one of its own.
        (self.commands.is_some() && self.settings.under.is_none()).then_some(self)
    }

    fn as_past_states(&self) -> Option<&dyn PastStates> {
        // A snapshot is a past state itself. The revisions of a filtered follower are not those of its log.
        (self.commands.is_some() && self.settings.under.is_none()).then_some(self)
    }

    fn as_snapshots(&self) -> Option<&dyn Snapshots> {
        // A snapshot has no snapshots of its own.
        match self.read_only {
            None => Some(self),
            Some(_) => None,
        }
    }
}
