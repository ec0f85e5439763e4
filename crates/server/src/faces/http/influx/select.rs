//! `SELECT`: rows of elements, or aggregates of them over intervals.

use std::collections::BTreeMap;
use std::sync::Arc;

use exacat_history::run::{Elements, Fields, Wanted};
use exacat_history::{Group, Names};
use exacat_model::{FieldRef, FieldType, FieldValue};
use exacat_wire::influx::query::{
    Argument, ColumnKind, Condition, Fill, Function, Group as GroupBy, Select, column_names,
};
use exacat_wire::influx::{AnswerWriter, Cell};

use super::reading::{Done, Failed, Reading};
use super::show::{Tags, each_element, measurements, value_of};
use super::sums::{self, Sums};

/// Rows of one answer without aggregates. A client that wants more asks for parts of the time.
const ROWS_MAX: usize = 1_000_000;
/// Intervals of one series. InfluxDB has the same kind of limit.
const INTERVALS_MAX: i64 = 100_000;
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Series of one answer.
const SERIES_MAX: usize = 100_000;

fn too_many(what: &str, max: usize) -> Failed {
    Failed(format!("max-select-{what} limit exceeded: ({max}): ask for a part of it"))
}

/// Elements that make one series of the answer, by the values of the tags that it is grouped by.
type SeriesOf = BTreeMap<Vec<(String, String)>, Vec<(u32, Tags)>>;

/// A column of the answer.
struct Column {
    name: String,
    content: Content,
}

enum Content {
    Field(u32),
    Tag(String),
    Aggregate(Function, u32, FieldType),
    /// A field that the measurement does not have.
    Nothing,
}

/// Answers a `SELECT`.
pub(super) fn select(reading: &Reading, select: &Select, writer: &mut AnswerWriter) -> Done {
    let mut written = 0;
    for source in &select.from {
        let group = reading.group(source.database.as_deref())?;
        let found = measurements(&group.names(), std::slice::from_ref(source));
        for (name, number) in found {
            of_measurement((reading, group), select, (&name, number), (writer, &mut written))?;
        }
    }
    Ok(())
}

fn of_measurement(
    (reading, group): (&Reading, &Arc<Group>),
    select: &Select,
    (name, measurement): (&str, u32),
    (writer, written): (&mut AnswerWriter, &mut usize),
) -> Done {
    let (series, columns) = {
        let names = group.names();
        if let Some(condition) = &select.filter.tags {
            refuse_fields(&names, measurement, condition)?;
        }
        let (series, keys) = series_of(&names, select, measurement);
        let columns = columns_of(&names, select, measurement, &keys)?;
        (series, columns)
    };
    let (first, mut last) = select.filter.range(reading.now);
    if select.interval.is_some()
        && !select.filter.times.iter().any(|bound| matches!(bound, exacat_wire::influx::query::Bound::To(_)))
    {
        // Without an end the intervals end now.
        last = last.min(reading.now);
    }
    let (offset, limit) = (select.series_limits.offset, select.series_limits.limit.unwrap_or(u64::MAX));
    let as_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    for (tags, elements) in series.into_iter().skip(as_usize(offset)).take(as_usize(limit)) {
        *written += 1;
        if *written > SERIES_MAX {
            return Err(too_many("series", SERIES_MAX));
        }
        let one = OneSeries { group, select, columns: &columns, elements: &elements, first, last };
        let rows = if select.is_aggregate() { one.aggregates()? } else { one.rows()? };
        if rows.is_empty() {
            continue;
        }
        let tags: Vec<(&str, &str)> =
            tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let mut titles = vec!["time"];
        titles.extend(columns.iter().map(|column| column.name.as_str()));
        writer.begin_series(name, &tags, &titles);
        for (time, cells) in &rows {
            let mut row = vec![Cell::Time(*time)];
            row.extend(
                cells
                    .iter()
                    .map(|cell| cell.as_ref().map_or(Cell::Null, |value| Cell::Value(value.borrow()))),
            );
            writer.row(&row);
            if writer.pending() > ANSWER_BYTES_MAX {
                return Err(too_many("bytes", ANSWER_BYTES_MAX));
            }
        }
        writer.end_series(false);
    }
    Ok(())
}

