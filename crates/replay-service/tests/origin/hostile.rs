//! Clients that mean no good, or do not read.

use std::time::Duration;

use exacat_replay_service::origin::limits::{BATCH_BYTES, WAITING_MAX};
use exacat_replay_service::origin::{OriginSettings, OriginTimes};
use exacat_wire::xrootd::numbers::{error, request};
use exacat_wire::xrootd::{HANDSHAKE, StreamId, write_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::client::{Client, LISTED, origin, range, settings};

/// Property: bytes of another protocol, and lengths that are none, end their connection and no other.
#[tokio::test]
async fn garbage_ends_its_connection() {
    let origin = origin(settings()).await;
    let mut good = Client::of(&origin).await;
    let header = |length: i32| {
        let mut out = HANDSHAKE.to_vec();
        write_request(&mut out, StreamId([0, 1]), request::PING, [0; 16], &[]);
        let at = out.len() - 4;
        out[at..].copy_from_slice(&length.to_be_bytes());
        out
    };
    let garbage: [Vec<u8>; 6] = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 100],
        [&HANDSHAKE[..19], &[0]].concat(),
        header(-1),
        header(i32::MAX),
        header(i32::MIN),
    ];
    for bytes in &garbage {
        let mut client = Client::connect(&origin).await;
        client.socket.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        // The end, with or without the rest of what was sent.
        let _ = client.socket.read_to_end(&mut rest).await;
    }
    while origin.counters().connections_open > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(origin.counters().connections_bad, garbage.len() as u64);
    good.open(LISTED).await;
    origin.stop().await;
}

/// Property: nothing but the login is answered before the login.
#[tokio::test]
async fn requests_before_the_login_are_refused() {
    let origin = origin(settings()).await;
    let mut client = Client::connect(&origin).await;
    client.socket.write_all(&HANDSHAKE).await.unwrap();
    client.answer().await.ok();
    for kind in [request::OPEN, request::STAT, request::RM] {
        assert_eq!(client.ask(kind, [0; 16], b"/list/a").await.error(), error::INVALID_REQUEST);
    }
    for kind in [request::READ, request::CLOSE, request::WRITE] {
        assert_eq!(client.ask(kind, [0; 16], &[]).await.error(), error::INVALID_REQUEST);
    }
    client.ask(request::PING, [0; 16], &[]).await.ok();
    client.ask(request::LOGIN, [0; 16], &[]).await.ok();
    client.open(LISTED).await;
    origin.stop().await;
}

fn short_times() -> OriginSettings {
    let time = Duration::from_millis(300);
    OriginSettings { times: OriginTimes { login: time, idle: time, stall: time }, ..settings() }
}

/// Property: a client that never logs in, and one that stays silent, lose their connections in time.
#[tokio::test]
async fn silent_clients_are_cut() {
    let origin = origin(short_times()).await;
    let begin = Instant::now();
    let mut half = Client::connect(&origin).await;
    half.socket.write_all(&HANDSHAKE[..7]).await.unwrap();
    assert!(half.was_cut().await && Client::connect(&origin).await.was_cut().await);
    assert!(begin.elapsed() >= Duration::from_millis(600));
    assert_eq!(origin.counters().connections_bad, 2);
    let client = Client::of(&origin).await;
    let begin = Instant::now();
    assert!(client.was_cut().await);
    assert!(begin.elapsed() >= Duration::from_millis(250));
    origin.stop().await;
}

/// Property: a client that asks and never reads is cut. Until then it holds the buffers of its socket, and
/// no more.
#[tokio::test]
async fn clients_that_do_not_read_are_cut() {
    let origin = origin(short_times()).await;
    let mut client = Client::of(&origin).await;
    let handle = client.open("/any/1TiB").await;
    let begin = Instant::now();
    for number in 0..64 {
        client.send(request::READ, range(handle, number << 30, 1 << 30), &[]).await;
    }
    while origin.counters().connections_open > 0 {
        tokio::task::yield_now().await;
    }
    assert!(begin.elapsed() >= Duration::from_millis(300));
    let counters = origin.counters();
    assert_eq!((counters.connections_stalled, counters.files_open), (1, 0));
    assert!(counters.bytes_sent < (64 << 20) + BATCH_BYTES as u64, "{counters:?}");
    origin.stop().await;
}

/// Property: requests beyond the limit wait in the socket, and are answered when there is room.
#[tokio::test]
async fn more_requests_than_may_wait_are_all_answered() {
    let origin = origin(settings()).await;
    let mut client = Client::of(&origin).await;
    let handle = client.open(LISTED).await;
    let count = 3 * WAITING_MAX;
    let mut out = Vec::new();
    for number in 0..count {
        let stream = StreamId((number as u16).to_be_bytes());
        write_request(&mut out, stream, request::READ, range(handle, number as i64, 1), &[]);
    }
    let (mut reader, mut writer) = client.socket.split();
    let mut answers = vec![0; count * 9];
    let (sent, read) = tokio::join!(writer.write_all(&out), reader.read_exact(&mut answers));
    sent.unwrap();
    read.unwrap();
    assert!(
        answers.chunks(9).enumerate().all(|(number, answer)| answer[..2] == (number as u16).to_be_bytes())
    );
    origin.stop().await;
}

/// Property: connections beyond the limit are closed at once, and a free place is taken again.
#[tokio::test]
async fn connections_are_bounded() {
    let origin = origin(OriginSettings { connections_max: 2, ..settings() }).await;
    let first = Client::of(&origin).await;
    let mut second = Client::of(&origin).await;
    assert!(Client::connect(&origin).await.was_cut().await);
    assert_eq!(origin.counters().connections_refused, 1);
    drop(first);
    while origin.counters().connections_open > 1 {
        tokio::task::yield_now().await;
    }
    // The place is free a moment later.
    let mut third = Client::connect(&origin).await;
    while third.socket.write_all(&HANDSHAKE).await.is_err() || third.socket.read_u8().await.is_err() {
        third = Client::connect(&origin).await;
    }
    second.open(LISTED).await;
    origin.stop().await;
}
