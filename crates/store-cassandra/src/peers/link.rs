//! Protocol between servers: requests one way and answers back, over TLS, many in flight at once.
//!
//! ```text
//!   asks                                   takes
//!   "exacatP1", number of the server u64 ►
//!                                  ◄────── "exacatP1"
//!   length u32, number u64, request ─────►
//!                                  ◄────── length u32, number u64, kind u8, outcomes or a message
//! ```
//! Both sides show certificates that the other one knows: see `identity`. Numbers are
//! little-endian; requests and outcomes have their canonical form. Bytes that do not parse end the
//! connection. The asking server then carries out the unanswered requests itself, under the same
//! operation ids.

use std::collections::HashMap;
use std::sync::Arc;

use exacat_model::codec::{Decode, Encode};
use exacat_model::{Error, ErrorKind, Result};
use exacat_store::{ApplyError, Outcome, Request};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::AbortOnDrop;
use super::identity::{Card, Identity, NAME};
use crate::deciding::Answer;
use crate::intake::Intake;
use crate::limits::{
    ATTEMPT_PAUSE, LINK_ANSWERED_WITHIN, LINK_FRAME_BYTES_MAX, LINK_OPENED_WITHIN, LINK_REQUESTS_MAX,
    LINKS_MAX,
};

/// First bytes of either side: the protocol and its version.
const HELLO: [u8; 8] = *b"exacatP1";

fn broken(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("another server: {what}"))
}

async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> Result<(u64, Vec<u8>)> {
    let bytes = from.read_u32_le().await.map_err(broken)? as usize;
    if bytes > LINK_FRAME_BYTES_MAX {
        return Err(broken(format!("{bytes} bytes at once, the limit is {LINK_FRAME_BYTES_MAX}")));
    }
    let number = from.read_u64_le().await.map_err(broken)?;
    // Grows as bytes arrive, whatever length was announced.
    let mut frame = Vec::new();
    let read = from.take(bytes as u64).read_to_end(&mut frame).await.map_err(broken)?;
    if read < bytes { Err(broken("it was cut off")) } else { Ok((number, frame)) }
}

async fn write_frame(to: &mut (impl AsyncWrite + Unpin), number: u64, frame: &[u8]) -> Result<()> {
    let bytes = u32::try_from(frame.len()).map_err(broken)?;
    to.write_u32_le(bytes).await.map_err(broken)?;
    to.write_u64_le(number).await.map_err(broken)?;
    to.write_all(frame).await.map_err(broken)
}

fn answer_frame(answer: &Answer) -> Vec<u8> {
    let (kind, rest) = match answer {
        Ok(outcomes) => (0, outcomes.to_bytes()),
        Err(ApplyError::TooLarge(why)) => (1, why.clone().into_bytes()),
        Err(ApplyError::Unavailable(why)) => (2, why.clone().into_bytes()),
        Err(ApplyError::Unknown(why)) => (3, why.clone().into_bytes()),
        Err(ApplyError::Conflict(why)) => (4, why.clone().into_bytes()),
    };
    [&[kind][..], &rest].concat()
}

fn answer_of(frame: &[u8]) -> Result<Answer> {
    let (kind, rest) = frame.split_first().ok_or_else(|| broken("an empty answer"))?;
    let why = || String::from_utf8_lossy(rest).into_owned();
    Ok(match kind {
        0 => Ok(Vec::<Outcome>::from_bytes(rest).map_err(broken)?),
        1 => Err(ApplyError::TooLarge(why())),
        2 => Err(ApplyError::Unavailable(why())),
        3 => Err(ApplyError::Unknown(why())),
        4 => Err(ApplyError::Conflict(why())),
        other => return Err(broken(format!("an answer of kind {other}"))),
    })
}

// ---- asking side ----

/// A request on its way.
struct Ask {
    request: Vec<u8>,
    answer: oneshot::Sender<Answer>,
}

/// Connection to a server that carries out requests for this one.
pub(crate) struct Link {
    pub id: u64,
    asks: mpsc::Sender<Ask>,
    /// Ends with the last owner of the link.
    _task: AbortOnDrop,
}

type Pending = Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>;

impl Link {
    /// Connects to a server that accepts this one.
    pub(super) async fn open(own: &Identity, card: &Card) -> Result<Link> {
        let opened = tokio::time::timeout(LINK_OPENED_WITHIN, hello(own, card)).await;
        let stream = opened.map_err(|_| broken("it does not let this one in in time"))??;
        let (asks, questions) = mpsc::channel(LINK_REQUESTS_MAX);
        let (read, write) = tokio::io::split(stream);
        let id = card.id;
        let task = tokio::spawn(async move {
            let pending = Pending::default();
            let ended = tokio::select! {
                ended = send(questions, write, pending.clone()) => ended,
                ended = receive(read, pending) => ended,
            };
            // Waiting requests end too, because their channels are dropped.
            if let Err(error) = ended {
                tracing::debug!(id, %error, "a connection to another server ended");
            }
        });
        Ok(Link { id, asks, _task: AbortOnDrop(task.abort_handle()) })
    }

