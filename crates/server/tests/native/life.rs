//! From start to stop: files of the data directory, requests in flight, and the state after the
//! next start.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{Answer, ErrorKind, Lfn, Operation};
use exacat_server::{Server, ServerSettings, StoreChoice};
use exacat_wire::native::{Credentials, Frame, Secret};

use crate::client::{Client, eventually, soon};
use crate::metrics::http;
use crate::world::{World, lfn};

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_directory_is_private_where_it_must_be() {
    let world = World::new().await;
    let data = world.data();
    assert_eq!(mode(&data), 0o700);
    for name in ["server.key", "admin.token", "exacat.sock"] {
        assert_eq!(mode(&data.join(name)), 0o600, "{name}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(data.join("server.json")).unwrap()).unwrap();
    assert_eq!(json["native"], world.server.addresses.native.unwrap().to_string());
    assert_eq!(json["http"], world.server.addresses.http.unwrap().to_string());
    assert_eq!(json["socket"], data.join("exacat.sock").to_str().unwrap());
    assert_eq!(json["certificate"], data.join("server.crt").to_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_use_is_refused() {
    let world = World::new().await;
    let error = Server::start(ServerSettings::new(world.data())).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("another server"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_refused_and_the_store_closed() {
    let world = World::new().await;
    let directory = tempfile::tempdir().unwrap();
    let start = |native| {
        Server::start(ServerSettings {
            native,
            store: StoreChoice::Embedded,
            ..ServerSettings::new(directory.path())
        })
    };
    let error = start(world.server.addresses.native).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("cannot listen"), "{error}");
    let server = start(ServerSettings::new("").native).await.unwrap();
    server.shutdown();
    server.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_what_is_in_flight_and_refuses_the_rest() {
    let world = World::new().await;
    world.files("/d", 3000).await;
    let mut writer = Client::admin(&world).await;
    let mut idle = Client::admin(&world).await;
    let mut silent = Client::connect(&world).await;
    silent.hello().await;
    let before = world.hooks.applies_begun.load(Ordering::SeqCst);
    world.hooks.hold_applies.send_replace(true);
    let write = writer.ask(Operation::Mkdir { lfns: vec![lfn("/a")], parents: false, mode: None }).await;
    eventually("the write to be begun", || world.hooks.applies_begun.load(Ordering::SeqCst) > before).await;

    world.server.shutdown();
    for client in [&mut writer, &mut idle] {
        assert!(matches!(client.expect().await, (0, Frame::Goodbye { .. })));
    }
    assert_eq!(silent.expect_refusal().await.kind, ErrorKind::Unavailable);
    assert_eq!(http(&world, "GET", "/readyz").await.0, 503);
    let late = writer.ask(Operation::Mkdir { lfns: vec![lfn("/b")], parents: false, mode: None }).await;
    assert_eq!(writer.outcome(late).await.unwrap_err().kind, ErrorKind::Unavailable);
    eventually("the socket to go", || !world.data().join("exacat.sock").exists()).await;
    let native = world.server.addresses.native.unwrap();
    soon("connections to be refused", async {
        while tokio::net::TcpStream::connect(native).await.is_ok() {}
    })
    .await;
    assert_eq!(world.hooks.closed.load(Ordering::SeqCst), 0, "not closed before all is done");

    world.hooks.hold_applies.send_replace(false);
    assert!(matches!(writer.outcome(write).await, Ok(Answer::EachDone(items)) if items == [Ok(())]));
    assert_eq!(idle.next().await, None);
    assert_eq!(writer.next().await, None);
    let World { server, hooks, directory, .. } = world;
    soon("the end", server.wait()).await.unwrap();
    assert_eq!(hooks.closed.load(Ordering::SeqCst), 1);
    assert!(!directory.path().join("data/server.json").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_ever() {
    let world = World::with_limits(|limits| limits.stop_time = Duration::from_millis(100)).await;
    let mut client = Client::admin(&world).await;
    let before = world.hooks.applies_begun.load(Ordering::SeqCst);
    world.hooks.hold_applies.send_replace(true);
    client.ask(Operation::Mkdir { lfns: vec![lfn("/a")], parents: false, mode: None }).await;
    eventually("the write to be begun", || world.hooks.applies_begun.load(Ordering::SeqCst) > before).await;
    world.server.shutdown();
    let World { server, hooks, .. } = world;
    soon("the end", server.wait()).await.unwrap();
    assert_eq!(hooks.closed.load(Ordering::SeqCst), 1);
    hooks.hold_applies.send_replace(false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_what_only_waits() {
    let world = World::with_limits(|limits| limits.stop_time = Duration::from_secs(3600)).await;
    world.files("/d", 10).await;
    let mut client = Client::admin(&world).await;
    let list = Operation::List { lfn: lfn("/d"), cursor: Default::default(), limit: 1 };
    let options = exacat_wire::native::RequestOptions { stream: Some(1), ..Default::default() };
    let stream = client.ask_with(options, list).await;
    assert!(matches!(client.expect().await, (id, Frame::Part(_)) if id == stream));
    let wait = Operation::Changes {
        after: exacat_model::Revision(u64::MAX - 1).into(),
        under: None,
        limit: 1,
        wait: true,
    };
    client.ask(wait).await;
    client.send(0, Frame::Ping(1)).await;
    assert_eq!(client.expect().await, (0, Frame::Pong(1)));
    world.server.shutdown();
    assert!(matches!(client.expect().await, (0, Frame::Goodbye { .. })));
    for _ in 0..2 {
        match client.expect().await {
            (_, Frame::Error(error)) => assert_eq!(error.kind, ErrorKind::Unavailable),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.next().await, None);
    let World { server, .. } = world;
    soon("the end", server.wait()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_server_stops_it() {
    let world = World::new().await;
    let World { server, hooks, directory: _directory, .. } = world;
    drop(server);
    eventually("the store to be closed", || hooks.closed.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let start = || async { Server::start(ServerSettings::new(directory.path())).await.unwrap() };
    let connect = |server: &exacat_server::RunningServer| {
        let path = server.addresses.socket.clone().unwrap();
        async move {
            let mut client = Client::new(tokio::net::UnixStream::connect(path).await.unwrap());
            let ack = client.hello().await;
            client.authenticate(Credentials::Local).await.unwrap();
            (client, ack.catalogue)
        }
    };
    let server = start().await;
    let (mut client, catalogue) = connect(&server).await;
    let token = std::fs::read_to_string(&server.addresses.admin_token).unwrap();
    let certificate = std::fs::read_to_string(&server.addresses.certificate).unwrap();
    let files: Vec<Lfn> = (0..100).map(|number| lfn(&format!("/d/{number}"))).collect();
    let register = Operation::Register {
        files: files.iter().cloned().map(NewFile::named).collect(),
        parents: true,
        existing: Existing::Refuse,
    };
    client.call(register).await.unwrap();
    server.shutdown();
    soon("the end", server.wait()).await.unwrap();

    // A killed server leaves its socket behind.
    drop(std::os::unix::net::UnixListener::bind(directory.path().join("exacat.sock")).unwrap());
    let server = start().await;
    let (mut client, same) = connect(&server).await;
    assert_eq!(same, catalogue);
    assert_eq!(std::fs::read_to_string(&server.addresses.admin_token).unwrap(), token, "made once");
    assert_eq!(std::fs::read_to_string(&server.addresses.certificate).unwrap(), certificate);
    match client.call(Operation::Stat { lfns: files, follow: true }).await.unwrap() {
        Answer::Stats(items) => assert!(items.iter().all(Result::is_ok)),
        other => panic!("{other:?}"),
    }
    let mut with_token =
        Client::new(tokio::net::UnixStream::connect(server.addresses.socket.clone().unwrap()).await.unwrap());
    with_token.hello().await;
    with_token.authenticate(Credentials::Token(Secret::new(token.trim()))).await.unwrap();
    server.shutdown();
    soon("the end", server.wait()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_work_and_can_be_stopped() {
    let world = World::with(|settings| {
        settings.workers.enabled = true;
        settings.workers.interval = Duration::from_millis(5);
    })
    .await;
    world.files("/d", 1).await;
    let attributes = vec![exacat_model::operation::Attribute::Expires(Some(exacat_model::TimeMs(1)))];
    assert_eq!(world.server.worker_names().len(), 4);
    world.server.enable_worker("entry-expiry", false).unwrap();
    let steps = || async { world.figure("workers", "entry-expiry_steps").await };
    // A running step ends. After two equal reads, while other workers continue, the worker has
    // stopped.
    let stopped_at = soon("the worker to stand", async {
        loop {
            let before = steps().await;
            let others = world.figure("workers", "trash-purge_steps").await;
            while world.figure("workers", "trash-purge_steps").await < others + 3 {}
            if steps().await == before {
                return before;
            }
        }
    })
    .await;
    world.admin(Operation::SetAttributes { lfns: vec![lfn("/d/f000000")], attributes }).await;
    let stat = || Operation::Stat { lfns: vec![lfn("/d/f000000")], follow: true };
    let mut client = Client::admin(&world).await;
    assert!(matches!(client.call(stat()).await.unwrap(), Answer::Stats(items) if items[0].is_ok()));
    assert_eq!(steps().await, stopped_at);
    world.server.enable_worker("entry-expiry", true).unwrap();
    soon("the entry to expire", async {
        while matches!(client.call(stat()).await.unwrap(), Answer::Stats(items) if items[0].is_ok()) {}
    })
    .await;
    assert!(world.figure("workers", "entry-expiry_done").await >= 1);
}
