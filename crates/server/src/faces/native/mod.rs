//! The native protocol, over TLS and over a Unix socket: what our own clients speak.
//!
//! `docs/internals/native-protocol.md` describes the conversation; [`connection`] holds it.

mod connection;
mod lookups;
mod reply;
mod tasks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_wire::native::encode_error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::access::Peer;
use crate::admission::{Bounded, Held, busy};
use crate::instruments::count;
use crate::service::Service;
use connection::Connection;

/// Connections beyond the bound that are told so at once; further ones are just closed.
const REFUSALS_AT_ONCE: usize = 32;
/// How long telling one may take.
const REFUSAL_TIME: Duration = Duration::from_secs(2);

/// What a listener needs of the server.
#[derive(Clone)]
pub(crate) struct Listening {
    pub service: Arc<Service>,
    /// Held by all that goes on; the server has ended when nobody holds it.
    pub alive: mpsc::Sender<()>,
    refusals: Arc<Bounded>,
}

impl Listening {
    pub fn new(service: Arc<Service>, alive: mpsc::Sender<()>) -> Self {
        Listening { service, alive, refusals: Bounded::new(REFUSALS_AT_ONCE) }
    }
}

/// A connection accepted: within the bound, or to be told that it is not.
enum Accepted {
    Taken(Held),
    Refused(Held),
}

impl Listening {
    fn admit(&self) -> Option<Accepted> {
        if let Some(held) = self.service.admission.connections.take(1) {
            count(&self.service.instruments.counts.connections_accepted);
            return Some(Accepted::Taken(held));
        }
        count(&self.service.instruments.counts.connections_refused);
        self.refusals.take(1).map(Accepted::Refused)
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        accepted: Accepted,
        stream: S,
        peer: Peer,
        opened: Instant,
    ) {
        match accepted {
            Accepted::Taken(held) => {
                Connection::new(self.service, stream, peer, opened, self.alive).run().await;
                drop(held);
            }
            Accepted::Refused(held) => {
                let mut stream = stream;
                let mut bytes = Vec::new();
                encode_error(&mut bytes, 0, &busy("connections"));
                let _ = tokio::time::timeout(REFUSAL_TIME, async {
                    stream.write_all(&bytes).await?;
                    stream.shutdown().await
                })
                .await;
                drop(held);
            }
        }
    }
}

/// Serves TLS connections until the server stops; returns when the last of them has ended.
pub(crate) async fn serve_tls(listening: Listening, listener: TcpListener, acceptor: TlsAcceptor) {
    let service = Arc::clone(&listening.service);
    let begin = move |(stream, address)| {
        let accepted = listening.admit()?;
        Some(secure(listening.clone(), accepted, stream, Peer::Network(address), acceptor.clone()))
    };
    super::serve(&service, "native", move |context| listener.poll_accept(context), begin).await;
}

async fn secure(
    listening: Listening,
    accepted: Accepted,
    stream: TcpStream,
    peer: Peer,
    acceptor: TlsAcceptor,
) {
    let opened = Instant::now();
    if let Some(stream) = super::secured(&listening.service, &acceptor, stream, &peer).await {
        listening.converse(accepted, stream, peer, opened).await;
    }
}

/// Serves local connections until the server stops; returns when the last of them has ended.
pub(crate) async fn serve_local(listening: Listening, listener: UnixListener) {
    let service = Arc::clone(&listening.service);
    let begin = move |(stream, _)| {
        let accepted = listening.admit()?;
        Some(local(listening.clone(), accepted, stream))
    };
    super::serve(&service, "local", move |context| listener.poll_accept(context), begin).await;
}

async fn local(listening: Listening, accepted: Accepted, stream: UnixStream) {
    match stream.peer_cred() {
        Ok(credentials) => {
            let peer = Peer::Local { uid: credentials.uid() };
            listening.converse(accepted, stream, peer, Instant::now()).await;
        }
        Err(error) => {
            count(&listening.service.instruments.counts.handshakes_failed);
            tracing::warn!(%error, "the kernel does not tell who is at the other end of the socket");
        }
    }
}
