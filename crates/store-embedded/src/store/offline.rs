//! Work on a data directory beside the running store: snapshots, clones, restores, backups, repair
//! and inspection.

use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, RealDisk};
use exacat_model::{Error, Result, Snapshot, SnapshotCheck, SnapshotName};
use exacat_store::Clock;

use super::EmbeddedStore;
use crate::history::History;
use crate::identity::Layout;
use crate::inspect::{Inspection, inspect};
use crate::older::Older;
use crate::repair::{RepairOptions, RepairProgress, Repaired, repair};
use crate::settings::EmbeddedSettings;
use crate::shared::Shared;
use crate::snapshot::{
    BackupInfo, BackupSource, Cloned, RestorePoint, RestoreProgress, RestoreRequest, Restored,
    SnapshotService, clone_snapshot, existing, has_backups, layout_of, list_backups, restore, restore_backup,
    take, verify_backups, view,
};

impl EmbeddedStore {
    /// Opens a snapshot of the catalogue in the settings' directory as a read-only store. The
    /// catalogue itself may be in use, by this process or another.
    pub fn open_snapshot(
        settings: EmbeddedSettings,
        name: &SnapshotName,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        Self::open_snapshot_on(Arc::new(RealDisk), settings, name, clock)
    }

    /// Opens a snapshot like [`open_snapshot`](Self::open_snapshot), on another disk.
    pub fn open_snapshot_on(
        disk: Arc<dyn Disk>,
        settings: EmbeddedSettings,
        name: &SnapshotName,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        settings.check()?;
        let data = Layout::new(&settings.directory);
        existing(&*disk, &data, name)?;
        let layout = layout_of(&data, name);
        let view = view::open(&disk, &layout, settings.cache_bytes)?;
        let history = History::new(Arc::clone(&disk), view.identity.id, view.segments);
        let older = Older::new(Arc::clone(&disk), layout.operations());
        let shared = Arc::new(Shared::new(view.state, history, older, disk));
        let (revision, time) = (view.label.revision.0, view.label.time);
        shared.metrics.warn(
            "snapshot",
            &format!("{name}, of revision {revision}, taken {time}: it answers, and cannot be changed"),
        );
        let settings = EmbeddedSettings { directory: layout.root().to_owned(), ..settings };
        let service = SnapshotService::new(layout, view.identity, clock).with(settings.companion.clone());
        Ok(Arc::new(EmbeddedStore::of_snapshot(shared, settings, service)))
    }

    /// Fails if the catalogue in `directory` has no such snapshot.
    pub fn has_snapshot(directory: &Path, name: &SnapshotName) -> Result<()> {
        existing(&RealDisk, &Layout::new(directory), name).map(|_| ())
    }

    /// Returns the snapshots of the catalogue in `directory`, the oldest state first.
    pub fn snapshots_in(directory: &Path) -> Result<Vec<Snapshot>> {
        let data = Layout::new(directory);
        if data.read_identity(&RealDisk)?.is_none() {
            return Err(Error::not_found(format!("there is no catalogue in {}", directory.display())));
        }
        take::list(&RealDisk, &data)
    }

    /// Reads every page and every record of a snapshot, checks all its counters and indices, and
    /// compares its digest.
    pub fn verify_snapshot_in(directory: &Path, name: &SnapshotName) -> Result<SnapshotCheck> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        view::verify(&disk, &existing(&*disk, &Layout::new(directory), name)?)
    }

    /// Restores the catalogue in the settings' directory from one of its snapshots. No process may
    /// have it open. The changes after the snapshot come from its log, or from the log in another
    /// directory, such as a replaced copy.
    pub fn restore(
        settings: &EmbeddedSettings,
        name: &SnapshotName,
        point: RestorePoint,
        log_of: Option<&Path>,
        clock: &dyn Clock,
        progress: &mut dyn FnMut(&RestoreProgress),
    ) -> Result<Restored> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        restore(&disk, settings, &RestoreRequest { name, point, log_of }, clock, progress)
    }

    /// Makes a catalogue in `into` from a snapshot of the one in the settings' directory, which may
    /// be in use. `into` must be empty or missing. Both must be on one file system.
    pub fn clone_snapshot(
        settings: &EmbeddedSettings,
        name: &SnapshotName,
        into: &Path,
        clock: &dyn Clock,
    ) -> Result<Cloned> {
        clone_snapshot(&(Arc::new(RealDisk) as Arc<dyn Disk>), settings, name, into, clock)
    }

    /// Restores a catalogue from a directory of backups into the settings' directory, which must
    /// have none.
    pub fn restore_backup(
        settings: &EmbeddedSettings,
        source: &BackupSource,
        point: RestorePoint,
        clock: &dyn Clock,
        progress: &mut dyn FnMut(&RestoreProgress),
    ) -> Result<Restored> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        restore_backup(&disk, settings, source, point, clock, progress)
    }

    /// Says whether this directory has backups.
    pub fn has_backups(directory: &Path) -> Result<bool> {
        has_backups(&RealDisk, directory)
    }

    /// Returns the backups in a directory, the oldest first.
    pub fn list_backups(directory: &Path) -> Result<Vec<BackupInfo>> {
        list_backups(&(Arc::new(RealDisk) as Arc<dyn Disk>), directory)
    }

    /// Reads every file of every backup in a directory and compares its checksum; returns the
    /// problems.
    pub fn verify_backups(
        directory: &Path,
        progress: &mut dyn FnMut(&RestoreProgress),
    ) -> Result<Vec<String>> {
        verify_backups(&RealDisk, directory, progress)
    }

    /// Repairs the catalogue in the settings' directory, which no process may have open.
    pub fn repair(
        settings: &EmbeddedSettings,
        options: &RepairOptions,
        clock: &dyn Clock,
        progress: &mut dyn FnMut(&RepairProgress),
    ) -> Result<Repaired> {
        repair(&(Arc::new(RealDisk) as Arc<dyn Disk>), settings, options, clock, progress)
    }

    /// Checks the catalogue in `directory`, which no process may have open.
    pub fn inspect(directory: &Path) -> Result<Inspection> {
        inspect(&(Arc::new(RealDisk) as Arc<dyn Disk>), directory)
    }
}
