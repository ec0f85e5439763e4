//! The table: all rows, the newest in memory, the others in runs, read as one.
//!
//! ```text
//!   put ─► active memtable ─ full ─► frozen ─ written ─► run of tier 0 ─┐
//!          (the writer's)            (read only)                        │ as many as fit together: merged
//!                                                 tier 1 ◄──────────────┘ into one of the next tier …
//! ```
//! A *version* is the list of runs at one moment, the newest first. It never changes, so a reader
//! needs no lock on it. A row in memory hides the rows of its key in runs, and a run's row those in
//! older runs. The newest memtable or run with a GUID has its place: moving an entry puts a row
//! there, and purging it puts a note ([`Row::purged`]).

mod batch;
mod merge;
mod run_set;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use exacat_model::{DirId, Error, ErrorKind, Guid};
use exacat_store::Sample;

use crate::defect::Defect;
use crate::memtable::Memtable;
use crate::metric_table;
use crate::page::Row;
use crate::run::{Cache, Held, Reading, Run, RunWriter};

pub(crate) use merge::{From, Merged};
pub(crate) use run_set::{
    Begun, RunSet, begin_run, name as run_file_name, newest_unnamed, next_number, number_of, scratch_name,
};

/// List of runs at one moment.
#[derive(Clone, Default)]
pub(crate) struct Version {
    /// Runs, the newest first.
    pub runs: Vec<Arc<Run>>,
}

impl Version {
    /// Returns metrics: runs, rows and bytes of each tier, and its runs that are being merged; bytes of all,
    /// the compaction debt in runs.
    pub(crate) fn metrics(&self, merging: &HashSet<u64>) -> Vec<Sample> {
        let mut tiers: BTreeMap<u32, [u64; 4]> = BTreeMap::new();
        for run in &self.runs {
            let [runs, rows, bytes, merged] = tiers.entry(run_set::tier(run.rows().0)).or_default();
            *runs += 1;
            *rows += run.rows().0;
            *bytes += run.bytes();
            *merged += u64::from(merging.contains(&run.number()));
        }
        let mut list = Vec::new();
        for (tier, [runs, rows, bytes, merged]) in &tiers {
            let tier = tier.to_string();
            list.push(metric_table::TIER_RUNS.of(tier.clone(), *runs));
            list.push(metric_table::TIER_ROWS.of(tier.clone(), *rows));
            list.push(metric_table::TIER_BYTES.of(tier.clone(), *bytes));
            list.push(metric_table::TIER_MERGING.of(tier, *merged));
        }
        list.push(metric_table::RUNS_BYTES.is(tiers.values().map(|[_, _, bytes, _]| bytes).sum()));
        list.push(metric_table::DEBT.is(self.owed() as u64));
        list
    }

    /// Returns the number of runs beyond those of a compactor that keeps up.
    pub(crate) fn owed(&self) -> usize {
        run_set::owed(self.runs.iter().map(|run| run.rows().0))
    }
}

/// All rows at one moment.
#[derive(Clone, Copy)]
pub(crate) struct View<'v> {
    /// Newest memtable; none once there is no writer.
    pub active: Option<&'v Memtable>,
    /// Memtables that are being written into runs, the newest first.
    pub frozen: &'v [Arc<Memtable>],
    pub version: &'v Version,
    pub reading: Reading<'v>,
}

impl<'v> View<'v> {
    fn memtables(&self) -> impl Iterator<Item = &'v Memtable> + use<'v> {
        self.active.into_iter().chain(self.frozen.iter().map(|memtable| &**memtable))
    }

