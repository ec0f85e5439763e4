//! Service with a catalogue of its own, a producer that speaks frames, and requests of HTTP.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use exacat_disk::{Disk, RealDisk};
use exacat_model::{Error, ErrorKind, Lfn, Result, SeName};
use exacat_wire::native::Secret;
use exacat_wire::writer::{
    ChunkHead, Close, Description, FileId, Frame, FrameDecoder, Hello, Open, Opened, PartOwner, Received,
    RefusalClass, Role, ServiceId, WriterId, encode, encode_chunk,
};
use exacat_writer::Certificate;
use exacat_writer::sums::{adler32, crc32c};
use exacat_writer_service::{
    Booking, Catalogue, CommitFailure, Credential, LinkSettings, Readable, Remote, RemoteSettings, Server,
    ServerSettings, StagedReplica, Trust,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Longest wait of a test for anything.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// Silence after which a producer that waits pings.
const PING_EVERY: Duration = Duration::from_millis(500);
/// Token of an operator.
pub(crate) const OPERATOR: &str = "token-of-an-operator";
/// Token of the owner of all files.
pub(crate) const OWNER: &str = "token-of-the-owner";
/// Token of somebody without rights.
pub(crate) const STRANGER: &str = "token-of-a-stranger";
const WRITER: WriterId = WriterId([9; 16]);

/// Catalogue in memory.
#[derive(Default)]
pub(crate) struct Fake {
    pub files: Mutex<HashMap<FileId, Certificate>>,
    /// Copies on other storage elements.
    pub replicas: Mutex<HashMap<FileId, StagedReplica>>,
    /// Beginnings of the PFNs of storage elements.
    pub prefixes: Mutex<HashMap<String, String>>,
    /// True to refuse copies.
    pub takes_no_replicas: AtomicBool,
    /// True to let commits fail.
    pub is_down: AtomicBool,
    /// Questions about rights.
    pub judged: AtomicU64,
}

impl Fake {
    fn account(&self, credential: &Credential) -> Result<&'static str> {
        self.judged.fetch_add(1, Ordering::Relaxed);
        match credential {
            Credential::Token(token) if token == OPERATOR => Ok("operator"),
            Credential::Token(token) if token == OWNER => Ok("daq"),
            Credential::Token(token) if token == STRANGER => Ok("stranger"),
            _ => Err(Error::new(ErrorKind::Unauthenticated, "an unknown token")),
        }
    }
}

impl Catalogue for Fake {
    fn book<'a>(&'a self, credential: &'a Credential, _open: &'a Open) -> BoxFuture<'a, Booking> {
        let account = self.account(credential).map(str::to_owned);
        async move { account.map_err(|error| (RefusalClass::BadRequest, error.to_string())) }.boxed()
    }

    fn commit<'a>(
        &'a self,
        certificate: &'a Certificate,
    ) -> BoxFuture<'a, std::result::Result<(), CommitFailure>> {
        async move {
            if self.is_down.load(Ordering::Relaxed) {
                return Err(CommitFailure { is_final: false, reason: "the catalogue is down".to_owned() });
            }
            self.files.lock().insert(certificate.file, certificate.clone());
            Ok(())
        }
        .boxed()
    }

    fn add_replica<'a>(
        &'a self,
        replica: &'a StagedReplica,
    ) -> BoxFuture<'a, std::result::Result<(), CommitFailure>> {
        async move {
            if self.takes_no_replicas.load(Ordering::Relaxed) {
                return Err(CommitFailure { is_final: false, reason: "no".to_owned() });
            }
            let before = self.replicas.lock().insert(replica.file, replica.clone());
            assert!(before.is_none_or(|before| before == *replica), "another replica");
            Ok(())
        }
        .boxed()
    }

    fn prefix_of<'a>(&'a self, se: &'a SeName) -> BoxFuture<'a, Result<String>> {
        let found = self.prefixes.lock().get(se.as_str()).cloned();
        async move { found.ok_or_else(|| Error::not_found("no such storage element")) }.boxed()
    }

    fn own_credential(&self) -> Credential {
        Credential::Token(OPERATOR.to_owned())
    }

    fn may_read<'a>(
        &'a self,
        credential: &'a Credential,
        what: &'a Readable,
    ) -> BoxFuture<'a, Result<FileId>> {
        async move {
            let account = self.account(credential)?;
            let files = self.files.lock();
            let found = match what {
                Readable::File(file) => files.get(file),
                Readable::Name(lfn) => files.values().find(|file| file.description.lfn == *lfn),
            };
            let found = found.ok_or_else(|| Error::new(ErrorKind::NotFound, "no such file"))?;
            match account {
                "stranger" => Err(Error::new(ErrorKind::Denied, "not yours")),
                _ => Ok(found.file),
            }
        }
        .boxed()
    }

    fn is_owner<'a>(&'a self, credential: &'a Credential, owner: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            let account = self.account(credential)?;
            let is_allowed = account == owner || account == "operator";
            if is_allowed { Ok(()) } else { Err(Error::new(ErrorKind::Denied, "not yours")) }
        }
        .boxed()
    }

    fn may_operate<'a>(&'a self, credential: &'a Credential) -> BoxFuture<'a, Result<()>> {
        async move {
            match self.account(credential)? {
                "operator" => Ok(()),
                _ => Err(Error::new(ErrorKind::Denied, "not an operator")),
            }
        }
        .boxed()
    }
}

