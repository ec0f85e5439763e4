//! Usage of a directory and of its children, as bars.

use exacat_model::{Answer, Lfn, Operation, Result, Usage};
use hyper::Response;

use super::super::answers::Body;
use super::frame::{Link, Pager, Section};
use super::table::{Cell, NUMBER, Table, WIDE_NUMBER};
use super::tables::TablesPage;
use super::text::{bytes, count, url, visible};
use super::visit::{Visit, unfitting};

/// Children of a page. Their usage is one look-up, so there may be many.
const CHILDREN: u32 = 500;
/// Name of the list in its cursors, and of their parameter.
const LIST: (&str, &str) = ("page-of-usage", "cursor");

async fn usages(visit: &mut Visit<'_>, lfns: Vec<Lfn>) -> Result<Vec<Usage>> {
    match visit.call.ask(Operation::Du { lfns }).await? {
        Answer::Usages(found) => found.into_iter().collect(),
        _ => Err(unfitting()),
    }
}

/// Answers with the usage of the children of a directory, the largest of a page first.
pub(super) async fn usage(mut visit: Visit<'_>, lfn: &Lfn) -> Result<Response<Body>> {
    let cursor = visit.query.cursor(LIST)?;
    let own = usages(&mut visit, vec![lfn.clone()]).await?.pop().unwrap_or_default();
    let list = Operation::List { lfn: lfn.clone(), cursor: cursor.clone(), limit: CHILDREN };
    let (answer, room) = visit.call.page(list, CHILDREN).await?;
    let Answer::Entries { items, next, .. } = answer else { return Err(unfitting()) };
    let lfns: Vec<Lfn> = items.into_iter().map(|stat| stat.lfn).collect();
    let found = if lfns.is_empty() { Vec::new() } else { usages(&mut visit, lfns.clone()).await? };
    let mut children: Vec<(Lfn, Usage)> = lfns.into_iter().zip(found).collect();
    children.sort_by_key(|(_, usage)| std::cmp::Reverse(usage.bytes + usage.member_bytes));
    let columns = [
        ("Name", ""),
        ("Bytes", ""),
        ("Files", NUMBER),
        ("Directories", WIDE_NUMBER),
        ("Replicas", WIDE_NUMBER),
        ("Bytes of replicas", WIDE_NUMBER),
    ];
    let name = lfn.split_last().map_or("/", |(_, name)| name);
    let mut table = Table::new(format!("Usage below {}", visible(name)), &columns);
    table.empty = "The directory is empty.";
    let all = own.bytes + own.member_bytes;
    for (lfn, usage) in &children {
        let name = lfn.split_last().map_or("/", |(_, name)| name);
        let place = if usage.directories > 0 { "/usage" } else { "/entry" };
        let bytes = usage.bytes + usage.member_bytes;
        table.push([
            Cell::text(name).linked(url(place, lfn)),
            Cell::bytes(bytes).barred(bytes, all),
            Cell::count(usage.files + usage.members),
            Cell::count(usage.directories),
            Cell::count(usage.replicas),
            Cell::bytes(usage.replica_bytes),
        ]);
    }
    let here = url("/usage", lfn);
    let mut intro = format!(
        "With everything below: {} files, {} of content, {} of replicas. A bar is the share of that content.",
        count(u128::from(own.files + own.members)),
        bytes(all),
        bytes(own.replica_bytes),
    );
    if next.is_some() || !cursor.0.is_empty() {
        intro.push_str(" Each page is sorted for itself.");
    }
    let links = vec![Link::new("Browse", url("/browse", lfn))];
    let pager = Pager::new(&here, LIST, &cursor, next.as_ref());
    let parts = vec![Section { pager, ..Section::new("Children", table).named("usage") }];
    let frame = visit.frame.titled(format!("Usage of {}", visible(name)), "/browse/").about(lfn);
    TablesPage { frame, intro, links, parts, ..TablesPage::default() }.answer(&visit, Some(room))
}
