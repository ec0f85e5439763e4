//! Bounds at their edges, fairness between users, and clients that do not read.

use std::sync::atomic::Ordering;
use std::time::Duration;

use exacat_model::operation::{Existing, NewFile};
use exacat_model::{Answer, ErrorKind, FileRef, Operation, Revision};
use exacat_wire::native::{Credentials, Frame, RequestOptions, Secret};
use tokio::io::AsyncWriteExt;

use crate::client::{Client, eventually, from_host, soon, tls_from_host};
use crate::world::{World, lfn};

fn wait() -> Operation {
    Operation::Changes { after: Revision(u64::MAX - 1).into(), under: None, limit: 1, wait: true }
}

fn list(limit: u32) -> Operation {
    Operation::List { lfn: lfn("/d"), cursor: Default::default(), limit }
}

fn stat(name: &str) -> Operation {
    Operation::Stat { lfns: vec![lfn(name)], follow: true }
}

/// Expects the refusal `busy`, while earlier requests are still unanswered.
async fn expect_busy(client: &mut Client, request: u64) {
    let error = client.outcome(request).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
}

/// Goal: a host without credentials fills its own share, and nobody else's.
#[tokio::test(flavor = "multi_thread")]
async fn silent_host_leaves_slots_to_other_hosts_and_to_the_local_socket() {
    let world = World::with_limits(|limits| {
        limits.connections_max = 40;
        limits.connections_unauthenticated_max = 10;
        limits.connections_unauthenticated_per_address_max = 6;
        limits.handshake_time = Duration::from_secs(600);
    })
    .await;
    let secret = std::fs::read_to_string(&world.server.addresses.admin_token).unwrap();
    let token = || Credentials::Token(Secret::new(secret.trim()));
    let strangers = || world.figure("server", "held_connections-unauthenticated");
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(from_host(&world, "127.0.0.1").await);
    }
    soon("the silent ones to be accepted", async { while strangers().await < 6 {} }).await;
    let mut more = tls_from_host(&world, "127.0.0.1").await;
    assert_eq!(more.expect_refusal().await.kind, ErrorKind::Busy);
    // Another host connects, and is no stranger once it has shown its token.
    let mut known = Vec::new();
    for _ in 0..8 {
        let mut client = tls_from_host(&world, "127.0.0.2").await;
        client.hello().await;
        client.authenticate(token()).await.unwrap();
        known.push(client);
    }
    assert_eq!(strangers().await, 6);
    // Several silent hosts fill the slots of strangers, not those of authenticated clients and the
    // local socket.
    for _ in 0..4 {
        silent.push(from_host(&world, "127.0.0.3").await);
    }
    soon("the silent ones to be accepted", async { while strangers().await < 10 {} }).await;
    let mut more = tls_from_host(&world, "127.0.0.4").await;
    assert_eq!(more.expect_refusal().await.kind, ErrorKind::Busy);
    for client in &mut known {
        client.call(Operation::Whoami).await.unwrap();
    }
    Client::admin(&world).await.call(Operation::Whoami).await.unwrap();
    drop(silent);
    soon("the slots to be free", async { while strangers().await > 0 {} }).await;
    tls_from_host(&world, "127.0.0.1").await.hello().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_connection_are_bounded() {
    let world = World::with_limits(|limits| limits.requests_per_connection_max = 3).await;
    let mut client = Client::connect(&world).await;
    assert_eq!(client.hello().await.limits.requests_in_flight_max, 3);
    client.authenticate(Credentials::Local).await.unwrap();
    let first = client.ask(wait()).await;
    for _ in 0..2 {
        client.ask(wait()).await;
    }
    let fourth = client.ask(wait()).await;
    expect_busy(&mut client, fourth).await;
    client.send(first, Frame::Cancel).await;
    assert_eq!(client.outcome(first).await.unwrap_err().kind, ErrorKind::Unavailable);
    client.call(stat("/")).await.unwrap();
    client.ask(wait()).await;
    assert_eq!(client.call(stat("/")).await.unwrap_err().kind, ErrorKind::Busy);
}

