//! Times in which an element of the history had a value, and the runs of those times: a condition of a
//! search. The caller reads the rows of the element, page by page.

use std::cmp::Ordering;

use exacat_model::element::{ElementRows, QUALITY_FIELDS};
use exacat_model::{
    Comparison, Entry, Error, FieldRef, Filter, GroupName, Result, TagExpression, TagKey, TagValue, TimeMs,
};

/// Element whose value is the number of the present run, in each group.
pub const RUN_ELEMENT: &str = "run";
/// Tag of entries with the number of their run.
const RUN_TAG: &str = "run";
/// Runs of one search.
const RUNS_MAX: usize = 10_000;
/// Nanoseconds of a millisecond.
const MILLISECOND: i64 = 1_000_000;
/// Comparisons, the longer ones first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("=", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

/// Time of an entry that is compared with the times of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuringBy {
    /// Time at which it was added to the catalogue.
    Created,
    /// Time of its last modification.
    Modified,
    /// Number of the run in its tag `run`.
    Run,
}

/// A condition: `GROUP:ELEMENT=VALUE`, or another comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementCondition {
    /// Group of the element.
    pub group: GroupName,
    /// Name or key of the element.
    pub element: String,
    comparison: Comparison,
    value: String,
}

impl ElementCondition {
    /// Reads a condition.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || Error::invalid(format!("not GROUP:ELEMENT=VALUE (or != < <= > >=): {text:.200?}"));
        let (group, rest) = text.split_once(':').ok_or_else(bad)?;
        // A key has `=` too, so the last comparison counts; of two at one place the longer one.
        let places = COMPARISONS
            .iter()
            .filter_map(|(sign, comparison)| rest.rfind(sign).map(|at| (at + sign.len(), at, *comparison)));
        let (value, at, comparison) =
            places.max_by_key(|(end, at, _)| (*end, std::cmp::Reverse(*at))).ok_or_else(bad)?;
        let (element, value) = (rest[..at].trim(), rest[value..].trim());
        if element.is_empty() || value.is_empty() {
            return Err(bad());
        }
        Ok(ElementCondition {
            group: GroupName::parse(group.trim())?,
            element: element.to_owned(),
            comparison,
            value: value.to_owned(),
        })
    }

    /// Says whether a value fulfils it. A text is equal or unequal only.
    fn holds(&self, value: FieldRef<'_>) -> Result<bool> {
        let number = match value {
            FieldRef::Float(value) => Some(value),
            FieldRef::Integer(value) => Some(value as f64),
            FieldRef::Unsigned(value) => Some(value as f64),
            FieldRef::Boolean(_) | FieldRef::Text(_) => None,
        };
        let is_same = match value {
            FieldRef::Boolean(value) => value.to_string() == self.value,
            FieldRef::Text(value) => value == self.value,
            FieldRef::Integer(value) if self.value.parse() == Ok(value) => true,
            FieldRef::Unsigned(value) if self.value.parse() == Ok(value) => true,
            _ => number.is_some_and(|number| self.value.parse() == Ok(number)),
        };
        if matches!(self.comparison, Comparison::Equal | Comparison::NotEqual) {
            return Ok(self.comparison.holds(is_same.then_some(Ordering::Equal)));
        }
        let (Some(number), Ok(bound)) = (number, self.value.parse::<f64>()) else {
            return Err(Error::invalid(format!("{}: only numbers are less or greater", self.element)));
        };
        Ok(self.comparison.holds(number.partial_cmp(&bound)))
    }
}

/// Check that rows are of one element, and not too many.
#[derive(Debug)]
struct OneElement {
    key: Option<String>,
    rows: usize,
    rows_max: usize,
}

impl OneElement {
    fn new(rows_max: usize) -> Self {
        OneElement { key: None, rows: 0, rows_max }
    }

    fn admit(&mut self, rows: &[ElementRows]) -> Result<()> {
        for one in rows {
            self.rows += one.times.len();
            if self.rows > self.rows_max {
                return Err(Error::limit("the number of rows of the element", self.rows, self.rows_max));
            }
            if *self.key.get_or_insert_with(|| one.key.clone()) != one.key {
                return Err(Error::invalid("several elements: name one, or give its key"));
            }
        }
        Ok(())
    }
}

/// Returns the time and the value of each row that has one.
fn values(rows: &[ElementRows]) -> impl Iterator<Item = (i64, FieldRef<'_>)> {
    rows.iter().flat_map(|rows| {
        rows.times.iter().enumerate().filter_map(|(at, time)| {
            let value = rows.row(at).find(|(field, _)| !QUALITY_FIELDS.contains(field));
            value.map(|(_, value)| (*time, value))
        })
    })
}

/// Times in which a condition holds, found row by row: a value holds until the next one.
#[derive(Debug)]
pub struct ConditionTimes {
    condition: ElementCondition,
    of: OneElement,
    /// Begin and end of each, in nanoseconds. The end is outside.
    times: Vec<(i64, i64)>,
    is_open: bool,
}

