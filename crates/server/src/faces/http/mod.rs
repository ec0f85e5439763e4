//! HTTP: web pages, the REST API, WebDAV, and monitoring. One listener speaks HTTPS, and plain HTTP with
//! the networks that the operator names.
//!
//! A connection beyond the slots of all clients still gets one of the slots of monitoring. There it
//! may read metrics and health; everything else is answered with 503.

mod answers;
mod call;
mod certificate;
mod dav;
mod finding;
mod following;
mod health;
mod http2;
mod influx;
mod monitoring;
mod origins;
mod pages;
mod query;
mod rest;

pub(crate) use rest::document;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use exacat_http::Stalling;
use exacat_model::Error;
use exacat_wire::json::SeNames;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{ACCEPT, CONNECTION, EXPECT, HeaderValue};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::jalien::Certificates;
use super::{REFUSAL_TIME, handshake, pause_after_accept_error, without_delay};
use crate::admission::{ConnectionSlot, Entrance, Unread, busy};
use crate::data_server::WebClient;
use crate::envelopes::Envelopes;
use crate::instruments::count;
use crate::peer::Peer;
use crate::places::{Network, Places};
use crate::service::{Phase, Service};
use crate::settings::HttpSettings;
use crate::uploads::Uploads;
use answers::{Body, problem};
use call::KnownClient;
use certificate::ClientCertificate;
use http2::{Streams, Watched};
use monitoring::Monitoring;

/// First byte of a client that speaks TLS.
const TLS_FIRST: u8 = 0x16;
/// Longest time from one request to the next, over HTTP/1 headers included.
const HEADER_TIME: Duration = Duration::from_secs(60);
/// Longest such time in a slot of monitoring.
const MONITORING_HEADER_TIME: Duration = Duration::from_secs(10);
/// Longest life of a connection in a slot of monitoring.
const MONITORING_TIME: Duration = Duration::from_secs(120);
/// Most bytes of the headers of a request.
const HEADER_BYTES_MAX: usize = 32 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 100;
/// Most requests at once on an HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
/// Bytes of answers that an HTTP/2 stream buffers.
const STREAM_BUFFER_BYTES: usize = 256 << 10;
/// Checks of an HTTP/2 connection in each of its time limits.
const CHECKS: u32 = 4;
/// Longest time for the last answers of a connection that ends because it was idle.
const FAREWELL_TIME: Duration = Duration::from_secs(10);
/// Interval of pings that find a dead HTTP/2 client, and the time for their answers.
const PING_TIME: Duration = Duration::from_secs(30);
/// Most bytes that are read of a body that the answer did not need.
const UNREAD_BYTES_MAX: usize = 64 << 10;
/// Longest time for that.
const UNREAD_TIME: Duration = Duration::from_secs(1);
/// Most bytes that are read and dropped of a body after the answer that ended its connection, so
/// that a client which still sends receives that answer.
const LINGER_BYTES_MAX: usize = 64 << 20;
/// Longest time for that.
const LINGER_TIME: Duration = Duration::from_secs(30);
/// Bytes of such a read.
const LINGER_READ_BYTES: usize = 16 << 10;
/// The answer to plain HTTP where only HTTPS is spoken.
const HTTPS_ONLY: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 34\r\n\
    Connection: close\r\n\r\nthis is HTTPS: use an https:// URL";

/// Parts of the server that the face uses.
pub(crate) struct Shared {
    pub service: Arc<Service>,
    pub envelopes: Arc<Envelopes>,
    pub places: Arc<Places>,
    pub uploads: Option<Arc<Uploads>>,
    pub web: Arc<WebClient>,
    pub certificates: Option<Arc<Certificates>>,
}

/// The common state of all connections.
pub(crate) struct Face {
    service: Arc<Service>,
    envelopes: Arc<Envelopes>,
    places: Arc<Places>,
    /// Tracker of uploads; none for a snapshot.
    uploads: Option<Arc<Uploads>>,
    /// Client of storage elements over HTTPS.
    web: Arc<WebClient>,
    /// PUTs that failed lately.
    failed_puts: dav::FailedPuts,
    /// Networks whose clients may speak plain HTTP.
    plain: Vec<Network>,
    /// Origins of web pages that may use the API.
    origins: Vec<String>,
    /// Judges certificates of clients; none if no authority of theirs is configured.
    certificates: Option<Arc<Certificates>>,
    acceptor: TlsAcceptor,
    /// Sessions of people in browsers.
    sessions: pages::Sessions,
    /// Names of storage elements, and the store's count of seen changes of records before.
    ses: Mutex<(u64, Arc<SeNames>)>,
}

