//! Merges the runs of a day: small ones to a larger one, and those of a past day to one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use exacat_disk::random_u64;
use exacat_model::{Error, ErrorKind, Result};

use crate::columns::Columns;
use crate::engine::Shared;
use crate::group::Group;
use crate::limits::{CALM_RUNS, MERGE_RATIO, PAST_SHARE};
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

impl MergeJob {
    fn rows(&self) -> u64 {
        self.runs.iter().map(|run| run.run.summary().rows).sum()
    }
}

/// A merge is done in the middle of another one if it has at most this part of its rows. Bounds how many
/// are in work, one within the other.
const SMALLER: u64 = 4;

/// Returns the first of the runs that are worth a merge with all newer ones, by their rows, the oldest first.
///
/// A run waits until the newer ones have [`MERGE_RATIO`] times its rows. So runs grow towards the oldest as
/// the powers of a number do, a day has few, and a merge takes all that is due at once.
fn choose(rows: &[u64]) -> Option<usize> {
    let mut newer = 0u64;
    let mut first = None;
    for (at, rows) in rows.iter().enumerate().rev() {
        if newer >= rows.saturating_mul(MERGE_RATIO) {
            first = Some(at);
        }
        newer = newer.saturating_add(*rows);
    }
    first
}

/// Says whether the runs of a day that gets no more rows are worth a merge to one.
fn is_worth_one(rows: &[u64]) -> bool {
    let (total, largest) = (rows.iter().sum::<u64>(), rows.iter().max().copied().unwrap_or_default());
    rows.len() > 1 && (total - largest) * PAST_SHARE >= largest
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

/// Longest work of a merge before it rests, and before it looks for a smaller merge.
const WORK_BEFORE_REST: Duration = Duration::from_millis(10);
/// Longest rest.
const REST_MAX: Duration = Duration::from_millis(100);

/// Rows of a merge. Between two batches it rests, and does smaller merges that became due.
struct Paced<'s> {
    source: Interruptible<'s>,
    shared: &'s Shared,
    job: &'s MergeJob,
    in_work: &'s mut InWork,
    /// End of the last rest.
    since: Instant,
    /// Flushes seen so far.
    flushes: u64,
}

impl SortedRows for Paced<'_> {
    fn next_rows(&mut self) -> Result<Option<Columns>> {
        let worked = self.since.elapsed();
        if worked >= WORK_BEFORE_REST {
            let flushes = self.shared.flush_count.load(Ordering::Acquire);
            if std::mem::replace(&mut self.flushes, flushes) != flushes {
                self.shared.merge_smaller(self.job, self.in_work)?;
            }
            if self.job.group.rows.read().runs.days().get(&self.job.day).map_or(0, Vec::len) <= CALM_RUNS {
                self.shared.rest(worked.min(REST_MAX));
            }
            self.since = Instant::now();
        }
        self.source.next_rows()
    }
}

/// Numbers of the runs that are in merges.
pub(crate) type InWork = BTreeSet<u64>;

impl Shared {
    /// Returns the next merge that is worth its work.
    #[cfg(test)]
    pub(crate) fn next_merge(&self) -> Option<MergeJob> {
        self.next_merge_beside(&InWork::new(), u64::MAX)
    }

    /// Does the merges that are worth their work.
    pub(crate) fn merge_all(&self) -> Result<()> {
        let mut in_work = InWork::new();
        while let Some(job) = self.next_merge_beside(&in_work, u64::MAX) {
            self.merge_beside(&job, &mut in_work)?;
        }
        Ok(())
    }

    /// Does the merges that are due and much smaller than one in work: while that one goes on for minutes,
    /// readers would have many new runs.
    pub(crate) fn merge_smaller(&self, than: &MergeJob, in_work: &mut InWork) -> Result<()> {
        while let Some(job) = self.next_merge_beside(in_work, than.rows() / SMALLER) {
            self.merge_beside(&job, in_work)?;
        }
        Ok(())
    }

