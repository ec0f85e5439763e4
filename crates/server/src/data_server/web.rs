//! The server's own requests to storage elements over HTTPS: metadata, content of small files, and
//! third-party copies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exacat_model::{Checksum, ChecksumAlgorithm, Error, ErrorKind, Result, Se};
use exacat_wire::webdav::headers::read_digest;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, LOCATION, RANGE};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::{ANSWER_TIME, REDIRECTS_MAX};

/// Time after which the file of authorities is read again.
const AUTHORITIES_TIME: Duration = Duration::from_secs(600);
/// Longest wait for a checksum, for which the storage element reads the whole file.
const CHECKSUM_TIME: Duration = Duration::from_secs(600);
/// Longest silence of a storage element during a third-party copy. Most send a marker every 5 s.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Longest third-party copy.
const COPY_TIME: Duration = Duration::from_secs(24 * 3600);
/// Most bytes of a line, and of the lines between two ends of markers.
const MARKER_BYTES_MAX: usize = 8 << 10;
/// Most bytes of an error's text that are read and passed on.
const REFUSAL_BYTES_MAX: usize = 300;
/// Header that asks for a checksum (RFC 3230).
const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");

/// Returns the URL of a PFN for clients of HTTP, under the names that grid clients use too; none if they
/// cannot reach it.
pub(crate) fn web_url(se: &Se, pfn: &str) -> Option<String> {
    if let Some(url) = se.https_url(pfn) {
        return Some(url);
    }
    let (scheme, rest) = pfn.split_once("://")?;
    let scheme = match scheme {
        "davs" => "https",
        "http" | "dav" => "http",
        _ => return None,
    };
    Some(format!("{scheme}://{rest}"))
}

/// Client of storage elements over HTTPS.
pub(crate) struct WebClient {
    /// File of the authorities that storage elements' certificates come from; none for the system's.
    ca: Option<PathBuf>,
    connector: Mutex<Option<(Instant, TlsConnector)>>,
}

/// A file on a storage element: its URL, and the token that grants access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebFile {
    pub url: String,
    /// Empty for a place that needs none of ours.
    pub token: String,
}

/// Metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebStat {
    pub size: u64,
    /// Validators: they differ if the file changes.
    pub version: Vec<String>,
}

/// An answer whose body is not read yet.
struct Told {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    _connection: Aborted,
}

/// Ends the task of a connection with the answer.
struct Aborted(AbortHandle);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A result whose error is a text for the user.
type Outcome<T> = std::result::Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn in_time<T>(time: Duration, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::time::timeout(time, work).await.unwrap_or_else(|_| Err(format!("no answer within {time:?}")))
}

impl WebClient {
    /// Makes a client; refuses a named file of authorities that cannot be read.
    pub(crate) fn new(ca: Option<&Path>) -> Result<Arc<Self>> {
        let known = match ca {
            Some(path) => Some((Instant::now(), crate::tls::connector(Some(path))?)),
            None => None,
        };
        Ok(Arc::new(WebClient { ca: ca.map(Path::to_owned), connector: Mutex::new(known) }))
    }

    fn connector(&self) -> Outcome<TlsConnector> {
        let mut known = self.connector.lock();
        if let Some((read, connector)) = &*known
            && read.elapsed() < AUTHORITIES_TIME
        {
            return Ok(connector.clone());
        }
        let connector = crate::tls::connector(self.ca.as_deref()).map_err(text)?;
        *known = Some((Instant::now(), connector.clone()));
        Ok(connector)
    }

    /// Returns size and validators of a file; none if there is no such file.
    pub(crate) async fn stat(&self, file: &WebFile, headers: &HeaderMap) -> Outcome<Option<WebStat>> {
        let told = in_time(ANSWER_TIME, self.ask("HEAD", file, headers, Bytes::new())).await?;
        if matches!(told.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(None);
        }
        if !told.status.is_success() {
            return Err(format!("status {} to HEAD", told.status.as_u16()));
        }
        let header = |name: HeaderName| told.headers.get(name).and_then(|value| value.to_str().ok());
        let size = header(CONTENT_LENGTH).and_then(|size| size.parse().ok());
        let size = size.ok_or("it tells no size (Content-Length)")?;
        let validators = [hyper::header::ETAG, hyper::header::LAST_MODIFIED];
        let version = validators.into_iter().filter_map(header).map(str::to_owned).collect();
        Ok(Some(WebStat { size, version }))
    }

    /// Returns a checksum of a file; none if the storage element has none of that kind.
    pub(crate) async fn checksum(
        &self,
        file: &WebFile,
        headers: &HeaderMap,
        algorithm: ChecksumAlgorithm,
    ) -> Outcome<Option<Checksum>> {
        // One algorithm at a time: XRootD refuses the whole request because of one that it lacks.
        let name = match algorithm {
            ChecksumAlgorithm::Sha1 => "sha",
            ChecksumAlgorithm::Sha256 => "sha-256",
            other => other.name(),
        };
        let mut headers = headers.clone();
        headers.insert(WANT_DIGEST, HeaderValue::from_static(name));
        let told = in_time(CHECKSUM_TIME, self.ask("HEAD", file, &headers, Bytes::new())).await?;
        if !told.status.is_success() {
            return Ok(None);
        }
        let digests = told.headers.get_all("digest").iter().filter_map(|value| value.to_str().ok());
        let mut checksums = digests.flat_map(read_digest);
        Ok(checksums.find(|checksum| checksum.algorithm() == algorithm))
    }

