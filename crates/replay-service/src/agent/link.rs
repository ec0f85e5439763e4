//! Link of an agent to the service: requests for items, and messages with results.

use std::future::Future;
use std::sync::Arc;

use exacat_http::{HttpClient, HttpClientSettings};
use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::run::shapes::{API, ItemsAnswer, ItemsRequest, ResultsAnswer, ResultsRequest};
use hyper::Method;
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

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

/// Service over HTTP.
pub(crate) struct HttpLink {
    client: HttpClient,
    run: String,
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
        let (address, time) = (address.to_owned(), SERVICE_TIME_MAX);
        let client = HttpClient::new(HttpClientSettings { address, token, tls, time })?;
        let run = HttpClient::escaped(run).replace('/', "%2F");
        Ok(HttpLink { client: client.with_answers_up_to(SERVICE_ANSWER_BYTES_MAX), run })
    }

    /// Sends a request with JSON. Returns the answer, and the time when it came.
    async fn ask<T: DeserializeOwned>(&self, what: &str, body: &impl Serialize) -> Result<(Instant, T)> {
        let body = serde_json::to_vec(body).map_err(|error| Error::invalid(error.to_string()))?;
        let target = format!("{API}runs/{}/{what}", self.run);
        let answer = self.client.send_bytes(Method::POST, &target, Some(body.into())).await?;
        // Before the answer is read: its items are due by this time.
        let at = Instant::now();
        let answer = serde_json::from_slice(&answer).map_err(|error| {
            let address = self.client.address();
            let what = format!("the answer of {address} is not that of a replay service: {error}");
            Error::new(ErrorKind::Unavailable, what)
        })?;
        Ok((at, answer))
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
    fn run_is_part_of_the_path_whatever_its_name() {
        let link = HttpLink::new("http://[::1]:8444/", "a b/c", None, None).unwrap();
        assert_eq!((link.client.address(), link.run.as_str()), ("http://[::1]:8444/", "a%20b%2Fc"));
        assert!(HttpLink::new("https://h:1", "r", None, None).is_err(), "nothing to trust it by");
    }
}
