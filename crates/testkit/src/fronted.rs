//! A store with a front: a test observes the requests to the store, delays them, changes them or
//! lets them fail. It implements only the calls that it changes.

use std::sync::Arc;

use async_trait::async_trait;
use exacat_model::{
    At, Audit, Change, Deletion, DeletionId, DirId, Entry, EntryId, Guid, Lfn, Name, Record, RecordKey,
    RecordKind, Reservation, Result, Revision, SeNumber, TimeMs, Timelines, TrashId, TrashItem,
};
use exacat_store::{
    Account, ApplyError, ChangePage, Due, Located, Outcome, Page, RecordEntry, ReplicasPage, Request,
    Resolution, Store, StoreStatus, Trace, Traces, Trail, UsageOf,
};

/// Front of a store. Calls without an implementation go straight through.
#[async_trait]
pub trait Before: Send + Sync + 'static {
    /// Handles a request, and mostly passes it on.
    async fn apply(
        &self,
        request: Request,
        store: &dyn Store,
    ) -> std::result::Result<Vec<Outcome>, ApplyError> {
        store.apply(request).await
    }

    /// Handles requests that came together; by default each like a single one.
    async fn apply_each(
        &self,
        requests: Vec<Request>,
        store: &dyn Store,
    ) -> Vec<std::result::Result<Vec<Outcome>, ApplyError>> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(self.apply(request, store).await);
        }
        answers
    }

    /// Handles a resolution of paths, and mostly passes it on.
    async fn resolve(&self, paths: &[Lfn], store: &dyn Store) -> Result<Vec<Resolution>> {
        store.resolve(paths).await
    }

    /// Handles the read of a page of a listing, and mostly passes it on.
    async fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
        store: &dyn Store,
    ) -> Result<Option<Page<Entry>>> {
        store.list(directory, after, limit).await
    }

    /// Handles the read of a page of a deletion queue, and mostly passes it on.
    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
        store: &dyn Store,
    ) -> Result<Page<Deletion>> {
        store.deletions(se, after, limit).await
    }

    /// Handles the read of a page of records, and mostly passes it on.
    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
        store: &dyn Store,
    ) -> Result<Page<RecordEntry>> {
        store.records(kind, after, limit).await
    }

    /// Sees the changes that the store returned.
    fn gave(&self, _changes: &[Change]) {}

    /// Handles the close of the store, and mostly passes it on.
    async fn close(&self, store: &dyn Store) -> Result<()> {
        store.close().await
    }
}

/// A store with a front.
pub struct Fronted<B> {
    /// Front of the store.
    pub before: B,
    store: Arc<dyn Store>,
}

impl<B: Before> Fronted<B> {
    /// Puts `before` before `store`.
    pub fn new(before: B, store: Arc<dyn Store>) -> Self {
        Fronted { before, store }
    }
}

#[async_trait]
impl<B: Before> Store for Fronted<B> {
    async fn apply(&self, request: Request) -> std::result::Result<Vec<Outcome>, ApplyError> {
        self.before.apply(request, &*self.store).await
    }

    async fn apply_each(&self, requests: Vec<Request>) -> Vec<std::result::Result<Vec<Outcome>, ApplyError>> {
        self.before.apply_each(requests, &*self.store).await
    }

    async fn resolve(&self, paths: &[Lfn]) -> Result<Vec<Resolution>> {
        self.before.resolve(paths, &*self.store).await
    }

    // `files` stays as the trait has it: it calls `resolve`, so the front sees it.

    async fn locate(&self, ids: &[EntryId]) -> Result<Vec<Option<Located>>> {
        self.store.locate(ids).await
    }

    async fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Option<Page<Entry>>> {
        self.before.list(directory, after, limit, &*self.store).await
    }

    fn failure(&self) -> Option<String> {
        self.store.failure()
    }

    async fn failed(&self) -> String {
        self.store.failed().await
    }

    async fn usage(&self, of: &[UsageOf]) -> Result<Vec<Account>> {
        self.store.usage(of).await
    }

    async fn replicas_on(&self, se: SeNumber, cursor: &[u8], limit: usize) -> Result<ReplicasPage> {
        self.store.replicas_on(se, cursor, limit).await
    }

    async fn members(
        &self,
        collection: Guid,
        after: Option<Guid>,
        limit: usize,
    ) -> Result<Option<Page<Guid>>> {
        self.store.members(collection, after, limit).await
    }

    async fn trash(&self, after: Option<TrashId>, limit: usize) -> Result<Page<TrashItem>> {
        self.store.trash(after, limit).await
    }

    async fn trash_item(&self, id: TrashId) -> Result<Option<TrashItem>> {
        self.store.trash_item(id).await
    }

    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
    ) -> Result<Page<Deletion>> {
        self.before.deletions(se, after, limit, &*self.store).await
    }

    async fn reservation(&self, guid: Guid) -> Result<Option<Reservation>> {
        self.store.reservation(guid).await
    }

    async fn reservations(&self, after: Option<Guid>, limit: usize) -> Result<Page<Reservation>> {
        self.store.reservations(after, limit).await
    }

    async fn due(&self, now: TimeMs, limit: usize) -> Result<Due> {
        self.store.due(now, limit).await
    }

    async fn record(&self, key: RecordKey) -> Result<Option<(Record, Revision)>> {
        self.store.record(key).await
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Page<RecordEntry>> {
        self.before.records(kind, after, limit, &*self.store).await
    }

    async fn revision(&self) -> Result<Revision> {
        self.store.revision().await
    }

    fn timelines(&self) -> Arc<Timelines> {
        self.store.timelines()
    }

    async fn changes(&self, after: Revision, limit: usize) -> Result<ChangePage> {
        let page = self.store.changes(after, limit).await?;
        self.before.gave(&page.changes);
        Ok(page)
    }

    async fn standing(&self, places: &[At]) -> Result<Vec<Option<Entry>>> {
        self.store.standing(places).await
    }

    async fn trail(&self, id: EntryId, from: Revision, limit: usize) -> Result<Trail> {
        let trail = self.store.trail(id, from, limit).await?;
        self.before.gave(&trail.changes);
        Ok(trail)
    }

    async fn traces(&self, of: &[Trace]) -> Result<Traces> {
        self.store.traces(of).await
    }

    async fn changed(&self, after: Revision) -> Result<()> {
        self.store.changed(after).await
    }

    async fn audit(&self) -> Result<Audit> {
        self.store.audit().await
    }

    async fn status(&self) -> Result<StoreStatus> {
        self.store.status().await
    }

    async fn close(&self) -> Result<()> {
        self.before.close(&*self.store).await
    }

    fn seen_revision(&self) -> Revision {
        self.store.seen_revision()
    }

    fn credentials_seen(&self) -> u64 {
        self.store.credentials_seen()
    }
}
