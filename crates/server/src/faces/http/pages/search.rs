//! Search with the conditions of a find.

use askama::Template;
use exacat_catalogue::during::{DuringBounds, DuringBy, DuringReading, ElementCondition};
use exacat_model::answer::Stat;
use exacat_model::{Error, Filter, Lfn, Operation, PastPoint, Result, TimeMs};
use exacat_wire::json::requests::{Parse, Parsed};
use exacat_wire::json::search::FindIn;
use hyper::{Response, StatusCode};

use super::super::answers::Body;
use super::super::finding::find_operation;
use super::browse::{ROWS, entries};
use super::filling::{SEARCH_TIME, fill};
use super::frame::{Frame, Pager, page};
use super::table::Table;
use super::text::{count, with};
use super::visit::{Fields, Visit};

/// Name of the list in its cursors, and of their parameter.
const LIST: (&str, &str) = ("page-of-find", "cursor");
/// Page of the reading of an element for a condition, and rows that it reads; `exacat find` reads more.
const ELEMENT_BOUNDS: DuringBounds = DuringBounds { page: 2000, rows_max: 100_000 };

/// Choices of a field: value and text.
type Choices = &'static [(&'static str, &'static str)];

/// A field of the form.
struct Field {
    name: &'static str,
    label: &'static str,
    kind: &'static str,
    example: &'static str,
    choices: Choices,
    /// Values that were chosen; several only for boxes.
    values: Vec<String>,
}

impl Field {
    fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    fn has(&self, choice: &&str) -> bool {
        self.values.iter().any(|value| value == choice)
    }

    /// True for a field whose choices are boxes to tick.
    fn is_many(&self) -> bool {
        self.name == KIND
    }
}

/// Name of the field with kinds of entries.
const KIND: &str = "kind";

const KINDS: Choices =
    &[("file", "file"), ("directory", "directory"), ("collection", "collection"), ("link", "link")];
const DURING_BY: Choices =
    &[("", "time of creation"), ("modified", "time of modification"), ("run", "tag run")];
const SIZES: Choices = &[("", "known or not"), ("yes", "unknown only")];

/// The fields: name, label, type, example, choices.
const FIELDS: [(&str, &str, &str, &str, Choices); 20] = [
    ("lfn", "Below directory", "text", "/", &[]),
    ("name", "Name (shell pattern)", "text", "*.root", &[]),
    ("regex", "or path (regular expression)", "text", "run[0-9]+/", &[]),
    (KIND, "Kinds (none for any)", "text", "", KINDS),
    ("size_min", "Bytes, at least", "number", "", &[]),
    ("size_max", "Bytes, at most", "number", "", &[]),
    ("size_unknown", "Size", "text", "", SIZES),
    ("modified_from", "Modified from (UTC)", "text", "2026-01-31", &[]),
    ("modified_before", "Modified before (UTC)", "text", "2026-02-01 12:00:00", &[]),
    ("created_from", "Created from (UTC)", "text", "2026-01-31", &[]),
    ("created_before", "Created before (UTC)", "text", "2026-02-01", &[]),
    ("owner", "Owner", "text", "", &[]),
    ("group", "Group", "text", "", &[]),
    ("se", "Storage element with a replica", "text", "", &[]),
    ("job", "Job", "number", "", &[]),
    ("tags", "Tags", "text", "run >= 12 and campaign = \"mc26\"", &[]),
    ("depth_max", "Levels below, at most", "number", "", &[]),
    ("during", "While an element had a value", "text", "dcs:beam=STABLE", &[]),
    ("during_by", "compared with", "text", "", DURING_BY),
    ("at", "As it was at", "text", "2315, or 2026-01-31 12:00:00", &[]),
];

/// The page.
#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: Frame,
    fields: Vec<Field>,
    /// Bounds of a search, in words.
    bounds: String,
    found: Option<Table>,
    told: String,
    pager: Pager,
}

/// Answers with the form, and with a page of what it finds.
pub(super) async fn search(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let fields = FIELDS.map(|(name, label, kind, example, choices)| Field {
        name,
        label,
        kind,
        example,
        choices,
        values: visit.query.all(name).map(str::to_owned).collect(),
    });
    let mut shown = SearchPage {
        frame: visit.frame.titled("Search", "/search"),
        fields: fields.into(),
        bounds: format!(
            "A page searches for at most {} s, and the next page goes on. The condition on an element reads at most \
             {} of its rows; a state of the past may take seconds to make.",
            SEARCH_TIME.as_secs(),
            count(ELEMENT_BOUNDS.rows_max as u128)
        ),
        found: None,
        told: String::new(),
        pager: Pager::default(),
    };
    // A link from a directory names only the directory.
    if !FIELDS.iter().skip(1).any(|(name, ..)| visit.query.get(name).is_some()) {
        return page(StatusCode::OK, &shown, None);
    }
    let cursor = visit.query.cursor(LIST)?;
    let here = FIELDS.iter().fold("/search".to_owned(), |url, (name, ..)| {
        visit.query.all(name).fold(url, |url, value| with(url, name, value))
    });
    let conditions = conditions(&visit.query)?;
    let times = times(&mut visit, &conditions).await?;
    let mut told = String::new();
    if let Some(point) = visit.query.get("at").map(PastPoint::parse).transpose()? {
        // What it reads of the past is judged again, operation by operation.
        let reads = Operation::Stat { lfns: Vec::new(), follow: false };
        visit.call.enter_past(point, &reads).await?;
        let revision = visit.call.revision().await?;
        told = format!("As of revision {}; links lead to the present entries. ", revision.0);
    }
    let mut operation = find_operation(&mut visit.call, conditions, cursor.clone(), ROWS).await?;
    let during = match (times, &mut operation) {
        (Some(times), Operation::Find { filter, .. }) => Some(times.narrow(filter)?),
        _ => None,
    };
    let keep = |stat: &Stat| during.as_ref().is_none_or(|during| during.has(&stat.entry));
    let found = fill(&mut visit, operation, keep).await?;
    told.push_str(&found.told());
    shown.told = told;
    shown.found = Some(entries("Found entries".to_owned(), &found.items, true));
    shown.pager = Pager::new(&here, LIST, &cursor, found.next.as_ref());
    page(StatusCode::OK, &shown, found.room)
}

