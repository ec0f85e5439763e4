//! Server of XRootD that has files by name and size, and does otherwise where the test says so.

use std::net::SocketAddr;
use std::sync::Arc;

use exacat_replay::content::Content;
use exacat_wire::xrootd::numbers::{error, request, role};
use exacat_wire::xrootd::pages::write_pages;
use exacat_wire::xrootd::response::{write_error, write_handshake, write_login, write_ok, write_protocol};
use exacat_wire::xrootd::{Chunks, Decoder, Frame, RequestHeader, StreamId};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Request, as a script sees it.
pub(crate) struct Asked<'a> {
    /// Its header.
    pub header: RequestHeader,
    /// The bytes that it carries.
    pub carried: &'a [u8],
    /// Number of earlier requests of this kind, on all connections.
    pub earlier: usize,
}

impl Asked<'_> {
    /// Returns the kind of the request.
    pub(crate) fn kind(&self) -> u16 {
        self.header.request
    }

    /// Returns the id of the request.
    pub(crate) fn stream(&self) -> StreamId {
        self.header.stream
    }

    /// Returns the path of an open, with its fields.
    pub(crate) fn path(&self) -> &str {
        std::str::from_utf8(self.carried).unwrap()
    }
}

/// Answer of a script.
pub(crate) enum Action {
    /// These bytes.
    Answer(Vec<u8>),
    /// These bytes, and the end of the connection.
    AnswerAndClose(Vec<u8>),
    /// Nothing, ever.
    Silence,
}

/// Script: an action, or none for what a good server does.
pub(crate) type Script = Arc<dyn Fn(&Asked<'_>) -> Option<Action> + Send + Sync>;

/// Request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Number of the connection.
    pub connection: usize,
    /// Kind of the request.
    pub kind: u16,
    /// Bytes that it carried.
    pub carried: Vec<u8>,
    /// True if it came over TLS.
    pub is_protected: bool,
}

/// Settings of a server.
pub(crate) struct ServerOf {
    /// Its roles.
    pub roles: u32,
    /// Kinds of credentials that it wants.
    pub methods: &'static str,
    /// TLS.
    pub tls: Option<TlsAcceptor>,
    /// Bytes of all files.
    pub size: u64,
    /// Most bytes of one answer to a read.
    pub read_bytes_max: usize,
    /// Its other ways.
    pub script: Script,
}

impl Default for ServerOf {
    fn default() -> Self {
        ServerOf {
            roles: role::SERVER | role::PAGES,
            methods: "",
            tls: None,
            size: 5000,
            read_bytes_max: 700_000,
            script: Arc::new(|_| None),
        }
    }
}

/// A server that runs.
pub(crate) struct Server {
    /// Its address.
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a server.
    pub(crate) async fn start(of: ServerOf) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let (of, known) = (Arc::new(of), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            let content = Arc::new(Content::default());
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let side = Side {
                    of: Arc::clone(&of),
                    seen: Arc::clone(&known),
                    content: Arc::clone(&content),
                    number,
                    files: Vec::new(),
                    is_protected: false,
                };
                connections.spawn(side.serve(stream));
            }
        });
        Server { address, seen, task }
    }

    /// Starts a server with a script.
    pub(crate) async fn scripted(
        script: impl Fn(&Asked<'_>) -> Option<Action> + Send + Sync + 'static,
    ) -> Server {
        Server::start(ServerOf { script: Arc::new(script), ..ServerOf::default() }).await
    }

    /// Returns its URL.
    pub(crate) fn url(&self) -> String {
        format!("root://localhost:{}", self.address.port())
    }

    /// Returns all requests that came.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Returns the number of requests of a kind.
    pub(crate) fn count(&self, kind: u16) -> usize {
        self.seen.lock().iter().filter(|seen| seen.kind == kind).count()
    }

    /// Returns the number of connections that said something.
    pub(crate) fn connections(&self) -> usize {
        self.count(request::PROTOCOL)
    }
}

/// Server's side of a connection.
struct Side {
    of: Arc<ServerOf>,
    seen: Arc<Mutex<Vec<Seen>>>,
    content: Arc<Content>,
    number: usize,
    files: Vec<String>,
    is_protected: bool,
}

/// Reason why a conversation ended.
enum Break {
    Closed,
    Protect,
}

impl Side {
    async fn serve(mut self, mut stream: TcpStream) {
        let mut decoder = Decoder::new();
        decoder.known();
        if let Break::Protect = self.converse(&mut stream, &mut decoder).await {
            assert_eq!(decoder.waiting(), 0, "nothing comes before TLS");
            let acceptor = self.of.tls.clone().unwrap();
            if let Ok(mut stream) = acceptor.accept(stream).await {
                self.is_protected = true;
                self.converse(&mut stream, &mut decoder).await;
            }
        }
    }

