//! PROPFIND: an entry, a directory with its children, or everything below it.

use std::sync::Arc;

use exacat_model::answer::Stat;
use exacat_model::query::Filter;
use exacat_model::{Answer, Cursor, Entry, Kind, Measured, Operation, Result};
use exacat_wire::webdav::headers::{Depth, depth};
use exacat_wire::webdav::limits::BODY_BYTES_MAX;
use exacat_wire::webdav::path::encode;
use exacat_wire::webdav::request::propfind as read;
use exacat_wire::webdav::status::{Precondition, error, push_failure};
use exacat_wire::webdav::{Live, Multistatus, Row};
use hyper::StatusCode;
use tokio::sync::mpsc;

use super::super::answers::{Body, BodyPart, CancelOnDrop, answer, in_room};
use super::super::call::{Pages, rows_at_once};
use super::{BELOW, Outcome, PREFIX, Refused, Request};
use crate::faces::errors::http_status;

/// Content type of the answers.
const XML: &str = "application/xml; charset=utf-8";
/// Most entries below a directory that one request lists at any depth.
const DEEP_ENTRIES_MAX: u64 = 10_000;
/// Parts of an answer between the work on it and the connection.
const PARTS_AHEAD: usize = 2;

/// Answers PROPFIND.
pub(super) async fn propfind(mut request: Request<'_>) -> Outcome {
    let asked = depth(request.header("depth")?)?;
    let (body, _held) = request.whole(BODY_BYTES_MAX).await?;
    let mut rows = Multistatus::new(&read(&body)?);
    let lfn = request.lfn.clone();
    let stat = request.stat(&lfn, true).await?;
    let is_directory = stat.entry.kind() == Kind::Directory;
    let depth = match asked {
        Some(depth) if is_directory => depth,
        None if is_directory => return Ok(finite()),
        _ => Depth::Zero,
    };
    let quota = quota(&mut request, &rows).await?;
    let mut first = Vec::with_capacity(4096);
    rows.begin(&mut first);
    // The URL of the request, even if it is that of a link.
    let shown = Stat { lfn: lfn.of_anything(), ..stat };
    push(&mut rows, &mut first, BELOW.trim_end_matches('/'), shown.lfn.as_str(), &shown, quota);
    if depth == Depth::Zero {
        rows.end(&mut first);
        return Ok(answer(StatusCode::MULTI_STATUS, XML, first));
    }
    let operation = if depth == Depth::One {
        Operation::List { lfn: shown.lfn.clone(), cursor: Cursor::default(), limit: 0 }
    } else {
        let usage = match request.call.ask(Operation::Du { lfns: vec![shown.lfn.clone()] }).await? {
            Answer::Usages(mut found) => found.pop().unwrap_or_else(|| Err(super::unfitting()))?,
            _ => return Err(super::unfitting().into()),
        };
        if usage.directories + usage.objects() > DEEP_ENTRIES_MAX {
            return Ok(finite());
        }
        let filter = Box::new(Filter::default());
        Operation::Find { lfn: shown.lfn.clone(), filter, cursor: Cursor::default(), limit: 0 }
    };
    let base = encode(&shown.lfn, PREFIX, true);
    let listing = Listing { rows, base, by_name: depth == Depth::One };
    stream(request, operation, first, listing).await
}

/// Refuses a request for everything below a directory.
fn finite() -> hyper::Response<Body> {
    let mut body = Vec::new();
    error(&mut body, Precondition::PropfindFiniteDepth);
    answer(StatusCode::FORBIDDEN, XML, body)
}

