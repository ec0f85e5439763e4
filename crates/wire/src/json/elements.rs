//! Groups of elements, their elements, values, rows and aggregates.

use std::collections::BTreeMap;

use exacat_model::element::{
    Element, ElementAggregates, ElementGroup, ElementInterval, ElementRows, ElementState,
};
use exacat_model::{FieldRef, FieldValue, TimeMs, TimeNs};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use super::entries::Shown;
use super::registry::owner;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A value of a field. A number without a form in JSON is a text: `NaN`, `Infinity`, `-Infinity`.
#[derive(Debug, Clone)]
pub struct ValueOut<'a>(pub FieldRef<'a>);

impl Serialize for ValueOut<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            FieldRef::Float(value) if value.is_nan() => to.serialize_str("NaN"),
            FieldRef::Float(value) if value.is_infinite() => {
                to.serialize_str(if value > 0.0 { "Infinity" } else { "-Infinity" })
            }
            FieldRef::Float(value) => to.serialize_f64(value),
            FieldRef::Integer(value) => to.serialize_i64(value),
            FieldRef::Unsigned(value) => to.serialize_u64(value),
            FieldRef::Boolean(value) => to.serialize_bool(value),
            FieldRef::Text(value) => to.serialize_str(value),
        }
    }
}

fn value(value: &FieldValue) -> ValueOut<'_> {
    ValueOut(value.borrow())
}

/// A group of elements.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ElementGroup)]
pub struct ElementGroupOut<'a> {
    /// Name.
    pub name: &'a str,
    /// The user who may change its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<&'a str>,
    /// Users and groups who may read it, `user:NAME` or `group:NAME`; none for everybody.
    pub readers: Vec<String>,
    /// Users and groups who may write to it.
    pub writers: Vec<String>,
    /// Days that values are kept; 0 for ever.
    pub retention_days: u32,
    /// Largest number of elements.
    pub elements_max: u32,
    /// Time at which it was made.
    #[schema(value_type = String, format = "date-time")]
    pub created: Shown<TimeMs>,
    /// Elements.
    pub elements: u64,
    /// Fields: pairs of a measurement and a name.
    pub fields: u64,
    /// Rows in files. A row that was written again counts once for each file that has it.
    pub rows: u64,
    /// Rows in memory and in the log only.
    pub rows_in_memory: u64,
    /// Bytes of the files with rows.
    pub bytes: u64,
    /// Files with rows.
    pub files: u64,
    /// First day with a file, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_day: Option<String>,
    /// Last day with a file, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_day: Option<String>,
}

/// Returns a day as `2026-11-26`.
pub fn day(day: i64) -> String {
    let ns = day.saturating_mul(DAY_MS).saturating_mul(1_000_000);
    TimeNs(ns).to_string().chars().take_while(|letter| *letter != 'T').collect()
}

/// Converts a group of elements.
pub fn element_group(group: &ElementGroup) -> ElementGroupOut<'_> {
    let settings = &group.settings;
    ElementGroupOut {
        name: settings.name.as_str(),
        owner: settings.owner.as_ref().map(|owner| owner.as_str()),
        readers: settings.readers.iter().map(owner).collect(),
        writers: settings.writers.iter().map(owner).collect(),
        retention_days: settings.retention_days,
        elements_max: settings.elements_max,
        created: Shown(settings.created),
        elements: group.elements,
        fields: group.fields,
        rows: group.rows,
        rows_in_memory: group.rows_in_memory,
        bytes: group.bytes,
        files: group.files,
        first_day: group.days.map(|(first, _)| day(first)),
        last_day: group.days.map(|(_, last)| day(last)),
    }
}

/// An element.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Element)]
pub struct ElementOut<'a> {
    /// Name: the tag `name`, else the tag `element`, else the key.
    pub name: &'a str,
    /// Measurement and tags, as in line protocol.
    pub key: &'a str,
    /// Types of the fields: `float`, `integer`, `unsigned`, `boolean` or `string`.
    pub fields: BTreeMap<&'a str, &'static str>,
    /// Time of the newest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub newest: Option<Shown<TimeNs>>,
}

/// Converts an element.
pub fn element(element: &Element) -> ElementOut<'_> {
    ElementOut {
        name: &element.name,
        key: &element.key,
        fields: element.fields.iter().map(|(name, kind)| (name.as_str(), kind.name())).collect(),
        newest: element.newest.map(|time| Shown(TimeNs(time))),
    }
}

