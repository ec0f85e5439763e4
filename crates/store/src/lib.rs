//! The boundary between catalogue and engines: the operations and guarantees of a store.
//!
//! Start with [`contract`]: the clauses that every store keeps and the table of mutations. Then
//! read [`Store`], the trait. [`rules`] has the rows of the table as functions of any state.
//!
//! A store knows entries. It does not know the meaning of paths, sessions, faces or wire formats.
//! The store decides the conditions that must hold at the commit. The catalogue decides those that
//! may be judged a moment before (permission, policy).

mod clock;
pub mod contract;
mod followed;
mod judged;
mod kept_time;
mod metric;
mod metric_text;
mod outcome;
mod past;
mod read;
pub mod rules;
mod snapshots;

pub use clock::{
    CLOCK_JUMP, CLOCK_JUMP_RANGE, Clock, ClockJump, SystemClock, SystemUptime, Uptime, WatchedClock,
};
pub use followed::{FixedFile, FixedFiles, Followed, LogOffset, LogPiece};
pub use judged::{Judged, JudgedEntry};
pub use metric::{Buckets, Exemplar, Metric, MetricKind, MetricUnit, MetricValue, Sample};
pub use metric_text::{metric_rows, metric_text};
pub use outcome::{ApplyError, Outcome, Refusal, Request};
pub use read::{
    Account, Ancestor, Ancestors, ChangePage, Due, EntryLocation, Files, FoundFile, Located, Page,
    PageInProgress, ReadBytes, RecordEntry, ReplicasPage, Resolution, ResolutionEnd, StoreStatus,
    StoredReplica, Trace, Traces, Trail, TrailEnd, UsageOf, within_batch,
};

pub use past::{PastRoute, PastStart, PastStates, Replaced};
pub use snapshots::Snapshots;

use std::sync::Arc;

use async_trait::async_trait;
use exacat_model::limits::{PAGE_ITEMS_MAX, PAGE_MEMORY_MAX};
use exacat_model::{
    At, Audit, Consistency, Deletion, DeletionId, DirId, Entry, EntryId, Guid, Lfn, Measured, Name, Record,
    RecordKey, RecordKind, Reservation, Result, Revision, SeNumber, TimeMs, Timelines, TrashId, TrashItem,
};

