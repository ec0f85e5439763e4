//! Snapshots and backups: admins request them, operators see which there are, the store makes them.

use exacat_model::{Answer, Cursor, Error, OperationId, Result, SnapshotName};
use exacat_store::Snapshots;

use crate::Catalogue;
use crate::caller::Caller;

impl Catalogue {
    fn snapshots(&self, caller: &Caller, what: &str) -> Result<&dyn Snapshots> {
        caller.check_admin(what)?;
        self.with_snapshots(what)
    }

    fn with_snapshots(&self, what: &str) -> Result<&dyn Snapshots> {
        self.store.as_snapshots().ok_or_else(|| {
            Error::invalid(format!(
                "{what} needs a store with snapshots: this one has none, or is a snapshot"
            ))
        })
    }

    pub(crate) async fn snapshot_create(
        &self,
        caller: &Caller,
        id: OperationId,
        name: &SnapshotName,
    ) -> Result<Answer> {
        let snapshots = self.snapshots(caller, "to take a snapshot")?;
        Ok(Answer::Snapshot(Box::new(snapshots.snapshot(id, name).await?)))
    }

    /// Lists snapshots. Operators may too: the list has revisions and sizes, and no names of entries.
    pub(crate) async fn snapshot_list(&self, caller: &Caller) -> Result<Answer> {
        const WHAT: &str = "to see the snapshots";
        caller.check_operator(WHAT)?;
        Ok(Answer::Snapshots(self.with_snapshots(WHAT)?.snapshots().await?))
    }

    pub(crate) async fn snapshot_drop(
        &self,
        caller: &Caller,
        id: OperationId,
        name: &SnapshotName,
    ) -> Result<Answer> {
        self.snapshots(caller, "to drop a snapshot")?.drop_snapshot(id, name).await?;
        Ok(Answer::Done { revision: self.store.revision().await? })
    }

    pub(crate) async fn snapshot_verify(&self, caller: &Caller, name: &SnapshotName) -> Result<Answer> {
        let snapshots = self.snapshots(caller, "to check a snapshot")?;
        Ok(Answer::SnapshotChecked(snapshots.verify_snapshot(name).await?))
    }

    pub(crate) async fn snapshot_diff(
        &self,
        caller: &Caller,
        (before, after): (&SnapshotName, Option<&SnapshotName>),
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Answer> {
        let snapshots = self.snapshots(caller, "to compare with a snapshot")?;
        let (items, next) = snapshots.diff(before, after, cursor, limit).await?;
        Ok(Answer::Differences { items, next })
    }

    pub(crate) async fn backup(&self, caller: &Caller, directory: &str, cursor: &Cursor) -> Result<Answer> {
        let snapshots = self.snapshots(caller, "to make a backup")?;
        let (progress, next) = snapshots.backup(directory, cursor).await?;
        Ok(Answer::BackedUp { progress, next })
    }
}
