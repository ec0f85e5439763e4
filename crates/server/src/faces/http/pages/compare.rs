//! Two moments: the differences between snapshots, or those that the history tells, or the changes after a
//! revision.

use askama::Template;
use exacat_catalogue::moments::{
    Differs, HistoryBounds, HistoryDifference, HistoryReading, Moment, RevisionAt, is_below,
};
use exacat_model::codec::{Decode, Encode};
use exacat_model::{
    Answer, Cursor, EntryId, Error, ErrorKind, Kind, Lfn, LogPosition, Operation, Result, Revision, Snapshot,
    SnapshotName, TimeMs,
};
use exacat_wire::json::{self, DifferenceKind};
use hyper::{Response, StatusCode};

use super::super::answers::Body;
use super::browse::ROWS;
use super::entry::changes;
use super::frame::{Frame, Pager, page};
use super::table::{Cell, Table, WIDE};
use super::text::{count, visible, with};
use super::visit::{Visit, unfitting};
use crate::admission::Room;

/// Names of the lists in their cursors, and of their parameters.
const DIFFERENCES: (&str, &str) = ("page-of-differences", "cursor");
const FOLDED: (&str, &str) = ("page-of-folded-changes", "cursor");
const CHANGES: (&str, &str) = ("page-of-changes", "cursor");
/// Most changes between the earlier moment and the end of the history that a page reads. `exacat diff` reads
/// more.
const HISTORY_MAX: u64 = 50_000;
/// Bounds of what a page reads of the history.
const BOUNDS: HistoryBounds =
    HistoryBounds { entries_max: HISTORY_MAX as usize, lookups_max: 100, page: 2000 };

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
    limit: String,
    table: Option<Table>,
    told: String,
    pager: Pager,
}

/// Differences of a page.
struct Compared {
    table: Table,
    told: String,
    pager: Pager,
    room: Option<Room>,
}