/// Returns bytes used and bytes left, if they are asked for.
async fn quota(request: &mut Request<'_>, rows: &Multistatus) -> Result<(Option<u64>, Option<u64>)> {
    if !rows.wants(Live::QuotaUsed) && !rows.wants(Live::QuotaAvailable) {
        return Ok((None, None));
    }
    let bytes = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
    let lfns = vec![request.lfn.clone()];
    let used = match request.call.ask(Operation::Du { lfns }).await? {
        Answer::Usages(mut found) => found.pop().and_then(Result::ok).map(|usage| bytes(usage.bytes)),
        _ => None,
    };
    let left = match request.call.ask(Operation::QuotaGet { owners: Vec::new() }).await {
        Ok(Answer::Quotas(quotas)) => quotas
            .iter()
            .filter_map(|quota| {
                let used = quota.used.bytes + quota.reserved.bytes;
                Some(quota.bytes?.saturating_sub(bytes(used)))
            })
            .min(),
        _ => None,
    };
    Ok((used, left))
}

fn push(
    rows: &mut Multistatus,
    out: &mut Vec<u8>,
    base: &str,
    path: &str,
    stat: &Stat,
    (used, available): (Option<u64>, Option<u64>),
) {
    let etag = revision_text(&stat.entry);
    let row = Row { quota_used: used, quota_available: available, ..Row::of_stat(base, path, &etag, stat) };
    rows.response(out, &row);
}

/// Returns the entity tag of an entry, without quotes.
pub(super) fn revision_text(entry: &Entry) -> String {
    entry.revision.0.to_string()
}

/// The rows of a listing.
struct Listing {
    rows: Multistatus,
    base: String,
    /// True for the children of a directory: rows have their names only.
    by_name: bool,
}

impl Listing {
    fn push(&mut self, out: &mut Vec<u8>, stat: &Stat) {
        let none = (None, None);
        if self.by_name {
            let name = stat.lfn.split_last().map_or("", |(_, name)| name);
            push(&mut self.rows, out, &self.base, name, stat, none);
        } else {
            push(&mut self.rows, out, PREFIX, stat.lfn.as_str(), stat, none);
        }
    }
}

/// Streams the rows of an operation after those of `first`. An error of its first page is the error
/// of the request; a later one ends the listing, with its status at the directory's URL.
async fn stream(request: Request<'_>, operation: Operation, first: Vec<u8>, mut listing: Listing) -> Outcome {
    let cancel = Arc::clone(&request.call.cancel);
    let mut pages = request.call.pages(operation);
    let page = pages.next().await.map_err(Refused::from)?;
    let (sender, parts) = mpsc::channel(PARTS_AHEAD);
    let mut response = answer(StatusCode::MULTI_STATUS, XML, bytes::Bytes::new());
    *response.body_mut() = Body::Parts { parts, _cancel: CancelOnDrop(cancel) };
    tokio::spawn(async move {
        if sender.send(BodyPart::Bytes(first.into())).await.is_err() {
            return;
        }
        let mut last = Vec::new();
        if let Err(error) = put_pages(&mut pages, page, &mut listing, &sender).await {
            push_failure(&mut last, &listing.base, http_status(error.kind));
        }
        listing.rows.end(&mut last);
        if sender.send(BodyPart::Bytes(last.into())).await.is_ok() {
            // The client may be gone.
            let _ = sender.send(BodyPart::End).await;
        }
    });
    Ok(response)
}

async fn put_pages(
    pages: &mut Pages,
    mut page: Option<(Answer, crate::admission::Room)>,
    listing: &mut Listing,
    sender: &mpsc::Sender<BodyPart>,
) -> Result<()> {
    while let Some((answer, room)) = page {
        let Answer::Entries { items, .. } = &answer else { return Err(super::unfitting()) };
        let mut bytes = Vec::with_capacity(items.len() * 512);
        let at_once = rows_at_once(items.len(), answer.bytes());
        let turn = pages.call.turn(items.len(), at_once).await;
        for part in items.chunks(at_once) {
            part.iter().for_each(|stat| listing.push(&mut bytes, stat));
            if turn.is_some() {
                tokio::task::yield_now().await;
            }
        }
        drop(turn);
        let part = BodyPart::Bytes(in_room(bytes, room));
        sender.send(part).await.map_err(|_| crate::service::cancelled())?;
        page = pages.next().await?;
    }
    Ok(())
}
