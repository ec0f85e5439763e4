//! `find --during`: the times in which an element had a value, and the runs of those times.

use exacat_model::element::{ElementRows, ElementsOf, QUALITY_FIELDS};
use exacat_model::{
    Answer, Cursor, Entry, Error, FieldRef, FieldValue, Filter, GroupName, Operation, TagExpression, TagKey,
    TagValue, TimeMs,
};

use crate::args::DuringBy;
use crate::context::{Context, PAGE_ITEMS};
use crate::failure::Failure;

/// Intervals of one search.
const INTERVALS_MAX: usize = 1_000_000;
/// Element whose value is the number of the present run, in each group.
const RUN_ELEMENT: &str = "run";
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// A condition: `GROUP:ELEMENT=VALUE`.
#[derive(Debug, PartialEq, Eq)]
struct Condition {
    group: GroupName,
    element: String,
    comparison: Comparison,
    value: String,
}

impl Condition {
    fn parse(text: &str) -> Result<Self, Error> {
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
        Ok(Condition {
            group: GroupName::parse(group)?,
            element: element.to_owned(),
            comparison,
            value: value.to_owned(),
        })
    }

    /// Says whether a value fulfils it. A text is equal or unequal only.
    fn holds(&self, value: FieldRef<'_>) -> Result<bool, Error> {
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
        let order = match self.comparison {
            Comparison::Equal => return Ok(is_same),
            Comparison::NotEqual => return Ok(!is_same),
            order => order,
        };
        let (Some(number), Ok(bound)) = (number, self.value.parse::<f64>()) else {
            return Err(Error::invalid(format!("{}: only numbers are less or greater", self.element)));
        };
        Ok(match order {
            Comparison::Less => number < bound,
            Comparison::AtMost => number <= bound,
            Comparison::Greater => number > bound,
            _ => number >= bound,
        })
    }
}

/// Times in which a condition held.
pub(crate) struct During {
    /// Begin and end of each, in milliseconds, ascending. The end is outside.
    intervals: Vec<(u64, u64)>,
    by: DuringBy,
}

