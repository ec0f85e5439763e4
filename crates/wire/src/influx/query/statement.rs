//! Statements of InfluxQL, as [`parse`](super::parse) reads them.

use std::collections::HashMap;

use regex::RegexBuilder;

use exacat_model::limits::{INFLUX_PATTERN_MEMORY_MAX, INFLUX_PATTERN_MEMORY_PER_BYTE};

/// A statement. The list is closed.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `SHOW DATABASES`
    ShowDatabases,
    /// `CREATE DATABASE name [WITH [DURATION d] [REPLICATION n] [SHARD DURATION d] [NAME policy]]`
    CreateDatabase {
        /// Name.
        name: String,
        /// Retention; nothing if the statement has no `WITH`.
        policy: Policy,
    },
    /// `DROP DATABASE name`
    DropDatabase {
        /// Name.
        name: String,
    },
    /// `SHOW RETENTION POLICIES [ON database]`
    ShowRetentionPolicies {
        /// Database; none for that of the request.
        database: Option<String>,
    },
    /// `CREATE RETENTION POLICY name ON database DURATION d REPLICATION n [SHARD DURATION d] [DEFAULT]`
    CreateRetentionPolicy {
        /// Database.
        database: String,
        /// Retention, with a name.
        policy: Policy,
    },
    /// `ALTER RETENTION POLICY name ON database [DURATION d] [REPLICATION n] [SHARD DURATION d] [DEFAULT]`
    AlterRetentionPolicy {
        /// Database.
        database: String,
        /// Changed settings, with a name.
        policy: Policy,
    },
    /// `DROP RETENTION POLICY name ON database`
    DropRetentionPolicy {
        /// Database.
        database: String,
        /// Name of the policy.
        name: String,
    },
    /// `SHOW MEASUREMENTS [ON database] [WITH MEASUREMENT = name | =~ /re/] [WHERE …] [LIMIT n] [OFFSET n]`
    ShowMeasurements {
        /// Measurement that is asked for; none for all.
        with: Option<Source>,
        /// Database, elements, and limits.
        clause: Clause,
    },
    /// `SHOW TAG KEYS [ON database] [FROM …] [WHERE …] [LIMIT n] [OFFSET n]`
    ShowTagKeys(Clause),
    /// `SHOW TAG VALUES [ON database] [FROM …] WITH KEY … [WHERE …] [LIMIT n] [OFFSET n]`
    ShowTagValues {
        /// Keys whose values are asked for.
        key: Key,
        /// Database, elements, and limits.
        clause: Clause,
    },
    /// `SHOW FIELD KEYS [ON database] [FROM …] [LIMIT n] [OFFSET n]`
    ShowFieldKeys(Clause),
    /// `SHOW SERIES [ON database] [FROM …] [WHERE …] [LIMIT n] [OFFSET n]`
    ShowSeries(Clause),
    /// `SELECT …`
    Select(Box<Select>),
}

/// Retention of a database. exacat keeps one policy for each; the other settings are read and have no
/// meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Name.
    pub name: Option<String>,
    /// Nanoseconds for which values are kept; 0 for ever.
    pub duration: Option<i64>,
    /// Copies.
    pub replication: Option<u32>,
    /// Nanoseconds of one shard; 0 lets the server choose.
    pub shard_duration: Option<i64>,
    /// True if the statement makes it the default.
    pub is_default: bool,
}

/// The parts that statements beginning with `SHOW` share. Those that a statement does not have are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clause {
    /// Database; none for that of the request.
    pub database: Option<String>,
    /// Measurements; empty for all.
    pub from: Vec<Source>,
    /// Elements and times. InfluxDB does not look at the times here.
    pub filter: Filter,
    /// Maximum number of rows, and those to leave out.
    pub limits: Limits,
}

/// `LIMIT` and `OFFSET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Maximum; none without a limit, which `LIMIT 0` is too.
    pub limit: Option<u64>,
    /// Number to leave out first.
    pub offset: u64,
}