/// Answers with the forms, and with a page of what one of them asks for.
pub(super) async fn compare(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let text = |name| visit.query.get(name).unwrap_or_default().trim().to_owned();
    let (before, after) = (text("before"), text("after"));
    let (revision, under) = (text("revision"), text("under"));
    // People who may not list snapshots cannot name one; a store on a cluster has none.
    let snapshots = match visit.call.ask(Operation::SnapshotList).await {
        Ok(Answer::Snapshots(all)) => all,
        Ok(_) => return Err(unfitting()),
        Err(_) => Vec::new(),
    };
    let mut shown = ComparePage {
        frame: visit.frame.titled("Compare two moments", "/compare"),
        snapshots: snapshots.iter().map(|one| one.name.to_string()).collect(),
        before,
        after,
        revision,
        under,
        limit: count(u128::from(HISTORY_MAX)),
        table: None,
        told: String::new(),
        pager: Pager::default(),
    };
    let mut room = None;
    if !shown.before.is_empty() {
        let found = moments(&mut visit, &snapshots, (&shown.before, &shown.after)).await?;
        (shown.table, shown.told, shown.pager, room) =
            (Some(found.table), found.told, found.pager, found.room);
    } else if !shown.revision.is_empty() {
        let under: Option<Lfn> = visit.query.parsed("under")?;
        let cursor = visit.query.cursor(CHANGES)?;
        let after = match cursor.0.is_empty() {
            true => shown.revision.parse()?,
            false => LogPosition::from_bytes(&cursor.0).map_err(|_| unfitting())?,
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

/// Compares two moments below a directory.
async fn moments(
    visit: &mut Visit<'_>,
    snapshots: &[Snapshot],
    (before, after): (&str, &str),
) -> Result<Compared> {
    let under: Lfn = visit.query.parsed("under")?.unwrap_or_else(Lfn::root);
    let words = format!(
        "From {} to {}, below {}",
        visible(before),
        if after.is_empty() { "now".to_owned() } else { visible(after) },
        visible(under.as_str())
    );
    let here = with(with("/compare".to_owned(), "before", before), "after", after);
    let here = if under.is_root() { here } else { with(here, "under", under.as_str()) };
    let from = moment(visit, before, snapshots).await?;
    let to = if after.is_empty() { Moment::Now } else { moment(visit, after, snapshots).await? };
    // Admins alone may read the files of snapshots; operators have the history between them.
    let is_admin = visit.call.caller().is_admin();
    match (from, to) {
        (Moment::Snapshot(before, _), Moment::Snapshot(after, _)) if is_admin => {
            of_snapshots(visit, (before, Some(after)), &under, (words, here)).await
        }
        (Moment::Snapshot(before, _), Moment::Now) if is_admin => {
            of_snapshots(visit, (before, None), &under, (words, here)).await
        }
        (from, to) => {
            let end = end(visit).await?;
            let place = |moment: Moment| match moment {
                Moment::Snapshot(_, place) | Moment::After(place) => place,
                // A time was replaced by its last change.
                Moment::At(_) | Moment::Now => end,
            };
            of_history(visit, (place(from), place(to), end), &under, (words, here)).await
        }
    }
}

/// Returns the end of the history.
async fn end(visit: &mut Visit<'_>) -> Result<LogPosition> {
    match visit.call.ask(Operation::Position { after: Revision(0).into() }).await? {
        Answer::Changes { up_to, timeline, .. } => {
            Ok(LogPosition { revision: up_to, timeline: Some(timeline.whole()) })
        }
        _ => Err(unfitting()),
    }
}

/// Reads a moment, and finds the last change before a time.
async fn moment(visit: &mut Visit<'_>, text: &str, snapshots: &[Snapshot]) -> Result<Moment> {
    let about = |error: Error| Error { message: format!("{text:.60?}: {}", error.message), ..error };
    let moment = Moment::parse(text, snapshots).map_err(about)?;
    let Moment::At(time) = moment else { return Ok(moment) };
    let revision = revision_at(visit, time).await?.ok_or_else(|| {
        about(Error::not_found("the history does not reach back so far: compare with a snapshot"))
    })?;
    Ok(Moment::after(revision.into(), snapshots))
}

async fn revision_at(visit: &mut Visit<'_>, time: TimeMs) -> Result<Option<Revision>> {
    let mut search = RevisionAt::new(time, end(visit).await?.revision);
    while let Some(after) = search.wanted() {
        let look = Operation::Changes { after: after.into(), under: None, limit: 1, wait: false };
        let found = match visit.call.ask(look).await {
            Ok(Answer::Changes { items, .. }) => Ok(items.first().map(|info| info.change.time)),
            Ok(_) => Err(unfitting()),
            Err(error) => Err(error),
        };
        search.look(found)?;
    }
    Ok(search.found())
}

const COLUMNS: [(&str, &str); 4] = [("Path", ""), ("Difference", ""), ("Kind", WIDE), ("Detail", "")];

fn table() -> Table {
    let mut table = Table::new("Differences", &COLUMNS);
    table.empty = "There is no difference on this page.";
    table
}

/// Makes the row of a difference.
fn row(lfn: &Lfn, kind: DifferenceKind, of: &str, (from, fields): (Option<&Lfn>, &[&str])) -> [Cell; 4] {
    let mut words = from.map(|from| format!("from {from}")).into_iter().collect::<Vec<_>>();
    words.extend(fields.iter().map(|field| (*field).to_owned()));
    let path = match kind {
        DifferenceKind::Removed => Cell::text(lfn),
        _ => Cell::lfn(lfn),
    };
    [path, Cell::text(kind.name()), Cell::text(of), Cell::text(words.join(", "))]
}

async fn of_snapshots(
    visit: &mut Visit<'_>,
    (before, after): (SnapshotName, Option<SnapshotName>),
    under: &Lfn,
    (told, here): (String, String),
) -> Result<Compared> {
    let cursor = visit.query.cursor(DIFFERENCES)?;
    let operation = Operation::SnapshotDiff { before, after, cursor: cursor.clone(), limit: ROWS };
    let (answer, room) = visit.call.page(operation, ROWS).await?;
    let Answer::Differences { items, next } = answer else { return Err(unfitting()) };
    let mut table = table();
    for item in items.iter().filter(|item| is_below(item, under)) {
        let Some(at) = item.after.as_ref().or(item.before.as_ref()) else { continue };
        let kind = DifferenceKind::of(item);
        let from = item.before.as_ref().filter(|_| kind == DifferenceKind::Moved).map(|from| &from.lfn);
        table.push(row(&at.lfn, kind, at.entry.kind().name(), (from, &json::changed_fields(item))));
    }
    let pager = Pager::new(&here, DIFFERENCES, &cursor, next.as_ref());
    Ok(Compared { table, told, pager, room: Some(room) })
}

async fn of_history(
    visit: &mut Visit<'_>,
    (from, to, end): (LogPosition, LogPosition, LogPosition),
    under: &Lfn,
    (mut told, here): (String, String),
) -> Result<Compared> {
    let cursor = visit.query.cursor(FOLDED)?;
    let last = match cursor.0.is_empty() {
        true => None,
        false => Some(<(Lfn, EntryId)>::from_bytes(&cursor.0).map_err(|_| unfitting())?),
    };
    let mut reading = HistoryReading::new((from, to), end.revision, BOUNDS)?;
    let number = end.revision.0 - from.revision.0;
    if number > HISTORY_MAX {
        let message = format!(
            "{number} changes follow the earlier moment, and a page reads {HISTORY_MAX}: compare two snapshots, or \
             run 'exacat diff'"
        );
        return Err(Error::new(ErrorKind::Limit, message));
    }
    while let Some(operation) = reading.wanted() {
        let answer = match matches!(operation, Operation::Changes { .. }) {
            // The room is given back at once: nothing of the changes is sent.
            true => visit.call.page(operation, BOUNDS.page).await.map(|(answer, _room)| answer),
            false => visit.call.ask(operation).await,
        };
        reading.take(answer)?;
    }
    let found = reading.differences(under);
    let all = found.items.len();
    let seen =
        |item: &HistoryDifference| last.as_ref().is_some_and(|(lfn, id)| item.order((lfn, *id)).is_le());
    let rest = &found.items[found.items.partition_point(seen)..];
    let (shown, more) = rest.split_at(rest.len().min(ROWS as usize));
    let next = shown.last().filter(|_| !more.is_empty());
    let next = next.map(|item| Cursor((item.lfn.clone(), item.id).to_bytes()));
    told.push_str(&format!(": differences {}", count(all as u128)));
    if found.unplaced > 0 {
        let number = count(u128::from(found.unplaced));
        told.push_str(&format!(". Below directories that are gone now, and not shown: {number}"));
    }
    let kinds = kinds(visit, shown).await?;
    let mut table = table();
    for (item, of) in shown.iter().zip(kinds) {
        let kind = match item.differs {
            Differs::Created => DifferenceKind::Created,
            Differs::Changed => DifferenceKind::Changed,
            Differs::Moved => DifferenceKind::Moved,
            Differs::Removed => DifferenceKind::Removed,
        };
        let fields = if kind == DifferenceKind::Created { &[][..] } else { &item.fields };
        table.push(row(&item.lfn, kind, of.map_or("", Kind::name), (item.from.as_ref(), fields)));
    }
    let pager = Pager::new(&here, FOLDED, &cursor, next.as_ref());
    Ok(Compared { table, told, pager, room: None })
}

/// Returns the kinds of entries; asks for those that the changes do not tell.
async fn kinds(visit: &mut Visit<'_>, items: &[HistoryDifference]) -> Result<Vec<Option<Kind>>> {
    let mut kinds: Vec<Option<Kind>> = items.iter().map(|item| item.kind).collect();
    let unknown: Vec<usize> = (0..items.len()).filter(|place| kinds[*place].is_none()).collect();
    if unknown.is_empty() {
        return Ok(kinds);
    }
    let lfns = unknown.iter().map(|place| items[*place].lfn.clone()).collect();
    let Answer::Stats(stats) = visit.call.ask(Operation::Stat { lfns, follow: false }).await? else {
        return Err(unfitting());
    };
    for (place, stat) in unknown.into_iter().zip(stats) {
        kinds[place] =
            stat.ok().filter(|stat| stat.entry.id() == items[place].id).map(|stat| stat.entry.kind());
    }
    Ok(kinds)
}