    /// Says whether a file can be opened for reading. An XRootD server denies that while a client
    /// has it open for writing.
    pub(crate) async fn is_closed(&self, file: &WebFile, size: u64) -> Outcome<bool> {
        let mut headers = HeaderMap::new();
        // No range is in an empty file.
        if size > 0 {
            headers.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
        }
        let told = in_time(ANSWER_TIME, self.ask("GET", file, &headers, Bytes::new())).await?;
        Ok(told.status.is_success())
    }

    /// Reads a file of `size` bytes.
    pub(crate) async fn read(&self, file: &WebFile, size: u64) -> Outcome<Vec<u8>> {
        let told = in_time(ANSWER_TIME, self.ask("GET", file, &HeaderMap::new(), Bytes::new())).await?;
        if told.status != StatusCode::OK {
            return Err(refusal("GET", told).await);
        }
        let most = usize::try_from(size).map_err(text)?;
        let body = Limited::new(told.body, most).collect().await.map_err(text)?.to_bytes();
        if body.len() != most {
            return Err(format!("it ends after {} of {size} bytes", body.len()));
        }
        Ok(body.to_vec())
    }

    /// Writes a new file.
    pub(crate) async fn write(&self, file: &WebFile, content: Bytes) -> Outcome<()> {
        let told = self.ask("PUT", file, &HeaderMap::new(), content).await?;
        if told.status.is_success() { Ok(()) } else { Err(refusal("PUT", told).await) }
    }

    /// Makes a directory and those above it, if they are missing. A storage element that needs none may
    /// refuse.
    pub(crate) async fn make_directory(&self, file: &WebFile) {
        match in_time(ANSWER_TIME, self.ask("MKCOL", file, &HeaderMap::new(), Bytes::new())).await {
            Ok(told) => tracing::debug!(status = told.status.as_u16(), "a directory on a storage element"),
            Err(why) => tracing::debug!(why, "a directory on a storage element was not made"),
        }
    }

    /// Tells a storage element to copy a file from or to another one, as `headers` say. Sends its
    /// performance markers, and ends the copy if nobody wants them.
    pub(crate) async fn copy(
        &self,
        file: &WebFile,
        headers: &HeaderMap,
        markers: &mpsc::Sender<String>,
    ) -> Outcome<()> {
        in_time(COPY_TIME, async {
            let mut told = in_time(SILENCE_MAX, self.ask("COPY", file, headers, Bytes::new())).await?;
            if !told.status.is_success() {
                return Err(refusal("COPY", told).await);
            }
            let mut waiting = Vec::new();
            loop {
                let frame = async { told.body.frame().await.transpose().map_err(text) };
                let frame = tokio::select! {
                    frame = in_time(SILENCE_MAX, frame) => frame?,
                    () = markers.closed() => return Err("the client has gone".to_owned()),
                };
                let is_over = frame.is_none();
                match frame {
                    Some(frame) => waiting.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
                    // The last line may have no end.
                    None => waiting.push(b'\n'),
                }
                let (marker, end) = read_markers(&mut waiting)?;
                if !marker.is_empty() && markers.send(marker).await.is_err() {
                    return Err("the client has gone".to_owned());
                }
                match end {
                    Some(end) => return end,
                    None if is_over => return Err("it ended without success or failure".to_owned()),
                    None => {}
                }
            }
        })
        .await
    }

    /// Sends a request, and follows redirections.
    async fn ask(&self, method: &str, file: &WebFile, headers: &HeaderMap, body: Bytes) -> Outcome<Told> {
        let mut url = file.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let uri: Uri = url.parse().map_err(|_| "its URL cannot be understood".to_owned())?;
            let told = self.ask_at(method, &uri, &file.token, headers, body.clone()).await?;
            if !told.status.is_redirection() || told.status == StatusCode::NOT_MODIFIED {
                return Ok(told);
            }
            let place = told.headers.get(LOCATION).and_then(|place| place.to_str().ok());
            url = place.and_then(|place| redirected(&uri, place)).ok_or("it redirects to no usable URL")?;
        }
        Err(format!("it redirects more than {REDIRECTS_MAX} times"))
    }

    async fn ask_at(
        &self,
        method: &str,
        uri: &Uri,
        token: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Outcome<Told> {
        let authority = uri.authority().ok_or("no host in its URL")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let secure = uri.scheme_str() == Some("https");
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let connecting = async { TcpStream::connect((host.as_str(), port)).await.map_err(text) };
        let stream = in_time(ANSWER_TIME, connecting).await?;
        stream.set_nodelay(true).map_err(text)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder().method(method).uri(path).header(HOST, host_header(authority));
        if !token.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let mut request = request.body(Full::new(body)).map_err(text)?;
        for (name, value) in headers {
            request.headers_mut().append(name, value.clone());
        }
        if !secure {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(host).map_err(text)?;
        let connector = self.connector()?;
        let handshake = async { connector.connect(name, stream).await.map_err(text) };
        exchange(in_time(ANSWER_TIME, handshake).await?, request).await
    }
}

fn host_header(authority: &Authority) -> &str {
    authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host)
}

