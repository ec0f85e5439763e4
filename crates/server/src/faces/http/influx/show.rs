//! Statements that show names: databases, policies, measurements, tags, fields, elements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exacat_history::{Group, Names};
use exacat_model::FieldRef;
use exacat_wire::influx::query::{
    Clause, Condition, Filter, Key, Limits, Source, SourceName, Statement, TagTest,
};
use exacat_wire::influx::{AnswerWriter, Cell, split_series};

use super::reading::{Done, Failed, Reading};

/// Name of the one retention policy of each database.
const POLICY: &str = "autogen";
/// Seconds of a week: the length of a shard that clients are told.
const WEEK: &str = "168h0m0s";

/// Returns the databases that a statement names.
pub(super) fn databases(statement: &Statement) -> Vec<String> {
    let of_clause = |clause: &Clause| {
        let named = clause.database.iter().cloned();
        named.chain(clause.from.iter().filter_map(|source| source.database.clone())).collect()
    };
    match statement {
        Statement::ShowRetentionPolicies { database } => database.iter().cloned().collect(),
        Statement::ShowMeasurements { clause, .. } | Statement::ShowTagValues { clause, .. } => {
            of_clause(clause)
        }
        Statement::ShowTagKeys(clause) | Statement::ShowFieldKeys(clause) | Statement::ShowSeries(clause) => {
            of_clause(clause)
        }
        Statement::Select(select) => {
            // Sources without a database are those of the request.
            let names: Vec<String> =
                select.from.iter().filter_map(|source| source.database.clone()).collect();
            if names.len() == select.from.len() { names } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// A tag of an element: key and value, without escapes.
pub(super) type Tags = Vec<(String, String)>;

/// Returns the measurements of a group that the sources name, with their numbers, in the order of their
/// names; all if there is no source.
pub(super) fn measurements(names: &Names, from: &[Source]) -> BTreeMap<String, u32> {
    let fits = |name: &str| {
        from.is_empty()
            || from.iter().any(|source| match &source.name {
                SourceName::Is(wanted) => wanted == name,
                SourceName::Matches(pattern) => pattern.matches(name),
            })
    };
    let all = names.measurements().iter().enumerate();
    all.filter(|(_, name)| fits(name)).map(|(number, name)| (name.to_string(), number as u32)).collect()
}

/// Returns the tags of an element, in the order of their keys.
pub(super) fn tags_of(names: &Names, element: u32) -> Tags {
    let Ok((_, tags)) = split_series(names.key(element)) else { return Tags::new() };
    tags.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
}

/// Returns the value of a tag; the empty text if the element does not have it.
pub(super) fn value_of<'t>(tags: &'t Tags, key: &str) -> &'t str {
    tags.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value.as_str())
}

/// Passes the elements of a measurement that a filter admits to `give`, with their tags.
pub(super) fn each_element(
    names: &Names,
    measurement: u32,
    filter: &Filter,
    mut give: impl FnMut(u32, Tags),
) {
    // A text that each admitted key has: most keys are passed over without being split.
    let needle = filter.tags.as_ref().and_then(needle_of);
    for element in names.elements_of(measurement) {
        if needle.as_ref().is_some_and(|needle| !names.key(element).contains(needle.as_str())) {
            continue;
        }
        let tags = tags_of(names, element);
        if filter.tags.as_ref().is_none_or(|condition| condition.holds(&|key: &str| value_of(&tags, key))) {
            give(element, tags);
        }
    }
}

/// Returns a text that the key of each admitted element has: a tag that must be equal, without characters
/// that have an escape.
fn needle_of(condition: &Condition) -> Option<String> {
    match condition {
        Condition::Tag { key, test: TagTest::Is(value) } if !value.is_empty() => {
            let plain = |text: &str| !text.contains([',', ' ', '=', '\\', '\n', '\t', '\r']);
            (plain(key) && plain(value)).then(|| format!(",{key}={value}"))
        }
        Condition::All(parts) => parts.iter().find_map(needle_of),
        _ => None,
    }
}

fn text(value: &str) -> Cell<'_> {
    Cell::Value(FieldRef::Text(value))
}

/// Leaves out rows before the offset, and those beyond the limit.
fn limited<T>(rows: impl IntoIterator<Item = T>, limits: &Limits) -> impl Iterator<Item = T> {
    let (offset, limit) = (limits.offset, limits.limit.unwrap_or(u64::MAX));
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    rows.into_iter().skip(number(offset)).take(number(limit))
}

/// Writes one series, unless it has no row.
fn series<'c>(
    writer: &mut AnswerWriter,
    name: &str,
    columns: &[&str],
    rows: impl Iterator<Item = Vec<Cell<'c>>>,
) {
    let mut rows = rows.peekable();
    if rows.peek().is_some() {
        writer.begin_series(name, &[], columns);
        rows.for_each(|row| writer.row(&row));
        writer.end_series(false);
    }
}

