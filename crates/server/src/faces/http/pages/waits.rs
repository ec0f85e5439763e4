//! Activity over time: requests in progress by class of their states, as a picture, a table and CSV; and
//! reports of a period.

use std::fmt::Write as _;

use exacat_activity::{Class, RequestState};
use exacat_model::period::Period;
use exacat_model::{Answer, Operation, Result, TimeMs};
use hyper::Response;

use super::super::answers::Body;
use super::form_page::{Field, FormPage, choices};
use super::frame::{Link, Section};
use super::table::{Cell, NUMBER, TIME, Table, WIDE_NUMBER};
use super::text::{time, visible};
use super::visit::{Visit, unfitting};
use crate::report::{heading, sections};

/// Paths of the pages.
pub(super) const WAITS: &str = "/waits";
pub(super) const REPORTS: &str = "/reports";

/// Spans of time to choose from: seconds, and their name.
const SPANS: [(&str, &str); 6] = [
    ("600", "10 minutes"),
    ("3600", "1 hour"),
    ("21600", "6 hours"),
    ("86400", "1 day"),
    ("604800", "7 days"),
    ("2419200", "28 days"),
];
/// Parts of a picture.
const PARTS: u32 = 60;
/// Size of the picture, and space for the texts in it.
const WIDTH: u64 = 1000;
const HEIGHT: u64 = 260;
const MARGIN: u64 = 40;

async fn periods(visit: &mut Visit<'_>, operation: Operation) -> Result<Vec<Period>> {
    match visit.call.ask(operation).await? {
        Answer::Activity(periods) => Ok(periods),
        _ => Err(unfitting()),
    }
}

/// Answers with the requests in progress over time.
pub(super) async fn waits(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let to: Option<TimeMs> = visit.query.parsed("to")?;
    let asked = visit.query.get("span").unwrap_or(SPANS[0].0);
    // A span that nobody offered is the first one.
    let span = SPANS.iter().find(|(seconds, _)| *seconds == asked).unwrap_or(&SPANS[0]).0;
    let seconds = span.parse().map_err(|_| unfitting())?;
    let found = periods(&mut visit, Operation::Activity { from: None, to, seconds, parts: PARTS }).await?;
    let table = over_time(&found);
    let fields = vec![
        Field { name: "span", label: "Last", example: "", choices: choices(&SPANS), value: span.to_owned() },
        Field {
            name: "to",
            label: "Until (UTC; empty for now)",
            example: "2026-01-31 12:00:00",
            choices: Vec::new(),
            value: visit.query.get("to").unwrap_or_default().to_owned(),
        },
    ];
    FormPage {
        frame: visit.frame.titled("Waits", WAITS),
        action: WAITS,
        fields,
        links: vec![Link::new("Reports", REPORTS), Link::new("Requests in progress", "/requests")],
        told: "Requests in progress on the average, by class of their states. Waits that clients wished are left \
               out. A request counts when it ends."
            .to_owned(),
        findings: Vec::new(),
        parts: vec![
            Section { picture: picture(&found), ..Section::new("Requests in progress", table).named("waits") },
        ],
    }
    .answer(&visit)
}

/// Fields of the second period of a report.
const OTHER: (&str, &str) = ("other_from", "other_to");

/// Returns the period that two fields name; without a beginning the last 10 minutes of it.
async fn period(visit: &mut Visit<'_>, (from, to): (&str, &str)) -> Result<Period> {
    let (from, to) = (visit.query.parsed(from)?, visit.query.parsed(to)?);
    let operation = Operation::Activity { from, to, seconds: 600, parts: 1 };
    periods(visit, operation).await?.pop().ok_or_else(unfitting)
}

fn findings(name: &str, period: &Period) -> impl Iterator<Item = String> {
    period.findings.iter().map(move |finding| format!("{name}{}", visible(finding)))
}

/// Answers with a report of a period, or of two side by side.
pub(super) async fn reports(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let field = |name, label| Field {
        name,
        label,
        example: "2026-01-31 12:00:00",
        choices: Vec::new(),
        value: visit.query.get(name).unwrap_or_default().to_owned(),
    };
    let fields = vec![
        field("from", "From (UTC; empty for the last 10 minutes)"),
        field("to", "To (UTC; empty for now)"),
        field(OTHER.0, "Compare with: from (UTC)"),
        field(OTHER.1, "Compare with: to (UTC; empty for now)"),
    ];
    let first = period(&mut visit, ("from", "to")).await?;
    let second = match visit.query.get(OTHER.0).or(visit.query.get(OTHER.1)) {
        Some(_) => Some(period(&mut visit, OTHER).await?),
        None => None,
    };
    let mut parts = Vec::new();
    for section in sections(&first, second.as_ref()) {
        let columns = section.columns.iter();
        let columns = columns.map(|(name, is_number)| (name.clone(), if *is_number { NUMBER } else { "" }));
        let mut table = Table::named(section.title, columns);
        for row in &section.rows {
            table.push(row.iter().map(Cell::text).collect::<Vec<_>>());
        }
        parts.push(Section::new(section.title, table).named(section.title));
    }
    FormPage {
        frame: visit.frame.titled("Report", WAITS),
        action: REPORTS,
        fields,
        links: vec![Link::new("Waits over time", WAITS), Link::new("Slow requests", "/slow")],
        told: match &second {
            None => heading(&first),
            Some(second) => format!("A: {}. B: {}.", heading(&first), heading(second)),
        },
        findings: match &second {
            None => findings("", &first).collect(),
            Some(second) => findings("A: ", &first).chain(findings("B: ", second)).collect(),
        },
        parts,
    }
    .answer(&visit)
}

