//! Client of a service's HTTP, for the command line and for other services.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::limits::CHUNK_BYTES_MAX;
use exacat_wire::writer::{ByteRange, FileId};
use exacat_writer::PartKey;
use exacat_writer::sums::crc32c;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, LOCATION, RANGE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use crate::catalogue::Readable;
use crate::limits::{REMOTE_JSON_BYTES_MAX, REMOTE_STALL_MAX};
use crate::shapes::{
    API, REDIRECTED, WriterFile, WriterFiles, WriterProblem, WriterStatus, WriterTable, file_id_of,
};

/// Service to be asked.
#[derive(Clone)]
pub struct RemoteSettings {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub address: String,
    /// Token of the caller.
    pub token: Option<String>,
    /// TLS for `https`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Longest time for an answer to begin, and for a small one to end.
    pub time: Duration,
}

/// Client of one service. Each request has a connection of its own.
#[derive(Clone)]
pub struct Remote {
    settings: RemoteSettings,
    is_tls: bool,
    host: String,
    port: u16,
}

/// Connection of an answer; it ends with the answer.
struct Connection(tokio::task::JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Content of a file as it comes.
pub struct RemoteContent {
    /// The file.
    pub file: FileId,
    /// Bytes of the answer.
    pub length: u64,
    /// Adler-32 of the whole file; none if it is still written.
    pub adler32: Option<u32>,
    body: Incoming,
    left: u64,
    _connection: Connection,
}

/// Chunks of a part as they come.
pub(crate) struct RemotePart {
    content: RemoteContent,
    buffer: BytesMut,
}

fn unavailable(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, what)
}

/// Escapes text for a field of a request.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

