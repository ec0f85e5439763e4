//! Storage elements of HTTP for tests: they hold files, tell checksums, and copy from one to the other
//! with performance markers. The tests reach them without TLS.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

/// The behaviour of storage elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Correct.
    #[default]
    Good,
    /// Refuses everything that changes something.
    Full,
    /// Tells a checksum of other content.
    WrongChecksum,
    /// Takes a file, and stores half of it.
    Half,
    /// Ends a copy with a failure, after a marker.
    Failure,
    /// Breaks the answer to COPY off, after a marker.
    BrokenOff,
    /// Never ends the answer to COPY.
    Endless,
}

/// A request that a storage element got.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub method: String,
    pub port: u16,
    pub headers: HeaderMap,
}

#[derive(Default)]
pub(crate) struct State {
    /// Contents by port and path.
    pub files: HashMap<(u16, String), Vec<u8>>,
    pub manner: Manner,
    pub got: Vec<Got>,
}

/// Two storage elements with one state.
#[derive(Clone)]
pub(crate) struct Stores {
    pub ports: [u16; 2],
    pub state: Arc<Mutex<State>>,
}

type Body = BoxBody<Bytes, Infallible>;

impl Stores {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let mut ports = [0; 2];
        for port in &mut ports {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let own = listener.local_addr().unwrap().port();
            *port = own;
            let state = Arc::clone(&state);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let state = Arc::clone(&state);
                    let service = hyper::service::service_fn(move |request| {
                        let state = Arc::clone(&state);
                        async move { Ok::<_, Infallible>(answer(own, request, &state).await) }
                    });
                    let serving = hyper::server::conn::http1::Builder::new();
                    tokio::spawn(
                        async move { serving.serve_connection(TokioIo::new(stream), service).await },
                    );
                }
            });
        }
        Stores { ports, state }
    }

    pub(crate) fn behave(&self, manner: Manner) {
        self.state.lock().manner = manner;
    }

    pub(crate) fn hold(&self, url: &str, content: &[u8]) {
        self.state.lock().files.insert(place(url), content.to_vec());
    }

    pub(crate) fn content(&self, url: &str) -> Option<Vec<u8>> {
        self.state.lock().files.get(&place(url)).cloned()
    }

    /// Returns the last request of a method.
    pub(crate) fn last(&self, method: &str) -> Got {
        let state = self.state.lock();
        state.got.iter().rev().find(|got| got.method == method).unwrap().clone()
    }
}

/// Returns port and path of a URL.
pub(crate) fn place(url: &str) -> (u16, String) {
    let (_, rest) = url.split_once("://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let path = path.split('?').next().unwrap();
    (host.rsplit(':').next().unwrap().parse().unwrap(), path.to_owned())
}

fn adler(content: &[u8]) -> String {
    let mut adler = simd_adler32::Adler32::new();
    adler.write(content);
    format!("adler32={:08x}", adler.finish())
}

fn whole(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    Response::builder().status(status).body(Full::new(body.into()).boxed()).unwrap()
}

async fn answer(port: u16, request: Request<Incoming>, state: &Mutex<State>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let manner = {
        let mut state = state.lock();
        let (method, headers) = (head.method.as_str().to_owned(), head.headers.clone());
        state.got.push(Got { method, port, headers });
        state.manner
    };
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let there = state.lock().files.get(&(port, path.clone())).cloned();
    match (head.method.as_str(), there) {
        ("HEAD" | "GET", None) => whole(404, ""),
        ("HEAD", Some(content)) => {
            let told = if manner == Manner::WrongChecksum { adler(b"other") } else { adler(&content) };
            let response =
                Response::builder().header("Content-Length", content.len()).header("ETag", "\"1\"");
            response.header("Digest", told).body(Full::new(Bytes::new()).boxed()).unwrap()
        }
        ("GET", Some(content)) if head.headers.contains_key("range") => whole(206, content[..1].to_vec()),
        ("GET", Some(content)) => whole(200, content),
        ("PUT" | "COPY", _) if manner == Manner::Full => whole(507, "no room\nand no more"),
        ("PUT", _) => {
            let kept = if manner == Manner::Half { body.slice(..body.len() / 2) } else { body };
            state.lock().files.insert((port, path), kept.to_vec());
            whole(201, "")
        }
        ("COPY", _) => copied((port, path), &head.headers, state, manner),
        _ => whole(405, ""),
    }
}

fn copied(own: (u16, String), headers: &HeaderMap, state: &Mutex<State>, manner: Manner) -> Response<Body> {
    let marker = "Perf Marker\nTimestamp: 1\nStripe Index: 0\nStripe Bytes Transferred: 1\nTotal Stripe Count: 1\nEnd\n";
    let url = |name: &str| headers.get(name).map(|url| place(url.to_str().unwrap()));
    let (from, to) = match (url("source"), url("destination")) {
        (Some(from), None) => (from, own),
        (None, Some(to)) => (own, to),
        _ => return whole(400, "one side"),
    };
    let mut state = state.lock();
    let Some(content) = state.files.get(&from).cloned() else {
        return whole(201, format!("{marker}failure: no such source"));
    };
    match manner {
        Manner::Failure => return whole(201, format!("{marker}failure: no room\n")),
        Manner::BrokenOff => return whole(201, marker),
        Manner::Endless => {
            let first = stream::once(async move { Ok(Frame::data(Bytes::from(marker))) });
            return Response::new(BoxBody::new(StreamBody::new(first.chain(stream::pending()))));
        }
        Manner::Half => state.files.insert(to, content[..content.len() / 2].to_vec()),
        _ => state.files.insert(to, content),
    };
    // The last line has no end, as XRootD writes it.
    whole(201, format!("{marker}success: Created"))
}