    async fn converse(
        &mut self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        decoder: &mut Decoder,
    ) -> Break {
        loop {
            while let Ok(Some(frame)) = decoder.frame() {
                let mut out = Vec::new();
                let Frame::Request(header, carried) = frame else {
                    write_handshake(&mut out);
                    stream.write_all(&out).await.unwrap();
                    continue;
                };
                let action = {
                    let mut seen = self.seen.lock();
                    let earlier = seen.iter().filter(|one| one.kind == header.request).count();
                    let is_protected = self.is_protected;
                    seen.push(Seen {
                        connection: self.number,
                        kind: header.request,
                        carried: carried.to_vec(),
                        is_protected,
                    });
                    (self.of.script)(&Asked { header, carried: &carried, earlier })
                };
                match action {
                    Some(Action::Answer(bytes)) => out = bytes,
                    Some(Action::AnswerAndClose(bytes)) => {
                        let _ = stream.write_all(&bytes).await;
                        let _ = stream.shutdown().await;
                        return Break::Closed;
                    }
                    Some(Action::Silence) => {}
                    None => self.answer(&header, &carried, &mut out),
                }
                if stream.write_all(&out).await.is_err() {
                    return Break::Closed;
                }
                if header.request == request::PROTOCOL && self.of.roles & role::GO_TO_TLS != 0 {
                    return Break::Protect;
                }
            }
            assert_eq!(decoder.frame(), Ok(None), "requests are of the protocol");
            match stream.read_buf(decoder.buffer()).await {
                Ok(count) if count > 0 => {}
                _ => return Break::Closed,
            }
        }
    }

    /// Answers as a good server does.
    fn answer(&mut self, header: &RequestHeader, carried: &[u8], out: &mut Vec<u8>) {
        let stream = header.stream;
        let number = |at: usize| u32::from_be_bytes(header.body[at..at + 4].try_into().unwrap());
        match header.request {
            request::PROTOCOL => write_protocol(out, stream, self.of.roles),
            request::LOGIN => write_login(out, stream, [7; 16], self.of.methods),
            request::AUTH => write_ok(out, stream, b""),
            request::OPEN => {
                let path = std::str::from_utf8(carried).unwrap().split('?').next().unwrap().to_owned();
                self.files.push(path);
                write_ok(out, stream, &opened(self.files.len() as u32 - 1, self.of.size));
            }
            request::READ | request::PGREAD => {
                let offset = u64::from_be_bytes(header.body[4..12].try_into().unwrap());
                let bytes = self.bytes(number(0), offset, u64::from(number(12)));
                if header.request == request::PGREAD {
                    let (first, rest) = bytes.split_at(bytes.len() / 2 / 4096 * 4096);
                    write_pages(out, stream, false, offset, first);
                    write_pages(out, stream, true, offset + first.len() as u64, rest);
                } else {
                    self.write_parts(out, stream, &bytes);
                }
            }
            request::READV => {
                let mut all = Vec::new();
                let chunks = Chunks::parse(carried).unwrap();
                for segment in (0..chunks.count()).filter_map(|at| chunks.get(at)) {
                    let handle = u32::from_be_bytes(segment.handle.0);
                    let bytes = self.bytes(handle, segment.offset, u64::from(segment.length));
                    if bytes.len() < segment.length as usize {
                        write_error(out, stream, error::FS_ERROR, "readv past EOF");
                        return;
                    }
                    segment.write(&mut all);
                    all.extend_from_slice(&bytes);
                }
                self.write_parts(out, stream, &all);
            }
            request::CLOSE => write_ok(out, stream, b""),
            other => panic!("request {other}"),
        }
    }

    /// Writes data in parts, the last one as the end.
    fn write_parts(&self, out: &mut Vec<u8>, stream: StreamId, bytes: &[u8]) {
        use exacat_wire::xrootd::numbers::status;
        use exacat_wire::xrootd::response::write;
        let mut parts = bytes.chunks(self.of.read_bytes_max).peekable();
        while let Some(part) = parts.next() {
            let kind = if parts.peek().is_some() { status::OKSOFAR } else { status::OK };
            write(out, stream, kind, part);
        }
        if bytes.is_empty() {
            write_ok(out, stream, b"");
        }
    }

    fn bytes(&self, handle: u32, offset: u64, length: u64) -> Vec<u8> {
        let name = &self.files[handle as usize];
        let length = length.min(self.of.size.saturating_sub(offset));
        let mut bytes = vec![0; length as usize];
        self.content.fill(name, offset, &mut bytes);
        bytes
    }
}

/// Returns the body of the answer to an open.
pub(crate) fn opened(handle: u32, size: u64) -> Vec<u8> {
    let mut body = handle.to_be_bytes().to_vec();
    body.extend_from_slice(&[0; 8]);
    body.extend_from_slice(format!("1 {size} 48 1700000000\0").as_bytes());
    body
}

/// Returns the bytes of an answer.
pub(crate) fn answer(write: impl FnOnce(&mut Vec<u8>)) -> Option<Action> {
    let mut out = Vec::new();
    write(&mut out);
    Some(Action::Answer(out))
}