/// State of a catalogue: reads, and [`apply`](Store::apply) for batches of mutations.
///
/// Every read shows one committed state (clause R1), with every mutation whose outcome its caller
/// has received (R2). `limit` bounds a page, and [`PAGE_ITEMS_MAX`] bounds `limit`. Beyond
/// [`PAGE_MEMORY_MAX`] a page ends early (R9).
/// [`READ_BATCH_MAX`](exacat_model::limits::READ_BATCH_MAX) and
/// [`READ_MEMORY_MAX`](exacat_model::limits::READ_MEMORY_MAX) bound batches of keys. [`contract`] has
/// the clauses.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Decides and commits a request's mutations in order; returns one outcome each.
    async fn apply(&self, request: Request) -> std::result::Result<Vec<Outcome>, ApplyError>;

    /// Applies requests that arrived together, in order, each as [`Store::apply`] would. The result
    /// of one does not depend on the others.
    async fn apply_each(&self, requests: Vec<Request>) -> Vec<std::result::Result<Vec<Outcome>, ApplyError>> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(self.apply(request).await);
        }
        answers
    }

    /// Resolves each path from the root, as far as it exists.
    async fn resolve(&self, paths: &[Lfn]) -> Result<Vec<Resolution>>;

    /// Finds files by their paths. Returns the result of [`Store::resolve`] for each path that ends at
    /// a file, without the parts that a look-up does not read. Other paths have none.
    async fn files(&self, paths: &[Lfn]) -> Result<Files> {
        Ok(self.resolve(paths).await?.into_iter().collect())
    }

    /// Finds entries by identity, in the tree or in the trash; none if there is no such entry.
    async fn locate(&self, ids: &[EntryId]) -> Result<Vec<Option<Located>>>;

    /// Finds entries by place, in the tree or below an item of the trash; none at an empty place.
    async fn standing(&self, places: &[At]) -> Result<Vec<Option<Entry>>>;

    /// Lists the children of a directory after `after`, in the order of their names' bytes; none if
    /// there is no such directory. Directories in the trash can be listed.
    async fn list(&self, directory: DirId, after: Option<&Name>, limit: usize)
    -> Result<Option<Page<Entry>>>;

    /// Returns the exact usage. For users and groups, also the part that upload reservations hold.
    async fn usage(&self, of: &[UsageOf]) -> Result<Vec<Account>>;

    /// Lists the replicas on a storage element, in an order of the store's choice. `cursor` is empty
    /// at the start, then the one that the last page returned. Files in the trash are included. A
    /// file that moves meanwhile may appear more than once (R3). A page may be short.
    async fn replicas_on(&self, se: SeNumber, cursor: &[u8], limit: usize) -> Result<ReplicasPage>;

    /// Lists members of a collection after `after`, in the order of their GUIDs; none if there is
    /// no such collection.
    async fn members(
        &self,
        collection: Guid,
        after: Option<Guid>,
        limit: usize,
    ) -> Result<Option<Page<Guid>>>;

    /// Lists items of the trash after `after`, oldest first.
    async fn trash(&self, after: Option<TrashId>, limit: usize) -> Result<Page<TrashItem>>;

    /// Returns an item of the trash.
    async fn trash_item(&self, id: TrashId) -> Result<Option<TrashItem>>;

    /// Lists the deletion queue of a storage element after `after`, oldest first.
    async fn deletions(
        &self,
        se: SeNumber,
        after: Option<DeletionId>,
        limit: usize,
    ) -> Result<Page<Deletion>>;

    /// Returns an upload reservation.
    async fn reservation(&self, guid: Guid) -> Result<Option<Reservation>>;

    /// Lists upload reservations after `after`, in the order of their GUIDs.
    async fn reservations(&self, after: Option<Guid>, limit: usize) -> Result<Page<Reservation>>;

    /// Returns what has expired by `now`, longest ago first: upload reservations, and entries in
    /// the tree.
    async fn due(&self, now: TimeMs, limit: usize) -> Result<Due>;

    /// Returns a record of the registry and the change that last set it.
    async fn record(&self, key: RecordKey) -> Result<Option<(Record, Revision)>>;

    /// Lists records of one kind after `after`, in the order of their keys.
    async fn records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> Result<Page<RecordEntry>>;

    /// Returns the timelines of the catalogue (H5), which say to which history its revisions
    /// belong. They stay the same as long as the store is open.
    fn timelines(&self) -> Arc<Timelines>;

    /// Returns the last committed revision.
    async fn revision(&self) -> Result<Revision>;

    /// Returns changes after `after`, in order, at most `limit`.
    async fn changes(&self, after: Revision, limit: usize) -> Result<ChangePage>;

    /// Returns at most `limit` changes of one entry, the newest first, starting with its change
    /// `from`. Each change leads to the one before it.
    async fn trail(&self, id: EntryId, from: Revision, limit: usize) -> Result<Trail> {
        let limit = limit.min(PAGE_ITEMS_MAX);
        let (mut trail, mut bytes) = (Trail { changes: Vec::new(), end: TrailEnd::More(from) }, 0);
        while let TrailEnd::More(revision) = trail.end
            && trail.changes.len() < limit
            && bytes < PAGE_MEMORY_MAX
        {
            let page = self.changes(Revision(revision.0.saturating_sub(1)), 1).await?;
            let change = page.changes.into_iter().next();
            match change.filter(|one| one.revision == revision && one.effect.changed_entry() == Some(id)) {
                Some(change) => {
                    bytes += change.bytes();
                    trail.end = TrailEnd::before(&change, page.oldest);
                    trail.changes.push(change);
                }
                None => trail.end = TrailEnd::NotKept,
            }
        }
        Ok(trail)
    }

    /// Returns the changes that these traces lead to.
    async fn traces(&self, of: &[Trace]) -> Result<Traces>;

    /// Waits for a change after `after`. May return early; the caller then repeats it.
    async fn changed(&self, after: Revision) -> Result<()>;

    /// Recomputes every index and every counter from the entries of one committed state, and
    /// compares.
    async fn audit(&self) -> Result<Audit>;

    /// Returns metrics for an operator.
    async fn status(&self) -> Result<StoreStatus>;

    /// Frees what the store holds and refuses further work. All answered changes are durable
    /// already.
    async fn close(&self) -> Result<()>;

    /// Returns the same store with bounded-staleness reads: their state may be as old as this level
    /// allows (R2). Its `apply` decides as always. None if no other server changes the state,
    /// because every answer is then of the last state anyway.
    fn with_bounded_staleness(&self, level: Consistency) -> Option<Arc<dyn Store>> {
        let _ = level;
        None
    }

    /// Counts changes of records, as known without a read; always 0 if no other server changes the
    /// state. While the count stays the same, records are as last read, or only a read can show
    /// that they are not.
    fn records_seen(&self) -> u64 {
        0
    }

    /// Returns a lower bound of the revision that later reads show, the highest known without
    /// waiting. So facts from such reads, which permission is judged by, are of that revision or a
    /// later one ([`Judged::since`]).
    fn seen_revision(&self) -> Revision {
        Revision(0)
    }

    /// Counts changes of accounts and tokens, as known without a read. While the count stays the
    /// same, a caller known by them still is.
    fn credentials_seen(&self) -> u64;

    /// Returns the reason why the store is read-only, if it is; [`apply`](Store::apply) then
    /// refuses everything.
    fn read_only(&self) -> Option<&'static str> {
        None
    }

    /// Returns the reason why no change is possible until the store is reopened, if its log failed.
    /// Reads still show durable changes.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Waits until [`failure`](Store::failure) has a reason, and returns it.
    async fn failed(&self) -> String {
        std::future::pending().await
    }

    /// Shows the state of this server to the other servers of the catalogue, for a minute. A store that
    /// only one server uses does nothing.
    async fn show_state(&self, _state: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Returns the states that other servers of the catalogue have shown in the last minute, at most so
    /// many.
    async fn states_of_others(&self, _limit: usize) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    /// Returns the address of the server that takes changes in place of this one: the source that it
    /// follows, or a follower that was promoted.
    fn following(&self) -> Option<String> {
        None
    }

    /// Returns the directory to which the store is limited, with everything below it; none if it has the
    /// whole catalogue. Its trash, history, queues and usage of accounts are not those of the catalogue.
    fn under(&self) -> Option<&Lfn> {
        None
    }

    /// Returns the log and the files for followers, if the store has its own.
    fn as_followed(&self) -> Option<&dyn Followed> {
        None
    }

    /// Returns the past states, if the store keeps its history itself and takes changes, or repeats them.
    fn as_past_states(&self) -> Option<&dyn PastStates> {
        None
    }

    /// Returns the snapshots and backups, if the store has a disk of its own for them.
    fn as_snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }
}
