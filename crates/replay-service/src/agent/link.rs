//! Link of an agent to the service: requests for items, and messages with results.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::run::shapes::{API, ItemsAnswer, ItemsRequest, ResultsAnswer, ResultsRequest};
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::dial::{Both, secured, tcp};
use super::limits::{SERVICE_ANSWER_BYTES_MAX, SERVICE_TIME_MAX};

/// Items, and the time of the answer on this machine's clock.
pub(crate) struct ReceivedItems {
    /// Time when the answer came.
    pub at: Instant,
    /// The answer.
    pub answer: ItemsAnswer,
}

/// Service as an agent sees it. An error of a kind that is not retryable is final.
pub(crate) trait ServiceLink: Send + Sync + 'static {
    /// Asks for items.
    fn items(&self, request: ItemsRequest) -> impl Future<Output = Result<ReceivedItems>> + Send;

    /// Brings results. The service has them durably when it answers.
    fn results(&self, request: ResultsRequest) -> impl Future<Output = Result<ResultsAnswer>> + Send;
}

/// Service over HTTP. Each request has a connection of its own.
pub(crate) struct HttpLink {
    address: String,
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    token: Option<String>,
    run: String,
}

/// Error in the form of the services: its kind, and a sentence.
#[derive(Deserialize)]
struct Problem {
    kind: String,
    detail: String,
}

fn unavailable(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, what)
}

impl HttpLink {
    /// Makes a link; nothing is sent yet.
    ///
    /// # Errors
    /// Refuses an address that is not `http(s)://HOST:PORT`, and `https` without trust.
    pub(crate) fn new(
        address: &str,
        run: &str,
        token: Option<String>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<HttpLink> {
        let bad = || Error::invalid(format!("{address:?}: the address of a service is http(s)://HOST:PORT"));
        let (scheme, rest) = address.split_once("://").ok_or_else(bad)?;
        let tls = match (scheme, tls) {
            ("http", _) => None,
            ("https", None) => return Err(Error::invalid("https needs a certificate to trust: name it")),
            ("https", tls) => tls,
            _ => return Err(bad()),
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse().map_err(|_| bad())?;
        if host.is_empty() || host.contains(['/', ' ']) {
            return Err(bad());
        }
        let mut encoded = Vec::new();
        exacat_wire::percent::push_encoded(&mut encoded, run);
        let run = String::from_utf8(encoded).map_err(|_| bad())?.replace('/', "%2F");
        Ok(HttpLink { address: address.to_owned(), host: host.to_owned(), port, tls, token, run })
    }

    /// Sends a request with JSON. Returns the answer, and the time when it came.
    async fn ask<T: DeserializeOwned>(&self, what: &str, body: &impl Serialize) -> Result<(Instant, T)> {
        let late = |_| unavailable(format!("{} does not answer in time", self.address));
        tokio::time::timeout(SERVICE_TIME_MAX, self.exchange(what, body)).await.map_err(late)?
    }

    async fn exchange<T: DeserializeOwned>(&self, what: &str, body: &impl Serialize) -> Result<(Instant, T)> {
        let unreachable = |error: &dyn std::fmt::Display| unavailable(format!("{}: {error}", self.address));
        let body = serde_json::to_vec(body).map_err(|error| Error::invalid(error.to_string()))?;
        let mut request = Request::post(format!("{API}runs/{}/{what}", self.run))
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| Error::invalid("the token cannot be sent over HTTP"))?;
        let stream = tcp(&self.host, self.port).await.map_err(|error| unreachable(&error))?;
        let stream: Box<dyn Both> = match &self.tls {
            None => Box::new(stream),
            Some(config) => Box::new(
                secured(config, &self.host, stream)
                    .await
                    .map_err(|error| unavailable(format!("{}: TLS: {error}", self.address)))?,
            ),
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(&error))?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), SERVICE_ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| unreachable(&error))?.to_bytes();
            Result::<(StatusCode, Bytes)>::Ok((status, body))
        };
        tokio::pin!(answered);
        let (status, body) = tokio::select! {
            answer = &mut answered => answer?,
            // The connection ends with its answer, or before it.
            _ = connection => answered.await?,
        };
        let at = Instant::now();
        if !status.is_success() {
            return Err(self.refusal(status, &body));
        }
        let answer = serde_json::from_slice(&body).map_err(|error| {
            unavailable(format!("the answer of {} is not that of a replay service: {error}", self.address))
        })?;
        Ok((at, answer))
    }

    /// Makes the error of an answer that is no success.
    fn refusal(&self, status: StatusCode, body: &[u8]) -> Error {
        if let Ok(Problem { kind, detail }) = serde_json::from_slice::<Problem>(body)
            && let Some(kind) = ErrorKind::ALL.into_iter().find(|known| known.name() == kind)
        {
            return Error::new(kind, format!("{}: {detail}", self.address));
        }
        let kind = match status {
            StatusCode::UNAUTHORIZED => ErrorKind::Unauthenticated,
            StatusCode::FORBIDDEN => ErrorKind::Denied,
            StatusCode::NOT_FOUND => ErrorKind::NotFound,
            StatusCode::BAD_REQUEST => ErrorKind::Invalid,
            StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::Limit,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("{} answers with status {status}", self.address))
    }
}

impl ServiceLink for HttpLink {
    async fn items(&self, request: ItemsRequest) -> Result<ReceivedItems> {
        let (at, answer) = self.ask("items", &request).await?;
        Ok(ReceivedItems { at, answer })
    }

    async fn results(&self, request: ResultsRequest) -> Result<ResultsAnswer> {
        self.ask("results", &request).await.map(|(_, answer)| answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_forms_are_refused() {
        let link = |address: &str| HttpLink::new(address, "a b/c", None, None);
        let good = link("http://[::1]:8444/").unwrap();
        assert_eq!((good.host.as_str(), good.port, good.run.as_str()), ("[::1]", 8444, "a%20b%2Fc"));
        for bad in
            ["", "h:1", "http://h", "http://:1", "http://h:x", "https://h:1", "ftp://h:1", "http://a/b:1"]
        {
            assert!(link(bad).is_err(), "{bad}");
        }
    }

    /// Property: an error that asks for patience is retryable, one about the request is not.
    #[test]
    fn errors_of_the_service_are_final_or_retryable() {
        let link = HttpLink::new("http://h:1", "r", None, None).unwrap();
        let kind =
            |status, body: &str| link.refusal(StatusCode::from_u16(status).unwrap(), body.as_bytes()).kind;
        assert_eq!(kind(503, ""), ErrorKind::Unavailable);
        assert_eq!(kind(404, "<html>"), ErrorKind::NotFound);
        assert_eq!(kind(400, "{\"kind\":\"busy\",\"detail\":\"x\"}"), ErrorKind::Busy);
        assert_eq!(kind(401, "{\"kind\":\"odd\",\"detail\":\"x\"}"), ErrorKind::Unauthenticated);
        assert!(kind(502, "").is_retryable() && !kind(403, "").is_retryable());
    }
}
