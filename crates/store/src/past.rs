//! Past states of stores that keep their own history.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use exacat_model::{PastPoint, Result, Revision, SnapshotName, TimelineId};

use crate::Store;

/// State that the reading of changes starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PastStart {
    /// The empty catalogue: the history is kept from its first change on.
    Beginning,
    /// A snapshot.
    Snapshot(SnapshotName),
    /// The present files, which have every change up to a little while ago.
    Present,
}

impl fmt::Display for PastStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PastStart::Beginning => f.write_str("the beginning of the history"),
            PastStart::Snapshot(name) => write!(f, "the snapshot {name}"),
            PastStart::Present => f.write_str("the files of the present state"),
        }
    }
}

/// Way to a past state, and the work on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRoute {
    /// Last change of the state.
    pub revision: Revision,
    /// State to start from.
    pub start: PastStart,
    /// Number of changes to read after it.
    pub changes: u64,
}

/// The catalogue on a timeline that a restore replaced.
pub struct Replaced {
    /// Catalogue as it was before the restore, with its history. It takes no changes.
    pub store: Arc<dyn Store>,
    /// Last change that was on the timeline.
    pub up_to: Revision,
}

/// Past states. Reading one runs beside everything else, and no change waits for it.
#[async_trait]
pub trait PastStates: Send + Sync {
    /// Finds the state at a point, and the work to make it. Refuses with `NotFound` a point that is not
    /// kept, or still to come, with `Conflict` a revision that was replaced, and with `Limit` a state that
    /// takes too many changes.
    async fn route(&self, point: PastPoint) -> Result<PastRoute>;

    /// Makes the state after a change: a store that takes no changes. It stays as it is, whatever becomes
    /// of the snapshots and the log, and holds its memory and files until it is dropped.
    async fn open(&self, revision: Revision) -> Result<Arc<dyn Store>>;

    /// Opens a replaced timeline; none if no copy of it is kept.
    async fn replaced(&self, timeline: TimelineId) -> Result<Option<Replaced>>;
}
