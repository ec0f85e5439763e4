//! Pages of elements, values, rows and aggregates, as requests ask for them.
//!
//! A page goes on where the one before ended: at an element, and a time of it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use exacat_model::codec::{Decode, Encode, Reader};
use exacat_model::element::{
    AggregateBy, Element, ElementAggregates, ElementColumn, ElementCourse, ElementGroup, ElementInterval,
    ElementRows, ElementState, ElementValue,
};
use exacat_model::expansion::has_wildcard;
use exacat_model::limits::PAGE_MEMORY_MAX;
use exacat_model::query::{Matcher, Pattern};
use exacat_model::{Cursor, Error, FieldType, Measured, Result};

use crate::aggregate::{Aggregate, Aggregator, Course, Intervals, Sample};
use crate::columns::Columns;
use crate::group::Group;
use crate::names::Names;
use crate::naming::{Part, name_of, parts};
use crate::reading::ValueAt;
use crate::row::{ElementNumber, FieldNumber};
use crate::run::{Elements, Fields, Wanted};

/// Elements whose rows one step of a page reads together.
const ELEMENTS_TOGETHER: usize = 1024;
/// Names that a step compares with a pattern, so that no lock is held for long.
const NAMES_AT_ONCE: u32 = 100_000;
/// Name of all fields in a request.
const ALL_FIELDS: &str = "*";

/// A page, and where the next one begins.
pub type Page<T> = (Vec<T>, Option<Cursor>);

/// Place in a list of elements and their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    element: ElementNumber,
    /// Time of the next row; none for the first.
    time: Option<i64>,
}

impl Place {
    fn of(cursor: &Cursor) -> Result<Self> {
        if cursor.0.is_empty() {
            return Ok(Place::default());
        }
        let mut reader = Reader::new(&cursor.0);
        let place = (|| {
            let place = Place { element: u32::decode(&mut reader)?, time: Option::decode(&mut reader)? };
            if reader.remaining() == 0 { Ok(place) } else { Err(reader.error("bytes behind a cursor")) }
        })();
        place.map_err(|_: exacat_model::codec::DecodeError| {
            Error::invalid("the cursor is none of this operation")
        })
    }

    fn cursor(self) -> Cursor {
        let mut bytes = Vec::new();
        self.element.encode(&mut bytes);
        self.time.encode(&mut bytes);
        Cursor(bytes)
    }

    fn at(element: ElementNumber) -> Self {
        Place { element, time: None }
    }
}

/// Elements that a request chooses.
enum Chosen {
    All,
    /// Elements of one name or key, ascending.
    Named(Vec<ElementNumber>),
    Matching(Matcher),
}

impl Chosen {
    fn of(names: &Names, pattern: &str) -> Result<Self> {
        if pattern.is_empty() || pattern == "*" {
            return Ok(Chosen::All);
        }
        let named = names.named(pattern);
        if !named.is_empty() {
            return Ok(Chosen::Named(named));
        }
        if !has_wildcard(pattern) {
            return Err(Error::not_found(format!("there is no element of the name {pattern:.200}")));
        }
        Pattern::Glob(pattern.to_owned()).compile().map(Chosen::Matching)
    }

    /// Returns the chosen elements from one on, at most `max`, and the element to go on with.
    fn next(
        &self,
        group: &Group,
        from: ElementNumber,
        max: usize,
    ) -> (Vec<ElementNumber>, Option<ElementNumber>) {
        let names = group.names();
        let count = u32::try_from(names.element_count()).unwrap_or(u32::MAX);
        let mut found = Vec::new();
        match self {
            Chosen::All => found.extend((from..count).take(max)),
            Chosen::Named(named) => found.extend(named.iter().copied().filter(|one| *one >= from).take(max)),
            Chosen::Matching(matcher) => {
                let end = count.min(from.saturating_add(NAMES_AT_ONCE));
                for element in from..end {
                    if matcher.matches(&name_of(names.key(element)), String::new) {
                        found.push(element);
                        if found.len() == max {
                            break;
                        }
                    }
                }
                if found.len() < max {
                    return (found, (end < count).then_some(end));
                }
            }
        }
        let next = found.last().map(|last| last + 1).filter(|next| found.len() == max && *next < count);
        (found, next)
    }
}

/// Fields that a request shows.
struct Shown {
    /// For each field of the group its part, and whether it is shown.
    parts: Vec<(Part, bool)>,
}