/// Refuses a condition on a field: only tags and times are looked at here.
fn refuse_fields(names: &Names, measurement: u32, condition: &Condition) -> Done {
    match condition {
        Condition::All(parts) | Condition::Any(parts) => {
            parts.iter().try_for_each(|part| refuse_fields(names, measurement, part))
        }
        Condition::Tag { key, .. } if names.field(measurement, key).is_some() => {
            Err(Failed(format!("{key} is a field: conditions on fields are not answered here")))
        }
        Condition::Tag { .. } => Ok(()),
    }
}

/// Returns the elements of a measurement by the tags that they are grouped by, and all keys of tags.
fn series_of(names: &Names, select: &Select, measurement: u32) -> (SeriesOf, Vec<String>) {
    let (mut series, mut keys) = (SeriesOf::new(), std::collections::BTreeSet::new());
    let mut found = Vec::new();
    each_element(names, measurement, &select.filter, |element, tags| {
        keys.extend(tags.iter().map(|(key, _)| key.clone()));
        found.push((element, tags));
    });
    let wanted: Vec<String> = match select.group.as_slice() {
        [] => Vec::new(),
        groups => {
            let is_wanted = |key: &String| {
                groups.iter().any(|group| match group {
                    GroupBy::Tag(name) => name == key,
                    GroupBy::AllTags => true,
                    GroupBy::Matches(pattern) => pattern.matches(key),
                })
            };
            let named = groups.iter().filter_map(|group| match group {
                GroupBy::Tag(name) => Some(name.clone()),
                _ => None,
            });
            let mut wanted: Vec<String> =
                keys.iter().filter(|key| is_wanted(key)).cloned().chain(named).collect();
            wanted.sort_unstable();
            wanted.dedup();
            wanted
        }
    };
    for (element, tags) in found {
        let key = wanted.iter().map(|key| (key.clone(), value_of(&tags, key).to_owned())).collect();
        series.entry(key).or_default().push((element, tags));
    }
    (series, keys.into_iter().collect())
}

fn columns_of(
    names: &Names,
    select: &Select,
    measurement: u32,
    keys: &[String],
) -> Result<Vec<Column>, Failed> {
    let mut fields: Vec<(String, u32, FieldType)> = names
        .fields()
        .iter()
        .enumerate()
        .filter(|(_, field)| field.measurement == measurement)
        .map(|(number, field)| (field.name.to_string(), number as u32, field.kind))
        .collect();
    fields.sort_unstable();
    let field = |name: &str| fields.iter().find(|(known, ..)| known == name);
    let mut found: Vec<(String, Option<String>, Content)> = Vec::new();
    for column in &select.columns {
        let alias = column.alias.clone();
        let all_fields =
            || fields.iter().map(|(name, number, _)| (name.clone(), None, Content::Field(*number)));
        let grouped = |key: &String| {
            select
                .group
                .iter()
                .any(|group| matches!(group, GroupBy::Tag(name) if name == key) || *group == GroupBy::AllTags)
        };
        let all_tags = || {
            keys.iter().filter(|key| !grouped(key)).map(|key| (key.clone(), None, Content::Tag(key.clone())))
        };
        match &column.kind {
            ColumnKind::Named(name) => {
                let content = match field(name) {
                    Some((_, number, _)) => Content::Field(*number),
                    None if keys.contains(name) => Content::Tag(name.clone()),
                    None => Content::Nothing,
                };
                found.push((name.clone(), alias, content));
            }
            ColumnKind::Field(name) => {
                let content = field(name).map_or(Content::Nothing, |(_, number, _)| Content::Field(*number));
                found.push((name.clone(), alias, content));
            }
            ColumnKind::Tag(name) => found.push((name.clone(), alias, Content::Tag(name.clone()))),
            ColumnKind::All => {
                let mut all: Vec<_> = all_fields().chain(all_tags()).collect();
                all.sort_by(|one, other| one.0.cmp(&other.0));
                found.extend(all);
            }
            ColumnKind::AllFields => found.extend(all_fields()),
            ColumnKind::AllTags => found.extend(all_tags()),
            ColumnKind::Aggregate { function, of } => match of {
                Argument::Field(name) => {
                    let content = match field(name) {
                        Some((_, number, kind)) => {
                            fits(*function, *kind)?;
                            Content::Aggregate(*function, *number, *kind)
                        }
                        None => Content::Nothing,
                    };
                    found.push((function.name().to_owned(), alias, content));
                }
                Argument::AllFields => {
                    for (name, number, kind) in &fields {
                        if fits(*function, *kind).is_ok() {
                            let content = Content::Aggregate(*function, *number, *kind);
                            found.push((format!("{}_{name}", function.name()), None, content));
                        }
                    }
                }
            },
        }
    }
    let named: Vec<(&str, Option<&str>)> =
        found.iter().map(|(name, alias, _)| (name.as_str(), alias.as_deref())).collect();
    let titles = column_names(&named);
    Ok(titles.into_iter().zip(found).map(|(name, (_, _, content))| Column { name, content }).collect())
}