impl Remote {
    /// Makes a client. Nothing is sent yet.
    pub fn new(settings: RemoteSettings) -> Result<Remote> {
        let bad = || {
            let what =
                format!("{:?}: the address of a writer service is http(s)://HOST:PORT", settings.address);
            Error::invalid(what)
        };
        let (scheme, rest) = settings.address.split_once("://").ok_or_else(bad)?;
        let is_tls = match scheme {
            "http" => false,
            "https" if settings.tls.is_some() => true,
            "https" => return Err(Error::invalid("https needs a certificate to trust: name it")),
            _ => return Err(bad()),
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(bad)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = port.parse().map_err(|_| bad())?;
        if host.is_empty() || host.contains('/') {
            return Err(bad());
        }
        Ok(Remote { settings, is_tls, host, port })
    }

    /// Returns the state of the service.
    pub async fn status(&self) -> Result<WriterStatus> {
        self.json(Method::GET, "status").await
    }

    /// Returns the services that it knows.
    pub async fn table(&self) -> Result<WriterTable> {
        self.json(Method::GET, "table").await
    }

    /// Returns a page of files: of a stage, behind an id, at most so many.
    pub async fn files(
        &self,
        stage: Option<&str>,
        after: Option<FileId>,
        limit: Option<u64>,
    ) -> Result<WriterFiles> {
        let mut fields: Vec<String> = Vec::new();
        fields.extend(stage.map(|stage| format!("stage={}", escaped(stage))));
        fields.extend(after.map(|after| format!("after={after}")));
        fields.extend(limit.map(|limit| format!("limit={limit}")));
        self.json(Method::GET, &format!("files?{}", fields.join("&"))).await
    }

    /// Returns a file.
    pub async fn file(&self, file: FileId) -> Result<WriterFile> {
        self.json(Method::GET, &format!("files/{file}")).await
    }

    /// Lets the service take no more files.
    pub async fn drain(&self) -> Result<WriterStatus> {
        self.json(Method::POST, "drain").await
    }

    /// Lets the service take files again.
    pub async fn resume(&self) -> Result<WriterStatus> {
        self.json(Method::POST, "resume").await
    }

    /// Notes that a file was copied to another storage element, and that the catalogue knows it: its bytes
    /// here may go by the policy of the service.
    pub async fn staged(&self, file: FileId) -> Result<WriterFile> {
        self.json(Method::POST, &format!("files/{file}/staged")).await
    }

    /// Removes the bytes of a file from the service.
    pub async fn remove(&self, file: FileId) -> Result<WriterFile> {
        self.json(Method::POST, &format!("files/{file}/remove")).await
    }

    /// Returns the content of a file from a place on; of a file that is still written, if `open`, its
    /// durable beginning. A service that does not have the file names one that does: that one is asked once.
    pub async fn content(&self, what: &Readable, from: u64, open: bool) -> Result<RemoteContent> {
        let path = match what {
            Readable::File(file) => format!("content/{file}?open={open}"),
            Readable::Name(lfn) => format!("content?lfn={}&open={open}", escaped(lfn.as_str())),
        };
        let range = (from > 0).then(|| format!("bytes={from}-"));
        let answer = self.request(Method::GET, &path, range.as_deref()).await?;
        if answer.0.status() != StatusCode::TEMPORARY_REDIRECT {
            return self.streamed(answer).await;
        }
        let location = answer.0.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let (remote, path) = self.redirected(location)?;
        remote.streamed(remote.request(Method::GET, &path, range.as_deref()).await?).await
    }

    /// Reads a redirect: the service, and the path there. The token goes along, so never from TLS to plain
    /// HTTP.
    fn redirected(&self, location: Option<&str>) -> Result<(Remote, String)> {
        let from = &self.settings.address;
        let strange = || unavailable(format!("{from} redirects, but not to a writer service"));
        let (address, path) = location.and_then(|location| location.split_once(API)).ok_or_else(strange)?;
        let settings = RemoteSettings { address: address.to_owned(), ..self.settings.clone() };
        let remote = Remote::new(settings)
            .map_err(|error| Error::new(error.kind, format!("{from} redirects to {address}: {error}")))?;
        if self.is_tls && !remote.is_tls {
            let what =
                format!("{from} redirects to {address}, which has no TLS: the token is not sent there");
            return Err(Error::new(ErrorKind::Denied, what));
        }
        Ok((remote, path.to_owned()))
    }

    /// Says whether the service itself answers for the content of a certified file.
    pub(crate) async fn has_content(&self, file: FileId) -> Result<bool> {
        let path = format!("content/{file}?{REDIRECTED}=true");
        let (response, _connection) = self.request(Method::HEAD, &path, None).await?;
        match response.status() {
            StatusCode::OK => Ok(true),
            // It has nothing of the file; or a part only; or does not know yet that the file is certified.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(false),
            _ => Err(self.problem(response).await),
        }
    }

    /// Returns the chunks of a part that lie in a range.
    pub(crate) async fn part(&self, part: PartKey, range: ByteRange) -> Result<RemotePart> {
        let path = format!("parts/{}/{}?from={}&to={}", part.file, part.epoch, range.from, range.to);
        let content = self.streamed(self.request(Method::GET, &path, None).await?).await?;
        Ok(RemotePart { content, buffer: BytesMut::new() })
    }

    async fn streamed(
        &self,
        (response, connection): (Response<Incoming>, Connection),
    ) -> Result<RemoteContent> {
        if !matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Err(self.problem(response).await);
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let strange = || unavailable("the answer is not that of a writer service");
        let length =
            header(CONTENT_LENGTH.as_str()).and_then(|text| text.parse().ok()).ok_or_else(strange)?;
        let file = header("exacat-file").map(file_id_of).ok_or_else(strange)??;
        let adler32 = header("digest").and_then(|text| text.strip_prefix("adler32="));
        let adler32 = adler32.and_then(|text| u32::from_str_radix(text, 16).ok());
        let body = response.into_body();
        Ok(RemoteContent { file, length, adler32, body, left: length, _connection: connection })
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T> {
        let whole = async {
            let (response, _connection) = self.request(method, path, None).await?;
            if response.status() != StatusCode::OK {
                return Err(self.problem(response).await);
            }
            let bytes = collected(response).await?;
            serde_json::from_slice(&bytes).map_err(|error| {
                unavailable(format!("the answer of {} is not JSON of a writer: {error}", self.host))
            })
        };
        self.in_time(whole).await
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let late = || unavailable(format!("{} does not answer in time", self.settings.address));
        tokio::time::timeout(self.settings.time, work).await.unwrap_or_else(|_| Err(late()))
    }

    /// Makes the error of an answer.
    async fn problem(&self, response: Response<Incoming>) -> Error {
        let status = response.status();
        let bytes = self.in_time(collected(response)).await.unwrap_or_default();
        match serde_json::from_slice::<WriterProblem>(&bytes) {
            Ok(problem) => {
                let kind = ErrorKind::ALL.iter().find(|kind| kind.name() == problem.kind);
                Error::new(kind.copied().unwrap_or(ErrorKind::Unavailable), problem.detail)
            }
            Err(_) => unavailable(format!("{} answers with status {status}", self.settings.address)),
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        range: Option<&str>,
    ) -> Result<(Response<Incoming>, Connection)> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{API}{path}"))
            .header(HOST, format!("{}:{}", self.host, self.port));
        if let Some(token) = &self.settings.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|_| Error::invalid("the token or name cannot be sent over HTTP"))?;
        self.in_time(async {
            let (host, port) = (self.host.as_str(), self.port);
            let stream = TcpStream::connect((host, port)).await.map_err(|error| {
                unavailable(format!("{} cannot be reached: {error}", self.settings.address))
            })?;
            let _ = stream.set_nodelay(true);
            match self.settings.tls.clone().filter(|_| self.is_tls) {
                None => self.send(stream, request).await,
                Some(tls) => {
                    let name = ServerName::try_from(self.host.clone())
                        .map_err(|_| Error::invalid(format!("{host} is no name of a host")))?;
                    let stream = TlsConnector::from(tls)
                        .connect(name, stream)
                        .await
                        .map_err(|error| unavailable(format!("{}: TLS: {error}", self.settings.address)))?;
                    self.send(stream, request).await
                }
            }
        })
        .await
    }

    async fn send<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        request: Request<Empty<Bytes>>,
    ) -> Result<(Response<Incoming>, Connection)> {
        let broken = |error: hyper::Error| unavailable(format!("{}: {error}", self.settings.address));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let connection = Connection(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let response = sender.send_request(request).await.map_err(broken)?;
        Ok((response, connection))
    }
}

/// Reads a small answer.
async fn collected(response: Response<Incoming>) -> Result<Bytes> {
    let body = Limited::new(response.into_body(), REMOTE_JSON_BYTES_MAX).collect().await;
    body.map(|body| body.to_bytes()).map_err(|error| unavailable(format!("the answer breaks off: {error}")))
}

impl RemoteContent {
    /// Returns the next bytes; none at the end. An answer that ends early is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let frame = tokio::time::timeout(REMOTE_STALL_MAX, self.body.frame()).await;
            let frame = frame.map_err(|_| unavailable("the service sends nothing more"))?;
            let broken = || {
                let what = "the service ended the answer early: a part is damaged or missing; its log has the reason";
                Error::new(ErrorKind::Corrupt, what)
            };
            match frame {
                None if self.left == 0 => return Ok(None),
                None | Some(Err(_)) => return Err(broken()),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(broken)?;
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

impl RemoteContent {
    /// Passes the bytes on as they come.
    pub(crate) fn into_pieces(mut self) -> mpsc::Receiver<std::io::Result<Bytes>> {
        let (to, pieces) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let piece = match self.next().await {
                    Ok(None) => return,
                    Ok(Some(bytes)) => Ok(bytes),
                    Err(error) => Err(std::io::Error::other(error.to_string())),
                };
                let is_end = piece.is_err();
                if to.send(piece).await.is_err() || is_end {
                    return;
                }
            }
        });
        pieces
    }
}

