//! Times in which an element of the history had a value, and the runs of those times: a condition of a
//! search. The caller asks the history what [`DuringReading`] wants to know.

use std::cmp::Ordering;

use exacat_model::element::{ElementsOf, QUALITY_FIELDS};
use exacat_model::{
    Answer, Comparison, Cursor, Entry, Error, ErrorKind, FieldRef, Filter, GroupName, Operation, Result,
    TagExpression, TagKey, TagValue, TimeMs,
};

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

/// Bounds of the reading of a condition's times.
#[derive(Clone, Copy, Debug)]
pub struct DuringBounds {
    /// Rows of an element in one page.
    pub page: u32,
    /// Rows of an element that are read, in all pages.
    pub rows_max: usize,
}

/// Part of the history that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The value that holds when the times of the search begin.
    Before,
    /// The later values in these times.
    Rows,
    /// The runs of the group.
    Runs,
}

/// Times in which a condition holds, read from the history: a value holds until the next one. The caller asks
/// the history what this wants to know, and takes the answer.
#[derive(Debug)]
pub struct DuringReading {
    condition: ElementCondition,
    by: DuringBy,
    bounds: DuringBounds,
    /// First and last time in nanoseconds that entries of the search can have.
    searched: (i64, i64),
    step: Step,
    wanted: Option<Operation>,
    /// Key of the element whose rows are read, and their number.
    key: Option<String>,
    rows: usize,
    /// Begin and end of each, in nanoseconds. The end is outside.
    times: Vec<(i64, i64)>,
    is_open: bool,
    /// Begin of each run, in nanoseconds, and its number, if the value is one.
    runs: Vec<(i64, Option<u64>)>,
}

impl DuringReading {
    /// Begins to read for the entries of a filter. A run may go on for any time before and after the entries
    /// that it has, so a search by runs reads the whole history of its elements.
    pub fn new(condition: ElementCondition, by: DuringBy, filter: &Filter, bounds: DuringBounds) -> Self {
        let (from, before) = match by {
            DuringBy::Created => (filter.created_from, filter.created_before),
            DuringBy::Modified => (filter.modified_from, filter.modified_before),
            DuringBy::Run => (None, None),
        };
        let begin = |TimeMs(time)| i64::try_from(time).unwrap_or(i64::MAX).saturating_mul(MILLISECOND);
        let searched =
            (from.map_or(i64::MIN, begin), before.map_or(i64::MAX, |before| begin(before).saturating_sub(1)));
        let mut reading = DuringReading {
            condition,
            by,
            bounds,
            searched,
            step: Step::Rows,
            wanted: None,
            key: None,
            rows: 0,
            times: Vec::new(),
            is_open: false,
            runs: Vec::new(),
        };
        reading.begin(if searched.0 > i64::MIN { Step::Before } else { Step::Rows });
        reading
    }

    /// Returns the next operation; none at the end.
    pub fn wanted(&self) -> Option<&Operation> {
        self.wanted.as_ref()
    }

    /// Returns the group and the element that are read, for a message.
    pub fn element(&self) -> String {
        format!("{}:{}", self.condition.group, self.pattern())
    }

    fn pattern(&self) -> &str {
        if self.step == Step::Runs { RUN_ELEMENT } else { &self.condition.element }
    }

    fn begin(&mut self, step: Step) {
        self.step = step;
        if step == Step::Runs {
            // They are of another element.
            (self.key, self.rows) = (None, 0);
        }
        let of =
            Box::new(ElementsOf { group: self.condition.group.clone(), pattern: self.pattern().to_owned() });
        let (fields, cursor, limit) = (Vec::new(), Cursor::default(), self.bounds.page);
        let (from, to) = self.searched;
        self.wanted = Some(match step {
            Step::Before => Operation::ElementValues { of, at: Some(from), fields, cursor, limit },
            Step::Rows => {
                let times = (if from > i64::MIN { from.saturating_add(1) } else { from }, to);
                Operation::ElementRows { of, times, fields, cursor, limit }
            }
            Step::Runs => Operation::ElementRows { of, times: (i64::MIN, i64::MAX), fields, cursor, limit },
        });
    }

    /// Takes the answer to the wanted operation. Refuses a second element, and more rows than the bound.
    pub fn take(&mut self, answer: Answer) -> Result<()> {
        let next = match answer {
            Answer::ElementValues { items, next } if self.step == Step::Before => {
                for state in items {
                    self.admit(&state.key, 0)?;
                    // The newest field is the value, and of several in one row the first.
                    let fields =
                        state.values.iter().filter(|one| !QUALITY_FIELDS.contains(&one.field.as_str()));
                    if let Some(newest) = fields.min_by_key(|one| std::cmp::Reverse(one.time)) {
                        self.value(newest.time, newest.value.borrow())?;
                    }
                }
                next
            }
            Answer::ElementRows { items, next } if self.step != Step::Before => {
                for rows in &items {
                    self.admit(&rows.key, rows.times.len())?;
                    for (at, time) in rows.times.iter().enumerate() {
                        if let Some((_, value)) =
                            rows.row(at).find(|(field, _)| !QUALITY_FIELDS.contains(field))
                        {
                            self.value(*time, value)?;
                        }
                    }
                }
                next
            }
            _ => return Err(unfitting()),
        };
        match (next, self.step) {
            (Some(next), _) => {
                let resumed = self.wanted.as_ref().and_then(|wanted| wanted.resumed(next));
                self.wanted = Some(resumed.ok_or_else(unfitting)?);
            }
            (None, Step::Before) => self.begin(Step::Rows),
            (None, Step::Rows) if self.by == DuringBy::Run => self.begin(Step::Runs),
            (None, _) => self.wanted = None,
        }
        Ok(())
    }