impl Face {
    /// Makes the face.
    pub(crate) fn new(shared: Shared, settings: &HttpSettings, acceptor: TlsAcceptor) -> Arc<Self> {
        let Shared { service, envelopes, places, uploads, web, certificates } = shared;
        let (plain, origins) = (settings.plain.clone(), settings.origins.clone());
        let (ses, failed_puts) = (Mutex::new((0, Arc::default())), dav::FailedPuts::default());
        Arc::new(Face {
            service,
            envelopes,
            places,
            uploads,
            web,
            failed_puts,
            plain,
            origins,
            certificates,
            acceptor,
            sessions: pages::Sessions::default(),
            ses,
        })
    }

    /// Returns the names of all storage elements.
    fn ses(&self) -> Arc<SeNames> {
        let catalogue = &self.service.catalogue;
        let seen = catalogue.store().records_seen();
        let mut ses = self.ses.lock();
        if ses.0 != seen || ses.1.is_empty() {
            let mut names = SeNames::default();
            catalogue.storage_elements().iter().for_each(|se| names.learn_one(se));
            *ses = (seen, Arc::new(names));
        }
        Arc::clone(&ses.1)
    }
}

/// A connection.
struct Conversation {
    face: Arc<Face>,
    peer: Peer,
    /// True if the client speaks TLS.
    is_tls: bool,
    /// Held by the connection until it ends; none in a slot of monitoring.
    slot: Option<Mutex<ConnectionSlot>>,
    /// Certificate that the client showed in the handshake.
    certificate: Option<ClientCertificate>,
    /// The last credentials that were judged.
    known: Mutex<Option<KnownClient>>,
    /// Answers that the client has not read yet.
    unread: Unread,
    /// True if the last request had a body.
    has_body: AtomicBool,
}

/// Serves until the server has ended, because it reports health during the stop too. Requests in
/// flight hold `alive`.
pub(crate) async fn serve(face: Arc<Face>, listener: TcpListener, alive: mpsc::Sender<()>) {
    let service = Arc::clone(&face.service);
    let mut monitoring = Monitoring::new(service.limits.metrics_connections_max);
    let (stopping, ended) = (service.reached(Phase::Stopping), service.reached(Phase::Ended));
    tokio::pin!(stopping, ended);
    let mut alive = Some(alive);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let entrance = match &alive {
                        Some(_) => super::entered(&service, service.admission.connections.enter(peer)),
                        None => None,
                    };
                    if let Some(Entrance::Taken(slot)) = entrance {
                        let (face, alive) = (Arc::clone(&face), alive.clone());
                        tasks.spawn(async move {
                            converse(face, stream, peer, Some(slot)).await;
                            drop(alive);
                        });
                    } else {
                        let conversation = converse(Arc::clone(&face), stream, peer, None);
                        monitoring.admit(peer.ip(), || {
                            tasks.spawn(async {
                                let _ = tokio::time::timeout(MONITORING_TIME, conversation).await;
                            })
                        });
                    }
                }
                Err(error) => pause_after_accept_error("http", &error).await,
            },
            Some(_) = tasks.join_next() => {}
            () = &mut stopping, if alive.is_some() => alive = None,
            () = &mut ended => return,
        }
    }
}

