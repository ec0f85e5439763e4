//! Joins the sorted records: facts of one path are neighbours, and each path has one outcome a copy.

use std::path::Path;

use exacat_model::ReplicaState;

use super::classes::{Class, Facts, Judge};
use super::listings::{Collector, LISTED};
use super::record::Fact;
use super::sorter::{Sorted, split};
use crate::error::Error;

/// Paths and bytes of each class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    of: [(u64, u64); Class::ALL.len()],
}

impl Counts {
    /// Returns the number of copies, or of files that the catalogue does not have.
    pub fn count(&self, class: Class) -> u64 {
        self.of[class as usize].0
    }

    /// Returns their bytes, as far as they are known.
    pub fn bytes(&self, class: Class) -> u64 {
        self.of[class as usize].1
    }

    #[cfg(test)]
    pub(crate) fn of_class(class: Class, count: u64) -> Self {
        let mut counts = Counts::default();
        counts.of[class as usize].0 = count;
        counts
    }

    fn add(&mut self, class: Class, bytes: u64) {
        let (count, sum) = &mut self.of[class as usize];
        *count += 1;
        *sum = sum.saturating_add(bytes);
    }
}

/// Result of a join.
#[derive(Default)]
pub(crate) struct Joined {
    pub(crate) counts: Counts,
    /// Copies that the storage has too, in whatever form.
    pub(crate) matched: u64,
    /// Copies that the storage should have.
    pub(crate) expected: u64,
    /// Lines that repeat the path of an earlier one.
    pub(crate) repeats: u64,
    /// Copies whose path another copy has too.
    pub(crate) shared: u64,
    /// A path of the dump, and one of the catalogue, as examples.
    pub(crate) examples: (Option<String>, Option<String>),
    /// Collected paths of the listed classes.
    pub(crate) listed: Vec<(Class, Collector)>,
    /// Collected paths of the class to apply.
    pub(crate) applied: Option<(Class, Collector)>,
}

/// Joins the records. `listed` says whether paths are collected for listings, `applied` which class is
/// collected for an application.
pub(crate) fn join(
    mut records: Sorted,
    judge: Judge,
    (listed, applied): (bool, Option<Class>),
    temporary: &Path,
) -> Result<Joined, Error> {
    let mut joined = Joined {
        listed: match listed {
            true => LISTED.into_iter().map(|class| (class, Collector::new(temporary))).collect(),
            false => Vec::new(),
        },
        applied: applied.map(|class| (class, Collector::new(temporary))),
        ..Joined::default()
    };
    let (mut key, mut facts, mut any) = (Vec::new(), Facts::default(), false);
    let take = |joined: &mut Joined, key: &mut Vec<u8>, facts: &mut Facts, any: &mut bool, record: &[u8]| {
        let (next, rest) = split(record);
        if *any && next != key.as_slice() {
            joined.path(key, facts, judge)?;
        }
        if !*any || next != key.as_slice() {
            key.clear();
            key.extend_from_slice(next);
            facts.clear();
            *any = true;
        }
        facts.add(Fact::read(rest).map_err(|_| Error::Broken("sorting"))?);
        Ok(())
    };
    while records.next(|record| take(&mut joined, &mut key, &mut facts, &mut any, record))? {}
    if any {
        joined.path(&key, &facts, judge)?;
    }
    Ok(joined)
}

impl Joined {
    fn path(&mut self, key: &[u8], facts: &Facts, judge: Judge) -> Result<(), Error> {
        self.repeats += facts.repeats;
        if facts.after.len() > 1 {
            self.shared += facts.after.len() as u64 + facts.copies_dropped;
        }
        let text = || Some(String::from_utf8_lossy(key).into_owned());
        if facts.dump.is_some() && self.examples.0.is_none() {
            self.examples.0 = text();
        }
        if !facts.after.is_empty() && self.examples.1.is_none() {
            self.examples.1 = text();
        }
        let mut failed = None;
        judge.judge(facts, |outcome| {
            self.counts.add(outcome.class, outcome.bytes());
            if let Some(copy) = outcome.copy {
                self.matched += u64::from(outcome.stored.is_some());
                self.expected += u64::from(!matches!(copy.state, ReplicaState::Lost | ReplicaState::Copying));
            }
            let listed = self.listed.iter_mut().chain(&mut self.applied);
            for (_, collector) in listed.filter(|(class, _)| *class == outcome.class) {
                if let Err(error) = collector.push(key, &outcome) {
                    failed.get_or_insert(error);
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