/// Refuses an aggregate that a type does not have, in InfluxDB's words.
fn fits(function: Function, kind: FieldType) -> Done {
    let is_number = matches!(kind, FieldType::Float | FieldType::Integer | FieldType::Unsigned);
    match function {
        Function::Count | Function::First | Function::Last => Ok(()),
        _ if is_number => Ok(()),
        _ => Err(Failed(format!("unsupported {} iterator type: *query.{kind}Iterator", function.name()))),
    }
}

/// Row of an answer: its time, and a value for each column.
type Row = (i64, Vec<Option<FieldValue>>);

/// One series of an answer.
struct OneSeries<'a> {
    group: &'a Arc<Group>,
    select: &'a Select,
    columns: &'a [Column],
    elements: &'a [(u32, Tags)],
    first: i64,
    last: i64,
}

impl OneSeries<'_> {
    fn wanted(&self, fields: Vec<u32>) -> Wanted {
        let mut elements: Vec<u32> = self.elements.iter().map(|(element, _)| *element).collect();
        elements.sort_unstable();
        let mut fields = fields;
        fields.sort_unstable();
        fields.dedup();
        Wanted {
            elements: Elements::Set(elements.into()),
            times: self.first..=self.last,
            fields: Fields::Set(fields.into()),
        }
    }

    /// Orders rows by time, and leaves out those beyond the limits.
    fn limited(&self, mut rows: Vec<Row>) -> Vec<Row> {
        match self.select.is_descending {
            true => rows.sort_by_key(|(time, _)| std::cmp::Reverse(*time)),
            false => rows.sort_by_key(|(time, _)| *time),
        }
        let limits = &self.select.limits;
        let as_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let kept = rows.into_iter().skip(as_usize(limits.offset));
        kept.take(as_usize(limits.limit.unwrap_or(u64::MAX))).collect()
    }

    /// Returns the rows that have a value of a wanted field.
    fn rows(&self) -> Result<Vec<Row>, Failed> {
        let fields: Vec<u32> = self
            .columns
            .iter()
            .filter_map(|column| match column.content {
                Content::Field(number) => Some(number),
                _ => None,
            })
            .collect();
        let tags: BTreeMap<u32, &Tags> =
            self.elements.iter().map(|(element, tags)| (*element, tags)).collect();
        let mut rows = Vec::new();
        let mut scan = self.group.scan(&self.wanted(fields))?;
        while let Some(batch) = scan.next_rows()? {
            for at in 0..batch.rows() {
                let (element, time) = batch.key(at);
                let mut has_value = false;
                let cell = |column: &Column| match &column.content {
                    Content::Field(number) => {
                        let value = batch.column(*number).and_then(|column| column.value(at));
                        has_value |= value.is_some();
                        value.map(FieldRef::to_value)
                    }
                    Content::Tag(key) => {
                        let value = tags.get(&element).map_or("", |tags| value_of(tags, key));
                        (!value.is_empty()).then(|| FieldValue::Text(value.into()))
                    }
                    Content::Aggregate(..) | Content::Nothing => None,
                };
                let cells: Vec<Option<FieldValue>> = self.columns.iter().map(cell).collect();
                if has_value {
                    rows.push((time, cells));
                }
            }
            if rows.len() > ROWS_MAX {
                return Err(too_many("point", ROWS_MAX));
            }
        }
        Ok(self.limited(rows))
    }

    /// Returns the aggregates, one row for each interval.
    fn aggregates(&self) -> Result<Vec<Row>, Failed> {
        let mut fields: Vec<(u32, FieldType)> = self
            .columns
            .iter()
            .filter_map(|column| match column.content {
                Content::Aggregate(_, number, kind) => Some((number, kind)),
                _ => None,
            })
            .collect();
        // Several aggregates of one field share its sums.
        fields.sort_unstable_by_key(|(number, _)| *number);
        fields.dedup();
        let is_integral =
            |column: &Column| matches!(column.content, Content::Aggregate(Function::Integral { .. }, ..));
        if self.elements.len() > 1 && self.columns.iter().any(is_integral) {
            return Err(Failed("integral() over several series: group by their tags".to_owned()));
        }
        let interval = self.select.interval;
        let begin_of = |time: i64| match interval {
            None => 0,
            Some(interval) => {
                let shifted = time.saturating_sub(interval.offset);
                shifted.saturating_sub(shifted.rem_euclid(interval.every)).saturating_add(interval.offset)
            }
        };
        let has_integral = self.columns.iter().any(is_integral);
        // The value before, of each field: lines connect the values across intervals.
        let mut last: BTreeMap<u32, (i64, f64)> = BTreeMap::new();
        let mut sums: BTreeMap<i64, BTreeMap<u32, Sums>> = BTreeMap::new();
        let mut scan = self.group.scan(&self.wanted(fields.iter().map(|(number, _)| *number).collect()))?;
        while let Some(batch) = scan.next_rows()? {
            for (number, kind) in &fields {
                let Some(column) = batch.column(*number) else { continue };
                for place in 0..column.values.len() {
                    let row = column.rows.as_ref().map_or(place, |rows| rows[place] as usize);
                    let (time, value) = (batch.times()[row], column.values.get(place));
                    let of = sums.entry(begin_of(time)).or_default();
                    of.entry(*number).or_insert_with(|| Sums::new(*kind)).add(time, value);
                    if has_integral {
                        let after = (time, sums::number(value));
                        if let Some(before) = last.insert(*number, after) {
                            put_area(
                                before,
                                after,
                                &begin_of,
                                interval.map(|one| one.every),
                                &mut |begin, area| {
                                    let of = sums.entry(begin).or_default();
                                    of.entry(*number).or_insert_with(|| Sums::new(*kind)).add_area(area);
                                },
                            );
                        }
                    }
                }
            }
            if interval.is_some() && sums.len() as i64 > INTERVALS_MAX {
                return Err(too_many("buckets", INTERVALS_MAX as usize));
            }
        }
        // An interval that only a line crosses has no value.
        sums.retain(|_, of| {
            of.retain(|_, sums| !sums.is_empty());
            !of.is_empty()
        });
        if sums.is_empty() {
            return Ok(Vec::new());
        }
        let row = |of: Option<&BTreeMap<u32, Sums>>| -> Vec<Option<FieldValue>> {
            let cell = |column: &Column| match column.content {
                Content::Aggregate(function, number, _) => of?.get(&number)?.value(function),
                _ => None,
            };
            self.columns.iter().map(cell).collect()
        };
        let Some(interval) = interval else {
            let of = sums.values().next();
            let time = self.time_of_one(of).unwrap_or(if self.first == i64::MIN { 0 } else { self.first });
            return Ok(self.limited(vec![(time, row(of))]));
        };
        let begin = begin_of(if self.first == i64::MIN {
            sums.keys().next().copied().unwrap_or(0)
        } else {
            self.first
        });
        let end = if self.last == i64::MAX {
            sums.keys().next_back().copied().unwrap_or(0)
        } else {
            begin_of(self.last)
        };
        if self.select.fill == Fill::None {
            return Ok(self.limited(sums.iter().map(|(time, of)| (*time, row(Some(of)))).collect()));
        }
        if end.saturating_sub(begin) / interval.every >= INTERVALS_MAX {
            return Err(too_many("buckets", INTERVALS_MAX as usize));
        }
        let mut rows = Vec::new();
        let mut time = begin;
        while time <= end {
            rows.push((time, row(sums.get(&time))));
            time = match time.checked_add(interval.every) {
                Some(next) => next,
                None => break,
            };
        }
        self.fill(&mut rows);
        Ok(self.limited(rows))
    }

    /// Returns the time of the value that a single selector chose.
    fn time_of_one(&self, of: Option<&BTreeMap<u32, Sums>>) -> Option<i64> {
        match self.columns {
            [Column { content: Content::Aggregate(function, number, _), .. }] => {
                of?.get(number)?.time(*function)
            }
            _ => None,
        }
    }

    /// Fills intervals without values.
    fn fill(&self, rows: &mut [Row]) {
        for (at, column) in self.columns.iter().enumerate() {
            let Content::Aggregate(function, _, kind) = column.content else { continue };
            let number = |value: f64| match kind {
                FieldType::Integer if function != Function::Mean => FieldValue::Integer(value as i64),
                FieldType::Unsigned if function != Function::Mean => FieldValue::Unsigned(value as u64),
                _ => FieldValue::Float(value),
            };
            match self.select.fill {
                Fill::Null if function == Function::Count => {
                    rows.iter_mut().for_each(|(_, cells)| {
                        cells[at].get_or_insert(FieldValue::Integer(0));
                    });
                }
                Fill::Null | Fill::None => {}
                Fill::Number(value) => rows.iter_mut().for_each(|(_, cells)| {
                    cells[at].get_or_insert_with(|| number(value));
                }),
                Fill::Previous => {
                    let mut previous = None;
                    for (_, cells) in rows.iter_mut() {
                        match &cells[at] {
                            Some(value) => previous = Some(value.clone()),
                            None => cells[at] = previous.clone(),
                        }
                    }
                }
                Fill::Linear => fill_linear(rows, at, &number),
            }
        }
    }
}

