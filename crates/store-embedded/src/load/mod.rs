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
mod row;
mod sorter;
mod twice;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, GroupId, NewEntry, Result, Usage, UserId};
use parking_lot::Mutex;

use crate::disk::{Disk, remove_tree};
use crate::identity::Layout;
use crate::log::cannot_write;
use crate::page::RowRoom;
use crate::store::EmbeddedStore;
use crate::writer::Command;

pub(crate) use feed::{LoadWork, Piece, rows_of};
pub(crate) use row::Placed;

use row::pack;
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
    fn new(disk: Arc<dyn Disk>, directory: PathBuf, settings: LoadSettings) -> Self {
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

impl EmbeddedStore {
    /// Begins to gather files for a load. There can be only one at a time.
    pub fn loader(&self, settings: LoadSettings) -> Result<Loader> {
        if settings.run_rows == 0 {
            return Err(Error::invalid("a run of a load has no room for a row"));
        }
        if self.is_read_only() {
            return Err(Error::new(ErrorKind::Unavailable, "this is a snapshot, it cannot be changed"));
        }
        let (disk, directory) = (Arc::clone(&self.shared().disk), self.keeper().layout().load());
        remove_tree(&*disk, &directory)
            .and_then(|()| disk.create_directory(&directory))
            .map_err(|error| cannot_write(&directory, &error))?;
        Ok(Loader::new(disk, directory, settings))
    }

    /// Loads the taken files as changes of `who`, and returns how many are now in the catalogue.
    /// `left` gets the numbers of the others. Nothing was done about those: the ordinary path loads
    /// or refuses them.
    ///
    /// Meanwhile the store answers no other request. After an error a part may be done: the log has
    /// only whole files of it. Repeating the load leaves that part to the ordinary path.
    pub async fn load(
        &self,
        loader: Loader,
        who: UserId,
        left: impl FnMut(u64) + Send + 'static,
    ) -> Result<u64> {
        self.ask(|reply| Command::Load(Box::new(LoadWork { loader, who, left: Box::new(left), reply })))
            .await?
    }
}
