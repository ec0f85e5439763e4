//! The page of one entry: its metadata, replicas, tags, members and history.

use askama::Template;
use exacat_model::answer::{ChangeInfo, Stat, Whereis};
use exacat_model::operation::FileRef;
use exacat_model::{
    Answer, Body as EntryBody, ErrorKind, File, Kind, Lfn, Operation, ReplicaState, Result, SeName,
    TimelineId,
};
use exacat_wire::json;
use hyper::{Response, StatusCode};
use serde_json::Value;

use super::super::answers::Body;
use super::browse::ROWS;
use super::frame::{Frame, Link, Pager, Section, page};
use super::relations::{archive, searched};
use super::table::{CODE, Cell, NUMBER, TIME, Table, WIDE};
use super::text::{url, visible, with};
use super::visit::{Visit, unfitting};
use crate::peer::Peer;

/// Changes of a page of a history.
const CHANGES: u32 = 50;
/// Fields of a change that its row names, as the members of a collection.
const FIELDS_SHOWN: usize = 20;
/// Names of the lists in their cursors, and of their parameters.
const HISTORY: (&str, &str) = ("page-of-history", "history");
const MEMBERS: (&str, &str) = ("page-of-members", "members");

/// The page.
#[derive(Template)]
#[template(path = "entry.html")]
struct EntryPage {
    frame: Frame,
    links: Vec<Link>,
    parts: Vec<Section>,
}

/// Answers with the page of an entry.
pub(super) async fn entry(mut visit: Visit<'_>, lfn: &Lfn) -> Result<Response<Body>> {
    let stat = visit.stat(lfn, false).await?;
    let lfn = stat.lfn.clone();
    let kind = stat.entry.kind();
    let mut parts = vec![Section::new("Metadata", metadata(&stat))];
    let mut links = Vec::new();
    match kind {
        Kind::Directory => {
            links.push(Link::new("Browse", url("/browse", &lfn)));
            links.push(Link::new("Usage", url("/usage", &lfn)));
        }
        Kind::File => {
            links.push(Link::new("Download", url("/download", &lfn)));
            if let Some(file) = stat.entry.file() {
                parts.push(Section::new("Replicas", replicas(&mut visit, &lfn, file).await?));
                parts.extend(archive(&mut visit, file).await?);
                parts.extend(searched(&mut visit, &lfn, file.guid, &mut links).await?);
            }
        }
        Kind::Collection => parts.push(members(&mut visit, &lfn).await?),
        Kind::Link => {
            if let EntryBody::Link { target, .. } = &stat.entry.body {
                links.push(Link::new("Follow the link", url("/browse", target)));
            }
        }
    }
    if let Some(above) = lfn.parent() {
        links.push(Link::new("Directory above", url("/browse", &above)));
    }
    links.push(Link::new("Changes since a revision", with("/compare".to_owned(), "under", lfn.as_str())));
    parts.push(Section::new("Tags", tags(&mut visit, &lfn).await?));
    parts.push(history(&mut visit, &lfn).await?);
    let name = lfn.split_last().map_or("/", |(_, name)| name);
    let frame = visit.frame.titled(visible(name), "/browse/").about(&lfn);
    page(StatusCode::OK, &EntryPage { frame, links, parts }, None)
}

fn metadata(stat: &Stat) -> Table {
    let entry = &stat.entry;
    let mut table = Table::new("Metadata", &[("Field", ""), ("Value", CODE)]);
    let mut field = |name: &str, value: Cell| table.push([Cell::text(name), value]);
    field("Path", Cell::text(&stat.lfn));
    field("Kind", Cell::text(entry.kind().name()));
    if let Some(file) = entry.file() {
        field("Size", file.size.map_or_else(|| Cell::text("unknown"), Cell::bytes));
        for checksum in file.checksums.iter() {
            field("Checksum", Cell::text(checksum));
        }
        if let Some(job) = file.job {
            field("Job", Cell::text(job));
        }
    }
    match &entry.body {
        EntryBody::Collection { members, .. } => field("Members", Cell::count(*members)),
        EntryBody::Link { target, .. } => field("Target", Cell::text(target).linked(url("/browse", target))),
        EntryBody::Directory(id) => field("Directory number", Cell::text(id.0)),
        EntryBody::File(_) => {}
    }
    field("Owner", Cell::text(&stat.owner));
    field("Group", Cell::text(&stat.group));
    field("Mode", Cell::text(entry.mode));
    field("Created (UTC)", Cell::time(entry.created));
    field("Modified (UTC)", Cell::time(entry.modified));
    if let Some(expires) = entry.expires {
        field("Expires (UTC)", Cell::time(expires));
    }
    if let Some(guid) = entry.guid() {
        field("GUID", Cell::text(guid));
    }
    field("Revision", Cell::text(entry.revision.0));
    table
}

