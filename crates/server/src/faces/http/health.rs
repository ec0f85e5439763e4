//! Plain HTTP listener for monitoring: metrics and health. It reveals nothing of the catalogue's
//! contents and changes nothing. So it needs no credentials. It listens on loopback unless set
//! otherwise.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::REFUSAL_TIME;
use crate::admission::{Bounded, ByAddress};
use crate::service::{Phase, Service};

/// Longest time from one request to the next, headers included.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Longest life of a connection with all its requests.
const CONNECTION_TIME: Duration = Duration::from_secs(120);
/// Most bytes of the headers of a request.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Time in which the store must answer for the server to be ready.
const READY_TIME: Duration = Duration::from_secs(2);
/// Most excess connections that get an answer that there is no slot.
const REFUSALS_MAX: usize = 16;
/// Content type of the metrics, for Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// Serves until the server has ended, because it reports health during the stop too.
pub(crate) async fn serve(service: Arc<Service>, listener: TcpListener) {
    let most = service.limits.metrics_connections_max;
    let connections = Bounded::new(most);
    // One host must leave slots for others.
    let by_address = ByAddress::new(most - most / 4);
    let refusals = Bounded::new(REFUSALS_MAX);
    let ended = service.reached(Phase::Ended);
    tokio::pin!(ended);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let held = by_address.take(peer.ip()).and_then(|held| Some((held, connections.take(1)?)));
                    if let Some(held) = held {
                        let service = Arc::clone(&service);
                        tasks.spawn(async move {
                            converse(service, stream).await;
                            drop(held);
                        });
                    } else if let Some(held) = refusals.take(1) {
                        tasks.spawn(async move {
                            refuse(stream).await;
                            drop(held);
                        });
                    }
                }
                Err(error) => super::pause_after_accept_error("metrics", &error).await,
            },
            Some(_) = tasks.join_next() => {}
            () = &mut ended => return,
        }
    }
}

/// Answers any request with `busy`.
async fn refuse(mut stream: TcpStream) {
    const BUSY: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 27\r\n\
        Retry-After: 1\r\nConnection: close\r\n\r\nbusy: too many connections\n";
    let said = tokio::time::timeout(REFUSAL_TIME, async {
        stream.write_all(BUSY).await?;
        stream.shutdown().await?;
        // Closing with an unread request would make the system discard the answer.
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<(), std::io::Error>(())
    });
    if !matches!(said.await, Ok(Ok(()))) {
        tracing::debug!("a client of the metrics did not read that there is no slot for it");
    }
}

async fn converse(service: Arc<Service>, stream: TcpStream) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(answer(&service, &request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    match tokio::time::timeout(CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "metrics connection ended"),
        Err(_) => tracing::debug!("metrics connection took too long"),
    }
}

async fn answer(service: &Service, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, TEXT_TYPE, "only GET and HEAD\n".into());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => match service.scrape().await.text() {
            Ok(metrics) => text(StatusCode::OK, METRICS_TYPE, metrics),
            Err(error) => {
                tracing::error!(%error, "metrics cannot be written");
                text(StatusCode::INTERNAL_SERVER_ERROR, TEXT_TYPE, "metrics cannot be written\n".into())
            }
        },
        "/healthz" => match healthy(service).await {
            Ok(()) => text(StatusCode::OK, TEXT_TYPE, "healthy\n".into()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, TEXT_TYPE, format!("not healthy: {why}\n")),
        },
        "/health/live" => text(StatusCode::OK, TEXT_TYPE, "alive\n".into()),
        "/health/ready" => match ready(service).await {
            Ok(()) => text(StatusCode::OK, TEXT_TYPE, "ready\n".into()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, TEXT_TYPE, format!("not ready: {why}\n")),
        },
        "/" => {
            text(StatusCode::OK, TEXT_TYPE, "exacat: /metrics /healthz /health/live /health/ready\n".into())
        }
        _ => text(
            StatusCode::NOT_FOUND,
            TEXT_TYPE,
            "not here: /metrics /healthz /health/live /health/ready\n".into(),
        ),
    }
}

/// Returns the reason if the server is unhealthy. A server whose log failed still serves reads, but
/// needs a restart.
async fn healthy(service: &Service) -> Result<(), &'static str> {
    if service.catalogue.store().failure().is_some() {
        return Err("the log failed: changes are refused and reads are answered; start the server again");
    }
    ready(service).await
}

/// Returns the reason if the server would not serve a request now. The reason reveals nothing that
/// a stranger may not know.
async fn ready(service: &Service) -> Result<(), &'static str> {
    if !service.is_serving() {
        return Err("the server stops");
    }
    match tokio::time::timeout(READY_TIME, service.catalogue.store().revision()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Err("the store refuses")
        }
        Err(_) => Err("the store does not answer"),
    }
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
