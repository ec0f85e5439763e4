//! Moves old days to the archive: their runs become files of the archive, and then no longer count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use exacat_model::Result;

use crate::archive::{ArchiveOwner, ArchivedEntries, ArchivedEntry, ArchivedFile, NamedGroup};
use crate::archived_days::ArchivedDays;
use crate::compaction::Interruptible;
use crate::engine::Shared;
use crate::group::Group;
use crate::limits::{ARCHIVE_DAYS_OF_COMMIT, LATEST_EVERY, PAST_SHARE};
use crate::merge::Merge;
use crate::owned_archive::OwnedArchive;
use crate::run::{Wanted, day_of};
use crate::run_list::NumberedRun;
use crate::sorted::SortedRows;

/// A day of a group that is old enough.
type DueDay = (Arc<Group>, i32);

/// A day whose files are written, and not yet published.
pub(crate) struct Written {
    group: Arc<Group>,
    day: i32,
    files: Arc<[ArchivedFile]>,
    /// Numbers of the runs whose rows the files have.
    runs: Vec<u64>,
}

/// Returns the rows of runs.
fn rows_of(runs: &[NumberedRun]) -> u64 {
    runs.iter().map(|run| run.run.summary().rows).sum()
}

impl Shared {
    /// Archives the days that are old enough, publishes what changed, and deletes old files of the archive.
    /// `late` also takes archived days with few late rows.
    pub(crate) fn archive_days(&self, late: bool) -> Result<()> {
        let (Some(settings), Some(archive)) = (&self.settings.archive, &self.archive) else { return Ok(()) };
        let _turn = self.archive_turn.lock();
        let done = self.archive_all(archive, settings.after_days, late);
        self.archiving.lock().clear();
        self.archive_metrics.note(&done);
        done
    }

    fn archive_all(&self, archive: &Arc<OwnedArchive>, after_days: u32, late: bool) -> Result<()> {
        // First of all: nothing is written to an archive of another owner.
        let owner = archive.hold((self.settings.now)(), &files_of(&self.all_archived()))?;
        let first_hot = day_of(self.now_ns()).saturating_sub(after_days.min(1 << 20) as i32);
        let (due, newest) = self.due(first_hot, late);
        if newest.iter().any(|(group, newest)| self.latest_file(*group).is_none_or(|file| *newest > file)) {
            self.flush_with_latest()?;
        }
        let mut written = Vec::new();
        for (group, day) in due {
            // A merge of the same runs would be for nothing.
            self.archiving.lock().insert((group.id, day));
            written.extend(self.write_day(archive, &group, day)?);
            if written.len() >= ARCHIVE_DAYS_OF_COMMIT {
                self.publish(archive, &owner, std::mem::take(&mut written))?;
            }
        }
        self.publish(archive, &owner, written)?;
        archive.files().clean(&owner, (self.settings.now)())
    }

    /// Writes all rows in memory to runs, and the latest values to files: an opening takes latest values from
    /// runs that the file of latest values does not have, and reads no archive.
    pub(crate) fn flush_with_latest(&self) -> Result<()> {
        self.files.lock().flushes = LATEST_EVERY;
        self.flush_all()
    }

    /// Returns the files of all archived days.
    pub(crate) fn all_archived(&self) -> BTreeMap<(u32, i32), Arc<[ArchivedFile]>> {
        let mut all = BTreeMap::new();
        for group in self.all_groups() {
            let archived = Arc::clone(&group.rows.read().archived);
            all.extend(archived.days.iter().map(|(day, files)| ((group.id, *day), Arc::clone(files))));
        }
        all
    }

    /// Returns the days with runs to be archived, and for each group the newest flush among these runs.
    fn due(&self, first_hot: i32, late: bool) -> (Vec<DueDay>, BTreeMap<u32, u64>) {
        let (mut due, mut newest) = (Vec::new(), BTreeMap::new());
        for group in self.all_groups() {
            let (runs, archived) = {
                let rows = group.rows.read();
                (Arc::clone(&rows.runs), Arc::clone(&rows.archived))
            };
            let oldest = day_of(group.oldest_kept());
            for (day, runs) in runs.days().range(oldest..first_hot.max(oldest)) {
                let rows: u64 =
                    archived.days.get(day).iter().flat_map(|of| of.iter()).map(|of| of.rows).sum();
                if rows == 0 || late || rows_of(runs) * PAST_SHARE >= rows {
                    let of_day = runs.iter().map(|run| run.newest).max().unwrap_or_default();
                    let of_group: &mut u64 = newest.entry(group.id).or_default();
                    *of_group = of_day.max(*of_group);
                    due.push((Arc::clone(&group), *day));
                }
            }
        }
        (due, newest)
    }

    /// Returns the number of a group's file of latest values.
    fn latest_file(&self, group: u32) -> Option<u64> {
        let files = self.files.lock();
        files.manifest.groups.iter().find(|entry| entry.id == group)?.latest
    }

