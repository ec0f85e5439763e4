//! Replay service that hands out the items of a test, and fails where the test says so.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use exacat_replay::run::outcome::AccessResult;
use exacat_replay::run::shapes::{
    ItemsAnswer, ItemsRequest, ReplayItem, ResultsAnswer, ResultsRequest, RunState,
};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Fault of the service in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does what it is asked for, and its answer is lost.
    AnswerLost,
    /// It does nothing, and ends the connection.
    Away,
    /// It answers with this status and a text.
    Status(u16),
}

/// State of the service.
#[derive(Default)]
pub(crate) struct Book {
    /// Items that are not handed out yet.
    pub items: Vec<ReplayItem>,
    /// Results, by item and attempt.
    pub results: BTreeMap<(u64, u32), AccessResult>,
    /// Messages with results, as they came.
    pub messages: Vec<ResultsRequest>,
    /// Requests for items, as they came.
    pub requests: Vec<ItemsRequest>,
    /// Headers of authorization that came.
    pub tokens: Vec<Option<String>>,
    /// Faults of the next requests for items, and of the next messages.
    pub item_faults: Vec<Fault>,
    pub result_faults: Vec<Fault>,
    /// Accesses at once that it permits.
    pub in_flight: Option<u32>,
    /// Number of results after which the run is done.
    pub wanted: usize,
    /// Says that the run is stopped.
    pub is_stopped: bool,
}

/// A service that runs.
pub(crate) struct Service {
    pub address: SocketAddr,
    pub book: Arc<Mutex<Book>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Book {
    fn state(&self) -> RunState {
        match () {
            () if self.is_stopped => RunState::Stopped,
            () if self.results.len() >= self.wanted => RunState::Done,
            () => RunState::Running,
        }
    }

    fn hand_out(&mut self, request: ItemsRequest) -> ItemsAnswer {
        let count = self.items.len().min(request.count as usize);
        self.requests.push(request);
        let items = self.items.drain(..count).collect();
        ItemsAnswer { state: self.state(), items, again_ms: 1, in_flight: self.in_flight, number: 0 }
    }

    fn take(&mut self, request: ResultsRequest) -> ResultsAnswer {
        self.messages.push(request.clone());
        let mut answer = ResultsAnswer::default();
        for result in request.results {
            match self.results.insert((result.item, result.attempt), result) {
                None => answer.accepted += 1,
                Some(_) => answer.known += 1,
            }
        }
        answer.state = Some(self.state());
        answer
    }
}

impl Service {
    /// Starts a service that hands out items.
    pub(crate) async fn start(items: Vec<ReplayItem>) -> Service {
        Service::start_over(items, None).await
    }

    /// Starts a service, over TLS if it has a certificate.
    pub(crate) async fn start_over(items: Vec<ReplayItem>, tls: Option<TlsAcceptor>) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let wanted = items.len();
        let book = Arc::new(Mutex::new(Book { items, wanted, ..Book::default() }));
        let known = Arc::clone(&book);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let book = Arc::clone(&known);
                let tls = tls.clone();
                connections.spawn(async move {
                    let serve = service_fn(move |request| answer(Arc::clone(&book), request));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = match tls {
                        None => http.serve_connection(TokioIo::new(stream), serve).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => http.serve_connection(TokioIo::new(stream), serve).await,
                            Err(_) => Ok(()),
                        },
                    };
                });
            }
        });
        Service { address, book, task }
    }

    /// Returns its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Error that ends a connection.
#[derive(Debug)]
pub(crate) struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("gone")
    }
}

impl std::error::Error for Gone {}

async fn answer(book: Arc<Mutex<Book>>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Gone> {
    let path = request.uri().path().to_owned();
    let token = request.headers().get("authorization").map(|token| token.to_str().unwrap().to_owned());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut book = book.lock();
    if path.starts_with("/files/") {
        return Ok(Response::builder().status(404).body(Full::default()).unwrap());
    }
    book.tokens.push(token);
    let is_items = path == "/api/v1/runs/run%201/items";
    assert!(is_items || path == "/api/v1/runs/run%201/results", "{path}");
    let faults = if is_items { &mut book.item_faults } else { &mut book.result_faults };
    let fault = if faults.is_empty() { None } else { Some(faults.remove(0)) };
    match fault {
        Some(Fault::Away) => return Err(Gone),
        Some(Fault::Status(status)) => {
            return Ok(Response::builder().status(status).body(Full::from("<html>")).unwrap());
        }
        _ => {}
    }
    let text = match is_items {
        true => serde_json::to_vec(&book.hand_out(serde_json::from_slice(&body).unwrap())).unwrap(),
        false => serde_json::to_vec(&book.take(serde_json::from_slice(&body).unwrap())).unwrap(),
    };
    if fault == Some(Fault::AnswerLost) {
        return Err(Gone);
    }
    Ok(Response::new(Full::from(text)))
}