/// A measurement, or those that a pattern matches.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Database; none for that of the request.
    pub database: Option<String>,
    /// Retention policy; none for the default.
    pub policy: Option<String>,
    /// Name.
    pub name: SourceName,
}

/// Name of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceName {
    /// The measurement of this name.
    Is(String),
    /// The measurements whose names match.
    Matches(Pattern),
}

/// Keys of tags, in `SHOW TAG VALUES`.
#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    /// `= key` or `IN (key, …)`
    In(Vec<String>),
    /// `!= key`
    IsNot(String),
    /// `=~ /re/`
    Matches(Pattern),
    /// `!~ /re/`
    DoesNotMatch(Pattern),
}

/// A compiled regular expression, found anywhere in a text. Equal to one of the same text.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: regex::Regex,
}

impl Pattern {
    /// Compiles it. The syntax is that of the crate `regex`, which is nearly that of InfluxDB.
    pub(super) fn new(text: String) -> Result<Self, String> {
        let limit = INFLUX_PATTERN_MEMORY_MAX + INFLUX_PATTERN_MEMORY_PER_BYTE * text.len();
        match RegexBuilder::new(&text).size_limit(limit).build() {
            Ok(regex) => Ok(Pattern { text, regex }),
            Err(regex::Error::CompiledTooBig(limit)) => {
                Err(format!("error parsing regexp: compiled it takes more than {limit} bytes"))
            }
            Err(error) => {
                // Without the drawing before the reason.
                let error = error.to_string();
                let reason = error.rsplit("error: ").next().unwrap_or_default();
                Err(format!("error parsing regexp: {}", reason.lines().collect::<Vec<_>>().join(" ")))
            }
        }
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Says whether it is found in a text.
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// `WHERE`: elements by their tags, and a range of time. Both must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Condition on tags; none for all elements.
    pub tags: Option<Condition>,
    /// Bounds of the time, all of which must hold.
    pub times: Vec<Bound>,
}

impl Filter {
    /// Returns the first and the last instant of the range, both included, in nanoseconds since 1970. The
    /// range is empty if the first is later. `now` is the caller's clock.
    pub fn range(&self, now: i64) -> (i64, i64) {
        let (mut first, mut last) = (i64::MIN, i64::MAX);
        for bound in &self.times {
            match *bound {
                Bound::From(instant) => first = first.max(instant.at(now)),
                Bound::To(instant) => last = last.min(instant.at(now)),
            }
        }
        (first, last)
    }
}

/// Condition on the tags of an element. A tag that an element does not have is the empty text.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// All hold.
    All(Vec<Condition>),
    /// One holds at least.
    Any(Vec<Condition>),
    /// A tag passes a test.
    Tag {
        /// Key. If it is the name of a field, the caller refuses the query: only it knows the fields.
        key: String,
        /// Test.
        test: TagTest,
    },
}

impl Condition {
    /// Says whether it holds for an element. `value` returns the value of a tag, empty if there is none.
    pub fn holds<'a>(&self, value: &impl Fn(&str) -> &'a str) -> bool {
        match self {
            Condition::All(parts) => parts.iter().all(|part| part.holds(value)),
            Condition::Any(parts) => parts.iter().any(|part| part.holds(value)),
            Condition::Tag { key, test } => test.passes(value(key)),
        }
    }
}

/// Test of a tag's value.
#[derive(Clone, Debug, PartialEq)]
pub enum TagTest {
    /// `= 'text'`
    Is(String),
    /// `!= 'text'`
    IsNot(String),
    /// `=~ /re/`
    Matches(Pattern),
    /// `!~ /re/`
    DoesNotMatch(Pattern),
}

impl TagTest {
    /// Says whether a value passes.
    pub fn passes(&self, value: &str) -> bool {
        match self {
            TagTest::Is(text) => value == text,
            TagTest::IsNot(text) => value != text,
            TagTest::Matches(pattern) => pattern.matches(value),
            TagTest::DoesNotMatch(pattern) => !pattern.matches(value),
        }
    }
}