/// Passes the area below the line between two values to `give`, interval by interval.
fn put_area(
    before: (i64, f64),
    after: (i64, f64),
    begin_of: &dyn Fn(i64) -> i64,
    every: Option<i64>,
    give: &mut dyn FnMut(i64, f64),
) {
    let length = after.0.saturating_sub(before.0) as f64;
    let value_at =
        |time: i64| before.1 + (after.1 - before.1) * (time.saturating_sub(before.0) as f64 / length);
    let mut at = before.0;
    let mut intervals = 0;
    while at < after.0 {
        let begin = begin_of(at);
        let end = every.and_then(|every| begin.checked_add(every)).map_or(after.0, |end| end.min(after.0));
        give(begin, f64::midpoint(value_at(at), value_at(end)) * end.saturating_sub(at) as f64);
        at = end;
        intervals += 1;
        // Intervals between two values far apart have no value, so the rest would be dropped anyway.
        if intervals == 2 && begin_of(after.0) > at {
            at = begin_of(after.0);
        }
    }
}

fn as_float(value: &FieldValue) -> Option<f64> {
    match value {
        FieldValue::Float(value) => Some(*value),
        FieldValue::Integer(value) => Some(*value as f64),
        FieldValue::Unsigned(value) => Some(*value as f64),
        FieldValue::Boolean(_) | FieldValue::Text(_) => None,
    }
}

