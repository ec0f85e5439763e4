//! Storage elements: usage, failures, deletion queues, and their permitted use.

use exacat_model::answer::SeUsage;
use exacat_model::{Answer, Cursor, Operation, Result};
use hyper::Response;

use super::super::answers::Body;
use super::frame::Section;
use super::table::{CODE, Cell, NUMBER, TIME, Table, WIDE, WIDE_NUMBER};
use super::tables::TablesPage;
use super::text::{count, with};
use super::visit::{Visit, unfitting};
use crate::visits::Visited;

/// Most deletion queues of the page.
const QUEUES_SHOWN: usize = 50;
/// Deletions at the head of a queue that are read, to find one whose copy is not in use again.
const LOOKED_AT: u32 = 100;

/// Answers with all storage elements, and their sums.
pub(super) async fn storage(mut visit: Visit<'_>) -> Result<Response<Body>> {
    // Only operators may know what clients met with, and what waits to be deleted.
    let may_know = visit.frame.is_operator;
    let Answer::Ses(all) = visit.call.ask(Operation::SeList).await? else { return Err(unfitting()) };
    let mut columns = vec![
        ("Storage element", ""),
        ("Status", ""),
        ("Replicas", NUMBER),
        ("Bytes", NUMBER),
        ("To delete", NUMBER),
        ("Bytes to delete", NUMBER),
        ("Quality", WIDE),
        ("Prefix", CODE),
    ];
    if may_know {
        columns.splice(6..6, [("Clients sent", WIDE_NUMBER), ("Failures", NUMBER), ("Rank", WIDE)]);
    }
    let mut table = Table::new("Storage elements", &columns);
    table.empty = "There is no storage element.";
    let sum = |of: fn(&SeUsage) -> u128| all.iter().map(of).sum::<u128>();
    let bytes = sum(|se| se.used.replica_bytes);
    let mut visits = Visited::default();
    for item in &all {
        let mut status = Cell::text(item.se.status.name());
        if visit.frame.is_operator {
            status = status.linked(with("/action/se-status".to_owned(), "of", item.se.name.as_str()));
        }
        let qualities: Vec<String> = item.se.qos.iter().map(ToString::to_string).collect();
        let mut row = vec![
            Cell::text(&item.se.name),
            status,
            Cell::count(item.used.replicas),
            Cell::bytes(item.used.replica_bytes).barred(item.used.replica_bytes, bytes),
            Cell::count(item.deletions.replicas),
            Cell::bytes(item.deletions.replica_bytes),
            Cell::text(qualities.join(" ")),
            Cell::text(&item.se.prefix),
        ];
        if may_know {
            let visited = visit.call.service.instruments.visits.of(item.se.number);
            visits.by_xrootd += visited.by_xrootd;
            visits.by_http += visited.by_http;
            visits.failures += visited.failures;
            row.splice(6..6, met(visited, visit.conversation.face.places.is_doubtful(item.se.number)));
        }
        table.push(row);
    }
    if all.len() > 1 {
        let mut row = vec![
            Cell::text("All"),
            Cell::default(),
            Cell::count(sum(|se| u128::from(se.used.replicas))),
            Cell::bytes(bytes),
            Cell::count(sum(|se| u128::from(se.deletions.replicas))),
            Cell::bytes(sum(|se| se.deletions.replica_bytes)),
            Cell::default(),
            Cell::default(),
        ];
        if may_know {
            row.splice(6..6, met(visits, false));
        }
        table.push(row);
    }
    let mut intro =
        "Storage elements tell the catalogue neither their free space nor their errors.".to_owned();
    let mut parts = vec![Section::new("All storage elements", table).named("storage")];
    if may_know {
        intro.push_str(
            " Failures are those that clients of XRootD reported to this server since it was started; after several, \
             other storage elements are tried first for a while.",
        );
        parts.push(queues(&mut visit, all).await?);
    }
    let frame = visit.frame.titled("Storage elements", "/storage");
    TablesPage { frame, intro, parts, ..TablesPage::default() }.answer(&visit, None)
}

/// Returns the cells of what clients met with.
fn met(visited: Visited, is_doubtful: bool) -> [Cell; 3] {
    let rank = if is_doubtful { "tried last, after failures" } else { "" };
    [Cell::count(visited.by_xrootd + visited.by_http), Cell::count(visited.failures), Cell::text(rank)]
}

/// Returns the oldest deletion of each storage element that has some to do, the longest queues first.
async fn queues(visit: &mut Visit<'_>, mut all: Vec<SeUsage>) -> Result<Section> {
    all.retain(|item| item.deletions.replicas > 0);
    all.sort_by_key(|item| std::cmp::Reverse(item.deletions.replicas));
    let number = all.len();
    let columns = [
        ("Storage element", ""),
        ("To delete", NUMBER),
        ("Oldest since (UTC)", TIME),
        ("Size of the oldest", WIDE_NUMBER),
        ("PFN of the oldest", CODE),
    ];
    let mut table = Table::new("Deletion queues", &columns);
    table.empty = "No storage element has anything to delete.";
    for item in all.into_iter().take(QUEUES_SHOWN) {
        let name = item.se.name;
        let list = Operation::SeDeletions { name: name.clone(), cursor: Cursor::default(), limit: LOOKED_AT };
        let Answer::Deletions { items, .. } = visit.call.ask(list).await? else { return Err(unfitting()) };
        let oldest = items.first();
        table.push([
            Cell::text(name),
            Cell::count(item.deletions.replicas),
            oldest.map_or_else(|| Cell::text("in use again"), |oldest| Cell::time(oldest.queued)),
            oldest.and_then(|oldest| oldest.size).map_or_else(Cell::default, Cell::bytes),
            Cell::text(oldest.map_or("", |oldest| oldest.pfn.as_str())),
        ]);
    }
    let heading = match number {
        0..=QUEUES_SHOWN => "Deletion queues".to_owned(),
        _ => format!("Deletion queues, the {QUEUES_SHOWN} longest of {}", count(number as u128)),
    };
    Ok(Section::new(heading, table).named("queues"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Property: clients of both protocols are counted together, and several failures are told in words.
    #[test]
    fn failures_and_rank_are_told() {
        let mut table = Table::new("c", &[("Sent", NUMBER), ("Failures", NUMBER), ("Rank", WIDE)]);
        table.push(met(Visited { by_xrootd: 2, by_http: 3, failures: 4 }, true));
        table.push(met(Visited::default(), false));
        let csv = table.csv();
        assert!(csv.contains("\"5\",\"4\",\"tried last, after failures\"\r\n\"0\",\"0\",\"\""), "{csv}");
    }
}