/// Returns the classes that are shown.
fn classes() -> impl Iterator<Item = Class> {
    Class::ALL.iter().copied().filter(|class| *class != Class::Idle)
}

/// Returns the average of the requests in progress in states of a class.
fn active(period: &Period, class: Class) -> f64 {
    let of_class =
        |name: &str| RequestState::named(name).map_or(Class::Unaccounted, RequestState::class) == class;
    let times = period.states.iter().filter(|one| of_class(&one.state)).map(|one| one.time_us);
    times.sum::<u64>() as f64 / 1e6 / period.seconds().max(0.001)
}

fn over_time(periods: &[Period]) -> Table {
    let mut columns = vec![("From (UTC)".to_owned(), TIME), ("Requests".to_owned(), WIDE_NUMBER)];
    columns.extend(classes().map(|class| (class.name().to_owned(), NUMBER)));
    let mut table = Table::named("Requests in progress by class", columns);
    table.empty = "The server has kept no such time.";
    for period in periods {
        let requests: u64 = period.operations.iter().map(|one| one.requests).sum();
        let mut row = vec![Cell::time(period.from), Cell::count(requests)];
        row.extend(classes().map(|class| Cell::text(format!("{:.3}", active(period, class)))));
        table.push(row);
    }
    table
}

/// Draws the classes on top of each other, one column for each period.
fn picture(periods: &[Period]) -> String {
    let sum = |period: &Period| classes().map(|class| active(period, class)).sum::<f64>();
    let top = periods.iter().map(sum).fold(0.0, f64::max);
    let (Some(first), Some(last)) = (periods.first(), periods.last()) else { return String::new() };
    let (bottom, high) = (HEIGHT - MARGIN, HEIGHT - 2 * MARGIN);
    let mut out = format!(
        "<svg class=\"picture stacked\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Requests in \
         progress by class over time, at most {top:.3}; also in the table below\">"
    );
    let mut x = MARGIN;
    for class in classes() {
        let name = class.name();
        let _ = write!(
            out,
            "<rect class=\"of-{name}\" x=\"{x}\" y=\"10\" width=\"12\" height=\"12\"/><text x=\"{}\" y=\"21\">{name}</text>",
            x + 18
        );
        x += 30 + 9 * name.len() as u64;
    }
    let step = (WIDTH - 2 * MARGIN) as f64 / periods.len() as f64;
    for (number, period) in periods.iter().enumerate() {
        let left = MARGIN as f64 + step * number as f64;
        let mut y = bottom as f64;
        for class in classes() {
            let height = active(period, class) / top.max(f64::MIN_POSITIVE) * high as f64;
            if height > 0.0 {
                y -= height;
                let _ = write!(
                    out,
                    "<rect class=\"of-{}\" x=\"{left:.1}\" y=\"{y:.2}\" width=\"{:.1}\" height=\"{height:.2}\"/>",
                    class.name(),
                    (step * 0.9).max(1.0)
                );
            }
        }
    }
    let _ = write!(
        out,
        "<text x=\"4\" y=\"{}\">{top:.2}</text><text x=\"4\" y=\"{bottom}\">0</text>\
         <text x=\"{MARGIN}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text></svg>",
        MARGIN + 10,
        HEIGHT - 12,
        time(first.from),
        WIDTH - MARGIN,
        HEIGHT - 12,
        time(last.to)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use exacat_model::period::StatePeriod;

    fn period(states: &[(&str, u64)]) -> Period {
        let states = states.iter().map(|(state, time_us)| StatePeriod {
            state: (*state).to_owned(),
            time_us: *time_us,
            ..StatePeriod::default()
        });
        Period { from: TimeMs(0), to: TimeMs(10_000), states: states.collect(), ..Period::default() }
    }

    /// Property: the table has the average of each class without waits that clients wished, and the highest
    /// column fills the picture.
    #[test]
    fn classes_stand_on_each_other() {
        let periods = [
            period(&[
                ("execute", 5_000_000),
                ("decode", 5_000_000),
                ("log_sync", 20_000_000),
                ("change", 90_000_000),
            ]),
            period(&[]),
        ];
        let csv = over_time(&periods).csv();
        let row = csv.lines().nth(1).unwrap();
        assert!(row.contains("\"0\",\"1.000\",\"2.000\",\"0.000\""), "{csv}");
        assert!(csv.lines().next().unwrap().contains("\"cpu\",\"commit\"") && !csv.contains("idle"), "{csv}");
        let picture = picture(&periods);
        let high = (HEIGHT - 2 * MARGIN) as f64;
        assert!(picture.contains(&format!("height=\"{:.2}\"", high / 3.0)), "{picture}");
        assert!(picture.contains(&format!("y=\"{MARGIN}.00\"")), "{picture}");
        assert!(super::picture(&[]).is_empty() && !super::picture(&periods[1..]).contains("NaN"));
    }
}