/// Reads the times in which an element had the value of the condition, and the runs, if they are wanted.
async fn times(visit: &mut Visit<'_>, conditions: &FindIn) -> Result<Option<DuringReading>> {
    let by = match visit.query.get("during_by") {
        None => DuringBy::Created,
        Some("modified") => DuringBy::Modified,
        Some("run") => DuringBy::Run,
        Some(other) => {
            return Err(Error::invalid(format!(
                "during_by is modified or run, or left out, not {other:.60?}"
            )));
        }
    };
    let Some(text) = visit.query.get("during") else { return Ok(None) };
    let bare = |time: &Option<Parsed<TimeMs>>| time.as_ref().map(|Parsed(time)| *time);
    let searched = Filter {
        created_from: bare(&conditions.created_from),
        created_before: bare(&conditions.created_before),
        modified_from: bare(&conditions.modified_from),
        modified_before: bare(&conditions.modified_before),
        ..Filter::default()
    };
    let mut reading = DuringReading::new(ElementCondition::parse(text)?, by, &searched, ELEMENT_BOUNDS);
    while let Some(operation) = reading.wanted() {
        // The room is given back at once: nothing of the rows is sent.
        let (answer, _room) = visit.call.page(operation.clone(), ELEMENT_BOUNDS.page).await?;
        reading.take(answer)?;
    }
    Ok(Some(reading))
}

fn number<T: std::str::FromStr>(fields: &Fields, name: &str) -> Result<Option<T>> {
    let bad = |text: &str| Error::invalid(format!("{name} is no number that fits: {text:.60?}"));
    fields.get(name).map(|text| text.trim().parse().map_err(|_| bad(text))).transpose()
}

/// Reads the conditions.
fn conditions(fields: &Fields) -> Result<FindIn> {
    let text = |name| fields.get(name).map(str::to_owned);
    let conditions = FindIn {
        lfn: Parsed(fields.parsed("lfn")?.unwrap_or_else(Lfn::root)),
        name: text("name"),
        regex: text("regex"),
        kinds: fields.all(KIND).map(|kind| Parse::parse_text(kind).map(Parsed)).collect::<Result<_>>()?,
        size_min: number(fields, "size_min")?,
        size_max: number(fields, "size_max")?,
        size_unknown: fields.get("size_unknown").is_some(),
        modified_from: fields.parsed("modified_from")?.map(Parsed),
        modified_before: fields.parsed("modified_before")?.map(Parsed),
        created_from: fields.parsed("created_from")?.map(Parsed),
        created_before: fields.parsed("created_before")?.map(Parsed),
        owner: fields.parsed("owner")?.map(Parsed),
        group: fields.parsed("group")?.map(Parsed),
        se: fields.parsed("se")?.map(Parsed),
        job: number(fields, "job")?,
        tags: text("tags"),
        depth_max: number(fields, "depth_max")?,
    };
    let bare = |time: &Option<Parsed<TimeMs>>| time.as_ref().map(|Parsed(time)| time.0);
    no_empty_range("Bytes", conditions.size_min, conditions.size_max.map(|most| most.saturating_add(1)))?;
    no_empty_range("Modified", bare(&conditions.modified_from), bare(&conditions.modified_before))?;
    no_empty_range("Created", bare(&conditions.created_from), bare(&conditions.created_before))?;
    if conditions.size_unknown && (conditions.size_min.is_some() || conditions.size_max.is_some()) {
        return Err(Error::invalid("Size: no size is unknown and in a range"));
    }
    if conditions.depth_max == Some(0) {
        return Err(Error::invalid("Levels below: the entries of the directory itself are at level 1"));
    }
    Ok(conditions)
}

/// Refuses conditions that no entry can meet.
fn no_empty_range(field: &str, from: Option<u64>, before: Option<u64>) -> Result<()> {
    match from.zip(before) {
        Some((from, before)) if from >= before => {
            Err(Error::invalid(format!("{field}: nothing is in this range, which ends before it begins")))
        }
        _ => Ok(()),
    }
}
