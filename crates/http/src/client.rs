//! Client of a service's HTTP. Each request has a connection of its own.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exacat_model::{Error, ErrorKind, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::limits::JSON_BYTES_MAX;
use crate::problem::ServiceProblem;

/// Service to be asked.
#[derive(Clone)]
pub struct HttpClientSettings {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub address: String,
    /// Token of the caller.
    pub token: Option<String>,
    /// TLS for `https`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Longest time for an answer to begin, and for a small one to end.
    pub time: Duration,
}

/// Client of one service.
#[derive(Clone)]
pub struct HttpClient {
    settings: HttpClientSettings,
    is_tls: bool,
    host: String,
    port: u16,
    answer_bytes: usize,
}

/// Connection of an answer; it ends with the answer.
struct Connection(tokio::task::JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Answer whose body is still to come.
pub struct OpenAnswer {
    /// Status, headers and body.
    pub response: Response<Incoming>,
    connection: Connection,
}

impl OpenAnswer {
    /// Takes the body, and the guard that holds its connection.
    pub fn into_body(self) -> (Incoming, impl Send + Sync + use<>) {
        (self.response.into_body(), self.connection)
    }
}

fn unavailable(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, what)
}

impl HttpClient {
    /// Makes a client. Nothing is sent yet.
    ///
    /// # Errors
    /// Refuses addresses of another form.
    pub fn new(settings: HttpClientSettings) -> Result<HttpClient> {
        let bad = || {
            Error::invalid(format!("{:?}: the address of a service is http(s)://HOST:PORT", settings.address))
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
        Ok(HttpClient { settings, is_tls, host, port, answer_bytes: JSON_BYTES_MAX })
    }

    /// Takes small answers of so many bytes, in place of the usual.
    #[must_use]
    pub fn with_answers_up_to(self, answer_bytes: usize) -> HttpClient {
        HttpClient { answer_bytes, ..self }
    }

    /// Makes a client of another service, with the same token and trust. The token goes along, so never
    /// from TLS to plain HTTP.
    ///
    /// # Errors
    /// Refuses such an address.
    pub fn beside(&self, address: &str) -> Result<HttpClient> {
        let other =
            HttpClient::new(HttpClientSettings { address: address.to_owned(), ..self.settings.clone() })?;
        if self.is_tls && !other.is_tls {
            let from = &self.settings.address;
            let what =
                format!("{from} redirects to {address}, which has no TLS: the token is not sent there");
            return Err(Error::new(ErrorKind::Denied, what));
        }
        Ok(other)
    }

    /// Returns the address of the service.
    pub fn address(&self) -> &str {
        &self.settings.address
    }

    /// Escapes text for a path or a field of a request.
    pub fn escaped(text: &str) -> String {
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

    /// Sends a request without a body. Returns its answer of JSON.
    ///
    /// # Errors
    /// Returns the error that the service answers with; *unavailable* if it does not answer.
    pub async fn json<T: DeserializeOwned>(&self, method: Method, target: &str) -> Result<T> {
        self.asked(method, target, None).await
    }

    /// Sends a request with a body of JSON. Returns its answer of JSON.
    ///
    /// # Errors
    /// See [`HttpClient::json`]. A request that was sent may have been carried out.
    pub async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        let body = serde_json::to_vec(body).map_err(|error| Error::invalid(error.to_string()))?;
        self.asked(method, target, Some(body.into())).await
    }

    async fn asked<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: Option<Bytes>,
    ) -> Result<T> {
        let bytes = self.send_bytes(method, target, body).await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            unavailable(format!("the answer of {} is not the expected JSON: {error}", self.settings.address))
        })
    }

    /// Returns a small answer as it is.
    ///
    /// # Errors
    /// See [`HttpClient::json`].
    pub async fn bytes(&self, method: Method, target: &str) -> Result<Bytes> {
        self.send_bytes(method, target, None).await
    }

    /// Sends a request, with a body of JSON if there is one. Returns a small answer as it is.
    ///
    /// # Errors
    /// See [`HttpClient::send_json`].
    pub async fn send_bytes(&self, method: Method, target: &str, body: Option<Bytes>) -> Result<Bytes> {
        let whole = async {
            let answer = self.sent(method, target, &[], body).await?;
            match answer.response.status().is_success() {
                true => self.collected(answer).await,
                false => Err(self.problem(answer).await),
            }
        };
        self.in_time(whole).await
    }

    /// Sends a request, with further headers. Returns the answer as soon as it begins.
    ///
    /// # Errors
    /// *Unavailable* if the service does not answer in time.
    pub async fn open(
        &self,
        method: Method,
        target: &str,
        headers: &[(HeaderName, &str)],
    ) -> Result<OpenAnswer> {
        self.in_time(self.sent(method, target, headers, None)).await
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let late = || unavailable(format!("{} does not answer in time", self.settings.address));
        tokio::time::timeout(self.settings.time, work).await.unwrap_or_else(|_| Err(late()))
    }

    /// Makes the error of an answer.
    pub async fn problem(&self, answer: OpenAnswer) -> Error {
        let status = answer.response.status();
        let bytes = self.in_time(self.collected(answer)).await.unwrap_or_default();
        refusal(&self.settings.address, status, &bytes)
    }

    /// Reads a small answer.
    async fn collected(&self, answer: OpenAnswer) -> Result<Bytes> {
        let (body, _connection) = answer.into_body();
        self.read_small(body).await
    }

    async fn read_small(&self, body: Incoming) -> Result<Bytes> {
        let body = Limited::new(body, self.answer_bytes).collect().await;
        let broken =
            |error| unavailable(format!("the answer of {} breaks off: {error}", self.settings.address));
        body.map(|body| body.to_bytes()).map_err(broken)
    }

    /// Opens a connection that carries one request after the other.
    ///
    /// # Errors
    /// *Unavailable* if the service does not answer in time.
    pub async fn connect(&self) -> Result<HttpConnection> {
        let (sender, connection) = self.in_time(self.connected()).await?;
        Ok(HttpConnection { client: self.clone(), sender, _connection: connection })
    }

    fn request(
        &self,
        method: Method,
        target: &str,
        headers: &[(HeaderName, &str)],
        body: Option<Bytes>,
    ) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(target);
        request = request.header(HOST, format!("{}:{}", self.host, self.port));
        if let Some(token) = &self.settings.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|_| Error::invalid("the token or name cannot be sent over HTTP"))
    }

    async fn sent(
        &self,
        method: Method,
        target: &str,
        headers: &[(HeaderName, &str)],
        body: Option<Bytes>,
    ) -> Result<OpenAnswer> {
        let request = self.request(method, target, headers, body)?;
        let (mut sender, connection) = self.connected().await?;
        let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        Ok(OpenAnswer { response, connection })
    }

    fn broken(&self, error: &hyper::Error) -> Error {
        unavailable(format!("{}: {error}", self.settings.address))
    }

    async fn connected(&self) -> Result<(SendRequest<Full<Bytes>>, Connection)> {
        let (host, port) = (self.host.as_str(), self.port);
        let stream = TcpStream::connect((host, port))
            .await
            .map_err(|error| unavailable(format!("{} cannot be reached: {error}", self.settings.address)))?;
        let _ = stream.set_nodelay(true);
        match self.settings.tls.clone().filter(|_| self.is_tls) {
            None => self.handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|_| Error::invalid(format!("{host} is no name of a host")))?;
                let stream = TlsConnector::from(tls)
                    .connect(name, stream)
                    .await
                    .map_err(|error| unavailable(format!("{}: TLS: {error}", self.settings.address)))?;
                self.handshake(stream).await
            }
        }
    }

    async fn handshake<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
    ) -> Result<(SendRequest<Full<Bytes>>, Connection)> {
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(&error))?;
        let connection = Connection(tokio::spawn(async move {
            let _ = connection.await;
        }));
        Ok((sender, connection))
    }
}