    fn admit(&mut self, key: &str, rows: usize) -> Result<()> {
        self.rows += rows;
        if self.rows > self.bounds.rows_max {
            let most = self.bounds.rows_max;
            let text = format!(
                "the element has more than {most} values in the times of the search: bound the time of the \
                 entries, created or modified as for the condition"
            );
            return Err(Error::new(ErrorKind::Limit, text));
        }
        if self.key.get_or_insert_with(|| key.to_owned()) != key {
            return Err(Error::invalid("several elements: name one, or give its key"));
        }
        Ok(())
    }

    /// Adds a value, in the order of time.
    fn value(&mut self, time: i64, value: FieldRef<'_>) -> Result<()> {
        if self.step == Step::Runs {
            let number = match value {
                FieldRef::Integer(run) => u64::try_from(run).ok(),
                FieldRef::Unsigned(run) => Some(run),
                FieldRef::Float(run) if run >= 0.0 && run.fract() == 0.0 => Some(run as u64),
                _ => None,
            };
            self.runs.push((time, number));
            return Ok(());
        }
        let holds = self.condition.holds(value)?;
        match self.times.last_mut() {
            // It goes on.
            Some(last) if self.is_open && holds => last.1 = i64::MAX,
            Some(last) if self.is_open => last.1 = time,
            _ if holds => self.times.push((time, i64::MAX)),
            _ => {}
        }
        self.is_open = holds;
        Ok(())
    }

