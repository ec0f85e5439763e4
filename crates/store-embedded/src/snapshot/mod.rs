//! Snapshots: the whole catalogue as it was at one revision, kept by hard links; and everything
//! made from them.
//!
//! ```text
//!   DATA/runs, DATA/log ── hard links ──► DATA/snapshots/NAME/  laid out as a data directory:
//!                                           CATALOGUE   identity of the catalogue
//!                                           runs/       its own manifest, and the runs in it
//!                                           log/        the segments with the changes after those runs
//!                                           SNAPSHOT    label: name, revision, digest …
//! ```
//! Runs and sealed segments never change, and taking a snapshot begins a segment. A snapshot is
//! therefore three things: names for existing files, the header of the new segment, and the
//! revision at which reading the log ends. Taking one costs as many links as there are runs,
//! whatever their size. Compaction, archiving and retention may remove names in DATA; the files
//! stay as long as the snapshot has them.
//!
//! * `label`: the text file SNAPSHOT
//! * `take`: taking snapshots, listing and dropping them
//! * `view`: a snapshot as a state, and checking one
//! * `service`: what requests about snapshots of an open store share
//! * `diff`: the differences of two states, from the files that they do not share
//! * `clone`: a catalogue of its own on the same runs
//! * `cut`: a segment up to one of its changes
//! * `line`: the segments of a log that continue a snapshot
//! * `past`: the state after any change, from the nearest files before it
//! * `restore`: the catalogue as it was at a snapshot, or at a point after it
//! * `switch`: the moment at which a restore takes effect, even if it is interrupted
//! * `replaced`: a timeline that a restore replaced
//! * `witness`: snapshots as evidence of how far the log went
//! * `backup`: copies on another file system, and restores from there

pub(crate) mod backup;
mod clone;
pub(crate) mod cut;
pub(crate) mod diff;
mod label;
mod line;
pub(crate) mod past;
pub(crate) mod replaced;
mod restore;
pub(crate) mod service;
pub(crate) mod switch;
pub(crate) mod take;
pub(crate) mod view;
mod witness;

pub use backup::{BackupInfo, BackupSource};
pub(crate) use backup::{files_of_backup, has_backups, list_backups, restore_backup, verify_backups};
pub use clone::Cloned;
pub(crate) use clone::clone_snapshot;
pub(crate) use line::header_of_file;
pub use restore::{RestorePoint, RestoreProgress, Restored};
pub(crate) use restore::{RestoreRequest, restore};
pub(crate) use service::SnapshotService;
pub(crate) use take::sweep;
pub(crate) use witness::later_than;

use exacat_disk::Disk;
use exacat_model::{Error, ErrorKind, Result, SnapshotName};

use crate::identity::Layout;

/// Returns the layout of the snapshot with this name.
pub(crate) fn layout_of(data: &Layout, name: &SnapshotName) -> Layout {
    Layout::new(&data.snapshots().join(name.as_str()))
}

/// Returns the layout of the snapshot with this name; fails if there is none.
pub(crate) fn existing(disk: &dyn Disk, data: &Layout, name: &SnapshotName) -> Result<Layout> {
    let layout = layout_of(data, name);
    if take::is_there(disk, layout.root())? {
        return Ok(layout);
    }
    let names = take::names(disk, data)?;
    let there = match names.len() {
        0 => "there are none".to_owned(),
        1..=5 => {
            format!("there are {}", names.iter().map(SnapshotName::as_str).collect::<Vec<_>>().join(", "))
        }
        count => format!("there are {count} others"),
    };
    Err(Error::new(ErrorKind::NotFound, format!("there is no snapshot {name}: {there}")))
}

/// Parses one of this module's text files and prints it again; none if no file has this name.
pub(crate) fn read_again(name: &str, text: &str) -> Option<Result<String>> {
    match name {
        label::FILE => Some(label::Label::read_again(text)),
        switch::FILE => Some(switch::decode(text).map(switch::encode)),
        other => backup::read_again(other, text),
    }
}

/// Entry points for tests, which have a disk of their own.
#[cfg(test)]
pub(crate) use for_tests::*;

#[cfg(test)]
mod for_tests {
    use std::path::Path;
    use std::sync::Arc;

    use exacat_model::{Result, Snapshot};

    pub(crate) use super::backup::{
        list_backups as list_backups_on, restore_backup as restore_backup_on, verify_backups,
    };
    pub(crate) use super::clone::clone_snapshot as clone_on;
    pub(crate) use super::restore::restore as restore_on;
    pub(crate) use super::view::verify as verify_at;
    use crate::identity::Layout;
    use exacat_disk::Disk;

    pub(crate) fn list_at(disk: &Arc<dyn Disk>, data: &Path) -> Result<Vec<Snapshot>> {
        super::take::list(&**disk, &Layout::new(data))
    }

    pub(crate) fn verify_backups_on(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Vec<String>> {
        verify_backups(&**disk, directory, &mut |_| ())
    }
}
