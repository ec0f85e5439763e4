//! Scripted client: each request and answer as bytes.

use std::net::SocketAddr;

use exacat_replay::content::Content;
use exacat_replay_service::origin::{FilePattern, Origin, OriginFileList, OriginSettings};
use exacat_wire::xrootd::file_response::PAGES_HEADER_BYTES;
use exacat_wire::xrootd::numbers::{open, query, request, status};
use exacat_wire::xrootd::response::{ResponseHeader, read_numbered, read_text};
use exacat_wire::xrootd::{HANDSHAKE, StreamId, write_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Files of the tests: one of a list, and any below a directory.
pub(crate) const LISTED: &str = "/list/a";
pub(crate) const LISTED_SIZE: u64 = 3 * (1 << 20) + 12_345;

pub(crate) fn settings() -> OriginSettings {
    let mut files = OriginFileList::default();
    files.add(LISTED, LISTED_SIZE).unwrap();
    files.add_pattern(FilePattern { below: "/any".to_owned(), size: None }).unwrap();
    OriginSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)), files)
}

pub(crate) async fn origin(settings: OriginSettings) -> Origin {
    Origin::start(settings).await.unwrap()
}

pub(crate) fn content(name: &str, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Content::default().fill(name, offset, &mut bytes);
    bytes
}

/// An answer: its status, and its bytes. Pages are without their checksums, which were checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub stream: u16,
    pub status: u16,
    pub bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn ok(self) -> Vec<u8> {
        assert_eq!(self.status, status::OK, "{:?}", read_numbered(&self.bytes));
        self.bytes
    }

    pub(crate) fn text(self) -> String {
        read_text(&self.ok()).unwrap().to_owned()
    }

    /// Returns the number of an error.
    pub(crate) fn error(self) -> u32 {
        assert_eq!(self.status, status::ERROR);
        read_numbered(&self.bytes).unwrap().0
    }
}

pub(crate) struct Client {
    pub socket: TcpStream,
    next: u16,
}

impl Client {
    pub(crate) async fn connect(origin: &Origin) -> Client {
        Client { socket: TcpStream::connect(origin.address()).await.unwrap(), next: 1 }
    }

    /// Connects and logs in.
    pub(crate) async fn of(origin: &Origin) -> Client {
        let mut client = Client::connect(origin).await;
        client.socket.write_all(&HANDSHAKE).await.unwrap();
        // Behind the handshake, before its answer, as clients do.
        let abilities = [0, 0, 5, 0x20, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        client.send(request::PROTOCOL, abilities, &[]).await;
        let greeting = client.answer().await;
        assert_eq!((greeting.stream, greeting.ok()), (0, vec![0, 0, 5, 0x11, 0, 0, 0, 1]));
        let agreed = client.answer().await.ok();
        assert_eq!(agreed[..8], [0, 0, 5, 0x11, 0, 0x20, 0, 1]);
        assert_eq!(agreed[8..], [b'S', 0, 0, 0, 0, 0]);
        let login = client.ask(request::LOGIN, [0; 16], b"xrd.appname=test").await;
        assert_eq!(login.ok().len(), 16);
        client
    }

    /// Sends a request, and returns its number.
    pub(crate) async fn send(&mut self, request: u16, body: [u8; 16], carried: &[u8]) -> u16 {
        let (mut out, number) = (Vec::new(), self.next);
        self.next = self.next.wrapping_add(1);
        write_request(&mut out, StreamId(number.to_be_bytes()), request, body, carried);
        self.socket.write_all(&out).await.unwrap();
        number
    }

    async fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.socket.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    /// Reads an answer with all its parts.
    pub(crate) async fn answer(&mut self) -> Answer {
        let mut all = Vec::new();
        loop {
            let header = ResponseHeader::read(&self.bytes(8).await.try_into().unwrap());
            let stream = u16::from_be_bytes(header.stream.0);
            let body = self.bytes(header.bytes as usize).await;
            if header.status != status::STATUS {
                all.extend(body);
                return Answer { stream, status: header.status, bytes: all };
            }
            assert_eq!(body.len(), PAGES_HEADER_BYTES - 8);
            assert_eq!(body[..4], crc32c::crc32c(&body[4..]).to_be_bytes());
            assert_eq!((body[4..6].to_vec(), body[6]), (stream.to_be_bytes().to_vec(), 30));
            let (is_last, count) = (body[7] == 0, u32::from_be_bytes(body[12..16].try_into().unwrap()));
            let mut place = u64::from_be_bytes(body[16..24].try_into().unwrap());
            let pages = self.bytes(count as usize).await;
            let mut rest = &pages[..];
            while !rest.is_empty() {
                let page = (4096 - place % 4096) as usize;
                let (unit, behind) = rest.split_at(rest.len().min(4 + page));
                assert_eq!(unit[..4], crc32c::crc32c(&unit[4..]).to_be_bytes(), "at {place}");
                all.extend_from_slice(&unit[4..]);
                place += unit.len() as u64 - 4;
                rest = behind;
            }
            if is_last {
                return Answer { stream, status: status::OK, bytes: all };
            }
        }
    }

    pub(crate) async fn ask(&mut self, request: u16, body: [u8; 16], carried: &[u8]) -> Answer {
        let number = self.send(request, body, carried).await;
        let answer = self.answer().await;
        assert_eq!(answer.stream, number);
        answer
    }

    pub(crate) async fn try_open(&mut self, path: &str, options: u16) -> Answer {
        let mut body = [0; 16];
        body[2..4].copy_from_slice(&options.to_be_bytes());
        self.ask(request::OPEN, body, path.as_bytes()).await
    }

    pub(crate) async fn open(&mut self, path: &str) -> [u8; 4] {
        self.try_open(path, open::READ).await.ok().try_into().unwrap()
    }

    pub(crate) async fn read(&mut self, kind: u16, handle: [u8; 4], offset: i64, length: i32) -> Answer {
        self.ask(kind, range(handle, offset, length), &[]).await
    }

    pub(crate) async fn stat(&mut self, path: &str) -> Answer {
        self.ask(request::STAT, [0; 16], path.as_bytes()).await
    }

    pub(crate) async fn checksum(&mut self, path: &str) -> Answer {
        let mut body = [0; 16];
        body[..2].copy_from_slice(&query::CHECKSUM.to_be_bytes());
        self.ask(request::QUERY, body, path.as_bytes()).await
    }

    /// Says whether the other side ended the connection.
    pub(crate) async fn was_cut(mut self) -> bool {
        let mut rest = Vec::new();
        self.socket.read_to_end(&mut rest).await.is_err() || rest.is_empty()
    }
}

/// Returns the body of a read.
pub(crate) fn range(handle: [u8; 4], offset: i64, length: i32) -> [u8; 16] {
    let bytes = [&handle[..], &offset.to_be_bytes(), &length.to_be_bytes()].concat();
    bytes.try_into().unwrap()
}

/// Returns one range of a vector read.
pub(crate) fn chunk(handle: [u8; 4], offset: i64, length: i32) -> Vec<u8> {
    [&handle[..], &length.to_be_bytes(), &offset.to_be_bytes()].concat()
}