/// A value with the time at which it was set.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ElementValue)]
pub struct ElementValueOut<'a> {
    /// Time at which it was set.
    #[schema(value_type = String, format = "date-time")]
    pub time: Shown<TimeNs>,
    /// The value.
    #[schema(value_type = Value)]
    pub value: ValueOut<'a>,
}

/// Values of an element that hold at an instant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ElementState)]
pub struct ElementStateOut<'a> {
    /// Name of the element.
    pub name: &'a str,
    /// Measurement and tags, as in line protocol.
    pub key: &'a str,
    /// Values by field.
    pub values: BTreeMap<&'a str, ElementValueOut<'a>>,
}

/// Converts values that hold.
pub fn element_state(state: &ElementState) -> ElementStateOut<'_> {
    let shown = state.values.iter().map(|of| {
        (of.field.as_str(), ElementValueOut { time: Shown(TimeNs(of.time)), value: value(&of.value) })
    });
    ElementStateOut { name: &state.name, key: &state.key, values: shown.collect() }
}

/// A row of an element.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ElementRow)]
pub struct ElementRowOut<'a> {
    /// Name of the element.
    pub name: &'a str,
    /// Measurement and tags, as in line protocol.
    pub key: &'a str,
    /// Time of the row.
    #[schema(value_type = String, format = "date-time")]
    pub time: Shown<TimeNs>,
    /// Values by field.
    #[schema(value_type = BTreeMap<String, Value>)]
    pub values: BTreeMap<&'a str, ValueOut<'a>>,
}

/// Converts rows.
pub fn element_rows(rows: &ElementRows) -> impl Iterator<Item = ElementRowOut<'_>> {
    rows.times.iter().enumerate().map(|(at, time)| ElementRowOut {
        name: &rows.name,
        key: &rows.key,
        time: Shown(TimeNs(*time)),
        values: rows.row(at).map(|(field, value)| (field, ValueOut(value))).collect(),
    })
}

/// Aggregates of a field of an element in one interval.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ElementAggregate)]
pub struct ElementAggregateOut<'a> {
    /// Name of the element.
    pub name: &'a str,
    /// Measurement and tags, as in line protocol.
    pub key: &'a str,
    /// Field.
    pub field: &'a str,
    /// Begin of the interval.
    #[schema(value_type = String, format = "date-time")]
    pub start: Shown<TimeNs>,
    /// Rows with a value.
    pub count: u64,
    /// Value of the first row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<ElementValueOut<'a>>,
    /// Value of the last row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<ElementValueOut<'a>>,
    /// Smallest value; that which holds at the begin takes part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub min: Option<ValueOut<'a>>,
    /// Largest value, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub max: Option<ValueOut<'a>>,
    /// Mean of the rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Mean over the time in which the value is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_over_time: Option<f64>,
    /// Integral over time, in units of the value times seconds.
    pub integral: f64,
    /// Seconds in which the value is known.
    pub covered_seconds: f64,
}

/// Converts aggregates.
pub fn element_aggregates(of: &ElementAggregates) -> impl Iterator<Item = ElementAggregateOut<'_>> {
    of.intervals.iter().map(|one| interval(of, one))
}

fn interval<'a>(of: &'a ElementAggregates, one: &'a ElementInterval) -> ElementAggregateOut<'a> {
    fn at(row: Option<&(i64, FieldValue)>) -> Option<ElementValueOut<'_>> {
        row.map(|(time, of)| ElementValueOut { time: Shown(TimeNs(*time)), value: value(of) })
    }
    ElementAggregateOut {
        name: &of.name,
        key: &of.key,
        field: &of.field,
        start: Shown(TimeNs(one.start)),
        count: one.count,
        first: at(one.first.as_ref()),
        last: at(one.last.as_ref()),
        min: one.min.as_ref().map(value),
        max: one.max.as_ref().map(value),
        mean: one.mean,
        mean_over_time: one.mean_over_time,
        integral: one.integral,
        covered_seconds: one.covered_seconds,
    }
}

/// Result of a write of rows.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ElementsWritten)]
pub struct ElementsWrittenOut<'a> {
    /// Rows that were written, and are durable.
    pub rows: u64,
    /// Rows that were refused.
    pub refused: u64,
    /// The reason why the first of them was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}
