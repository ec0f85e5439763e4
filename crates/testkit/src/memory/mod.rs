//! The memory store: the reference model of the [contract](exacat_store::contract), and the oracle of
//! every test.
//!
//! It is slow, short and obvious. It stores only facts that cannot be derived: entries by place,
//! trash, upload reservations, records, members, deletions, changes. It computes everything else by
//! scans: usage, ancestors, GUIDs, the replicas on a storage element, expired items. So it can
//! check a store that has counters and indices.
//!
//! Each mutation is first *decided*: a pure function of the state returns an effect. Then the
//! effect is *applied* as a change (`apply`). Both use rules of their own (`rules`), written apart from
//! those of the other stores ([`exacat_store::rules`]). The state is a function of the changes alone:
//! [`MemoryStore::replay`] builds a store from them.

mod apply;
mod audit;
mod facts;
mod reads;
mod rules;
mod state;

use std::sync::Arc;

use async_trait::async_trait;
use exacat_model::{
    At, Audit, Change, Deletion, DeletionId, DirId, Entry, EntryId, Error, ErrorKind, Guid, Lfn, Name,
    Record, RecordKey, RecordKind, Reservation, Result, Revision, SeNumber, TimeMs, TimelineId, Timelines,
    TrashId, TrashItem,
};
use exacat_store::{
    Account, ApplyError, ChangePage, Clock, Due, Located, Outcome, Page, ReadBytes, RecordEntry, Refusal,
    ReplicasPage, Request, Resolution, Store, StoreStatus, Trace, Traces, UsageOf, within_batch,
};
use parking_lot::Mutex;
use state::State;
use tokio::sync::Notify;

/// Data behind the lock.
struct Inner {
    state: State,
    /// Reason why the store refuses all work, once it is closed.
    closed: Option<String>,
}

/// A correct store that does not outlive its process.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    committed: Notify,
    timelines: Arc<Timelines>,
}

impl MemoryStore {
    /// Makes a new store as in clause N1.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with(State::new(), clock)
    }

    /// Builds a store from these changes, in order, from the first on (clause H3). Refuses with
    /// `Corrupt` changes that form no history.
    pub fn replay(changes: impl IntoIterator<Item = Change>, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut state = State::new();
        for change in changes {
            apply::apply(&mut state, change)?;
        }
        Ok(Self::with(state, clock))
    }

    /// Returns all changes, also of a closed store, as [`MemoryStore::replay`] takes them.
    pub fn history(&self) -> Vec<Change> {
        self.inner.lock().state.changes.clone()
    }

    fn with(state: State, clock: Arc<dyn Clock>) -> Self {
        let timelines = Arc::new(Timelines::new(TimelineId::of_catalogue([0; 16])));
        let inner = Mutex::new(Inner { state, closed: None });
        MemoryStore { clock, inner, committed: Notify::new(), timelines }
    }

    /// Returns the same store with timelines as after a restore.
    pub fn on_timelines(self, timelines: Timelines) -> Self {
        MemoryStore { timelines: Arc::new(timelines), ..self }
    }

    /// Answers a read from the present state.
    fn read<T>(&self, answer: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        let inner = self.inner.lock();
        match &inner.closed {
            Some(why) => Err(Error::new(ErrorKind::Unavailable, why.clone())),
            None => answer(&inner.state),
        }
    }
}

/// Says whether a fact that the request's permission was judged by has changed (clause A11).
fn is_outdated(state: &State, request: &Request) -> bool {
    let Some(judged) = &request.judged else { return false };
    let own = |revision: Revision| {
        (0u32..).take(request.mutations.len()).any(|index| {
            let applied = state.remembered(request.operation, index);
            matches!(applied, Some(Outcome::Applied { revision: made, .. }) if made == revision)
        })
    };
    !rules::judged_the_same(state, judged, &request.mutations, &own)
}

/// Returns the outcome of a mutation of an outdated request: an applied one keeps its outcome.
fn refused_as_outdated(state: &State, request: &Request, index: usize) -> Outcome {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    state.remembered(request.operation, index).unwrap_or(Outcome::Refused(Refusal::Outdated))
}

/// Decides one mutation, and applies its effect if it has one.
fn perform(
    state: &mut State,
    request: &Request,
    index: usize,
    now: TimeMs,
) -> std::result::Result<Outcome, ApplyError> {
    let index_in_request = u32::try_from(index).unwrap_or(u32::MAX);
    if let Some(outcome) = state.remembered(request.operation, index_in_request) {
        return Ok(outcome);
    }
    let time = now.max(state.time);
    let revision = Revision(state.revision.0 + 1);
    let effect = match rules::decide(state, &request.mutations[index], revision, time) {
        Ok(Some(effect)) => effect,
        Ok(None) => return Ok(Outcome::Unchanged),
        Err(refusal) => return Ok(Outcome::Refused(refusal)),
    };
    let id = effect.entry_id();
    let change = Change {
        revision,
        time,
        who: request.who,
        operation: request.operation,
        index: index_in_request,
        effect,
    };
    // An effect decided on this state must apply to it. If it does not, the store has a defect and
    // stops.
    apply::apply(state, change).map_err(|error| ApplyError::Unknown(error.message))?;
    Ok(Outcome::Applied { revision, id })
}

