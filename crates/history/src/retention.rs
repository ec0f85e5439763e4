//! Removes the days that the retention of a group has ended, whole.
//!
//! The time is the trusted one of the server, so a clock that is far ahead removes nothing. The log says
//! which days are gone before their files are removed.

use std::sync::Arc;

use exacat_model::Result;

use crate::archive::ArchivedEntry;
use crate::committer::Work;
use crate::engine::Shared;
use crate::group::Group;
use crate::item::Item;
use crate::run::{DAY_NANOSECONDS, day_of, span_of};

/// Returns the oldest time that a retention keeps, in nanoseconds: the begin of a day, so that whole days
/// are removed.
pub(crate) fn oldest_kept(now: i64, retention_days: u32) -> i64 {
    if retention_days == 0 {
        return i64::MIN;
    }
    let oldest = now.saturating_sub(i64::from(retention_days).saturating_mul(DAY_NANOSECONDS));
    span_of(day_of(oldest)).0
}

impl Group {
    /// Hides the times that its retention has ended. `now` is in nanoseconds.
    pub(crate) fn apply_retention(&self, now: i64) -> i64 {
        let oldest = oldest_kept(now, self.settings.read().retention_days);
        self.set_oldest_kept(oldest);
        oldest
    }
}

impl Shared {
    /// Returns the trusted time in nanoseconds.
    pub(crate) fn now_ns(&self) -> i64 {
        i64::try_from((self.settings.now)().0).unwrap_or(i64::MAX).saturating_mul(1_000_000)
    }

    /// Removes the days of all groups that their retention has ended.
    pub(crate) fn retain(&self) -> Result<()> {
        let now = self.now_ns();
        for group in self.all_groups() {
            let oldest = group.apply_retention(now);
            let runs = Arc::clone(&group.rows.read().runs);
            let first_kept = day_of(oldest);
            let archived = Arc::clone(&group.rows.read().archived);
            if runs.days().range(..first_kept).next().is_some()
                || archived.days.range(..first_kept).next().is_some()
            {
                self.drop_days(&group, first_kept)?;
            }
        }
        Ok(())
    }

    fn drop_days(&self, group: &Group, first_kept: i32) -> Result<()> {
        let mut items = Vec::new();
        Item::DaysDropped { group: group.id, first_kept }.encode(&mut items);
        let answer = self.queue.add(Work::Items(items), &self.metrics)?;
        answer.blocking_recv().map_or(Ok(()), |(outcome, _)| outcome)?;
        let mut files = self.files.lock();
        let old = files.manifest.clone();
        if let Some(entry) = files.manifest.groups.iter_mut().find(|entry| entry.id == group.id) {
            entry.runs.retain(|run| run.day() >= first_kept);
        }
        let is_kept = |of: &ArchivedEntry| of.group != group.id || of.day >= i64::from(first_kept);
        files.manifest.archived.0.retain(is_kept);
        if let Err(error) = files.manifest.write(&*self.disk, &self.layout.root, self.id) {
            files.manifest = old;
            return Err(error);
        }
        group.drop_days(first_kept);
        self.remove_unnamed(&old, &files.manifest);
        tracing::info!(group = %group.settings.read().name, first_kept, "days beyond the retention were removed");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole days are kept, and without a retention all.
    #[test]
    fn retention_ends_at_midnight() {
        let noon = 20_000 * DAY_NANOSECONDS + DAY_NANOSECONDS / 2;
        assert_eq!(oldest_kept(noon, 1), 19_999 * DAY_NANOSECONDS);
        assert_eq!(oldest_kept(noon, 20_000), 0);
        assert_eq!(oldest_kept(noon, 0), i64::MIN);
    }
}