impl ConditionTimes {
    /// Begins to look at the rows of the condition's element, at most `rows_max`.
    pub fn new(condition: ElementCondition, rows_max: usize) -> Self {
        ConditionTimes { condition, of: OneElement::new(rows_max), times: Vec::new(), is_open: false }
    }

    /// Adds rows in the order of time. Refuses rows of a second element, and more rows than the limit.
    pub fn add(&mut self, rows: &[ElementRows]) -> Result<()> {
        self.of.admit(rows)?;
        for (time, value) in values(rows) {
            let holds = self.condition.holds(value)?;
            if self.is_open
                && let Some(last) = self.times.last_mut()
            {
                last.1 = time;
            }
            match self.times.last_mut() {
                // It goes on.
                Some(last) if self.is_open && holds => last.1 = i64::MAX,
                _ if holds => self.times.push((time, i64::MAX)),
                _ => {}
            }
            self.is_open = holds;
        }
        Ok(())
    }
}

/// Runs of a group, found row by row.
#[derive(Debug)]
pub struct RunTimes {
    of: OneElement,
    /// Begin of each, in nanoseconds, and its number, if the value is one.
    runs: Vec<(i64, Option<u64>)>,
}

impl RunTimes {
    /// Begins to look at the rows of [`RUN_ELEMENT`], at most `rows_max`.
    pub fn new(rows_max: usize) -> Self {
        RunTimes { of: OneElement::new(rows_max), runs: Vec::new() }
    }

    /// Adds rows in the order of time. Refuses rows of a second element, and more rows than the limit.
    pub fn add(&mut self, rows: &[ElementRows]) -> Result<()> {
        self.of.admit(rows)?;
        self.runs.extend(values(rows).map(|(time, value)| {
            let number = match value {
                FieldRef::Integer(run) => u64::try_from(run).ok(),
                FieldRef::Unsigned(run) => Some(run),
                FieldRef::Float(run) if run >= 0.0 && run.fract() == 0.0 => Some(run as u64),
                _ => None,
            };
            (time, number)
        }));
        Ok(())
    }

    /// Returns the numbers of the runs that were going on in some times, each once.
    fn during(&self, times: &[(i64, i64)]) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for (at, (begin, number)) in self.runs.iter().enumerate() {
            let end = self.runs.get(at + 1).map_or(i64::MAX, |next| next.0);
            // The times ascend, so the first one that ends after the begin decides.
            let next = times.partition_point(|(_, to)| to <= begin);
            let overlaps = times.get(next).is_some_and(|(from, _)| *from < end);
            found.extend(number.filter(|_| overlaps));
        }
        found.sort_unstable();
        found.dedup();
        if found.len() > RUNS_MAX {
            return Err(Error::limit("the number of runs of a search", found.len(), RUNS_MAX));
        }
        Ok(found)
    }
}

/// Returns the time in milliseconds at which a millisecond begins that is not before.
fn milliseconds(time: i64) -> u64 {
    u64::try_from(time.div_euclid(MILLISECOND) + i64::from(time.rem_euclid(MILLISECOND) > 0)).unwrap_or(0)
}

/// Times of entries in which a condition held.
#[derive(Debug)]
pub struct During {
    /// Begin and end of each, in milliseconds, ascending. The end is outside.
    intervals: Vec<(u64, u64)>,
    by: DuringBy,
}

impl During {
    /// Narrows a filter to the times of a condition, or to the runs of those times. The filter lets more
    /// entries through than the times: see [`Self::has`].
    pub fn narrow(
        times: &ConditionTimes,
        by: DuringBy,
        runs: &RunTimes,
        filter: &mut Filter,
    ) -> Result<Self> {
        let times = &times.times;
        if by == DuringBy::Run {
            let runs = runs.during(times)?;
            let values = runs.iter().map(|run| TagValue::parse(&run.to_string()));
            let any =
                TagExpression::In { key: TagKey::parse(RUN_TAG)?, values: values.collect::<Result<_>>()? };
            filter.tags = Some(match filter.tags.take() {
                None => any,
                Some(others) => TagExpression::And(Box::new(others), Box::new(any)),
            });
        }
        let end = |end: i64| if end == i64::MAX { u64::MAX } else { milliseconds(end) };
        let intervals: Vec<(u64, u64)> =
            times.iter().map(|(from, to)| (milliseconds(*from), end(*to))).collect();
        let (first, last) =
            (intervals.first().map_or(0, |one| one.0), intervals.last().map_or(0, |one| one.1));
        let (from, before) = match by {
            DuringBy::Created => (&mut filter.created_from, &mut filter.created_before),
            DuringBy::Modified => (&mut filter.modified_from, &mut filter.modified_before),
            DuringBy::Run => return Ok(During { intervals, by }),
        };
        *from = Some(from.unwrap_or(TimeMs(0)).max(TimeMs(first)));
        *before = Some(before.unwrap_or(TimeMs(u64::MAX)).min(TimeMs(last)));
        Ok(During { intervals, by })
    }

