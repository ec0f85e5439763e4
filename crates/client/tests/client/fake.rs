//! A small fake server made of the wire codec; each test sets its answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use exacat_client::{Client, ClientSettings, Credentials, Endpoint, Target};
use exacat_model::{Answer, Error, ErrorKind, Guid, Lfn, Operation, OperationId, Revision, TimelineId};
use exacat_wire::native::limits::FRAME_BYTES_MAX;
use exacat_wire::native::{
    AnswerBatch, Frame, FrameDecoder, HelloAck, Identity, Limits, PROTOCOL_VERSION, encode_frame,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// Bound of every wait in a test: long enough for a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

pub(crate) fn error(kind: ErrorKind) -> Error {
    Error::new(kind, format!("the fake says {kind}"))
}

pub(crate) fn done(revision: u64) -> Answer {
    Answer::Done { revision: Revision(revision) }
}

pub(crate) fn limits() -> Limits {
    Limits { frame_bytes_max: 1 << 20, requests_in_flight_max: 100, batch_operations_max: 50, idle_ms_max: 0 }
}

/// Timeline of the fake catalogue.
pub(crate) const TIMELINE: TimelineId = TimelineId([7; 16]);

pub(crate) fn hello_ack(limits: Limits) -> HelloAck {
    HelloAck {
        version: PROTOCOL_VERSION,
        features: 0,
        limits,
        server: "fake/1".to_owned(),
        catalogue: Guid([7; 16]),
        timeline: TIMELINE,
        authentication_required: false,
        time: exacat_model::TimeMs(1_790_000_000_000),
    }
}

pub(crate) fn identity() -> Identity {
    Identity { user: None, scope: Lfn::root(), write: true }
}

/// Settings with short times.
pub(crate) fn settings() -> ClientSettings {
    ClientSettings {
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(20),
        deadline: PATIENCE,
        ..ClientSettings::default()
    }
}

/// One connection, as the fake server uses it.
pub(crate) struct Conn {
    pub stream: UnixStream,
    decoder: FrameDecoder,
}

impl Conn {
    /// Returns the next frame; none at the end of the connection.
    pub(crate) async fn receive(&mut self) -> Option<(u64, Frame)> {
        loop {
            if let Some(raw) = self.decoder.next_frame().expect("the client keeps to the protocol") {
                return Some((raw.request, raw.decode().expect("the client's frames decode")));
            }
            self.decoder.buffer_mut().reserve(1 << 16);
            match self.stream.read_buf(self.decoder.buffer_mut()).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Returns the next frame that is no ping; answers pings.
    pub(crate) async fn asked(&mut self) -> Option<(u64, Frame)> {
        loop {
            match self.receive().await? {
                (_, Frame::Ping(echo)) => self.send(0, Frame::Pong(echo)).await,
                (_, Frame::Goodbye { .. }) => return None,
                frame => return Some(frame),
            }
        }
    }

    /// Returns the next single operation.
    pub(crate) async fn operation(&mut self) -> Option<(u64, Option<OperationId>, Operation)> {
        match self.asked().await? {
            (request, Frame::Request(asked)) => Some((request, asked.options.operation_id, asked.operation)),
            (_, other) => panic!("not a request: {other:?}"),
        }
    }

    pub(crate) async fn send(&mut self, request: u64, frame: Frame) {
        self.send_bytes(&bytes(request, &frame)).await;
    }

    /// Sends bytes. The client may be gone already; the test decides whether that matters.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn greet_as(&mut self, ack: HelloAck) {
        let (_, hello) = self.receive().await.expect("a hello");
        assert!(matches!(hello, Frame::Hello(_)), "{hello:?}");
        self.send(0, Frame::HelloAck(ack)).await;
        let (_, authenticate) = self.receive().await.expect("credentials");
        assert!(matches!(authenticate, Frame::Authenticate(_)), "{authenticate:?}");
        self.decoder.set_frame_bytes_max(FRAME_BYTES_MAX);
        self.send(0, Frame::Authenticated(identity())).await;
    }

    pub(crate) async fn greet(&mut self) {
        self.greet_as(hello_ack(limits())).await;
    }

    /// Answers all requests in the same way until the client closes, for tests of other matters.
    pub(crate) async fn answer_all(mut self, answer: impl Fn(&Operation) -> Result<Answer, Error>) {
        while let Some((request, frame)) = self.asked().await {
            match frame {
                Frame::Request(asked) => self.send(request, outcome(answer(&asked.operation))).await,
                Frame::Batch(batch) => {
                    let answers = batch.items.iter().map(|item| answer(&item.operation)).collect();
                    self.send(request, Frame::AnswerBatch(AnswerBatch { first: 0, answers })).await;
                }
                Frame::Cancel | Frame::Credit { .. } => {}
                other => panic!("not a request: {other:?}"),
            }
        }
    }
}

pub(crate) fn outcome(answer: Result<Answer, Error>) -> Frame {
    match answer {
        Ok(answer) => Frame::Answer(answer),
        Err(error) => Frame::Error(error),
    }
}

pub(crate) fn bytes(request: u64, frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, FRAME_BYTES_MAX, request, frame).unwrap();
    bytes
}

/// A fake server. A failed assertion of a handler fails the test when the server is dropped.
pub(crate) struct Fake {
    pub path: PathBuf,
    connections: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Fake {
    /// Serves each connection by `handler`, which gets its number: 0, 1, 2 …
    pub(crate) fn serve<H, F>(handler: H) -> Fake
    where
        H: Fn(usize, Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let failures: Arc<Mutex<Vec<String>>> = Arc::default();
        let (counter, failed) = (connections.clone(), failures.clone());
        let task = tokio::spawn(async move {
            let mut handlers = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (stream, _) = accepted.unwrap();
                        let number = counter.fetch_add(1, Ordering::SeqCst);
                        handlers.spawn(handler(number, Conn { stream, decoder: FrameDecoder::new() }));
                    }
                    Some(ended) = handlers.join_next() => {
                        if let Err(error) = ended {
                            failed.lock().push(error.to_string());
                        }
                    }
                }
            }
        });
        Fake { path, connections, failures, task, _directory: directory }
    }

    /// Serves each connection by `handler`, which also gets the state that it shares with the test.
    pub(crate) fn serve_with<S, H, F>(shared: &Arc<S>, handler: H) -> Fake
    where
        S: Send + Sync + 'static,
        H: Fn(Arc<S>, usize, Conn) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let shared = shared.clone();
        Fake::serve(move |number, conn| handler(shared.clone(), number, conn))
    }

    pub(crate) fn target(&self) -> Target {
        Target::new(vec![Endpoint::Unix(self.path.clone())]).unwrap()
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_with(settings()).await
    }

    pub(crate) async fn client_with(&self, settings: ClientSettings) -> Client {
        Client::connect(self.target(), Credentials::local(), settings).await.unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
        if !std::thread::panicking() {
            assert!(self.failures.lock().is_empty(), "the fake server: {:?}", self.failures.lock());
        }
    }
}

/// Waits until a condition holds. Looks again whenever the other tasks have had their turn.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never came to be: {what}"));
}
