//! One connection: requests come in and answers go out at the same time, each answer when its delay is over
//! and its bytes fit into the bandwidth.

use std::cmp::{Ordering as Order, Reverse};
use std::collections::BinaryHeap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use exacat_wire::xrootd::numbers::error;
use exacat_wire::xrootd::{Decoder, Frame, StreamId, file_response, response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until, timeout};

use super::answer::Answer;
use super::batch::Batch;
use super::client::{Client, Reply};
use super::counts::{Gauge, count};
use super::limits::{
    BATCH_BYTES, LAST_ANSWER_TIME, PIECES_MAX, READ_BYTES, STALL_BYTES, WAITING_BYTES_MAX, WAITING_MAX,
};
use super::pace::{Pace, grant_of};
use super::shared::Shared;

/// Writes to the network before the connection looks for requests again.
const WRITES_PER_TURN: usize = 16;

/// Answer that waits for its time.
struct WaitingAnswer {
    at: Instant,
    /// Number of the request: answers of one time leave in the order of requests.
    number: u64,
    answer: Answer,
}

impl PartialEq for WaitingAnswer {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for WaitingAnswer {}

impl PartialOrd for WaitingAnswer {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for WaitingAnswer {
    fn cmp(&self, other: &Self) -> Order {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Answers that wait for their time.
#[derive(Default)]
struct Waiting {
    answers: BinaryHeap<Reverse<WaitingAnswer>>,
    bytes: usize,
    number: u64,
}

impl Waiting {
    fn has_room(&self) -> bool {
        self.answers.len() < WAITING_MAX && self.bytes < WAITING_BYTES_MAX
    }

    fn push(&mut self, at: Instant, answer: Answer) {
        self.bytes += answer.memory();
        self.number += 1;
        self.answers.push(Reverse(WaitingAnswer { at, number: self.number, answer }));
    }

    /// Returns the time of the next answer.
    fn next(&self) -> Option<Instant> {
        self.answers.peek().map(|Reverse(next)| next.at)
    }

    /// Takes the next answer whose time has come.
    fn pop(&mut self, now: Instant) -> Option<Answer> {
        if self.next()? > now {
            return None;
        }
        let Reverse(next) = self.answers.pop()?;
        self.bytes = self.bytes.saturating_sub(next.answer.memory());
        Some(next.answer)
    }
}

/// State of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// Nothing is to be written now.
    Nothing,
    /// More can be written at once.
    Ready,
    /// The client has to read first.
    Blocked,
    /// The bandwidth is used up until then.
    Paced(Instant),
}

/// The way a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    /// The client closed it, or is gone.
    Closed,
    /// The client does not read.
    Stalled,
    /// Its bytes are not of the protocol, or it did not log in in time.
    Bad(&'static str),
    /// It was silent for long.
    Idle,
}

/// One connection, apart from its socket.
struct Connection {
    shared: Arc<Shared>,
    decoder: Decoder,
    client: Client,
    waiting: Waiting,
    /// Answer that is being sent.
    current: Option<Answer>,
    batch: Batch,
    pace: Option<Pace>,
    /// Bytes that the bandwidth permits from a time on.
    granted: usize,
    granted_at: Instant,
    opened: Instant,
    last_request: Instant,
    /// Bytes taken since, and the time until which more have to be.
    progress: u64,
    stalls_at: Instant,
    /// Reason to end once everything is sent.
    ends: Option<&'static str>,
}

/// Serves a connection to its end.
pub(super) async fn serve(shared: Arc<Shared>, mut stream: TcpStream, peer: SocketAddr) {
    let counts = &shared.counts;
    let _open = Gauge::new(&counts.connections_open);
    let _ = stream.set_nodelay(true);
    let Ok(local) = stream.local_addr() else { return };
    let mut connection = Connection::new(Arc::clone(&shared), local);
    let (mut reader, mut writer) = stream.split();
    let end = connection.run(&mut reader, &mut writer).await;
    drop(connection);
    match end {
        ConnectionEnd::Stalled => count(&counts.connections_stalled),
        ConnectionEnd::Bad(_) => count(&counts.connections_bad),
        ConnectionEnd::Closed | ConnectionEnd::Idle => {}
    }
    tracing::debug!(%peer, ?end, "connection ended");
    if matches!(end, ConnectionEnd::Bad(_)) {
        // Closing with unread bytes would take the last answer from the client.
        let _ = timeout(LAST_ANSWER_TIME, read_out(&mut reader, &mut writer)).await;
    }
}

async fn read_out(reader: &mut ReadHalf<'_>, writer: &mut WriteHalf<'_>) {
    let mut rest = [0; READ_BYTES];
    if writer.shutdown().await.is_ok() {
        while matches!(reader.read(&mut rest).await, Ok(read) if read > 0) {}
    }
}

impl Connection {
    fn new(shared: Arc<Shared>, local: SocketAddr) -> Self {
        let now = Instant::now();
        Connection {
            decoder: Decoder::new(),
            client: Client::new(Arc::clone(&shared), local),
            waiting: Waiting::default(),
            current: None,
            batch: Batch::default(),
            pace: shared.bandwidth_of_connection.map(|rate| Pace::new(rate, now)),
            granted: 0,
            granted_at: now,
            opened: now,
            last_request: now,
            progress: 0,
            stalls_at: now + shared.times.stall,
            ends: None,
            shared,
        }
    }

