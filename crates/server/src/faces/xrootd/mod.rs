//! The protocol of XRootD: names are answered here, and who opens a file is sent to where its bytes are.
//! `docs/compat/xrootd.md` says what of it there is, and how clients are configured.
//!
//! [`connection`] holds the conversation of one client, [`client`] is who it is, [`asked`] carries requests out: those about
//! names in [`names`], those about files in [`files`], those about the server in [`about`].

mod about;
mod asked;
mod client;
mod connection;
mod files;
mod keys;
mod names;
mod stream;
mod targets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::envelopes::Envelopes;
use crate::instruments::count;
use crate::places::Places;
use crate::service::{Phase, Service};
use crate::settings::XrootdSettings;
use connection::Connection;
use stream::Stream;

/// The first byte of a client that begins with TLS: one of HTTPS, for clients of XRootD say something before.
const TLS_FIRST: u8 = 0x16;

/// What all connections share.
pub(crate) struct Face {
    service: Arc<Service>,
    settings: XrootdSettings,
    envelopes: Arc<Envelopes>,
    places: Arc<Places>,
    acceptor: TlsAcceptor,
}

impl Face {
    /// The face, with what it needs.
    pub fn new(
        service: Arc<Service>,
        settings: XrootdSettings,
        envelopes: Arc<Envelopes>,
        places: Arc<Places>,
        acceptor: TlsAcceptor,
    ) -> Arc<Self> {
        Arc::new(Face { service, settings, envelopes, places, acceptor })
    }
}

/// Serves connections until the server stops; returns when the last of them has ended.
pub(crate) async fn serve(face: Arc<Face>, listener: TcpListener, alive: mpsc::Sender<()>) {
    let stopping = face.service.reached(Phase::Stopping);
    tokio::pin!(stopping);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let counts = &face.service.instruments.counts;
                    let Some(held) = face.service.admission.connections.take(1) else {
                        // The client takes it for a server that is down, and comes again.
                        count(&counts.connections_refused);
                        continue;
                    };
                    count(&counts.connections_accepted);
                    let (face, alive) = (Arc::clone(&face), alive.clone());
                    connections.spawn(async move {
                        begin(face, stream, address).await;
                        drop((held, alive));
                    });
                }
                Err(error) => super::pause_after_accept_error("xrootd", &error).await,
            },
            Some(_) = connections.join_next() => {}
            () = &mut stopping => break,
        }
    }
    drop((listener, alive));
    while connections.join_next().await.is_some() {}
}

/// Looks who it is: a client of XRootD, or somebody who wants the keys of envelopes.
async fn begin(face: Arc<Face>, stream: TcpStream, peer: SocketAddr) {
    let opened = Instant::now();
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "no TCP_NODELAY");
    }
    let mut first = [0];
    let looked = tokio::time::timeout(face.service.limits.handshake_time, stream.peek(&mut first)).await;
    match (looked, first) {
        (Ok(Ok(1..)), [TLS_FIRST]) => keys::tell(face, stream, peer).await,
        (Ok(Ok(1..)), _) => match stream.local_addr() {
            Ok(local) => Connection::new(face, Stream::Plain(stream), peer, local, opened).run().await,
            Err(error) => tracing::debug!(%peer, %error, "the connection is gone"),
        },
        (Ok(_), _) => tracing::debug!(%peer, "closed before anything was said"),
        (Err(_), _) => count(&face.service.instruments.counts.handshakes_failed),
    }
}
