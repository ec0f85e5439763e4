//! Run set: the files of the runs, and the list of those that count.
//!
//! A run begins under a number that was never used, is written, and is named in the manifest last.
//! From that moment it counts. Runs that it replaces are removed after it. An interruption
//! therefore leaves only files outside of the manifest, which the next opening removes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, DiskFile, cannot_read, cannot_write, list_if_there, random_u64};
use exacat_log::segment::CatalogueId;
use exacat_model::{Error, ErrorKind, Revision, TimeMs};

use super::Version;
use crate::identity::Identity;
use crate::manifest::{Manifest, RunNamed};
use crate::run::{Run, RunHead, RunWriter, newest_in};

/// Ending of the name of a run's file.
const RUN: &str = ".run";
/// Number of GUIDs of a run sorted in memory at once: 64 MiB.
const SORTED_IN_MEMORY: usize = 4 << 20;

/// Number of runs of about one size that are merged into one.
pub(crate) const RUNS_PER_TIER: usize = 8;

/// Returns the tier of a run, the logarithm of its rows: runs of one tier are merged into one of
/// the next.
pub(super) fn tier(rows: u64) -> u32 {
    rows.max(1).ilog2() / RUNS_PER_TIER.ilog2()
}

/// Returns the compaction debt of runs with these rows: their number beyond that of a compactor
/// that keeps up.
pub(super) fn owed(rows: impl ExactSizeIterator<Item = u64>) -> usize {
    let runs = rows.len();
    runs.saturating_sub((tier(rows.sum()) as usize + 1) * RUNS_PER_TIER)
}

/// Files of a table.
pub(crate) struct RunSet {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    identity: Identity,
    manifest: Manifest,
    version: Arc<Version>,
}

/// A run being written, which nothing depends on yet.
pub(crate) struct Begun {
    pub number: u64,
    pub writer: RunWriter,
}

/// Returns the name of this run's file.
pub(crate) fn name(number: u64) -> String {
    format!("{number:010}{RUN}")
}

/// Rows in all runs, below which opening them in parallel is not worth a thread.
const OPENED_ALONE_ROWS: u64 = 1 << 20;

/// Returns a number higher than that of any run in a directory.
pub(crate) fn next_number(disk: &dyn Disk, directory: &Path) -> Result<u64, Error> {
    let names = list_if_there(disk, directory)
        .map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    let numbers = names.iter().filter_map(|name| number_of(name));
    Ok(numbers.max().map_or(0, |number| number.saturating_add(1)))
}

/// Returns the number in the name of a run's file.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(RUN)?.parse().ok()
}

/// Begins a run's file, and a scratch file beside it for sorting.
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

/// Returns the name of the scratch file beside a run that is being written.
pub(crate) fn scratch_name(number: u64) -> String {
    format!("{number:010}.scratch")
}

/// Returns the newest change in the complete runs of a directory that its manifest does not name.
/// Such a run was about to be named at a power cut, or the manifest was lost or replaced by an old
/// one. A run is complete only after the log durably has all of it, so it proves how far the log
/// went.
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