    /// Sends a request and returns its answer; none if its outcome is unknown.
    pub async fn ask(&self, request: &Request) -> Option<Answer> {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.asks.send(Ask { request: request.to_bytes(), answer }).await.ok()?;
            answered.await.ok()
        };
        tokio::time::timeout(LINK_ANSWERED_WITHIN, asked).await.ok().flatten()
    }
}

async fn hello(own: &Identity, card: &Card) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(card.address).await.map_err(broken)?;
    stream.set_nodelay(true).map_err(broken)?;
    let name = ServerName::try_from(NAME).map_err(broken)?;
    let mut stream = TlsConnector::from(own.asking(card)?).connect(name, stream).await.map_err(broken)?;
    if !card.is_shown(stream.get_ref().1) {
        return Err(broken("somebody else is there"));
    }
    stream.write_all(&[HELLO, own.id.to_le_bytes()].concat()).await.map_err(broken)?;
    let mut answer = [0; HELLO.len()];
    stream.read_exact(&mut answer).await.map_err(broken)?;
    if answer == HELLO { Ok(stream) } else { Err(broken("it speaks another protocol")) }
}

async fn send(
    mut questions: mpsc::Receiver<Ask>,
    to: impl AsyncWrite + Unpin,
    pending: Pending,
) -> Result<()> {
    let mut to = BufWriter::new(to);
    let mut number = 0;
    while let Some(ask) = questions.recv().await {
        number += 1;
        pending.lock().insert(number, ask.answer);
        write_frame(&mut to, number, &ask.request).await?;
        if questions.is_empty() {
            to.flush().await.map_err(broken)?;
        }
    }
    Ok(())
}

async fn receive(from: impl AsyncRead + Unpin, pending: Pending) -> Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let (number, frame) = read_frame(&mut from).await?;
        let waits = pending.lock().remove(&number);
        let waits = waits.ok_or_else(|| broken("an answer to nothing"))?;
        let _ = waits.send(answer_of(&frame)?);
    }
}

// ---- taking side ----

/// Accepts other servers until it is dropped.
pub(super) async fn take_in(listener: TcpListener, tls: Arc<ServerConfig>, intake: Intake) {
    let room = Arc::new(Semaphore::new(LINKS_MAX));
    // Dropped, and so ended, with this future.
    let mut links = tokio::task::JoinSet::new();
    loop {
        while links.try_join_next().is_some() {}
        let accepted = listener.accept().await;
        let (Ok((stream, from)), Ok(place)) = (accepted, room.clone().try_acquire_owned()) else {
            // No file descriptor or no place left. The other server appends itself, and tries
            // again.
            tokio::time::sleep(ATTEMPT_PAUSE).await;
            continue;
        };
        let (tls, intake) = (TlsAcceptor::from(tls.clone()), intake.clone());
        links.spawn(async move {
            let _place = place;
            let ended = take(stream, tls, intake).await;
            if let Err(error) = ended {
                tracing::debug!(%from, %error, "a connection of another server ended");
            }
        });
    }
}

/// Accepts the server that has the key of the certificate listed under its number.
async fn let_in(
    stream: TcpStream,
    tls: TlsAcceptor,
    known: impl AsyncFnOnce(u64) -> Result<Option<Card>>,
) -> Result<TlsStream<TcpStream>> {
    let spoken = async {
        stream.set_nodelay(true).map_err(broken)?;
        let mut stream = tls.accept(stream).await.map_err(broken)?;
        let mut hello = [0; HELLO.len()];
        stream.read_exact(&mut hello).await.map_err(broken)?;
        if hello != HELLO {
            return Err(broken("it speaks another protocol"));
        }
        let id = stream.read_u64_le().await.map_err(broken)?;
        if !known(id).await?.is_some_and(|card| card.is_shown(stream.get_ref().1)) {
            return Err(broken(format!("it is not server {id} of this catalogue")));
        }
        stream.write_all(&HELLO).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        Ok(stream)
    };
    let spoken = tokio::time::timeout(LINK_OPENED_WITHIN, spoken).await;
    spoken.map_err(|_| broken("it does not say who it is"))?
}

async fn take(stream: TcpStream, tls: TlsAcceptor, intake: Intake) -> Result<()> {
    let known = async |id| Card::find(intake.cluster(), id).await;
    let (read, write) = tokio::io::split(let_in(stream, tls, known).await?);
    let (taken, waiting) = mpsc::channel(LINK_REQUESTS_MAX);
    tokio::select! {
        ended = take_requests(read, &intake, taken) => ended,
        ended = give_answers(write, waiting) => ended,
    }
}