    /// Says whether an entry that the filter let through is of one of the times.
    pub fn has(&self, entry: &Entry) -> bool {
        let TimeMs(time) = match self.by {
            DuringBy::Created => entry.created,
            DuringBy::Modified => entry.modified,
            // The filter has the runs.
            DuringBy::Run => return true,
        };
        let behind = self.intervals.partition_point(|(begin, _)| *begin <= time);
        behind.checked_sub(1).is_some_and(|at| time < self.intervals[at].1)
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::element::ElementColumn;
    use exacat_model::{ErrorKind, FieldValue};

    use super::*;

    fn rows(values: &[(i64, &str)]) -> Vec<ElementRows> {
        let column = ElementColumn {
            field: "v".to_owned(),
            values: values.iter().map(|(_, text)| Some(FieldValue::Text((*text).into()))).collect(),
        };
        let times = values.iter().map(|(time, _)| *time).collect();
        vec![ElementRows { key: "m".to_owned(), name: "m".to_owned(), times, columns: vec![column] }]
    }

    fn times(text: &str, pages: &[Vec<ElementRows>]) -> Result<Vec<(i64, i64)>> {
        let mut times = ConditionTimes::new(ElementCondition::parse(text).unwrap(), 100);
        pages.iter().try_for_each(|page| times.add(page))?;
        Ok(times.times)
    }

    /// A condition is split at its last comparison.
    #[test]
    fn condition_is_split() {
        let parse = |text| ElementCondition::parse(text).map(|one| (one.element, one.comparison, one.value));
        let of = |element: &str, comparison, value: &str| (element.to_owned(), comparison, value.to_owned());
        assert_eq!(parse("dcs:beam=STABLE").unwrap(), of("beam", Comparison::Equal, "STABLE"));
        assert_eq!(parse("dcs:ev,e=a>=5").unwrap(), of("ev,e=a", Comparison::AtLeast, "5"));
        assert_eq!(parse("dcs:x!=1").unwrap(), of("x", Comparison::NotEqual, "1"));
        for bad in ["beam=1", "dcs:beam", "dcs:=1", "dcs:beam=", "d/s:beam=1"] {
            assert!(ElementCondition::parse(bad).is_err(), "{bad}");
        }
    }

    /// The times are those between a value that fulfils the condition and the next that does not, in one
    /// page or in several.
    #[test]
    fn times_are_those_of_the_value() {
        let values = [(1, "OFF"), (2, "ON"), (3, "ON"), (5, "OFF"), (7, "ON")];
        let wanted = [(2, 5), (7, i64::MAX)];
        assert_eq!(times("dcs:beam=ON", &[rows(&values)]).unwrap(), wanted);
        for cut in 1..values.len() {
            let pages = [rows(&values[..cut]), rows(&values[cut..])];
            assert_eq!(times("dcs:beam=ON", &pages).unwrap(), wanted, "{cut}");
        }
        assert_eq!(times("dcs:beam=ON", &[rows(&[(1, "OFF")])]).unwrap(), []);
        assert!(times("dcs:beam<3", &[rows(&[(1, "ON")])]).is_err(), "texts have no order");
    }

    /// Rows up to the limit are taken, one more is refused, and so is a second element.
    #[test]
    fn too_many_rows_and_a_second_element_are_refused() {
        let condition = || ElementCondition::parse("g:m=a").unwrap();
        let mut times = ConditionTimes::new(condition(), 2);
        times.add(&rows(&[(1, "a"), (2, "b")])).unwrap();
        assert_eq!(times.add(&rows(&[(3, "a")])).unwrap_err().kind, ErrorKind::Limit);
        let mut times = ConditionTimes::new(condition(), 9);
        times.add(&rows(&[(1, "a")])).unwrap();
        let mut other = rows(&[(2, "a")]);
        other[0].key = "n".to_owned();
        assert_eq!(times.add(&other).unwrap_err().kind, ErrorKind::Invalid);
    }

    /// Numbers are compared as numbers, and whole ones exactly.
    #[test]
    fn numbers_are_compared() {
        let holds =
            |text: &str, value| ElementCondition::parse(&format!("g:e{text}")).unwrap().holds(value).unwrap();
        assert!(holds("=3", FieldRef::Float(3.0)) && holds("<=3.5", FieldRef::Integer(3)));
        assert!(!holds("=9007199254740993", FieldRef::Float(9_007_199_254_740_994.0)));
        assert!(holds("=9007199254740993", FieldRef::Integer(9_007_199_254_740_993)));
        assert!(holds("=true", FieldRef::Boolean(true)) && !holds(">3", FieldRef::Float(f64::NAN)));
    }

    /// Runs are those that overlap one of the times.
    #[test]
    fn runs_overlap_the_times() {
        let mut of = rows(&[(0, "a"), (10, "b"), (20, "c")]);
        of[0].columns[0].values = [5, 6, 7].map(|run| Some(FieldValue::Integer(run))).into();
        let mut runs = RunTimes::new(3);
        runs.add(&of).unwrap();
        assert_eq!(runs.during(&[(12, 15)]).unwrap(), [6]);
        assert_eq!(runs.during(&[(5, 10), (25, i64::MAX)]).unwrap(), [5, 7]);
        assert_eq!(runs.during(&[]).unwrap(), []);
    }
}