    /// Returns the next merge of at most so many rows, of runs that are newer than those in work.
    fn next_merge_beside(&self, in_work: &InWork, rows_max: u64) -> Option<MergeJob> {
        let today = day_of(self.now_ns());
        let newest_flush = self.newest_flush.load(Ordering::Acquire);
        for group in self.all_groups() {
            let runs = Arc::clone(&group.rows.read().runs);
            for (day, runs) in runs.days() {
                if self.archiving.lock().contains(&(group.id, *day)) {
                    continue;
                }
                let in_work = runs.iter().rposition(|run| in_work.contains(&run.number));
                let runs = &runs[in_work.map_or(0, |last| last + 1)..];
                let rows: Vec<u64> = runs.iter().map(|run| run.run.summary().rows).collect();
                // Values of yesterday still arrive in the first hours of today. A day that the last flush
                // had rows of is still being filled.
                let is_past = *day < today - 1 && runs.last().is_some_and(|run| run.newest < newest_flush);
                let first = choose(&rows).or((is_past && is_worth_one(&rows)).then_some(0));
                if let Some(first) = first
                    && rows[first..].iter().sum::<u64>() <= rows_max
                {
                    return Some(MergeJob { group, day: *day, runs: runs[first..].to_vec() });
                }
            }
        }
        None
    }

    /// Does a merge, and smaller ones that become due meanwhile.
    pub(crate) fn merge_beside(&self, job: &MergeJob, in_work: &mut InWork) -> Result<()> {
        let numbers: Vec<u64> = job.runs.iter().map(|run| run.number).collect();
        in_work.extend(&numbers);
        let done = self.merge(job, in_work);
        numbers.iter().for_each(|number| _ = in_work.remove(number));
        done
    }

    /// Rests, so that a merge takes no more than half of a processor. The end of the history ends it.
    fn rest(&self, time: Duration) {
        let mut flushes = self.flushes.lock();
        if !self.closed.load(Ordering::Acquire) {
            self.flushed.wait_for(&mut flushes, time);
        }
    }

    /// Does a merge, and puts its run in the place of the merged ones.
    fn merge(&self, job: &MergeJob, in_work: &mut InWork) -> Result<()> {
        let number = self.files.lock().manifest.take_number();
        let head = RunHead { group: job.group.id, day: job.day, salt: random_u64()? };
        let sources =
            job.runs.iter().rev().map(|run| Box::new(run.run.scan(Wanted::all())) as Box<dyn SortedRows>);
        let source = Interruptible { source: Merge::new(sources), closed: &self.closed };
        let flushes = self.flush_count.load(Ordering::Acquire);
        let mut source = Paced { source, shared: self, job, in_work, since: Instant::now(), flushes };
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

    /// A run is merged with all newer ones once these have three times its rows. Larger ones stay.
    #[test]
    fn run_waits_for_three_times_its_rows() {
        assert_eq!(choose(&[5, 5, 5]), None);
        assert_eq!(choose(&[5, 5, 5, 4]), None);
        assert_eq!(choose(&[5, 5, 5, 5]), Some(0));
        assert_eq!(choose(&[100, 5, 5, 5, 5]), Some(1));
        assert_eq!(choose(&[20, 20, 20, 5, 5, 5, 5]), Some(0));
        assert_eq!(choose(&[7]), None);
        assert_eq!(choose(&[]), None);
    }

    /// After a day of flushes of any size few runs are left at each moment, a range of 75 flushes has rows in
    /// fewer, and each row was written to few runs.
    #[test]
    fn runs_of_a_day_stay_few() {
        for (seed, smallest) in [(1, 100), (2, 60), (3, 1)] {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut runs, mut time, mut written) = (Vec::<u64>::new(), 0, 0);
            let (mut most, mut most_of_range, mut all_of_range) = (0, 0, 0);
            for _ in 0..3085 {
                runs.push(random.u64(smallest..=100));
                time += runs[runs.len() - 1];
                while let Some(first) = choose(&runs) {
                    let merged = runs.split_off(first).iter().sum();
                    runs.push(merged);
                    written += merged;
                }
                let mut newer = 0;
                let of_range = runs.iter().rev().take_while(|run| {
                    newer += **run;
                    newer - **run < 75 * 100
                });
                let of_range = of_range.count();
                all_of_range += of_range;
                (most, most_of_range) = (most.max(runs.len()), most_of_range.max(of_range));
            }
            let (rewritten, mean) = (written as f64 / time as f64, all_of_range as f64 / 3085.0);
            assert!(most <= 18 && most_of_range <= 14 && mean < 7.0 && rewritten < 5.0);
        }
    }

    /// A past day is merged to one run, unless that would write much for little.
    #[test]
    fn past_day_gets_one_run() {
        assert!(is_worth_one(&[1000, 1000 / PAST_SHARE]));
        assert!(!is_worth_one(&[1000, 1000 / PAST_SHARE - 1]));
        assert!(!is_worth_one(&[1000]));
    }
}