    async fn run(&mut self, reader: &mut ReadHalf<'_>, writer: &mut WriteHalf<'_>) -> ConnectionEnd {
        loop {
            self.take_requests();
            let writing = match self.write(writer) {
                Ok(writing) => writing,
                Err(error) => {
                    tracing::debug!(%error, "the client is gone");
                    return ConnectionEnd::Closed;
                }
            };
            let now = Instant::now();
            let is_quiet = writing == Writing::Nothing && self.waiting.next().is_none();
            if let Some(why) = self.ends
                && is_quiet
            {
                return ConnectionEnd::Bad(why);
            }
            if let Some(end) = self.overdue(writing, is_quiet, now) {
                return end;
            }
            let wakes_at = self.wakes_at(writing, is_quiet, now);
            let has_room = self.ends.is_none() && self.waiting.has_room();
            let buffer = self.decoder.buffer();
            if has_room && buffer.capacity() - buffer.len() < READ_BYTES {
                buffer.reserve(READ_BYTES);
            }
            tokio::select! {
                read = reader.read_buf(self.decoder.buffer()), if has_room => match read {
                    Ok(read) if read > 0 => {}
                    _ => return ConnectionEnd::Closed,
                },
                ready = writer.writable(), if matches!(writing, Writing::Blocked | Writing::Ready) => {
                    if ready.is_err() {
                        return ConnectionEnd::Closed;
                    }
                }
                () = sleep_until(wakes_at) => {}
            }
        }
    }

    /// Takes requests out of the received bytes.
    fn take_requests(&mut self) {
        while self.ends.is_none() && self.waiting.has_room() {
            match self.decoder.frame() {
                Ok(None) => return,
                Ok(Some(Frame::Handshake)) => {
                    let mut out = Vec::new();
                    file_response::write_handshake(&mut out);
                    self.waiting.push(Instant::now(), Answer::Bytes(out));
                }
                Ok(Some(Frame::Request(header, carried))) => {
                    self.last_request = Instant::now();
                    let Reply { answer, delay } = self.client.take(&header, &carried);
                    self.waiting.push(self.last_request + delay, answer);
                    if self.client.is_logged_in() {
                        self.decoder.known();
                    }
                }
                Err(why) => {
                    if let Some(header) = self.decoder.broken_at() {
                        self.last_answer(header.stream, &why.to_string());
                    }
                    self.ends = Some("its bytes are not of the protocol");
                }
            }
        }
    }

    fn last_answer(&mut self, stream: StreamId, sentence: &str) {
        count(&self.shared.counts.bad_requests);
        let mut out = Vec::new();
        response::write_error(&mut out, stream, error::ARG_TOO_LONG, sentence);
        self.waiting.push(Instant::now(), Answer::Bytes(out));
    }

