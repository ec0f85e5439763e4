//! Connections of other servers, which forward their requests to this one.

use std::sync::Arc;

use exacat_model::Result;
use exacat_model::codec::Decode;
use exacat_store::{ApplyError, Request};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::frames::{HELLO, answer_frame, broken, read_frame, write_frame};
use super::identity::ServerRecord;
use crate::deciding::Answered;
use crate::intake::Intake;
use crate::limits::{LINK_OPENED_WITHIN, LINK_REQUESTS_MAX, LINKS_MAX};
use crate::retry;

/// Accepts other servers until it is dropped.
pub(super) async fn accept(listener: TcpListener, tls: Arc<ServerConfig>, intake: Intake) {
    let room = Arc::new(Semaphore::new(LINKS_MAX));
    // Dropped, and so ended, with this future.
    let mut links = tokio::task::JoinSet::new();
    loop {
        while links.try_join_next().is_some() {}
        let accepted = listener.accept().await;
        let (Ok((stream, from)), Ok(place)) = (accepted, room.clone().try_acquire_owned()) else {
            // No file descriptor or no place left. The other server appends itself, and tries
            // again.
            retry::pause().await;
            continue;
        };
        let (tls, intake) = (TlsAcceptor::from(tls.clone()), intake.clone());
        links.spawn(async move {
            let _place = place;
            let ended = serve(stream, tls, intake).await;
            if let Err(error) = ended {
                tracing::debug!(%from, %error, "a connection of another server ended");
            }
        });
    }
}

/// Accepts the server that has the key of the certificate listed under its number.
async fn authenticate(
    stream: TcpStream,
    tls: TlsAcceptor,
    listed: impl AsyncFnOnce(u64) -> Result<Option<ServerRecord>>,
) -> Result<TlsStream<TcpStream>> {
    let spoken = async {
        stream.set_nodelay(true).map_err(broken)?;
        let mut stream = tls.accept(stream).await.map_err(broken)?;
        let mut hello = [0; HELLO.len()];
        stream.read_exact(&mut hello).await.map_err(broken)?;
        // Before the number is read: a stranger cannot make this server query the cluster.
        if hello != HELLO {
            return Err(broken("it speaks another protocol"));
        }
        let id = stream.read_u64_le().await.map_err(broken)?;
        if !listed(id).await?.is_some_and(|record| record.is_shown(stream.get_ref().1)) {
            return Err(broken(format!("it is not server {id} of this catalogue")));
        }
        // The other side sends requests only now, so a refused server knows that none was taken.
        stream.write_all(&HELLO).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        Ok(stream)
    };
    let spoken = tokio::time::timeout(LINK_OPENED_WITHIN, spoken).await;
    spoken.map_err(|_| broken("it did not authenticate in time"))?
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, intake: Intake) -> Result<()> {
    let listed = async |id| ServerRecord::find(intake.cluster(), id).await;
    let (read, write) = tokio::io::split(authenticate(stream, tls, listed).await?);
    let (accepted, waiting) = mpsc::channel(LINK_REQUESTS_MAX);
    // Either half ends the connection: answers without a reader, or requests without answers, would
    // wait for their time limits.
    tokio::select! {
        ended = accept_requests(read, &intake, accepted) => ended,
        ended = give_answers(write, waiting) => ended,
    }
}

type Accepted = (u64, std::result::Result<oneshot::Receiver<Answered>, ApplyError>);

async fn accept_requests(
    from: impl AsyncRead + Unpin,
    intake: &Intake,
    accepted: mpsc::Sender<Accepted>,
) -> Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let (number, frame) = read_frame(&mut from).await?;
        let request = Request::from_bytes(&frame).map_err(broken)?;
        // Waits while the queue is full: then nothing more is read from the connection.
        let answer = intake.accept(request).await;
        accepted.send((number, answer)).await.map_err(broken)?;
    }
}

/// Sends answers in the order of the requests, which is nearly the order of their completion.
async fn give_answers(to: impl AsyncWrite + Unpin, mut waiting: mpsc::Receiver<Accepted>) -> Result<()> {
    let mut to = BufWriter::new(to);
    while let Some((number, answer)) = waiting.recv().await {
        let answer = match answer {
            Err(error) => Err(error),
            Ok(mut answered) => match answered.try_recv() {
                Ok((answer, _)) => answer,
                Err(oneshot::error::TryRecvError::Closed) => return Err(broken("an answer is lost")),
                // The next answer takes a commit: what is ready must not wait for it in the buffer.
                Err(oneshot::error::TryRecvError::Empty) => {
                    to.flush().await.map_err(broken)?;
                    answered.await.map_err(broken)?.0
                }
            },
        };
        write_frame(&mut to, number, &answer_frame(&answer)).await?;
        if waiting.is_empty() {
            to.flush().await.map_err(broken)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::identity::Identity;
    use super::super::link::Link;
    use super::*;

    /// Connects `client` to `server_identity`, which finds it listed as `listed`. The client expects
    /// `expected` there. Returns the results of both sides.
    async fn attempt(
        client: &Identity,
        listed: Option<&Identity>,
        server_identity: &Identity,
        expected: &Identity,
    ) -> (Result<()>, Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = TlsAcceptor::from(server_identity.accepting().unwrap());
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let find =
                async |id| Ok(listed.map(|listed| listed.record(address)).filter(|record| record.id == id));
            authenticate(stream, tls, find).await.map(drop)
        };
        let record = expected.record(address);
        let (client_result, accepted) = tokio::join!(Link::open(client, &record), server);
        (client_result.map(drop), accepted)
    }

    /// Goal: a server connects only to the intended server, and only if that one knows it.
    #[tokio::test]
    async fn servers_know_each_other() {
        let new = |id| Identity::new(id).unwrap();
        let (one, other, third) = (new(1), new(2), new(3));
        assert!(matches!(attempt(&one, Some(&one), &other, &other).await, (Ok(()), Ok(()))));
        // Not listed; another server is listed; the number is right and the key is not.
        for listed in [None, Some(&third), Some(&new(1))] {
            let (client_result, accepted) = attempt(&one, listed, &other, &other).await;
            assert!(client_result.is_err() && accepted.unwrap_err().message.contains("it is not server 1"));
        }
        // Another server is at the address.
        let (client_result, accepted) = attempt(&one, Some(&one), &third, &other).await;
        assert!(client_result.is_err() && accepted.is_err());
    }

    /// Goal: a client that sends nothing, or nonsense, is refused.
    #[tokio::test]
    async fn strangers_are_sent_away() {
        let identity = Identity::new(1).unwrap();
        for words in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let tls = TlsAcceptor::from(identity.accepting().unwrap());
            let mut stranger = TcpStream::connect(address).await.unwrap();
            stranger.write_all(words).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            assert!(authenticate(stream, tls, async |_| Ok(None)).await.is_err(), "{words:?}");
        }
    }
}
