//! A listener of HTTP/1.1, over TLS or, for some networks, plain. Connections, headers and times are bounded.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::answers::Body;
use crate::limits::{
    ACCEPT_AGAIN, HEADER_BYTES_MAX, HEADER_TIME_MAX, HEADERS_MAX, SEND_TIME_MAX, TLS_TIME_MAX,
};
use crate::stalling::Stalling;
use crate::visitors::{ConnectionLimits, Visitors};

/// First byte of a client that speaks TLS.
const TLS_FIRST: u8 = 0x16;
/// Answer to plain HTTP where only HTTPS is spoken.
const HTTPS_ONLY: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 34\r\n\
    Connection: close\r\n\r\nthis is HTTPS: use an https:// URL";

/// Paths behind a listener.
pub trait Site: Send + Sync + 'static {
    /// Answers a request.
    fn respond(
        &self,
        from: IpAddr,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Says whether a network may speak plain HTTP.
    fn speaks_plain(&self, from: IpAddr) -> bool;

    /// Returns the most connections at once.
    fn connection_limits(&self) -> ConnectionLimits;

    /// Notes what became of a connection.
    fn note(&self, event: ConnectionEvent);
}

/// Event of a connection, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// It was accepted.
    Began,
    /// An accepted one ended.
    Ended,
    /// There are too many.
    Refused,
}

/// Notes the end of a connection.
struct Noted<'a, S: Site>(&'a S);

impl<S: Site> Drop for Noted<'_, S> {
    fn drop(&mut self) {
        self.0.note(ConnectionEvent::Ended);
    }
}

/// Serves until `is_ending` changes.
pub async fn serve<S: Site>(
    site: Arc<S>,
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    mut is_ending: watch::Receiver<bool>,
) {
    let tls = tls.map(|config| {
        let mut config = (*config).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    });
    let visitors = Arc::new(Visitors::new(site.connection_limits()));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = is_ending.changed() => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, from)) => match visitors.enter(from.ip()) {
                Some(visit) => {
                    let (site, tls) = (Arc::clone(&site), tls.clone());
                    connections.spawn(async move {
                        converse(&site, stream, from, tls).await;
                        drop(visit);
                    });
                }
                None => site.note(ConnectionEvent::Refused),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection of HTTP");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    connections.shutdown().await;
}

/// Serves a connection: HTTPS, or plain HTTP if the client's network may.
async fn converse<S: Site>(site: &Arc<S>, mut stream: TcpStream, from: SocketAddr, tls: Option<TlsAcceptor>) {
    site.note(ConnectionEvent::Began);
    let _noted = Noted(&**site);
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    let Ok(Ok(1..)) = tokio::time::timeout(TLS_TIME_MAX, stream.peek(&mut first)).await else { return };
    match tls {
        Some(tls) if first[0] == TLS_FIRST => {
            match tokio::time::timeout(TLS_TIME_MAX, tls.accept(stream)).await {
                Ok(Ok(stream)) => answer(site, stream, from).await,
                _ => tracing::debug!(%from, "a TLS handshake of HTTP failed"),
            }
        }
        _ if first[0] != TLS_FIRST && site.speaks_plain(from.ip()) => answer(site, stream, from).await,
        _ => {
            let refusal = async {
                stream.write_all(HTTPS_ONLY).await?;
                stream.shutdown().await
            };
            let _ = tokio::time::timeout(SEND_TIME_MAX, refusal).await;
        }
    }
}

/// Answers the requests of a connection.
async fn answer<S: Site>(site: &Arc<S>, stream: impl AsyncRead + AsyncWrite + Unpin, from: SocketAddr) {
    let respond = service_fn(move |request| {
        let site = Arc::clone(site);
        async move { Ok::<_, Infallible>(site.respond(from.ip(), request).await) }
    });
    let ended = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // One byte is progress: a body in pieces is written as its client reads.
        .serve_connection(TokioIo::new(Stalling::new(stream, SEND_TIME_MAX, 1)), respond)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%from, %error, "a connection of HTTP ended");
    }
}
