//! Hostile and faulty clients: each gets an error, and the others notice nothing.

use std::time::Duration;

use exacat_wire::xrootd::limits::{LOGIN_BYTES_MAX, PATH_BYTES_MAX, REQUEST_BYTES_MAX};
use exacat_wire::xrootd::numbers::{error, request, status};
use exacat_wire::xrootd::{HANDSHAKE, RequestHeader, StreamId, write_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{eventually_so, soon};
use crate::root::{Root, world, world_with};
use crate::world::World;

/// Returns a header that announces so many bytes.
fn promise(bytes: i32) -> Vec<u8> {
    let mut out = Vec::new();
    RequestHeader { stream: StreamId([9, 9]), request: request::STAT, body: [0; 16], bytes }.write(&mut out);
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_bounded_and_what_is_none_ends_it() {
    let world = world().await;
    let mut other = Root::anonymous(&world).await;
    for bytes in [REQUEST_BYTES_MAX as i32 + 1, i32::MAX, -1, i32::MIN] {
        let mut root = Root::anonymous(&world).await;
        root.stream.write_all(&promise(bytes)).await.unwrap();
        let answer = root.answer().await.unwrap();
        assert_eq!((answer.stream, answer.error().0), (StreamId([9, 9]), error::ARG_TOO_LONG));
        assert!(root.is_over().await, "{bytes}");
    }
    // The longest accepted request gets an answer.
    let mut root = Root::anonymous(&world).await;
    let longest = vec![b'/'; REQUEST_BYTES_MAX];
    let answer = root.call(request::STAT, [0; 16], &longest).await;
    assert_eq!(answer.error().0, error::ARG_TOO_LONG);
    let path = format!("/{}", "/".repeat(exacat_model::limits::LFN_BYTES_MAX - 1));
    root.done(request::STAT, [0; 16], &path).await;
    assert_eq!(root.fails(request::STAT, [0; 16], &format!("/{path}")).await, error::ARG_TOO_LONG);
    let padded = format!("/?{}", "x".repeat(PATH_BYTES_MAX - 2));
    root.done(request::STAT, [0; 16], &padded).await;
    assert_eq!(root.fails(request::STAT, [0; 16], &format!("{padded}x")).await, error::ARG_TOO_LONG);
    // Before authentication the limit is lower.
    for (bytes, fine) in [(LOGIN_BYTES_MAX, true), (LOGIN_BYTES_MAX + 1, false)] {
        let mut root = Root::raw(&world).await;
        root.greet(0).await;
        let mut body = [0; 16];
        body[4] = b'x';
        root.stream
            .write_all(&{
                let mut bytes_out = Vec::new();
                write_request(&mut bytes_out, StreamId([0, 1]), request::LOGIN, body, &vec![b'a'; bytes]);
                bytes_out
            })
            .await
            .ok();
        assert_eq!(root.answer().await.unwrap().status == status::OK, fine, "{bytes}");
    }
    other.done(request::PING, [0; 16], "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_speaks_another_language_or_nothing_is_not_waited_for() {
    let world = world_with(|settings| settings.limits.handshake_time = Duration::from_millis(300)).await;
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0", b"", &HANDSHAKE[..10], &[0xff; 64], b"\x16\x03"] {
        let mut root = Root::raw(&world).await;
        root.stream.write_all(said).await.unwrap();
        assert!(root.is_over().await, "{said:?}");
    }
    // A greeting only, or half of a request.
    let mut silent = Root::raw(&world).await;
    silent.greet(0).await;
    assert!(silent.is_over().await);
    let mut half = Root::raw(&world).await;
    half.greet(0).await;
    half.stream.write_all(&promise(100)[..20]).await.unwrap();
    assert!(half.is_over().await);
    assert!(world.figure("server", "handshakes_failed").await >= 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_lead_where_they_say_and_nowhere_else() {
    let world = world().await;
    world.files("/d", 1).await;
    let mut root = Root::admin(&world).await;
    for path in
        ["/d/../d/f000000", "/..", "/d/./f000000", "d/f000000", "/d/f\0\0", "/d\0/f000000", "..", "", "?x"]
    {
        for request in [request::STAT, request::RM, request::OPEN, request::DIRLIST, request::RMDIR] {
            if path.is_empty() && request == request::STAT {
                continue;
            }
            let number = root.fails(request, [0; 16], path).await;
            assert_eq!(number, error::ARG_INVALID, "{request} {path:?}");
        }
    }
    for path in ["/%2e%2e/d", "/d/%66000000", "/d\\f000000", "/d/f000000%00"] {
        assert_eq!(root.fails(request::STAT, [0; 16], path).await, error::NOT_FOUND, "{path}");
    }
    for path in ["///d///f000000", "/d/", "/d/f000000\0", "/d/f000000?../.."] {
        root.done(request::STAT, [0; 16], path).await;
    }
    // A trailing slash means a directory.
    assert_eq!(root.fails(request::STAT, [0; 16], "/d/f000000/").await, error::NOT_FILE);
    let name = "x".repeat(256);
    assert_eq!(root.fails(request::STAT, [0; 16], &format!("/{name}")).await, error::ARG_TOO_LONG);
    let deep = "/y".repeat(513);
    assert_eq!(root.fails(request::STAT, [0; 16], &deep).await, error::ARG_TOO_LONG);
    assert_eq!(root.fails(request::MV, [0; 16], "/d").await, error::ARG_INVALID);
    assert_eq!(root.fails(request::RMDIR, [0; 16], "/").await, error::ARG_INVALID);
    assert_eq!(root.call(request::STAT, [0; 16], b"/\xff").await.error().0, error::ARG_INVALID);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_taken_in_turn_and_others_are_served_beside_it() {
    let world = world_with(|settings| settings.limits.xrootd_requests_max = 8).await;
    world.files("/many", 50).await;
    let mut flood = Root::anonymous(&world).await;
    let mut other = Root::anonymous(&world).await;
    const COUNT: usize = 5000;
    let mut bytes = Vec::new();
    for number in 0..COUNT {
        let request = if number % 10 == 0 { request::DIRLIST } else { request::STAT };
        write_request(&mut bytes, StreamId([0, 1]), request, [0; 16], b"/many");
    }
    let (mut read, mut write) = tokio::io::split(flood.stream);
    let sender = async { write.write_all(&bytes).await.unwrap() };
    let reader = async {
        let mut answered = 0;
        let mut header = [0; 8];
        while answered < COUNT {
            AsyncReadExt::read_exact(&mut read, &mut header).await.unwrap();
            let header = exacat_wire::xrootd::response::ResponseHeader::read(&header);
            let mut carried = vec![0; header.bytes as usize];
            AsyncReadExt::read_exact(&mut read, &mut carried).await.unwrap();
            assert!(matches!(header.status, status::OK | status::WAIT), "{header:?}");
            answered += 1;
        }
    };
    let beside = async {
        for _ in 0..200 {
            other.done(request::STAT, [0; 16], "/many").await;
        }
    };
    soon("a flood", async { tokio::join!(sender, reader, beside) }).await;
    flood = Root::anonymous(&world).await;
    flood.done(request::PING, [0; 16], "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_waited_for_and_then_left() {
    let world = world_with(|settings| settings.limits.output_stall = Duration::from_millis(500)).await;
    world.files("/many", 10_000).await;
    let mut slow = Root::anonymous(&world).await;
    let mut body = [0; 16];
    body[15] = 2;
    // Far more than the buffers of the system take, and the client reads nothing.
    for _ in 0..200 {
        let mut bytes = Vec::new();
        write_request(&mut bytes, StreamId([0, 1]), request::DIRLIST, body, b"/many");
        if slow.stream.write_all(&bytes).await.is_err() {
            break;
        }
    }
    let mut other = Root::anonymous(&world).await;
    while world.figure("server", "connections_stalled").await == 0 {
        other.done(request::PING, [0; 16], "").await;
    }
    let lists = world.hooks.lists.load(std::sync::atomic::Ordering::SeqCst);
    assert!(lists < 2000, "{lists} pages were made for somebody who reads none");
    drop(slow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_of_a_connection_are_bounded() {
    let world = world_with(|settings| settings.limits.xrootd_listings_max = 2).await;
    world.files("/many", 3).await;
    let mut root = Root::anonymous(&world).await;
    world.hooks.hold_lists.send_replace(true);
    for _ in 0..2 {
        root.send(request::DIRLIST, [0; 16], b"/many").await;
    }
    assert_eq!(root.on(request::DIRLIST, "/many").await.status, status::WAIT);
    root.done(request::STAT, [0; 16], "/many").await;
    world.hooks.hold_lists.send_replace(false);
    for _ in 0..2 {
        assert_eq!(root.answer().await.unwrap().status, status::OK);
    }
    root.done(request::DIRLIST, [0; 16], "/many").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_bounded() {
    const MOST: usize = 30;
    // A quarter is kept for clients with credentials.
    let world = world_with(|settings| settings.limits.connections_max = 40).await;
    let mut kept = Vec::new();
    for _ in 0..MOST {
        kept.push(Root::anonymous(&world).await);
    }
    // The server refuses one more.
    let mut more = Root::raw(&world).await;
    more.greet(0).await;
    assert_eq!(more.login().await.error().0, error::OVERLOADED);
    assert!(more.is_over().await);
    for root in &mut kept {
        root.done(request::PING, [0; 16], "").await;
    }
    drop(kept);
    soon("the server to notice that they are gone", async {
        while world.figure("server", "held_connections-unauthenticated").await > 0 {}
    })
    .await;
    let mut again = Root::anonymous(&world).await;
    again.done(request::PING, [0; 16], "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_end() {
    let world = world_with(|settings| settings.limits.xrootd_idle_time = Duration::from_millis(300)).await;
    for _ in 0..3 {
        let mut root = Root::anonymous(&world).await;
        assert!(root.is_over().await, "nothing was asked of it for long");
    }
    assert_eq!(world.figure("server", "connections_idle_closed").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_answers_what_it_was_asked() {
    let world = world().await;
    world.files("/many", 3).await;
    let mut idle = Root::anonymous(&world).await;
    let mut root = Root::anonymous(&world).await;
    world.hooks.hold_lists.send_replace(true);
    root.send(request::DIRLIST, [0; 16], b"/many").await;
    crate::client::eventually("the listing began", || {
        world.hooks.lists_begun.load(std::sync::atomic::Ordering::SeqCst) > 0
    })
    .await;
    world.server.shutdown();
    assert!(idle.is_over().await);
    world.hooks.hold_lists.send_replace(false);
    assert_eq!(root.answer().await.unwrap().status, status::OK);
    assert!(root.is_over().await);
    soon("the end", world.server.wait()).await.unwrap();
}

/// Requests a directory with stats so many times, and reads nothing.
async fn asks_and_reads_nothing(world: &World, times: usize) -> Root {
    let mut root = Root::anonymous_with_small_buffer(world).await;
    for _ in 0..times {
        root.send(request::DIRLIST, with_stats(), b"/many").await;
    }
    root
}

fn with_stats() -> [u8; 16] {
    let mut body = [0; 16];
    body[15] = 2;
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_leave_unread_is_bounded_for_all_together_and_the_others_go_on() {
    const MOST: usize = 2 << 20;
    let world = world_with(|settings| settings.limits.unread_bytes_max = MOST).await;
    world.files("/many", 10_000).await;
    let mut other = Root::anonymous(&world).await;
    let plenty = other.done(request::DIRLIST, with_stats(), "/many").await.parts;
    let mut slow = Vec::new();
    for _ in 0..20 {
        slow.push(asks_and_reads_nothing(&world, 16).await);
    }
    soon("a refusal", async { while world.figure("server", "refused_at_bound_unread-bytes").await == 0 {} })
        .await;
    // The kernel's send buffers grow and take bytes for some time, so there is room again now and
    // then.
    soon("small parts, for there is no room", async {
        let mut small = 0;
        while small < 3 {
            let listed = other.done(request::DIRLIST, with_stats(), "/many").await;
            assert_eq!(listed.text().lines().count(), 2 + 2 * 10_000);
            small += u32::from(listed.parts > 2 * plenty);
            other.done(request::STAT, [0; 16], "/many/f000001").await;
        }
        while world.figure("server", "held_unread-bytes").await <= MOST as u64 / 2 {}
    })
    .await;
    let held = world.figure("server", "held_unread-bytes").await;
    assert!(held <= MOST as u64, "{held} bytes are held");
    assert_eq!(world.figure("server", "connections_stalled").await, 0);
    // A client that reads again gets all its answers.
    let mut again = slow.pop().unwrap();
    let (mut answered, mut header) = (0, [0; 8]);
    while answered < 16 {
        soon("a response", again.stream.read_exact(&mut header)).await.unwrap();
        let header = exacat_wire::xrootd::response::ResponseHeader::read(&header);
        let mut carried = vec![0; header.bytes as usize];
        soon("a response", again.stream.read_exact(&mut carried)).await.unwrap();
        answered += usize::from(header.status != status::OKSOFAR);
    }
    drop(slow);
    soon("large parts again", async {
        while other.done(request::DIRLIST, with_stats(), "/many").await.parts > plenty {}
    })
    .await;
    soon("room", async { while world.figure("server", "held_unread-bytes").await > 0 {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_next_to_nothing_is_left_too() {
    let world = world_with(|settings| {
        settings.limits.output_stall = Duration::from_secs(1);
        settings.limits.output_progress_bytes = 64 << 20;
    })
    .await;
    world.files("/many", 10_000).await;
    let mut slow = asks_and_reads_nothing(&world, 16).await;
    // A few bytes with each poll: far fewer than the server demands.
    let reading = eventually_so("the end", async || {
        let mut some = vec![0; 4096];
        !matches!(slow.stream.read(&mut some).await, Ok(read) if read > 0)
    });
    let noticed = async { while world.figure("server", "connections_stalled").await == 0 {} };
    soon("the end", async {
        tokio::select! {
            () = reading => {}
            () = noticed => {}
        }
    })
    .await;
    assert_eq!(world.figure("server", "connections_stalled").await, 1);
}
