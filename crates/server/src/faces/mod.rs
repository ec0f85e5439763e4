//! Faces: one protocol each, translating into operations of the catalogue and back.

pub mod errors;
pub(crate) mod http;
pub(crate) mod jalien;
pub(crate) mod native;
pub(crate) mod xrootd;

use std::fmt::Display;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::instruments::count;
use crate::service::Service;

/// After an error of accepting, such as too many open files, a little time for it to pass.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

async fn pause_after_accept_error(face: &str, error: &std::io::Error) {
    tracing::warn!(face, %error, "cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Does the TLS handshake of a connection; one that fails is counted and noted.
async fn secured(
    service: &Service,
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    peer: &impl Display,
) -> Option<TlsStream<TcpStream>> {
    // Answers are written whole; waiting to fill a packet only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "no TCP_NODELAY");
    }
    match tokio::time::timeout(service.limits.handshake_time, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::info!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::info!(%peer, "TLS handshake took too long"),
    }
    count(&service.instruments.counts.handshakes_failed);
    None
}
