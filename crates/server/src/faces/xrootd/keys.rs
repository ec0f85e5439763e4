//! Public keys of envelopes, over HTTPS on the same port: storage elements fetch them themselves.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::Face;
use crate::envelopes::{CONFIGURATION, KEYS};
use crate::service::Phase;

/// Longest time from one request to the next, headers included.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Longest life of a connection with all its requests.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// Most bytes of the headers of a request.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Serves the public keys.
pub(super) async fn serve(face: Arc<Face>, stream: TcpStream, peer: SocketAddr) {
    let secured = crate::faces::secured(&face.service, &face.acceptor, stream, &peer).await;
    let Some(stream) = secured else { return };
    let ended = face.service.reached(Phase::Stopping);
    let answer = service_fn({
        let face = Arc::clone(&face);
        move |request: Request<Incoming>| {
            let response = answer(&face, &request);
            async move { Ok::<_, Infallible>(response) }
        }
    });
    let requests = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        ended = tokio::time::timeout(CONNECTION_TIME, requests) => {
            if let Ok(Err(error)) = ended {
                tracing::debug!(%peer, %error, "connection ended");
            }
        }
        () = ended => {}
    }
}

fn answer(face: &Face, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match (request.method(), face.envelopes.published(request.uri().path())) {
        (&Method::GET, Some(Ok(document))) => (StatusCode::OK, "application/json", document),
        (&Method::GET, Some(Err(error))) => {
            tracing::error!(%error, "the keys of envelopes cannot be read");
            (StatusCode::SERVICE_UNAVAILABLE, plain, "the keys cannot be read now, retry later\n".to_owned())
        }
        (&Method::GET, None) => (StatusCode::NOT_FOUND, plain, format!("not here: {CONFIGURATION} {KEYS}\n")),
        _ => (StatusCode::METHOD_NOT_ALLOWED, plain, "only GET\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
