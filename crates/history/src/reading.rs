//! Reads a group: rows in memory and in runs as one sorted stream, latest values, values at an instant.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use exacat_model::{FieldValue, Result};
use parking_lot::RwLock;

use crate::archive::NamedGroup;
use crate::by_days::{ByDays, HELD_ROWS_MAX, SOURCES_MAX};
use crate::columns::Columns;
use crate::group::Group;
use crate::memtable::Memtable;
use crate::merge::Merge;
use crate::row::{ElementNumber, FieldNumber, RowRef};
use crate::run::{DAY_NANOSECONDS, Wanted, day_of};
use crate::sorted::{BATCH_ROWS, ByRow, SortedRows};

/// A value at an instant: the last one up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueAt {
    /// Its field.
    pub field: FieldNumber,
    /// Time at which it was set.
    pub time: i64,
    /// The value.
    pub value: FieldValue,
}

/// Rows of a memtable. Each batch reads it anew: it may still be growing, and a lock is held for one
/// batch only.
struct OfMemtable {
    group: Arc<Group>,
    memtable: Arc<RwLock<Memtable>>,
    wanted: Wanted,
    /// Element to go on with; none at the end.
    next: Option<ElementNumber>,
    /// Time from which that element's rows are still to be read.
    from: i64,
}

impl SortedRows for OfMemtable {
    fn next_rows(&mut self) -> Result<Option<Columns>> {
        let names = self.group.names.read();
        let memtable = self.memtable.read();
        let (start, end) = (*self.wanted.times.start(), *self.wanted.times.end());
        let mut rows: Vec<RowRef<'_>> = Vec::new();
        while let Some(element) = self.next.and_then(|from| self.wanted.elements.next_from(from)) {
            if element >= memtable.elements() {
                self.next = None;
                break;
            }
            let before = rows.len();
            memtable.collect(element, self.from.max(start), end, &mut rows);
            let room = BATCH_ROWS.saturating_sub(before);
            if rows.len() - before > room.max(1) {
                // An element with many rows goes on in the next batch, which begins at a time of its own.
                let mut cut = before + room.max(1);
                while cut < rows.len() && rows[cut].time == rows[cut - 1].time {
                    cut += 1;
                }
                if let Some(rest) = rows.get(cut) {
                    (self.next, self.from) = (Some(element), rest.time);
                    rows.truncate(cut);
                    break;
                }
            }
            (self.next, self.from) = (element.checked_add(1), i64::MIN);
            if rows.len() >= BATCH_ROWS {
                break;
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let (mut sorted, mut batch) = (ByRow::new(rows, &*names), Columns::default());
        while let Some(part) = sorted.next_rows()? {
            batch.append(&part, 0..part.rows())?;
        }
        batch.keep_fields(|field| self.wanted.fields.has(field));
        Ok(Some(batch))
    }
}

impl Group {
    /// Returns the wanted rows, merged field by field from memory and runs, in the order of element and
    /// time. Rows that become durable meanwhile may be among them.
    pub fn scan(self: &Arc<Self>, wanted: &Wanted) -> Result<Box<dyn SortedRows>> {
        self.scan_within(wanted, SOURCES_MAX, HELD_ROWS_MAX)
    }

    /// Returns the wanted rows. Days are read in windows, and at most so many rows held, if they have more
    /// sources than `sources_max`.
    pub(crate) fn scan_within(
        self: &Arc<Self>,
        wanted: &Wanted,
        sources_max: usize,
        held_max: usize,
    ) -> Result<Box<dyn SortedRows>> {
        let wanted = self.kept(wanted.clone());
        let windows = self.windows(&wanted, sources_max);
        if windows.len() <= 1 {
            return self.merged(&wanted);
        }
        let elements = u32::try_from(self.names.read().element_count()).unwrap_or(u32::MAX);
        let group = Arc::clone(self);
        let open = Box::new(move |wanted: &Wanted| group.merged(wanted));
        Ok(Box::new(ByDays::new(open, wanted, windows, elements, held_max)))
    }

    /// Divides the wanted times at the ends of days, so that the days of a part have at most `sources_max`
    /// sources, or are one.
    fn windows(&self, wanted: &Wanted, sources_max: usize) -> Vec<RangeInclusive<i64>> {
        let (from, to) = (*wanted.times.start(), *wanted.times.end());
        if wanted.times.is_empty() {
            return Vec::new();
        }
        let days = day_of(from)..=day_of(to);
        let rows = self.rows.read();
        let mut sources: BTreeMap<i32, usize> = BTreeMap::new();
        for (day, runs) in rows.runs.days().range(days.clone()) {
            *sources.entry(*day).or_default() += runs.iter().filter(|run| run.run.may_have(wanted)).count();
        }
        for day in rows.archived.days.range(days).map(|(day, _)| *day) {
            *sources.entry(day).or_default() += 1;
        }
        let (mut windows, mut begin, mut count) = (Vec::new(), from, 0);
        for (day, more) in sources {
            let start = i64::from(day) * DAY_NANOSECONDS;
            if count > 0 && count + more > sources_max && start > begin {
                windows.push(begin..=start - 1);
                (begin, count) = (start, 0);
            }
            count += more;
        }
        windows.push(begin..=to);
        windows
    }

    /// Returns the wanted rows by a merge of all their sources.
    fn merged(self: &Arc<Self>, wanted: &Wanted) -> Result<Box<dyn SortedRows>> {
        let (active, frozen, runs, archived) = {
            let rows = self.rows.read();
            (
                Arc::clone(&rows.active),
                rows.frozen.clone(),
                Arc::clone(&rows.runs),
                Arc::clone(&rows.archived),
            )
        };
        // The newest first: its values win.
        let memory = std::iter::once(active).chain(frozen.into_iter().rev()).map(|memtable| {
            let (group, wanted) = (Arc::clone(self), wanted.clone());
            Box::new(OfMemtable { group, memtable, wanted, next: Some(0), from: i64::MIN })
                as Box<dyn SortedRows>
        });
        let mut sources: Vec<Box<dyn SortedRows>> = memory.collect();
        let days = day_of(*wanted.times.start())..=day_of(*wanted.times.end());
        if wanted.times.is_empty() {
            return Ok(Box::new(Merge::new(Vec::new())));
        }
        // Times of a day are those of one element after the other, so each day is a source of its own.
        for runs in runs.days().range(days.clone()).map(|(_, runs)| runs).rev() {
            for run in runs.iter().rev().filter(|run| run.run.may_have(wanted)) {
                sources.push(Box::new(run.run.scan(wanted.clone())));
            }
        }
        // Runs of an archived day have rows that came later.
        let group: Arc<dyn NamedGroup> = Arc::clone(self) as _;
        sources.extend(archived.scan(&group, days, wanted)?);
        Ok(Box::new(Merge::new(sources)))
    }

    /// Leaves out times that the retention has ended.
    fn kept(&self, wanted: Wanted) -> Wanted {
        let oldest = self.oldest_kept();
        Wanted { times: oldest.max(*wanted.times.start())..=*wanted.times.end(), ..wanted }
    }

    /// Passes the latest values of an element to `give`, in the order of their fields.
    pub fn latest(&self, element: ElementNumber, mut give: impl FnMut(ValueAt)) {
        let oldest = self.oldest_kept();
        let names = self.names.read();
        let rows = self.rows.read();
        rows.latest.read(element, &*names, |field, time, value| {
            if time >= oldest {
                give(ValueAt { field, time, value: value.to_value() });
            }
        });
    }
}