impl Shown {
    /// Chooses fields: those named; without names those of value and quality, or all of a measurement
    /// that has no field with the value.
    fn of(names: &Names, fields: &[String]) -> Self {
        let mut of_measurement: Vec<Vec<FieldNumber>> = vec![Vec::new(); names.measurements().len()];
        for (number, field) in names.fields().iter().enumerate() {
            of_measurement[field.measurement as usize].push(number as u32);
        }
        let mut shown = vec![(Part::Other, false); names.fields().len()];
        let wanted: BTreeSet<&str> = fields.iter().map(String::as_str).collect();
        for numbers in of_measurement {
            let named: Vec<&str> = numbers.iter().map(|one| &*names.fields()[*one as usize].name).collect();
            let parts = parts(&named);
            let has_value = parts.contains(&Part::Value);
            for ((number, name), part) in numbers.iter().zip(&named).zip(parts) {
                let is_shown = match fields.is_empty() {
                    true => part != Part::Other || !has_value,
                    false => wanted.contains(name) || wanted.contains(ALL_FIELDS),
                };
                shown[*number as usize] = (part, is_shown);
            }
        }
        Shown { parts: shown }
    }

    fn has(&self, field: FieldNumber) -> bool {
        self.parts.get(field as usize).is_some_and(|(_, is_shown)| *is_shown)
    }

    /// Returns the fields to read.
    fn wanted(&self) -> Fields {
        let shown = self.parts.iter().enumerate().filter(|(_, (_, is_shown))| *is_shown);
        Fields::Set(shown.map(|(number, _)| number as u32).collect())
    }

    fn part(&self, field: FieldNumber) -> Part {
        self.parts.get(field as usize).map_or(Part::Other, |(part, _)| *part)
    }

    /// Puts fields in the order in which people read them.
    fn sort<T>(&self, names: &Names, items: &mut [T], field: impl Fn(&T) -> FieldNumber) {
        items.sort_by_cached_key(|item| {
            let field = field(item);
            (self.part(field), names.fields()[field as usize].name.clone())
        });
    }
}

impl Group {
    /// Returns its settings and counts.
    pub fn counts(&self) -> ElementGroup {
        let settings = self.settings();
        let (elements, fields) = {
            let names = self.names();
            (names.element_count() as u64, names.fields().len() as u64)
        };
        let rows = self.rows.read();
        let in_memory = std::iter::once(&rows.active).chain(&rows.frozen);
        let rows_in_memory = in_memory.map(|memtable| memtable.read().rows()).sum();
        let days = rows.runs.days();
        let archived = &rows.archived.days;
        let all = || days.keys().chain(archived.keys()).map(|day| i64::from(*day));
        let mut shown = ElementGroup {
            settings,
            elements,
            fields,
            rows: 0,
            rows_in_memory,
            bytes: 0,
            files: 0,
            days: all().min().zip(all().max()),
        };
        for run in days.values().flatten() {
            shown.files += 1;
            shown.rows += run.run.summary().rows;
            shown.bytes += run.run.summary().bytes;
        }
        for file in archived.values().flat_map(|files| files.iter()) {
            shown.files += 1;
            shown.rows += file.rows;
            shown.bytes += file.bytes;
        }
        shown
    }

