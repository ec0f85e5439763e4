//! A webhook: takes batches of CloudEvents 1.0 over HTTP, in order, until it has answered each.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use exacat_model::{Guid, Result};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use ring::hmac;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

use super::address::WebhookUrl;
use super::cloud::{Attributes, DATA_TYPE, SPEC_VERSION, put_type};
use super::reach::{TlsSource, addresses, permitted, refused};
use super::secret::secret_bytes;
use super::trouble::Trouble;
use crate::batch::{Batch, Head};
use crate::cursor::Cursor;
use crate::json::put_shown;
use crate::limits::{ANSWER_BYTES_MAX, ANSWER_TIME, POST_BYTES, POST_EVENTS, RETRY_AFTER_MAX};

/// Type of a batch.
const BATCH_TYPE: &str = "application/cloudevents-batch+json";
/// Header with the signature.
const SIGNATURE: &str = "x-exacat-signature";

/// An open connection; it ends with this value.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A webhook.
pub(crate) struct WebhookSink {
    url: WebhookUrl,
    allow_private: bool,
    key: Option<hmac::Key>,
    attributes: Attributes,
    tls: TlsSource,
    connection: Option<Connection>,
    body: Vec<u8>,
}

/// Reads the secret that signs requests.
pub(crate) fn secret(path: &Path) -> Result<hmac::Key> {
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &secret_bytes(path)?))
}

