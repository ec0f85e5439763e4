//! Periods of a server: they have exactly its requests, over restarts too.

use std::path::Path;

use exacat_model::operation::{Existing, NewFile};
use exacat_model::period::Period;
use exacat_model::{Answer, Cursor, ErrorKind, Operation, TimeMs};
use exacat_server::{RunningServer, Server, ServerSettings, WorkerSettings};
use exacat_wire::native::Credentials;
use tokio::net::UnixStream;

use crate::client::{Client, soon};
use crate::world::{World, lfn};

async fn server(data: &Path) -> (RunningServer, Client) {
    let mut settings = ServerSettings::new(data);
    settings.workers = WorkerSettings { enabled: false, ..WorkerSettings::default() };
    let server = Server::start(settings).await.unwrap();
    let mut client =
        Client::new(UnixStream::connect(server.addresses.socket.clone().unwrap()).await.unwrap());
    client.hello().await;
    client.authenticate(Credentials::Local).await.unwrap();
    (server, client)
}

fn activity(from: Option<u64>, to: Option<u64>, parts: u32) -> Operation {
    Operation::Activity { from: from.map(TimeMs), to: to.map(TimeMs), seconds: 3600, parts }
}

async fn periods(client: &mut Client, operation: Operation) -> Vec<Period> {
    match client.call(operation).await.unwrap() {
        Answer::Activity(periods) => periods,
        other => panic!("{other:?}"),
    }
}

fn requests(period: &Period, operation: &str) -> u64 {
    period.operations.iter().find(|one| one.name == operation).map_or(0, |one| one.requests)
}

async fn register(client: &mut Client, names: std::ops::Range<u64>) {
    for name in names {
        let files = vec![NewFile::named(lfn(&format!("/d/f{name}")))];
        let register = Operation::Register { files, parents: true, existing: Existing::Refuse };
        client.call(register).await.unwrap();
    }
}

/// Waits until the server kept a moment with so many registers, and returns the period up to the next one.
/// The first may have a request whose states are not added up yet.
async fn period_with(client: &mut Client, registers: u64) -> Period {
    soon("a moment with all requests", async {
        let mut first = None;
        loop {
            let period = periods(client, activity(None, None, 1)).await.remove(0);
            if requests(&period, "register") >= registers && *first.get_or_insert(period.to) < period.to {
                return period;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// A period has each request once, and the states of an operation add up to its life. A second run of
/// the server adds to the first, which is read from the disk. Equal parts have together what the whole
/// has.
#[tokio::test(flavor = "multi_thread")]
async fn periods_have_each_request_once_also_after_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let (first, mut client) = server(place.path()).await;
    register(&mut client, 0..25).await;
    let period = period_with(&mut client, 25).await;
    assert_eq!((requests(&period, "register"), period.starts), (25, 1));
    let one = period.operations.iter().find(|one| one.name == "register").unwrap();
    assert_eq!((one.items, one.failed), (25, 0));
    let states: u64 = one.states.iter().map(|(_, us)| us).sum();
    assert!(one.life_us > 0 && states.abs_diff(one.life_us) <= one.states.len() as u64, "{one:?}");
    assert!(one.p50_us <= one.p99_us && one.p99_us <= one.max_us && one.max_us > 0, "{one:?}");
    let sync = period.states.iter().find(|one| one.state == "log_sync").unwrap();
    assert_eq!((sync.class.as_str(), sync.requests), ("commit", 25));
    assert!(period.samples > 0 && period.processors > 0);
    assert!(period.threads.iter().any(|one| one.role == "exacat-writer"), "{:?}", period.threads);
    drop(client);
    first.shutdown();
    first.wait().await.unwrap();

    let (second, mut client) = server(place.path()).await;
    register(&mut client, 25..35).await;
    let whole = period_with(&mut client, 35).await;
    assert_eq!((requests(&whole, "register"), whole.starts), (35, 2));
    let parts = periods(&mut client, activity(Some(whole.from.0), Some(whole.to.0), 7)).await;
    assert_eq!(parts.len(), 7);
    assert_eq!(parts.iter().map(|part| requests(part, "register")).sum::<u64>(), 35);
    // The first start is where the first part begins, not in it.
    assert_eq!(parts.iter().map(|part| part.starts).sum::<u64>(), 1);
    // Times before the first start have nothing.
    let none = periods(&mut client, activity(Some(1), Some(whole.from.0 - 1), 1)).await.remove(0);
    assert!(none.operations.is_empty() && none.starts == 0, "{none:?}");
    drop(client);
    second.shutdown();
    second.wait().await.unwrap();
}

/// A damaged file costs what is in it, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_activity_stops_no_server() {
    let place = tempfile::tempdir().unwrap();
    let (first, mut client) = server(place.path()).await;
    register(&mut client, 0..5).await;
    drop(client);
    first.shutdown();
    first.wait().await.unwrap();
    let files = std::fs::read_dir(place.path().join("activity")).unwrap();
    for file in files {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - 3);
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::write(place.path().join("activity/0000000000000.minutes"), "nonsense").unwrap();
    let (second, mut client) = server(place.path()).await;
    register(&mut client, 5..8).await;
    let period = period_with(&mut client, 3).await;
    assert_eq!(requests(&period, "register"), 3);
    drop(client);
    second.shutdown();
    second.wait().await.unwrap();
}

/// Requests in progress are in the samples, with their user, directory and state.
#[tokio::test(flavor = "multi_thread")]
async fn samples_name_who_has_requests_in_progress() {
    let world = World::with_limits(|_| {}).await;
    world.files("/d", 10).await;
    let mut admin = Client::admin(&world).await;
    *world.hooks.list_time.lock() = std::time::Duration::from_millis(2500);
    let listed = admin.ask(Operation::List { lfn: lfn("/d"), cursor: Cursor::default(), limit: 0 }).await;
    admin.outcome(listed).await.unwrap();
    let period = soon("a sample of the list", async {
        loop {
            let period = match admin.call(activity(None, None, 1)).await.unwrap() {
                Answer::Activity(mut periods) => periods.remove(0),
                other => panic!("{other:?}"),
            };
            if requests(&period, "list") > 0 {
                return period;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let of_list = period.directories.iter().find(|one| one.name == "/d").unwrap();
    assert!(of_list.requests >= 1 && of_list.state == "execute", "{of_list:?}");
    assert!(period.users.iter().any(|one| one.name == "admin"), "{:?}", period.users);
    for bad in [activity(Some(2), Some(1), 1), activity(None, None, 0), activity(None, None, 241)] {
        assert_eq!(admin.call(bad).await.unwrap_err().kind, ErrorKind::Invalid);
    }
    assert!(admin.call(activity(Some(0), Some(u64::MAX), 240)).await.is_ok());
}
