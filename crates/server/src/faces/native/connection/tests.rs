//! Time-outs and bounds of a connection, under a paused clock. A pipe takes the place of the socket, so
//! the clock moves only while every task waits: each time is exact, and a pause shows that all work
//! has come to rest.

use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use exacat_catalogue::{Catalogue, Settings};
use exacat_model::operation::{Existing, NewFile};
use exacat_model::{Answer, Cursor, DirId, Entry, Guid, Lfn, Name, Operation, OperationId};
use exacat_store::{ApplyError, Outcome, Page, Store};
use exacat_testkit::memory::MemoryStore;
use exacat_testkit::{Before, Fronted, TestClock};
use exacat_wire::native::limits::FRAME_BYTES_MAX;
use exacat_wire::native::{Authenticate, Credentials, Frame, Hello, Request, RequestOptions, encode_frame};
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::access::own_uid;
use crate::activity::History;
use crate::admission::{Entrance, Step};
use crate::settings::Limits;
use crate::workers::WorkerBook;

/// Bytes that the pipe holds.
const PIPE_BYTES: usize = 4 << 10;
/// Resolution of the timers.
const TICK: Duration = Duration::from_millis(1);
/// A time that is short for every time-out.
const MOMENT: Duration = Duration::from_millis(100);

/// Holds writes, and counts pages of listings.
struct Hooks {
    held: watch::Sender<bool>,
    pages: AtomicU64,
}

/// The front of the store.
struct Front(Arc<Hooks>);

#[async_trait]
impl Before for Front {
    async fn apply(
        &self,
        request: exacat_store::Request,
        store: &dyn Store,
    ) -> Result<Vec<Outcome>, ApplyError> {
        let _ = self.0.held.subscribe().wait_for(|held| !*held).await;
        store.apply(request).await
    }

    async fn list(
        &self,
        directory: DirId,
        after: Option<&Name>,
        limit: usize,
        store: &dyn Store,
    ) -> exacat_model::Result<Option<Page<Entry>>> {
        self.0.pages.fetch_add(1, Ordering::SeqCst);
        store.list(directory, after, limit).await
    }
}

/// A service over a memory store.
struct World {
    service: Arc<Service>,
    hooks: Arc<Hooks>,
}

impl World {
    async fn new(limits: Limits) -> Self {
        let clock = TestClock::new();
        let hooks = Arc::new(Hooks { held: watch::Sender::new(false), pages: AtomicU64::new(0) });
        let store = Arc::new(MemoryStore::new(clock.shared()));
        let fronted = Arc::new(Fronted::new(Front(Arc::clone(&hooks)), store));
        let catalogue = Catalogue::open(fronted, clock.shared(), Settings::default()).await.unwrap();
        let history = Arc::new(History::new(catalogue.now(), None));
        let service =
            Service::new(catalogue, Arc::new(limits), history, WorkerBook::new(), Guid([7; 16]), false);
        World { service, hooks }
    }

    /// Opens a connection; its task ends with it.
    fn connect(&self) -> (Peer, JoinHandle<()>) {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let Some(Entrance::Taken(slot)) = self.service.admission.connections.enter_locally() else {
            panic!("no slot")
        };
        let peer = crate::peer::Peer::Local { uid: own_uid() };
        let (alive, _) = mpsc::channel(1);
        let connection = Connection::new(Arc::clone(&self.service), ours, peer, Instant::now(), slot, alive);
        let mut decoder = FrameDecoder::new();
        decoder.set_frame_bytes_max(FRAME_BYTES_MAX);
        (Peer { stream: theirs, decoder }, tokio::spawn(connection.run()))
    }

    /// Opens a connection that is past its handshake.
    async fn open(&self) -> (Peer, JoinHandle<()>) {
        let (mut peer, running) = self.connect();
        peer.send(0, Frame::Hello(Hello::new("test"))).await;
        assert!(matches!(peer.receive().await, Some((0, Frame::HelloAck(_)))));
        let shown = Authenticate { credentials: Credentials::Local, act_as: None };
        peer.send(0, Frame::Authenticate(shown)).await;
        assert!(matches!(peer.receive().await, Some((0, Frame::Authenticated(_)))));
        (peer, running)
    }

