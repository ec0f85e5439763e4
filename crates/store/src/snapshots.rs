//! Snapshots and backups of stores that keep their own files.

use async_trait::async_trait;
use exacat_model::{
    BackupProgress, Cursor, Difference, OperationId, Result, Snapshot, SnapshotCheck, SnapshotName,
};

/// Snapshots and backups.
///
/// Taking, comparing, checking and copying snapshots run beside everything else; changes wait for
/// none of them longer than a moment. A client that lost the answer retries a snapshot, or its
/// drop, with the same operation id, and gets the answer. This fails if it was long ago or the
/// store was reopened since.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Keeps the present state under a name. Refuses a name that a snapshot has.
    async fn snapshot(&self, id: OperationId, name: &SnapshotName) -> Result<Snapshot>;

    /// Returns the id of the catalogue, then those of the catalogues that it was cloned from, the nearest
    /// first. No catalogue knows its clones.
    fn ancestry(&self) -> Vec<[u8; 16]> {
        Vec::new()
    }

    /// Lists all snapshots, the oldest state first.
    async fn snapshots(&self) -> Result<Vec<Snapshot>>;

    /// Drops a snapshot.
    async fn drop_snapshot(&self, id: OperationId, name: &SnapshotName) -> Result<()>;

    /// Reads the whole of a snapshot, and checks it.
    async fn verify_snapshot(&self, name: &SnapshotName) -> Result<SnapshotCheck>;

    /// Lists the differences between the entries of a snapshot and of a later state: another
    /// snapshot, or the state at the time of the first call. The cursor is empty at the start, then
    /// the one that the last page returned. A page may have fewer items than `limit`, even none,
    /// and not be the last.
    async fn diff(
        &self,
        before: &SnapshotName,
        after: Option<&SnapshotName>,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<(Vec<Difference>, Option<Cursor>)>;

    /// Copies the present state to a directory of backups on the store's machine, as far as it is
    /// not there yet, one step per call. The caller repeats with the returned cursor until there is
    /// none.
    async fn backup(&self, directory: &str, cursor: &Cursor) -> Result<(BackupProgress, Option<Cursor>)>;
}