    /// Returns a page of elements.
    pub fn element_page(
        self: &Arc<Self>,
        pattern: &str,
        cursor: &Cursor,
        limit: usize,
    ) -> Result<Page<Element>> {
        let chosen = Chosen::of(&self.names(), pattern)?;
        let (elements, next) = chosen.next(self, Place::of(cursor)?.element, limit);
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            let mut values = Vec::new();
            self.latest(element, |value| values.push((value.field, value.time)));
            let names = self.names();
            let fields = values.iter().map(|(field, _)| {
                let field = &names.fields()[*field as usize];
                (field.name.to_string(), field.kind)
            });
            let key = names.key(element);
            items.push(Element {
                key: key.to_owned(),
                name: name_of(key).into_owned(),
                fields: fields.collect(),
                newest: values.iter().map(|(_, time)| *time).max(),
            });
        }
        Ok((items, next.map(|next| Place::at(next).cursor())))
    }

    /// Returns a page of values that hold at an instant; without one the latest.
    pub fn value_page(
        self: &Arc<Self>,
        pattern: &str,
        at: Option<i64>,
        fields: &[String],
        (cursor, limit): (&Cursor, usize),
    ) -> Result<Page<ElementState>> {
        let (chosen, shown) = {
            let names = self.names();
            (Chosen::of(&names, pattern)?, Shown::of(&names, fields))
        };
        let (elements, mut next) = chosen.next(self, Place::of(cursor)?.element, limit);
        let mut reader = at.map(|time| self.at_instant(time));
        let (mut items, mut bytes) = (Vec::with_capacity(elements.len()), 0);
        for element in elements {
            if bytes >= PAGE_MEMORY_MAX {
                next = Some(element);
                break;
            }
            let mut values = match &mut reader {
                Some(reader) => reader.of(element, |field| shown.has(field))?,
                None => self.latest_values(element, |field| shown.has(field)),
            };
            if values.is_empty() {
                continue;
            }
            let names = self.names();
            shown.sort(&names, &mut values, |value| value.field);
            let key = names.key(element);
            bytes += 2 * key.len() + values.iter().map(|value| value.value.bytes()).sum::<usize>();
            let values = values.into_iter().map(|ValueAt { field, time, value }| ElementValue {
                field: names.fields()[field as usize].name.to_string(),
                time,
                value,
            });
            items.push(ElementState {
                key: key.to_owned(),
                name: name_of(key).into_owned(),
                values: values.collect(),
            });
        }
        Ok((items, next.map(|next| Place::at(next).cursor())))
    }

    /// Returns a page of rows: those of an element in the order of time, one element after the other.
    pub fn row_page(
        self: &Arc<Self>,
        pattern: &str,
        (from, to): (i64, i64),
        fields: &[String],
        (cursor, limit): (&Cursor, usize),
    ) -> Result<Page<ElementRows>> {
        let place = Place::of(cursor)?;
        let (chosen, shown) = {
            let names = self.names();
            (Chosen::of(&names, pattern)?, Shown::of(&names, fields))
        };
        let (elements, next) = chosen.next(self, place.element, ELEMENTS_TOGETHER);
        let mut page = RowPage { group: self, shown: &shown, items: Vec::new(), rows: 0, bytes: 0, limit };
        // The element that the page before ended in goes on at its own time.
        let resumed = place.time.filter(|_| elements.first() == Some(&place.element));
        let (first, rest) = elements.split_at(usize::from(resumed.is_some()));
        for (elements, from) in [(first, resumed.unwrap_or(from)), (rest, from)] {
            if elements.is_empty() || from > to {
                continue;
            }
            let wanted =
                Wanted { elements: Elements::Set(elements.into()), times: from..=to, fields: shown.wanted() };
            let mut scan = self.scan(&wanted)?;
            while let Some(columns) = scan.next_rows()? {
                if let Some(place) = page.add(&columns) {
                    return Ok((page.finish(), Some(place.cursor())));
                }
            }
        }
        Ok((page.finish(), next.map(|next| Place::at(next).cursor())))
    }

    /// Returns the fields that pages of rows show of these elements, with their types, in the order of a row.
    /// Fields of one name and type are one.
    pub fn row_fields(&self, pattern: &str, fields: &[String]) -> Result<Vec<(String, FieldType)>> {
        let (chosen, shown, measurements) = {
            let names = self.names();
            let count = names.measurements().len();
            (Chosen::of(&names, pattern)?, Shown::of(&names, fields), count)
        };
        let mut of_measurement = vec![matches!(chosen, Chosen::All); measurements];
        let mut next = Some(0).filter(|_| of_measurement.contains(&false));
        while let Some(from) = next {
            let (elements, behind) = chosen.next(self, from, ELEMENTS_TOGETHER);
            let names = self.names();
            for element in elements {
                if let Some(has) = of_measurement.get_mut(names.measurement_of(element) as usize) {
                    *has = true;
                }
            }
            next = behind.filter(|_| of_measurement.contains(&false));
        }
        let names = self.names();
        let is_chosen = |of: u32| of_measurement.get(of as usize).copied().unwrap_or_default();
        let numbered = (0u32..).zip(names.fields());
        let mut found: Vec<FieldNumber> = numbered
            .filter(|(number, field)| shown.has(*number) && is_chosen(field.measurement))
            .map(|(number, _)| number)
            .collect();
        shown.sort(&names, &mut found, |field| *field);
        let mut distinct = BTreeSet::new();
        let field = |number: FieldNumber| {
            let field = &names.fields()[number as usize];
            (field.name.to_string(), field.kind)
        };
        Ok(found
            .into_iter()
            .map(field)
            .filter(|(name, kind)| distinct.insert((name.clone(), kind.number())))
            .collect())
    }

    /// Returns a page of aggregates: the intervals of an element in the order of time.
    pub fn aggregate_page(
        self: &Arc<Self>,
        pattern: &str,
        (from, to): (i64, i64),
        by: &AggregateBy,
        (cursor, limit): (&Cursor, usize),
    ) -> Result<Page<ElementAggregates>> {
        let place = Place::of(cursor)?;
        let (chosen, shown) = {
            let names = self.names();
            let fields: Vec<String> = by.field.iter().cloned().collect();
            (Chosen::of(&names, pattern)?, Shown::of(&names, &fields))
        };
        // Checks the range and the intervals.
        Aggregator::<f64>::new(intervals(from, to, by), Course::Samples)?;
        let (elements, next) = chosen.next(self, place.element, limit);
        let (mut items, mut left): (Vec<ElementAggregates>, usize) = (Vec::new(), limit);
        let mut reader = from.checked_sub(1).map(|before| self.at_instant(before));
        let mut elements = elements.into_iter().peekable();
        while let Some(element) = elements.next() {
            if left == 0 {
                return Ok((items, Some(Place::at(element).cursor())));
            }
            let resumed = place.time.filter(|_| element == place.element);
            let start = resumed.unwrap_or(from);
            let field_of = |element| self.aggregated(element, by.field.as_deref(), &shown);
            let Some((field, kind)) = field_of(element) else { continue };
            let (part, mut ends) = intervals(start, to, by).first(left);
            let mut resumed_reader =
                resumed.and_then(|time| time.checked_sub(1)).map(|time| self.at_instant(time));
            let reader = if resumed.is_some() { resumed_reader.as_mut() } else { reader.as_mut() };
            let mut reader = reader.filter(|_| by.course != ElementCourse::Samples);
            let mut before = |element| -> Result<Option<ValueAt>> {
                match &mut reader {
                    Some(reader) => Ok(reader.of(element, |one| one == field)?.into_iter().next()),
                    None => Ok(None),
                }
            };
            let mut together = vec![(element, before(element)?)];
            // Elements that are whole in this page are read by one scan: they share pages of a run.
            let room = if resumed.is_none() && is_number(kind) { left / part.count() } else { 1 };
            while together.len() < room.min(ELEMENTS_TOGETHER)
                && let Some(element) = elements.next_if(|next| field_of(*next) == Some((field, kind)))
            {
                together.push((element, before(element)?));
            }
            let done = match kind {
                FieldType::Float => self.sum::<f64>(together, field, (part, by.course))?,
                FieldType::Integer => self.sum::<i64>(together, field, (part, by.course))?,
                FieldType::Unsigned => self.sum::<u64>(together, field, (part, by.course))?,
                FieldType::Boolean | FieldType::Text => {
                    let (done, behind) = self.tally(element, field, part)?;
                    ends = behind.or(ends);
                    vec![(element, done)]
                }
            };
            let names = self.names();
            for (element, intervals) in done.into_iter().filter(|(_, intervals)| !intervals.is_empty()) {
                left = left.saturating_sub(intervals.len());
                let key = names.key(element);
                items.push(ElementAggregates {
                    key: key.to_owned(),
                    name: name_of(key).into_owned(),
                    field: names.fields()[field as usize].name.to_string(),
                    intervals,
                });
            }
            if let Some(time) = ends {
                return Ok((items, Some(Place { element, time: Some(time) }.cursor())));
            }
        }
        Ok((items, next.map(|next| Place::at(next).cursor())))
    }

    fn latest_values(&self, element: ElementNumber, is_wanted: impl Fn(FieldNumber) -> bool) -> Vec<ValueAt> {
        let mut values = Vec::new();
        self.latest(element, |value| {
            if is_wanted(value.field) {
                values.push(value);
            }
        });
        values
    }

    /// Returns the field of an element that is aggregated, and its type: the one of a name, else the first
    /// number among the fields of its value, else the first of these. None if it has no such field.
    fn aggregated(
        &self,
        element: ElementNumber,
        name: Option<&str>,
        shown: &Shown,
    ) -> Option<(FieldNumber, FieldType)> {
        let mut values = self.latest_values(element, |field| {
            shown.has(field) && (name.is_some() || shown.part(field) == Part::Value)
        });
        let names = self.names();
        shown.sort(&names, &mut values, |value| value.field);
        let kinds: Vec<(FieldNumber, FieldType)> =
            values.iter().map(|value| (value.field, names.fields()[value.field as usize].kind)).collect();
        kinds.iter().find(|(_, kind)| is_number(*kind)).or(kinds.first()).copied()
    }

    /// Counts the values of each interval that has one, with the first and the last: the aggregates of
    /// booleans and texts. Returns the time at which the next page begins if the texts fill this one.
    fn tally(
        self: &Arc<Self>,
        element: ElementNumber,
        field: FieldNumber,
        intervals: Intervals,
    ) -> Result<(Vec<ElementInterval>, Option<i64>)> {
        let (mut done, mut bytes) = (Vec::<ElementInterval>::new(), 0);
        let mut scan = self.scan(&of_one_field(Elements::one(element), field, intervals))?;
        while let Some(columns) = scan.next_rows()? {
            let Some(column) = columns.column(field) else { continue };
            for place in column.places(&(0..columns.rows())) {
                let row = column.rows.as_ref().map_or(place, |rows| rows[place] as usize);
                let (time, value) = (columns.times()[row], column.values.get(place).to_value());
                let start = intervals.start_of(time);
                match done.last_mut().filter(|last| last.start == start) {
                    Some(last) => {
                        last.count += 1;
                        last.last = Some((time, value));
                    }
                    None if bytes >= PAGE_MEMORY_MAX => return Ok((done, Some(start.max(intervals.from)))),
                    None => {
                        // The last value of the interval is about as long as its first.
                        bytes += size_of::<ElementInterval>() + 2 * value.bytes();
                        let first = Some((time, value));
                        done.push(ElementInterval { start, count: 1, last: first.clone(), first, ..NOTHING });
                    }
                }
            }
        }
        Ok((done, None))
    }

    /// Adds up the values of some elements, ascending, each with its last value before the intervals.
    fn sum<T: Sample>(
        self: &Arc<Self>,
        elements: Vec<(ElementNumber, Option<ValueAt>)>,
        field: FieldNumber,
        (intervals, course): (Intervals, ElementCourse),
    ) -> Result<Vec<(ElementNumber, Vec<ElementInterval>)>> {
        let numbers: Arc<[ElementNumber]> = elements.iter().map(|(element, _)| *element).collect();
        let mut scan = self.scan(&of_one_field(Elements::Set(numbers), field, intervals))?;
        let mut batch = scan.next_rows()?;
        // The next stretch of the batch.
        let mut stretch = 0;
        let mut sums = Vec::with_capacity(elements.len());
        for (element, before) in elements {
            let before = before.and_then(|before| Some((before.time, T::from_value(&before.value)?)));
            let course = match course {
                ElementCourse::Holds => Course::Holds { before: before.map(|(_, value)| value) },
                ElementCourse::Line => Course::Line { before },
                ElementCourse::Samples => Course::Samples,
            };
            let mut done = Vec::with_capacity(intervals.count());
            let mut complete = |one: Aggregate<T>| {
                // Before the first value there is nothing.
                if one.count > 0 || one.covered > 0.0 {
                    done.push(interval(&one));
                }
            };
            let mut of_element = Aggregator::<T>::new(intervals, course)?;
            while let Some(columns) = &batch {
                let Some(rows) = columns.elements().get(stretch) else {
                    (batch, stretch) = (scan.next_rows()?, 0);
                    continue;
                };
                if rows.element != element {
                    break;
                }
                let start = stretch.checked_sub(1).map_or(0, |before| columns.elements()[before].end);
                of_element.add_column(columns, start as usize..rows.end as usize, field, &mut complete)?;
                stretch += 1;
            }
            of_element.finish(&mut complete);
            sums.push((element, done));
        }
        Ok(sums)
    }
}