    /// Makes a directory `/d` with so many files.
    async fn files(&self, count: usize) {
        let (mut peer, _running) = self.open().await;
        let file = |number| NewFile::named(lfn(&format!("/d/f{number:06}")));
        let files = (0..count).map(file).collect();
        let register = Operation::Register { files, parents: true, existing: Existing::Refuse };
        peer.ask(1, register, write(1)).await;
        match peer.receive().await {
            Some((1, Frame::Answer(Answer::Registered(outcomes)))) => {
                assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The client's end of a connection.
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

    /// Returns the kind of the error that comes next.
    async fn refusal(&mut self) -> ErrorKind {
        match self.receive().await {
            Some((_, Frame::Error(error))) => error.kind,
            other => panic!("{other:?}"),
        }
    }

    async fn ask(&mut self, request: u64, operation: Operation, options: RequestOptions) {
        self.send(request, Frame::Request(Request { operation, options })).await;
    }
}

fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

/// Returns the options of the write of this number.
fn write(number: u8) -> RequestOptions {
    let id = OperationId::new(TestClock::START, [number; 10]);
    RequestOptions { operation_id: Some(id), ..RequestOptions::default() }
}

/// Makes so many directories.
fn mkdir(count: usize) -> Operation {
    let lfns = (0..count).map(|number| lfn(&format!("/new{number}"))).collect();
    Operation::Mkdir { lfns, parents: true, mode: None }
}

fn list(limit: u32) -> Operation {
    Operation::List { lfn: lfn("/d"), cursor: Cursor::default(), limit }
}

/// Asserts that exactly so much time has passed.
fn passed(since: Instant, expected: Duration) {
    let passed = since.elapsed();
    assert!((expected..=expected + TICK).contains(&passed), "{passed:?} passed, not {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn connection_without_handshake_is_refused_at_its_time() {
    let world = World::new(Limits::default()).await;
    let began = Instant::now();
    let (mut peer, running) = world.connect();
    assert_eq!(peer.refusal().await, ErrorKind::Unauthenticated);
    passed(began, world.service.limits.handshake_time);
    assert_eq!(peer.receive().await, None);
    drop(peer);
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed_with_a_goodbye() {
    let world = World::new(Limits::default()).await;
    let (mut peer, _running) = world.open().await;
    let began = Instant::now();
    assert!(matches!(peer.receive().await, Some((0, Frame::Goodbye { .. }))));
    passed(began, world.service.limits.idle_time);
    assert_eq!(peer.receive().await, None);
    assert_eq!(world.service.instruments.counts.idle.load(Ordering::Relaxed), 1);
}

/// A client that waits for an answer gets a ping after the idle time. Without a pong within the idle
/// time the server takes it for gone.
#[tokio::test(start_paused = true)]
async fn waiting_client_is_pinged_and_dropped_when_it_is_silent() {
    let world = World::new(Limits::default()).await;
    world.hooks.held.send_replace(true);
    let (mut peer, _running) = world.open().await;
    peer.ask(1, mkdir(1), write(1)).await;
    let (mut began, idle) = (Instant::now(), world.service.limits.idle_time);
    for _ in 0..3 {
        let Some((0, Frame::Ping(echo))) = peer.receive().await else { panic!("no ping") };
        passed(began, idle);
        began = Instant::now();
        peer.send(0, Frame::Pong(echo)).await;
    }
    assert!(matches!(peer.receive().await, Some((0, Frame::Ping(_)))));
    assert_eq!(peer.receive().await, None, "nothing more is sent");
    passed(began, 2 * idle);
    world.hooks.held.send_replace(false);
}

#[tokio::test(start_paused = true)]
async fn client_that_never_reads_is_disconnected_after_the_stall_time() {
    let world = World::new(Limits::default()).await;
    world.files(1000).await;
    let (mut peer, running) = world.open().await;
    let began = Instant::now();
    peer.ask(1, list(1000), RequestOptions::default()).await;
    running.await.unwrap();
    passed(began, world.service.limits.output_stall);
    assert_eq!(world.service.instruments.counts.stalled.load(Ordering::Relaxed), 1);
}

/// A write that waits for a slot of its lane is refused at its deadline, and not before. Nothing was
/// done then.
#[tokio::test(start_paused = true)]
async fn write_without_a_slot_is_refused_at_its_deadline() {
    let limits = Limits { bulk_slots: 1, write_items_per_request_max: 1, ..Limits::default() };
    let world = World::new(limits).await;
    let slot = world.service.admission.bulk.enter(None, 1, Step::First).unwrap().await;
    let (mut peer, _running) = world.open().await;
    let began = Instant::now();
    peer.ask(1, mkdir(2), RequestOptions { deadline_ms: Some(5000), ..write(1) }).await;
    assert_eq!(peer.refusal().await, ErrorKind::Unavailable);
    passed(began, Duration::from_secs(5));
    drop(slot);
    peer.ask(2, mkdir(2), write(2)).await;
    match peer.receive().await {
        Some((2, Frame::Answer(Answer::EachDone(outcomes)))) => {
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// A write that has begun has an unknown outcome at its deadline, which is at most the server's longest.
#[tokio::test(start_paused = true)]
async fn write_without_an_end_is_unknown_at_its_deadline() {
    let longest = Duration::from_secs(20);
    let world = World::new(Limits { deadline_max: longest, ..Limits::default() }).await;
    world.hooks.held.send_replace(true);
    let (mut peer, _running) = world.open().await;
    for (request, asked, expected) in
        [(1, None, longest), (2, Some(3000), Duration::from_secs(3)), (3, Some(60_000), longest)]
    {
        let began = Instant::now();
        peer.ask(request, mkdir(1), RequestOptions { deadline_ms: asked, ..write(request as u8) }).await;
        assert_eq!(peer.refusal().await, ErrorKind::Unknown);
        passed(began, expected);
    }
    world.hooks.held.send_replace(false);
}

/// The server makes as many pages as fit into the pipe, the output and the rooms; then it stops until
/// the client reads.
#[tokio::test(start_paused = true)]
async fn pages_on_their_way_to_a_slow_reader_are_bounded() {
    const REQUESTS: u64 = 200;
    let limits = Limits { output_bytes_max: 64 << 10, ..Limits::default() };
    let world = World::new(limits).await;
    world.files(1000).await;
    let (mut peer, _running) = world.open().await;
    // The pipe is shorter than all requests: the server takes them in while it makes pages.
    for request in 1..=REQUESTS {
        peer.ask(request, list(1000), RequestOptions::default()).await;
    }
    tokio::time::sleep(MOMENT).await;
    let made = world.hooks.pages.load(Ordering::SeqCst);
    assert!(made > 0 && made < 100, "{made} pages were made for a client that does not read");
    for _ in 0..REQUESTS {
        match peer.receive().await {
            Some((_, Frame::Answer(Answer::Entries { items, .. }))) => assert_eq!(items.len(), 1000),
            other => panic!("{other:?}"),
        }
    }
}
