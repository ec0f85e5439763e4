//! Throttles of this server, with the requests that they hold up.

use exacat_model::{Answer, Operation, Result};
use exacat_wire::json;
use hyper::Response;

use super::super::answers::Body;
use super::frame::{Link, Section};
use super::table::{Cell, NUMBER, Table};
use super::tables::TablesPage;
use super::text::with;
use super::visit::{Visit, unfitting};

/// Path of the page.
pub(super) const PATH: &str = "/throttles";

/// Answers with all throttles.
pub(super) async fn throttles(mut visit: Visit<'_>) -> Result<Response<Body>> {
    let Answer::Throttles(all) = visit.call.ask(Operation::ThrottleList).await? else {
        return Err(unfitting());
    };
    let columns = [
        ("Users", ""),
        ("Items/s", NUMBER),
        ("Waiting", NUMBER),
        ("Delayed", NUMBER),
        ("Refused", NUMBER),
        ("End", ""),
    ];
    let mut table = Table::new("Throttles", &columns);
    table.empty = "No user is throttled on this server.";
    for one in &all {
        let users = json::throttled(one.owner.as_ref());
        let end = with("/action/throttle-clear".to_owned(), "of", &users);
        table.push([
            Cell::text(&users),
            Cell::count(one.items_per_second),
            Cell::count(one.waiting),
            Cell::count(one.delayed),
            Cell::count(one.refused),
            Cell::text("End").linked(end),
        ]);
    }
    let parts = vec![Section::new("Throttles of this server", table).named("throttles")];
    let links = vec![
        Link::new("Throttle users", "/action/throttle-set"),
        Link::new("Requests in progress", "/requests"),
    ];
    let intro = "Requests that wait for a throttle are in the state throttle.".to_owned();
    let frame = visit.frame.titled("Throttles", "/requests");
    TablesPage { frame, intro, links, parts, ..TablesPage::default() }.answer(&visit, None)
}
