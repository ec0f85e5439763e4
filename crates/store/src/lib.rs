//! The one boundary: what a store offers, and what it promises.
//!
//! Start with [`contract`]: the clauses every store keeps and the table of mutations. Then [`Store`], the
//! trait. [`rules`] are the table's rows as functions of any state; [`memory`] is the reference: slow, obvious, the
//! oracle of every test.
//!
//! A store knows entries, not paths' meaning, sessions, faces or wire formats. What must hold at the instant of
//! commit is decided here; what may be judged a moment before (permission, policy) in the catalogue.

mod clock;
pub mod contract;
mod judged;
mod kept_time;
pub mod memory;
mod outcome;
mod read;
pub mod rules;
mod snapshots;

pub use clock::{
    CLOCK_JUMP, CLOCK_JUMP_RANGE, Clock, ClockJump, SystemClock, SystemUptime, Uptime, WatchedClock,
};
pub use judged::{Judged, JudgedEntry};
pub use outcome::{ApplyError, Outcome, Refusal, Request};
pub use read::{
    Account, ChangePage, Due, Files, FoundFile, Gate, Gates, Located, Page, Place, RecordEntry, StoreStatus,
    Trace, Traces, Trail, TrailEnd, UsageOf, Walk, WalkEnd, within_batch,
};

pub use snapshots::Snapshots;

use std::sync::Arc;

use async_trait::async_trait;
use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{
    At, Audit, Booking, Consistency, Deletion, DeletionId, DirId, Entry, EntryId, Guid, Lfn, Name, Record,
    RecordKey, RecordKind, Result, Revision, SeNumber, TimeMs, Timelines, TrashId, TrashItem,
};

