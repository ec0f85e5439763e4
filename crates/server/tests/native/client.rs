//! Client for tests: sends exactly the given frames.

use std::path::Path;
use std::sync::Arc;

use exacat_model::{Answer, Error, Operation, OperationId, TimeMs};
use exacat_testkit::TestClock;
use exacat_wire::native::{
    Authenticate, Credentials, Frame, FrameDecoder, Hello, HelloAck, Identity, Request, RequestOptions,
    Secret, encode_frame, encode_request,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::world::World;

#[allow(unused_imports, reason = "each test program uses some of them")]
pub(crate) use exacat_testkit::waiting::{eventually, eventually_so, soon};
/// Largest frame that the client accepts.
pub(crate) const FRAME_BYTES_MAX: usize = exacat_wire::native::limits::FRAME_BYTES_MAX;

/// Transport of a client.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub(crate) struct Client {
    pub stream: Box<dyn Stream>,
    decoder: FrameDecoder,
    next: u64,
    /// The server's time from the handshake.
    time: TimeMs,
}

/// Returns a fresh operation id, made when the tests' clock starts.
pub(crate) fn new_id() -> OperationId {
    id_made(TestClock::START)
}

fn id_made(time: TimeMs) -> OperationId {
    let mut random = [0; 10];
    getrandom::fill(&mut random).unwrap();
    OperationId::new(time, random)
}

/// Returns a TLS client that trusts the certificates of a file. Shows a chain and its key, both in
/// PEM, if given.
pub(crate) fn trusting(certificates: &Path, shows: Option<(&str, &str)>) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(certificates).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
    let config = match shows {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
            let chain = chain.map(|certificate| certificate.unwrap()).collect();
            config
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap()
        }
    };
    TlsConnector::from(Arc::new(config))
}

/// Returns the name in the server's own certificate.
pub(crate) fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

pub(crate) async fn tls(world: &World, certificate: &Path) -> std::io::Result<Client> {
    let stream = TcpStream::connect(world.server.addresses.native.unwrap()).await?;
    stream.set_nodelay(true)?;
    Ok(Client::new(trusting(certificate, None).connect(localhost(), stream).await?))
}

/// Connects from this address of the loopback network, and sends nothing.
pub(crate) async fn from_host(world: &World, host: &str) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(std::net::SocketAddr::new(host.parse().unwrap(), 0)).unwrap();
    socket.connect(world.server.addresses.native.unwrap()).await.unwrap()
}

/// Connects from this address, with TLS.
pub(crate) async fn tls_from_host(world: &World, host: &str) -> Client {
    let stream = from_host(world, host).await;
    let connector = trusting(&world.server.addresses.certificate, None);
    Client::new(connector.connect(localhost(), stream).await.unwrap())
}

