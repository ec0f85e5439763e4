//! The native protocol, over TLS and over a Unix socket, which our own clients speak.
//!
//! `docs/internals/native-protocol.md` describes the conversation; [`connection`] implements it.

mod connection;
mod lookups;
mod reply;
mod tasks;

use std::sync::Arc;

use exacat_wire::native::encode_error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::REFUSAL_TIME;
use crate::admission::{Entrance, busy};
use crate::instruments::count;
use crate::peer::Peer;
use crate::service::Service;
use connection::Connection;

/// Parts of the server that a listener needs.
#[derive(Clone)]
pub(crate) struct Listening {
    pub service: Arc<Service>,
    /// Held by all running work; the server has ended when nobody holds it.
    pub alive: mpsc::Sender<()>,
}

impl Listening {
    pub(crate) fn new(service: Arc<Service>, alive: mpsc::Sender<()>) -> Self {
        Listening { service, alive }
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        entrance: Entrance,
        stream: S,
        peer: Peer,
        opened: Instant,
    ) {
        match entrance {
            Entrance::Taken(slot) => {
                Connection::new(self.service, stream, peer, opened, slot, self.alive).run().await;
            }
            Entrance::Refused(slot) => {
                let mut stream = stream;
                let mut bytes = Vec::new();
                encode_error(&mut bytes, 0, &busy("connections"));
                let _ = tokio::time::timeout(REFUSAL_TIME, async {
                    stream.write_all(&bytes).await?;
                    stream.shutdown().await
                })
                .await;
                drop(slot);
            }
        }
    }
}

/// Serves TLS connections until the server stops; returns when the last of them has ended.
pub(crate) async fn serve_tls(listening: Listening, listener: TcpListener, acceptor: TlsAcceptor) {
    let service = Arc::clone(&listening.service);
    let begin = move |(stream, address)| {
        let service = &listening.service;
        let entrance = super::entered(service, service.admission.connections.enter(address))?;
        Some(secure(listening.clone(), entrance, stream, Peer::Network(address), acceptor.clone()))
    };
    super::serve(&service, "native", move |context| listener.poll_accept(context), begin).await;
}

async fn secure(
    listening: Listening,
    entrance: Entrance,
    stream: TcpStream,
    peer: Peer,
    acceptor: TlsAcceptor,
) {
    let opened = Instant::now();
    if let Some(stream) = super::secured(&listening.service, &acceptor, stream, &peer).await {
        listening.converse(entrance, stream, peer, opened).await;
    }
}

/// Serves local connections until the server stops; returns when the last of them has ended.
pub(crate) async fn serve_local(listening: Listening, listener: UnixListener) {
    let service = Arc::clone(&listening.service);
    let begin = move |(stream, _)| {
        let service = &listening.service;
        let entrance = super::entered(service, service.admission.connections.enter_locally())?;
        Some(local(listening.clone(), entrance, stream))
    };
    super::serve(&service, "local", move |context| listener.poll_accept(context), begin).await;
}

async fn local(listening: Listening, entrance: Entrance, stream: UnixStream) {
    match stream.peer_cred() {
        Ok(credentials) => {
            let peer = Peer::Local { uid: credentials.uid() };
            listening.converse(entrance, stream, peer, Instant::now()).await;
        }
        Err(error) => {
            count(&listening.service.instruments.counts.handshakes_failed);
            tracing::warn!(%error, "the kernel does not name the user at the other end of the socket");
        }
    }
}