/// Returns the value of the header of a signature.
pub(crate) fn signature(key: &hmac::Key, seconds: u64, body: &[u8]) -> String {
    let mut signed = hmac::Context::with_key(key);
    signed.update(format!("{seconds}.").as_bytes());
    signed.update(body);
    let digest = signed.sign();
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

/// Returns the pause in the header `Retry-After`; only seconds count, as all known servers send them.
fn asked_pause(value: Option<&hyper::header::HeaderValue>) -> Option<Duration> {
    let seconds = value?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

impl WebhookSink {
    /// Makes the sink of a feed. It connects with the first batch.
    pub(crate) fn open(
        url: WebhookUrl,
        cursor: &Cursor,
        catalogue: Guid,
        tls: TlsSource,
    ) -> std::result::Result<Self, Trouble> {
        let key = cursor.spec.secret.as_deref().map(|path| secret(Path::new(path))).transpose()?;
        let attributes = Attributes::new(catalogue, cursor.timeline);
        let (allow_private, body) = (cursor.spec.allow_private, Vec::new());
        Ok(WebhookSink { url, allow_private, key, attributes, tls, connection: None, body })
    }

    /// Sends events, in as many requests as needed.
    pub(crate) async fn put(&mut self, batch: &Batch, seconds: u64) -> std::result::Result<(), Trouble> {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let mut count = 0;
        for (head, line) in batch.events() {
            if count == POST_EVENTS || (count > 0 && body.len() + line.len() > POST_BYTES) {
                body.push(b']');
                self.post(Bytes::from(std::mem::take(&mut body)), seconds).await?;
                count = 0;
            }
            body.push(if count == 0 { b'[' } else { b',' });
            self.wrap(&mut body, head, line);
            count += 1;
        }
        if count > 0 {
            body.push(b']');
            self.post(Bytes::from(body), seconds).await?;
        }
        Ok(())
    }

    /// Adds an event in its envelope.
    fn wrap(&self, body: &mut Vec<u8>, head: &Head, line: &[u8]) {
        body.extend_from_slice(b"{\"specversion\":\"");
        body.extend_from_slice(SPEC_VERSION.as_bytes());
        body.extend_from_slice(b"\",\"id\":\"");
        self.attributes.put_id(body, head);
        body.extend_from_slice(b"\",\"source\":\"");
        body.extend_from_slice(self.attributes.source.as_bytes());
        body.extend_from_slice(b"\",\"type\":\"");
        put_type(body, head.op.name());
        body.extend_from_slice(b"\",\"time\":");
        put_shown(body, head.time);
        body.extend_from_slice(b",\"datacontenttype\":\"");
        body.extend_from_slice(DATA_TYPE.as_bytes());
        body.extend_from_slice(b"\",\"data\":");
        body.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        body.push(b'}');
    }

    async fn post(&mut self, body: Bytes, seconds: u64) -> std::result::Result<(), Trouble> {
        let url = self.url.authority();
        let late = || Trouble::later(format!("{url} does not answer within {} s", ANSWER_TIME.as_secs()));
        let answer = tokio::time::timeout(ANSWER_TIME, self.exchange(body, seconds)).await;
        let outcome = answer.unwrap_or_else(|_| Err(late()));
        if outcome.is_err() {
            self.connection = None;
        }
        outcome
    }

    async fn exchange(&mut self, body: Bytes, seconds: u64) -> std::result::Result<(), Trouble> {
        let url = self.url.authority();
        let broken = |error: &dyn std::fmt::Display| Trouble::later(format!("{url}: {error}"));
        if self.connection.as_ref().is_none_or(|connection| connection.sender.is_closed()) {
            self.connection = Some(self.connect().await?);
        }
        let Some(connection) = &mut self.connection else { return Err(Trouble::later("no connection")) };
        let mut request = Request::post(&self.url.target)
            .header(HOST, &url)
            .header(USER_AGENT, concat!("exacat/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, BATCH_TYPE);
        if let Some(key) = &self.key {
            request = request.header(SIGNATURE, signature(key, seconds, &body));
        }
        let request = request.body(Full::new(body)).map_err(|error| broken(&error))?;
        connection.sender.ready().await.map_err(|error| broken(&error))?;
        let answer = connection.sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = answer.status();
        let pause = asked_pause(answer.headers().get(RETRY_AFTER));
        // Read it, so that the connection can be used again; too long an answer ends it.
        let rest = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        if rest.is_err() {
            self.connection = None;
        }
        if status.is_success() {
            return Ok(());
        }
        let why = format!("{url} answers with status {}", status.as_u16());
        match status {
            StatusCode::GONE => Err(Trouble::Refused(format!("{why}: it wants no more events"))),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Err(Trouble::Later { why, pause })
            }
            _ => Err(Trouble::later(why)),
        }
    }

    async fn connect(&self) -> std::result::Result<Connection, Trouble> {
        let (url, host) = (self.url.authority(), self.url.host.clone());
        let broken = |error: &dyn std::fmt::Display| Trouble::later(format!("{url}: {error}"));
        let found = addresses(&host, self.url.port).await.map_err(|error| broken(&error))?;
        // Connect to addresses that were judged: the name may have others a moment later.
        let permitted = permitted(&found, self.allow_private);
        if permitted.is_empty() {
            return Err(refused(&url));
        }
        let stream = TcpStream::connect(&*permitted).await.map_err(|error| broken(&error))?;
        let _ = stream.set_nodelay(true);
        if self.url.is_tls {
            let name = ServerName::try_from(host).map_err(|error| broken(&error))?;
            let connector = (self.tls)()?;
            let stream = connector.connect(name, stream).await.map_err(|error| broken(&error))?;
            let made = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
            let (sender, connection) = made.map_err(|error| broken(&error))?;
            return Ok(Connection { sender, task: tokio::spawn(async move { drop(connection.await) }) });
        }
        let made = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(|error| broken(&error))?;
        Ok(Connection { sender, task: tokio::spawn(async move { drop(connection.await) }) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Property: a receiver that knows the secret can check a request with any HMAC library.
    #[test]
    fn signature_is_that_of_rfc_2104_over_time_and_body() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
        let text = signature(&key, 1_700_000_000, b"[]");
        let hex = text.strip_prefix("t=1700000000,v1=").unwrap();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        hmac::verify(&key, b"1700000000.[]", &bytes).unwrap();
        assert!(hmac::verify(&key, b"1700000001.[]", &bytes).is_err());
    }

    /// Property: a secret that others can read, or that can be guessed, is refused with the remedy.
    #[test]
    fn secret_must_be_private_and_long_enough() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            secret(&path).map(|_| ()).map_err(|error| error.message)
        };
        assert!(write("0123456789abcdef\n", 0o600).is_ok());
        assert!(write("0123456789abcdef\n", 0o640).unwrap_err().contains("chmod 600"));
        assert!(write("0123456789abcde\n", 0o600).unwrap_err().contains("15 bytes"));
        assert!(write(&"x".repeat(4096), 0o600).is_ok());
        assert!(write(&"x".repeat(4097), 0o600).is_err());
        assert!(write(&"x".repeat(9000), 0o600).is_err());
        assert!(secret(directory.path()).is_err() && secret(&directory.path().join("none")).is_err());
    }

    #[test]
    fn asked_pause_is_bounded() {
        let of = |text: &'static str| asked_pause(Some(&hyper::header::HeaderValue::from_static(text)));
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        assert_eq!(of("99999999"), Some(RETRY_AFTER_MAX));
        assert_eq!((of("soon"), of("-1"), asked_pause(None)), (None, None, None));
    }
}