/// Goal: the bounds of requests do not limit pipelined look-ups. Method: far more look-ups than the
/// bounds of a connection and of a user, in one piece. The server answers look-ups as it reads
/// them, so they are never in flight together.
#[tokio::test(flavor = "multi_thread")]
async fn pipelined_lookups_do_not_run_into_the_bounds_of_requests() {
    let world = World::with_limits(|limits| {
        limits.requests_per_connection_max = 5;
        limits.requests_per_user_max = 7;
    })
    .await;
    let mut client = Client::admin(&world).await;
    let empty = Operation::Stat { lfns: Vec::new(), follow: true };
    let operations = (0..1000).map(|number| if number % 3 == 0 { empty.clone() } else { stat("/") });
    client.write(&Client::pipelined(1, operations)).await;
    for request in 1..=1000 {
        client.outcome(request).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_user_are_bounded_over_all_its_connections() {
    let world = World::with_limits(|limits| limits.requests_per_user_max = 2).await;
    let secret = world.new_user("alice").await;
    let other = world.new_user("bob").await;
    let mut one = Client::with_token(&world, &secret).await;
    let mut two = Client::with_token(&world, &secret).await;
    let mut bob = Client::with_token(&world, &other).await;
    world.files("/d", 1).await;
    world.hooks.hold_lists.send_replace(true);
    one.ask(list(1)).await;
    let waiting = two.ask(list(1)).await;
    for client in [&mut one, &mut two] {
        client.send(0, Frame::Ping(1)).await;
        assert_eq!(client.expect().await, (0, Frame::Pong(1)), "what came before the ping was taken on");
    }
    let refused = one.ask(list(1)).await;
    expect_busy(&mut one, refused).await;
    let refused = two.ask(stat("/")).await;
    expect_busy(&mut two, refused).await;
    bob.call(stat("/")).await.unwrap();
    two.send(waiting, Frame::Cancel).await;
    assert_eq!(two.outcome(waiting).await.unwrap_err().kind, ErrorKind::Unavailable);
    soon("room", async { while two.call(stat("/")).await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_all_are_bounded() {
    let world = World::with_limits(|limits| limits.requests_max = 2).await;
    let mut one = Client::admin(&world).await;
    let mut two = Client::with_token(&world, &world.new_user("alice").await).await;
    one.ask(wait()).await;
    let waiting = one.ask(wait()).await;
    one.send(0, Frame::Ping(1)).await;
    assert_eq!(one.expect().await, (0, Frame::Pong(1)), "what came before the ping was taken on");
    assert_eq!(two.call(stat("/")).await.unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(two.call(Operation::Whoami).await.unwrap_err().kind, ErrorKind::Busy);
    one.send(waiting, Frame::Cancel).await;
    one.outcome(waiting).await.unwrap_err();
    soon("room", async { while two.call(stat("/")).await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_requests_are_bounded() {
    let world = World::with_limits(|limits| {
        limits.request_bytes_per_connection_max = 4000;
        limits.request_bytes_max = 6000;
    })
    .await;
    world.hooks.hold_applies.send_replace(true);
    let mkdir = |name: char| Operation::Mkdir {
        lfns: (0..9).map(|_| lfn(&format!("/{}", name.to_string().repeat(200)))).collect(),
        parents: true,
        mode: None,
    };
    let mut one = Client::admin(&world).await;
    one.ask(mkdir('a')).await;
    one.ask(mkdir('b')).await;
    let third = one.ask(mkdir('c')).await;
    expect_busy(&mut one, third).await;
    let mut two = Client::admin(&world).await;
    two.ask(mkdir('d')).await;
    let second = two.ask(mkdir('e')).await;
    expect_busy(&mut two, second).await;
    world.hooks.hold_applies.send_replace(false);
    for _ in 0..2 {
        assert!(matches!(one.expect().await, (_, Frame::Answer(_))));
    }
    one.call(mkdir('c')).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_items_of_the_fast_lane_are_bounded() {
    let world = World::with_limits(|limits| {
        limits.lookup_items_max = 100;
        limits.lookup_items_per_request_max = 60;
    })
    .await;
    let mut client = Client::admin(&world).await;
    let many = |count| Operation::Stat { lfns: vec![lfn("/"); count], follow: true };
    world.hooks.hold_walks.send_replace(true);
    // A request counts once it is admitted: when it has reached the store.
    let walks = || world.hooks.resolutions.load(Ordering::SeqCst);
    let begun = walks();
    let first = client.ask(many(60)).await;
    eventually("the first to be taken on", || walks() == begun + 1).await;
    let refused = client.ask(many(41)).await;
    expect_busy(&mut client, refused).await;
    let second = client.ask(many(40)).await;
    eventually("the second to be taken on", || walks() == begun + 2).await;
    let refused = client.ask(many(1)).await;
    expect_busy(&mut client, refused).await;
    world.hooks.hold_walks.send_replace(false);
    let mut answered = [client.expect().await, client.expect().await].map(|(request, frame)| {
        assert!(matches!(frame, Frame::Answer(Answer::Stats(_))));
        request
    });
    answered.sort_unstable();
    assert_eq!(answered, [first, second]);
    client.call(many(60)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_and_audits_have_bounds_of_their_own() {
    let world = World::with_limits(|limits| limits.waits_max = 1).await;
    let mut client = Client::admin(&world).await;
    let first = client.ask(wait()).await;
    client.send(0, Frame::Ping(1)).await;
    assert_eq!(client.expect().await, (0, Frame::Pong(1)));
    let second = client.ask(wait()).await;
    let third = client.ask(wait()).await;
    // Two of the three are refused; the threads decide which.
    let mut refused = Vec::new();
    for _ in 0..2 {
        match client.expect().await {
            (request, Frame::Error(error)) => {
                assert_eq!(error.kind, ErrorKind::Busy);
                refused.push(request);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(refused.iter().all(|request| [first, second, third].contains(request)));
    match client.call(Operation::Fsck).await.unwrap() {
        Answer::Fsck(audit) => assert_eq!(audit.findings_total, 0),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_heavy_lane_is_bounded_and_keeps_nobody_from_looking_up() {
    let world = World::with_limits(|limits| {
        limits.heavy_slots = 1;
        limits.heavy_queue_max = 3;
        limits.heavy_queue_per_user_max = 2;
    })
    .await;
    world.files("/d", 3).await;
    let mut alice = Client::with_token(&world, &world.new_user("alice").await).await;
    let mut bob = Client::with_token(&world, &world.new_user("bob").await).await;
    let begun = world.hooks.lists_begun.load(Ordering::SeqCst);
    world.hooks.hold_lists.send_replace(true);
    let first = alice.ask(list(10)).await;
    eventually("the first to run", || world.hooks.lists_begun.load(Ordering::SeqCst) > begun).await;
    let waiting = [alice.ask(list(10)).await, alice.ask(list(10)).await];
    eventually_waiting(&world, 2).await;
    let refused = alice.ask(list(10)).await;
    expect_busy(&mut alice, refused).await;
    let bobs = bob.ask(list(10)).await;
    eventually_waiting(&world, 3).await;
    let refused = bob.ask(list(10)).await;
    expect_busy(&mut bob, refused).await;
    bob.call(stat("/d")).await.unwrap();
    bob.call(Operation::Mkdir { lfns: vec![lfn("/nowhere/at/all")], parents: false, mode: None })
        .await
        .unwrap();
    assert_eq!(world.hooks.lists_begun.load(Ordering::SeqCst), begun + 1, "one slot, one listing");
    world.hooks.hold_lists.send_replace(false);
    bob.outcome(bobs).await.unwrap();
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.push(match alice.expect().await {
            (request, Frame::Answer(_)) => request,
            other => panic!("{other:?}"),
        });
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, [first, waiting[0], waiting[1]]);
}

async fn eventually_waiting(world: &World, count: u64) {
    soon("requests to wait", async { while world.figure("server", "lane_waiting_heavy").await < count {} })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_writes_have_a_lane_of_their_own() {
    let world = World::with_limits(|limits| {
        limits.bulk_slots = 1;
        limits.bulk_queue_max = 1;
        limits.write_items_per_request_max = 2;
    })
    .await;
    world.directory("/d").await;
    let register = |name: &str, count: usize| Operation::Register {
        files: (0..count).map(|number| NewFile::named(lfn(&format!("/d/{name}{number}")))).collect(),
        parents: false,
        existing: Existing::Refuse,
    };
    let mut client = Client::admin(&world).await;
    let begun = world.hooks.applies_begun.load(Ordering::SeqCst);
    world.hooks.hold_applies.send_replace(true);
    let first = client.ask(register("a", 3)).await;
    eventually("the first to run", || world.hooks.applies_begun.load(Ordering::SeqCst) > begun).await;
    let second = client.ask(register("b", 3)).await;
    soon("the second to wait", async { while world.figure("server", "lane_waiting_bulk").await < 1 {} })
        .await;
    let third = client.ask(register("c", 3)).await;
    expect_busy(&mut client, third).await;
    // A small write does not wait for the bulk writes.
    let small = client.ask(register("s", 2)).await;
    eventually("the small one to run", || world.hooks.applies_begun.load(Ordering::SeqCst) > begun + 1).await;
    world.hooks.hold_applies.send_replace(false);
    let mut answered = Vec::new();
    for _ in 0..3 {
        match client.expect().await {
            (request, Frame::Answer(_)) => answered.push(request),
            other => panic!("{other:?}"),
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, [first, second, small]);
}

/// Goal: streams of one user do not starve another. Method: one user streams a giant directory over
/// several streams, another lists a little repeatedly. With one slot, the other waits for no more than
/// a few pages of the first. A few of its requests may: the test's own threads wait for a processor too.
#[tokio::test(flavor = "multi_thread")]
async fn giant_streams_of_one_user_do_not_starve_another() {
    let world = World::with_limits(|limits| limits.heavy_slots = 1).await;
    world.files("/d", 2000).await;
    world.files("/small", 3).await;
    *world.hooks.list_time.lock() = Duration::from_millis(2);
    let giant = world.new_user("giant").await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut client = Client::with_token(&world, &giant).await;
        let options = RequestOptions { stream: Some(1024), ..Default::default() };
        for _ in 0..8 {
            client.ask_with(options, list(1)).await;
        }
        // Reads and discards, so that the streams never stop.
        streams.push(tokio::spawn(async move { while client.next().await.is_some() {} }));
    }
    eventually("the streams to flow", || world.hooks.lists.load(Ordering::SeqCst) > 100).await;
    let mut other = Client::with_token(&world, &world.new_user("other").await).await;
    let small = || Operation::List { lfn: lfn("/small"), cursor: Default::default(), limit: 10 };
    let mut waits = Vec::new();
    for _ in 0..50 {
        let before = world.hooks.lists.load(Ordering::SeqCst);
        other.call(small()).await.unwrap();
        waits.push(world.hooks.lists.load(Ordering::SeqCst) - before);
        other.call(stat("/small")).await.unwrap();
    }
    // Its own page, the one before, and the giant's pages while the answer travels.
    waits.sort_unstable();
    assert!(waits[40] <= 30, "waited for {waits:?} pages");
    assert!(world.figure("server", "lane_waiting_heavy").await > 10, "the giant was still at it");
    streams.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_makes_the_server_hold_a_bounded_amount() {
    let world = World::with_limits(|limits| {
        limits.output_bytes_max = 1 << 20;
        limits.idle_time = Duration::from_secs(600);
    })
    .await;
    let files = world.files("/d", 100).await;
    let mut client = Client::admin(&world).await;
    let mut many = Vec::new();
    for _ in 0..10 {
        many.extend(files.iter().cloned().map(FileRef::Lfn));
    }
    // Each request of some kilobytes gets an answer ten times as long.
    let operation =
        Operation::Stat { lfns: files.iter().cycle().take(1000).cloned().collect(), follow: true };
    let mut sent = 0u64;
    let mut bytes_sent = 0usize;
    let enough = 64 << 20;
    loop {
        let bytes = Client::pipelined(sent + 1, [operation.clone()]);
        match tokio::time::timeout(Duration::from_secs(2), client.stream.write_all(&bytes)).await {
            Ok(result) => result.unwrap(),
            // The server has stopped reading. The sent part of the last one does not matter.
            Err(_) => break,
        }
        sent += 1;
        bytes_sent += bytes.len();
        assert!(bytes_sent < enough, "the server reads on and on, and its client does not");
    }
    assert!(sent > 0);
    let held = world.figure("server", "output_bytes").await;
    let most_of_one_answer = 1 << 20;
    assert!(held <= (1 << 20) + most_of_one_answer, "{held} bytes held");
    assert!(held > 0);
    // Once the client reads, the server answers all requests.
    for request in 1..=sent {
        match client.outcome(request).await.unwrap() {
            Answer::Stats(items) => assert_eq!(items.len(), 1000),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_disconnected() {
    let world = World::with_limits(|limits| {
        limits.output_bytes_max = 64 << 10;
        limits.output_stall = Duration::from_millis(200);
    })
    .await;
    let files = world.files("/d", 1000).await;
    let mut client = Client::admin(&world).await;
    let operation = Operation::Stat { lfns: files, follow: true };
    let bytes = Client::pipelined(1, std::iter::repeat_n(operation, 100));
    let refused = soon("the disconnection", client.stream.write_all(&bytes)).await;
    if refused.is_ok() {
        soon("the disconnection", async {
            while world.figure("server", "connections_stalled").await == 0 {}
        })
        .await;
    }
    assert_eq!(world.figure("server", "connections_stalled").await, 1);
}

/// Requests pages and look-ups without end, and reads nothing, until the server stops reading.
async fn asks_and_reads_nothing(world: &World, operation: &Operation) -> (Client, u64) {
    let mut client = Client::admin(world).await;
    let mut sent = 0;
    loop {
        let bytes = Client::pipelined(sent + 1, [operation.clone()]);
        match tokio::time::timeout(Duration::from_millis(300), client.stream.write_all(&bytes)).await {
            Ok(result) => result.unwrap(),
            Err(_) => return (client, sent),
        }
        sent += 1;
        if sent >= 500 {
            return (client, sent);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_leave_unread_is_bounded_for_all_together_and_the_others_go_on() {
    const MOST: usize = 2 << 20;
    let world = World::with_limits(|limits| {
        limits.unread_bytes_max = MOST;
        limits.output_stall = Duration::from_secs(600);
    })
    .await;
    let files = world.files("/d", 1000).await;
    let stats = |count| Operation::Stat { lfns: files[..count].to_vec(), follow: true };
    let mut slow = Vec::new();
    for number in 0..6 {
        let operation = if number % 2 == 0 { list(1000) } else { stats(100) };
        slow.push(asks_and_reads_nothing(&world, &operation).await.0);
    }
    let held = world.figure("server", "held_unread-bytes").await;
    // Answers that were in the making when the last of the room was used up.
    let on_top = 1 << 20;
    assert!(held <= (MOST + on_top) as u64, "{held} bytes are held");
    assert!(held >= MOST as u64, "{held} bytes are held");
    let mut other = Client::admin(&world).await;
    // Page by page, as clients do.
    let (mut listed, mut pages) = (0, 0);
    let mut next = Some(list(1000));
    while let Some(operation) = next.take() {
        let answer = other.call(operation.clone()).await.unwrap();
        next = answer.next().and_then(|cursor| operation.resumed(cursor.clone()));
        match answer {
            Answer::Entries { items, .. } => listed += items.len(),
            other => panic!("{other:?}"),
        }
        pages += 1;
    }
    assert_eq!(listed, 1000);
    assert!(pages > 10, "{pages} pages, where there was room for small ones only");
    other.call(stats(100)).await.unwrap();
    assert_eq!(other.call(stats(1000)).await.unwrap_err().kind, ErrorKind::Busy);
    drop(slow);
    soon("room", async { while world.figure("server", "held_unread-bytes").await > 0 {} }).await;
    other.call(stats(1000)).await.unwrap();
}