    /// Writes a day to files of the archive; none if it has no run. No reader of the archive sees them yet.
    pub(crate) fn write_day(
        &self,
        archive: &OwnedArchive,
        group: &Arc<Group>,
        day: i32,
    ) -> Result<Option<Written>> {
        // Read anew: a merge may have ended meanwhile. A flush holds the lock until its runs are in the list.
        let (mut runs, archived, latest, flushed) = {
            let files = self.files.lock();
            let entry = files.manifest.groups.iter().find(|entry| entry.id == group.id);
            let latest = entry.and_then(|entry| entry.latest).unwrap_or_default();
            let rows = group.rows.read();
            let runs = rows.runs.days().get(&day).cloned().unwrap_or_default();
            (runs, Arc::clone(&rows.archived), latest, files.manifest.revision)
        };
        // Rows of later runs win over the archive, so the older ones go there first.
        let all = runs.len();
        runs.truncate(runs.iter().take_while(|run| run.newest <= latest).count());
        let complete = (runs.len() == all).then_some(flushed);
        if runs.is_empty() {
            return Ok(None);
        }
        let newest_first = runs.iter().rev();
        let mut sources: Vec<Box<dyn SortedRows>> = Vec::new();
        sources.extend(newest_first.map(|run| Box::new(run.run.scan(Wanted::all())) as Box<dyn SortedRows>));
        let named: Arc<dyn NamedGroup> = Arc::clone(group) as _;
        sources.extend(archived.scan(&named, day..=day, &Wanted::all())?);
        let mut source = Interruptible { source: Merge::new(sources), closed: &self.closed };
        let files: Arc<[ArchivedFile]> = archive.files().write(&named, day, complete, &mut source)?.into();
        let runs = runs.iter().map(|run| run.number).collect();
        Ok(Some(Written { group: Arc::clone(group), day, files, runs }))
    }

    /// Publishes written days together with all earlier ones, and then forgets their runs.
    pub(crate) fn publish(
        &self,
        archive: &Arc<OwnedArchive>,
        owner: &ArchiveOwner,
        written: Vec<Written>,
    ) -> Result<()> {
        let mut all = self.all_archived();
        for day in &written {
            if !day.group.is_dropped() {
                all.insert((day.group.id, day.day), Arc::clone(&day.files));
            }
        }
        archive.files().publish(owner, (self.settings.now)(), &files_of(&all))?;
        if written.is_empty() {
            return Ok(());
        }
        self.forget_runs(archive, &written)
    }

    fn forget_runs(&self, archive: &Arc<OwnedArchive>, written: &[Written]) -> Result<()> {
        let mut files = self.files.lock();
        let old = files.manifest.clone();
        let groups = self.all_groups();
        let kept = |day: &&Written| !day.group.is_dropped() && day.day >= day_of(day.group.oldest_kept());
        let written: Vec<&Written> = written.iter().filter(kept).collect();
        let mut archived: BTreeMap<u32, ArchivedDays> = BTreeMap::new();
        for group in &groups {
            archived.insert(group.id, (*group.rows.read().archived).clone());
        }
        for day in &written {
            let days = archived.entry(day.group.id).or_default();
            days.archive = Some(Arc::clone(archive));
            days.days.insert(day.day, Arc::clone(&day.files));
            if let Some(entry) = files.manifest.groups.iter_mut().find(|entry| entry.id == day.group.id) {
                entry.runs.retain(|run| !day.runs.contains(&run.number));
            }
        }
        files.manifest.archived = entries(&archived);
        if let Err(error) = files.manifest.write(&*self.disk, &self.layout.root, self.id) {
            files.manifest = old;
            return Err(error);
        }
        for group in &groups {
            let of_group: Vec<&&Written> = written.iter().filter(|day| day.group.id == group.id).collect();
            let Some(days) = archived.remove(&group.id).filter(|_| !of_group.is_empty()) else { continue };
            let mut rows = group.rows.write();
            let mut list = (*rows.runs).clone();
            of_group.iter().for_each(|day| list.remove(day.day, &day.runs));
            // One step for readers: a row is in the runs or in the archive.
            (rows.runs, rows.archived) = (Arc::new(list), Arc::new(days));
        }
        self.remove_unnamed(&old, &files.manifest);
        let metrics = &self.archive_metrics;
        for day in written {
            metrics.days.fetch_add(1, Ordering::Relaxed);
            let sum = |of: fn(&ArchivedFile) -> u64| day.files.iter().map(of).sum::<u64>();
            metrics.rows.fetch_add(sum(|file| file.rows), Ordering::Relaxed);
            metrics.bytes.fetch_add(sum(|file| file.bytes), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Returns the files of days.
pub(crate) fn files_of(days: &BTreeMap<(u32, i32), Arc<[ArchivedFile]>>) -> Vec<ArchivedFile> {
    days.values().flat_map(|files| files.iter().cloned()).collect()
}

/// Returns the entries of the manifest for the archived days of all groups.
fn entries(groups: &BTreeMap<u32, ArchivedDays>) -> ArchivedEntries {
    let of_group = |(group, days): (&u32, &ArchivedDays)| {
        let entry = |(day, files): (&i32, &Arc<[ArchivedFile]>)| ArchivedEntry {
            group: *group,
            day: i64::from(*day),
            files: files.to_vec(),
        };
        days.days.iter().map(entry).collect::<Vec<_>>()
    };
    ArchivedEntries(groups.iter().flat_map(of_group).collect())
}
