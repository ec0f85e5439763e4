//! The shelf: the files of the runs, and which of them count.
//!
//! A run is begun under a number that was never used, is written, and only then named in the manifest: that is the
//! moment it counts from. Those it takes the place of are removed after it. So whatever is interrupted leaves nothing
//! but files that no manifest names, which are removed at the next opening.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Revision, TimeMs};

use super::Version;
use crate::disk::{Disk, DiskFile, list_if_there};
use crate::history::cannot_read;
use crate::identity::Identity;
use crate::log::{cannot_write, random_u64};
use crate::manifest::{Manifest, RunNamed};
use crate::run::{Run, RunHead, RunWriter, newest_in};
use crate::segment::CatalogueId;

/// How the name of a run's file ends.
const RUN: &str = ".run";
/// GUIDs of a run sorted in memory at once: 64 MiB.
const SORTED_IN_MEMORY: usize = 4 << 20;

/// Runs of about one size that are merged into one.
pub(crate) const RUNS_PER_TIER: usize = 8;

/// Of how many rows, about, as a power: runs of one tier are merged into one of the next.
pub(super) fn tier(rows: u64) -> u32 {
    rows.max(1).ilog2() / RUNS_PER_TIER.ilog2()
}

/// Of runs of so many rows each: how many more there are than when merging keeps up.
pub(super) fn owed(rows: impl ExactSizeIterator<Item = u64>) -> usize {
    let runs = rows.len();
    runs.saturating_sub((tier(rows.sum()) as usize + 1) * RUNS_PER_TIER)
}

/// The files of a table.
pub(crate) struct Shelf {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    identity: Identity,
    manifest: Manifest,
    version: Arc<Version>,
}

/// A run being written: nothing counts on it yet.
pub(crate) struct Begun {
    pub number: u64,
    pub writer: RunWriter,
}

/// What the file of this run is called.
pub(crate) fn name(number: u64) -> String {
    format!("{number:010}{RUN}")
}

/// Rows in all runs, below which no thread is worth starting to open one.
const OPENED_ALONE_ROWS: u64 = 1 << 20;

/// A number that is higher than that of any run in a directory.
pub(crate) fn next_number(disk: &dyn Disk, directory: &Path) -> Result<u64, Error> {
    let names = list_if_there(disk, directory)
        .map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    let numbers = names.iter().filter_map(|name| number_of(name));
    Ok(numbers.max().map_or(0, |number| number.saturating_add(1)))
}

/// The number of the run whose file is called so.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(RUN)?.parse().ok()
}

/// Begins a run's file, and another beside it for sorting.
pub(crate) fn begin_run(
    disk: &dyn Disk,
    directory: &Path,
    catalogue: CatalogueId,
    number: u64,
    rows_max: u64,
) -> Result<RunWriter, Error> {
    let create = |name: String| -> Result<Arc<dyn DiskFile>, Error> {
        let path = directory.join(name);
        disk.create(&path).map(Arc::from).map_err(|error| cannot_write(&path, &error))
    };
    let (file, scratch) = (create(name(number))?, create(scratch_name(number))?);
    let head = RunHead { catalogue, number, salt: random_u64()? };
    let writer = RunWriter::new(file, scratch, head, rows_max, SORTED_IN_MEMORY);
    writer.map_err(|error| cannot_write(&directory.join(name(number)), &error))
}

/// What the file beside a run that is being written is called.
pub(crate) fn scratch_name(number: u64) -> String {
    format!("{number:010}.scratch")
}

/// The newest change in the complete runs of a directory that its manifest does not name: one that was
/// being named when the power went, or all of them if the manifest was lost or put back. A run is
/// completed when the log durably has all of it, so it is a witness of how far that went.
pub(crate) fn newest_unnamed(
    disk: &dyn Disk,
    directory: &Path,
    identity: &Identity,
    manifest: &Manifest,
) -> Option<(String, Revision)> {
    let unnamed = list_if_there(disk, directory).unwrap_or_default().into_iter().filter(|name| {
        number_of(name).is_some_and(|number| manifest.runs.iter().all(|run| run.number != number))
    });
    let known = unnamed.filter_map(|name| {
        let file = disk.open_to_read(&directory.join(&name)).ok()?;
        let (head, revision) = newest_in(&name, &*file)?;
        identity.has_runs_of(head.catalogue).then_some((name, revision))
    });
    known.max_by_key(|(_, revision)| *revision)
}

