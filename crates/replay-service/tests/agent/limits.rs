//! Limits of an agent at their edges, as a service and a server see them.

use exacat_replay::run::outcome::Outcome;
use exacat_replay::run::shapes::ReplayItem;
use exacat_wire::xrootd::numbers::request;

use crate::server::{Server, ServerOf};
use crate::service::Service;
use crate::world::{item, result_of, run, settings};

/// Property: the service permits so many accesses at once, and the agent makes no more. It never keeps more
/// items than its own bound, whatever the service hands out.
#[tokio::test]
async fn service_bounds_the_accesses_at_once() {
    let server = Server::start(ServerOf { size: 10, ..ServerOf::default() }).await;
    let service = Service::start((0..200).map(|number| item(number, "/a", 10)).collect()).await;
    service.book.lock().in_flight = Some(3);
    let mut settings = settings(&service, &server.url());
    settings.cache.is_connected_anew = false;
    settings.prefetch = 40;
    let summary = run(settings).await.unwrap();
    assert_eq!(summary.ok(), 200);
    assert!(server.connections() <= 3, "{}", server.connections());
    let counts: Vec<u32> = service.book.lock().requests.iter().map(|request| request.count).collect();
    assert_eq!(counts[0], 40);
    assert!(counts[1..].iter().all(|count| *count <= 40), "{counts:?}");
}

/// Property: no more reads are under way at once than wanted, none longer than wanted.
#[tokio::test]
async fn reads_ahead_are_bounded() {
    let size = 1 << 20;
    let server = Server::start(ServerOf { size, ..ServerOf::default() }).await;
    let result = result_of(&server.url(), item(1, "/a", size), |settings| {
        settings.cache.read_bytes = 1000;
        settings.cache.reads_ahead = 64;
    })
    .await;
    assert_eq!((result.outcome, result.bytes), (Outcome::Ok, size));
    assert_eq!(server.count(request::READ), 1049);
}

/// Property: the most ranges that a trace has are one access.
#[tokio::test]
async fn most_ranges_of_an_access_are_read() {
    let server = Server::start(ServerOf { size: 1 << 20, ..ServerOf::default() }).await;
    let ranges: Vec<String> = (0..1024).map(|at| format!("{}+7", at * 1000)).collect();
    let one = ReplayItem { reads: ranges.join(","), ..item(1, "/a", 1 << 20) };
    let result = result_of(&server.url(), one, |_| {}).await;
    assert_eq!((result.outcome, result.bytes, server.count(request::READV)), (Outcome::Ok, 7168, 1));
}
