//! One connection: bytes in, bytes out, and the rules of the conversation.
//!
//! One task owns the connection. At each wake-up it takes over replies, writes what it can, reads
//! what has come, and handles all complete frames. It answers look-ups at once
//! ([`lookups`](super::lookups)). Every other request becomes a task whose reply returns over a
//! channel; single registrations share one task. The next write sends the output of all of them.
//!
//! The connection's memory is bounded. It neither reads nor makes answers nor takes over replies
//! while the client does not read. Requests in flight are bounded in number and bytes. The rooms of
//! [`tasks`](super::tasks) bound pages and bulk answers on their way from tasks.

mod conversation;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use exacat_model::{Error, ErrorKind};
use exacat_wire::native::{FrameDecoder, encode_behind, encode_error, encode_goodbye, encode_ping, features};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::reply::{Outbox, Reply};
use super::tasks::{self, Job, Rooms};
use crate::access::Session;
use crate::activity::Tracking;
use crate::admission::{Bounded, ConnectionSlot, Held};
use crate::instruments::count;
use crate::peer::Peer;
use crate::service::{Cancel, Phase, Service};

/// Least room for a read, in bytes: the memory of a quiet connection.
const READ_BYTES_MIN: usize = 8 << 10;
/// Most bytes read at once. The room grows towards this while reads fill it, and shrinks otherwise.
const READ_BYTES_MAX: usize = 256 << 10;
/// Longest work before other connections of the thread get their turn.
const TURN: Duration = Duration::from_micros(500);
/// Time for the client to close its end after the last message, so that it receives that.
const LINGER: Duration = Duration::from_secs(1);
/// Interval of the pings that tell a client the server's time, for its operation ids.
const TIME_TOLD_EVERY: Duration = Duration::from_secs(600);
/// Interval in which a follower says with its answers how far it is behind. The distance is that exact.
const BEHIND_TOLD_EVERY: Duration = Duration::from_millis(100);
/// Size above which an empty output buffer is released.
const OUTPUT_KEPT_BYTES: usize = 256 << 10;

/// The way a connection ends.
#[derive(Debug)]
enum ConnectionEnd {
    /// The client closed it, or it broke: nothing more can be sent.
    Gone,
    /// All output was sent.
    Said,
}

/// Stage of the conversation.
enum Stage {
    /// Waits for the client's hello.
    Hello,
    /// Waits for the client's credentials.
    Authenticate,
    /// Accepts requests.
    Open(Box<Session>),
}

/// Progress towards the end of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// Not closing.
    No,
    /// Finishes requests in flight, and refuses new ones. The client may close, or time runs out.
    Goodbye,
    /// Finishes requests in flight, and reads nothing more.
    Finish,
    /// Sends the written output, and nothing else.
    Now,
}

/// The reason for which a request may run long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// It does not.
    None,
    /// The client grants credit as it likes.
    ForClient,
    /// It waits for changes.
    ForChanges,
}

/// A request that tasks work on.
struct InFlight {
    cancel: Arc<Cancel>,
    patience: Patience,
    credit: Option<Arc<Semaphore>>,
    _bytes: (Held, Held),
}