    /// Returns the numbers of the runs that were going on in the times, each once.
    fn runs(&self) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for (at, (begin, number)) in self.runs.iter().enumerate() {
            let end = self.runs.get(at + 1).map_or(i64::MAX, |next| next.0);
            // The times ascend, so the first one that ends after the begin decides.
            let next = self.times.partition_point(|(_, to)| to <= begin);
            let overlaps = self.times.get(next).is_some_and(|(from, _)| *from < end);
            found.extend(number.filter(|_| overlaps));
        }
        found.sort_unstable();
        found.dedup();
        if found.len() > RUNS_MAX {
            return Err(Error::limit("the number of runs of a search", found.len(), RUNS_MAX));
        }
        Ok(found)
    }

    /// Narrows a filter to the times, or to the runs of those times. The filter lets more entries through
    /// than the times: see [`During::has`].
    pub fn narrow(self, filter: &mut Filter) -> Result<During> {
        let by = self.by;
        if by == DuringBy::Run {
            let runs = self.runs()?;
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
            self.times.iter().map(|(from, to)| (milliseconds(*from), end(*to))).collect();
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
}

fn unfitting() -> Error {
    Error::new(ErrorKind::Internal, "the answer does not fit a question about the history of an element")
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
    use exacat_model::FieldValue;
    use exacat_model::element::{ElementColumn, ElementRows, ElementState, ElementValue};

    use super::*;

    fn page(key: &str, values: &[(i64, FieldValue)], next: Option<Cursor>) -> Answer {
        let values_of = values.iter().map(|(_, value)| Some(value.clone())).collect();
        let column = ElementColumn { field: "v".to_owned(), values: values_of };
        let times = values.iter().map(|(time, _)| *time).collect();
        let rows = ElementRows { key: key.to_owned(), name: key.to_owned(), times, columns: vec![column] };
        Answer::ElementRows { items: vec![rows], next }
    }

    fn text(value: &str) -> FieldValue {
        FieldValue::Text(value.into())
    }

    fn rows(values: &[(i64, &str)], next: Option<Cursor>) -> Answer {
        page("m", &values.iter().map(|(time, value)| (*time, text(value))).collect::<Vec<_>>(), next)
    }

    fn more() -> Option<Cursor> {
        Some(Cursor(b"more".to_vec()))
    }

    fn reading(text: &str, by: DuringBy, filter: &Filter, rows_max: usize) -> DuringReading {
        let condition = ElementCondition::parse(text).unwrap();
        DuringReading::new(condition, by, filter, DuringBounds { page: 7, rows_max })
    }

    fn times(text: &str, pages: Vec<Answer>) -> Result<Vec<(i64, i64)>> {
        let mut reading = reading(text, DuringBy::Created, &Filter::default(), 100);
        pages.into_iter().try_for_each(|page| reading.take(page))?;
        assert!(reading.wanted().is_none());
        Ok(reading.times)
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
        assert_eq!(times("dcs:beam=ON", vec![rows(&values, None)]).unwrap(), wanted);
        for cut in 1..values.len() {
            let pages = vec![rows(&values[..cut], more()), rows(&values[cut..], None)];
            assert_eq!(times("dcs:beam=ON", pages).unwrap(), wanted, "{cut}");
        }
        assert_eq!(times("dcs:beam=ON", vec![rows(&[(1, "OFF")], None)]).unwrap(), []);
        assert!(times("dcs:beam<3", vec![rows(&[(1, "ON")], None)]).is_err(), "texts have no order");
    }

    /// Rows up to the limit are taken, one more is refused, and so is a second element.
    #[test]
    fn too_many_rows_and_a_second_element_are_refused() {
        let begin = |rows_max| reading("g:m=a", DuringBy::Created, &Filter::default(), rows_max);
        let mut reading = begin(2);
        reading.take(rows(&[(1, "a"), (2, "b")], more())).unwrap();
        assert_eq!(reading.take(rows(&[(3, "a")], None)).unwrap_err().kind, ErrorKind::Limit);
        let mut reading = begin(9);
        reading.take(rows(&[(1, "a")], more())).unwrap();
        let other = page("n", &[(2, text("a"))], None);
        assert_eq!(reading.take(other).unwrap_err().kind, ErrorKind::Invalid);
        // An answer to another question is no rows.
        assert_eq!(begin(9).take(Answer::EachDone(Vec::new())).unwrap_err().kind, ErrorKind::Internal);
    }

    /// The history is read in the times that entries of the search can have, to the millisecond, with the
    /// value that holds when these begin. A second element is noticed there too.
    #[test]
    fn search_bounds_the_history_that_is_read() {
        let filter = Filter {
            created_from: Some(TimeMs(5)),
            created_before: Some(TimeMs(7)),
            modified_before: Some(TimeMs(u64::MAX)),
            ..Filter::default()
        };
        let range = |reading: &DuringReading| match reading.wanted() {
            Some(Operation::ElementValues { at: Some(at), .. }) => (*at, *at),
            Some(Operation::ElementRows { times, .. }) => *times,
            other => panic!("{other:?}"),
        };
        let mut created = reading("g:m=a", DuringBy::Created, &filter, 9);
        assert_eq!(range(&created), (5_000_000, 5_000_000));
        let value = |field: &str, time, value: &str| ElementValue {
            field: field.to_owned(),
            time,
            value: text(value),
        };
        let state = |key: &str| ElementState {
            key: key.to_owned(),
            name: key.to_owned(),
            values: vec![value("old", 2, "b"), value("v", 3, "a"), value(QUALITY_FIELDS[0], 4, "bad")],
        };
        created.take(Answer::ElementValues { items: vec![state("m")], next: None }).unwrap();
        assert_eq!(range(&created), (5_000_001, 6_999_999));
        created.take(rows(&[(5_500_000, "b"), (6_500_000, "a")], None)).unwrap();
        assert!(created.wanted().is_none());
        assert_eq!(created.times, [(3, 5_500_000), (6_500_000, i64::MAX)]);
        let mut narrowed = filter.clone();
        created.narrow(&mut narrowed).unwrap();
        assert_eq!(
            (narrowed.created_from, narrowed.created_before),
            (filter.created_from, filter.created_before)
        );

        let mut several = reading("g:m=a", DuringBy::Created, &filter, 9);
        let states = Answer::ElementValues { items: vec![state("m"), state("n")], next: None };
        assert_eq!(several.take(states).unwrap_err().kind, ErrorKind::Invalid);
        let mut late = reading("g:m=a", DuringBy::Created, &filter, 9);
        late.take(Answer::ElementValues { items: vec![state("m")], next: None }).unwrap();
        assert_eq!(
            late.take(page("n", &[(6_000_000, text("a"))], None)).unwrap_err().kind,
            ErrorKind::Invalid
        );

        assert_eq!(range(&reading("g:m=a", DuringBy::Modified, &filter, 9)), (i64::MIN, i64::MAX - 1));
        assert_eq!(range(&reading("g:m=a", DuringBy::Run, &filter, 9)), (i64::MIN, i64::MAX));
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

    /// Runs are those that overlap one of the times; their rows are read after those of the element.
    #[test]
    fn runs_overlap_the_times() {
        for (values, expected) in [
            (vec![(12, "a"), (15, "b")], vec![6]),
            (vec![(5, "a"), (10, "b"), (25, "a")], vec![5, 7]),
            (vec![(5, "b")], vec![]),
        ] {
            let mut reading = reading("g:m=a", DuringBy::Run, &Filter::default(), 3);
            reading.take(rows(&values, None)).unwrap();
            assert_eq!(reading.element(), "g:run");
            let runs = [(0, 5), (10, 6), (20, 7)].map(|(time, run)| (time, FieldValue::Integer(run)));
            reading.take(page("run", &runs, None)).unwrap();
            assert!(reading.wanted().is_none());
            assert_eq!(reading.runs().unwrap(), expected);
            let mut filter = Filter::default();
            reading.narrow(&mut filter).unwrap();
            assert!(matches!(filter.tags, Some(TagExpression::In { .. })), "{filter:?}");
        }
    }
}