impl Shelf {
    /// Opens the runs that the manifest names, and removes other files. A new shelf is empty.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, identity: impl Into<Identity>) -> Result<Self, Error> {
        disk.create_directory(directory).map_err(|error| cannot_write(directory, &error))?;
        let shelf = Self::look_at(disk, directory, identity)?;
        shelf.sweep()?;
        Ok(shelf)
    }

    /// Opens the runs that the manifest names, and changes nothing.
    pub fn look_at(
        disk: Arc<dyn Disk>,
        directory: &Path,
        identity: impl Into<Identity>,
    ) -> Result<Self, Error> {
        let identity = identity.into();
        let manifest = match Manifest::load(&*disk, directory, identity.id)? {
            Some(manifest) => manifest,
            // Whatever lies there without one: no number is given twice.
            None => Manifest { next_run: next_number(&*disk, directory)?, ..Manifest::default() },
        };
        let (directory, version) = (directory.to_owned(), Arc::default());
        let mut shelf = Shelf { disk, directory, identity, manifest, version };
        shelf.version = Arc::new(Version { runs: shelf.open_runs()? });
        Ok(shelf)
    }

    /// Opens them all; large ones side by side, for each has filters to be read and checked.
    fn open_runs(&self) -> Result<Vec<Arc<Run>>, Error> {
        let runs = &self.manifest.runs;
        if runs.iter().map(|run| run.rows).sum::<u64>() < OPENED_ALONE_ROWS {
            return runs.iter().map(|run| self.open_run(*run)).collect();
        }
        let broken = |_| Err(Error::new(ErrorKind::Internal, "opening a run ended by a defect"));
        std::thread::scope(|scope| {
            let opening: Vec<_> = runs.iter().map(|run| scope.spawn(|| self.open_run(*run))).collect();
            opening.into_iter().map(|run| run.join().unwrap_or_else(broken)).collect()
        })
    }

    /// The runs as they are now.
    pub fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// The newest change in a complete run that the manifest does not name, and that run's file.
    pub fn newest_unnamed(&self) -> Option<(PathBuf, Revision)> {
        let newest = newest_unnamed(&*self.disk, &self.directory, &self.identity, &self.manifest);
        newest.map(|(name, revision)| (self.directory.join(name), revision))
    }

    /// Up to which change the runs have everything, and when that was.
    pub fn revision(&self) -> (Revision, TimeMs) {
        (self.manifest.revision, self.manifest.time)
    }

    fn open_run(&self, named: RunNamed) -> Result<Arc<Run>, Error> {
        let name = name(named.number);
        let path = self.directory.join(&name);
        let file = self.disk.open_to_read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::new(
                ErrorKind::Corrupt,
                format!("the run {name}, which the manifest names, is missing"),
            ),
            _ => cannot_read(&path.display().to_string(), &error),
        })?;
        let run = Run::open_of(&name, Arc::from(file), |catalogue| self.identity.has_runs_of(catalogue))?;
        if run.number() != named.number || run.rows().0 != named.rows {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("{name} is another run than the manifest names"),
            ));
        }
        Ok(Arc::new(run))
    }

    /// Removes what no manifest names. Only to be done when all that counts was found.
    pub fn sweep(&self) -> Result<(), Error> {
        let list = self.disk.list(&self.directory);
        let list = list.map_err(|error| cannot_read(&self.directory.display().to_string(), &error))?;
        for name in list {
            let number = number_of(&name);
            let named =
                number.is_some_and(|number| self.manifest.runs.iter().any(|run| run.number == number));
            if !named && (number.is_some() || name.ends_with(".scratch")) {
                self.remove(&name);
            }
        }
        Ok(())
    }

    fn remove(&self, name: &str) {
        // It takes space until the next opening, and does no other harm.
        if let Err(error) = self.disk.remove(&self.directory.join(name)) {
            tracing::warn!(name, %error, "cannot remove a file that no run needs any more");
        }
    }

    /// Begins a run of at most so many rows.
    pub fn begin(&mut self, rows_max: u64) -> Result<Begun, Error> {
        let number = self.manifest.next_run;
        // Not used again, even if nothing comes of it: what is cached of a run is known by its number.
        self.manifest.next_run += 1;
        let writer =
            begin_run(&*self.disk, &self.directory, self.identity.writes_runs_of(), number, rows_max)?;
        Ok(Begun { number, writer })
    }

    /// A run that was begun came to nothing.
    pub fn give_up(&self, number: u64) {
        self.remove(&name(number));
        self.remove(&scratch_name(number));
    }

    /// A finished run counts from now on: as the newest, with everything up to a revision in runs.
    pub fn add(&mut self, number: u64, rows: u64, revision: Revision, time: TimeMs) -> Result<(), Error> {
        self.replace(0..0, number, rows, (revision, time))
    }

    /// A finished run counts from now on in the place of these, which stand one after the other.
    pub fn put_in_place_of(&mut self, merged: &[Arc<Run>], number: u64, rows: u64) -> Result<(), Error> {
        let first = merged.first().map(|run| run.number());
        let begin = self.manifest.runs.iter().position(|run| Some(run.number) == first);
        let begin =
            begin.ok_or_else(|| Error::new(ErrorKind::Internal, "a run to be replaced is not there"))?;
        self.replace(begin..begin + merged.len(), number, rows, self.revision())
    }

    fn replace(
        &mut self,
        places: std::ops::Range<usize>,
        number: u64,
        rows: u64,
        (revision, time): (Revision, TimeMs),
    ) -> Result<(), Error> {
        let named = RunNamed { number, rows };
        // The file's name must be durable before the manifest counts on it.
        let synced = self.disk.sync_directory(&self.directory);
        let run = synced
            .map_err(|error| cannot_write(&self.directory, &error))
            .and_then(|()| self.open_run(named))
            .inspect_err(|_| self.give_up(number))?;
        let mut manifest = Manifest { revision, time, ..self.manifest.clone() };
        manifest.runs.splice(places.clone(), [named]);
        // If this fails the one or the other counts, so the files of both stay until a later one, or an opening, decides.
        manifest.save(&*self.disk, &self.directory, self.identity.id)?;
        self.manifest = manifest;
        let mut runs = self.version.runs.clone();
        let unused: Vec<Arc<Run>> = runs.splice(places, [run]).collect();
        self.version = Arc::new(Version { runs });
        self.remove(&scratch_name(number));
        for run in unused {
            // Whoever reads one has its file open still.
            if let Ok(file) = self.disk.open_to_write(&self.directory.join(name(run.number()))) {
                run.remove(file);
            }
            self.remove(&name(run.number()));
        }
        Ok(())
    }

    /// Which runs to merge next, and whether there are older ones: neighbours in age of about one size, as many as make up
    /// the next. Those from the first on that is being `merged` are left alone.
    pub fn mergeable(&self, merged: &HashSet<u64>) -> Option<(Vec<Arc<Run>>, bool)> {
        let places = self.alike(merged)?;
        Some((self.version.runs[places.clone()].to_vec(), places.end < self.version.runs.len()))
    }

    /// Neighbours in age, whatever their sizes, of those that are not being `merged` and newer than these: as many as `choose`
    /// says, of so many.
    #[cfg(test)]
    pub fn any_neighbours(
        &self,
        merged: &HashSet<u64>,
        choose: impl FnOnce(usize) -> Option<std::ops::Range<usize>>,
    ) -> Option<(Vec<Arc<Run>>, bool)> {
        let free = self.manifest.runs.iter().take_while(|run| !merged.contains(&run.number)).count();
        let places = choose(free)?;
        Some((self.version.runs[places.clone()].to_vec(), places.end < self.version.runs.len()))
    }

    fn alike(&self, merged: &HashSet<u64>) -> Option<std::ops::Range<usize>> {
        let runs = &self.manifest.runs;
        let free = runs.iter().take_while(|run| !merged.contains(&run.number)).count();
        let runs = &runs[..free];
        let mut begin = 0;
        while begin < runs.len() {
            let here = tier(runs[begin].rows);
            // A smaller run that lies between larger ones goes with them.
            let alike = runs[begin..].iter().take_while(|run| tier(run.rows) <= here).count();
            if alike >= RUNS_PER_TIER {
                return Some(begin..begin + alike);
            }
            begin += alike;
        }
        None
    }
}