/// Connection that carries one request after the other.
pub struct HttpConnection {
    client: HttpClient,
    sender: SendRequest<Full<Bytes>>,
    _connection: Connection,
}

impl HttpConnection {
    /// Sends a request without a body, and returns its answer as soon as it begins. The body of the answer
    /// before must have been read to its end.
    ///
    /// # Errors
    /// Returns the error that the service answers with; *unavailable* if it does not answer in time.
    pub async fn send(&mut self, method: Method, target: &str) -> Result<Response<Incoming>> {
        self.send_with(method, target, None).await
    }

    /// Sends a request like [`send`](Self::send), with a body.
    ///
    /// # Errors
    /// See [`HttpConnection::send`].
    pub async fn send_with(
        &mut self,
        method: Method,
        target: &str,
        body: Option<Bytes>,
    ) -> Result<Response<Incoming>> {
        let request = self.client.request(method, target, &[], body)?;
        let client = &self.client;
        let answered = async {
            self.sender.ready().await.map_err(|error| client.broken(&error))?;
            self.sender.send_request(request).await.map_err(|error| client.broken(&error))
        };
        let response = client.in_time(answered).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = client.in_time(client.read_small(response.into_body())).await.unwrap_or_default();
        Err(refusal(client.address(), status, &bytes))
    }
}

