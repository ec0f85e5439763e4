//! Directories: a page of names at a time, whatever their number.

use askama::Template;
use exacat_model::answer::Stat;
use exacat_model::{Answer, Body as EntryBody, Kind, Lfn, Operation, Result};
use hyper::{Response, StatusCode};

use super::super::answers::Body;
use super::frame::{Frame, Pager, page, redirect};
use super::table::{Cell, NUMBER, Table, WIDE, WIDE_NUMBER, WIDE_TIME};
use super::text::{bytes, count, url, visible, with};
use super::visit::{Visit, unfitting};

/// Rows of a page of a list.
pub(super) const ROWS: u32 = 200;
/// Name of the list in its cursors, and of their parameter.
const LIST: (&str, &str) = ("page-of-children", "cursor");

/// The page of a directory.
#[derive(Template)]
#[template(path = "directory.html")]
struct DirectoryPage {
    frame: Frame,
    facts: String,
    details: String,
    usage: String,
    search: String,
    table: Table,
    pager: Pager,
}

/// Columns of entries.
const COLUMNS: [(&str, &str); 7] = [
    ("Name", ""),
    ("Kind", WIDE),
    ("Size", NUMBER),
    ("Replicas", WIDE_NUMBER),
    ("Owner", WIDE),
    ("Mode", WIDE),
    ("Modified (UTC)", WIDE_TIME),
];

/// Makes a table of entries: with their names, or with their whole paths.
pub(super) fn entries(caption: String, items: &[Stat], with_paths: bool) -> Table {
    let mut columns = COLUMNS;
    if with_paths {
        columns[0].0 = "Path";
    }
    let mut table = Table::new(caption, &columns);
    for stat in items {
        let entry = &stat.entry;
        let name = match stat.lfn.split_last() {
            Some((_, name)) if !with_paths => name,
            _ => stat.lfn.as_str(),
        };
        let is_directory = entry.kind() == Kind::Directory;
        let name = if is_directory && !with_paths { format!("{name}/") } else { name.to_owned() };
        let place = if is_directory { "/browse" } else { "/entry" };
        let (size, replicas) = match &entry.body {
            EntryBody::File(file) => (
                file.size.map_or_else(|| Cell::text("unknown"), Cell::bytes),
                Cell::count(file.replicas.len() as u64),
            ),
            EntryBody::Collection { members, .. } => {
                (Cell::text(format!("{} members", count(u128::from(*members)))), Cell::default())
            }
            EntryBody::Link { target, .. } => (Cell::text(format!("to {target}")), Cell::default()),
            EntryBody::Directory(_) => (Cell::default(), Cell::default()),
        };
        table.push([
            Cell::text(name).linked(url(place, &stat.lfn)),
            Cell::text(entry.kind().name()),
            size,
            replicas,
            Cell::text(format!("{}:{}", stat.owner, stat.group)),
            Cell::text(entry.mode),
            Cell::time(entry.modified),
        ]);
    }
    table
}

/// Answers with a page of a directory; sends the browser on to the page of any other entry.
pub(super) async fn browse(mut visit: Visit<'_>, lfn: &Lfn) -> Result<Response<Body>> {
    let cursor = visit.query.cursor(LIST)?;
    let stat = visit.stat(lfn, true).await?;
    let lfn = stat.lfn;
    if stat.entry.kind() != Kind::Directory {
        return Ok(redirect(&url("/entry", &lfn)));
    }
    let usage = match visit.call.ask(Operation::Du { lfns: vec![lfn.clone()] }).await? {
        Answer::Usages(mut found) => found.pop().unwrap_or_else(|| Err(unfitting()))?,
        _ => return Err(unfitting()),
    };
    let list = Operation::List { lfn: lfn.clone(), cursor: cursor.clone(), limit: ROWS };
    let (answer, room) = visit.call.page(list, ROWS).await?;
    let Answer::Entries { items, next, .. } = answer else { return Err(unfitting()) };
    let name = lfn.split_last().map_or("/", |(_, name)| name);
    let mut table = entries(format!("Entries of {}", visible(name)), &items, false);
    table.empty = "The directory is empty.";
    let facts = format!(
        "With everything below: {} directories, {} files, {} of content, {} of replicas. Owner {}:{}, mode {}.",
        count(u128::from(usage.directories)),
        count(u128::from(usage.files)),
        bytes(usage.bytes),
        bytes(usage.replica_bytes),
        visible(stat.owner.as_str()),
        visible(stat.group.as_str()),
        stat.entry.mode,
    );
    let shown = DirectoryPage {
        frame: visit.frame.titled(visible(name), "/browse/").about(&lfn),
        facts,
        details: url("/entry", &lfn),
        usage: url("/usage", &lfn),
        search: with("/search".to_owned(), "lfn", lfn.as_str()),
        table,
        pager: Pager::new(&url("/browse", &lfn), LIST, &cursor, next.as_ref()),
    };
    page(StatusCode::OK, &shown, Some(room))
}
