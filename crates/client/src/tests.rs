//! Time-outs of a connection, under a paused clock. A pipe takes the place of the socket, so the clock
//! moves only while every task waits, and each time is exact.

use std::sync::Arc;
use std::time::Duration;

use exacat_model::{Answer, Lfn, Operation, OperationId, Revision, TimeMs};
use exacat_wire::native::limits::FRAME_BYTES_MAX;
use exacat_wire::native::{Frame, FrameDecoder, Limits, encode_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::settings::ClientSettings;
use crate::shared::tests::greeting;
use crate::slots::{Answered, Outcome};
use crate::target::Endpoint;

/// Bytes that the pipe holds.
const PIPE_BYTES: usize = 1 << 10;
/// Resolution of the timers.
const TICK: Duration = Duration::from_millis(1);

const LIMITS: Limits =
    Limits { frame_bytes_max: 1 << 20, requests_in_flight_max: 2, batch_operations_max: 50, idle_ms_max: 0 };

/// The server's end of a connection.
struct Peer {
    stream: DuplexStream,
    decoder: FrameDecoder,
}

impl Peer {
    /// Returns the next frame; none at the end of the connection.
    async fn receive(&mut self) -> Option<(u64, Frame)> {
        loop {
            if let Some(raw) = self.decoder.next_frame().unwrap() {
                return Some((raw.request, raw.decode().unwrap()));
            }
            if self.stream.read_buf(self.decoder.buffer_mut()).await.unwrap() == 0 {
                return None;
            }
        }
    }

    async fn send(&mut self, request: u64, frame: Frame) {
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, FRAME_BYTES_MAX, request, &frame).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// Answers pings, and nothing else, until the end of the connection. Returns their number.
    async fn answer_pings(mut self) -> usize {
        let mut pings = 0;
        while let Some((_, frame)) = self.receive().await {
            if let Frame::Ping(echo) = frame {
                pings += 1;
                self.send(0, Frame::Pong(echo)).await;
            }
        }
        pings
    }
}

fn connect(settings: &ClientSettings, limits: Limits) -> (Arc<Connection>, Peer) {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let mut decoder = FrameDecoder::new();
    decoder.set_frame_bytes_max(FRAME_BYTES_MAX);
    let endpoint = Endpoint::Unix("/nowhere".into());
    let mut own = FrameDecoder::new();
    own.set_frame_bytes_max(FRAME_BYTES_MAX);
    let connection = Connection::start(ours, own, &endpoint, greeting(limits), settings);
    (connection, Peer { stream: theirs, decoder })
}

/// Calls a write.
async fn write(connection: &Connection, deadline: Instant) -> Outcome<Answered> {
    let operation = Operation::Mkdir { lfns: vec![Lfn::parse("/d").unwrap()], parents: false, mode: None };
    connection.call(&operation, Some(OperationId::new(TimeMs(0), [1; 10])), deadline).await
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Asserts that exactly so much time has passed.
fn passed(since: Instant, expected: Duration) {
    let passed = since.elapsed();
    assert!((expected..=expected + TICK).contains(&passed), "{passed:?} passed, not {expected:?}");
}

/// Says whether a request is lost, and may have reached the server.
fn lost<T>(outcome: Outcome<T>) -> Option<bool> {
    match outcome {
        Outcome::Lost { sent, .. } => Some(sent),
        Outcome::Answered(_) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn call_without_answer_ends_at_its_deadline() {
    let (connection, peer) =
        connect(&ClientSettings::default(), Limits { requests_in_flight_max: 3, ..LIMITS });
    let server = tokio::spawn(peer.answer_pings());
    for deadline in [Duration::from_millis(1), seconds(5), seconds(20)] {
        let began = Instant::now();
        assert_eq!(lost(write(&connection, began + deadline).await), Some(true));
        passed(began, deadline);
    }
    drop(connection);
    server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn call_beyond_those_in_flight_ends_at_its_deadline_and_was_not_sent() {
    let (connection, peer) = connect(&ClientSettings::default(), LIMITS);
    let _server = tokio::spawn(peer.answer_pings());
    let began = Instant::now();
    let timed = |deadline| {
        let connection = Arc::clone(&connection);
        async move {
            let outcome = write(&connection, began + seconds(deadline)).await;
            (lost(outcome), began.elapsed())
        }
    };
    let (first, second, third) = tokio::join!(timed(3), timed(4), timed(2));
    assert_eq!((first.0, second.0, third.0), (Some(true), Some(true), Some(false)));
    for (elapsed, expected) in [(first.1, 3), (second.1, 4), (third.1, 2)] {
        assert!((seconds(expected)..=seconds(expected) + TICK).contains(&elapsed), "{elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_server_is_pinged_and_then_taken_for_dead() {
    let settings = ClientSettings::default();
    let (connection, mut peer) = connect(&settings, LIMITS);
    let began = Instant::now();
    assert!(matches!(peer.receive().await, Some((0, Frame::Ping(_)))));
    passed(began, settings.ping_after);
    while let Some((request, frame)) = peer.receive().await {
        assert!(matches!((request, &frame), (0, Frame::Ping(_))), "{frame:?}");
        assert!(connection.is_open());
    }
    passed(began, settings.dead_after);
    assert!(!connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_kept_open_by_pings() {
    let settings = ClientSettings::default();
    let (connection, peer) = connect(&settings, LIMITS);
    let server = tokio::spawn(peer.answer_pings());
    let day = seconds(24 * 3600);
    // Not at the time of a ping.
    tokio::time::sleep(day + seconds(1)).await;
    assert!(connection.is_open());
    drop(connection);
    let (pings, least) = (server.await.unwrap(), (day.as_secs() / settings.dead_after.as_secs()) as usize);
    let most = (day.as_secs() / settings.ping_after.as_secs()) as usize;
    assert!((least..=most).contains(&pings), "{pings} pings");
}

#[tokio::test(start_paused = true)]
async fn ping_comes_within_half_of_the_idle_time_of_the_server() {
    let (_connection, mut peer) = connect(&ClientSettings::default(), Limits { idle_ms_max: 8000, ..LIMITS });
    let began = Instant::now();
    assert!(matches!(peer.receive().await, Some((0, Frame::Ping(_)))));
    passed(began, seconds(4));
}

#[tokio::test(start_paused = true)]
async fn server_that_answers_pings_and_forgets_a_request_is_left() {
    let settings = ClientSettings::default();
    let (connection, peer) = connect(&settings, LIMITS);
    let server = tokio::spawn(peer.answer_pings());
    let began = Instant::now();
    assert_eq!(lost(write(&connection, began + seconds(5)).await), Some(true));
    assert!(connection.is_open(), "the answer may still come");
    server.await.unwrap();
    assert!(!connection.is_open());
    // The client looks for forgotten requests as often as for silence.
    let overdue = seconds(5) + settings.dead_after;
    let elapsed = began.elapsed();
    assert!((overdue..=overdue + settings.ping_after).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn server_that_reads_nothing_is_taken_for_dead() {
    let settings = ClientSettings::default();
    let (connection, _peer) = connect(&settings, LIMITS);
    let began = Instant::now();
    let long = Operation::Du { lfns: vec![Lfn::parse(&format!("/{}", "x".repeat(200))).unwrap(); 100] };
    assert_eq!(lost(connection.call(&long, None, began + seconds(3600)).await), Some(true));
    passed(began, settings.dead_after);
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_requests_in_flight_until_its_bound() {
    let (connection, peer) = connect(&ClientSettings::default(), LIMITS);
    let _server = tokio::spawn(peer.answer_pings());
    let began = Instant::now();
    let calling = {
        let connection = Arc::clone(&connection);
        tokio::spawn(async move { lost(write(&connection, began + seconds(3600)).await) })
    };
    tokio::task::yield_now().await;
    connection.close(seconds(7)).await;
    passed(began, seconds(7));
    assert_eq!(calling.await.unwrap(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn close_ends_at_once_when_the_last_answer_is_there() {
    let (connection, mut peer) = connect(&ClientSettings::default(), LIMITS);
    let began = Instant::now();
    let server = tokio::spawn(async move {
        let (request, _) = peer.receive().await.unwrap();
        tokio::time::sleep(seconds(2)).await;
        peer.send(request, Frame::Answer(Answer::Done { revision: Revision(1) })).await;
        assert!(matches!(peer.receive().await, Some((0, Frame::Goodbye { .. }))));
        assert_eq!(peer.receive().await, None);
    });
    let calling = {
        let connection = Arc::clone(&connection);
        tokio::spawn(async move { write(&connection, began + seconds(3600)).await })
    };
    tokio::task::yield_now().await;
    connection.close(seconds(7)).await;
    passed(began, seconds(2));
    server.await.unwrap();
    let answered = match calling.await.unwrap() {
        Outcome::Answered(answered) => answered,
        Outcome::Lost { error, .. } => Err(error),
    };
    assert_eq!(answered, Ok(Answer::Done { revision: Revision(1) }));
}