/// Serves a connection: HTTPS, or plain HTTP if the client's network may.
async fn converse(face: Arc<Face>, mut stream: TcpStream, peer: SocketAddr, slot: Option<ConnectionSlot>) {
    without_delay(&stream, &peer);
    let service = Arc::clone(&face.service);
    let mut first = [0];
    match tokio::time::timeout(service.limits.handshake_time, stream.peek(&mut first)).await {
        Ok(Ok(1..)) => {}
        Ok(_) => return tracing::debug!(%peer, "closed before a request"),
        Err(_) => return count(&service.instruments.counts.handshakes_failed),
    }
    let slot = slot.map(Mutex::new);
    let is_tls = first[0] == TLS_FIRST;
    if !is_tls && !face.plain.iter().any(|network| network.contains(peer.ip())) {
        let refusal = async {
            stream.write_all(HTTPS_ONLY).await?;
            stream.shutdown().await
        };
        let _ = tokio::time::timeout(REFUSAL_TIME, refusal).await;
        return tracing::debug!(%peer, "plain HTTP where only HTTPS is spoken");
    }
    let conversation = |face, certificate| {
        let (peer, unread) = (Peer::Network(peer), Unread::new(&service.admission));
        let (known, has_body) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Conversation { face, peer, is_tls, slot, certificate, known, unread, has_body })
    };
    if !is_tls {
        return over_http1(conversation(face, None), stream).await;
    }
    let acceptor = face.acceptor.clone();
    let Some(stream) = handshake(service.limits.handshake_time, &acceptor, stream, &peer).await else {
        return count(&service.instruments.counts.handshakes_failed);
    };
    let certificate = match (&face.certificates, stream.get_ref().1.peer_certificates()) {
        (Some(certificates), Some(chain)) => {
            Some(ClientCertificate::judge(certificates, chain, service.catalogue.now()).await)
        }
        _ => None,
    };
    let conversation = conversation(face, certificate);
    if stream.get_ref().1.alpn_protocol() == Some(crate::tls::HTTP2) {
        over_http2(conversation, stream).await;
    } else {
        over_http1(conversation, stream).await;
    }
}

/// Returns the longest time from one request of a connection to the next.
fn header_time(conversation: &Conversation) -> Duration {
    let most = if conversation.slot.is_some() { HEADER_TIME } else { MONITORING_HEADER_TIME };
    most.min(conversation.face.service.limits.idle_time)
}

async fn over_http1(conversation: Arc<Conversation>, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let limits = Arc::clone(&conversation.face.service.limits);
    let stopping = conversation.face.service.reached(Phase::Stopping);
    let mut stream = Stalling::new(stream, limits.output_stall, limits.output_progress_bytes);
    // A connection that begins during the stop asks for health: a shutdown would close it unanswered.
    let mut told = *conversation.face.service.phase().borrow() > Phase::Serving;
    // No `pipeline_flush`: with it, answers of pipelined requests are buffered without a bound.
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time(&conversation))
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(!told)
        .serve_connection(TokioIo::new(&mut stream), answering(Arc::clone(&conversation), None));
    let mut connection = Box::pin(connection);
    tokio::pin!(stopping);
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = &mut stopping, if !told => {
                connection.as_mut().graceful_shutdown();
                told = true;
            }
        }
    };
    drop(connection);
    match ended {
        Err(error) => tracing::debug!(%error, "an HTTP connection ended"),
        // The system drops an answer that the client has not read if a body is left unread.
        Ok(()) if conversation.has_body.load(Ordering::Relaxed) && !told => {
            let _ = tokio::time::timeout(LINGER_TIME, read_rest(&mut stream)).await;
        }
        Ok(()) => {}
    }
}

/// Reads what a client still sends, up to a bound, and drops it.
async fn read_rest(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    let mut part = vec![0; LINGER_READ_BYTES];
    let mut read = 0;
    while read < LINGER_BYTES_MAX {
        match stream.read(&mut part).await? {
            0 => break,
            bytes => read += bytes,
        }
    }
    Ok(())
}

async fn over_http2(
    conversation: Arc<Conversation>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) {
    let limits = Arc::clone(&conversation.face.service.limits);
    let stopping = conversation.face.service.reached(Phase::Stopping);
    let idle_time = header_time(&conversation);
    let mut told = *conversation.face.service.phase().borrow() > Phase::Serving;
    let streams = Streams::new();
    let stream = Stalling::new(stream, limits.output_stall, limits.output_progress_bytes);
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX))
        .max_send_buf_size(STREAM_BUFFER_BYTES)
        .keep_alive_interval(PING_TIME)
        .keep_alive_timeout(PING_TIME)
        .serve_connection(TokioIo::new(stream), answering(conversation, Some(Arc::clone(&streams))));
    let checks = tokio::time::sleep(Duration::ZERO);
    tokio::pin!(connection, stopping, checks);
    let mut idle_since = None;
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = &mut stopping, if !told => {
                connection.as_mut().graceful_shutdown();
                told = true;
            }
            () = &mut checks => {
                if streams.stalled() >= limits.output_stall {
                    return tracing::debug!("an HTTP/2 client does not take its answers");
                }
                if streams.idle() >= idle_time {
                    let since = *idle_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= FAREWELL_TIME {
                        return tracing::debug!("an idle HTTP/2 connection does not end");
                    }
                    if !told {
                        connection.as_mut().graceful_shutdown();
                        told = true;
                    }
                } else {
                    idle_since = None;
                }
                checks.as_mut().reset(tokio::time::Instant::now() + idle_time.min(limits.output_stall) / CHECKS);
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP/2 connection ended");
    }
}

