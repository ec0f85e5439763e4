//! Connection to another server, which carries out requests for this one.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_model::Result;
use exacat_model::codec::Encode;
use exacat_store::Request;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsConnector;

use super::frames::{HELLO, answer_of, broken, read_frame, write_frame};
use super::identity::{Identity, NAME, ServerRecord};
use super::task::AbortOnDrop;
use crate::deciding::Answer;
use crate::limits::{LINK_ANSWERED_WITHIN, LINK_OPENED_WITHIN, LINK_REQUESTS_MAX};

/// A request on its way.
struct ForwardedRequest {
    request: Vec<u8>,
    answer: oneshot::Sender<Answer>,
}

/// Connection to a server that carries out requests for this one.
pub(crate) struct Link {
    pub id: u64,
    requests: mpsc::Sender<ForwardedRequest>,
    /// Ends with the last owner of the link.
    _task: AbortOnDrop,
}

type PendingResponses = Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>;

impl Link {
    /// Connects to a server that accepts this one.
    pub(super) async fn open(own: &Identity, record: &ServerRecord) -> Result<Link> {
        let opened = tokio::time::timeout(LINK_OPENED_WITHIN, hello(own, record)).await;
        let stream = opened.map_err(|_| broken("it did not accept this server in time"))??;
        let (requests, queue) = mpsc::channel(LINK_REQUESTS_MAX);
        let (read, write) = tokio::io::split(stream);
        let id = record.id;
        let task = tokio::spawn(async move {
            let pending = PendingResponses::default();
            let ended = tokio::select! {
                ended = send(queue, write, pending.clone()) => ended,
                ended = receive(read, pending) => ended,
            };
            // Waiting requests end too, because their channels are dropped.
            if let Err(error) = ended {
                tracing::debug!(id, %error, "a connection to another server ended");
            }
        });
        Ok(Link { id, requests, _task: AbortOnDrop(task.abort_handle()) })
    }

    /// Sends a request and returns its answer; none if its outcome is unknown.
    pub(crate) async fn forward(&self, request: &Request) -> Option<Answer> {
        let (answer, answered) = oneshot::channel();
        let response = async {
            self.requests.send(ForwardedRequest { request: request.to_bytes(), answer }).await.ok()?;
            answered.await.ok()
        };
        // The caller carries the request out itself then, under the same operation id. So a leader that
        // did it after all does not do it twice.
        tokio::time::timeout(LINK_ANSWERED_WITHIN, response).await.ok().flatten()
    }
}

async fn hello(own: &Identity, record: &ServerRecord) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(record.address).await.map_err(broken)?;
    stream.set_nodelay(true).map_err(broken)?;
    let name = ServerName::try_from(NAME).map_err(broken)?;
    let mut stream =
        TlsConnector::from(own.connecting(record)?).connect(name, stream).await.map_err(broken)?;
    // Addresses are used again: another server may listen where the intended one was.
    if !record.is_shown(stream.get_ref().1) {
        return Err(broken("another server is at its address"));
    }
    stream.write_all(&[HELLO, own.id.to_le_bytes()].concat()).await.map_err(broken)?;
    let mut answer = [0; HELLO.len()];
    stream.read_exact(&mut answer).await.map_err(broken)?;
    if answer == HELLO { Ok(stream) } else { Err(broken("it speaks another protocol")) }
}

async fn send(
    mut queue: mpsc::Receiver<ForwardedRequest>,
    to: impl AsyncWrite + Unpin,
    pending: PendingResponses,
) -> Result<()> {
    let mut to = BufWriter::new(to);
    let mut number = 0;
    while let Some(one) = queue.recv().await {
        number += 1;
        // Before the write: the answer can arrive before the write returns.
        pending.lock().insert(number, one.answer);
        write_frame(&mut to, number, &one.request).await?;
        if queue.is_empty() {
            to.flush().await.map_err(broken)?;
        }
    }
    Ok(())
}

async fn receive(from: impl AsyncRead + Unpin, pending: PendingResponses) -> Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let (number, frame) = read_frame(&mut from).await?;
        let client = pending.lock().remove(&number);
        let client = client.ok_or_else(|| broken("an answer to nothing"))?;
        let _ = client.send(answer_of(&frame)?);
    }
}
