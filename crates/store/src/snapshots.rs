//! What a store that keeps files of its own offers beside the catalogue: its states under names, and copies elsewhere.

use async_trait::async_trait;
use exacat_model::{
    BackupProgress, Cursor, Difference, OperationId, Result, Snapshot, SnapshotCheck, SnapshotName,
};

/// Snapshots and backups.
///
/// Taking one, comparing, checking and copying go on beside everything else; changes wait for none of them longer than a
/// moment. Who asks for a snapshot, or to drop one, again with the same operation id, because the answer was lost, gets
/// it, unless that is long ago or the store was opened since.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Keeps the state as it is under a name. An error if there is a snapshot of this name.
    async fn snapshot(&self, id: OperationId, name: &SnapshotName) -> Result<Snapshot>;

    /// All snapshots, the oldest state first.
    async fn snapshots(&self) -> Result<Vec<Snapshot>>;

    /// Ends a snapshot.
    async fn drop_snapshot(&self, id: OperationId, name: &SnapshotName) -> Result<()>;

    /// Reads all of a snapshot, and checks it.
    async fn verify_snapshot(&self, name: &SnapshotName) -> Result<SnapshotCheck>;

    /// How the entries of a state differ from those of a snapshot before it: of another snapshot, or of the state as it is
    /// when this is first asked. The cursor is empty at the start, later what the page before gave; a page may have fewer
    /// items than asked for, even none, and still go on.
    async fn diff(
        &self,
        before: &SnapshotName,
        after: Option<&SnapshotName>,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<(Vec<Difference>, Option<Cursor>)>;

    /// Copies the state as it is to a directory of backups on the store's machine, as far as it is not there yet: a step of it.
    /// To be asked again with the cursor it gives until there is none.
    async fn backup(&self, directory: &str, cursor: &Cursor) -> Result<(BackupProgress, Option<Cursor>)>;
}
