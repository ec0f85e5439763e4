//! The states of requests: they add up to the life of the request, and waits have their names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use exacat_model::operation::{Existing, FileRef, NewFile};
use exacat_model::{Answer, Cursor, ErrorKind, Operation, Revision};
use exacat_server::{Server, ServerSettings, WorkerSettings};
use exacat_wire::native::{Credentials, RequestOptions};
use tokio::net::UnixStream;

use crate::client::{Client, soon};
use crate::metrics::http_at;
use crate::world::{World, lfn};

/// Greatest share of a request's time without a name.
const UNACCOUNTED_MAX: f64 = 0.05;

/// Times of ended requests, in seconds.
#[derive(Default)]
struct Times {
    /// By operation.
    lives: BTreeMap<String, f64>,
    /// By operation and state.
    states: BTreeMap<(String, String), f64>,
    /// Requests in progress, by state.
    now: BTreeMap<String, f64>,
}

impl Times {
    /// Returns the time of all operations in a state.
    fn of(&self, state: &str) -> f64 {
        self.states.iter().filter(|((_, one), _)| one == state).map(|(_, time)| time).sum()
    }
}

fn label<'a>(line: &'a str, key: &str) -> &'a str {
    let rest = line.split_once(&format!("{key}=\"")).map_or("", |(_, rest)| rest);
    rest.split('"').next().unwrap_or_default()
}

async fn times(metrics: SocketAddr) -> Times {
    let (_, text) = http_at(metrics, "GET", "/metrics").await;
    let mut times = Times::default();
    for line in text.lines() {
        let value = || line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        let (operation, state) = (label(line, "operation").to_owned(), label(line, "state").to_owned());
        if line.starts_with("exacat_request_life_seconds_total{") {
            times.lives.insert(operation, value());
        } else if line.starts_with("exacat_request_state_seconds_total{") {
            times.states.insert((operation, state), value());
        } else if line.starts_with("exacat_requests_in_state{") {
            times.now.insert(state, value());
        }
    }
    times
}

fn register(directory: &str, count: usize) -> Operation {
    let file = |number| NewFile::named(lfn(&format!("{directory}/f{number:06}")));
    Operation::Register { files: (0..count).map(file).collect(), parents: true, existing: Existing::Refuse }
}

fn list(directory: &str) -> Operation {
    Operation::List { lfn: lfn(directory), cursor: Cursor::default(), limit: 0 }
}

/// Under a mixture of single and bulk changes, look-ups, listings and streams on the embedded store,
/// the states of each operation add up to its life, and hardly any time has no name.
#[tokio::test(flavor = "multi_thread")]
async fn states_add_up_to_the_life_of_requests() {
    let place = tempfile::tempdir().unwrap();
    let mut settings = ServerSettings::new(place.path().join("data"));
    settings.workers = WorkerSettings { enabled: false, ..WorkerSettings::default() };
    settings.http.as_mut().unwrap().plain = vec!["127.0.0.0/8".parse().unwrap()];
    let server = Server::start(settings).await.unwrap();
    let mut client =
        Client::new(UnixStream::connect(server.addresses.socket.clone().unwrap()).await.unwrap());
    client.hello().await;
    client.authenticate(Credentials::Local).await.unwrap();
    for round in 0..20 {
        let directory = format!("/d{round}");
        client.call(register(&directory, 1)).await.unwrap();
        client.call(register(&directory, 3000)).await.unwrap();
        let files = (0..100).map(|number| FileRef::Lfn(lfn(&format!("{directory}/f{number:06}")))).collect();
        client.call(Operation::Whereis { files, site: None }).await.unwrap();
        client.call(Operation::Stat { lfns: vec![lfn(&directory)], follow: true }).await.unwrap();
        client.call(list(&directory)).await.unwrap();
        client
            .call(Operation::Mkdir { lfns: vec![lfn(&format!("/new{round}"))], parents: false, mode: None })
            .await
            .unwrap();
    }
    let after = Revision(1).into();
    client.call(Operation::Changes { after, under: None, limit: 100, wait: false }).await.unwrap();
    let times = times(server.addresses.http.unwrap()).await;
    for operation in ["register", "whereis", "stat", "list", "mkdir", "changes"] {
        assert!(times.lives.contains_key(operation), "{operation}: {:?}", times.lives.keys());
    }
    for (operation, life) in &times.lives {
        let states: f64 =
            times.states.iter().filter(|((one, _), _)| one == operation).map(|(_, time)| time).sum();
        // The decimal text of the two figures is rounded.
        assert!((states - life).abs() <= life * 1e-6 + 1e-9, "{operation}: {states} s of {life} s");
    }
    let life: f64 = times.lives.values().sum();
    let unaccounted = times.of("unaccounted");
    assert!(unaccounted <= UNACCOUNTED_MAX * life, "{unaccounted} s of {life} s: {:?}", times.states);
    // Waits that may be over before they are looked at are not among these.
    for state in ["decode", "execute", "encode", "decide", "commit_queue", "log_sync"] {
        assert!(times.of(state) > 0.0, "no time in {state}: {:?}", times.states);
    }
    server.shutdown();
    soon("the end", server.wait()).await.unwrap();
}