fn is_number(kind: FieldType) -> bool {
    !matches!(kind, FieldType::Boolean | FieldType::Text)
}

/// Interval without a value.
const NOTHING: ElementInterval = ElementInterval {
    start: 0,
    count: 0,
    first: None,
    last: None,
    min: None,
    max: None,
    mean: None,
    mean_over_time: None,
    integral: 0.0,
    covered_seconds: 0.0,
};

/// Returns the rows of elements that have a value of one field, in the range of some intervals.
fn of_one_field(elements: Elements, field: FieldNumber, intervals: Intervals) -> Wanted {
    Wanted { elements, times: intervals.from..=intervals.to, fields: Fields::Set([field].into()) }
}

fn intervals(from: i64, to: i64, by: &AggregateBy) -> Intervals {
    Intervals { from, to, length: by.every, origin: by.origin }
}

fn interval<T: Sample>(one: &Aggregate<T>) -> ElementInterval {
    let at = |(time, value): (i64, T)| (time, value.to_value());
    ElementInterval {
        start: one.start,
        count: one.count,
        first: one.first.map(at),
        last: one.last.map(at),
        min: one.min.map(T::to_value),
        max: one.max.map(T::to_value),
        mean: one.mean(),
        mean_over_time: one.mean_over_time(),
        integral: one.integral,
        covered_seconds: one.covered,
    }
}

