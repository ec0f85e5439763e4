//! Bulk load: many new files at once, sorted outside, put into the log and straight into runs, past the memtables.
//!
//! ```text
//!  files in any order ─► packed ─► sorted by key (in parts on disk, if they are many) ─┐
//!                                                                                      ▼
//!            writer: decides, encodes ─► committer: log ─ synced        each of them once, in the order of keys
//!               └─► rows ─► merger: pages of one run for every few million rows, named by the manifest when
//!                                   the log has them
//! ```
//! Nothing is special about what comes out: the log has the changes as if they had come one by one, and a run is a run.
//! So a power cut at any moment leaves a whole number of records, and opening applies those that no run has yet.
//!
//! A load decides what is plain: a new file, in a directory that is there, under a name and a GUID that are free, within
//! any quota. Whatever is not is left, untouched, to whoever asked, for the ordinary way: so refusals are told, and policies
//! for what exists already are kept, in one place.

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

/// What a load is bounded by.
#[derive(Clone, Copy, Debug)]
pub struct LoadSettings {
    /// Memory for files that are being sorted; further ones wait on disk.
    pub sort_bytes: usize,
    /// Rows of one run, at most.
    pub run_rows: u64,
}

impl Default for LoadSettings {
    fn default() -> Self {
        LoadSettings { sort_bytes: 512 << 20, run_rows: 4 << 20 }
    }
}

/// Removes what a load that was interrupted left behind. Nothing that counts is ever there.
pub(crate) fn sweep(disk: &dyn Disk, layout: &Layout) {
    if let Err(error) = remove_tree(disk, &layout.load()) {
        tracing::warn!(%error, "cannot remove the temporary files of a load that was interrupted");
    }
}

/// Files that are to be loaded at once. Dropped, nothing of them is.
pub struct Loader {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    settings: LoadSettings,
    taken: Mutex<Taken>,
}

/// What was taken so far.
struct Taken {
    sorter: Sorter,
    twice: Twice,
    totals: Vec<Total>,
}

/// What all files of an owner and a group add up to.
#[derive(Clone, Copy, Debug)]
struct Total {
    owner: UserId,
    group: GroupId,
    usage: Usage,
}

fn add_total(totals: &mut Vec<Total>, more: Total) {
    let same = |total: &&mut Total| (total.owner, total.group) == (more.owner, more.group);
    // Files come by owner more often than not: the last is looked at first.
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

    /// Nothing taken yet.
    fn taken_of(disk: &Arc<dyn Disk>, directory: &Path, settings: LoadSettings) -> Taken {
        let sorter = Sorter::new(Arc::clone(disk), directory, settings.sort_bytes);
        let twice = Twice::new(Arc::clone(disk), directory, settings.sort_bytes);
        Taken { sorter, twice, totals: Vec::new() }
    }

    /// Takes files, each with a number that stands for it; of several of one name that of the smallest number counts. Gives
    /// for each whether it is taken: what is no plain file, or can be in no catalogue, is not.
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

    /// How many files were taken.
    pub fn len(&self) -> u64 {
        self.taken.lock().sorter.len()
    }

    /// None?
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
    /// Begins to gather files for a load. There is one at a time.
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

    /// Loads what was taken, as changes of `who`, and gives how many files that are now in the catalogue. The numbers of the
    /// others are given to `left`: nothing was done about them, and the ordinary way tells why, or does it.
    ///
    /// Nothing else is answered while it lasts. After an error a part may be done; it is in the log then, whole files only,
    /// and the same load again leaves it to the ordinary way.
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