impl RemotePart {
    /// Returns the next chunk and its place; none at the end. Its bytes are those of its checksum.
    pub(crate) async fn next(&mut self) -> Result<Option<(u64, Bytes)>> {
        const HEAD: usize = 16;
        let broken = |what: &str| Error::new(ErrorKind::Corrupt, format!("the other service sends {what}"));
        loop {
            if self.buffer.len() >= HEAD {
                let mut head = &self.buffer[..HEAD];
                let (offset, length, sum) =
                    (head.get_u64_le(), head.get_u32_le() as usize, head.get_u32_le());
                if length == 0 || length > CHUNK_BYTES_MAX {
                    return Err(broken("no chunks"));
                }
                if self.buffer.len() >= HEAD + length {
                    self.buffer.advance(HEAD);
                    let bytes = self.buffer.split_to(length).freeze();
                    if crc32c(&bytes) != sum {
                        return Err(broken("a damaged chunk"));
                    }
                    return Ok(Some((offset, bytes)));
                }
            }
            match self.content.next().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(broken("a part of a chunk")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_names_are_escaped() {
        let remote = |address: &str| {
            let (address, time) = (address.to_owned(), Duration::from_secs(1));
            Remote::new(RemoteSettings { address, token: None, tls: None, time })
        };
        let good = remote("http://[::1]:8444/").unwrap();
        assert_eq!((good.host.as_str(), good.port), ("::1", 8444));
        for bad in
            ["", "h:1", "http://h", "http://:1", "http://h:x", "https://h:1", "ftp://h:1", "http://a/b:1"]
        {
            assert!(remote(bad).is_err(), "{bad}");
        }
        assert_eq!(escaped("/a b/%&ü"), "/a%20b/%25%26%C3%BC");
    }

    /// Property: a redirect is followed to a writer service only, and never from TLS to plain HTTP, because
    /// the token goes along.
    #[test]
    fn redirect_keeps_the_token_and_never_leaves_tls() {
        let of = |is_tls: bool| {
            let (address, time) = ("http://a:1".to_owned(), Duration::from_secs(1));
            let token = Some("secret".to_owned());
            let remote = Remote::new(RemoteSettings { address, token, tls: None, time }).unwrap();
            Remote { is_tls, ..remote }
        };
        let location = |url: &str| format!("{url}/api/v1/writer/content/0?redirected=true");
        let (remote, path) = of(false).redirected(Some(&location("http://b:2"))).unwrap();
        assert_eq!((remote.host.as_str(), remote.port, path.as_str()), ("b", 2, "content/0?redirected=true"));
        assert_eq!(remote.settings.token.as_deref(), Some("secret"));
        let refused = of(true).redirected(Some(&location("http://b:2"))).err().unwrap();
        assert!(refused.kind == ErrorKind::Denied && refused.message.contains("no TLS"), "{refused}");
        // Nothing to trust an https service by.
        assert!(of(false).redirected(Some(&location("https://b:2"))).is_err());
        for strange in [None, Some(""), Some("http://b:2/elsewhere"), Some("/api/v1/writer/content/0")] {
            assert!(of(false).redirected(strange).is_err(), "{strange:?}");
        }
    }
}
