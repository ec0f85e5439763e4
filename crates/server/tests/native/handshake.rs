//! The start of a conversation, and bytes that are none.

use std::time::Duration;

use exacat_model::{Consistency, ErrorKind, Operation};
use exacat_wire::native::limits::HANDSHAKE_FRAME_BYTES_MAX;
use exacat_wire::native::{
    Credentials, Frame, FrameType, Hello, Request, RequestOptions, Secret, encode_frame, features,
};
use tokio::io::AsyncWriteExt;

use crate::client::{Client, FRAME_BYTES_MAX, eventually_so, tls};
use crate::world::World;

fn header(counted: u32, number: u8, flags: u8, request: u64) -> Vec<u8> {
    let mut bytes = counted.to_le_bytes().to_vec();
    bytes.extend([number, flags]);
    bytes.extend(request.to_le_bytes());
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_with_the_token_of_the_first_start_one_is_the_administrator() {
    let world = World::new().await;
    let secret = std::fs::read_to_string(&world.server.addresses.admin_token).unwrap();
    let mut client = tls(&world, &world.server.addresses.certificate).await.unwrap();
    let ack = client.hello().await;
    assert!(ack.authentication_required);
    assert_eq!(ack.limits.frame_bytes_max as usize, FRAME_BYTES_MAX);
    let identity = client.authenticate(Credentials::Token(Secret::new(secret.trim()))).await.unwrap();
    assert_eq!(identity.user.unwrap().as_str(), "admin");
    assert!(identity.write);
    client.call(Operation::Whoami).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_trusts_another_certificate_does_not_connect() {
    let world = World::new().await;
    let other = World::new().await;
    let error = tls(&world, &other.server.addresses.certificate).await.err().unwrap();
    assert!(error.to_string().contains("certificate"), "{error}");
    let mut client = tls(&world, &world.server.addresses.certificate).await.unwrap();
    client.hello().await;
    assert_eq!(world.figure("server", "handshakes_failed").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_do_not_meet_are_told_apart() {
    let world = World::new().await;
    for (version_min, version_max) in [(2, 9), (u16::MAX, u16::MAX), (0, 0)] {
        let mut client = Client::connect(&world).await;
        let hello = Hello { version_min, version_max, ..Hello::new("test/2") };
        client.send(0, Frame::Hello(hello)).await;
        let refusal = client.expect_refusal().await;
        assert_eq!(refusal.kind, ErrorKind::Invalid);
        assert!(refusal.message.contains("versions"), "{refusal}");
    }
    let mut client = Client::connect(&world).await;
    client.send(0, Frame::Hello(Hello { version_min: 0, version_max: 900, ..Hello::new("test/3") })).await;
    match client.expect().await {
        (0, Frame::HelloAck(ack)) => assert_eq!(ack.version, 1),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_handshake_and_the_first_request_may_come_in_one_piece() {
    let world = World::new().await;
    let mut client = Client::connect(&world).await;
    let mut bytes = Vec::new();
    let request = Request { options: RequestOptions::default(), operation: Operation::Whoami };
    for (id, frame) in [
        (0, Frame::Hello(Hello::new("test/1"))),
        (
            0,
            Frame::Authenticate(exacat_wire::native::Authenticate {
                credentials: Credentials::Local,
                act_as: None,
            }),
        ),
        (7, Frame::Request(request)),
    ] {
        encode_frame(&mut bytes, FRAME_BYTES_MAX, id, &frame).unwrap();
    }
    client.write(&bytes).await;
    assert_eq!(client.expect().await.1.frame_type(), FrameType::HelloAck);
    assert_eq!(client.expect().await.1.frame_type(), FrameType::Authenticated);
    let (id, answer) = client.expect().await;
    assert_eq!((id, answer.frame_type()), (7, FrameType::Answer));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_frames_are_refused() {
    let world = World::new().await;
    let cases: Vec<(&str, Vec<u8>, ErrorKind)> = vec![
        ("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), ErrorKind::Limit),
        ("a length below the header", header(9, 1, 0, 0), ErrorKind::Invalid),
        ("the largest length there is", header(u32::MAX, 1, 0, 0), ErrorKind::Limit),
        (
            "one byte too many before authentication",
            header(HANDSHAKE_FRAME_BYTES_MAX as u32 - 3, 1, 0, 0),
            ErrorKind::Limit,
        ),
        ("a type that is none", header(10, 99, 0, 0), ErrorKind::Invalid),
        ("a type that is none", header(10, 0, 0, 0), ErrorKind::Invalid),
        ("flags of other types", header(10, FrameType::Hello as u8, 1, 0), ErrorKind::Invalid),
        ("a hello of a request", header(10, FrameType::Hello as u8, 0, 5), ErrorKind::Invalid),
        ("a hello without anything", header(10, FrameType::Hello as u8, 0, 0), ErrorKind::Invalid),
        ("what only a server says", header(10, FrameType::HelloAck as u8, 0, 0), ErrorKind::Invalid),
    ];
    for (what, bytes, kind) in &cases {
        let mut client = Client::connect(&world).await;
        client.write(bytes).await;
        assert_eq!(client.expect_refusal().await.kind, *kind, "{what}");
    }
    assert_eq!(world.figure("server", "frames_refused").await, cases.len() as u64);
    Client::admin(&world).await.call(Operation::Whoami).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_of_every_kind_ends_only_its_connection() {
    let world = World::new().await;
    // A fixed generator, so that a failure repeats.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..200 {
        let mut client =
            if round % 2 == 0 { Client::connect(&world).await } else { Client::admin(&world).await };
        let length = (random() % 200) as usize + 1;
        let mut bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        if round % 4 > 1 && bytes.len() > 14 {
            // A valid header, an invalid body.
            let counted = (bytes.len() - 4) as u32;
            bytes[..14].copy_from_slice(&header(
                counted,
                (round % 16) as u8 + 1,
                0,
                u64::from(round % 3 > 0),
            ));
        }
        // The server may have closed its end before all is written.
        let _ = client.stream.write_all(&bytes).await;
        let _ = client.stream.shutdown().await;
        while client.next().await.is_some() {}
    }
    assert_eq!(world.figure("server", "request_panics").await, 0);
    Client::admin(&world).await.call(Operation::Whoami).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_inside_a_frame_is_told() {
    let world = World::new().await;
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, FRAME_BYTES_MAX, 0, &Frame::Hello(Hello::new("test/1"))).unwrap();
    for cut in [1, 4, 13, 14, bytes.len() - 1] {
        let mut client = Client::connect(&world).await;
        client.write(&bytes[..cut]).await;
        client.stream.shutdown().await.unwrap();
        assert_eq!(client.expect_refusal().await.kind, ErrorKind::Invalid, "{cut} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_in_single_bytes_are_frames() {
    let world = World::new().await;
    let mut client = Client::connect(&world).await;
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, FRAME_BYTES_MAX, 0, &Frame::Hello(Hello::new("test/1"))).unwrap();
    for byte in bytes {
        client.write(&[byte]).await;
    }
    assert_eq!(client.expect().await.1.frame_type(), FrameType::HelloAck);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_before_saying_who_it_is_is_refused() {
    let world = World::new().await;
    for said_hello in [false, true] {
        let mut client = Client::connect(&world).await;
        if said_hello {
            client.hello().await;
        }
        client.ask(Operation::Whoami).await;
        assert_eq!(client.expect_refusal().await.kind, ErrorKind::Unauthenticated);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hello_is_said_once_and_so_is_who_one_is() {
    let world = World::new().await;
    let mut client = Client::connect(&world).await;
    client.hello().await;
    client.send(0, Frame::Hello(Hello::new("test/1"))).await;
    assert_eq!(client.expect_refusal().await.kind, ErrorKind::Invalid);
    let mut client = Client::admin(&world).await;
    let again = exacat_wire::native::Authenticate { credentials: Credentials::Local, act_as: None };
    client.send(0, Frame::Authenticate(again)).await;
    assert_eq!(client.expect_refusal().await.kind, ErrorKind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_nothing_is_disconnected() {
    let world = World::with_limits(|limits| limits.handshake_time = Duration::from_millis(50)).await;
    let mut client = Client::connect(&world).await;
    assert_eq!(client.expect_refusal().await.kind, ErrorKind::Unauthenticated);
    let mut client = Client::connect(&world).await;
    client.hello().await;
    assert_eq!(client.expect_refusal().await.kind, ErrorKind::Unauthenticated);
    // The server does not even start TLS.
    let stream = tokio::net::TcpStream::connect(world.server.addresses.native.unwrap()).await.unwrap();
    let mut client = Client::new(stream);
    assert_eq!(client.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_idle_is_told_and_disconnected_unless_it_pings() {
    let world = World::with_limits(|limits| limits.idle_time = Duration::from_millis(100)).await;
    let mut idle = Client::connect(&world).await;
    let ack = idle.hello().await;
    assert_eq!(ack.limits.idle_ms_max, 100);
    idle.authenticate(Credentials::Local).await.unwrap();
    let mut busy = Client::admin(&world).await;
    let mut echo = 0u64;
    let pinging = eventually_so("an end of the pings", async || {
        echo += 1;
        busy.send(0, Frame::Ping(echo)).await;
        assert_eq!(busy.expect().await, (0, Frame::Pong(echo)));
        false
    });
    tokio::select! {
        () = pinging => {}
        last = idle.next() => assert!(matches!(last, Some((0, Frame::Goodbye { .. }))), "{last:?}"),
    }
    assert_eq!(idle.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_an_answer_is_asked_whether_it_is_there() {
    let world = World::with_limits(|limits| limits.idle_time = Duration::from_millis(300)).await;
    world.hooks.hold_lists.send_replace(true);
    let list = || Operation::List { lfn: crate::world::lfn("/"), cursor: Default::default(), limit: 1 };
    let mut there = Client::admin(&world).await;
    let mut gone = Client::admin(&world).await;
    let request = there.ask(list()).await;
    gone.ask(list()).await;
    for _ in 0..5 {
        match there.expect().await {
            (0, Frame::Ping(echo)) => there.send(0, Frame::Pong(echo)).await,
            other => panic!("{other:?}"),
        }
    }
    world.hooks.hold_lists.send_replace(false);
    loop {
        match there.expect().await {
            (0, Frame::Ping(echo)) => there.send(0, Frame::Pong(echo)).await,
            (id, Frame::Answer(_)) if id == request => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(gone.next().await, Some((0, Frame::Ping(_)))));
    while let Some((_, frame)) = gone.next().await {
        assert!(matches!(frame, Frame::Ping(_)), "{frame:?}");
    }
    assert!(world.figure("server", "connections_idle_closed").await >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_beyond_the_bound_is_told_so() {
    let world = World::with_limits(|limits| limits.connections_local_max = 2).await;
    let first = Client::admin(&world).await;
    let mut second = Client::admin(&world).await;
    let mut third = Client::connect(&world).await;
    assert_eq!(third.expect_refusal().await.kind, ErrorKind::Busy);
    let mut over_tls = tls(&world, &world.server.addresses.certificate).await.unwrap();
    over_tls.hello().await;
    second.call(Operation::Whoami).await.unwrap();
    drop(first);
    crate::client::soon("a free place", async {
        loop {
            let mut client = Client::connect(&world).await;
            // A refused client may find the connection closed before it has sent anything.
            let said = client.try_send(0, Frame::Hello(Hello::new("test/1"))).await;
            if said && matches!(client.next().await, Some((0, Frame::HelloAck(_)))) {
                return;
            }
        }
    })
    .await;
}

/// Goal: peers use only features in force, peers of either age work, and every answer of an
/// unshared store is of the latest state.
#[tokio::test(flavor = "multi_thread")]
async fn a_consistency_is_said_only_where_both_know_of_it() {
    let world = World::new().await;
    for features in [0, features::ALL, features::ALL | 0x100] {
        let mut client = Client::connect(&world).await;
        client.send(0, Frame::Hello(Hello { features, ..Hello::new("test/1") })).await;
        match client.expect().await {
            (0, Frame::HelloAck(ack)) => {
                // Only a follower names itself one, and says how far it is behind.
                let of_followers = features::FOLLOWER | features::BEHIND;
                assert_eq!(ack.features, features & features::ALL & !of_followers);
            }
            other => panic!("{other:?}"),
        }
        client.authenticate(Credentials::Local).await.unwrap();
        client.call(Operation::Whoami).await.unwrap();
        let options = RequestOptions { consistency: Some(Consistency::One), ..RequestOptions::default() };
        let stat = Operation::Stat { lfns: vec![exacat_model::Lfn::root()], follow: true };
        for operation in [stat, Operation::Whoami] {
            let request = client.ask_with(options, operation).await;
            if features == 0 {
                let refusal = client.expect_refusal().await;
                assert_eq!(refusal.kind, ErrorKind::Invalid);
                assert!(refusal.message.contains("consistency"), "{refusal}");
                break;
            }
            client.outcome(request).await.unwrap();
        }
    }
}
