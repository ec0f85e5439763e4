//! Hostile and faulty clients: each gets an error, and the others notice nothing.

use std::time::Duration;

use exacat_wire::jalien::limits::REQUEST_BYTES_MAX;
use futures::SinkExt;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::alien::{Alien, new_user, secure, world, world_with};
use crate::client::soon;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_request_is_answered_and_what_is_too_long_ends_it() {
    let world = world().await;
    let mut alien = Alien::admin(&world).await;
    for text in ["", "{", "[1]", r#"{"command": 1}"#, r#"{"command": "ls", "options": {}}"#, "\u{0}"] {
        alien.send(text).await;
        assert_eq!(alien.answer().await["metadata"]["exitcode"], "22", "{text:?}");
    }
    assert_eq!(alien.fails(&"x".repeat(100_000), &[]).await, libc::ENOENT);
    // The longest accepted request, and one byte more.
    let mut longest = Alien::request("pwd", &[]);
    longest.push_str(&" ".repeat(REQUEST_BYTES_MAX - longest.len()));
    alien.send(&longest).await;
    assert_eq!(alien.answer().await["metadata"]["exitcode"], "0");
    alien.send(&format!("{longest} ")).await;
    assert_eq!(alien.end().await, Some(1009));

    let mut binary = Alien::admin(&world).await;
    binary.websocket.send(Message::Binary(vec![0; 10].into())).await.unwrap();
    assert_eq!(binary.end().await, Some(1003));
    let mut no_text = Alien::admin(&world).await;
    let bad = Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true);
    no_text.websocket.send(Message::Frame(bad)).await.unwrap();
    assert_eq!(no_text.end().await, Some(1007));
    // An endless request: the bound applies to its parts together.
    let mut endless = Alien::admin(&world).await;
    let part = |first: bool| {
        let code = if first { Data::Text } else { Data::Continue };
        Message::Frame(Frame::message(vec![b'x'; 300 << 10], OpCode::Data(code), false))
    };
    for number in 0..8 {
        if endless.websocket.send(part(number == 0)).await.is_err() {
            break;
        }
    }
    endless.end().await;
    Alien::admin(&world).await.done("pwd", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_lead_where_they_say_and_nowhere_else() {
    let world = world().await;
    new_user(&world, "jdoe", |_| {}).await;
    new_user(&world, "eve", |_| {}).await;
    let mut jdoe = Alien::user(&world, "jdoe").await;
    jdoe.done("touch", &["secret"]).await;
    jdoe.done("chmod", &["700", "/alice/cern.ch/user/j/jdoe"]).await;
    let mut eve = Alien::user(&world, "eve").await;
    for path in ["../../j/jdoe/secret", "/alice//cern.ch/./user/e/../j/jdoe/secret", "~/../../j/jdoe/secret"]
    {
        assert_eq!(eve.fails("stat", &[path]).await, libc::EACCES, "{path}");
        assert_eq!(eve.fails("rm", &["-f", path]).await, libc::EACCES, "{path}");
        assert_eq!(eve.fails("access", &["read", path]).await, libc::EACCES, "{path}");
        assert_eq!(eve.fails("mv", &[path, "mine"]).await, libc::EACCES, "{path}");
    }
    for path in ["%2e%2e/x", "..%2fx", "a\\b"] {
        assert_eq!(eve.fails("stat", &[path]).await, libc::ENOENT, "{path}");
    }
    for path in ["a\0b", "", &"x".repeat(300), &"y/".repeat(3000)] {
        let number = eve.fails("stat", &[path]).await;
        assert!(matches!(number, libc::EINVAL | libc::E2BIG), "{path:.20}: {number}");
    }
    assert_eq!(eve.fails("rm", &["-rf", "/"]).await, libc::EINVAL);
    assert_eq!(eve.fails("rm", &["-rf", ".."]).await, libc::EINVAL);
    for pattern in ["[", "[[[[", "(", "*".repeat(900).as_str()] {
        eve.call("find", &["-r", "/", pattern]).await;
        eve.call("ls", &[pattern]).await;
    }
    assert_eq!(eve.fails("find", &["-r", "/", &"(x+".repeat(300)]).await, libc::EINVAL);
    jdoe.done("stat", &["secret"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_waited_for_and_then_left() {
    let stall = Duration::from_millis(500);
    let world = world_with(|settings| settings.limits.output_stall = stall).await;
    world.files("/many", 10_000).await;
    let mut slow = Alien::admin(&world).await;
    // Far more than the buffers of the system take, and the client reads nothing.
    let request = Alien::request("ls", &["-l", "/many"]);
    for _ in 0..200 {
        slow.websocket.feed(Message::text(request.clone())).await.unwrap();
    }
    slow.websocket.flush().await.unwrap();
    let mut other = Alien::admin(&world).await;
    while world.figure("server", "connections_stalled").await == 0 {
        other.done("pwd", &[]).await;
    }
    let lists = world.hooks.lists.load(std::sync::atomic::Ordering::SeqCst);
    assert!(lists < 200, "{lists} pages were made for somebody who reads none");
    drop(slow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_taken_in_turn_and_others_are_served_beside_it() {
    let world = world_with(|settings| {
        settings.limits.jalien_requests_max = 8;
        settings.limits.jalien_request_bytes_max = 4096;
    })
    .await;
    let mut flood = Alien::admin(&world).await;
    let mut other = Alien::admin(&world).await;
    const COUNT: usize = 2000;
    let text = Alien::request("pwd", &["-nokeys"]);
    let sender = async {
        for _ in 0..COUNT {
            flood.websocket.feed(Message::text(text.clone())).await.unwrap();
        }
        flood.websocket.flush().await.unwrap();
        for _ in 0..COUNT {
            assert_eq!(flood.answer().await["metadata"]["exitcode"], "0");
        }
    };
    let beside = async {
        for _ in 0..50 {
            other.done("pwd", &[]).await;
        }
    };
    tokio::join!(sender, beside);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_bounded_and_those_that_say_nothing_end() {
    const MOST: usize = 20;
    let world = world_with(|settings| {
        settings.limits.connections_max = MOST;
        settings.limits.handshake_time = Duration::from_millis(500);
    })
    .await;
    let mut kept = Vec::new();
    for _ in 0..MOST {
        kept.push(Alien::admin(&world).await);
    }
    // The server refuses one more.
    let address = world.server.addresses.jalien.unwrap();
    let mut more = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut byte = [0u8; 1];
    let read = tokio::io::AsyncReadExt::read(&mut more, &mut byte);
    let ended = tokio::time::timeout(crate::alien::PATIENCE, read).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    let mut told = secure(&world, None).await;
    told.write_all(b"GET /websocket/json HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut told, &mut answer).await.ok();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("limit of connections"), "{answer}");
    for alien in &mut kept {
        alien.done("pwd", &[]).await;
    }
    drop(kept);
    // Silence, and nonsense in place of TLS and of HTTP.
    for said in [&b""[..], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut silent = loop {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            if stream.write_all(said).await.is_ok() {
                break stream;
            }
        };
        let mut rest = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut rest);
        tokio::time::timeout(crate::alien::PATIENCE, read).await.unwrap().ok();
    }
    let mut nonsense = secure_when_there_is_room(&world).await;
    nonsense.write_all(&[b'x'; 100_000]).await.ok();
    let mut rest = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut nonsense, &mut rest);
    tokio::time::timeout(crate::alien::PATIENCE, read).await.unwrap().ok();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"));
}

/// Connects once there is room: slots of closed connections are freed a moment later.
async fn secure_when_there_is_room(
    world: &crate::world::World,
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    while world.server.addresses.jalien.is_some() && world.figure("server", "held_connections").await > 2 {
        tokio::task::yield_now().await;
    }
    secure(world, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_leave_unread_is_bounded_for_all_together_and_the_others_go_on() {
    const MOST: usize = 1 << 20;
    let world = world_with(|settings| settings.limits.unread_bytes_max = MOST).await;
    world.files("/many", 10_000).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut alien = Alien::admin(&world).await;
        for _ in 0..16 {
            alien.websocket.feed(Message::text(Alien::request("ls", &["-l", "/many"]))).await.unwrap();
        }
        alien.websocket.flush().await.unwrap();
        slow.push(alien);
    }
    soon("a refusal", async { while world.figure("server", "refused_at_bound_unread-bytes").await < 100 {} })
        .await;
    let mut other = Alien::admin(&world).await;
    for _ in 0..3 {
        let listed = other.done("ls", &["-l", "/many"]).await;
        assert_eq!(listed["results"].as_array().unwrap().len(), 10_000);
        other.done("stat", &["/many/f000001"]).await;
    }
    let held = world.figure("server", "held_unread-bytes").await;
    // A part ends with the result that fills it.
    assert!(held <= MOST as u64 + 20 * 4096, "{held} bytes are held");
    assert!(held > MOST as u64 / 4, "{held} bytes are held");
    assert_eq!(world.figure("server", "connections_stalled").await, 0);
    let mut again = slow.pop().unwrap();
    for _ in 0..16 {
        assert_eq!(again.answer().await["results"].as_array().unwrap().len(), 10_000);
    }
    drop((slow, again));
    soon("room", async { while world.figure("server", "held_unread-bytes").await > 0 {} }).await;
}