impl Client {
    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_frame_bytes_max(FRAME_BYTES_MAX);
        Client { stream: Box::new(stream), decoder, next: 1, time: TestClock::START }
    }

    /// Connects to the local socket, and sends nothing.
    pub(crate) async fn connect(world: &World) -> Self {
        let path = world.server.addresses.socket.clone().unwrap();
        Client::new(UnixStream::connect(path).await.unwrap())
    }

    /// Connects to the local socket, as the administrator.
    pub(crate) async fn admin(world: &World) -> Self {
        let mut client = Client::connect(world).await;
        client.hello().await;
        client.authenticate(Credentials::Local).await.unwrap();
        client
    }

    /// Connects to the local socket, with a token.
    pub(crate) async fn with_token(world: &World, secret: &str) -> Self {
        let mut client = Client::connect(world).await;
        client.hello().await;
        client.authenticate(Credentials::Token(Secret::new(secret))).await.unwrap();
        client
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        soon("the server to read", self.stream.write_all(bytes)).await.unwrap();
        soon("the server to read", self.stream.flush()).await.unwrap();
    }

    pub(crate) async fn send(&mut self, request: u64, frame: Frame) {
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, FRAME_BYTES_MAX, request, &frame).unwrap();
        self.write(&bytes).await;
    }

    /// Sends a frame; false if the server has closed the connection.
    pub(crate) async fn try_send(&mut self, request: u64, frame: Frame) -> bool {
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, FRAME_BYTES_MAX, request, &frame).unwrap();
        soon("the server to read", self.stream.write_all(&bytes)).await.is_ok()
    }

    /// Returns the next frame; none if the server closed the connection.
    pub(crate) async fn next(&mut self) -> Option<(u64, Frame)> {
        soon("a frame", async {
            loop {
                if let Some(raw) = self.decoder.next_frame().unwrap() {
                    return Some((raw.request, raw.decode().unwrap()));
                }
                match self.stream.read_buf(self.decoder.buffer_mut()).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        })
        .await
    }

    /// Returns the next frame, which must exist.
    pub(crate) async fn expect(&mut self) -> (u64, Frame) {
        self.next().await.expect("the server closed the connection")
    }

    /// Expects an error about the connection, and its end.
    pub(crate) async fn expect_refusal(&mut self) -> Error {
        match self.next().await {
            Some((0, Frame::Error(error))) => {
                assert_eq!(self.next().await, None, "after an error of the connection, it is closed");
                error
            }
            other => panic!("not a refusal: {other:?}"),
        }
    }

    pub(crate) async fn hello(&mut self) -> HelloAck {
        self.send(0, Frame::Hello(Hello::new("test/1"))).await;
        match self.expect().await {
            (0, Frame::HelloAck(ack)) => {
                self.time = ack.time;
                ack
            }
            other => panic!("not an answer to hello: {other:?}"),
        }
    }

    pub(crate) async fn authenticate(&mut self, credentials: Credentials) -> Result<Identity, Error> {
        self.authenticate_as(Authenticate { credentials, act_as: None }).await
    }

    pub(crate) async fn authenticate_as(&mut self, shown: Authenticate) -> Result<Identity, Error> {
        self.send(0, Frame::Authenticate(shown)).await;
        match self.expect().await {
            (0, Frame::Authenticated(identity)) => Ok(identity),
            (0, Frame::Error(error)) => {
                assert_eq!(self.next().await, None, "whoever is refused is disconnected");
                Err(error)
            }
            other => panic!("not an answer to who I am: {other:?}"),
        }
    }

    /// Sends a request; returns its number.
    pub(crate) async fn ask_with(&mut self, options: RequestOptions, operation: Operation) -> u64 {
        let request = self.next;
        self.next += 1;
        self.send(request, Frame::Request(Request { options, operation })).await;
        request
    }

    /// Sends a request, with an operation id if it needs one; returns its number.
    pub(crate) async fn ask(&mut self, operation: Operation) -> u64 {
        let operation_id = operation.writes().then(|| id_made(self.time));
        self.ask_with(RequestOptions { operation_id, ..RequestOptions::default() }, operation).await
    }

    /// Returns the outcome of a request, which must come next.
    pub(crate) async fn outcome(&mut self, request: u64) -> Result<Answer, Error> {
        match self.expect().await {
            (id, Frame::Answer(answer)) if id == request => Ok(answer),
            (id, Frame::Error(error)) if id == request => Err(error),
            other => panic!("not the outcome of request {request}: {other:?}"),
        }
    }

    /// Sends a request, and waits for the outcome.
    pub(crate) async fn call(&mut self, operation: Operation) -> Result<Answer, Error> {
        let request = self.ask(operation).await;
        self.outcome(request).await
    }

    /// Encodes many requests for one write: numbers `from ..`.
    pub(crate) fn pipelined(from: u64, operations: impl IntoIterator<Item = Operation>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (request, operation) in (from..).zip(operations) {
            let options =
                RequestOptions { operation_id: operation.writes().then(new_id), ..RequestOptions::default() };
            encode_request(&mut bytes, FRAME_BYTES_MAX, request, &options, &operation).unwrap();
        }
        bytes
    }
}