impl RunSet {
    /// Opens the runs in the manifest, and removes other files. A new run set is empty.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        identity: impl Into<Identity>,
    ) -> Result<Self, Error> {
        disk.create_directory(directory).map_err(|error| cannot_write(directory, &error))?;
        let run_set = Self::look_at(disk, directory, identity)?;
        run_set.sweep()?;
        Ok(run_set)
    }

    /// Opens the runs in the manifest, and changes nothing.
    pub(crate) fn look_at(
        disk: Arc<dyn Disk>,
        directory: &Path,
        identity: impl Into<Identity>,
    ) -> Result<Self, Error> {
        let identity = identity.into();
        let manifest = match Manifest::load(&*disk, directory, identity.id)? {
            Some(manifest) => manifest,
            // Runs may exist without a manifest, and no number is used twice.
            None => Manifest { next_run: next_number(&*disk, directory)?, ..Manifest::default() },
        };
        let (directory, version) = (directory.to_owned(), Arc::default());
        let mut run_set = RunSet { disk, directory, identity, manifest, version };
        run_set.version = Arc::new(Version { runs: run_set.open_runs()? });
        Ok(run_set)
    }

    /// Opens all runs; large ones in parallel, because each has filters to read and check.
    fn open_runs(&self) -> Result<Vec<Arc<Run>>, Error> {
        let runs = &self.manifest.runs;
        if runs.iter().map(|run| run.rows).sum::<u64>() < OPENED_ALONE_ROWS {
            return runs.iter().map(|run| self.open_run(*run)).collect();
        }
        let broken = |_| Err(Error::new(ErrorKind::Internal, "internal error: opening a run ended"));
        std::thread::scope(|scope| {
            let opening: Vec<_> = runs.iter().map(|run| scope.spawn(|| self.open_run(*run))).collect();
            opening.into_iter().map(|run| run.join().unwrap_or_else(broken)).collect()
        })
    }

    /// Returns the present list of runs.
    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }

    /// Returns the size on disk of a run that counts.
    pub(crate) fn bytes_of(&self, number: u64) -> u64 {
        let run = self.version.runs.iter().find(|run| run.number() == number);
        run.map_or(0, |run| run.bytes())
    }

    /// Returns the newest change in a complete run outside of the manifest, and that run's file.
    pub(crate) fn newest_unnamed(&self) -> Option<(PathBuf, Revision)> {
        let newest = newest_unnamed(&*self.disk, &self.directory, &self.identity, &self.manifest);
        newest.map(|(name, revision)| (self.directory.join(name), revision))
    }

    /// Returns the last change up to which the runs are complete, and its time.
    pub(crate) fn revision(&self) -> (Revision, TimeMs) {
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
        // The name alone proves nothing: a file may have been copied over another.
        if run.number() != named.number || run.rows().0 != named.rows {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("{name} is another run than the manifest names"),
            ));
        }
        Ok(Arc::new(run))
    }

    /// Removes files outside of the manifest. The caller must have found everything that counts
    /// first.
    pub(crate) fn sweep(&self) -> Result<(), Error> {
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
        // The file takes space until the next opening, and does no other harm.
        if let Err(error) = self.disk.remove(&self.directory.join(name)) {
            tracing::warn!(name, %error, "cannot remove a file that no sorted run needs");
        }
    }

    /// Begins a run of at most `rows_max` rows.
    pub(crate) fn begin(&mut self, rows_max: u64) -> Result<Begun, Error> {
        let number = self.manifest.next_run;
        // The number is never used again, even if the run is given up: the cache knows a run by its
        // number.
        self.manifest.next_run += 1;
        let writer =
            begin_run(&*self.disk, &self.directory, self.identity.writes_runs_of(), number, rows_max)?;
        Ok(Begun { number, writer })
    }

    /// Removes the files of a run that was given up.
    pub(crate) fn give_up(&self, number: u64) {
        self.remove(&name(number));
        self.remove(&scratch_name(number));
    }

    /// Makes a finished run count as the newest. The runs are complete up to `revision` then.
    pub(crate) fn add(
        &mut self,
        number: u64,
        rows: u64,
        revision: Revision,
        time: TimeMs,
    ) -> Result<(), Error> {
        self.replace(0..0, number, rows, (revision, time))
    }

    /// Makes a finished run count in place of these, which are neighbours.
    pub(crate) fn put_in_place_of(
        &mut self,
        merged: &[Arc<Run>],
        number: u64,
        rows: u64,
    ) -> Result<(), Error> {
        let first = merged.first().map(|run| run.number());
        // Merged runs are neighbours, so the first one gives the place of all.
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
        // The file's name must be durable before the manifest depends on it.
        let synced = self.disk.sync_directory(&self.directory);
        let run = synced
            .map_err(|error| cannot_write(&self.directory, &error))
            // Opening checks the new run: an unreadable one must never take the place of good ones.
            .and_then(|()| self.open_run(named))
            .inspect_err(|_| self.give_up(number))?;
        let mut manifest = Manifest { revision, time, ..self.manifest.clone() };
        manifest.runs.splice(places.clone(), [named]);
        // After a failure either manifest may count, so the files of both stay until a later one,
        // or an opening, decides.
        manifest.save(&*self.disk, &self.directory, self.identity.id)?;
        self.manifest = manifest;
        let mut runs = self.version.runs.clone();
        let unused: Vec<Arc<Run>> = runs.splice(places, [run]).collect();
        self.version = Arc::new(Version { runs });
        self.remove(&scratch_name(number));
        for run in unused {
            // Readers of the run still have its file open.
            if let Ok(file) = self.disk.open_to_write(&self.directory.join(name(run.number()))) {
                run.remove(file);
            }
            self.remove(&name(run.number()));
        }
        Ok(())
    }

    /// Returns the runs to merge next, and whether there are older ones. They are neighbours in age
    /// of about one size, as many as one run of the next tier takes. Runs from the first one in
    /// `merged` on are left alone.
    pub(crate) fn mergeable(&self, merged: &HashSet<u64>) -> Option<(Vec<Arc<Run>>, bool)> {
        let places = self.alike(merged)?;
        Some((self.version.runs[places.clone()].to_vec(), places.end < self.version.runs.len()))
    }

    /// Returns neighbours in age, of any size, that are newer than the runs in `merged`. `choose`
    /// gets their number and returns a range.
    #[cfg(test)]
    pub(crate) fn any_neighbours(
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
            // A smaller run between larger ones is merged with them.
            let alike = runs[begin..].iter().take_while(|run| tier(run.rows) <= here).count();
            if alike >= RUNS_PER_TIER {
                return Some(begin..begin + alike);
            }
            begin += alike;
        }
        None
    }
}