/// A service, with its directory.
pub(crate) struct Rig {
    pub server: Server,
    pub catalogue: Arc<Fake>,
    pub directory: tempfile::TempDir,
}

/// Returns settings for a volume in a directory.
pub(crate) fn settings(volume: PathBuf) -> ServerSettings {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut settings = ServerSettings::new(any, vec![volume]);
    settings.blocks = 32;
    settings.http = Some(any);
    settings.free_bytes_min = 1;
    settings
}

/// Lets a service look for others at these addresses.
pub(crate) fn link(settings: &mut ServerSettings, seeds: &[SocketAddr]) {
    settings.links = Some(LinkSettings {
        trust: Trust::load(None, Arc::new(|_| true)).unwrap(),
        cluster: "test".to_owned(),
        multicast: None,
        seeds: seeds.iter().map(ToString::to_string).collect(),
    });
}

/// Waits until services know each other, with their present addresses.
pub(crate) async fn acquainted(services: &[&Rig]) {
    let urls: Vec<String> = services.iter().map(|rig| format!("http://{}", rig.http())).collect();
    for rig in services {
        let remote = rig.remote("");
        eventually("the services know each other", async || {
            let table = remote.table().await.unwrap().services;
            let up = |url: &String| table.iter().any(|of| of.state == "up" && of.http == *url);
            urls.iter().all(up)
        })
        .await;
    }
}

/// Starts services that know each other, beside one catalogue.
pub(crate) async fn services<const COUNT: usize>(
    mut change: impl FnMut(usize, &mut ServerSettings),
) -> [Rig; COUNT] {
    let catalogue: Arc<Fake> = Arc::default();
    let (mut rigs, mut seeds) = (Vec::new(), Vec::new());
    for at in 0..COUNT {
        let rig = Rig::with(Arc::clone(&catalogue), |settings| {
            link(settings, &seeds);
            change(at, settings);
        })
        .await;
        seeds.push(rig.server.address());
        rigs.push(rig);
    }
    acquainted(&rigs.iter().collect::<Vec<_>>()).await;
    rigs.try_into().ok().unwrap()
}

/// Writes a file that begins on one service, and goes on and ends on another, which certifies it.
pub(crate) async fn written_on_two(
    (first, second): (&Rig, &Rig),
    file: FileId,
    lfn: &str,
    (chunks, border): (&[Vec<u8>], usize),
) {
    let from = chunks[..border].iter().map(|chunk| chunk.len() as u64).sum();
    let mut producer = Producer::connect(first.server.address()).await;
    producer.open(file, 1, 0, lfn).await;
    producer.chunks(file, 1, 0, 0, &chunks[..border]).await;
    let mut producer = Producer::connect(second.server.address()).await;
    producer.open(file, 2, from, lfn).await;
    producer.chunks(file, 2, border as u64, from, &chunks[border..]).await;
    let parts = [(1, first.server.service()), (2, second.server.service())];
    producer.close(file, chunks, &parts).await;
}

impl Rig {
    pub(crate) async fn start() -> Rig {
        Rig::with(Arc::default(), |_| {}).await
    }