/// One connection of the native protocol.
pub(super) struct Connection<S> {
    service: Arc<Service>,
    stream: S,
    peer: Peer,
    stage: Stage,
    /// Protocol features in force.
    features: u64,
    closing: Closing,
    decoder: FrameDecoder,
    /// True if complete frames may wait in the decoder.
    backlog: bool,
    output: Vec<u8>,
    written: usize,
    unflushed: bool,
    eof: bool,
    read_bytes: usize,
    outbox: Outbox,
    /// Entry of its look-ups among the requests in progress; made for the first of them.
    lookup_entry: Option<Tracking>,
    replies: mpsc::Receiver<Reply>,
    in_flight: HashMap<u64, InFlight>,
    /// Writes that start together once all received frames are handled.
    together: Vec<Job>,
    request_bytes: Arc<Bounded>,
    streams: Arc<Bounded>,
    rooms: Rooms,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    timer: Pin<Box<tokio::time::Sleep>>,
    opened: Instant,
    heard: Instant,
    /// Time of a ping after the idle time without traffic; none if there was traffic since.
    pinged: Option<Instant>,
    /// Time when the client last got the server's time.
    told_time: Instant,
    /// Time when the client of a follower last got its distance to the source.
    told_behind: Option<Instant>,
    /// Bytes of waiting output that the metrics count.
    told_output: u64,
    /// Waiting output beyond the connection's own allowance.
    unread: Held,
    /// Time since which too little of the waiting output was taken, and how much was.
    stalled_since: Option<(Instant, usize)>,
    goodbye_since: Option<Instant>,
    /// Slot of the connection; dropping it gives it back.
    slot: ConnectionSlot,
    alive: mpsc::Sender<()>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Makes a connection that was accepted at `opened`; TLS is up. The connection and its tasks
    /// hold `alive`.
    pub(crate) fn new(
        service: Arc<Service>,
        stream: S,
        peer: Peer,
        opened: Instant,
        slot: ConnectionSlot,
        alive: mpsc::Sender<()>,
    ) -> Self {
        let limits = &service.limits;
        // Two for every request in flight. Look-ups may join those in flight after the check of the
        // bound, but never more than the bound.
        let replies_max = 2 * limits.requests_per_connection_max + tasks::PARTS_UNDER_WAY_MAX;
        let (sender, replies) = mpsc::channel(replies_max);
        let outbox =
            Outbox { sender, service: Arc::clone(&service), frame_bytes_max: limits.frame_bytes_max };
        Connection {
            // The administrator's socket stays open while the server is drained.
            stopping: match peer {
                Peer::Network(_) => Box::pin(service.closing_to_network()),
                Peer::Local { .. } => Box::pin(service.reached(Phase::Stopping)),
            },
            ended: Box::pin(service.reached(Phase::Ended)),
            timer: Box::pin(tokio::time::sleep_until(opened + limits.handshake_time)),
            request_bytes: Bounded::new(limits.request_bytes_per_connection_max),
            streams: Bounded::new(limits.streams_per_connection_max),
            rooms: Rooms::new(&service.admission),
            stream,
            peer,
            stage: Stage::Hello,
            features: 0,
            closing: Closing::No,
            decoder: FrameDecoder::new(),
            backlog: false,
            output: Vec::new(),
            written: 0,
            unflushed: false,
            eof: false,
            read_bytes: READ_BYTES_MIN,
            outbox,
            lookup_entry: None,
            replies,
            in_flight: HashMap::new(),
            together: Vec::new(),
            opened,
            heard: Instant::now(),
            pinged: None,
            told_time: Instant::now(),
            told_behind: None,
            told_output: 0,
            unread: service.admission.unread_bytes.none(),
            stalled_since: None,
            goodbye_since: None,
            slot,
            alive,
            service,
        }
    }

    /// Serves the connection to its end.
    pub(crate) async fn run(mut self) {
        let end = self.converse().await;
        for request in self.in_flight.values() {
            request.cancel.cancel();
        }
        if !matches!(self.stage, Stage::Open(_)) {
            count(&self.service.instruments.counts.handshakes_failed);
        }
        self.service.instruments.output_bytes.fetch_sub(self.told_output, Ordering::Relaxed);
        self.told_output = 0;
        tracing::debug!(peer = %self.peer, ?end, in_flight = self.in_flight.len(), "connection ended");
        if matches!(end, ConnectionEnd::Said) {
            // Closing with unread bytes would make the system discard what the client has not read
            // yet.
            let _ = tokio::time::timeout(LINGER, async {
                let _ = self.stream.shutdown().await;
                let mut rest = [0u8; 4096];
                while matches!(self.stream.read(&mut rest).await, Ok(read) if read > 0) {}
            })
            .await;
        }
    }