impl During {
    /// Says whether an entry is of one of the times.
    pub(crate) fn has(&self, entry: &Entry) -> bool {
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

/// Reads the rows of one element, in the order of time.
async fn rows_of(context: &Context, group: &GroupName, element: &str) -> Result<Vec<ElementRows>, Failure> {
    let of = Box::new(ElementsOf { group: group.clone(), pattern: element.to_owned() });
    let (times, fields, cursor) = ((i64::MIN, i64::MAX), Vec::new(), Cursor::default());
    let mut pages = context.pages(Operation::ElementRows { of, times, fields, cursor, limit: PAGE_ITEMS });
    let about = |error| Failure::about(format!("{group}:{element}"), error);
    let mut all: Vec<ElementRows> = Vec::new();
    let mut count = 0;
    while let Some(page) = pages.next().await.map_err(about)? {
        let Answer::ElementRows { items, .. } = page else { return Err(Failure::unexpected(&page)) };
        count += items.iter().map(|rows| rows.times.len()).sum::<usize>();
        if count > INTERVALS_MAX {
            return Err(about(Error::limit("the number of rows of the element", count, INTERVALS_MAX)));
        }
        all.extend(items);
    }
    if all.windows(2).any(|pair| pair[0].key != pair[1].key) {
        return Err(about(Error::invalid("several elements: name one, or give its key")));
    }
    Ok(all)
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

/// Returns the times in which a condition held: a value holds until the next one.
fn times(condition: &Condition, rows: &[ElementRows]) -> Result<Vec<(i64, i64)>, Error> {
    let mut times: Vec<(i64, i64)> = Vec::new();
    let mut is_open = false;
    for (time, value) in values(rows) {
        let holds = condition.holds(value)?;
        if is_open && let Some(last) = times.last_mut() {
            last.1 = time;
        }
        match times.last_mut() {
            // It goes on.
            Some(last) if is_open && holds => last.1 = i64::MAX,
            _ if holds => times.push((time, i64::MAX)),
            _ => {}
        }
        is_open = holds;
    }
    Ok(times)
}

/// Returns the time in milliseconds at which a millisecond begins that is not before.
fn milliseconds(time: i64) -> u64 {
    u64::try_from(time.div_euclid(MILLISECOND) + i64::from(time.rem_euclid(MILLISECOND) > 0)).unwrap_or(0)
}

/// Reads the history, and narrows the filter to the times or runs of the condition.
pub(crate) async fn during(
    context: &Context,
    text: &str,
    by: DuringBy,
    filter: &mut Filter,
) -> Result<During, Failure> {
    let condition = Condition::parse(text)?;
    let times = times(&condition, &rows_of(context, &condition.group, &condition.element).await?)
        .map_err(|error| Failure::about(text, error))?;
    if by == DuringBy::Run {
        let runs = runs(&times, &rows_of(context, &condition.group, RUN_ELEMENT).await?)?;
        let values = runs.iter().map(|run| TagValue::parse(&run.to_string()));
        let any =
            TagExpression::In { key: TagKey::parse(RUN_TAG)?, values: values.collect::<Result<_, _>>()? };
        filter.tags = Some(match filter.tags.take() {
            None => any,
            Some(others) => TagExpression::And(Box::new(others), Box::new(any)),
        });
    }
    let intervals: Vec<(u64, u64)> = times
        .into_iter()
        .map(|(begin, end)| (milliseconds(begin), if end == i64::MAX { u64::MAX } else { milliseconds(end) }))
        .collect();
    let (first, last) = (intervals.first().map_or(0, |one| one.0), intervals.last().map_or(0, |one| one.1));
    let (from, before) = match by {
        DuringBy::Created => (&mut filter.created_from, &mut filter.created_before),
        DuringBy::Modified => (&mut filter.modified_from, &mut filter.modified_before),
        DuringBy::Run => return Ok(During { intervals, by }),
    };
    *from = Some(from.unwrap_or(TimeMs(0)).max(TimeMs(first)));
    *before = Some(before.unwrap_or(TimeMs(u64::MAX)).min(TimeMs(last)));
    Ok(During { intervals, by })
}

/// Returns the numbers of the runs that were going on in some times, each once.
fn runs(times: &[(i64, i64)], rows: &[ElementRows]) -> Result<Vec<u64>, Error> {
    let runs: Vec<(i64, FieldValue)> = values(rows).map(|(time, value)| (time, value.to_value())).collect();
    let mut found = Vec::new();
    for (at, (begin, run)) in runs.iter().enumerate() {
        let end = runs.get(at + 1).map_or(i64::MAX, |next| next.0);
        let overlaps = times.iter().any(|(from, to)| *begin < *to && *from < end);
        let number = match run {
            FieldValue::Integer(run) => u64::try_from(*run).ok(),
            FieldValue::Unsigned(run) => Some(*run),
            FieldValue::Float(run) if *run >= 0.0 && run.fract() == 0.0 => Some(*run as u64),
            _ => None,
        };
        found.extend(number.filter(|_| overlaps));
    }
    found.sort_unstable();
    found.dedup();
    if found.len() > RUNS_MAX {
        return Err(Error::limit("the number of runs of a search", found.len(), RUNS_MAX));
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use exacat_model::element::ElementColumn;

    use super::*;

    fn rows(values: &[(i64, &str)]) -> Vec<ElementRows> {
        let column = ElementColumn {
            field: "v".to_owned(),
            values: values.iter().map(|(_, text)| Some(FieldValue::Text((*text).into()))).collect(),
        };
        let times = values.iter().map(|(time, _)| *time).collect();
        vec![ElementRows { key: "m".to_owned(), name: "m".to_owned(), times, columns: vec![column] }]
    }

    /// A condition is split at its last comparison.
    #[test]
    fn condition_is_split() {
        let parse = |text| Condition::parse(text).map(|one| (one.element, one.comparison, one.value));
        let of = |element: &str, comparison, value: &str| (element.to_owned(), comparison, value.to_owned());
        assert_eq!(parse("dcs:beam=STABLE").unwrap(), of("beam", Comparison::Equal, "STABLE"));
        assert_eq!(parse("dcs:ev,e=a>=5").unwrap(), of("ev,e=a", Comparison::AtLeast, "5"));
        assert_eq!(parse("dcs:x!=1").unwrap(), of("x", Comparison::NotEqual, "1"));
        for bad in ["beam=1", "dcs:beam", "dcs:=1", "dcs:beam=", "d/s:beam=1"] {
            assert!(Condition::parse(bad).is_err(), "{bad}");
        }
    }

    /// The times are those between a value that fulfils the condition and the next that does not.
    #[test]
    fn times_are_those_of_the_value() {
        let condition = Condition::parse("dcs:beam=ON").unwrap();
        let of = |values: &[(i64, &str)]| times(&condition, &rows(values)).unwrap();
        assert_eq!(of(&[(1, "OFF"), (2, "ON"), (3, "ON"), (5, "OFF"), (7, "ON")]), [(2, 5), (7, i64::MAX)]);
        assert_eq!(of(&[(1, "OFF")]), []);
        let order = Condition::parse("dcs:beam<3").unwrap();
        assert!(times(&order, &rows(&[(1, "ON")])).is_err(), "texts have no order");
    }

    /// Numbers are compared as numbers, and whole ones exactly.
    #[test]
    fn numbers_are_compared() {
        let holds =
            |text: &str, value| Condition::parse(&format!("g:e{text}")).unwrap().holds(value).unwrap();
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
        assert_eq!(runs(&[(12, 15)], &of).unwrap(), [6]);
        assert_eq!(runs(&[(5, 10), (25, i64::MAX)], &of).unwrap(), [5, 7]);
    }
}