    pub(crate) async fn with(catalogue: Arc<Fake>, change: impl FnOnce(&mut ServerSettings)) -> Rig {
        Rig::on(Arc::new(RealDisk), catalogue, change).await
    }

    pub(crate) async fn on(
        disk: Arc<dyn Disk>,
        catalogue: Arc<Fake>,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(directory.path().join("volume"));
        change(&mut settings);
        let of: Arc<dyn Catalogue> = Arc::<Fake>::clone(&catalogue);
        let server = Server::start(settings, disk, of).await.unwrap();
        Rig { server, catalogue, directory }
    }

    /// Ends the service, and starts it again over its volume.
    pub(crate) async fn restarted(self, change: impl FnOnce(&mut ServerSettings)) -> Rig {
        let Rig { server, catalogue, directory } = self;
        server.stop().await;
        let mut settings = settings(directory.path().join("volume"));
        change(&mut settings);
        let of: Arc<dyn Catalogue> = Arc::<Fake>::clone(&catalogue);
        let server = Server::start(settings, Arc::new(RealDisk), of).await.unwrap();
        Rig { server, catalogue, directory }
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.server.http_address().unwrap()
    }

    pub(crate) fn remote(&self, token: &str) -> Remote {
        let address = format!("http://{}", self.http());
        let token = (!token.is_empty()).then(|| token.to_owned());
        Remote::new(RemoteSettings { address, token, tls: None, time: LONG }).unwrap()
    }

    /// Writes a file of these chunks, and waits for its certificate.
    pub(crate) async fn certified(&self, file: FileId, lfn: &str, chunks: &[Vec<u8>]) {
        let mut producer = Producer::connect(self.server.address()).await;
        producer.open(file, 1, 0, lfn).await;
        let (mut sequence, mut offset) = (0, 0);
        for some in chunks.chunks(16) {
            producer.chunks(file, 1, sequence, offset, some).await;
            sequence += some.len() as u64;
            offset += some.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
        }
        producer.close(file, chunks, &[(1, self.server.service())]).await;
    }
}

/// Returns a chunk of so many bytes.
pub(crate) fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed))
        .collect()
}

fn head(file: FileId, epoch: u32, (sequence, offset): (u64, u64), chunk: &[u8]) -> ChunkHead {
    ChunkHead {
        writer: WRITER,
        file,
        sequence,
        offset,
        stream: 1,
        epoch,
        length: chunk.len() as u32,
        events: 1,
        crc32c: crc32c(chunk),
        adler32: adler32(chunk),
    }
}

/// A producer.
pub(crate) struct Producer {
    writer: WriterId,
    stream: TcpStream,
    decoder: FrameDecoder,
    /// Limit of each part, and the end of its last durable range.
    parts: HashMap<(FileId, u32), (u64, u64)>,
    /// Time when it sent something last: what it receives shows the service nothing.
    sent: Instant,
}

impl Producer {
    pub(crate) async fn connect(address: SocketAddr) -> Producer {
        Producer::connect_as(address, WRITER).await
    }

    pub(crate) async fn connect_as(address: SocketAddr, writer: WriterId) -> Producer {
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let stream = TcpStream::connect(address).await.unwrap();
        let (decoder, parts) = (FrameDecoder::of_begun(), HashMap::new());
        let mut producer = Producer { writer, stream, decoder, parts, sent: Instant::now() };
        let hello =
            Hello::new(Role::Producer { writer, session }, "test".to_owned(), Some(Secret::new(OWNER)));
        producer.send(&Frame::Hello(hello)).await;
        producer.wait(|frame| matches!(frame, Frame::HelloAck(_))).await;
        producer
    }

    async fn send(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        encode(&mut bytes, frame);
        self.stream.write_all(&bytes).await.unwrap();
        self.sent = Instant::now();
    }