    /// Passes the row of a name to `take`, or none if there is no such entry.
    pub(crate) fn find<T>(
        &self,
        directory: DirId,
        name: &[u8],
        take: impl FnOnce(Option<&Row<'_>>) -> T,
    ) -> Result<T, Defect> {
        for memtable in self.memtables().filter(|memtable| memtable.rows() > 0) {
            if let Some(row) = memtable.find(directory, name)? {
                return Ok(take((!row.is_gone()).then_some(&row)));
            }
        }
        let runs = &self.version.runs;
        let hash = runs.first().map_or(0, |run| run.hashes().name(directory, name));
        for run in runs.iter().filter(|run| run.may_have(hash)) {
            if let Some(found) = run.find(self.reading, directory, name, hash)? {
                let row = found.row(directory, name).map_err(|damaged| Defect::new(damaged.0))?;
                return Ok(take((!row.is_gone()).then_some(&row)));
            }
        }
        Ok(take(None))
    }

    /// Says whether there is an entry under this name.
    pub(crate) fn has(&self, directory: DirId, name: &[u8]) -> Result<bool, Defect> {
        self.find(directory, name, |row| row.is_some())
    }

    /// Returns the runs that may have a GUID, the newest first.
    fn runs_with(&self, guid: Guid) -> impl Iterator<Item = &'v Arc<Run>> + use<'v> {
        let runs = &self.version.runs;
        let hash = runs.first().map_or(0, |run| run.hashes().guid(guid));
        runs.iter().filter(move |run| run.may_have_guid(hash))
    }

    /// Passes the row of a GUID to `take`, or none if nothing has it.
    pub(crate) fn find_guid<T>(
        &self,
        guid: Guid,
        take: impl FnOnce(Option<&Row<'_>>) -> T,
    ) -> Result<T, Defect> {
        for memtable in self.memtables().filter(|memtable| memtable.rows() > 0) {
            if let Some(row) = memtable.find_guid(guid)? {
                return Ok(take((!row.is_gone()).then_some(&row)));
            }
        }
        for run in self.runs_with(guid) {
            if let Some((directory, name, found)) = run.find_guid(self.reading, guid)? {
                let row = found.row(directory, &name).map_err(|damaged| Defect::new(damaged.0))?;
                return Ok(take((!row.is_gone()).then_some(&row)));
            }
        }
        Ok(take(None))
    }

    /// Says whether anything has this GUID.
    pub(crate) fn has_guid(&self, guid: Guid) -> Result<bool, Defect> {
        for memtable in self.memtables().filter(|memtable| memtable.rows() > 0) {
            if let Some(row) = memtable.find_guid(guid)? {
                return Ok(!row.is_gone());
            }
        }
        for run in self.runs_with(guid) {
            if let Some(has) = run.has_guid(self.reading, guid)? {
                return Ok(has);
            }
        }
        Ok(false)
    }

    /// Returns all rows from a key on, in order.
    pub(crate) fn from(&self, from: From<'_>) -> Result<Merged<'v>, Defect> {
        Merged::from(self.memtables(), self.version.runs.iter().map(Arc::clone), from, self.reading)
    }

    /// Returns all rows of a directory from a name on, in order.
    pub(crate) fn within(&self, from: From<'_>) -> Result<Merged<'v>, Defect> {
        Merged::within(self.memtables(), &self.version.runs, from, self.reading)
    }
}

/// Rows as the writer has them.
pub(crate) struct Table {
    active: Memtable,
    frozen: Vec<Arc<Memtable>>,
    version: Arc<Version>,
    cache: Arc<Cache>,
    seed: u64,
}

impl Table {
    /// Creates a table of these runs, with nothing in memory. `seed` is random.
    pub(crate) fn new(version: Arc<Version>, cache: Arc<Cache>, seed: u64) -> Self {
        Table { active: Memtable::new(seed), frozen: Vec::new(), version, cache, seed }
    }

    /// Returns the present rows. With `held`, reading never waits for the disk.
    pub(crate) fn view<'v>(&'v self, held: Option<&'v Held>) -> View<'v> {
        let reading = match held {
            Some(held) => Reading::hurried(&self.cache, held),
            None => Reading::waiting(&self.cache),
        };
        self.view_by(reading)
    }

    /// Returns the present rows, read in this way.
    pub(crate) fn view_by<'v>(&'v self, reading: Reading<'v>) -> View<'v> {
        View { active: Some(&self.active), frozen: &self.frozen, version: &self.version, reading }
    }

    /// Puts a row, and replaces the one of its key.
    pub(crate) fn put(&mut self, row: &Row<'_>) -> Result<(), Defect> {
        self.active.put(row)
    }

    /// Returns the memtable that is not frozen yet.
    pub(crate) fn active(&self) -> &Memtable {
        &self.active
    }

    /// Returns the memtables that are being written.
    pub(crate) fn frozen(&self) -> &[Arc<Memtable>] {
        &self.frozen
    }

    pub(crate) fn version(&self) -> &Arc<Version> {
        &self.version
    }

    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Begins a new memtable; returns the one before, which no longer changes.
    pub(crate) fn freeze(&mut self) -> Arc<Memtable> {
        let full = Arc::new(std::mem::replace(&mut self.active, Memtable::new(self.seed)));
        self.frozen.insert(0, Arc::clone(&full));
        full
    }

    /// Installs a list of runs. If `written`, they have the rows of the oldest memtable, which
    /// goes.
    pub(crate) fn install(&mut self, version: Arc<Version>, written: bool) {
        self.version = version;
        if written {
            self.frozen.pop();
        }
    }
}

/// Writes all rows of a frozen memtable into a run, and `further` ones behind them.
pub(crate) fn write_memtable<'r>(
    memtable: &Memtable,
    further: impl IntoIterator<Item = Row<'r>>,
    mut writer: RunWriter,
) -> Result<u64, Error> {
    for row in memtable.from(DirId(0), b"", false) {
        writer.push(&row.map_err(Error::from)?).map_err(|error| cannot_write_run(&error))?;
    }
    for row in further {
        writer.push(&row).map_err(|error| cannot_write_run(&error))?;
    }
    let rows = writer.rows();
    writer.finish().map_err(|error| cannot_write_run(&error))?;
    Ok(rows)
}

/// Merges runs, the newest first, into one: the newest row of each key, if it is `kept`. Notes of
/// removals stay only if older runs `below` may have the key. `go_on` is called after every row; if
/// it returns false, there is no new run. Returns the number of rows.
pub(crate) fn merge_runs(
    runs: &[Arc<Run>],
    below: bool,
    kept: impl Fn(&Row<'_>) -> bool,
    mut writer: RunWriter,
    mut go_on: impl FnMut(&RunWriter) -> bool,
) -> Result<Option<u64>, Error> {
    let none: [&Memtable; 0] = [];
    let mut merged = Merged::from(none, runs.iter().map(Arc::clone), From::START, Reading::in_passing())?;
    while let Some(row) = merged.next()? {
        if (!row.is_gone() || below) && kept(&row) {
            writer.push(&row).map_err(|error| cannot_write_run(&error))?;
        }
        if !go_on(&writer) {
            return Ok(None);
        }
    }
    let rows = writer.rows();
    writer.finish().map_err(|error| cannot_write_run(&error))?;
    Ok(Some(rows))
}

pub(crate) fn cannot_write_run(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot write a run: {error}"))
}
