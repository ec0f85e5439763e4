//! Merges the runs of a day: many small ones to a larger one, and those of a past day to one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exacat_disk::random_u64;
use exacat_model::{Error, ErrorKind, Result};

use crate::columns::Columns;
use crate::engine::Shared;
use crate::group::Group;
use crate::limits::{MERGE_RUNS_MIN, PAST_SHARE};
use crate::manifest::RunEntry;
use crate::merge::Merge;
use crate::run::{COMPACTION_LEVEL, RunHead, Wanted, day_of};
use crate::run_list::NumberedRun;
use crate::sorted::SortedRows;

/// Adjacent runs of a day to be merged, the oldest first.
pub(crate) struct MergeJob {
    pub group: Arc<Group>,
    pub day: i32,
    pub runs: Vec<NumberedRun>,
}

/// Returns the size class of a run: each is eight times as large as the one before.
fn class_of(rows: u64) -> u32 {
    (rows >> 16).checked_ilog2().map_or(0, |log| 1 + log / 3)
}

/// Returns the adjacent runs that are worth a merge, by their rows, the oldest first. Runs of one class
/// are merged when there are [`MERGE_RUNS_MIN`] of them, so each row is written once per class. A day
/// that is past gets few runs, because nothing more is expected.
fn choose(rows: &[u64], is_past: bool) -> Option<std::ops::Range<usize>> {
    for start in 0..rows.len() {
        let class = class_of(rows[start]);
        let end = start + rows[start..].iter().take_while(|rows| class_of(**rows) <= class).count();
        let of_class = rows[start..end].iter().filter(|rows| class_of(**rows) == class).count();
        if of_class >= MERGE_RUNS_MIN {
            return Some(start..end);
        }
    }
    let (total, largest) = (rows.iter().sum::<u64>(), rows.iter().max().copied().unwrap_or_default());
    let is_worth_it = rows.len() > 1 && (total - largest) * PAST_SHARE >= largest;
    (is_past && is_worth_it).then_some(0..rows.len())
}

/// Source that ends with an error once the history is being closed.
pub(crate) struct Interruptible<'s> {
    pub source: Merge<'s>,
    pub closed: &'s AtomicBool,
}

impl SortedRows for Interruptible<'_> {
    fn next_rows(&mut self) -> Result<Option<Columns>> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "the history is being closed"));
        }
        self.source.next_rows()
    }
}

impl Shared {
    /// Returns the next merge that is worth its work.
    pub(crate) fn next_merge(&self) -> Option<MergeJob> {
        let today = day_of(self.now_ns());
        for group in self.all_groups() {
            let runs = Arc::clone(&group.rows.read().runs);
            for (day, runs) in runs.days() {
                let rows: Vec<u64> = runs.iter().map(|run| run.run.summary().rows).collect();
                if self.archiving.lock().contains(&(group.id, *day)) {
                    continue;
                }
                // Values of yesterday still arrive in the first hours of today.
                if let Some(chosen) = choose(&rows, *day < today - 1) {
                    return Some(MergeJob { group, day: *day, runs: runs[chosen].to_vec() });
                }
            }
        }
        None
    }

    /// Does a merge, and puts its run in the place of the merged ones.
    pub(crate) fn merge(&self, job: &MergeJob) -> Result<()> {
        let number = self.files.lock().manifest.take_number();
        let head = RunHead { group: job.group.id, day: job.day, salt: random_u64()? };
        let sources =
            job.runs.iter().rev().map(|run| Box::new(run.run.scan(Wanted::all())) as Box<dyn SortedRows>);
        let mut source = Interruptible { source: Merge::new(sources), closed: &self.closed };
        let newest = job.runs.iter().map(|run| run.newest).max().unwrap_or_default();
        let run = self.places().write_run(number, head, COMPACTION_LEVEL, &mut source)?.with_newest(newest);
        self.places().sync()?;
        let merged: Vec<u64> = job.runs.iter().map(|run| run.number).collect();
        let mut files = self.files.lock();
        let old = files.manifest.clone();
        let entry = files.manifest.groups.iter_mut().find(|entry| entry.id == job.group.id);
        let place = entry.and_then(|entry| {
            let place = entry.runs.iter().position(|run| merged.contains(&run.number))?;
            Some((entry, place))
        });
        let Some((entry, place)) = place else {
            // The group or the day was dropped meanwhile.
            drop(files);
            let path = self.layout.run(number);
            return self.disk.remove(&path).map_err(|error| exacat_disk::cannot_write(&path, &error));
        };
        entry.runs.retain(|run| !merged.contains(&run.number));
        entry.runs.insert(place, RunEntry { newest, ..RunEntry::new(number, job.day, head.salt) });
        if let Err(error) = files.manifest.write(&*self.disk, &self.layout.root, self.id) {
            files.manifest = old;
            return Err(error);
        }
        {
            let mut rows = job.group.rows.write();
            let mut list = (*rows.runs).clone();
            list.replace(job.day, &merged, run);
            rows.runs = Arc::new(list);
        }
        self.remove_unnamed(&old, &files.manifest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of one class are merged when there are enough of them, newer smaller ones with them, and
    /// larger ones are left alone.
    #[test]
    fn runs_of_one_class_are_merged() {
        let (small, large) = (1 << 17, 1 << 23);
        assert_eq!(choose(&[small; MERGE_RUNS_MIN - 1], false), None);
        assert_eq!(choose(&[small; MERGE_RUNS_MIN], false), Some(0..MERGE_RUNS_MIN));
        let mut rows = vec![large];
        rows.extend([small; MERGE_RUNS_MIN]);
        assert_eq!(choose(&rows, false), Some(1..MERGE_RUNS_MIN + 1));
        rows.truncate(3);
        assert_eq!(choose(&rows, false), None);
        assert_eq!(choose(&[], true), None);
    }

    /// A past day is merged to one run, unless that would write much for little.
    #[test]
    fn past_day_gets_one_run() {
        assert_eq!(choose(&[1000, 1000 / PAST_SHARE], true), Some(0..2));
        assert_eq!(choose(&[1000, 1000 / PAST_SHARE - 1], true), None);
        assert_eq!(choose(&[1000], true), None);
    }
}