async fn exchange(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Outcome<Told> {
    // XRootD 5 compares names of headers with their case.
    let mut builder = hyper::client::conn::http1::Builder::new();
    let handshake = builder.title_case_headers(true).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(text)?;
    let connection = Aborted(tokio::spawn(connection).abort_handle());
    let (head, body) = sender.send_request(request).await.map_err(text)?.into_parts();
    Ok(Told { status: head.status, headers: head.headers, body, _connection: connection })
}

/// Returns the URL of a redirection; none if it leaves HTTPS.
fn redirected(from: &Uri, place: &str) -> Option<String> {
    if place.starts_with('/') && !place.starts_with("//") {
        return Some(format!("{}://{}{place}", from.scheme_str()?, from.authority()?));
    }
    let to: Uri = place.parse().ok()?;
    let kept = to.scheme_str() == Some("https") || to.scheme_str() == from.scheme_str();
    (kept && to.authority().is_some()).then(|| place.to_owned())
}

/// Describes an answer that is no success.
async fn refusal(method: &str, told: Told) -> String {
    let status = told.status.as_u16();
    let body = Limited::new(told.body, REFUSAL_BYTES_MAX).collect();
    let body = match tokio::time::timeout(ANSWER_TIME, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        _ => Bytes::new(),
    };
    let words = shown(&String::from_utf8_lossy(&body));
    if words.is_empty() {
        format!("status {status} to {method}")
    } else {
        format!("status {status}: {words}")
    }
}

/// Returns a line of another server, as it may be shown.
fn shown(line: &str) -> String {
    let line = line.trim().split(['\r', '\n']).next().unwrap_or_default();
    line.chars().filter(|letter| !letter.is_control()).take(REFUSAL_BYTES_MAX).collect()
}

/// Takes the complete lines of an answer to COPY: returns the whole markers among them, and the end
/// of the copy.
fn read_markers(waiting: &mut Vec<u8>) -> Outcome<(String, Option<Outcome<()>>)> {
    let mut whole = String::new();
    let mut part = String::new();
    let mut used = 0;
    while let Some(length) = waiting[used..].iter().position(|byte| *byte == b'\n') {
        let line = shown(&String::from_utf8_lossy(&waiting[used..used + length]));
        let lower = line.to_ascii_lowercase();
        if lower.starts_with("success") {
            return Ok((whole, Some(Ok(()))));
        }
        if lower.starts_with("failure") || lower.starts_with("aborted") || lower.starts_with("error") {
            return Ok((whole, Some(Err(line))));
        }
        part.push_str(&line);
        part.push('\n');
        let is_end = line == "End";
        used += length + 1;
        if is_end {
            whole.push_str(&std::mem::take(&mut part));
            waiting.drain(..used);
            used = 0;
        }
    }
    if waiting[used..].len() > MARKER_BYTES_MAX || used > MARKER_BYTES_MAX {
        return Err("its performance markers are too long".to_owned());
    }
    Ok((whole, None))
}

/// Returns an error about a storage element that a request depended on.
pub(crate) fn unavailable(message: String) -> Error {
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_passed_on_whole_and_the_end_is_recognised() {
        let mut waiting = b"Perf Marker\nTimestamp: 1\nEn".to_vec();
        assert_eq!(read_markers(&mut waiting), Ok((String::new(), None)));
        waiting.extend_from_slice(b"d\nPerf Marker\n\x1b[1mTimestamp: 2\r\nEnd\nsuccess: Created\n");
        let (marker, end) = read_markers(&mut waiting).unwrap();
        assert_eq!(marker, "Perf Marker\nTimestamp: 1\nEnd\nPerf Marker\n[1mTimestamp: 2\nEnd\n");
        assert_eq!(end, Some(Ok(())));
        let mut waiting = b"failure: no \xff room\n".to_vec();
        let (_, end) = read_markers(&mut waiting).unwrap();
        assert_eq!(end, Some(Err("failure: no \u{fffd} room".to_owned())));
        assert!(read_markers(&mut vec![b'x'; MARKER_BYTES_MAX + 1]).is_err());
        assert!(read_markers(&mut b"x\n".repeat(MARKER_BYTES_MAX)).is_err(), "no end of a marker");
        assert!(read_markers(&mut vec![b'x'; MARKER_BYTES_MAX]).is_ok());
    }

    #[test]
    fn redirection_stays_with_https() {
        let from: Uri = "https://a:1/x".parse().unwrap();
        let to = |place| redirected(&from, place);
        assert_eq!(to("/y?z").as_deref(), Some("https://a:1/y?z"));
        assert_eq!(to("https://b/y").as_deref(), Some("https://b/y"));
        for bad in ["http://b/y", "//b/y", "y", "root://b//y", ""] {
            assert_eq!(to(bad), None, "{bad}");
        }
    }
}