/// Answers a statement that shows names.
pub(super) fn show(reading: &Reading, statement: &Statement, writer: &mut AnswerWriter) -> Done {
    match statement {
        Statement::ShowDatabases => {
            let names: Vec<String> =
                reading.groups.iter().map(|group| group.settings().name.to_string()).collect();
            // InfluxDB shows the series also without a row.
            writer.begin_series("databases", &[], &["name"]);
            names.iter().for_each(|name| writer.row(&[text(name)]));
            writer.end_series(false);
            Ok(())
        }
        Statement::ShowRetentionPolicies { database } => {
            let days = reading.group(database.as_deref())?.settings().retention_days;
            let duration = if days == 0 { "0s".to_owned() } else { format!("{}h0m0s", u64::from(days) * 24) };
            writer.begin_series("", &[], &["name", "duration", "shardGroupDuration", "replicaN", "default"]);
            let one = Cell::Value(FieldRef::Integer(1));
            writer.row(&[
                text(POLICY),
                text(&duration),
                text(WEEK),
                one,
                Cell::Value(FieldRef::Boolean(true)),
            ]);
            writer.end_series(false);
            Ok(())
        }
        Statement::ShowMeasurements { with, clause } => {
            let group = reading.group(clause.database.as_deref())?;
            let names = group.names();
            let from: Vec<Source> = with.iter().cloned().collect();
            let found = measurements(&names, &from).into_iter().filter(|(_, number)| {
                clause.filter.tags.is_none() || has_element(&names, *number, &clause.filter)
            });
            let found: Vec<String> = limited(found, &clause.limits).map(|(name, _)| name).collect();
            series(writer, "measurements", &["name"], found.iter().map(|name| vec![text(name)]));
            Ok(())
        }
        Statement::ShowFieldKeys(clause) => {
            let group = reading.group(clause.database.as_deref())?;
            let names = group.names();
            for (name, number) in measurements(&names, &clause.from) {
                let mut fields: Vec<(&str, &str)> = names
                    .fields()
                    .iter()
                    .filter(|field| field.measurement == number)
                    .map(|field| (&*field.name, field.kind.name()))
                    .collect();
                fields.sort_unstable();
                let rows = limited(fields, &clause.limits).map(|(name, kind)| vec![text(name), text(kind)]);
                series(writer, &name, &["fieldKey", "fieldType"], rows);
            }
            Ok(())
        }
        Statement::ShowTagKeys(clause) => each_measurement(reading, clause, |group, name, number| {
            let names = group.names();
            let mut keys = BTreeSet::new();
            each_element(&names, number, &clause.filter, |_, tags| {
                keys.extend(tags.into_iter().map(|(key, _)| key));
            });
            series(writer, name, &["tagKey"], limited(&keys, &clause.limits).map(|key| vec![text(key)]));
        }),
        Statement::ShowTagValues { key, clause } => {
            each_measurement(reading, clause, |group, name, number| {
                let names = group.names();
                let mut values = BTreeSet::new();
                each_element(&names, number, &clause.filter, |_, tags| {
                    values.extend(tags.into_iter().filter(|(name, _)| is_wanted(key, name)));
                });
                let rows = limited(&values, &clause.limits).map(|(key, value)| vec![text(key), text(value)]);
                series(writer, name, &["key", "value"], rows);
            })
        }
        Statement::ShowSeries(clause) => {
            let mut keys = Vec::new();
            each_measurement(reading, clause, |group, _, number| {
                let names = group.names();
                each_element(&names, number, &clause.filter, |element, _| {
                    keys.push(names.key(element).to_owned())
                });
            })?;
            keys.sort_unstable();
            series(writer, "", &["key"], limited(&keys, &clause.limits).map(|key| vec![text(key)]));
            Ok(())
        }
        _ => Err(Failed("internal error: this statement shows nothing".to_owned())),
    }
}

fn has_element(names: &Names, measurement: u32, filter: &Filter) -> bool {
    let mut found = false;
    each_element(names, measurement, filter, |_, _| found = true);
    found
}

fn each_measurement(
    reading: &Reading,
    clause: &Clause,
    mut give: impl FnMut(&Arc<Group>, &str, u32),
) -> Done {
    let group = reading.group(clause.database.as_deref())?;
    let found = measurements(&group.names(), &clause.from);
    found.iter().for_each(|(name, number)| give(group, name, *number));
    Ok(())
}

fn is_wanted(key: &Key, name: &str) -> bool {
    match key {
        Key::In(keys) => keys.iter().any(|key| key == name),
        Key::IsNot(key) => key != name,
        Key::Matches(pattern) => pattern.matches(name),
        Key::DoesNotMatch(pattern) => !pattern.matches(name),
    }
}
