//! HTTP of a service: its state for people and monitoring, commands of operators, and the content of files.
//!
//! One listener speaks HTTP/1.1, over TLS or, with trusted networks, plain. Connections, headers, bodies
//! and times are bounded.

mod access;
mod answers;
mod content;
mod paths;
mod query;
mod stalling;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::limits::{
    HTTP_CONNECTIONS_MAX, HTTP_CONNECTIONS_PER_ADDRESS_MAX, HTTP_HEADER_BYTES_MAX, HTTP_HEADER_TIME,
    HTTP_HEADERS_MAX, SEND_TIME_MAX, TICK, TLS_TIME_MAX,
};
use crate::measures::Counter;
use paths::Paths;
use stalling::Stalling;

pub(crate) use access::Access;
pub(crate) use paths::Paths as HttpPaths;

/// First byte of a client that speaks TLS.
const TLS_FIRST: u8 = 0x16;
/// Answer to plain HTTP where only HTTPS is spoken.
const HTTPS_ONLY: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 34\r\n\
    Connection: close\r\n\r\nthis is HTTPS: use an https:// URL";

/// Connections by the address of their clients.
#[derive(Default)]
struct Visitors(Mutex<HashMap<IpAddr, usize>>);

/// One connection; dropping it ends it.
struct Visit {
    of: Arc<Visitors>,
    from: IpAddr,
}

impl Visitors {
    fn enter(self: &Arc<Self>, from: IpAddr) -> Option<Visit> {
        let mut counts = self.0.lock();
        let is_full = counts.values().sum::<usize>() >= HTTP_CONNECTIONS_MAX;
        let count = counts.get(&from).copied().unwrap_or(0);
        if is_full || count >= HTTP_CONNECTIONS_PER_ADDRESS_MAX {
            return None;
        }
        counts.insert(from, count + 1);
        Some(Visit { of: Arc::clone(self), from })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut counts = self.of.0.lock();
        if let Some(count) = counts.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.from);
            }
        }
    }
}

/// Counts a thing as long as it lasts.
pub(crate) struct Counted<'a>(&'a Counter);

impl<'a> Counted<'a> {
    pub(crate) fn new(counter: &'a Counter) -> Self {
        counter.add(1);
        Counted(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.sub(1);
    }
}

/// Serves until the service ends.
pub(crate) async fn serve(
    paths: Arc<Paths>,
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    mut is_ending: watch::Receiver<bool>,
) {
    let tls = tls.map(|config| {
        let mut config = (*config).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    });
    let visitors: Arc<Visitors> = Arc::default();
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
                    let (paths, tls) = (Arc::clone(&paths), tls.clone());
                    connections.spawn(async move {
                        converse(&paths, stream, from, tls).await;
                        drop(visit);
                    });
                }
                None => paths.measures().http.refused_connections.add(1),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection of HTTP");
                tokio::time::sleep(TICK).await;
            }
        }
    }
    connections.shutdown().await;
}

/// Serves a connection: HTTPS, or plain HTTP if the client's network may.
async fn converse(paths: &Arc<Paths>, mut stream: TcpStream, from: SocketAddr, tls: Option<TlsAcceptor>) {
    let _counted = Counted::new(&paths.measures().http.connections);
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    let Ok(Ok(1..)) = tokio::time::timeout(TLS_TIME_MAX, stream.peek(&mut first)).await else { return };
    match tls {
        Some(tls) if first[0] == TLS_FIRST => {
            match tokio::time::timeout(TLS_TIME_MAX, tls.accept(stream)).await {
                Ok(Ok(stream)) => answer(paths, stream, from).await,
                _ => tracing::debug!(%from, "a TLS handshake of HTTP failed"),
            }
        }
        _ if first[0] != TLS_FIRST && paths.access().is_trusted(from.ip()) => {
            answer(paths, stream, from).await
        }
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
async fn answer(paths: &Arc<Paths>, stream: impl AsyncRead + AsyncWrite + Unpin, from: SocketAddr) {
    let respond = service_fn(move |request| {
        let paths = Arc::clone(paths);
        async move { Ok::<_, Infallible>(paths.respond(from.ip(), request).await) }
    });
    let ended = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HTTP_HEADER_TIME)
        .max_buf_size(HTTP_HEADER_BYTES_MAX)
        .max_headers(HTTP_HEADERS_MAX)
        .serve_connection(TokioIo::new(Stalling::new(stream, SEND_TIME_MAX)), respond)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%from, %error, "a connection of HTTP ended");
    }
}
