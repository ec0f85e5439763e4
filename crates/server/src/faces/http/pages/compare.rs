//! Two moments: the differences between snapshots, or the changes after a revision.

use askama::Template;
use exacat_model::{Answer, Cursor, Lfn, LogPosition, Operation, Result, SnapshotName};
use exacat_wire::json;
use hyper::{Response, StatusCode};

use super::super::answers::Body;
use super::browse::ROWS;
use super::entry::changes;
use super::frame::{Frame, Pager, page};
use super::table::{Cell, Table, WIDE};
use super::text::{url, visible, with};
use super::visit::{Visit, unfitting};

/// Names of the lists in their cursors, and of their parameters.
const DIFFERENCES: (&str, &str) = ("page-of-differences", "cursor");
const CHANGES: (&str, &str) = ("page-of-changes", "cursor");

/// The page.
#[derive(Template)]
#[template(path = "compare.html")]
struct ComparePage {
    frame: Frame,
    snapshots: Vec<String>,
    before: String,
    after: String,
    revision: String,
    under: String,
    table: Option<Table>,
    told: String,
    pager: Pager,
}

/// Answers with the forms, and with a page of what one of them asks for.
pub(super) async fn compare(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let before: Option<SnapshotName> = visit.query.parsed("before")?;
    let after: Option<SnapshotName> = visit.query.parsed("after")?;
    let text = |name| visit.query.get(name).unwrap_or_default().to_owned();
    let (revision, under) = (text("revision"), text("under"));
    // People who may not list snapshots can still see changes; a store on a cluster has none.
    let snapshots = match visit.call.ask(Operation::SnapshotList).await {
        Ok(Answer::Snapshots(all)) => all.iter().map(|one| one.name.to_string()).collect(),
        Ok(_) => return Err(unfitting()),
        Err(_) => Vec::new(),
    };
    let name = |name: &Option<SnapshotName>| name.as_ref().map_or_else(String::new, ToString::to_string);
    let mut shown = ComparePage {
        frame: visit.frame.titled("Compare two moments", "/compare"),
        snapshots,
        before: name(&before),
        after: name(&after),
        revision,
        under,
        table: None,
        told: String::new(),
        pager: Pager::default(),
    };
    let mut room = None;
    if let Some(before) = before {
        let cursor = visit.query.cursor(DIFFERENCES)?;
        shown.told = match &after {
            Some(after) => format!("From {before} to {after}"),
            None => format!("From {before} to now"),
        };
        let here = with(with("/compare".to_owned(), "before", &shown.before), "after", &shown.after);
        let operation = Operation::SnapshotDiff { before, after, cursor: cursor.clone(), limit: ROWS };
        let (answer, taken) = visit.call.page(operation, ROWS).await?;
        let Answer::Differences { items, next } = answer else { return Err(unfitting()) };
        shown.table = Some(differences(&items));
        shown.pager = Pager::new(&here, DIFFERENCES, &cursor, next.as_ref());
        room = Some(taken);
    } else if !shown.revision.is_empty() {
        let under: Option<Lfn> = visit.query.parsed("under")?;
        let cursor = visit.query.cursor(CHANGES)?;
        let after = match cursor.0.is_empty() {
            true => shown.revision.parse()?,
            false => position(&cursor)?,
        };
        shown.told = format!("Changes after revision {}", visible(&shown.revision));
        let here = with(with("/compare".to_owned(), "revision", &shown.revision), "under", &shown.under);
        let operation = Operation::Changes { after, under, limit: ROWS, wait: false };
        let (answer, taken) = visit.call.page(operation, ROWS).await?;
        let Answer::Changes { items, next, timeline, .. } = answer else { return Err(unfitting()) };
        let mut table = changes(&visit, "Changes", (&items, timeline), true);
        table.empty = "No change is on this page.";
        shown.table = Some(table);
        shown.pager = Pager::new(&here, CHANGES, &cursor, next.as_ref());
        room = Some(taken);
    }
    page(StatusCode::OK, &shown, room)
}

fn position(cursor: &Cursor) -> Result<LogPosition> {
    use exacat_model::codec::Decode;
    LogPosition::from_bytes(&cursor.0).map_err(|_| unfitting())
}

fn differences(items: &[exacat_model::snapshot::Difference]) -> Table {
    let columns = [("Path", ""), ("Difference", ""), ("Kind", WIDE), ("Detail", "")];
    let mut table = Table::new("Differences", &columns);
    table.empty = "There is no difference on this page.";
    for item in items.iter().filter_map(json::difference) {
        let mut words = item.from.map(|from| format!("from {from}")).into_iter().collect::<Vec<_>>();
        words.extend(item.changed.iter().flatten().map(|field| (*field).to_owned()));
        let mut path = Cell::text(item.lfn);
        if item.difference != "removed"
            && let Ok(lfn) = Lfn::parse(item.lfn)
        {
            path = path.linked(url("/entry", &lfn));
        }
        table.push([path, Cell::text(item.difference), Cell::text(item.kind), Cell::text(words.join(", "))]);
    }
    table
}
