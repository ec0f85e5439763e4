//! Elements in requests and answers: groups with their counts, names, rows, values that hold, and
//! aggregates.

use crate::account::AccountName;
use crate::history::{FieldRef, FieldType, FieldValue, GroupName, GroupSettings};
use crate::operation::Owner;
use crate::{canonical_enum, canonical_struct};

/// Fields with the quality of a value, the first that a measurement has.
pub const QUALITY_FIELDS: [&str; 3] = ["quality", "q", "_status64"];

canonical_enum!(FieldValue {
    0 => Float(value),
    1 => Integer(value),
    2 => Unsigned(value),
    3 => Boolean(value),
    4 => Text(value),
});

canonical_enum!(FieldType {
    0 => Float,
    1 => Integer,
    2 => Unsigned,
    3 => Boolean,
    4 => Text,
});

/// Change of the settings of a group. A part that is left out stays as it is. A new group gets its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChange {
    /// The user who may change its settings.
    pub owner: Option<AccountName>,
    /// Users and groups who may read it; empty for everybody.
    pub readers: Option<Vec<Owner>>,
    /// Users and groups who may write to it.
    pub writers: Option<Vec<Owner>>,
    /// Days that values are kept; 0 for ever.
    pub retention_days: Option<u32>,
    /// Largest number of elements.
    pub elements_max: Option<u32>,
}

canonical_struct!(GroupChange { owner, readers, writers, retention_days, elements_max });

/// A group of elements with its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementGroup {
    /// Its settings.
    pub settings: GroupSettings,
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
    /// Days that have files, as days since 1970: the first and the last.
    pub days: Option<(i64, i64)>,
}

canonical_struct!(ElementGroup { settings, elements, fields, rows, rows_in_memory, bytes, files, days });

/// An element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Measurement and tags, as in line protocol.
    pub key: String,
    /// Name for people: the tag `name`, else the tag `element`, else the key.
    pub name: String,
    /// Fields with a value, and their types.
    pub fields: Vec<(String, FieldType)>,
    /// Time of its newest value, in nanoseconds.
    pub newest: Option<i64>,
}

canonical_struct!(Element { key, name, fields, newest });

/// Value of a field at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementValue {
    /// Field.
    pub field: String,
    /// Time at which it was set, in nanoseconds.
    pub time: i64,
    /// The value.
    pub value: FieldValue,
}

canonical_struct!(ElementValue { field, time, value });

/// Values of an element that hold at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementState {
    /// Measurement and tags, as in line protocol.
    pub key: String,
    /// Name for people.
    pub name: String,
    /// Its values: the fields of its value, then those of its quality, then the others by name.
    pub values: Vec<ElementValue>,
}

canonical_struct!(ElementState { key, name, values });

/// Values of one field in the rows beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementColumn {
    /// Field.
    pub field: String,
    /// A value for each row; none where the row has none.
    pub values: Vec<Option<FieldValue>>,
}

canonical_struct!(ElementColumn { field, values });

/// Rows of one element, in the order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementRows {
    /// Measurement and tags, as in line protocol.
    pub key: String,
    /// Name for people. A writer leaves it empty.
    pub name: String,
    /// Times in nanoseconds since 1970.
    pub times: Vec<i64>,
    /// Values by field.
    pub columns: Vec<ElementColumn>,
}

canonical_struct!(ElementRows { key, name, times, columns });

/// Course of a value between two rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElementCourse {
    /// Each value holds until the next one.
    #[default]
    Holds,
    /// A straight line.
    Line,
    /// Unknown: there is no integral.
    Samples,
}

canonical_enum!(ElementCourse {
    0 => Holds,
    1 => Line,
    2 => Samples,
});

/// Aggregates of one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementInterval {
    /// Begin of the interval, in nanoseconds.
    pub start: i64,
    /// Rows with a value.
    pub count: u64,
    /// Time and value of the first row.
    pub first: Option<(i64, FieldValue)>,
    /// Time and value of the last row.
    pub last: Option<(i64, FieldValue)>,
    /// Smallest number; that which holds at the begin takes part.
    pub min: Option<FieldValue>,
    /// Largest number, likewise.
    pub max: Option<FieldValue>,
    /// Mean of the rows.
    pub mean: Option<f64>,
    /// Mean over the time in which the value is known.
    pub mean_over_time: Option<f64>,
    /// Integral over time, in units of the value times seconds.
    pub integral: f64,
    /// Seconds in which the value is known.
    pub covered_seconds: f64,
}

canonical_struct!(ElementInterval {
    start,
    count,
    first,
    last,
    min,
    max,
    mean,
    mean_over_time,
    integral,
    covered_seconds,
});

/// Aggregates of a field of one element, interval after interval.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementAggregates {
    /// Measurement and tags, as in line protocol.
    pub key: String,
    /// Name for people.
    pub name: String,
    /// The field.
    pub field: String,
    /// The intervals.
    pub intervals: Vec<ElementInterval>,
}

canonical_struct!(ElementAggregates { key, name, field, intervals });

impl ElementRows {
    /// Returns the values of a row, by the names of their fields.
    pub fn row(&self, at: usize) -> impl Iterator<Item = (&str, FieldRef<'_>)> {
        self.columns.iter().filter_map(move |column| {
            let value = column.values.get(at)?.as_ref()?;
            Some((column.field.as_str(), value.borrow()))
        })
    }
}

impl GroupChange {
    /// Returns the settings of a new group with this change; `default` has all that it leaves out.
    pub fn apply(self, mut default: GroupSettings) -> GroupSettings {
        default.owner = self.owner.or(default.owner);
        default.readers = self.readers.unwrap_or(default.readers);
        default.writers = self.writers.unwrap_or(default.writers);
        default.retention_days = self.retention_days.unwrap_or(default.retention_days);
        default.elements_max = self.elements_max.unwrap_or(default.elements_max);
        default
    }
}

/// Elements of a group that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementsOf {
    /// The group.
    pub group: GroupName,
    /// Name or key of an element, or a pattern of names with `*`, `?`, `[…]` and `{…}`.
    pub pattern: String,
}

canonical_struct!(ElementsOf { group, pattern });

/// Intervals and field of aggregates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateBy {
    /// Field; none for the value.
    pub field: Option<String>,
    /// Nanoseconds of an interval.
    pub every: i64,
    /// Time at which an interval begins.
    pub origin: i64,
    /// Course of the value between two rows.
    pub course: ElementCourse,
}

canonical_struct!(AggregateBy { field, every, origin, course });