/// A wait inside the store that has no name is shown as unaccounted, and not as work of a processor.
#[tokio::test(flavor = "multi_thread")]
async fn wait_without_a_name_is_shown() {
    let world = World::new().await;
    world.directory("/d").await;
    let metrics = world.server.addresses.http.unwrap();
    world.hooks.hold_applies.send_replace(true);
    let mut client = Client::admin(&world).await;
    let request =
        client.ask(Operation::Mkdir { lfns: vec![lfn("/d/one")], parents: false, mode: None }).await;
    soon("the request to wait", async {
        while times(metrics).await.now["unaccounted"] < 1.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Waited for in steps, because a wait without an end is what the test is about.
    let held = Duration::from_millis(50);
    let began = std::time::Instant::now();
    while began.elapsed() < held {
        tokio::task::yield_now().await;
    }
    world.hooks.hold_applies.send_replace(false);
    client.outcome(request).await.unwrap();
    let times = times(metrics).await;
    assert!(times.states[&("mkdir".to_owned(), "unaccounted".to_owned())] >= held.as_secs_f64());
    assert!(times.now.values().all(|count| *count == 0.0), "{:?}", times.now);
}

/// Requests that wait for their turn, for a change, and for a client that does not read, are shown in
/// the waits of these names while they wait and after.
#[tokio::test(flavor = "multi_thread")]
async fn waits_have_their_names() {
    let world = World::with_limits(|limits| limits.heavy_slots = 1).await;
    world.files("/d", 10).await;
    let metrics = world.server.addresses.http.unwrap();
    let waits = |state: &'static str| async move {
        soon(state, async {
            while times(metrics).await.now[state] < 1.0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    world.hooks.hold_lists.send_replace(true);
    let (mut first, mut second) = (Client::admin(&world).await, Client::admin(&world).await);
    let of_first = first.ask(list("/d")).await;
    waits("unaccounted").await;
    let of_second = second.ask(list("/d")).await;
    waits("admission").await;
    world.hooks.hold_lists.send_replace(false);
    first.outcome(of_first).await.unwrap();
    second.outcome(of_second).await.unwrap();
    // A change that is not there yet.
    let after = world.server.catalogue().store().revision().await.unwrap().into();
    let waiting = first.ask(Operation::Changes { after, under: None, limit: 1, wait: true }).await;
    waits("change").await;
    world.directory("/new").await;
    first.outcome(waiting).await.unwrap();
    // A stream whose client grants no credit.
    second.ask_with(RequestOptions { stream: Some(0), ..RequestOptions::default() }, list("/d")).await;
    waits("client_write").await;
    drop(second);
    let times = times(metrics).await;
    assert!(times.of("admission") > 0.0 && times.of("change") > 0.0, "{:?}", times.states);
}

/// A listed request has its user, client, path and state; once it is cancelled it ends, and its client
/// is told. A caller without the role is refused, and an unknown request is not found.
#[tokio::test(flavor = "multi_thread")]
async fn request_in_progress_is_listed_and_cancelled() {
    let world = World::new().await;
    world.files("/d", 10).await;
    let metrics = world.server.addresses.http.unwrap();
    let secret = world.new_user("alice").await;
    world.hooks.hold_lists.send_replace(true);
    let mut alice = Client::with_token(&world, &secret).await;
    let held = alice.ask(list("/d")).await;
    soon("the request to wait", async {
        while times(metrics).await.now["unaccounted"] < 1.0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut admin = Client::admin(&world).await;
    let listed = match admin.call(Operation::Sessions).await.unwrap() {
        Answer::Requests(requests) => requests,
        other => panic!("{other:?}"),
    };
    // The list itself is in progress too.
    let [request, own] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!(own.operation, "sessions");
    assert_eq!((request.operation.as_str(), request.subject.as_str()), ("list", "/d"));
    assert_eq!(request.user, Some(crate::world::account("alice")));
    assert_eq!((request.client.as_str(), request.state.as_str()), ("", "unaccounted"));
    let states: u64 = request.states.iter().map(|(_, us)| us).sum();
    // Each of them is rounded down.
    assert!(states.abs_diff(request.life_us) <= request.states.len() as u64, "{request:?}");
    let id = request.id;
    let mut other = Client::with_token(&world, &secret).await;
    for operation in [Operation::Sessions, Operation::SlowRequests, Operation::SessionKill { id }] {
        let refused = other.call(operation).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Denied, "{refused}");
    }
    let unknown = admin.call(Operation::SessionKill { id: 1 << 40 }).await.unwrap_err();
    assert_eq!(unknown.kind, ErrorKind::NotFound, "{unknown}");
    admin.call(Operation::SessionKill { id }).await.unwrap();
    let told = alice.outcome(held).await.unwrap_err();
    assert!(told.message.starts_with("cancelled"), "{told}");
    let again = admin.call(Operation::SessionKill { id }).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::NotFound, "{again}");
}

/// A request that takes longer than the limit of its class is kept whole.
#[tokio::test(flavor = "multi_thread")]
async fn slow_request_is_kept_with_its_states() {
    let world = World::with_limits(|limits| {
        limits.slow_request = Duration::from_secs(3600);
        limits.slow_long_request = Duration::from_millis(20);
    })
    .await;
    world.files("/d", 10).await;
    *world.hooks.list_time.lock() = Duration::from_millis(30);
    let mut admin = Client::admin(&world).await;
    admin.call(list("/d")).await.unwrap();
    admin.call(Operation::Mkdir { lfns: vec![lfn("/d/x")], parents: false, mode: None }).await.unwrap();
    let slow = soon("the slow request", async {
        loop {
            match admin.call(Operation::SlowRequests).await.unwrap() {
                Answer::Requests(slow) if !slow.is_empty() => return slow,
                Answer::Requests(_) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
    let [one] = &slow[..] else { panic!("{slow:?}") };
    assert_eq!((one.operation.as_str(), one.subject.as_str(), one.state.as_str()), ("list", "/d", "ended"));
    let of_execute = one.states.iter().find(|(state, _)| state == "execute").map_or(0, |(_, us)| *us);
    assert!(of_execute >= 30_000, "{one:?}");
}
