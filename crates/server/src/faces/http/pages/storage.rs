//! Storage elements: usage, deletion queues, and their permitted use.

use exacat_model::answer::SeUsage;
use exacat_model::{Answer, Operation, Result};
use hyper::Response;

use super::super::answers::Body;
use super::frame::Section;
use super::table::{CODE, Cell, NUMBER, Table, WIDE};
use super::tables::TablesPage;
use super::text::with;
use super::visit::{Visit, unfitting};

/// Answers with all storage elements, and their sums.
pub(super) async fn storage(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let Answer::Ses(all) = visit.call.ask(Operation::SeList).await? else { return Err(unfitting()) };
    let columns = [
        ("Storage element", ""),
        ("Status", ""),
        ("Replicas", NUMBER),
        ("Bytes", NUMBER),
        ("To delete", NUMBER),
        ("Bytes to delete", NUMBER),
        ("Quality", WIDE),
        ("Prefix", CODE),
    ];
    let mut table = Table::new("Storage elements", &columns);
    table.empty = "There is no storage element.";
    let sum = |of: fn(&SeUsage) -> u128| all.iter().map(of).sum::<u128>();
    let bytes = sum(|se| se.used.replica_bytes);
    for item in &all {
        let mut status = Cell::text(item.se.status.name());
        if visit.frame.is_operator {
            status = status.linked(with("/action/se-status".to_owned(), "of", item.se.name.as_str()));
        }
        let qualities: Vec<String> = item.se.qos.iter().map(ToString::to_string).collect();
        table.push([
            Cell::text(&item.se.name),
            status,
            Cell::count(item.used.replicas),
            Cell::bytes(item.used.replica_bytes).barred(item.used.replica_bytes, bytes),
            Cell::count(item.deletions.replicas),
            Cell::bytes(item.deletions.replica_bytes),
            Cell::text(qualities.join(" ")),
            Cell::text(&item.se.prefix),
        ]);
    }
    if all.len() > 1 {
        table.push([
            Cell::text("All"),
            Cell::default(),
            Cell::count(sum(|se| u128::from(se.used.replicas))),
            Cell::bytes(bytes),
            Cell::count(sum(|se| u128::from(se.deletions.replicas))),
            Cell::bytes(sum(|se| se.deletions.replica_bytes)),
            Cell::default(),
            Cell::default(),
        ]);
    }
    let intro = "Storage elements tell the catalogue neither their free space nor their errors.".to_owned();
    let parts = vec![Section::new("All storage elements", table).named("storage")];
    let frame = visit.frame.titled("Storage elements", "/storage");
    TablesPage { frame, intro, parts, ..TablesPage::default() }.answer(&visit, None)
}
