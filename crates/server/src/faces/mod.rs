//! Faces: each translates one protocol into operations of the catalogue and back.

pub mod errors;
pub(crate) mod http;
pub(crate) mod jalien;
pub(crate) mod native;
pub(crate) mod xrootd;

use std::fmt::Display;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::admission::Entrance;
use crate::instruments::count;
use crate::service::{Phase, Service};

/// Pause after a failed accept, such as with too many open files, so that the cause can pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

async fn pause_after_accept_error(face: &str, error: &std::io::Error) {
    tracing::warn!(face, %error, "cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Accepts connections until the server stops, and runs the future that `begin` makes of each.
/// Returns when the last connection has ended. Drops `accept` and `begin` before it waits for the
/// last ones.
async fn serve<S, C: Future<Output = ()> + Send + 'static>(
    service: &Service,
    face: &str,
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<std::io::Result<S>>,
    mut begin: impl FnMut(S) -> Option<C>,
) {
    let stopping = service.reached(Phase::Stopping);
    tokio::pin!(stopping);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = poll_fn(&mut accept) => match accepted {
                Ok(accepted) => {
                    if let Some(connection) = begin(accepted) {
                        connections.spawn(connection);
                    }
                }
                Err(error) => pause_after_accept_error(face, &error).await,
            },
            Some(_) = connections.join_next() => {}
            () = &mut stopping => break,
        }
    }
    drop((accept, begin));
    while connections.join_next().await.is_some() {}
}

/// Counts a connection, and passes it on with its slot, or with the slot of its refusal. Returns
/// none if too many are being refused already; the server closes the connection at once.
fn entered(service: &Service, entrance: Option<Entrance>) -> Option<Entrance> {
    let counts = &service.instruments.counts;
    let taken = matches!(entrance, Some(Entrance::Taken(_)));
    count(if taken { &counts.connections_accepted } else { &counts.connections_refused });
    entrance
}

/// Time for a refused client to read the reason.
const REFUSAL_TIME: Duration = Duration::from_secs(2);

/// Disables Nagle's algorithm: answers are written whole, and waiting to fill a packet only delays
/// them.
fn without_delay(stream: &TcpStream, peer: &impl Display) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "no TCP_NODELAY");
    }
}

/// Does the TLS handshake of a connection, within a time; logs a failure.
async fn handshake(
    limit: Duration,
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    peer: &impl Display,
) -> Option<TlsStream<TcpStream>> {
    match tokio::time::timeout(limit, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::info!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::info!(%peer, "TLS handshake took too long"),
    }
    None
}

/// Does the TLS handshake of a connection that starts with it; counts and logs a failure.
async fn secured(
    service: &Service,
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    peer: &impl Display,
) -> Option<TlsStream<TcpStream>> {
    without_delay(&stream, peer);
    let secured = handshake(service.limits.handshake_time, acceptor, stream, peer).await;
    if secured.is_none() {
        count(&service.instruments.counts.handshakes_failed);
    }
    secured
}
