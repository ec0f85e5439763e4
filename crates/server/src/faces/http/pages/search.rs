//! Search with the conditions of a find.

use std::time::{Duration, Instant};

use askama::Template;
use exacat_model::{Answer, Error, Lfn, Result};
use exacat_wire::json::requests::{Parse, Parsed};
use exacat_wire::json::search::FindIn;
use hyper::{Response, StatusCode};

use super::super::answers::Body;
use super::super::finding::find_operation;
use super::browse::{ROWS, entries};
use super::frame::{Frame, Pager, page};
use super::table::Table;
use super::text::{count, with};
use super::visit::{Fields, Visit, unfitting};

/// Name of the list in its cursors, and of their parameter.
const LIST: (&str, &str) = ("page-of-find", "cursor");
/// Longest time of a search that fills a page. After it the page has what was found, and a next one.
const SEARCH_TIME: Duration = Duration::from_secs(2);

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
const SIZES: Choices = &[("", "known or not"), ("yes", "unknown only")];

/// The fields: name, label, type, example, choices.
const FIELDS: [(&str, &str, &str, &str, Choices); 17] = [
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
];

/// The page.
#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: Frame,
    fields: Vec<Field>,
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
    let mut operation = find_operation(&mut visit.call, conditions, cursor.clone(), ROWS).await?;
    let until = Instant::now() + SEARCH_TIME;
    let (mut items, mut first_room) = (Vec::new(), None);
    let next = loop {
        let (answer, room) = visit.call.page(operation.clone(), ROWS - items.len() as u32).await?;
        let Answer::Entries { items: more, next, .. } = answer else { return Err(unfitting()) };
        items.extend(more);
        first_room.get_or_insert(room);
        let Some(next) = next else { break None };
        if items.len() >= ROWS as usize || Instant::now() >= until {
            break Some(next);
        }
        operation = operation.resumed(next).ok_or_else(unfitting)?;
    };
    let number = count(items.len() as u128);
    shown.told = match &next {
        Some(_) if items.is_empty() => "Nothing found so far; the next page searches on.".to_owned(),
        Some(_) => format!("Entries on this page: {number}. The next page searches on."),
        None => format!("Entries: {number}, and no more."),
    };
    shown.found = Some(entries("Found entries".to_owned(), &items, true));
    shown.pager = Pager::new(&here, LIST, &cursor, next.as_ref());
    page(StatusCode::OK, &shown, first_room)
}

fn number<T: std::str::FromStr>(fields: &Fields, name: &str) -> Result<Option<T>> {
    let bad = |text: &str| Error::invalid(format!("{name} is no number that fits: {text:.60?}"));
    fields.get(name).map(|text| text.trim().parse().map_err(|_| bad(text))).transpose()
}

/// Reads the conditions.
fn conditions(fields: &Fields) -> Result<FindIn> {
    let text = |name| fields.get(name).map(str::to_owned);
    Ok(FindIn {
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
    })
}