/// Bound of a range of time. The bound itself is in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// First instant.
    From(Instant),
    /// Last instant.
    To(Instant),
}

/// An instant of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instant {
    /// Nanoseconds since 1970.
    At(i64),
    /// Nanoseconds after now; negative before it.
    FromNow(i64),
}

impl Instant {
    /// Returns nanoseconds since 1970, at most the ends of time.
    pub fn at(self, now: i64) -> i64 {
        match self {
            Instant::At(time) => time,
            Instant::FromNow(after) => now.saturating_add(after),
        }
    }
}

/// `SELECT`. Either all columns are aggregates or none is.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// Columns behind the time; at least one.
    pub columns: Vec<Column>,
    /// Measurements; at least one.
    pub from: Vec<Source>,
    /// Elements and times.
    pub filter: Filter,
    /// Interval of `GROUP BY time(…)`; only with aggregates.
    pub interval: Option<Interval>,
    /// Tags of `GROUP BY`.
    pub group: Vec<Group>,
    /// Content of intervals without values.
    pub fill: Fill,
    /// True for the latest time first.
    pub is_descending: bool,
    /// Limits of the rows of each series.
    pub limits: Limits,
    /// Limits of the series: `SLIMIT` and `SOFFSET`.
    pub series_limits: Limits,
}

impl Select {
    /// Says whether the columns are aggregates.
    pub fn is_aggregate(&self) -> bool {
        self.columns.iter().any(|column| matches!(column.kind, ColumnKind::Aggregate { .. }))
    }
}

/// Column of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Content.
    pub kind: ColumnKind,
    /// Name behind `AS`.
    pub alias: Option<String>,
}

/// Content of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnKind {
    /// A field, or a tag if there is no field of the name.
    Named(String),
    /// `name::field`
    Field(String),
    /// `name::tag`
    Tag(String),
    /// `*`: each field and each tag.
    All,
    /// `*::field`
    AllFields,
    /// `*::tag`
    AllTags,
    /// An aggregate over the values of an interval, or of the whole range.
    Aggregate {
        /// Function.
        function: Function,
        /// Fields that it takes.
        of: Argument,
    },
}

impl ColumnKind {
    /// Returns the name that the column has without an alias. That of a wildcard is empty: its columns have
    /// the names of the fields and tags, with those of an aggregate behind `FUNCTION_`.
    pub fn name(&self) -> &str {
        match self {
            ColumnKind::Named(name) | ColumnKind::Field(name) | ColumnKind::Tag(name) => name,
            ColumnKind::Aggregate { function, of: Argument::Field(_) } => function.name(),
            ColumnKind::Aggregate { of: Argument::AllFields, .. }
            | ColumnKind::All
            | ColumnKind::AllFields
            | ColumnKind::AllTags => "",
        }
    }
}

/// Argument of an aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// One field.
    Field(String),
    /// `*`: each field of a fitting type, in a column of its own.
    AllFields,
}

/// Aggregates. The list is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Number of values.
    Count,
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Value of the earliest time.
    First,
    /// Value of the latest time.
    Last,
    /// Difference between the largest and the smallest value.
    Spread,
    /// Area below the values, which lines connect.
    Integral {
        /// Nanoseconds that count as one.
        unit: i64,
    },
}

impl Function {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Function::Count => "count",
            Function::Sum => "sum",
            Function::Mean => "mean",
            Function::Min => "min",
            Function::Max => "max",
            Function::First => "first",
            Function::Last => "last",
            Function::Spread => "spread",
            Function::Integral { .. } => "integral",
        }
    }
}

/// `time(every, offset)` in `GROUP BY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Length in nanoseconds, above 0. Intervals begin at multiples of it since 1970.
    pub every: i64,
    /// Nanoseconds by which they begin later, from 0 and below `every`.
    pub offset: i64,
}

