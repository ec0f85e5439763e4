//! Client of HTTP/2, frame by frame, for tests: it can break the rules that a library keeps.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::web::PATIENCE;
use crate::world::World;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// Number of the setting of windows of new streams.
const INITIAL_WINDOW_SIZE: u8 = 4;

/// Returns the bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns a header, as a literal that no table keeps.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        assert!(text.len() < 127);
        bytes.push(text.len() as u8);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// A connection.
pub(crate) struct Http2 {
    pub stream: TlsStream<TcpStream>,
    token: String,
}

impl Http2 {
    /// Connects as the administrator, with windows of so many bytes for answers.
    pub(crate) async fn admin(world: &World, window: u32) -> Self {
        let token = world.token("admin", 3600).await.1;
        let mut roots = rustls::RootCertStore::empty();
        let file = world.data().join("server.crt");
        for certificate in CertificateDer::pem_file_iter(file).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A server notices after a few kilobytes that this client does not read.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        let stream = socket.connect(world.server.addresses.http.unwrap()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut http2 = Http2 { stream, token };
        let mut setting = vec![0, INITIAL_WINDOW_SIZE];
        setting.extend_from_slice(&window.to_be_bytes());
        http2.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        http2.send(&frame(SETTINGS, 0, 0, &setting)).await.unwrap();
        http2
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Returns the headers of a request.
    pub(crate) fn head(&self, path: &str, accept: &str) -> Vec<u8> {
        let token = format!("Bearer {}", self.token);
        [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", path),
            ("accept", accept),
            ("authorization", &token),
        ]
        .map(|(name, value)| header(name, value))
        .concat()
    }

    /// Sends a request.
    pub(crate) async fn get(&mut self, stream: u32, path: &str, accept: &str) {
        let head = self.head(path, accept);
        self.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &head)).await.unwrap();
    }

    /// Reads a frame: its type, flags, stream and payload; none at the end.
    pub(crate) async fn frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let read = async {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            Some((head[3], head[4], stream, payload))
        };
        tokio::time::timeout(PATIENCE, read).await.expect("a frame or the end in time")
    }

    /// Reads the body of an answer.
    pub(crate) async fn body(&mut self, of: u32) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let (kind, flags, stream, payload) = self.frame().await.expect("an answer");
            if stream == of && kind == DATA {
                body.extend_from_slice(&payload);
                if flags & END_STREAM != 0 {
                    return body;
                }
            }
        }
    }

    /// True if the server closes the connection.
    pub(crate) async fn is_closed(&mut self) -> bool {
        while self.frame().await.is_some() {}
        true
    }
}
