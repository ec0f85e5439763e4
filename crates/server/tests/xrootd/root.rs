//! Client of the XRootD face, for tests: sends exactly the given requests.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use exacat_model::operation::{Existing, NewFile, NewReplica, SeSettings};
use exacat_model::{Checksum, Checksums, Guid, Operation, Pfn, ReplicaState, SeName};
use exacat_server::{ServerSettings, XrootdSettings};
use exacat_wire::xrootd::numbers::{ability, query, request, role, status};
use exacat_wire::xrootd::response::ResponseHeader;
use exacat_wire::xrootd::{HANDSHAKE, StreamId, write_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{Stream, localhost, soon, trusting};
use crate::world::{World, lfn};

/// Starts a server with anonymous reads.
pub(crate) async fn world() -> World {
    world_with(|_| {}).await
}

/// Starts a server with other settings.
pub(crate) async fn world_with(set: impl FnOnce(&mut ServerSettings)) -> World {
    World::with(|settings| {
        settings.catalogue.anonymous_reads = true;
        settings.xrootd = Some(XrootdSettings::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
        set(settings);
    })
    .await
}

/// A response, its parts put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub stream: StreamId,
    pub status: u16,
    pub bytes: Vec<u8>,
    /// Number of its parts.
    pub parts: usize,
}

impl Answer {
    /// Returns its text, without the final NUL.
    pub(crate) fn text(&self) -> String {
        let bytes = self.bytes.strip_suffix(&[0]).unwrap_or(&self.bytes);
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    fn number(&self) -> u32 {
        u32::from_be_bytes(self.bytes[..4].try_into().unwrap())
    }

    /// Returns the number and the text of an error.
    pub(crate) fn error(&self) -> (u32, String) {
        assert_eq!(self.status, status::ERROR, "{self:?}");
        let sentence = self.bytes[4..].strip_suffix(&[0]).expect("a NUL");
        (self.number(), String::from_utf8(sentence.to_vec()).unwrap())
    }

    /// Returns the port (negative: a URL) and the text of a redirection.
    pub(crate) fn redirect(&self) -> (i32, String) {
        assert_eq!(self.status, status::REDIRECT, "{self:?} {:?}", String::from_utf8_lossy(&self.bytes));
        (self.number() as i32, String::from_utf8(self.bytes[4..].to_vec()).unwrap())
    }
}

pub(crate) struct Root {
    pub stream: Box<dyn Stream>,
    next: u16,
}

impl Root {
    /// Connects, and sends nothing.
    pub(crate) async fn raw(world: &World) -> Self {
        Root::connected(world.server.addresses.xrootd.unwrap()).await
    }

    async fn connected(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Root { stream: Box::new(stream), next: 0 }
    }

    /// Connects anonymously with a receive buffer that the kernel does not enlarge.
    pub(crate) async fn anonymous_with_small_buffer(world: &World) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let stream = socket.connect(world.server.addresses.xrootd.unwrap()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Root { stream: Box::new(stream), next: 0 }.logged_in().await
    }

    /// Sends the greeting, and negotiates the protocol. Returns the server's roles.
    pub(crate) async fn greet(&mut self, abilities: u8) -> u32 {
        self.stream.write_all(&HANDSHAKE).await.unwrap();
        let hello = self.answer().await.unwrap();
        assert_eq!(hello.bytes, [0, 0, 5, 0x11, 0, 0, 0, 0]);
        let mut body = [0; 16];
        body[..4].copy_from_slice(&0x511u32.to_be_bytes());
        body[4] = abilities;
        let agreed = self.call(request::PROTOCOL, body, b"").await;
        assert_eq!(agreed.status, status::OK);
        u32::from_be_bytes(agreed.bytes[4..8].try_into().unwrap())
    }

    /// Starts TLS.
    pub(crate) async fn secure(self, world: &World) -> Self {
        self.secured(&world.server.addresses.certificate).await
    }

    async fn secured(self, certificate: &Path) -> Self {
        let connector = trusting(certificate, None);
        let stream = soon("TLS", connector.connect(localhost(), self.stream)).await.unwrap();
        Root { stream: Box::new(stream), next: self.next }
    }

    /// Logs in; the answer has the accepted kinds of credentials.
    pub(crate) async fn login(&mut self) -> Answer {
        self.login_as("test").await
    }

    /// Logs in under another user name.
    pub(crate) async fn login_as(&mut self, user: &str) -> Answer {
        let mut body = [0; 16];
        body[4..4 + user.len()].copy_from_slice(user.as_bytes());
        self.call(request::LOGIN, body, b"xrd.appname=test&xrd.rn=v5.5.3").await
    }

    /// Returns the accepted kinds of credentials from the answer to a login.
    pub(crate) fn protocols(login: &Answer) -> String {
        assert_eq!(login.status, status::OK, "{login:?}");
        let rest = &login.bytes[16..];
        String::from_utf8(rest.strip_suffix(&[0]).unwrap_or(rest).to_vec()).unwrap()
    }

    /// Connects without credentials.
    pub(crate) async fn anonymous(world: &World) -> Self {
        Root::raw(world).await.logged_in().await
    }

    async fn logged_in(mut self) -> Self {
        assert_eq!(self.greet(0).await & role::GO_TO_TLS, 0);
        assert_eq!(Root::protocols(&self.login().await), "");
        self
    }

    /// Connects with TLS, greets, and does not log in.
    pub(crate) async fn private(world: &World) -> Self {
        let mut root = Root::raw(world).await;
        let roles = root.greet(ability::TLS | ability::WANT_TLS).await;
        assert_ne!(roles & role::GO_TO_TLS, 0);
        root.secure(world).await
    }

    /// Sends credentials.
    pub(crate) async fn show(&mut self, kind: &[u8; 4], carried: &[u8]) -> Answer {
        let mut body = [0; 16];
        body[12..].copy_from_slice(kind);
        self.call(request::AUTH, body, carried).await
    }

    /// Encodes a token for the kind ztn.
    pub(crate) fn ztn(token: &str) -> Vec<u8> {
        let length = u16::try_from(token.len() + 1).unwrap().to_be_bytes();
        [b"ztn\0\0T\0\0".as_slice(), &length, token.as_bytes(), b"\0"].concat()
    }

    /// Connects with a token.
    pub(crate) async fn token(world: &World, token: &str) -> Self {
        let addresses = &world.server.addresses;
        Root::at(addresses.xrootd.unwrap(), &addresses.certificate, token).await
    }

    /// Connects with a token to a server without a world.
    pub(crate) async fn at(address: SocketAddr, certificate: &Path, token: &str) -> Self {
        let mut root = Root::connected(address).await;
        assert_ne!(root.greet(ability::TLS | ability::WANT_TLS).await & role::GO_TO_TLS, 0);
        let mut root = root.secured(certificate).await;
        assert!(Root::protocols(&root.login().await).starts_with("&P=ztn,0:4096:"));
        assert_eq!(root.show(b"ztn\0", &Root::ztn(token)).await.status, status::OK);
        root
    }

    /// Connects as the administrator.
    pub(crate) async fn admin(world: &World) -> Self {
        let (_, token) = world.token("admin", 3600).await;
        Root::token(world, &token).await
    }

    /// Sends a request; returns its stream.
    pub(crate) async fn send(&mut self, request: u16, body: [u8; 16], carried: &[u8]) -> StreamId {
        let stream = StreamId(self.next.to_be_bytes());
        self.next = self.next.wrapping_add(1);
        let mut bytes = Vec::new();
        write_request(&mut bytes, stream, request, body, carried);
        self.stream.write_all(&bytes).await.unwrap();
        self.stream.flush().await.unwrap();
        stream
    }

    /// Returns the next response; none if the connection is over.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let mut whole: Option<Answer> = None;
        loop {
            let mut header = [0; 8];
            soon("a response", self.stream.read_exact(&mut header)).await.ok()?;
            let ResponseHeader { stream, status, bytes } = ResponseHeader::read(&header);
            let mut carried = vec![0; bytes as usize];
            soon("a response", self.stream.read_exact(&mut carried)).await.ok()?;
            let whole = whole.get_or_insert(Answer { stream, status, bytes: Vec::new(), parts: 0 });
            assert_eq!(whole.stream, stream, "parts of two answers are mixed");
            whole.bytes.extend_from_slice(&carried);
            whole.status = status;
            whole.parts += 1;
            if status != status::OKSOFAR {
                return Some(whole.clone());
            }
        }
    }

    pub(crate) async fn call(&mut self, request: u16, body: [u8; 16], carried: &[u8]) -> Answer {
        let stream = self.send(request, body, carried).await;
        let answer = self.answer().await.expect("an answer");
        assert_eq!(answer.stream, stream);
        answer
    }

    /// Sends a request for a path, with an empty body.
    pub(crate) async fn on(&mut self, request: u16, path: &str) -> Answer {
        self.call(request, [0; 16], path.as_bytes()).await
    }

    /// Sends a request that must succeed.
    pub(crate) async fn done(&mut self, request: u16, body: [u8; 16], path: &str) -> Answer {
        let answer = self.call(request, body, path.as_bytes()).await;
        assert_eq!(answer.status, status::OK, "{path}: {:?}", String::from_utf8_lossy(&answer.bytes));
        answer
    }

    /// Sends a request that must fail; returns the number of its error.
    pub(crate) async fn fails(&mut self, request: u16, body: [u8; 16], path: &str) -> u32 {
        let (number, sentence) = self.call(request, body, path.as_bytes()).await.error();
        assert!(!sentence.is_empty(), "{path}");
        number
    }

    pub(crate) async fn stat(&mut self, path: &str) -> Answer {
        self.on(request::STAT, path).await
    }

    /// Opens for reading, like xrdcp.
    pub(crate) async fn open(&mut self, path: &str) -> Answer {
        self.call(request::OPEN, body_at(2, 0x0450), path.as_bytes()).await
    }

    pub(crate) async fn query(&mut self, kind: u16, text: &str) -> Answer {
        self.call(request::QUERY, body_at(0, kind), text.as_bytes()).await
    }

    pub(crate) async fn checksum(&mut self, path: &str) -> Answer {
        self.query(query::CHECKSUM, path).await
    }

    /// Reads to the end of the connection; true if it ended cleanly or without data.
    pub(crate) async fn is_over(&mut self) -> bool {
        let mut rest = Vec::new();
        soon("the end", self.stream.read_to_end(&mut rest)).await.is_ok() || rest.is_empty()
    }
}

/// Returns a body with one number in it.
pub(crate) fn body_at(at: usize, number: u16) -> [u8; 16] {
    let mut body = [0; 16];
    body[at..at + 2].copy_from_slice(&number.to_be_bytes());
    body
}

pub(crate) const GUID: &str = "5d9a8f1e-5607-11ee-90f9-6c02e09897e9";
pub(crate) const ADLER: &str = "adler32:e222ea89";

/// Adds storage elements `VO::SITE1::SE` and so on, each on a host of its own, near the site of its
/// number.
pub(crate) async fn storage(world: &World, count: u16) {
    for number in 1..=count {
        let se = SeSettings {
            name: se(number),
            number: Some(number),
            prefix: Some(format!("root://se{number}.example:1095//data")),
            qos: None,
            status: None,
            distances: vec![(crate::world::account(&format!("SITE{number}")), 0)],
            https: None,
            only_new: true,
        };
        world.admin(Operation::SeSet(se)).await;
    }
}

pub(crate) fn se(number: u16) -> SeName {
    SeName::parse(&format!("VO::SITE{number}::SE")).unwrap()
}

/// Adds a file on these storage elements; with a PFN, unless it follows from the GUID.
pub(crate) async fn file(world: &World, path: &str, guid: &str, places: &[(u16, Option<&str>)]) {
    let replica = |(number, pfn): &(u16, Option<&str>)| NewReplica {
        se: se(*number),
        pfn: pfn.map(|pfn| Pfn::parse(pfn).unwrap()),
        state: ReplicaState::Available,
    };
    let file = NewFile {
        guid: Some(Guid::parse(guid).unwrap()),
        size: Some(11),
        checksums: Checksums::one(Checksum::parse(ADLER).unwrap()),
        replicas: places.iter().map(replica).collect(),
        ..NewFile::named(lfn(path))
    };
    let register = Operation::Register { files: vec![file], parents: true, existing: Existing::Refuse };
    match world.admin(register).await {
        exacat_model::Answer::Registered(done) => assert!(done.iter().all(Result::is_ok), "{done:?}"),
        other => panic!("{other:?}"),
    }
}