    /// Puts answers together whose time has come.
    fn prepare(&mut self, now: Instant) {
        while self.batch.left() < BATCH_BYTES && !self.batch.is_full() {
            let Some(mut answer) = self.current.take().or_else(|| self.waiting.pop(now)) else { return };
            if !answer.fill(&self.shared.templates, &mut self.batch) {
                self.current = Some(answer);
                return;
            }
        }
    }

    /// Returns the number of bytes that the bandwidth permits now, or the time of the next ones.
    fn permitted(&mut self, now: Instant) -> Result<usize, Instant> {
        if self.pace.is_none() && self.shared.pace.is_none() {
            return Ok(usize::MAX);
        }
        if self.granted == 0 {
            let mut all = self.shared.pace.as_ref().map(|pace| pace.lock());
            let rates = [self.pace.as_ref().map(Pace::rate), all.as_ref().map(|pace| pace.rate())];
            let rate = rates.into_iter().flatten().min().unwrap_or(u64::MAX);
            let bytes = grant_of(rate).min(self.batch.left() as u64);
            let own = self.pace.as_mut().map(|pace| pace.reserve(bytes, now));
            let shared = all.as_mut().map(|pace| pace.reserve(bytes, now));
            self.granted = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.granted_at = own.max(shared).unwrap_or(now);
        }
        if self.granted_at > now { Err(self.granted_at) } else { Ok(self.granted) }
    }

    /// Writes as much as the client and the bandwidth take.
    fn write(&mut self, writer: &WriteHalf<'_>) -> io::Result<Writing> {
        for _ in 0..WRITES_PER_TURN {
            let now = Instant::now();
            if self.batch.is_empty() {
                self.prepare(now);
                // The time of a client to read begins with its answer.
                (self.progress, self.stalls_at) = (0, now + self.shared.times.stall);
            }
            if self.batch.is_empty() {
                return Ok(Writing::Nothing);
            }
            let permitted = match self.permitted(now) {
                Ok(permitted) => permitted,
                Err(at) => {
                    (self.progress, self.stalls_at) = (0, now + self.shared.times.stall);
                    return Ok(Writing::Paced(at));
                }
            };
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let count = self.batch.slices(&self.shared.templates, permitted, &mut slices);
            match writer.try_write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written(written, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Writing::Blocked),
                Err(error) => return Err(error),
            }
        }
        Ok(Writing::Ready)
    }

    fn written(&mut self, count: usize, now: Instant) {
        let sent = self.batch.sent(count);
        self.granted = self.granted.saturating_sub(count);
        self.shared.counts.bytes_sent.fetch_add(sent.bytes, Ordering::Relaxed);
        self.shared.counts.bytes_out.fetch_add(sent.content, Ordering::Relaxed);
        self.progress += sent.bytes;
        if self.progress >= STALL_BYTES {
            (self.progress, self.stalls_at) = (0, now + self.shared.times.stall);
        }
    }

    /// Returns the end of a connection that waited for its client for too long.
    fn overdue(&self, writing: Writing, is_quiet: bool, now: Instant) -> Option<ConnectionEnd> {
        if writing == Writing::Blocked && now >= self.stalls_at {
            return Some(ConnectionEnd::Stalled);
        }
        if !self.client.is_logged_in() && now >= self.opened + self.shared.times.login {
            return Some(ConnectionEnd::Bad("no login came in time"));
        }
        (is_quiet && now >= self.last_request + self.shared.times.idle).then_some(ConnectionEnd::Idle)
    }

    /// Returns the time at which something has to be done without the client.
    fn wakes_at(&self, writing: Writing, is_quiet: bool, now: Instant) -> Instant {
        let of_output = match writing {
            Writing::Nothing => self.waiting.next(),
            Writing::Ready => None,
            Writing::Blocked => Some(self.stalls_at),
            Writing::Paced(at) => Some(at),
        };
        let login = (!self.client.is_logged_in()).then_some(self.opened + self.shared.times.login);
        let idle = is_quiet.then_some(self.last_request + self.shared.times.idle);
        [of_output, login, idle].into_iter().flatten().min().unwrap_or(now + self.shared.times.idle)
    }
}