type Taken = (u64, std::result::Result<oneshot::Receiver<Answer>, ApplyError>);

async fn take_requests(
    from: impl AsyncRead + Unpin,
    intake: &Intake,
    taken: mpsc::Sender<Taken>,
) -> Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let (number, frame) = read_frame(&mut from).await?;
        let request = Request::from_bytes(&frame).map_err(broken)?;
        // Waits while the queue is full: then nothing more is read from the connection.
        let answer = intake.take(request).await;
        taken.send((number, answer)).await.map_err(broken)?;
    }
}

/// Sends answers in the order of the requests, which is nearly the order of their completion.
async fn give_answers(to: impl AsyncWrite + Unpin, mut waiting: mpsc::Receiver<Taken>) -> Result<()> {
    let mut to = BufWriter::new(to);
    while let Some((number, answer)) = waiting.recv().await {
        let answer = match answer {
            Err(error) => Err(error),
            Ok(mut answered) => match answered.try_recv() {
                Ok(answer) => answer,
                Err(oneshot::error::TryRecvError::Closed) => return Err(broken("an answer is lost")),
                Err(oneshot::error::TryRecvError::Empty) => {
                    to.flush().await.map_err(broken)?;
                    answered.await.map_err(broken)?
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
    use exacat_model::{OperationId, Revision, UserId};
    use exacat_store::Refusal;

    use super::*;

    /// Connects `asks` to `taker`, which knows it as `known`. `asks` expects `believed` there.
    /// Returns the results of both sides.
    async fn attempt(
        asks: &Identity,
        known: Option<&Identity>,
        taker: &Identity,
        believed: &Identity,
    ) -> (Result<()>, Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = TlsAcceptor::from(taker.accepting().unwrap());
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let find = async |id| Ok(known.map(|known| known.card(address)).filter(|card| card.id == id));
            let_in(stream, tls, find).await.map(drop)
        };
        let card = believed.card(address);
        let (asked, taken) = tokio::join!(Link::open(asks, &card), server);
        (asked.map(drop), taken)
    }

    /// Goal: a server connects only to the intended server, and only if that one knows it.
    #[tokio::test]
    async fn servers_know_each_other() {
        let new = |id| Identity::new(id).unwrap();
        let (one, other, third) = (new(1), new(2), new(3));
        assert!(matches!(attempt(&one, Some(&one), &other, &other).await, (Ok(()), Ok(()))));
        // Not listed; another server is listed; the number is right and the key is not.
        for known in [None, Some(&third), Some(&new(1))] {
            let (asked, taken) = attempt(&one, known, &other, &other).await;
            assert!(asked.is_err() && taken.unwrap_err().message.contains("it is not server 1"));
        }
        // Another server is at the address.
        let (asked, taken) = attempt(&one, Some(&one), &third, &other).await;
        assert!(asked.is_err() && taken.is_err());
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
            assert!(let_in(stream, tls, async |_| Ok(None)).await.is_err(), "{words:?}");
        }
    }

    #[tokio::test]
    async fn frames_have_a_limit_and_an_end() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, 7, b"abc").await.unwrap();
        assert_eq!(read_frame(&mut &bytes[..]).await.unwrap(), (7, b"abc".to_vec()));
        for cut in 0..bytes.len() {
            assert!(read_frame(&mut &bytes[..cut]).await.is_err(), "{cut}");
        }
        let most = vec![1; LINK_FRAME_BYTES_MAX];
        bytes.clear();
        write_frame(&mut bytes, 8, &most).await.unwrap();
        assert_eq!(read_frame(&mut &bytes[..]).await.unwrap().1.len(), most.len());
        bytes[..4].copy_from_slice(&(LINK_FRAME_BYTES_MAX as u32 + 1).to_le_bytes());
        bytes.push(1);
        assert!(read_frame(&mut &bytes[..]).await.is_err());
    }

    #[test]
    fn answers_come_back_as_they_were() {
        let outcomes = vec![
            Outcome::Applied { revision: Revision(7), id: None },
            Outcome::Unchanged,
            Outcome::Refused(Refusal::Limit("too long".to_owned())),
        ];
        for answer in [
            Ok(outcomes),
            Err(ApplyError::TooLarge("a".to_owned())),
            Err(ApplyError::Unavailable("b".to_owned())),
            Err(ApplyError::Unknown(String::new())),
            Err(ApplyError::Conflict("c".to_owned())),
        ] {
            let frame = answer_frame(&answer);
            assert_eq!(answer_of(&frame).unwrap(), answer);
        }
        for bad in [&b""[..], b"\x05", b"\x00", b"\x00\xff\xff\xff\xff\xff"] {
            assert!(answer_of(bad).is_err(), "{bad:?}");
        }
        let request = Request::new(OperationId([7; 16]), UserId(3), Vec::new());
        assert_eq!(Request::from_bytes(&request.to_bytes()).unwrap(), request);
    }
}