/// Returns the replicas that are offered, best first, then the others. The site is a part of the name of a
/// storage element, by convention; other names tell no site.
async fn replicas(visit: &mut Visit<'_>, lfn: &Lfn, file: &File) -> Result<Table> {
    let site = match visit.conversation.peer {
        Peer::Network(peer) => visit.conversation.face.places.site_of(peer.ip()),
        Peer::Local { .. } => None,
    };
    let columns = [("Storage element", ""), ("Site", ""), ("State", ""), ("Status", WIDE), ("PFN", CODE)];
    let mut table = Table::new("Replicas, best first", &columns);
    let files = vec![FileRef::Lfn(lfn.clone())];
    let found = match visit.call.ask(Operation::Whereis { files, site }).await? {
        Answer::Whereis(mut found) => found.pop().unwrap_or_else(|| Err(unfitting())),
        _ => return Err(unfitting()),
    };
    let found: Whereis = match found {
        Ok(found) => found,
        // Its metadata may be seen all the same.
        Err(error) if error.kind == ErrorKind::Denied => {
            table.empty = "You may not read the file, or not the archive that it is in.";
            return Ok(table);
        }
        Err(error) => return Err(error),
    };
    table.empty = "No replica is known.";
    for replica in &found.replicas {
        let se = replica.se.as_ref().and_then(|name| visit.call.service.catalogue.storage_element(name));
        table.push([
            replica.se.as_ref().map_or_else(|| Cell::text("in an archive"), Cell::text),
            Cell::maybe(replica.se.as_ref().and_then(SeName::site)),
            Cell::text(replica.state.name()),
            Cell::maybe(se.map(|se| se.status.name())),
            Cell::text(&replica.pfn),
        ]);
    }
    let others = file
        .replicas
        .iter()
        .filter(|replica| matches!(replica.state, ReplicaState::Copying | ReplicaState::Lost));
    for replica in others.filter(|replica| !replica.is_member()) {
        let se = visit.call.service.catalogue.storage_element_numbered(replica.se);
        table.push([
            se.as_ref().map_or_else(|| Cell::text("a former storage element"), |se| Cell::text(&se.name)),
            Cell::maybe(se.as_ref().and_then(|se| se.name.site())),
            Cell::text(replica.state.name()),
            Cell::maybe(se.as_ref().map(|se| se.status.name())),
            Cell::text("not readable"),
        ]);
    }
    Ok(table)
}

async fn tags(visit: &mut Visit<'_>, lfn: &Lfn) -> Result<Table> {
    let found = match visit.call.ask(Operation::TagGet { lfns: vec![lfn.clone()], own: false }).await? {
        Answer::Tags(mut found) => found.pop().unwrap_or_else(|| Err(unfitting()))?,
        _ => return Err(unfitting()),
    };
    let mut table =
        Table::new("Tags in force", &[("Key", ""), ("Value", ""), ("Type", WIDE), ("Set on", "")]);
    table.empty = "No tag is in force.";
    for found in &found {
        let value = match json::tag_value(&found.tag.value) {
            Value::String(text) => text,
            other => other.to_string(),
        };
        table.push([
            Cell::text(&found.tag.key),
            Cell::text(value),
            Cell::text(found.tag.value.type_name()),
            Cell::lfn(&found.from),
        ]);
    }
    Ok(table)
}

async fn members(visit: &mut Visit<'_>, lfn: &Lfn) -> Result<Section> {
    let cursor = visit.query.cursor(MEMBERS)?;
    let list = Operation::CollectionMembers { lfn: lfn.clone(), cursor: cursor.clone(), limit: ROWS };
    let (answer, _room) = visit.call.page(list, ROWS).await?;
    let Answer::Members { items, next, .. } = answer else { return Err(unfitting()) };
    let mut table = Table::new("Members", &[("File", ""), ("Size", NUMBER), ("GUID", CODE)]);
    table.empty = "The collection has no members.";
    for member in &items {
        let stat = member.stat.as_ref();
        let size = stat.and_then(|stat| stat.entry.file()).and_then(|file| file.size);
        table.push([
            stat.map_or_else(|| Cell::text("not in the catalogue now"), |stat| Cell::lfn(&stat.lfn)),
            size.map_or_else(Cell::default, Cell::bytes),
            Cell::text(member.guid),
        ]);
    }
    let pager = Pager::new(&url("/entry", lfn), MEMBERS, &cursor, next.as_ref());
    Ok(Section { pager, ..Section::new("Members", table) })
}

