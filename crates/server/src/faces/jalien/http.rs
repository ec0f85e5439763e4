//! HTTP before the websocket: a request, admitted by the client's certificate. Also the public keys
//! of envelopes, which anybody may read.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exacat_model::{Error, ErrorKind, Result};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE, USER_AGENT,
};
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::certificates::Shown;
use super::commands;
use super::connection::Connection;
use super::repeats::Client;
use super::shell::Shell;
use super::{Face, connection};
use crate::admission::{ConnectionSlot, busy};
use crate::envelopes::{CONFIGURATION, KEYS};
use crate::faces::REFUSAL_TIME;
use crate::faces::errors::http_status;
use crate::instruments::count;

/// Path of the websocket.
const WEBSOCKET: &str = "/websocket/json";
/// Longest time from one request to the next, headers included.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Longest time for all requests of a connection until it becomes a websocket.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// Most bytes of the headers of a request.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Most bytes kept of a client's user agent.
const AGENT_BYTES_MAX: usize = 256;
/// The only version of websockets.
const VERSION: &str = "13";

/// An admitted websocket.
struct Admitted {
    upgrade: OnUpgrade,
    shell: Shell,
    client: Client,
}

type ClientSlot = Arc<Mutex<Option<Admitted>>>;

/// Answers requests, and serves the websocket if there is one.
pub(super) async fn converse(
    face: Arc<Face>,
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
    mut slot_of_connection: ConnectionSlot,
) {
    let opened = Instant::now();
    face.certificates.refresh().await;
    let chain: Vec<CertificateDer<'static>> = stream
        .get_ref()
        .1
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|certificate| certificate.clone().into_owned())
        .collect();
    let chain: Arc<[CertificateDer<'static>]> = chain.into();
    let slot: ClientSlot = Arc::default();
    let answer = service_fn({
        let (face, slot) = (Arc::clone(&face), Arc::clone(&slot));
        move |request: Request<Incoming>| {
            let (face, chain, slot) = (Arc::clone(&face), Arc::clone(&chain), Arc::clone(&slot));
            async move { Ok::<_, Infallible>(answer(&face, &chain, request, peer, &slot).await) }
        }
    });
    let requests = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    match tokio::time::timeout(CONNECTION_TIME, requests).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "connection ended"),
        Err(_) => return tracing::debug!(%peer, "no websocket came of the connection in time"),
    }
    let Some(Admitted { upgrade, shell, client }) = slot.lock().take() else { return };
    slot_of_connection.known();
    match upgrade.await {
        Ok(upgraded) => {
            if let Some(websocket) = websocket(upgraded).await {
                Connection::new(face, websocket, client, peer, opened).run(shell).await;
            }
        }
        Err(error) => tracing::debug!(%peer, %error, "no websocket came of the connection"),
    }
}

/// Answers one request with `busy`: there is no slot for the connection.
pub(super) async fn refuse(stream: TlsStream<TcpStream>, peer: SocketAddr) {
    let answer = service_fn(|_: Request<Incoming>| async {
        let why = format!("{}\n", busy("connections").message);
        let mut response = text(StatusCode::SERVICE_UNAVAILABLE, &why);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        Ok::<_, Infallible>(response)
    });
    let request = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REFUSAL_TIME)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    if tokio::time::timeout(REFUSAL_TIME, request).await.is_err() {
        tracing::debug!(%peer, "did not read that there is no slot for it");
    }
}

/// Returns the bounds of a websocket: the protocol bounds reads, the connection writes.
fn bounds() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(connection::READ_BYTES)
        .write_buffer_size(connection::WRITE_BYTES)
        .max_write_buffer_size(connection::WRITE_BYTES_MAX)
        .max_message_size(Some(exacat_wire::jalien::limits::REQUEST_BYTES_MAX))
        .max_frame_size(Some(exacat_wire::jalien::limits::REQUEST_BYTES_MAX))
}

async fn websocket(upgraded: Upgraded) -> Option<WebSocketStream<TlsStream<TcpStream>>> {
    let parts = upgraded.downcast::<TokioIo<TlsStream<TcpStream>>>().ok()?;
    let read = parts.read_buf.to_vec();
    Some(
        WebSocketStream::from_partially_read(parts.io.into_inner(), read, Role::Server, Some(bounds())).await,
    )
}

async fn answer(
    face: &Arc<Face>,
    chain: &[CertificateDer<'static>],
    request: Request<Incoming>,
    peer: SocketAddr,
    slot: &ClientSlot,
) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    match request.uri().path() {
        WEBSOCKET => match open(face, chain, request, peer, slot).await {
            Ok(response) => response,
            Err(error) => {
                let status = http_status(error.kind);
                if error.kind == ErrorKind::Unauthenticated {
                    count(&face.service.instruments.counts.authentications_refused);
                }
                tracing::info!(%peer, %error, status, "not let in");
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                text(status, &format!("{error}\n"))
            }
        },
        path => match face.envelopes.published(path) {
            Some(Ok(document)) => json(document),
            Some(Err(error)) => {
                tracing::error!(%error, "the keys of envelopes cannot be told");
                text(StatusCode::SERVICE_UNAVAILABLE, "the keys cannot be told now\n")
            }
            None => text(StatusCode::NOT_FOUND, &format!("not here: {WEBSOCKET} {CONFIGURATION} {KEYS}\n")),
        },
    }
}

/// Admits a client, or refuses it with a reason.
async fn open(
    face: &Arc<Face>,
    chain: &[CertificateDer<'static>],
    mut request: Request<Incoming>,
    peer: SocketAddr,
    slot: &ClientSlot,
) -> Result<Response<Full<Bytes>>> {
    let header = |name: HeaderName| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let (key, agent) = (header(SEC_WEBSOCKET_KEY), header(USER_AGENT));
    if !header(UPGRADE).eq_ignore_ascii_case("websocket")
        || header(SEC_WEBSOCKET_VERSION) != VERSION
        || key.is_empty()
    {
        return Err(Error::invalid("a websocket is expected here"));
    }
    if let Some(error) = face.service.closed_to_network() {
        return Err(error);
    }
    let shown: Shown = face.certificates.judge(chain, face.clock.now())?;
    let agent: String = agent.chars().filter(|one| !one.is_control()).take(AGENT_BYTES_MAX).collect();
    let client = Client { certificate: shown.digest, agent: agent.into() };
    let shell = Shell::open(Arc::clone(face), shown, peer, commands::named).await?;
    tracing::info!(%peer, user = shell.user(), subject = shell.subject(), agent = &*client.agent, "let in");
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let accept = derive_accept_key(key.as_bytes());
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    let upgrade = hyper::upgrade::on(&mut request);
    *slot.lock() = Some(Admitted { upgrade, shell, client });
    Ok(response)
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_owned())));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

fn json(body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