/// Makes the error of an answer that is no success. A proxy may have given it. A status about the request is
/// final.
fn refusal(address: &str, status: StatusCode, body: &[u8]) -> Error {
    if let Ok(problem) = serde_json::from_slice::<ServiceProblem>(body)
        && !problem.kind.is_empty()
    {
        return problem.into_error();
    }
    let kind = match status {
        StatusCode::UNAUTHORIZED => ErrorKind::Unauthenticated,
        StatusCode::FORBIDDEN => ErrorKind::Denied,
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::BAD_REQUEST => ErrorKind::Invalid,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::Limit,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("{address} answers with status {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> Result<HttpClient> {
        let (address, time) = (address.to_owned(), Duration::from_secs(1));
        HttpClient::new(HttpClientSettings { address, token: Some("secret".to_owned()), tls: None, time })
    }

    #[test]
    fn addresses_are_read_and_names_are_escaped() {
        let good = client("http://[::1]:8444/").unwrap();
        assert_eq!((good.host.as_str(), good.port), ("::1", 8444));
        for bad in
            ["", "h:1", "http://h", "http://:1", "http://h:x", "https://h:1", "ftp://h:1", "http://a/b:1"]
        {
            assert!(client(bad).is_err(), "{bad}");
        }
        assert_eq!(HttpClient::escaped("/a b/%&ü"), "/a%20b/%25%26%C3%BC");
    }

    /// Property: an error that asks for patience is retryable, one about the request is not.
    #[test]
    fn errors_of_the_service_are_final_or_retryable() {
        let kind = |status, body: &str| {
            refusal("http://h:1", StatusCode::from_u16(status).unwrap(), body.as_bytes()).kind
        };
        assert_eq!(kind(503, ""), ErrorKind::Unavailable);
        assert_eq!(kind(404, "<html>"), ErrorKind::NotFound);
        assert_eq!(kind(400, "{\"kind\":\"busy\",\"detail\":\"x\"}"), ErrorKind::Busy);
        assert_eq!(kind(401, "{\"kind\":\"\"}"), ErrorKind::Unauthenticated);
        assert!(kind(502, "").is_retryable() && !kind(403, "").is_retryable());
    }

    /// Property: the token goes along to another service, and never from TLS to plain HTTP.
    #[test]
    fn other_service_gets_the_token_and_never_without_tls() {
        let other = client("http://a:1").unwrap().beside("http://b:2").unwrap();
        assert_eq!((other.host.as_str(), other.port), ("b", 2));
        assert_eq!(other.settings.token.as_deref(), Some("secret"));
        let over_tls = HttpClient { is_tls: true, ..client("http://a:1").unwrap() };
        let refused = over_tls.beside("http://b:2").err().unwrap();
        assert!(refused.kind == ErrorKind::Denied && refused.message.contains("no TLS"), "{refused}");
        // Nothing to trust an https service by.
        assert!(client("http://a:1").unwrap().beside("https://b:2").is_err());
    }
}
