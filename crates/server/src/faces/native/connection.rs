//! One connection: bytes in, bytes out, and the rules of the conversation.
//!
//! One task owns the connection. At each wake-up it takes over replies, writes what it can, reads what has
//! come, and goes through all whole frames: look-ups are answered on the spot ([`lookups`](super::lookups)),
//! everything else becomes a task whose reply comes back over a channel. What all of it has produced goes out
//! with the next write.
//!
//! What the connection holds is bounded: it neither reads nor makes answers nor takes over replies while the
//! client does not read what is there; requests in flight are bounded in number and bytes; pages and bulk
//! answers on their way from tasks are bounded by the rooms of [`tasks`](super::tasks).

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use exacat_model::{Error, ErrorKind, Operation};
use exacat_wire::native::{
    Authenticate, Batch, BatchItem, Frame, FrameDecoder, FrameError, Hello, HelloAck, PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN, RawFrame, Request, encode_authenticated, encode_error, encode_goodbye,
    encode_hello_ack, encode_pong,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};

use super::lookups::{Gathered, Lookups};
use super::reply::{BatchInProgress, Measure, Outbox, Reply, Target, Waiting};
use super::tasks::{self, Job, Rooms};
use crate::access::{Peer, Session};
use crate::admission::{Bounded, Class, Held, Step, busy};
use crate::instruments::{OperationIndex, count};
use crate::service::{Cancel, Phase, Service, Work};

/// Bytes there is room for when reading, at least: what a quiet connection holds.
const READ_BYTES_MIN: usize = 8 << 10;
/// Bytes read at once, at most. The room grows towards it while it is used up, and shrinks when it is not.
const READ_BYTES_MAX: usize = 256 << 10;
/// Work without a pause, before other connections of the thread get their turn.
const TURN: Duration = Duration::from_micros(500);
/// After everything was said, how long the client may take to close its end, so that it gets what was said.
const LINGER: Duration = Duration::from_secs(1);
/// An output buffer that grew beyond this is given back when it is empty.
const OUTPUT_KEPT_BYTES: usize = 256 << 10;

/// Why a connection ends.
#[derive(Debug)]
enum End {
    /// The client closed it, or it broke: nothing more can be said.
    Gone,
    /// Everything was said.
    Said,
}

/// What the conversation has come to.
enum Stage {
    /// The client's hello is awaited.
    Hello,
    /// The client is to say who it is.
    Authenticate,
    /// Requests are taken.
    Open(Box<Session>),
}

/// How the server sees the end of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// Not at all.
    No,
    /// What is in flight is finished; new requests are refused. The client may close, or time runs out.
    Goodbye,
    /// What is in flight is finished, nothing more is read.
    Finish,
    /// What was written is sent, nothing else.
    Now,
}

/// A request that tasks work on.
struct InFlight {
    cancel: Arc<Cancel>,
    credit: Option<Arc<Semaphore>>,
    _bytes: (Held, Held),
}

/// See the module.
pub(super) struct Connection<S> {
    service: Arc<Service>,
    stream: S,
    peer: Peer,
    stage: Stage,
    closing: Closing,
    decoder: FrameDecoder,
    /// Whole frames may be waiting in the decoder.
    backlog: bool,
    output: Vec<u8>,
    written: usize,
    unflushed: bool,
    eof: bool,
    read_bytes: usize,
    outbox: Outbox,
    replies: mpsc::Receiver<Reply>,
    in_flight: HashMap<u64, InFlight>,
    request_bytes: Arc<Bounded>,
    streams: Arc<Bounded>,
    rooms: Rooms,
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    timer: Pin<Box<tokio::time::Sleep>>,
    opened: Instant,
    heard: Instant,
    /// What of the waiting output the instruments have been told.
    told_output: u64,
    /// Since when output waits and nothing of it was taken.
    stalled_since: Option<Instant>,
    goodbye_since: Option<Instant>,
    alive: mpsc::Sender<()>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A connection just accepted; TLS is up. `opened` is when it was accepted. `alive` is kept as long as it
    /// or any of its tasks lives.
    pub fn new(
        service: Arc<Service>,
        stream: S,
        peer: Peer,
        opened: Instant,
        alive: mpsc::Sender<()>,
    ) -> Self {
        let limits = &service.limits;
        let replies_max = limits.requests_per_connection_max + tasks::PARTS_UNDER_WAY_MAX + 1;
        let (sender, replies) = mpsc::channel(replies_max);
        let outbox =
            Outbox { sender, service: Arc::clone(&service), frame_bytes_max: limits.frame_bytes_max };
        Connection {
            stopping: Box::pin(service.reached(Phase::Stopping)),
            ended: Box::pin(service.reached(Phase::Ended)),
            timer: Box::pin(tokio::time::sleep_until((opened + limits.handshake_time).into())),
            request_bytes: Bounded::new(limits.request_bytes_per_connection_max),
            streams: Bounded::new(limits.streams_per_connection_max),
            rooms: Rooms::new(),
            stream,
            peer,
            stage: Stage::Hello,
            closing: Closing::No,
            decoder: FrameDecoder::new(),
            backlog: false,
            output: Vec::new(),
            written: 0,
            unflushed: false,
            eof: false,
            read_bytes: READ_BYTES_MIN,
            outbox,
            replies,
            in_flight: HashMap::new(),
            opened,
            heard: Instant::now(),
            told_output: 0,
            stalled_since: None,
            goodbye_since: None,
            alive,
            service,
        }
    }

