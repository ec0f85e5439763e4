//! Values that hold at an instant: for each field the last value up to it, from memory, runs and the archive.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_model::Result;
use parking_lot::RwLock;

use crate::archive::NamedGroup;
use crate::archived_days::ArchivedDays;
use crate::group::Group;
use crate::memtable::Memtable;
use crate::reading::ValueAt;
use crate::row::{ElementNumber, FieldNumber};
use crate::run::{Elements, Fields, Latest, Wanted, day_of, span_of};
use crate::run_list::{NumberedRun, RunList};

/// Readers of runs that are kept open: each has a page.
const READERS_MAX: usize = 64;

/// Reader of the values of elements at one instant. Elements in ascending order cost each page of a run
/// once.
pub struct AtInstant {
    group: Arc<Group>,
    time: i64,
    oldest: i64,
    /// Memory, the newest first.
    memory: Vec<Arc<RwLock<Memtable>>>,
    runs: Arc<RunList>,
    archived: Arc<ArchivedDays>,
    /// Days with runs or archived rows up to the instant, the last first.
    days: Arc<[i32]>,
    /// Readers by the number of their run and the field.
    readers: HashMap<(u64, FieldNumber), Latest>,
}

impl Group {
    /// Begins to read values at an instant.
    pub fn at_instant(self: &Arc<Self>, time: i64) -> AtInstant {
        let rows = self.rows.read();
        let memory = std::iter::once(&rows.active).chain(rows.frozen.iter().rev()).cloned().collect();
        let last = day_of(time);
        let mut days: Vec<i32> = rows.runs.days().range(..=last).map(|(day, _)| *day).collect();
        days.extend(rows.archived.days.range(..=last).map(|(day, _)| *day));
        days.sort_unstable_by(|one, other| other.cmp(one));
        days.dedup();
        AtInstant {
            group: Arc::clone(self),
            time,
            oldest: self.oldest_kept(),
            memory,
            runs: Arc::clone(&rows.runs),
            archived: Arc::clone(&rows.archived),
            days: days.into(),
            readers: HashMap::new(),
        }
    }
}

impl AtInstant {
    /// Returns the value of each field of an element that held at the instant, in the order of fields.
    pub fn of(
        &mut self,
        element: ElementNumber,
        is_wanted: impl Fn(FieldNumber) -> bool,
    ) -> Result<Vec<ValueAt>> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let group = Arc::clone(&self.group);
        group.latest(element, |value| match is_wanted(value.field) {
            true if value.time <= self.time => found.push(value),
            true => missing.push(value.field),
            false => {}
        });
        for field in missing {
            found.extend(self.last(element, field)?);
        }
        found.sort_by_key(|value| value.field);
        Ok(found)
    }

    /// Returns the last value of a field up to the instant.
    fn last(&mut self, element: ElementNumber, field: FieldNumber) -> Result<Option<ValueAt>> {
        // Of two values of one time, that of the newer source counts: it is looked at first.
        let mut best = self.last_in_memory(element, field);
        let (runs, archived, days) =
            (Arc::clone(&self.runs), Arc::clone(&self.archived), Arc::clone(&self.days));
        for day in days.iter().copied() {
            let (_, end) = span_of(day);
            if end < self.oldest || best.as_ref().is_some_and(|best| best.time > end) {
                break;
            }
            for run in runs.days().get(&day).into_iter().flatten().rev() {
                let (first, last) = run.run.summary().time_range;
                // A value of the same time in an older run has lost.
                if first > self.time || best.as_ref().is_some_and(|best| last <= best.time) {
                    continue;
                }
                let found = self.last_in_run(run, element, field)?;
                keep_later(&mut best, found);
            }
            if archived.days.contains_key(&day) {
                let found = self.last_in_archive(&archived, day, element, field)?;
                keep_later(&mut best, found);
            }
        }
        Ok(best.filter(|best| best.time >= self.oldest))
    }

    fn last_in_run(
        &mut self,
        run: &NumberedRun,
        element: ElementNumber,
        field: FieldNumber,
    ) -> Result<Option<ValueAt>> {
        if self.readers.len() >= READERS_MAX && !self.readers.contains_key(&(run.number, field)) {
            self.readers.clear();
        }
        let reader = self.readers.entry((run.number, field));
        let reader = reader.or_insert_with(|| run.run.latest(Fields::Set([field].into())));
        let Some(row) = reader.before(element, self.time)? else { return Ok(None) };
        let value = row.column(field).and_then(|column| column.value(0));
        let found = row.times().first().zip(value);
        Ok(found.map(|(time, value)| ValueAt { field, time: *time, value: value.to_value() }))
    }

    fn last_in_archive(
        &self,
        archived: &ArchivedDays,
        day: i32,
        element: ElementNumber,
        field: FieldNumber,
    ) -> Result<Option<ValueAt>> {
        let (first, end) = span_of(day);
        let wanted = Wanted {
            elements: Elements::one(element),
            times: first..=end.min(self.time),
            fields: Fields::Set([field].into()),
        };
        let group: Arc<dyn NamedGroup> = Arc::clone(&self.group) as _;
        let mut last = None;
        for mut rows in archived.scan(&group, day..=day, &wanted)? {
            while let Some(rows) = rows.next_rows()? {
                let Some(column) = rows.column(field) else { continue };
                let Some(at) = column.values.len().checked_sub(1) else { continue };
                let row = column.rows.as_ref().map_or(at, |rows| rows[at] as usize);
                last =
                    Some(ValueAt { field, time: rows.times()[row], value: column.values.get(at).to_value() });
            }
        }
        Ok(last)
    }

    fn last_in_memory(&self, element: ElementNumber, field: FieldNumber) -> Option<ValueAt> {
        let names = self.group.names();
        let mut best: Option<ValueAt> = None;
        for memtable in &self.memory {
            let memtable = memtable.read();
            // The newest arrival first.
            for row in memtable.chain(element) {
                if row.time > self.time || best.as_ref().is_some_and(|best| row.time <= best.time) {
                    continue;
                }
                let fields = names.fields_of(row.shape);
                if let Some((_, value)) = row.values(fields).find(|(of, _)| of.number == field) {
                    best = Some(ValueAt { field, time: row.time, value: value.to_value() });
                }
            }
        }
        best
    }
}

/// Keeps a value that is later than the best one so far.
fn keep_later(best: &mut Option<ValueAt>, found: Option<ValueAt>) {
    if let Some(found) = found
        && best.as_ref().is_none_or(|best| found.time > best.time)
    {
        *best = Some(found);
    }
}