async fn history(visit: &mut Visit<'_>, lfn: &Lfn) -> Result<Section> {
    let cursor = visit.query.cursor(HISTORY)?;
    let list = Operation::Log { lfn: lfn.clone(), cursor: cursor.clone(), limit: CHANGES };
    let (answer, _room) = match visit.call.page(list, CHANGES).await {
        // Its metadata may be seen all the same.
        Err(error) if error.kind == ErrorKind::Denied => {
            let empty = "You may not read the entry, so its history is hidden from you.";
            return Ok(Section::new("History", Table { empty, ..Table::default() }));
        }
        found => found?,
    };
    let Answer::Changes { items, next, cut, timeline, .. } = answer else { return Err(unfitting()) };
    let mut table = changes(visit, "History, oldest first", (&items, timeline), false);
    table.empty = "The history keeps no change of it.";
    let heading = if cut { "History (earlier changes are not kept)" } else { "History" };
    let pager = Pager::new(&url("/entry", lfn), HISTORY, &cursor, next.as_ref());
    Ok(Section { pager, ..Section::new(heading, table) })
}

/// Makes a table of changes; with their entries, unless all are of one.
pub(super) fn changes(
    visit: &Visit<'_>,
    caption: &str,
    (items, timeline): (&[ChangeInfo], TimelineId),
    with_entries: bool,
) -> Table {
    let mut columns =
        vec![("Revision", ""), ("Time (UTC)", TIME), ("User", ""), ("Change", ""), ("Detail", CODE)];
    if with_entries {
        columns.insert(4, ("Entry", ""));
    }
    let mut table = Table::new(caption, &columns);
    let ses = visit.conversation.face.ses();
    for info in items {
        let change = &info.change;
        let shown = json::change(info, timeline, &ses);
        let mut row = vec![
            Cell::text(change.revision.0),
            Cell::time(change.time),
            Cell::text(&info.who),
            Cell::text(change.effect.name()),
            Cell::text(detail(&shown)),
        ];
        if with_entries {
            row.insert(4, info.lfn.as_ref().map_or_else(Cell::default, Cell::lfn));
        }
        table.push(row);
    }
    table
}

/// Returns the rest of a change in words.
fn detail(change: &Value) -> String {
    let text = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut words = Vec::new();
    let fields = change["fields"].as_array().map_or(&[][..], Vec::as_slice);
    for field in fields.iter().take(FIELDS_SHOWN) {
        let name = text(field.get("key").unwrap_or(&field["field"]));
        if let Some(guid) = field.get("guid") {
            let word = if field["added"] == true { "added" } else { "removed" };
            words.push(format!("{word} {}", text(guid)));
            continue;
        }
        match (field.get("before"), field.get("after")) {
            (Some(before), Some(after)) if !before.is_null() => {
                words.push(format!("{name}: {} to {}", text(before), text(after)));
            }
            (_, Some(after)) => words.push(format!("{name}: {}", text(after))),
            _ => words.push(name),
        }
    }
    if fields.len() > FIELDS_SHOWN {
        words.push(format!("and {} more", fields.len() - FIELDS_SHOWN));
    }
    let place = |place: &Value| match (place["directory"].as_str(), place["name"].as_str()) {
        (Some("/"), Some(name)) => format!("/{name}"),
        (Some(directory), Some(name)) => format!("{directory}/{name}"),
        (None, Some(name)) => format!("a former directory/{name}"),
        _ => "a hidden place".to_owned(),
    };
    for (key, word) in [("from", "from"), ("to", "to")] {
        if let Some(at) = change.get(key) {
            words.push(format!("{word} {}", place(at)));
        }
    }
    for key in ["removed_from", "se", "record", "name"] {
        if let Some(value) = change.get(key) {
            words.push(format!("{} {}", key.replace('_', " "), text(value)));
        }
    }
    words.join("; ")
}