    /// Holds the conversation to its end.
    pub async fn run(mut self) {
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
        if matches!(end, End::Said) {
            // Closing with bytes unread would make the system throw away what the client has not read yet.
            let _ = tokio::time::timeout(LINGER, async {
                let _ = self.stream.shutdown().await;
                let mut rest = [0u8; 4096];
                while matches!(self.stream.read(&mut rest).await, Ok(read) if read > 0) {}
            })
            .await;
        }
    }

    async fn converse(&mut self) -> End {
        loop {
            if let Some(end) = std::future::poll_fn(|context| self.poll_io(context)).await {
                return end;
            }
            let began = Instant::now();
            if self.backlog {
                self.take_frames(began).await;
            }
            if began.elapsed() > TURN {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Bytes the client has not taken yet.
    fn waiting_output(&self) -> usize {
        self.output.len() - self.written
    }

    fn output_is_full(&self) -> bool {
        self.waiting_output() >= self.service.limits.output_bytes_max
    }

    /// Moves bytes and replies as far as they go. Ready when there are frames to go through (`None`), or the
    /// connection has ended.
    fn poll_io(&mut self, context: &mut Context<'_>) -> Poll<Option<End>> {
        loop {
            let mut no_replies = false;
            while !self.output_is_full() && !no_replies {
                match self.replies.poll_recv(context) {
                    Poll::Ready(Some(reply)) => self.take_over(reply),
                    // None cannot be: the outbox has a sender.
                    Poll::Ready(None) | Poll::Pending => no_replies = true,
                }
            }
            if self.poll_write(context).is_err() {
                return Poll::Ready(Some(End::Gone));
            }
            if !no_replies && !self.output_is_full() {
                // The write made room. Nobody would wake us for the replies that were not looked for.
                continue;
            }
            self.tell_output();
            self.look_at_phase(context);
            if self.is_finished() {
                return Poll::Ready(Some(if self.eof { End::Gone } else { End::Said }));
            }
            if !self.output_is_full() {
                if self.backlog {
                    return Poll::Ready(None);
                }
                match self.poll_read(context) {
                    Poll::Ready(Ok(())) => return Poll::Ready(None),
                    Poll::Ready(Err(())) => return Poll::Ready(Some(End::Gone)),
                    Poll::Pending => {}
                }
            }
            match self.poll_timer(context) {
                Poll::Pending => return Poll::Pending,
                // Something was decided that may have something to say.
                Poll::Ready(()) => {}
            }
        }
    }

    /// Keeps the sum over all connections.
    fn tell_output(&mut self) {
        let now = self.waiting_output() as u64;
        if now != self.told_output {
            let sum = &self.service.instruments.output_bytes;
            sum.fetch_add(now.wrapping_sub(self.told_output), Ordering::Relaxed);
            self.told_output = now;
        }
    }

    fn take_over(&mut self, reply: Reply) {
        if self.output.is_empty() {
            self.output = reply.bytes;
        } else {
            self.output.extend_from_slice(&reply.bytes);
        }
        if let Some(request) = reply.ended {
            self.in_flight.remove(&request);
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Result<(), ()> {
        while self.written < self.output.len() {
            let write = std::pin::pin!(self.stream.write(&self.output[self.written..]));
            match write.poll(context) {
                Poll::Ready(Ok(0) | Err(_)) => return Err(()),
                Poll::Ready(Ok(bytes)) => {
                    self.written += bytes;
                    self.unflushed = true;
                    self.stalled_since = None;
                    self.service.instruments.counts.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
                }
                Poll::Pending => {
                    if self.stalled_since.is_none() {
                        self.stalled_since = Some(Instant::now());
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
            // Otherwise a client that keeps pace, but never quite catches up, would make the buffer grow.
            self.output.drain(..self.written);
            self.written = 0;
        }
        if self.unflushed {
            match std::pin::pin!(self.stream.flush()).poll(context) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => return Err(()),
                Poll::Pending => {
                    if self.stalled_since.is_none() {
                        self.stalled_since = Some(Instant::now());
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

    /// Reads once. Ready when something came, or the client will say nothing more.
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
                // A client that closes its end without a goodbye may still read what it asked for.
                self.close(Closing::Finish);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(bytes)) => {
                self.heard = Instant::now();
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

    fn look_at_phase(&mut self, context: &mut Context<'_>) {
        if self.closing == Closing::No && self.stopping.as_mut().poll(context).is_ready() {
            self.say_goodbye("the server stops");
        }
        if self.closing != Closing::No
            && self.closing != Closing::Now
            && self.ended.as_mut().poll(context).is_ready()
        {
            self.close(Closing::Now);
        }
    }

    fn say_goodbye(&mut self, reason: &str) {
        match self.stage {
            Stage::Open(_) => {
                encode_goodbye(&mut self.output, reason);
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

    /// Goes on towards the end; never back.
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
        }
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

    /// Sees to it that the timer fires within `time`.
    fn wake_by(&mut self, time: Duration) {
        let at = (Instant::now() + time).into();
        if at < self.timer.deadline() {
            self.timer.as_mut().reset(at);
        }
    }

    /// Ready when a time ran out and something was decided.
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
            let stalled = self.stalled_since.is_some_and(|since| due(since + limits.output_stall));
            let lingered = self.goodbye_since.is_some_and(|since| due(since + LINGER));
            self.timer.as_mut().reset(next.into());
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
            if idle && self.closing == Closing::No {
                count(&self.service.instruments.counts.idle);
                encode_goodbye(&mut self.output, "nothing came for long; ping more often");
                self.close(Closing::Now);
                return Poll::Ready(());
            }
            if lingered && self.is_finished() {
                return Poll::Ready(());
            }
        }
    }

    /// Gives up saying anything.
    fn drop_output(&mut self) {
        self.output.clear();
        self.written = 0;
        self.unflushed = false;
        self.eof = true;
    }

    /// Goes through the whole frames that are there, as long as there is room for answers.
    async fn take_frames(&mut self, received: Instant) {
        if !self.revalidate().await {
            return;
        }
        let mut lookups = Lookups::default();
        loop {
            if self.output_is_full() || lookups.items() >= self.service.limits.coalesced_items_max {
                self.look_up(&mut lookups, received);
                if self.output_is_full() {
                    return;
                }
            }
            match self.decoder.next_frame() {
                Ok(Some(raw)) => self.take_frame(raw, received, &mut lookups).await,
                Ok(None) => {
                    self.backlog = false;
                    break;
                }
                Err(error) => {
                    self.look_up(&mut lookups, received);
                    self.refuse_frame(&error);
                    break;
                }
            }
            if !self.backlog {
                break;
            }
        }
        self.look_up(&mut lookups, received);
    }

    /// Looks at the credentials again if it is time. False if they are not valid any more; then the
    /// connection ends, once what is in flight is finished.
    async fn revalidate(&mut self) -> bool {
        let Stage::Open(session) = &mut self.stage else {
            return true;
        };
        if session.checked.elapsed() < self.service.limits.revalidate {
            return true;
        }
        match session.check_again(&self.service).await {
            Ok(()) => true,
            // The store cannot tell now: the next request asks again, this one is refused by the store anyway.
            Err(error) if error.kind.is_retryable() => true,
            Err(error) => {
                count(&self.service.instruments.counts.revalidations_refused);
                tracing::info!(peer = %self.peer, %error, "credentials ceased to be valid");
                for request in self.in_flight.values() {
                    request.cancel.cancel();
                }
                encode_error(&mut self.output, 0, &error);
                self.close(Closing::Finish);
                false
            }
        }
    }

    fn look_up(&mut self, lookups: &mut Lookups, received: Instant) {
        let Stage::Open(session) = &self.stage else {
            return;
        };
        if lookups.is_empty() {
            return;
        }
        let tracked = lookups.look_up(&session.asker, &self.outbox, received, &mut self.output);
        for request in tracked.begun {
            let cancel = Arc::new(Cancel::default());
            if let Some(bytes) = self.request_bytes.take(0).zip(self.service.admission.request_bytes.take(0))
            {
                self.in_flight.entry(request).or_insert(InFlight { cancel, credit: None, _bytes: bytes });
            }
        }
        for request in tracked.ended {
            self.in_flight.remove(&request);
        }
    }

    /// The bytes are not frames, or not those of this conversation: says so, and ends it.
    fn refuse_frame(&mut self, error: &FrameError) {
        count(&self.service.instruments.counts.frames_refused);
        tracing::info!(peer = %self.peer, %error, "not the native protocol");
        self.refuse(Error::from(error.clone()));
    }

    fn refuse(&mut self, error: Error) {
        encode_error(&mut self.output, 0, &error);
        self.close(Closing::Finish);
    }

    async fn take_frame(&mut self, raw: RawFrame, received: Instant, lookups: &mut Lookups) {
        let (request, bytes) = (raw.request, raw.body.len());
        let frame = match raw.decode() {
            Ok(frame) => frame,
            Err(error) => {
                match error.answerable_request() {
                    Some(request) if matches!(self.stage, Stage::Open(_)) => {
                        count(&self.service.instruments.counts.frames_refused);
                        encode_error(&mut self.output, request, &Error::from(error));
                    }
                    _ => self.refuse_frame(&error),
                }
                return;
            }
        };
        match (&self.stage, frame) {
            (Stage::Hello, Frame::Hello(hello)) => self.take_hello(&hello),
            (Stage::Authenticate, Frame::Authenticate(authenticate)) => {
                self.take_authenticate(authenticate).await;
            }
            (_, Frame::Ping(echo)) => encode_pong(&mut self.output, echo),
            (_, Frame::Pong(_)) => {}
            (_, Frame::Goodbye { .. }) => self.close(Closing::Finish),
            (Stage::Open(_), Frame::Request(asked)) => {
                self.take_request(request, asked, bytes, received, lookups);
            }
            (Stage::Open(_), Frame::Batch(batch)) => {
                self.take_batch(request, batch, bytes, received, lookups);
            }
            // Both may come when the request has ended already: then they mean nothing.
            (Stage::Open(_), Frame::Credit { parts }) => {
                if let Some(credit) = self.in_flight.get(&request).and_then(|request| request.credit.as_ref())
                {
                    tasks::grant(credit, parts);
                }
            }
            (Stage::Open(_), Frame::Cancel) => {
                if let Some(in_flight) = self.in_flight.get(&request) {
                    in_flight.cancel.cancel();
                }
            }
            (Stage::Open(_), Frame::Error(_)) => self.close(Closing::Finish),
            (Stage::Hello | Stage::Authenticate, Frame::Request(_) | Frame::Batch(_)) => {
                count(&self.service.instruments.counts.authentications_refused);
                self.refuse(Error::new(ErrorKind::Unauthenticated, "say who you are before you ask"));
            }
            (_, frame) => {
                count(&self.service.instruments.counts.frames_refused);
                let name = frame.frame_type().name();
                self.refuse(Error::invalid(format!("a {name} frame has no place here")));
            }
        }
    }

    fn take_hello(&mut self, hello: &Hello) {
        let Some(version) = hello.choose_version() else {
            self.refuse(Error::invalid(format!(
                "the client speaks versions {} to {} of the protocol, this server {PROTOCOL_VERSION_MIN} to \
                 {PROTOCOL_VERSION}: update the older of the two",
                hello.version_min, hello.version_max
            )));
            return;
        };
        tracing::debug!(peer = %self.peer, client = hello.client, version, "hello");
        let limits = &self.service.limits;
        let saturated = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let ack = HelloAck {
            version,
            features: 0,
            limits: exacat_wire::native::Limits {
                frame_bytes_max: saturated(limits.frame_bytes_max),
                requests_in_flight_max: saturated(limits.requests_per_connection_max),
                batch_operations_max: saturated(limits.batch_operations_max()),
                idle_ms_max: u32::try_from(limits.idle_time.as_millis()).unwrap_or(u32::MAX),
            },
            server: concat!("exacat/", env!("CARGO_PKG_VERSION")).to_owned(),
            catalogue: self.service.catalogue_id,
            authentication_required: !self.service.anonymous_reads,
        };
        encode_hello_ack(&mut self.output, &ack);
        self.stage = Stage::Authenticate;
    }

    async fn take_authenticate(&mut self, authenticate: Authenticate) {
        match Session::open(&self.service, &self.peer, authenticate).await {
            Ok(session) => {
                tracing::debug!(peer = %self.peer, user = ?session.identity().user, "authenticated");
                encode_authenticated(&mut self.output, &session.identity());
                self.decoder.set_frame_bytes_max(self.service.limits.frame_bytes_max);
                self.stage = Stage::Open(Box::new(session));
            }
            Err(error) => {
                count(&self.service.instruments.counts.authentications_refused);
                tracing::info!(peer = %self.peer, %error, "authentication refused");
                self.refuse(error);
            }
        }
    }

    /// Takes a request among those in flight, if there is room.
    fn admit(
        &mut self,
        request: u64,
        bytes: usize,
        credit: Option<Arc<Semaphore>>,
    ) -> Result<Arc<Cancel>, Error> {
        if self.in_flight.contains_key(&request) {
            return Err(Error::invalid(format!("request {request} is in flight already")));
        }
        if self.closing != Closing::No {
            return Err(Error::new(ErrorKind::Unavailable, "the server stops: nothing was done"));
        }
        if self.in_flight.len() >= self.service.limits.requests_per_connection_max {
            return Err(busy("requests of one connection that are not answered yet"));
        }
        let own =
            self.request_bytes.take(bytes).ok_or_else(|| busy("bytes of requests of one connection"))?;
        let all =
            self.service.admission.request_bytes.take(bytes).ok_or_else(|| busy("bytes of requests"))?;
        let cancel = Arc::new(Cancel::default());
        let in_flight = InFlight { cancel: Arc::clone(&cancel), credit, _bytes: (own, all) };
        self.in_flight.insert(request, in_flight);
        Ok(cancel)
    }

    fn deadline(&self, received: Instant, deadline_ms: Option<u32>) -> Instant {
        let longest = self.service.limits.deadline_max;
        received + deadline_ms.map_or(longest, |ms| Duration::from_millis(ms.into()).min(longest))
    }

    /// A deadline that is over already is judged where operations are run.
    fn is_quick(&self, operation: &Operation, deadline_ms: Option<u32>) -> bool {
        self.closing == Closing::No
            && deadline_ms != Some(0)
            && matches!(Class::of(operation, &self.service.limits), Class::Lookup { .. })
    }

    fn take_request(
        &mut self,
        request: u64,
        asked: Request,
        bytes: usize,
        received: Instant,
        lookups: &mut Lookups,
    ) {
        let Request { options, operation } = asked;
        let mut target = Target::Request(request);
        let mut operation = operation;
        if options.stream.is_none()
            && self.is_quick(&operation, options.deadline_ms)
            && !self.in_flight.contains_key(&request)
        {
            if lookups.is_full() {
                self.look_up(lookups, received);
            }
            match lookups.gather(operation, target) {
                Gathered::Yes => return,
                Gathered::No(back, same) => (operation, target) = (back, same),
            }
        }
        let credit = options.stream.map(|parts| Arc::new(Semaphore::new(parts as usize)));
        let admitted = self.admit(request, bytes, credit.clone());
        let cancel = match admitted {
            Ok(cancel) => cancel,
            Err(error) if error.kind == ErrorKind::Invalid => return self.refuse(error),
            Err(error) => {
                self.refuse_operation(&operation, received, &error);
                encode_error(&mut self.output, request, &error);
                return;
            }
        };
        let id = options.operation_id.unwrap_or(super::lookups::NO_ID);
        let deadline = self.deadline(received, options.deadline_ms);
        match credit {
            None => self.begin(target, operation, id, deadline, received, cancel),
            Some(credit) => {
                let held = self.streams.take(1).zip(self.service.admission.streams.take(1));
                let Some(held) = held else {
                    self.in_flight.remove(&request);
                    let error = busy("open streams");
                    self.refuse_operation(&operation, received, &error);
                    encode_error(&mut self.output, request, &error);
                    return;
                };
                let deadline = options.deadline_ms.map(|_| deadline);
                if let Some(job) = self.job(target, operation, id, received, received, cancel) {
                    tokio::spawn(tasks::stream(job, request, credit, deadline, held));
                }
            }
        }
    }

    fn take_batch(
        &mut self,
        request: u64,
        batch: Batch,
        bytes: usize,
        received: Instant,
        lookups: &mut Lookups,
    ) {
        let Batch { deadline_ms, items } = batch;
        let deadline = self.deadline(received, deadline_ms);
        let in_progress = BatchInProgress::new(request, items.len());
        let all_quick = items
            .iter()
            .all(|item| is_gatherable(&item.operation) && self.is_quick(&item.operation, deadline_ms));
        let cancel = if all_quick && !self.in_flight.contains_key(&request) {
            None
        } else {
            match self.admit(request, bytes, None) {
                Ok(cancel) => Some(cancel),
                Err(error) if error.kind == ErrorKind::Invalid => return self.refuse(error),
                Err(error) => {
                    encode_error(&mut self.output, request, &error);
                    return;
                }
            }
        };
        for (place, BatchItem { operation_id, operation }) in items.into_iter().enumerate() {
            let mut target = Target::InBatch(Arc::clone(&in_progress), place);
            let mut operation = operation;
            if self.is_quick(&operation, deadline_ms) {
                if lookups.is_full() || lookups.items() >= self.service.limits.coalesced_items_max {
                    self.look_up(lookups, received);
                }
                match lookups.gather(operation, target) {
                    Gathered::Yes => continue,
                    Gathered::No(back, same) => (operation, target) = (back, same),
                }
            }
            let id = operation_id.unwrap_or(super::lookups::NO_ID);
            let cancel = cancel.clone().unwrap_or_default();
            self.begin(target, operation, id, deadline, received, cancel);
        }
    }

    /// Counts an operation that was not taken on.
    fn refuse_operation(&self, operation: &Operation, received: Instant, error: &Error) {
        if let Stage::Open(session) = &self.stage {
            let index = OperationIndex::of(operation);
            self.service.ended(&session.asker, index, Some(error.kind), 1, 0, received.elapsed());
        }
    }

    /// What a task needs to work on an operation; none if it was refused, and the refusal told.
    fn job(
        &mut self,
        target: Target,
        operation: Operation,
        id: exacat_model::OperationId,
        deadline: Instant,
        received: Instant,
        cancel: Arc<Cancel>,
    ) -> Option<Job> {
        let Stage::Open(session) = &self.stage else {
            return None;
        };
        let asker = session.asker.clone();
        let measure = Measure {
            asker: asker.clone(),
            operation: OperationIndex::of(&operation),
            items: tasks::items(&operation),
            since: received,
        };
        let waiting = Waiting::new(target, self.outbox.clone(), measure);
        match self.service.admit(&asker, 1) {
            Ok(held) => Some(Job {
                waiting,
                work: Work { asker, id, operation, deadline, cancel, step: Step::First },
                rooms: self.rooms.clone(),
                held,
                alive: self.alive.clone(),
            }),
            Err(error) => {
                waiting.answer(Err(error));
                None
            }
        }
    }

    fn begin(
        &mut self,
        target: Target,
        operation: Operation,
        id: exacat_model::OperationId,
        deadline: Instant,
        received: Instant,
        cancel: Arc<Cancel>,
    ) {
        if let Some(job) = self.job(target, operation, id, deadline, received, cancel) {
            tokio::spawn(tasks::run(job));
        }
    }
}

/// Is it of a kind that look-ups are gathered of?
fn is_gatherable(operation: &Operation) -> bool {
    matches!(operation, Operation::Stat { .. } | Operation::Whereis { .. } | Operation::Lfns { .. })
}