    async fn converse(&mut self) -> ConnectionEnd {
        loop {
            if let Some(end) = std::future::poll_fn(|context| self.poll_io(context)).await {
                return end;
            }
            let began = Instant::now();
            if self.backlog {
                self.take_frames(began.into_std()).await;
                self.start_together();
            }
            if began.elapsed() > TURN {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns the number of output bytes that the client has not taken yet.
    fn waiting_output(&self) -> usize {
        self.output.len() - self.written
    }

    /// True if so much output waits that the server makes no more.
    fn output_is_full(&self) -> bool {
        let (waiting, limits) = (self.waiting_output(), &self.service.limits);
        waiting >= limits.output_bytes_max
            || waiting >= limits.own_unread_bytes_max && self.service.admission.unread_bytes.is_full()
    }

    /// Moves bytes and replies as far as possible. Ready when frames can be handled (`None`), or
    /// when the connection has ended.
    fn poll_io(&mut self, context: &mut Context<'_>) -> Poll<Option<ConnectionEnd>> {
        loop {
            let mut no_replies = false;
            while !self.output_is_full() && !no_replies {
                match self.replies.poll_recv(context) {
                    Poll::Ready(Some(reply)) => self.take_over(reply),
                    // The channel cannot be closed: the outbox has a sender.
                    Poll::Ready(None) | Poll::Pending => no_replies = true,
                }
            }
            if self.poll_write(context).is_err() {
                return Poll::Ready(Some(ConnectionEnd::Gone));
            }
            if !no_replies && !self.output_is_full() {
                // The write made room. Continue, because nothing would wake this task for the
                // replies it skipped.
                continue;
            }
            self.tell_output();
            if self.look_at_phase(context) {
                // The new phase has output to write.
                continue;
            }
            if self.is_finished() {
                return Poll::Ready(Some(if self.eof { ConnectionEnd::Gone } else { ConnectionEnd::Said }));
            }
            if !self.output_is_full() {
                if self.backlog {
                    return Poll::Ready(None);
                }
                match self.poll_read(context) {
                    Poll::Ready(Ok(())) => return Poll::Ready(None),
                    Poll::Ready(Err(())) => return Poll::Ready(Some(ConnectionEnd::Gone)),
                    Poll::Pending => {}
                }
            }
            match self.poll_timer(context) {
                Poll::Pending => return Poll::Pending,
                // A decision of the timer may have output.
                Poll::Ready(()) => {}
            }
        }
    }

    /// Updates the sum of waiting output over all connections.
    fn tell_output(&mut self) {
        let now = self.waiting_output() as u64;
        if now != self.told_output {
            let sum = &self.service.instruments.output_bytes;
            sum.fetch_add(now.wrapping_sub(self.told_output), Ordering::Relaxed);
            self.told_output = now;
            let own = self.service.limits.own_unread_bytes_max;
            let beyond = self.waiting_output().saturating_sub(own);
            self.unread.turned_out(beyond);
        }
    }

    /// Tells the client how far this follower is behind, before an answer, if that is due.
    fn tell_behind(&mut self) {
        if self.features & features::BEHIND == 0 {
            return;
        }
        let now = Instant::now();
        let is_due = self.told_behind.is_none_or(|told| now.duration_since(told) >= BEHIND_TOLD_EVERY);
        if let Some(behind) = is_due.then(|| self.service.behind()).flatten() {
            encode_behind(&mut self.output, &behind);
            self.told_behind = Some(now);
        }
    }

    fn take_over(&mut self, reply: Reply) {
        let Reply { bytes, ended, _room, _unread } = reply;
        self.tell_behind();
        if self.output.is_empty() {
            self.output = bytes;
        } else {
            self.output.extend_from_slice(&bytes);
        }
        if let Some(request) = ended {
            self.in_flight.remove(&request);
        }
        // Update the sum before the room is released.
        self.tell_output();
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Result<(), ()> {
        while self.written < self.output.len() {
            let write = std::pin::pin!(self.stream.write(&self.output[self.written..]));
            match write.poll(context) {
                Poll::Ready(Ok(0) | Err(_)) => return Err(()),
                Poll::Ready(Ok(bytes)) => {
                    self.written += bytes;
                    self.unflushed = true;
                    if let Some((_, taken)) = &mut self.stalled_since {
                        // The client reads again after a delay: a sign of life, though it sent
                        // nothing.
                        self.heard = Instant::now();
                        self.pinged = None;
                        *taken += bytes;
                        if *taken >= self.service.limits.output_progress_bytes {
                            self.stalled_since = None;
                        }
                    }
                    self.service.instruments.counts.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
                }
                Poll::Pending => {
                    if self.stalled_since.is_none() {
                        self.stalled_since = Some((Instant::now(), 0));
                        self.wake_by(self.service.limits.output_stall);
                    }
                    break;
                }
            }
        }
        if self.written == self.output.len() && self.written > 0 {
            self.written = 0;
            self.output.clear();
            if self.output.capacity() > OUTPUT_KEPT_BYTES {
                self.output = Vec::new();
            }
        } else if self.written >= self.service.limits.output_bytes_max {
            // Otherwise the buffer would grow with a client that keeps pace but never quite catches
            // up.
            self.output.drain(..self.written);
            self.written = 0;
        }
        if self.unflushed {
            match std::pin::pin!(self.stream.flush()).poll(context) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => return Err(()),
                Poll::Pending => {
                    if self.stalled_since.is_none() {
                        self.stalled_since = Some((Instant::now(), 0));
                        self.wake_by(self.service.limits.output_stall);
                    }
                }
            }
        }
        if self.waiting_output() == 0 && !self.unflushed {
            self.stalled_since = None;
        }
        Ok(())
    }

    /// Reads once. Ready when bytes arrived, or the client will send no more.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ()>> {
        if self.eof || matches!(self.closing, Closing::Finish | Closing::Now) {
            return Poll::Pending;
        }
        let buffer = self.decoder.buffer_mut();
        buffer.reserve(self.read_bytes);
        let read = std::pin::pin!(self.stream.read_buf(buffer));
        match read.poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(Err(())),
            Poll::Ready(Ok(0)) => {
                self.eof = true;
                if let Err(error) = self.decoder.finish() {
                    self.refuse_frame(&error);
                }
                // A client that closes its end without a goodbye may still read its answers.
                self.close(Closing::Finish);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(bytes)) => {
                self.heard = Instant::now();
                self.pinged = None;
                self.backlog = true;
                if bytes >= self.read_bytes {
                    self.read_bytes = (2 * self.read_bytes).min(READ_BYTES_MAX);
                } else if bytes < self.read_bytes / 8 {
                    self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
                }
                self.service.instruments.counts.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Ends the conversation when the server stops; true if that produced output.
    fn look_at_phase(&mut self, context: &mut Context<'_>) -> bool {
        let stops = self.closing == Closing::No && self.stopping.as_mut().poll(context).is_ready();
        if stops {
            let why = self.service.closed_to_network().map_or_else(String::new, |error| error.message);
            self.say_goodbye(&why);
        }
        if self.closing != Closing::No
            && self.closing != Closing::Now
            && self.ended.as_mut().poll(context).is_ready()
        {
            self.close(Closing::Now);
        }
        stops
    }

    fn say_goodbye(&mut self, reason: &str) {
        match self.stage {
            Stage::Open(_) => {
                encode_goodbye(&mut self.output, reason);
                // The client can continue a stream elsewhere, from the cursor of its last part.
                self.cancel(|patience| patience != Patience::None);
                self.goodbye_since = Some(Instant::now());
                self.wake_by(LINGER);
                self.close(Closing::Goodbye);
            }
            _ => {
                encode_error(&mut self.output, 0, &Error::new(ErrorKind::Unavailable, reason));
                self.close(Closing::Now);
            }
        }
    }

    /// Moves towards the end; never back.
    fn close(&mut self, how: Closing) {
        let rank = |closing: Closing| match closing {
            Closing::No => 0,
            Closing::Goodbye => 1,
            Closing::Finish => 2,
            Closing::Now => 3,
        };
        if rank(how) > rank(self.closing) {
            self.closing = how;
        }
        if matches!(self.closing, Closing::Finish | Closing::Now) {
            self.backlog = false;
            // The server reads nothing more, so no further credit comes.
            self.in_flight.values().filter_map(|request| request.credit.as_ref()).for_each(|it| it.close());
            // The client may be gone, which only the answer to a later change would show.
            self.cancel(|patience| patience == Patience::ForChanges);
        }
    }

    fn cancel(&self, which: impl Fn(Patience) -> bool) {
        self.in_flight.values().filter(|request| which(request.patience)).for_each(|it| it.cancel.cancel());
    }

    fn is_finished(&self) -> bool {
        let sent = self.waiting_output() == 0 && !self.unflushed;
        match self.closing {
            Closing::No => false,
            Closing::Goodbye => {
                let lingered = self.goodbye_since.is_some_and(|since| since.elapsed() >= LINGER);
                sent && self.in_flight.is_empty() && lingered
            }
            Closing::Finish => sent && self.in_flight.is_empty(),
            Closing::Now => sent,
        }
    }

    /// Ensures that the timer fires within `time`.
    fn wake_by(&mut self, time: Duration) {
        let at = Instant::now() + time;
        if at < self.timer.deadline() {
            self.timer.as_mut().reset(at);
        }
    }

    /// Handles timeouts. Ready when one led to a decision.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            let limits = Arc::clone(&self.service.limits);
            let mut next = now + limits.idle_time;
            let mut due = |at: Instant| {
                if at > now {
                    next = next.min(at);
                }
                at <= now
            };
            let handshake_over =
                !matches!(self.stage, Stage::Open(_)) && due(self.opened + limits.handshake_time);
            let idle = due(self.heard + limits.idle_time);
            let stalled = self.stalled_since.is_some_and(|(since, _)| due(since + limits.output_stall));
            let unanswered = self.pinged.is_some_and(|since| due(since + limits.idle_time));
            let is_open = matches!(self.stage, Stage::Open(_)) && self.closing == Closing::No;
            let tell_time = is_open && due(self.told_time + TIME_TOLD_EVERY);
            let lingered = self.goodbye_since.is_some_and(|since| due(since + LINGER));
            self.timer.as_mut().reset(next);
            if stalled {
                count(&self.service.instruments.counts.stalled);
                tracing::info!(peer = %self.peer, bytes = self.waiting_output(), "client does not read: disconnected");
                self.drop_output();
                self.close(Closing::Now);
                return Poll::Ready(());
            }
            if handshake_over && self.closing == Closing::No {
                let error = Error::new(ErrorKind::Unauthenticated, "the handshake took too long");
                encode_error(&mut self.output, 0, &error);
                self.close(Closing::Now);
                return Poll::Ready(());
            }
            if idle && self.closing == Closing::No && self.in_flight.is_empty() {
                count(&self.service.instruments.counts.idle);
                encode_goodbye(&mut self.output, "nothing came for long; ping more often");
                self.close(Closing::Now);
                return Poll::Ready(());
            }
            if idle && !self.in_flight.is_empty() {
                // The client may wait for a long answer, or be gone silently: a live client answers
                // the ping.
                match self.pinged {
                    None => {
                        self.pinged = Some(now);
                        self.timer.as_mut().reset(now + limits.idle_time);
                        encode_ping(&mut self.output, self.service.catalogue.now().0);
                        return Poll::Ready(());
                    }
                    Some(_) if unanswered => {
                        count(&self.service.instruments.counts.idle);
                        tracing::info!(peer = %self.peer, in_flight = self.in_flight.len(), "client is gone");
                        self.drop_output();
                        self.close(Closing::Now);
                        return Poll::Ready(());
                    }
                    Some(_) => {}
                }
            }
            if tell_time {
                self.told_time = now;
                encode_ping(&mut self.output, self.service.catalogue.now().0);
                return Poll::Ready(());
            }
            if lingered && self.is_finished() {
                return Poll::Ready(());
            }
        }
    }

    /// Discards all output.
    fn drop_output(&mut self) {
        self.output.clear();
        self.written = 0;
        self.unflushed = false;
        self.eof = true;
    }
}
