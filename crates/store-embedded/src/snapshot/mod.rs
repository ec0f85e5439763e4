//! Snapshots: the whole catalogue as it was at one revision, by hard links; and what is made of them.
//!
//! ```text
//!   DATA/runs, DATA/log ── hard links ──► DATA/snapshots/NAME/      laid out as a data directory:
//!                                           CATALOGUE               whose it is
//!                                           runs/                   a manifest of its own, and the runs it names
//!                                           log/                    the segments with what came after those runs
//!                                           SNAPSHOT                what it is: name, revision, digest …
//! ```
//! Runs and sealed segments never change, and taking a snapshot begins a segment. So a snapshot is a
//! list of names for files that are there already, the header of the segment that was begun, and a
//! revision at which reading the log ends. Taking one costs as many links as there are runs, whatever
//! is in them; and whatever merging, archiving and keeping less history do to the names in DATA, the
//! files stay as long as it has them.
//!
//! * `label`: the text file SNAPSHOT
//! * `take`: taking snapshots, listing and dropping them
//! * `view`: a snapshot as a store that cannot be changed, and checking one
//! * `diff`: how two states differ, by what they do not share
//! * `clone`: a catalogue of its own on the same runs
//! * `cut`: a segment up to one of its changes
//! * `line`: which segments of a log go on from a snapshot
//! * `restore`: the catalogue as it was at a snapshot, or at a point after it
//! * `switch`: the moment a restore counts from, whatever is interrupted
//! * `witness`: snapshots as witnesses of how far the log went
//! * `backup`: copies on another file system, and back from there

mod backup;
mod clone;
pub(crate) mod cut;
mod diff;
mod label;
mod line;
mod restore;
mod serve;
pub(crate) mod switch;
mod take;
pub(crate) mod view;
mod witness;

pub(crate) use backup::files_of_backup;
pub use backup::{BackupInfo, BackupSource};
pub use clone::Cloned;
pub(crate) use line::header_of_file;
pub use restore::{RestorePoint, RestoreProgress, Restored};
pub(crate) use serve::Keeper;
pub(crate) use take::sweep;
pub(crate) use witness::later_than;

use exacat_model::{Error, ErrorKind, Result, SnapshotName};

use crate::disk::Disk;
use crate::identity::Layout;

/// The snapshot of this name.
fn layout_of(data: &Layout, name: &SnapshotName) -> Layout {
    Layout::new(&data.snapshots().join(name.as_str()))
}

/// The snapshot of this name, if there is one.
fn existing(disk: &dyn Disk, data: &Layout, name: &SnapshotName) -> Result<Layout> {
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

/// What one of the texts here says, written again; none if nothing here is called so.
pub(crate) fn read_again(name: &str, text: &str) -> Option<Result<String>> {
    match name {
        label::FILE => Some(label::Label::read_again(text)),
        switch::FILE => Some(switch::decode(text).map(switch::encode)),
        other => backup::read_again(other, text),
    }
}

/// For tests, which have a disk of their own.
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
    use crate::disk::Disk;
    use crate::identity::Layout;

    pub(crate) fn list_at(disk: &Arc<dyn Disk>, data: &Path) -> Result<Vec<Snapshot>> {
        super::take::list(&**disk, &Layout::new(data))
    }

    pub(crate) fn verify_backups_on(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Vec<String>> {
        verify_backups(&**disk, directory, &mut |_| ())
    }
}
