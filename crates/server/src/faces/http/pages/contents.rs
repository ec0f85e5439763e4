//! Contents of the catalogue over time: of the whole, of a storage element, of an owner with a quota.

use std::time::Duration;

use exacat_model::{Answer, Error, ErrorKind, Operation, Result, TimeMs};
use hyper::Response;

use super::super::answers::Body;
use super::form_page::{Choice, Field, FormPage, choices};
use super::frame::{Link, Section};
use super::plot::{Line, legend, lines};
use super::table::{Cell, NUMBER, TIME, Table, WIDE_NUMBER};
use super::text::{bytes, count, visible};
use super::visit::{Visit, unfitting};
use crate::contents::{Point, Sample, Subject};

/// Path of the page.
pub(super) const PATH: &str = "/contents";

/// Spans of time to choose from: days, and their name.
const SPANS: [(&str, &str); 6] = [
    ("7", "7 days"),
    ("1", "1 day"),
    ("30", "30 days"),
    ("90", "90 days"),
    ("365", "1 year"),
    ("3650", "10 years"),
];
/// Parts of a span.
const PARTS: u64 = 240;
/// Time in which the present contents must be there.
const NOW_TIME: Duration = Duration::from_secs(5);
/// Starts of the names of storage elements and of owners in a query.
const SE: &str = "se:";

/// Answers with the contents over time.
pub(super) async fn contents(mut visit: Visit<'_>) -> Result<Response<Body>> {
    // The rights are those of the status.
    let Answer::Status(_) = visit.call.ask(Operation::Status).await? else { return Err(unfitting()) };
    let service = visit.call.service.clone();
    let asked = visit.query.get("span").unwrap_or(SPANS[0].0);
    // A span that nobody offered is the first one.
    let span = SPANS.iter().find(|(days, _)| *days == asked).unwrap_or(&SPANS[0]).0;
    let days: u64 = span.parse().map_err(|_| unfitting())?;
    let of = visit.query.get("of").unwrap_or_default().to_owned();
    let subject = match of.strip_prefix(SE) {
        Some(name) => Subject::Se(name.to_owned()),
        None if of.is_empty() => Subject::Whole,
        None => Subject::Owner(of.clone()),
    };
    let now = service.catalogue.now();
    let present = tokio::time::timeout(NOW_TIME, service.contents_now(now)).await;
    let late = || Error::new(ErrorKind::Unavailable, "the store does not give its contents in time");
    let present = present.map_err(|_| late())??;
    let period = (TimeMs(now.0.saturating_sub(days * 86_400_000)), now);
    let mut points = match service.contents.get() {
        Some(kept) => kept.points(subject.clone(), period, PARTS).await?,
        None => Vec::new(),
    };
    points.extend(present.of(&subject));
    if points.is_empty() {
        return Err(Error::not_found(format!(
            "no storage element or owner with a quota is named {of:.100?}"
        )));
    }
    let is_se = matches!(subject, Subject::Se(_));
    let parts = sections(&points, period, is_se);
    let fields = vec![
        Field { name: "of", label: "Of", example: "", choices: subjects(&present, &of), value: of.clone() },
        Field { name: "span", label: "Last", example: "", choices: choices(&SPANS), value: span.to_owned() },
    ];
    let told = match &subject {
        Subject::Whole => {
            "The whole catalogue. The server takes a sample each hour. After 90 days it keeps one of \
                           each day."
                .to_owned()
        }
        Subject::Se(name) => format!("Replicas on {}, those of the trash included.", visible(name)),
        Subject::Owner(name) => format!("Usage of {}, that of the trash included.", visible(name)),
    };
    FormPage {
        frame: visit.frame.titled("Contents over time", PATH),
        action: PATH,
        fields,
        links: vec![Link::new("Storage elements", "/storage"), Link::new("Quotas", "/quotas")],
        told,
        findings: Vec::new(),
        parts,
    }
    .answer(&visit)
}

/// Returns the subjects to choose from, with the one that is shown.
fn subjects(present: &Sample, shown: &str) -> Vec<Choice> {
    let mut all = vec![(String::new(), "The whole catalogue".to_owned())];
    all.extend(present.ses.iter().map(|(name, _)| (format!("{SE}{name}"), visible(name))));
    all.extend(present.owners.iter().map(|(name, _)| (name.clone(), visible(name))));
    if !all.iter().any(|(value, _)| value == shown) {
        all.push((shown.to_owned(), visible(shown)));
    }
    all
}

fn sections(points: &[Point], period: (TimeMs, TimeMs), is_se: bool) -> Vec<Section> {
    type Of = fn(&Point) -> Option<u128>;
    let line = |(name, of): (&'static str, Of)| Line {
        name,
        points: points.iter().filter_map(|point| Some((point.at, of(point)?))).collect(),
    };
    let replicas: (&'static str, Of) = ("replicas", |point| Some(u128::from(point.usage.replicas)));
    let replica_bytes: (&'static str, Of) = ("of replicas", |point| Some(point.usage.replica_bytes));
    let (mut numbers, mut sizes) = (vec![replicas], vec![replica_bytes]);
    if !is_se {
        let entries: (&'static str, Of) = ("entries", |point| point.entries.map(u128::from));
        let files: (&'static str, Of) =
            ("files", |point| Some(u128::from(point.usage.files + point.usage.members)));
        numbers.extend([entries, files]);
        sizes.push(("of content", |point| Some(point.usage.bytes + point.usage.member_bytes)));
    }
    let numbers: Vec<Line> = numbers.into_iter().map(line).collect();
    let sizes: Vec<Line> = sizes.into_iter().map(line).collect();
    let mut table = Table::new(
        "Samples",
        &[
            ("Time (UTC)", TIME),
            ("Entries", WIDE_NUMBER),
            ("Directories", WIDE_NUMBER),
            ("Files", NUMBER),
            ("Bytes", NUMBER),
            ("Replicas", NUMBER),
            ("Bytes of replicas", WIDE_NUMBER),
        ],
    );
    for point in points.iter().rev() {
        let usage = &point.usage;
        table.push([
            Cell::time(point.at),
            point.entries.map_or_else(Cell::default, Cell::count),
            Cell::count(usage.directories),
            Cell::count(usage.files + usage.members),
            Cell::bytes(usage.bytes + usage.member_bytes),
            Cell::count(usage.replicas),
            Cell::bytes(usage.replica_bytes),
        ]);
    }
    let part =
        |heading: &'static str, all: &[Line], show: fn(u128) -> String, cell: fn(u128) -> Cell| Section {
            picture: lines(heading, all, period, show),
            ..Section::new(heading, legend(heading, all, cell))
        };
    vec![
        part("Numbers", &numbers, count, Cell::count),
        part("Bytes", &sizes, bytes, Cell::bytes),
        Section::new("Samples", table).named("contents"),
    ]
}
