//! The states of requests: they add up to the life of the request, and waits have their names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use exacat_model::operation::{Existing, FileRef, NewFile};
use exacat_model::{Cursor, Operation, Revision};
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
    for state in ["decode", "execute", "encode", "decide", "commit_queue", "log_sync", "history_read"] {
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
