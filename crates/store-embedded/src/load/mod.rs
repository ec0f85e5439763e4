//! Bulk load: sorts many new files outside, and puts them into the log and straight into runs, past
//! the memtables.
//!
//! ```text
//!  files in any order ─► packed ─► sorted by key (in parts on disk, if they are many) ─┐
//!                                                                                      ▼
//!            writer: decides, encodes ─► committer: log ─ synced   each once, in the order of keys
//!               └─► rows ─► compactor: pages of one run for every few million rows, named by the
//!                           manifest when the log has them
//! ```
//! The result is ordinary: the log has the changes as if they had come one by one, and the runs are
//! plain runs. A power cut at any moment leaves a whole number of records, and opening applies
//! those that no run has yet.
//!
//! A load accepts only plain files: a new file, in an existing directory, under a free name and
//! GUID, within any quota. The caller gets the others back, untouched, for the ordinary path. So
//! one place reports refusals, and applies policies for existing entries.

mod feed;
mod pack;
mod piece;
mod row;
mod sorter;
mod twice;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, cannot_write, remove_tree};
use exacat_model::{GroupId, NewEntry, Result, Usage, UserId};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::identity::Layout;
use crate::page::RowRoom;

pub(crate) use piece::{Piece, rows_of};
pub(crate) use row::Placed;

use pack::pack;
use sorter::Sorter;
use twice::Twice;

/// Bounds of a load.
#[derive(Clone, Copy, Debug)]
pub struct LoadSettings {
    /// Memory in bytes for files that are being sorted; further ones wait on disk.
    pub sort_bytes: usize,
    /// Maximum rows of one run.
    pub run_rows: u64,
}

impl Default for LoadSettings {
    fn default() -> Self {
        LoadSettings { sort_bytes: 512 << 20, run_rows: 4 << 20 }
    }
}

/// Removes the leftovers of an interrupted load, which never count.
pub(crate) fn sweep(disk: &dyn Disk, layout: &Layout) {
    if let Err(error) = remove_tree(disk, &layout.load()) {
        tracing::warn!(%error, "cannot remove the temporary files of a load that was interrupted");
    }
}

/// Files to be loaded together. If it is dropped, none of them is loaded.
pub struct Loader {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    settings: LoadSettings,
    taken: Mutex<Taken>,
}

/// Files taken so far.
struct Taken {
    sorter: Sorter,
    twice: Twice,
    totals: Vec<Total>,
}

/// Sum of all files of an owner and a group.
#[derive(Clone, Copy, Debug)]
struct Total {
    owner: UserId,
    group: GroupId,
    usage: Usage,
}

fn add_total(totals: &mut Vec<Total>, more: Total) {
    let same = |total: &&mut Total| (total.owner, total.group) == (more.owner, more.group);
    // Files usually come grouped by owner, so the last total is tried first.
    match totals.iter_mut().rev().find(same) {
        Some(total) => total.usage.add(&more.usage),
        None => totals.push(more),
    }
}

impl Loader {
    pub(crate) fn new(disk: Arc<dyn Disk>, directory: PathBuf, settings: LoadSettings) -> Self {
        let taken = Mutex::new(Self::taken_of(&disk, &directory, settings));
        Loader { disk, directory, settings, taken }
    }

    /// Returns an empty collection.
    fn taken_of(disk: &Arc<dyn Disk>, directory: &Path, settings: LoadSettings) -> Taken {
        let sorter = Sorter::new(Arc::clone(disk), directory, settings.sort_bytes);
        let twice = Twice::new(Arc::clone(disk), directory, settings.sort_bytes);
        Taken { sorter, twice, totals: Vec::new() }
    }

    /// Takes files, each with a number that identifies it. Of several files with one name the
    /// smallest number counts. Returns for each whether it was taken: a file is refused if it is
    /// not plain, or valid in no catalogue.
    pub fn take(&self, files: impl IntoIterator<Item = (u64, NewEntry)>) -> Result<Vec<bool>> {
        let (mut rows, mut guids, mut totals) = (sorter::Rows::default(), Vec::new(), Vec::new());
        let mut room = RowRoom::default();
        let took = files.into_iter().map(|(number, file)| {
            let packed = pack(number, file, &mut room, &mut rows);
            if let Some(packed) = &packed {
                guids.push(packed.guid);
                add_total(
                    &mut totals,
                    Total { owner: packed.owner, group: packed.group, usage: packed.usage },
                );
            }
            packed.is_some()
        });
        let took = took.collect();
        let mut taken = self.taken.lock();
        let wrong = |error| cannot_write(&self.directory, &error);
        taken.sorter.append(rows).map_err(wrong)?;
        taken.twice.append(&guids).map_err(wrong)?;
        totals.into_iter().for_each(|total| add_total(&mut taken.totals, total));
        Ok(took)
    }

    /// Returns the number of files taken.
    pub fn len(&self) -> u64 {
        self.taken.lock().sorter.len()
    }

    /// Says whether no file was taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&*self.disk, &self.directory) {
            tracing::warn!(%error, "cannot remove the temporary files of a load");
        }
    }
}

/// A bulk load that the writer carries out.
pub(crate) struct LoadWork {
    pub loader: Loader,
    pub who: UserId,
    pub left: Box<dyn FnMut(u64) + Send>,
    pub reply: oneshot::Sender<Result<u64>>,
}