type Answering = futures::future::BoxFuture<'static, Result<Response<Watched>, Infallible>>;

fn answering(
    conversation: Arc<Conversation>,
    streams: Option<Arc<Streams>>,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<Watched>,
    Error = Infallible,
    Future = Answering,
> {
    service_fn(move |request: Request<Incoming>| -> Answering {
        let conversation = Arc::clone(&conversation);
        let stream = streams.as_ref().map(Streams::open);
        Box::pin(async move {
            let response = answer(conversation, request).await;
            Ok(response.map(|body| Watched::new(body, stream)))
        })
    })
}

/// Answers one request. A short body that the answer did not need is read, because a connection
/// with an unread body cannot go on.
async fn answer(conversation: Arc<Conversation>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    conversation.has_body.store(!body.is_end_stream(), Ordering::Relaxed);
    let mut body = Some(body);
    let mut response = answer_to(&conversation, &head, &mut body).await;
    following::show_lag(&conversation.face.service, &mut response);
    // Reading would tell a client that waits for `100 Continue` to send its body.
    if let Some(body) = body
        && !body.is_end_stream()
        && !head.headers.contains_key(EXPECT)
    {
        let _ = tokio::time::timeout(UNREAD_TIME, Limited::new(body, UNREAD_BYTES_MAX).collect()).await;
    }
    response
}

async fn answer_to(
    conversation: &Arc<Conversation>,
    head: &Parts,
    body: &mut Option<Incoming>,
) -> Response<Body> {
    let service = &conversation.face.service;
    let path = head.uri.path();
    let accept = head.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if let Some(response) = health::answer(service, &head.method, path, accept).await {
        return response;
    }
    let refused = if conversation.slot.is_none() {
        Some(busy("connections"))
    } else if service.is_serving() && (pages::is_of_operators(path) || path == rest::DRAIN) {
        // Operators look at a drained server, and resume it.
        None
    } else {
        service.closed_to_network()
    };
    if let Some(error) = refused {
        let mut response = answers::problem_as(StatusCode::SERVICE_UNAVAILABLE, &error);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    if let Some(response) = following::answer(conversation, head, body).await {
        return response;
    }
    let is_dav = path == dav::PREFIX || path.starts_with(dav::BELOW);
    if is_dav || path.starts_with(rest::PREFIX) {
        let origin = match origins::judge(&conversation.face.origins, head) {
            Ok(origin) => origin,
            Err(error) => return problem(&error, None),
        };
        let mut response = match origins::preflight(origin, head) {
            Some(response) => response,
            None if is_dav => dav::answer(conversation, head, body).await,
            None => rest::answer(conversation, head, body).await,
        };
        origins::permit(origin, &mut response);
        return response;
    }
    if let Some(told) = conversation.face.envelopes.published(path) {
        return match told {
            Ok(told) => answers::answer(StatusCode::OK, answers::JSON, told),
            Err(error) => problem(&error, None),
        };
    }
    if let Some(response) = influx::answer(conversation, head, body).await {
        return response;
    }
    if let Some(response) = pages::answer(conversation, head, body).await {
        return response;
    }
    problem(
        &Error::not_found("no such path: pages start at /, the REST API is below /api/v1, WebDAV below /dav"),
        Some(path.to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rest_of_a_body_is_read_up_to_its_limit() {
        for (sent, left) in [(10, 0), (LINGER_BYTES_MAX as u64, 0), (LINGER_BYTES_MAX as u64 + 1, 1)] {
            let mut body = tokio::io::repeat(0).take(sent);
            read_rest(&mut body).await.unwrap();
            assert_eq!(body.limit(), left);
        }
    }
}
