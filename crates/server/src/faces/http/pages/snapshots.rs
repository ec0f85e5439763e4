//! Snapshots: a table of all, and a picture of the timelines that they are on.

use std::fmt::Write as _;

use exacat_model::snapshot::Snapshot;
use exacat_model::{Answer, Operation, Result, Revision, Timeline, TimelineId};
use hyper::Response;

use super::super::answers::Body;
use super::frame::{Link, Section};
use super::steps::CLONE;
use super::table::{CODE, Cell, NUMBER, TIME, Table, WIDE, WIDE_NUMBER};
use super::tables::TablesPage;
use super::text::with;
use super::visit::{Visit, unfitting};

/// Most timelines of the picture, the newest ones.
const TIMELINES_SHOWN: usize = 12;
/// Size of the picture.
const WIDTH: u64 = 1000;
const LANE: u64 = 46;
/// Space at the left and right of the lines.
const MARGIN: u64 = 40;

/// Answers with all snapshots.
pub(super) async fn snapshots(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let Answer::Snapshots(all) = visit.call.ask(Operation::SnapshotList).await? else {
        return Err(unfitting());
    };
    // Operators read the list; the catalogue lets admins alone act on it, and compare.
    let may_act = visit.call.caller().is_admin();
    let mut columns = vec![
        ("Name", ""),
        ("Taken (UTC)", TIME),
        ("Revision", NUMBER),
        ("Entries", WIDE_NUMBER),
        ("Bytes", NUMBER),
        ("Own bytes", WIDE_NUMBER),
        ("State", WIDE),
    ];
    if may_act {
        columns.extend([("Compare", ""), ("Check", ""), ("Clone", ""), ("Drop", "")]);
    }
    let mut table = Table::new("Snapshots", &columns);
    table.empty = "There is no snapshot.";
    for snapshot in &all {
        let name = snapshot.name.as_str();
        let action = |kind: &str| with(format!("/action/{kind}"), "of", name);
        let mut row = vec![
            Cell::text(name),
            Cell::time(snapshot.time),
            Cell::count(snapshot.revision.0),
            Cell::count(snapshot.entries),
            Cell::bytes(snapshot.bytes),
            Cell::bytes(snapshot.own_bytes),
            Cell::text(snapshot.problem.as_deref().unwrap_or("sound")),
        ];
        if may_act {
            row.extend([
                Cell::text("Compare").linked(with("/compare".to_owned(), "before", name)),
                Cell::text("Check").linked(action("snapshot-verify")),
                Cell::text("Clone").linked(with(CLONE.to_owned(), "of", name)),
                Cell::text("Drop").linked(action("snapshot-drop")),
            ]);
        }
        table.push(row);
    }
    let now = visit.call.revision().await?;
    let timelines = visit.call.service.catalogue.store().timelines();
    let (picture, lines) = tree(timelines.all(), &all, now);
    let mut parts = vec![
        Section::new("All snapshots", table).named("snapshots"),
        Section { picture, ..Section::new("Timelines", lines).named("timelines") },
    ];
    if let Some(store) = visit.call.service.catalogue.store().as_snapshots() {
        parts.push(Section::new("Catalogues", ancestry(&store.ancestry())).named("catalogues"));
    }
    let links =
        if may_act { vec![Link::new("Take a snapshot", "/action/snapshot-take")] } else { Vec::new() };
    let intro = "A snapshot keeps the catalogue at one revision. A restore or a clone starts a new timeline. A \
                 catalogue knows those that it was cloned from, and never its own clones: each clone names its \
                 origins on its own page."
        .to_owned();
    let frame = visit.frame.titled("Snapshots", "/snapshots");
    TablesPage { frame, intro, links, parts, ..TablesPage::default() }.answer(&visit, None)
}

/// Returns the catalogue and those that it was cloned from.
fn ancestry(all: &[[u8; 16]]) -> Table {
    let mut table = Table::new("This catalogue and its origins", &[("Catalogue", CODE), ("Relation", "")]);
    for (number, id) in all.iter().enumerate() {
        let relation = match number {
            0 => "this catalogue",
            1 => "origin of this catalogue",
            _ => "origin of the one above",
        };
        table.push([Cell::text(format!("{:032x}", u128::from_be_bytes(*id))), Cell::text(relation)]);
    }
    table
}

/// Draws timelines as lines from the revision where each parted, with its snapshots; and says the same in
/// a table.
fn tree(all: &[Timeline], snapshots: &[Snapshot], now: Revision) -> (String, Table) {
    let shown = &all[all.len().saturating_sub(TIMELINES_SHOWN)..];
    let mut table = Table::new("Timelines", &[("Timeline", ""), ("Parted from", ""), ("Snapshots", "")]);
    let last = snapshots.iter().map(|one| one.revision).chain([now]).max().unwrap_or(now).0.max(1);
    let place = |revision: Revision| {
        MARGIN
            + u64::try_from(u128::from(revision.0) * u128::from(WIDTH - 2 * MARGIN) / u128::from(last))
                .unwrap_or(0)
    };
    let lane_of = |id: TimelineId| {
        shown.iter().position(|line| line.id == id).map(|lane| LANE * lane as u64 + LANE / 2)
    };
    let height = LANE * shown.len() as u64;
    let mut out = format!(
        "<svg class=\"picture\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Timelines, also in the table below\">"
    );
    for (number, line) in shown.iter().enumerate() {
        let y = LANE * number as u64 + LANE / 2;
        let on: Vec<&Snapshot> = snapshots.iter().filter(|one| one.timeline == Some(line.id)).collect();
        let start = line.parted.map_or(MARGIN, |(_, revision)| place(revision));
        let end = if number + 1 == shown.len() {
            place(now)
        } else {
            on.iter().map(|one| place(one.revision)).chain([start + 10]).max().unwrap_or(start)
        };
        if let Some((_, revision)) = line.parted
            && let Some(above) = line.parted.and_then(|(before, _)| lane_of(before))
        {
            let x = place(revision);
            let _ =
                write!(out, "<path class=\"lane\" fill=\"none\" stroke-width=\"3\" d=\"M{x} {above}V{y}\"/>");
        }
        let _ =
            write!(out, "<path class=\"lane\" fill=\"none\" stroke-width=\"3\" d=\"M{start} {y}H{end}\"/>");
        for one in &on {
            let x = place(one.revision);
            // Names of snapshots have letters, digits and `._-` only.
            let _ = write!(
                out,
                "<circle class=\"block\" cx=\"{x}\" cy=\"{y}\" r=\"6\"/><text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                y - 10,
                one.name
            );
        }
        let names: Vec<&str> = on.iter().map(|one| one.name.as_str()).collect();
        table.push([
            Cell::text(line.id),
            Cell::text(line.parted.map_or_else(String::new, |(before, revision)| {
                format!("{before} after revision {}", revision.0)
            })),
            Cell::text(names.join(", ")),
        ]);
    }
    out.push_str("</svg>");
    (out, table)
}
