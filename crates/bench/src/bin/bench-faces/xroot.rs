//! Speed of the XRootD face: stats and redirections of opened files, on one connection and on many.
//! Also of a real XRootD server, if installed, with the same client and requests.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_wire::xrootd::numbers::{request, status};
use exacat_wire::xrootd::response::ResponseHeader;
use exacat_wire::xrootd::{HANDSHAKE, StreamId, write_request};
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::AHEAD;

/// Connections at once, in measurements with many.
const CONNECTIONS: usize = 64;
/// Time in which a real server must listen.
const START_TIME: Duration = Duration::from_secs(30);

/// A logged-in connection, over plain TCP.
struct Root {
    stream: TcpStream,
    read: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Root {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut root = Root { stream, read: vec![0; 256 << 10], begin: 0, end: 0 };
        root.stream.write_all(&HANDSHAKE).await.unwrap();
        root.answer().await;
        let mut protocol = [0; 16];
        protocol[..4].copy_from_slice(&0x511u32.to_be_bytes());
        root.call(&asked(request::PROTOCOL, protocol, b"")).await;
        let mut login = [0; 16];
        login[4..9].copy_from_slice(b"bench");
        assert_eq!(root.call(&asked(request::LOGIN, login, b"")).await, status::OK);
        root
    }

    async fn fill(&mut self) {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        } else if self.end == self.read.len() {
            self.read.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let read = self.stream.read(&mut self.read[self.end..]).await.unwrap();
        assert!(read > 0, "the server has gone");
        self.end += read;
    }

    /// Returns the status of the next answer.
    async fn answer(&mut self) -> u16 {
        loop {
            if let Some(header) = self.read[self.begin..self.end].first_chunk() {
                let header = ResponseHeader::read(header);
                let whole = 8 + header.bytes as usize;
                if self.end - self.begin >= whole {
                    self.begin += whole;
                    return header.status;
                }
            }
            self.fill().await;
        }
    }

    async fn call(&mut self, bytes: &[u8]) -> u16 {
        self.stream.write_all(bytes).await.unwrap();
        self.answer().await
    }
}

fn asked(request: u16, body: [u8; 16], carried: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_request(&mut bytes, StreamId([0, 1]), request, body, carried);
    bytes
}

/// A measured request, and its expected status.
#[derive(Clone)]
struct SentRequest {
    bytes: Arc<[u8]>,
    answered: u16,
}

async fn one_by_one(root: &mut Root, asked: &SentRequest, time: Duration) -> Histogram<u64> {
    let mut times = Histogram::new_with_bounds(1, 60_000_000, 2).unwrap();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let began = Instant::now();
        assert_eq!(root.call(&asked.bytes).await, asked.answered);
        times.saturating_record(u64::try_from(began.elapsed().as_micros()).unwrap().max(1));
    }
    times
}

async fn ahead(root: &mut Root, asked: &SentRequest, time: Duration) -> f64 {
    let many = asked.bytes.repeat(AHEAD);
    let began = Instant::now();
    let mut answered = 0usize;
    while began.elapsed() < time {
        root.stream.write_all(&many).await.unwrap();
        for _ in 0..AHEAD {
            assert_eq!(root.answer().await, asked.answered);
        }
        answered += AHEAD;
    }
    answered as f64 / began.elapsed().as_secs_f64()
}

async fn measure(name: &str, address: SocketAddr, asked: SentRequest, time: Duration) {
    let mut root = Root::connect(address).await;
    assert_eq!(root.call(&asked.bytes).await, asked.answered, "{name}");
    let began = Instant::now();
    let times = one_by_one(&mut root, &asked, time).await;
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    let piped = ahead(&mut root, &asked, time).await;
    let began = Instant::now();
    let mut connections = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let asked = asked.clone();
        connections.spawn(async move {
            let mut root = Root::connect(address).await;
            one_by_one(&mut root, &asked, time).await
        });
    }
    let mut all = Histogram::<u64>::new_with_bounds(1, 60_000_000, 2).unwrap();
    while let Some(times) = connections.join_next().await {
        all.add(times.unwrap()).unwrap();
    }
    let many = all.len() as f64 / began.elapsed().as_secs_f64();
    crate::line(name, rate, &times, piped, many, &all);
}

fn stat(path: &str) -> SentRequest {
    SentRequest { bytes: asked(request::STAT, [0; 16], path.as_bytes()).into(), answered: status::OK }
}

fn open(path: &str) -> SentRequest {
    let mut body = [0; 16];
    body[2..4].copy_from_slice(&0x0450u16.to_be_bytes());
    let bytes = asked(request::OPEN, body, path.as_bytes()).into();
    SentRequest { bytes, answered: status::REDIRECT }
}

/// Measures the face, and a real server beside it.
pub(crate) async fn run(address: SocketAddr, path: &str, time: Duration) {
    println!("XRootD, over plain TCP; {CONNECTIONS} connections where there are many");
    measure("stat", address, stat(path), time).await;
    measure("open", address, open(path), time).await;
    match Real::start().await {
        Ok(real) => measure("xrootd", real.address, stat("/data/file.root"), time).await,
        Err(why) => println!("xrootd   left out: {why}"),
    }
}

/// A real XRootD server with one file.
struct Real {
    process: Child,
    address: SocketAddr,
    _place: tempfile::TempDir,
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Real {
    async fn start() -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let place = tempfile::tempdir().map_err(failed)?;
        let data = place.path().join("files/data");
        std::fs::create_dir_all(&data).map_err(failed)?;
        std::fs::write(data.join("file.root"), vec![0; 1000]).map_err(failed)?;
        let address = {
            // The port was free a moment ago; nobody else takes ports here meanwhile.
            let probe = std::net::TcpListener::bind("127.0.0.1:0").map_err(failed)?;
            probe.local_addr().map_err(failed)?
        };
        let root = place.path().display();
        let config = place.path().join("xrootd.cf");
        let text = format!(
            "all.adminpath {root}\nall.pidpath {root}\noss.localroot {root}/files\nall.export /data\nxrd.port {}\n",
            address.port()
        );
        std::fs::write(&config, text).map_err(failed)?;
        let mut command = Command::new("xrootd");
        command.arg("-c").arg(&config).arg("-l").arg(place.path().join("log")).args(["-n", "bench"]);
        if std::fs::metadata("/proc/self").is_ok_and(|about| owner(&about) == 0) {
            // The server refuses to run as root.
            own_by_nobody(place.path());
            std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
            std::os::unix::process::CommandExt::gid(&mut command, NOBODY);
        }
        command.current_dir(place.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| format!("xrootd does not start: {error}"))?;
        let real = Real { process, address, _place: place };
        let end = Instant::now() + START_TIME;
        while TcpStream::connect(address).await.is_err() {
            if Instant::now() > end {
                return Err("xrootd does not listen".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(real)
    }
}

/// The account `nobody`.
const NOBODY: u32 = 65534;

fn owner(about: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::uid(about)
}

fn own_by_nobody(path: &Path) {
    std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            own_by_nobody(&entry.unwrap().path());
        }
    }
}