/// A catalogue's state: reads, and [`apply`](Store::apply) for batches of mutations.
///
/// Every read is answered from one committed state (clause R1) and sees every mutation whose answer its caller
/// has had (R2). Pages are bounded by `limit`, which is at most
/// [`PAGE_ITEMS_MAX`](exacat_model::limits::PAGE_ITEMS_MAX); batches of keys by
/// [`READ_BATCH_MAX`](exacat_model::limits::READ_BATCH_MAX). The clauses stand in [`contract`].
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Decides and commits a request's mutations in order; one outcome each.
    async fn apply(&self, request: Request) -> std::result::Result<Vec<Outcome>, ApplyError>;

    /// Applies requests that came together, in order, each as [`Store::apply`] would: what becomes of one does not
    /// depend on whether another is done.
    async fn apply_each(&self, requests: Vec<Request>) -> Vec<std::result::Result<Vec<Outcome>, ApplyError>> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(self.apply(request).await);
        }
        answers
    }

    /// Follows each path from the root, as far as it goes.
    async fn walk(&self, paths: &[Lfn]) -> Result<Vec<Walk>>;

    /// Finds files by their paths: what [`Store::walk`] gives of each path that ends at a file, without what a look-up
    /// leaves unread; nothing of other paths.
    async fn files(&self, paths: &[Lfn]) -> Result<Files> {
        Ok(self.walk(paths).await?.into_iter().collect())
    }

    /// Finds entries by what stays the same; in the tree or in the trash; none if there is no such entry.
    async fn locate(&self, ids: &[EntryId]) -> Result<Vec<Option<Located>>>;

    /// Finds entries by where they stand, in the tree or below an item of the trash; none where nothing
    /// stands.
    async fn standing(&self, places: &[At]) -> Result<Vec<Option<Entry>>>;

    /// Children of a directory in the order of their names' bytes, after `after`. None if there is no such
    /// directory. Directories in the trash can be listed.
    async fn list(&self, directory: DirId, after: Option<&Name>, limit: usize)
    -> Result<Option<Page<Entry>>>;

    /// What is used, exactly; with what bookings reserve, for users and groups.
    async fn usage(&self, of: &[UsageOf]) -> Result<Vec<Account>>;

    /// Files with a replica on a storage element, in an order of the store's own. `cursor` is empty at the
    /// start, later what the page before gave. Files in the trash are among them. One that is moved meanwhile may be
    /// given more than once (R3).
    async fn replicas_on(&self, se: SeNumber, cursor: &[u8], limit: usize) -> Result<(Page<Entry>, Vec<u8>)>;

    /// Members of a collection in the order of their GUIDs, after `after`; none if there is no such collection.
    async fn members(
        &self,
        collection: Guid,
        after: Option<Guid>,
        limit: usize,
    ) -> Result<Option<Page<Guid>>>;

    /// Items of the trash, oldest first, after `after`.
    async fn trash(&self, after: Option<TrashId>, limit: usize) -> Result<Page<TrashItem>>;

    /// One item of the trash.
    async fn trash_item(&self, id: TrashId) -> Result<Option<TrashItem>>;

    /// The deletion queue of a storage element, oldest first, after `after`.
    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
    ) -> Result<Page<Deletion>>;

    /// One booking.
    async fn booking(&self, guid: Guid) -> Result<Option<Booking>>;

    /// Bookings in the order of their GUIDs, after `after`.
    async fn bookings(&self, after: Option<Guid>, limit: usize) -> Result<Page<Booking>>;

    /// What has expired by `now`, longest ago first: bookings, and entries in the tree.
    async fn due(&self, now: TimeMs, limit: usize) -> Result<Due>;

    /// One record of the registry and the change that last set it.
    async fn record(&self, key: RecordKey) -> Result<Option<(Record, Revision)>>;

    /// Records of one kind in the order of their keys, after `after`.
    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Page<RecordEntry>>;

    /// The timelines of the catalogue, which stay the same as long as the store is open: which of
    /// several histories its revisions are of (H5).
    fn timelines(&self) -> Arc<Timelines>;

    /// The last committed revision.
    async fn revision(&self) -> Result<Revision>;

    /// Changes after `after`, in order, at most `limit`.
    async fn changes(&self, after: Revision, limit: usize) -> Result<ChangePage>;

    /// Changes of one entry, the newest first, from its change `from` on, at most `limit`, each found
    /// by the one after it.
    async fn trail(&self, id: EntryId, from: Revision, limit: usize) -> Result<Trail> {
        let limit = limit.min(PAGE_ITEMS_MAX);
        let mut trail = Trail { changes: Vec::new(), end: TrailEnd::More(from) };
        while let TrailEnd::More(revision) = trail.end
            && trail.changes.len() < limit
        {
            let page = self.changes(Revision(revision.0.saturating_sub(1)), 1).await?;
            let change = page.changes.into_iter().next();
            match change.filter(|one| one.revision == revision && one.effect.changed_entry() == Some(id)) {
                Some(change) => {
                    trail.end = TrailEnd::before(&change, page.oldest);
                    trail.changes.push(change);
                }
                None => trail.end = TrailEnd::NotKept,
            }
        }
        Ok(trail)
    }

    /// The changes that these traces lead to.
    async fn traces(&self, of: &[Trace]) -> Result<Traces>;

    /// Returns once there is a change after `after`. May return early; then ask again.
    async fn changed(&self, after: Revision) -> Result<()>;

    /// Recomputes every index and every counter from the entries of one committed state, and compares.
    async fn audit(&self) -> Result<Audit>;

    /// Figures for an operator.
    async fn status(&self) -> Result<StoreStatus>;

    /// Makes what was answered durable (it is), frees what is held, and refuses further work.
    async fn close(&self) -> Result<()>;

    /// The same store, for answers that may be older than the question: its reads are of a state that may be as old as this level allows (R2).
    /// Whatever it applies is decided as ever. None if nobody else changes the state: then every answer is of the last one anyway.
    fn relaxed(&self, level: Consistency) -> Option<Arc<dyn Store>> {
        let _ = level;
        None
    }

    /// How often records were changed, as far as is known without looking; 0 for ever if nobody else changes the state. As long as it is the same, records are as
    /// they were when they were read last, or it takes a look to find out that they are not.
    fn records_seen(&self) -> u64 {
        0
    }

    /// A revision that no state is older than that a read which begins after this shows; as late as is
    /// known without waiting. Permission that is judged by such reads is judged by facts of that
    /// revision or a later one ([`Judged::since`]).
    fn seen_revision(&self) -> Revision {
        Revision(0)
    }

    /// Number of changes of accounts and tokens, as far as is known without a read. As
    /// long as it is the same, whoever was known by them still is.
    fn credentials_seen(&self) -> u64;

    /// Why nothing in it can be changed, if that is so: [`apply`](Store::apply) refuses whatever is asked.
    fn read_only(&self) -> Option<&'static str> {
        None
    }

    /// Why nothing more can be changed until the store is opened again, if its log failed. Reads
    /// are answered from what is durable.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Returns when [`failure`](Store::failure) says why; never, as long as all is well.
    async fn failed(&self) -> String {
        std::future::pending().await
    }

    /// Its snapshots and backups, if it can have any: what is kept on a disk of its own.
    fn as_snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }
}