#[async_trait]
impl Store for MemoryStore {
    async fn apply(&self, request: Request) -> std::result::Result<Vec<Outcome>, ApplyError> {
        request.weigh()?;
        let outcomes = {
            let mut inner = self.inner.lock();
            if let Some(why) = &inner.closed {
                return Err(ApplyError::Unavailable(why.clone()));
            }
            if inner.state.is_another(request.operation, request.fingerprint) {
                return Err(ApplyError::conflict(request.operation));
            }
            let now = self.clock.trusted();
            let mut outcomes = Vec::with_capacity(request.mutations.len());
            let outdated = is_outdated(&inner.state, &request);
            for index in 0..request.mutations.len() {
                if outdated {
                    outcomes.push(refused_as_outdated(&inner.state, &request, index));
                    continue;
                }
                match perform(&mut inner.state, &request, index, now) {
                    Ok(outcome) => outcomes.push(outcome),
                    Err(error) => {
                        inner.closed = Some(error.to_string());
                        return Err(error);
                    }
                }
            }
            inner.state.remember_fingerprint(request.operation, request.fingerprint);
            outcomes
        };
        self.committed.notify_waiters();
        Ok(outcomes)
    }

    async fn resolve(&self, paths: &[Lfn]) -> Result<Vec<Resolution>> {
        self.read(|state| reads::resolve(state, paths))
    }

    async fn locate(&self, ids: &[EntryId]) -> Result<Vec<Option<Located>>> {
        self.read(|state| reads::locate(state, ids))
    }

    async fn standing(&self, places: &[At]) -> Result<Vec<Option<Entry>>> {
        within_batch(places.len())?;
        self.read(|state| {
            let mut bytes = ReadBytes::default();
            let standing = |at| {
                let entry = state.at(at).cloned();
                bytes.add(entry.as_ref()).map(|()| entry)
            };
            places.iter().map(standing).collect()
        })
    }

    async fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Option<Page<Entry>>> {
        self.read(|state| Ok(reads::list(state, directory, after, limit)))
    }

    async fn usage(&self, of: &[UsageOf]) -> Result<Vec<Account>> {
        self.read(|state| reads::usage(state, of))
    }

    async fn replicas_on(&self, se: SeNumber, cursor: &[u8], limit: usize) -> Result<ReplicasPage> {
        self.read(|state| reads::replicas_on(state, se, cursor, limit))
    }

    async fn members(
        &self,
        collection: Guid,
        after: Option<Guid>,
        limit: usize,
    ) -> Result<Option<Page<Guid>>> {
        self.read(|state| Ok(reads::members(state, collection, after, limit)))
    }

    async fn trash(&self, after: Option<TrashId>, limit: usize) -> Result<Page<TrashItem>> {
        self.read(|state| Ok(reads::trash(state, after, limit)))
    }

    async fn trash_item(&self, id: TrashId) -> Result<Option<TrashItem>> {
        self.read(|state| Ok(reads::trash_item(state, id)))
    }

    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
    ) -> Result<Page<Deletion>> {
        self.read(|state| Ok(reads::deletions(state, se, after, limit)))
    }

    async fn reservation(&self, guid: Guid) -> Result<Option<Reservation>> {
        self.read(|state| Ok(state.reservations.get(&guid).cloned()))
    }

    async fn reservations(&self, after: Option<Guid>, limit: usize) -> Result<Page<Reservation>> {
        self.read(|state| Ok(reads::reservations(state, after, limit)))
    }

    async fn due(&self, now: TimeMs, limit: usize) -> Result<Due> {
        self.read(|state| Ok(reads::due(state, now, limit)))
    }

    async fn record(&self, key: RecordKey) -> Result<Option<(Record, Revision)>> {
        self.read(|state| Ok(state.records.get(&key).cloned()))
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Page<RecordEntry>> {
        self.read(|state| Ok(reads::records(state, kind, after, limit)))
    }

    async fn revision(&self) -> Result<Revision> {
        self.read(|state| Ok(state.revision))
    }

    fn timelines(&self) -> Arc<Timelines> {
        Arc::clone(&self.timelines)
    }

    async fn changes(&self, after: Revision, limit: usize) -> Result<ChangePage> {
        self.read(|state| Ok(reads::changes(state, after, limit)))
    }

    async fn traces(&self, of: &[Trace]) -> Result<Traces> {
        self.read(|state| reads::traces(state, of))
    }

    async fn changed(&self, after: Revision) -> Result<()> {
        loop {
            // Registered before the read, so that no commit between the two is missed.
            let committed = self.committed.notified();
            tokio::pin!(committed);
            committed.as_mut().enable();
            if self.read(|state| Ok(state.revision > after))? {
                return Ok(());
            }
            committed.await;
        }
    }

    async fn audit(&self) -> Result<Audit> {
        self.read(|state| Ok(audit::audit(state)))
    }

    async fn status(&self) -> Result<StoreStatus> {
        self.read(|state| Ok(reads::status(state)))
    }

    fn seen_revision(&self) -> Revision {
        self.inner.lock().state.revision
    }

    fn credentials_seen(&self) -> u64 {
        self.inner.lock().state.credentials
    }

    async fn close(&self) -> Result<()> {
        self.inner.lock().closed.get_or_insert_with(|| "the store is closed".to_owned());
        self.committed.notify_waiters();
        Ok(())
    }
}
