//! The trash: removed entries, and their way back.

use askama::Template;
use exacat_model::{Answer, HasRevision, Lfn, OnTimeline, Operation, Result, TrashId};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};

use super::super::answers::Body;
use super::frame::{Frame, Link, Pager, page, redirect};
use super::text::{bytes, count, time, url, visible};
use super::visit::{Visit, unfitting};

/// Items of a page.
const ITEMS: u32 = 100;
/// Names of the lists in their cursors, and of their parameter.
const OWN: (&str, &str) = ("page-of-trash", "cursor");
const INSIDE: (&str, &str) = ("page-of-trash-inside", "cursor");

/// An item.
struct Item {
    id: String,
    /// Its former path as people see it, and as it is.
    lfn: String,
    exact: String,
    facts: String,
}

/// The page.
#[derive(Template)]
#[template(path = "trash.html")]
struct TrashPage {
    frame: Frame,
    links: Vec<Link>,
    items: Vec<Item>,
    is_inside: bool,
    pager: Pager,
}

/// Answers with a page of the trash: the person's own items, for an operator all; or the person's
/// entries inside directories that others removed.
pub(super) async fn trash(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let is_inside = visit.query.get("inside").is_some();
    let list = if is_inside { INSIDE } else { OWN };
    let cursor = visit.query.cursor(list)?;
    let operation = match is_inside {
        true => Operation::TrashParts { cursor: cursor.clone(), limit: ITEMS },
        false => Operation::TrashList { cursor: cursor.clone(), limit: ITEMS },
    };
    let (answer, room) = visit.call.page(operation, ITEMS).await?;
    let Answer::Trash { items, timeline, next } = answer else { return Err(unfitting()) };
    let items = items.iter().map(|(item, who)| {
        let usage = &item.usage;
        let facts = format!(
            "{}, {} files, {}; removed by {} on {} UTC",
            item.entry.kind().name(),
            count(u128::from(usage.files + usage.members)),
            bytes(usage.bytes + usage.member_bytes),
            visible(who),
            time(item.removed),
        );
        let id = item.id.on(timeline.tag()).to_string();
        Item { id, lfn: visible(item.lfn.as_str()), exact: item.lfn.to_string(), facts }
    });
    let (title, here, other) = match is_inside {
        true => ("Inside removed directories", "/trash?inside=yes", Link::new("All of the trash", "/trash")),
        false => {
            ("Trash", "/trash", Link::new("Inside directories that others removed", "/trash?inside=yes"))
        }
    };
    let shown = TrashPage {
        frame: visit.frame.titled(title, "/trash"),
        links: vec![other],
        items: items.collect(),
        is_inside,
        pager: Pager::new(here, list, &cursor, next.as_ref()),
    };
    page(StatusCode::OK, &shown, Some(room))
}

/// Restores an item, and shows the entry.
pub(super) async fn restore(mut visit: Visit<'_>, body: &mut Option<Incoming>) -> Result<Response<Body>> {
    let fields = visit.form(body).await?;
    let id: OnTimeline<TrashId> = fields.required("id")?;
    let to: Option<Lfn> = fields.parsed("to")?;
    let part: Option<Lfn> = fields.parsed("part")?;
    let restored = to.clone().or_else(|| part.clone());
    let operation = match part {
        None => Operation::TrashRestore { id, to },
        Some(lfn) => Operation::TrashRestorePart { id, lfn, to },
    };
    match visit.call.ask(operation).await? {
        Answer::Done { .. } => {}
        _ => return Err(unfitting()),
    }
    let requester = visit.call.requester();
    tracing::info!(
        request = visit.call.number(),
        user = requester.user(),
        client = requester.client(),
        item = %id,
        "restored from the trash, by a page"
    );
    Ok(redirect(&restored.map_or_else(|| "/trash".to_owned(), |lfn| url("/entry", &lfn.of_anything()))))
}
