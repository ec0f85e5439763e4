//! Runs of a group, by day.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::run::Run;

/// A run with its number, which names its file. A larger number is a later run.
#[derive(Clone)]
pub(crate) struct NumberedRun {
    pub number: u64,
    /// Number of the newest flush whose rows it has.
    pub newest: u64,
    pub run: Arc<Run>,
}

impl NumberedRun {
    /// Says how new its rows are.
    pub(crate) fn with_newest(self, newest: u64) -> Self {
        NumberedRun { newest, ..self }
    }
}

/// Runs of a group, immutable: a change makes a new list.
#[derive(Clone, Default)]
pub(crate) struct RunList {
    /// Runs of each day, the oldest first.
    days: BTreeMap<i32, Vec<NumberedRun>>,
}

impl RunList {
    /// Returns the runs of each day, the oldest first.
    pub(crate) fn days(&self) -> &BTreeMap<i32, Vec<NumberedRun>> {
        &self.days
    }

    /// Adds the newest run of a day.
    pub(crate) fn add(&mut self, day: i32, run: NumberedRun) {
        self.days.entry(day).or_default().push(run);
    }

    /// Puts one run in the place of adjacent ones. The first of `merged` names the place.
    pub(crate) fn replace(&mut self, day: i32, merged: &[u64], by: NumberedRun) {
        let Some(runs) = self.days.get_mut(&day) else { return };
        let place = runs.iter().position(|run| merged.contains(&run.number)).unwrap_or(runs.len());
        runs.retain(|run| !merged.contains(&run.number));
        runs.insert(place.min(runs.len()), by);
    }

    /// Removes runs of a day.
    pub(crate) fn remove(&mut self, day: i32, numbers: &[u64]) {
        let Some(runs) = self.days.get_mut(&day) else { return };
        runs.retain(|run| !numbers.contains(&run.number));
        if runs.is_empty() {
            self.days.remove(&day);
        }
    }

    /// Removes the days before one, and returns their runs.
    pub(crate) fn remove_before(&mut self, day: i32) -> Vec<NumberedRun> {
        let kept = self.days.split_off(&day);
        std::mem::replace(&mut self.days, kept).into_values().flatten().collect()
    }
}