/// Rows of a page as it grows.
struct RowPage<'g> {
    group: &'g Group,
    shown: &'g Shown,
    items: Vec<(ElementNumber, Vec<FieldNumber>, ElementRows)>,
    rows: usize,
    bytes: usize,
    limit: usize,
}

impl RowPage<'_> {
    /// Adds rows. Returns the place of the first one that has no room.
    fn add(&mut self, columns: &Columns) -> Option<Place> {
        let mut start = 0;
        for rows in columns.elements() {
            let end = rows.end as usize;
            let room = if self.bytes >= PAGE_MEMORY_MAX { 0 } else { self.limit.saturating_sub(self.rows) };
            let of = start..end.min(start + room);
            if !of.is_empty() {
                self.add_element(rows.element, columns, of.clone());
            }
            if of.end < end {
                return Some(Place { element: rows.element, time: columns.times().get(of.end).copied() });
            }
            start = end;
        }
        None
    }

    fn add_element(&mut self, element: ElementNumber, columns: &Columns, range: Range<usize>) {
        if self.items.last().is_none_or(|(last, _, _)| *last != element) {
            let names = self.group.names();
            let key = names.key(element);
            self.bytes += 2 * key.len();
            let rows = ElementRows {
                key: key.to_owned(),
                name: name_of(key).into_owned(),
                times: Vec::new(),
                columns: Vec::new(),
            };
            self.items.push((element, Vec::new(), rows));
        }
        let Some((_, fields, rows)) = self.items.last_mut() else { return };
        let before = rows.times.len();
        rows.times.extend_from_slice(&columns.times()[range.clone()]);
        self.rows += range.len();
        for column in columns.columns() {
            let places = column.places(&range);
            if places.is_empty() || !self.shown.has(column.field) {
                continue;
            }
            let at = fields.iter().position(|field| *field == column.field).unwrap_or_else(|| {
                let field = self.group.names().fields()[column.field as usize].name.to_string();
                fields.push(column.field);
                rows.columns.push(ElementColumn { field, values: Vec::new() });
                fields.len() - 1
            });
            let values = &mut rows.columns[at].values;
            for place in places {
                let row = column.rows.as_ref().map_or(place, |rows| rows[place] as usize);
                let value = column.values.get(place).to_value();
                self.bytes += value.bytes();
                values.resize(before + row - range.start, None);
                values.push(Some(value));
            }
        }
        self.bytes += range.len() * size_of::<i64>();
        for column in &mut rows.columns {
            column.values.resize(rows.times.len(), None);
        }
    }

    /// Returns the rows. Those without a shown value are left out.
    fn finish(self) -> Vec<ElementRows> {
        let names = self.group.names();
        let shown = self.shown;
        let whole = |(_, fields, mut rows): (ElementNumber, Vec<FieldNumber>, ElementRows)| {
            let mut columns: Vec<_> = fields.into_iter().zip(std::mem::take(&mut rows.columns)).collect();
            shown.sort(&names, &mut columns, |(field, _)| *field);
            rows.columns = columns.into_iter().map(|(_, column)| column).collect();
            let has_value: Vec<bool> = (0..rows.times.len())
                .map(|row| rows.columns.iter().any(|column| column.values[row].is_some()))
                .collect();
            if has_value.contains(&false) {
                keep(&mut rows.times, &has_value);
                rows.columns.iter_mut().for_each(|column| keep(&mut column.values, &has_value));
            }
            rows
        };
        self.items.into_iter().map(whole).filter(|rows| !rows.times.is_empty()).collect()
    }
}

/// Keeps the items that a list says.
fn keep<T>(items: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter();
    items.retain(|_| kept.next().copied().unwrap_or(true));
}
