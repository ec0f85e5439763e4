//! XRootD's protocol: the server answers requests about names, and redirects a client that opens a
//! file to its storage element. `docs/compat/xrootd.md` describes the supported part, and the
//! configuration of clients.
//!
//! [`connection`] serves one client, [`client`] authenticates it, [`dispatch`] runs
//! requests: those about names in [`names`], about files in [`files`], about the server in
//! [`about`]. [`uploads`]
//! tracks files that are being written.

mod about;
mod client;
mod connection;
mod dispatch;
mod files;
mod keys;
mod names;
mod opening;
mod request;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::admission::Entrance;
use crate::envelopes::Envelopes;
use crate::instruments::count;
use crate::places::Places;
use crate::service::Service;
use crate::settings::XrootdSettings;
use crate::uploads::Uploads;
use connection::Connection;
use stream::Stream;

/// First byte of a client that starts with TLS: an HTTPS client, because XRootD clients send a
/// greeting first.
const TLS_FIRST: u8 = 0x16;

/// The common state of all connections.
pub(crate) struct Face {
    service: Arc<Service>,
    settings: XrootdSettings,
    envelopes: Arc<Envelopes>,
    places: Arc<Places>,
    acceptor: TlsAcceptor,
    /// None for a read-only catalogue.
    uploads: Option<Arc<Uploads>>,
}

impl Face {
    /// Makes the face.
    pub(crate) fn new(
        service: Arc<Service>,
        settings: XrootdSettings,
        envelopes: Arc<Envelopes>,
        places: Arc<Places>,
        acceptor: TlsAcceptor,
        uploads: Option<Arc<Uploads>>,
    ) -> Arc<Self> {
        Arc::new(Face { service, settings, envelopes, places, acceptor, uploads })
    }
}

/// Serves connections until the server stops; returns when the last of them has ended.
pub(crate) async fn serve(face: Arc<Face>, listener: TcpListener, alive: mpsc::Sender<()>) {
    let service = Arc::clone(&face.service);
    let begin = move |(stream, address)| {
        let entrance = super::entered(&face.service, face.service.admission.connections.enter(address))?;
        let (face, alive) = (Arc::clone(&face), alive.clone());
        Some(async move {
            converse(face, stream, address, entrance).await;
            drop(alive);
        })
    };
    super::serve(&service, "xrootd", move |context| listener.poll_accept(context), begin).await;
}

/// Distinguishes a client of XRootD from an HTTPS client that wants the keys of envelopes.
async fn converse(face: Arc<Face>, stream: TcpStream, peer: SocketAddr, entrance: Entrance) {
    let opened = Instant::now();
    super::without_delay(&stream, &peer);
    let mut first = [0];
    let looked = tokio::time::timeout(face.service.limits.handshake_time, stream.peek(&mut first)).await;
    match (looked, first) {
        (Ok(Ok(1..)), [TLS_FIRST]) if matches!(entrance, Entrance::Refused(_)) => {
            tracing::debug!(%peer, "no slot for a client that wants the keys");
        }
        (Ok(Ok(1..)), [TLS_FIRST]) => keys::serve(face, stream, peer).await,
        (Ok(Ok(1..)), _) => match stream.local_addr() {
            Ok(local) => {
                let stream = Stream::Plain(stream);
                Connection::new(face, stream, peer, local, opened, entrance).run().await;
            }
            Err(error) => tracing::debug!(%peer, %error, "the connection is gone"),
        },
        (Ok(_), _) => tracing::debug!(%peer, "closed before the first byte"),
        (Err(_), _) => count(&face.service.instruments.counts.handshakes_failed),
    }
}