fn fill_linear(rows: &mut [Row], at: usize, number: &dyn Fn(f64) -> FieldValue) {
    let mut before: Option<(usize, f64)> = None;
    for row in 0..rows.len() {
        let Some(value) = rows[row].1[at].as_ref().and_then(as_float) else { continue };
        if let Some((from, start)) = before {
            let steps = (row - from) as f64;
            for (step, between) in (1..).zip(&mut rows[from + 1..row]) {
                between.1[at] = Some(number(start + (value - start) * (f64::from(step) / steps)));
            }
        }
        before = Some((row, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The area below a line is divided among the intervals that it crosses.
    #[test]
    fn area_is_divided_among_intervals() {
        let begin_of = |time: i64| time - time.rem_euclid(10);
        let areas = |before, after, every| {
            let mut areas = Vec::new();
            put_area(before, after, &begin_of, every, &mut |begin, area| areas.push((begin, area)));
            areas
        };
        assert_eq!(areas((2, 1.0), (8, 1.0), Some(10)), [(0, 6.0)]);
        assert_eq!(areas((5, 0.0), (15, 10.0), Some(10)), [(0, 12.5), (10, 37.5)]);
        assert_eq!(areas((0, 0.0), (20, 2.0), None), [(0, 20.0)]);
        let far = areas((5, 1.0), (1005, 1.0), Some(10));
        assert_eq!((far[0], far.last().copied()), ((0, 5.0), Some((1000, 5.0))));
    }
}