    /// Waits for a frame.
    pub(crate) async fn wait(&mut self, is_wanted: impl Fn(&Frame) -> bool) -> Frame {
        let found = async {
            loop {
                while let Some(message) = self.decoder.next_message().unwrap() {
                    let Received::Frame(frame) = message else { panic!("a chunk from a service") };
                    if let Frame::Ack(ack) | Frame::Opened(Opened(ack)) = &frame {
                        let end = ack.ranges.iter().map(|range| range.to).max().unwrap_or(0);
                        let known = self.parts.entry((ack.file, ack.epoch)).or_default();
                        *known = (ack.limit, known.1.max(end));
                    }
                    if is_wanted(&frame) {
                        return frame;
                    }
                    assert!(!matches!(frame, Frame::Refusal(_)), "{frame:?}");
                }
                let read = self.stream.read_buf(self.decoder.buffer_mut());
                match tokio::time::timeout_at(self.sent + PING_EVERY, read).await {
                    Ok(read) => assert!(read.unwrap() > 0, "the service ended the connection"),
                    Err(_) => self.send(&Frame::Ping(1)).await,
                }
            }
        };
        tokio::time::timeout(LONG, found).await.expect("the frame comes in time")
    }

    pub(crate) async fn open(&mut self, file: FileId, epoch: u32, from: u64, lfn: &str) {
        let (run, stream, lfn) = ("7".to_owned(), "raw".to_owned(), Lfn::parse(lfn).unwrap());
        let description = Description { run, stream, lfn, tags: Vec::new() };
        self.send(&Frame::Open(Open { file, stream: 1, epoch, from, description })).await;
        self.wait(|frame| matches!(frame, Frame::Opened(_))).await;
    }

    fn part(&self, file: FileId, epoch: u32) -> (u64, u64) {
        self.parts.get(&(file, epoch)).copied().unwrap_or_default()
    }

    /// Sends chunks, each an event, and waits until they are durable.
    pub(crate) async fn chunks(
        &mut self,
        file: FileId,
        epoch: u32,
        mut sequence: u64,
        mut offset: u64,
        chunks: &[Vec<u8>],
    ) {
        let end = offset + chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
        for chunk in chunks {
            // Credit first.
            while self.part(file, epoch).0 < offset + chunk.len() as u64 {
                self.wait(|frame| matches!(frame, Frame::Ack(_))).await;
            }
            let head = ChunkHead { writer: self.writer, ..head(file, epoch, (sequence, offset), chunk) };
            let mut bytes = Vec::new();
            encode_chunk(&mut bytes, &head, chunk);
            self.stream.write_all(&bytes).await.unwrap();
            self.sent = Instant::now();
            sequence += 1;
            offset += chunk.len() as u64;
        }
        while self.part(file, epoch).1 < end {
            self.wait(|frame| matches!(frame, Frame::Ack(_))).await;
        }
    }

    /// Sends the head of a chunk and half of its bytes, and stops there.
    pub(crate) async fn half_a_chunk(&mut self, file: FileId, epoch: u32, chunk: &[u8]) {
        let head = ChunkHead { writer: self.writer, ..head(file, epoch, (0, 0), chunk) };
        let mut bytes = Vec::new();
        encode_chunk(&mut bytes, &head, chunk);
        let half = bytes.len() - chunk.len() / 2;
        self.stream.write_all(&bytes[..half]).await.unwrap();
    }

    /// Waits until the service has ended the connection.
    pub(crate) async fn ended(&mut self) {
        let mut rest = Vec::new();
        let end = tokio::time::timeout(LONG, self.stream.read_to_end(&mut rest)).await;
        // A service that closes with bytes unread resets the connection.
        let _ = end.expect("the service ends the connection");
    }

    /// Closes a file, and waits for its certificate.
    pub(crate) async fn close(&mut self, file: FileId, chunks: &[Vec<u8>], parts: &[(u32, ServiceId)]) {
        let all = chunks.concat();
        let close = Close {
            file,
            epoch: parts.last().unwrap().0,
            length: all.len() as u64,
            chunks: chunks.len() as u64,
            events: chunks.len() as u64,
            adler32: adler32(&all),
            parts: parts
                .iter()
                .map(|(epoch, service)| PartOwner { epoch: *epoch, service: *service })
                .collect(),
        };
        self.send(&Frame::Close(close)).await;
        self.wait(|frame| matches!(frame, Frame::Certified(_))).await;
    }
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    let held = async {
        loop {
            looks.tick().await;
            if holds().await {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, held).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// Sends bytes to an address, and returns everything that comes back.
pub(crate) async fn raw(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The service may answer and close before it has read everything.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await.expect("the connection ends");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns a request without body that ends its connection.
pub(crate) fn request(method: &str, path: &str, token: &str) -> Vec<u8> {
    let authorization =
        if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{authorization}Connection: close\r\n\r\n").into_bytes()
}