/// Tags of `GROUP BY`.
#[derive(Clone, Debug, PartialEq)]
pub enum Group {
    /// The tag of this key.
    Tag(String),
    /// `*`: each tag.
    AllTags,
    /// The tags whose keys match.
    Matches(Pattern),
}

/// Content of intervals without values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fill {
    /// A row of nulls.
    #[default]
    Null,
    /// No row.
    None,
    /// The value of the interval before.
    Previous,
    /// On the line between the intervals with values.
    Linear,
    /// A number.
    Number(f64),
}

/// Returns the names of the columns of an answer, without that of the time: aliases first, then names,
/// which get `_1`, `_2` … if they are taken. `columns` are names with aliases, wildcards resolved.
pub fn column_names(columns: &[(&str, Option<&str>)]) -> Vec<String> {
    // The number behind the next name of the same text.
    let mut taken: HashMap<String, usize> =
        columns.iter().filter_map(|(_, alias)| alias.map(|alias| (alias.to_owned(), 1))).collect();
    let mut name_of = |&(name, alias): &(&str, Option<&str>)| {
        if let Some(alias) = alias {
            return alias.to_owned();
        }
        let mut found = name.to_owned();
        if let Some(&first) = taken.get(name) {
            let mut count = first;
            while taken.contains_key(&found) {
                found = format!("{name}_{count}");
                count += 1;
            }
            taken.insert(name.to_owned(), count);
        }
        taken.insert(found.clone(), 1);
        found
    };
    columns.iter().map(&mut name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No two columns have one name, and an alias keeps its own.
    #[test]
    fn names_of_columns_are_unique() {
        let columns = [("mean", None), ("mean", None), ("max", Some("mean_1")), ("mean", None), ("v", None)];
        assert_eq!(column_names(&columns), ["mean", "mean_2", "mean_1", "mean_3", "v"]);
    }

    /// A condition asks for tags, and an absent tag is empty.
    #[test]
    fn conditions_hold_for_tags() {
        let tag = |key: &str, test| Condition::Tag { key: key.into(), test };
        let value = |key: &str| if key == "a" { "x1" } else { "" };
        let pattern = Pattern::new("^x".into()).unwrap();
        let is = tag("a", TagTest::Is("x1".into()));
        let matches = tag("a", TagTest::Matches(pattern.clone()));
        let absent = tag("b", TagTest::IsNot("y".into()));
        let refuses = tag("a", TagTest::DoesNotMatch(pattern));
        assert!(Condition::All(vec![is.clone(), matches, absent]).holds(&value));
        assert!(!refuses.holds(&value));
        assert!(Condition::Any(vec![refuses.clone(), is.clone()]).holds(&value));
        assert!(!Condition::All(vec![refuses, is]).holds(&value));
    }

    /// A list of names as long as a query is compiled, and a short expression of much memory is refused.
    #[test]
    fn patterns_are_bounded() {
        let names: Vec<String> =
            (0..1500).map(|n| format!("System1:dcs/det2/hv/ch{n:06}.actual.vMon")).collect();
        let list = Pattern::new(format!("^({})$", names.join("|"))).unwrap();
        assert!(list.matches(&names[1499]) && !list.matches("System1"));
        assert!(Pattern::new(r"\w{5}".into()).is_ok());
        assert!(Pattern::new(r"\w{50}".into()).unwrap_err().contains("takes more than"));
        assert!(Pattern::new("(".into()).unwrap_err().starts_with("error parsing regexp: "));
    }

    /// The bounds of a range hold together.
    #[test]
    fn range_is_where_all_bounds_hold() {
        let times = vec![
            Bound::From(Instant::FromNow(-100)),
            Bound::From(Instant::At(950)),
            Bound::To(Instant::FromNow(0)),
        ];
        assert_eq!(Filter { tags: None, times }.range(1000), (950, 1000));
        assert_eq!(Filter::default().range(0), (i64::MIN, i64::MAX));
        assert_eq!(Instant::FromNow(i64::MAX).at(1), i64::MAX);
    }
}
