//! One connection: greeting, TLS on request, authentication; then requests, each answered as soon
//! as it is done. Requests that wait for nothing are answered at once and in order. Others run as
//! tasks, and are answered in any order.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use exacat_model::{Error, ErrorKind};
use exacat_wire::xrootd::numbers::{ability, error, request, role};
use exacat_wire::xrootd::{Decoder, Frame, Request, RequestHeader, StreamId, response};
use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Face;
use super::client::{KnownClient, is_trusted};
use super::dispatch::{answer, refuse};
use super::files::source_of;
use super::request::{Conversation, Refusal, ResponsePart};
use super::stream::Stream;
use crate::admission::{Bounded, Entrance, Room, Unread, busy};
use crate::faces::handshake;
use crate::instruments::count;
use crate::randomness;
use crate::service::{Cancel, Phase};

/// Room for a read, in bytes: the memory of a quiet connection.
const READ_BYTES: usize = 4 << 10;
/// Bytes of answers above which the server writes before it handles further requests.
const WRITE_BYTES: usize = 64 << 10;
/// Most parts of answers that wait to be written.
const PARTS_WAITING_MAX: usize = 4;
/// Most attempts of a client to authenticate.
const TRIES_MAX: u32 = 4;
/// Time for the client to read the end of the connection.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Reason for the end of a connection whose client does not read.
const STALLED: &str = "the client does not read";

/// Bytes that wait for a client to read them, counted as long as they wait.
struct Output<'a> {
    of: &'a AtomicU64,
    bytes: u64,
}

impl<'a> Output<'a> {
    fn new(of: &'a AtomicU64, bytes: u64) -> Self {
        of.fetch_add(bytes, Ordering::Relaxed);
        Output { of, bytes }
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Stage of the login.
enum Stage {
    /// The client must name itself.
    Login,
    /// The client must prove its identity.
    Auth { user: String, about: String },
    /// The client is authenticated.
    Authenticated(Arc<Conversation>, KnownClient),
}

/// The way a connection ends.
enum ConnectionEnd {
    /// The client closed it, or is gone.
    Closed,
    /// The server closes it, for this reason.
    Said(&'static str),
}

/// One connection of XRootD's protocol.
pub(super) struct Connection {
    face: Arc<Face>,
    stream: Stream,
    peer: SocketAddr,
    local: SocketAddr,
    opened: Instant,
    last_request: Instant,
    decoder: Decoder,
    out: Vec<u8>,
    /// Rooms of the bytes in `out`.
    rooms: Vec<Room>,
    unread: Unread,
    stage: Stage,
    tries: u32,
    cancel: Arc<Cancel>,
    listings: Arc<Bounded>,
    waiting: usize,
    /// Slot of the connection; dropping it gives it back.
    entrance: Entrance,
}

impl Connection {
    pub(crate) fn new(
        face: Arc<Face>,
        stream: Stream,
        peer: SocketAddr,
        local: SocketAddr,
        opened: Instant,
        entrance: Entrance,
    ) -> Self {
        let listings = Bounded::new(face.service.limits.xrootd_listings_max);
        let unread = Unread::new(&face.service.admission);
        Connection {
            face,
            stream,
            peer,
            local,
            opened,
            last_request: opened,
            decoder: Decoder::new(),
            out: Vec::new(),
            rooms: Vec::new(),
            unread,
            stage: Stage::Login,
            tries: 0,
            cancel: Arc::new(Cancel::default()),
            listings,
            waiting: 0,
            entrance,
        }
    }

    /// Serves the connection to its end.
    pub(crate) async fn run(mut self) {
        let (put, parts) = mpsc::channel(PARTS_WAITING_MAX);
        let mut tasks = JoinSet::new();
        let end = self.converse(put, parts, &mut tasks).await;
        let how = match end {
            ConnectionEnd::Closed => "closed by the client",
            ConnectionEnd::Said(why) => {
                let _ = tokio::time::timeout(LAST_WORDS, self.last_words()).await;
                why
            }
        };
        tracing::debug!(peer = %self.peer, how, "connection ended");
        if !matches!(self.stage, Stage::Authenticated(..)) {
            count(&self.face.service.instruments.counts.handshakes_failed);
        }
        // Reads stop; a write that started is awaited to its end.
        self.cancel.cancel();
        drop(self);
        while tasks.join_next().await.is_some() {}
    }

    /// Writes the remaining output, and waits until the client has read it: closing with unread
    /// bytes would make the system discard it.
    async fn last_words(&mut self) {
        if self.flush().await.is_ok() && self.stream.shutdown().await.is_ok() {
            let mut rest = [0; 4096];
            while matches!(self.stream.read(&mut rest).await, Ok(read) if read > 0) {}
        }
    }

    async fn converse(
        &mut self,
        put: mpsc::Sender<ResponsePart>,
        mut parts: mpsc::Receiver<ResponsePart>,
        tasks: &mut JoinSet<()>,
    ) -> ConnectionEnd {
        let limits = Arc::clone(&self.face.service.limits);
        let stopping = self.face.service.reached(Phase::Stopping);
        tokio::pin!(stopping);
        loop {
            let serving = self.face.service.is_serving();
            while serving && self.waiting < limits.xrootd_requests_max {
                match self.decoder.frame() {
                    Ok(None) => break,
                    Ok(Some(Frame::Handshake)) => response::write_handshake(&mut self.out),
                    Ok(Some(Frame::Request(header, carried))) => {
                        self.last_request = Instant::now();
                        if let Some(end) = self.take(header, carried, &put, tasks).await {
                            return end;
                        }
                    }
                    Err(error) => {
                        count(&self.face.service.instruments.counts.frames_refused);
                        let Some(header) = self.decoder.broken_at() else {
                            return ConnectionEnd::Said("not a client of XRootD");
                        };
                        let stream = header.stream;
                        response::write_error(&mut self.out, stream, error::ARG_TOO_LONG, &error.to_string());
                        return ConnectionEnd::Said("a request that is not well-formed");
                    }
                }
                if self.out.len() >= WRITE_BYTES
                    && let Err(end) = self.flush().await
                {
                    return end;
                }
            }
            if let Err(end) = self.flush().await {
                return end;
            }
            if self.waiting == 0 && !serving {
                return ConnectionEnd::Said("the server stops");
            }
            let (until, why) = match &self.stage {
                Stage::Authenticated(..) => {
                    (self.last_request + limits.xrootd_idle_time, "idle for too long")
                }
                _ => (self.opened + limits.handshake_time, "it did not say who it is in time"),
            };
            let room = serving && self.waiting < limits.xrootd_requests_max;
            let buffer = self.decoder.buffer();
            if room && buffer.capacity() - buffer.len() < READ_BYTES {
                buffer.reserve(READ_BYTES);
            }
            tokio::select! {
                biased;
                () = &mut stopping, if serving => {}
                Some(part) = parts.recv(), if self.waiting > 0 => {
                    self.said(part);
                    while self.out.len() < WRITE_BYTES && let Ok(part) = parts.try_recv() {
                        self.said(part);
                    }
                }
                // The output of a task that panicked is lost.
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                    if ended.is_err() {
                        return ConnectionEnd::Said("internal error");
                    }
                }
                read = self.stream.read_buf(self.decoder.buffer()), if room => match read {
                    Ok(read) if read > 0 => {
                        let counts = &self.face.service.instruments.counts;
                        counts.bytes_in.fetch_add(read as u64, Ordering::Relaxed);
                    }
                    _ => return ConnectionEnd::Closed,
                },
                () = tokio::time::sleep_until(until.into()), if self.waiting == 0 => {
                    if matches!(self.stage, Stage::Authenticated(..)) {
                        count(&self.face.service.instruments.counts.idle);
                    }
                    return ConnectionEnd::Said(why);
                }
            }
        }
    }

    /// Takes over the output of a task.
    fn said(&mut self, part: ResponsePart) {
        self.out.extend_from_slice(&part.bytes);
        self.rooms.extend(part.room);
        if part.last {
            self.waiting = self.waiting.saturating_sub(1);
            self.last_request = Instant::now();
        }
    }

    /// Writes the output to a client that reads.
    async fn flush(&mut self) -> Result<(), ConnectionEnd> {
        if self.out.is_empty() {
            return Ok(());
        }
        let service = &self.face.service;
        let stall = service.limits.output_stall;
        let counts = &service.instruments.counts;
        let output = Output::new(&service.instruments.output_bytes, self.out.len() as u64);
        let mut written = 0;
        // Over TLS, each response starts a record of its own. XrdCl reads one message per event of
        // its socket, and TLS does not report a second message that it decrypted with the first.
        let separate = self.stream.is_secure();
        let ends_at = |from: usize| match separate {
            true => from + response::first_bytes(&self.out[from..]),
            false => self.out.len(),
        };
        let mut until_byte = ends_at(0);
        let mut end = None;
        // A byte now and then is no progress.
        let (mut taken, mut until) = (0, Instant::now() + stall);
        while end.is_none() && written < self.out.len() {
            let writing = self.stream.write(&self.out[written..until_byte]);
            match tokio::time::timeout_at(until.into(), writing).await {
                Ok(Ok(some)) if some > 0 => {
                    written += some;
                    if written == until_byte {
                        until_byte = ends_at(written);
                    }
                    taken += some;
                    if taken >= service.limits.output_progress_bytes {
                        (taken, until) = (0, Instant::now() + stall);
                    }
                }
                Ok(_) => end = Some(ConnectionEnd::Closed),
                Err(_) => end = Some(ConnectionEnd::Said(STALLED)),
            }
        }
        if end.is_none() {
            match tokio::time::timeout(stall, self.stream.flush()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => end = Some(ConnectionEnd::Closed),
                Err(_) => end = Some(ConnectionEnd::Said(STALLED)),
            }
        }
        drop(output);
        if matches!(end, Some(ConnectionEnd::Said(_))) {
            count(&counts.stalled);
        }
        counts.bytes_out.fetch_add(written as u64, Ordering::Relaxed);
        self.out.clear();
        self.rooms.clear();
        if self.out.capacity() > 2 * WRITE_BYTES {
            // Release the buffer: a long listing should not keep so much memory.
            self.out = Vec::new();
        }
        end.map_or(Ok(()), Err)
    }

    /// Handles a request: answers it, or starts a task for it.
    async fn take(
        &mut self,
        header: RequestHeader,
        carried: Bytes,
        put: &mpsc::Sender<ResponsePart>,
        tasks: &mut JoinSet<()>,
    ) -> Option<ConnectionEnd> {
        // Some clients ask again later; the repetition changes nothing.
        if header.request == request::PROTOCOL && matches!(self.stage, Stage::Authenticated(..)) {
            let roles = self.roles(&header).await.0 & !(role::GO_TO_TLS | role::TLS_LOGIN);
            response::write_protocol(&mut self.out, header.stream, roles);
            return None;
        }
        let Stage::Authenticated(conversation, known) = &mut self.stage else {
            return self.introduce(header, &carried, put).await;
        };
        let service = &self.face.service;
        if service.must_check_again(&known.checked) {
            if let Err(error) = known.check_again(service).await {
                if matches!(error.kind, ErrorKind::Unauthenticated | ErrorKind::Denied) {
                    count(&service.instruments.counts.revalidations_refused);
                    refuse(&mut self.out, header.stream, &error.into());
                    return Some(ConnectionEnd::Said("the client's credentials are no longer valid"));
                }
                refuse(&mut self.out, header.stream, &error.into());
                return None;
            }
            if !Arc::ptr_eq(&known.requester.caller, &conversation.requester.caller) {
                *conversation = Arc::new(Conversation {
                    requester: known.requester.clone(),
                    ..Conversation::clone(conversation)
                });
            }
        }
        let mut work: Pin<Box<dyn Future<Output = ResponsePart> + Send>> =
            Box::pin(answer(Arc::clone(conversation), header, carried));
        match work.as_mut().now_or_never() {
            Some(part) => {
                self.out.extend_from_slice(&part.bytes);
                self.rooms.extend(part.room);
            }
            None => {
                self.waiting += 1;
                let put = put.clone();
                tasks.spawn(async move {
                    let part = work.await;
                    // If nobody takes it, the connection is gone.
                    let _ = put.send(part).await;
                });
            }
        }
        None
    }

    /// Returns the roles of this server for the client, and whether TLS starts now.
    async fn roles(&self, header: &RequestHeader) -> (u32, bool) {
        let abilities = match Request::parse(header, &[]) {
            Ok(Request::Protocol { abilities, .. }) => abilities,
            _ => 0,
        };
        let roles = role::MANAGER | role::HAS_TLS;
        if self.stream.is_secure() {
            return (roles, false);
        }
        let able = abilities & (ability::TLS | ability::WANT_TLS) != 0;
        let wants = abilities & ability::WANT_TLS != 0;
        // Where a client may read without a token, there is nothing to hide.
        let upgrade = able && (wants || !self.is_open().await);
        if upgrade { (roles | role::GO_TO_TLS | role::TLS_LOGIN, true) } else { (roles, false) }
    }

    /// True if the client needs no token.
    async fn is_open(&self) -> bool {
        let peer = self.peer.ip();
        is_trusted(&self.face, peer) || matches!(KnownClient::by_place(&self.face, peer).await, Ok(Some(_)))
    }

    /// Handles requests before authentication.
    async fn introduce(
        &mut self,
        header: RequestHeader,
        carried: &[u8],
        put: &mpsc::Sender<ResponsePart>,
    ) -> Option<ConnectionEnd> {
        let stream = header.stream;
        let parsed = match Request::parse(&header, carried) {
            Ok(parsed) => parsed,
            Err(error) => {
                refuse(&mut self.out, stream, &error.into());
                return None;
            }
        };
        match (parsed, &self.stage) {
            (Request::Protocol { .. }, _) => {
                let (roles, upgrade) = self.roles(&header).await;
                response::write_protocol(&mut self.out, stream, roles);
                if upgrade { self.secure().await } else { None }
            }
            (Request::Login { .. }, _) if matches!(self.entrance, Entrance::Refused(_)) => {
                let busy = busy("connections");
                response::write_error(&mut self.out, stream, error::OVERLOADED, &busy.message);
                Some(ConnectionEnd::Said("no slot for the connection"))
            }
            (Request::Login { .. }, _) if self.face.service.is_drained() => {
                let why =
                    self.face.service.closed_to_network().map_or_else(String::new, |error| error.message);
                response::write_error(&mut self.out, stream, error::OVERLOADED, &why);
                Some(ConnectionEnd::Said("the server is drained"))
            }
            (Request::Login { user, about, .. }, Stage::Login) => self.login(stream, user, about, put).await,
            (Request::Auth(credentials), Stage::Auth { user, about }) => {
                let (user, about) = (user.clone(), about.clone());
                match KnownClient::by_credentials(&self.face, credentials, self.peer.ip()).await {
                    Ok(known) => {
                        response::write_ok(&mut self.out, stream, &[]);
                        self.log_in(known, &user, &about, put);
                        None
                    }
                    Err(error) => self.not_let_in(stream, error),
                }
            }
            (Request::Ping | Request::EndSession | Request::Set, _) => {
                response::write_ok(&mut self.out, stream, &[]);
                None
            }
            (_, stage) => {
                let first = if matches!(stage, Stage::Login) { "log in" } else { "show who you are" };
                let refusal = Refusal::new(
                    error::INVALID_REQUEST,
                    format!("{} before authentication: {first} first", header.name()),
                );
                refuse(&mut self.out, stream, &refusal);
                None
            }
        }
    }

    fn not_let_in(&mut self, stream: StreamId, error: Error) -> Option<ConnectionEnd> {
        count(&self.face.service.instruments.counts.authentications_refused);
        tracing::info!(peer = %self.peer, %error, "not let in");
        let refusal = match Refusal::from(error) {
            Refusal::Error(error::NOT_AUTHORIZED, why) => Refusal::Error(error::AUTH_FAILED, why),
            other => other,
        };
        refuse(&mut self.out, stream, &refusal);
        self.tries += 1;
        (self.tries >= TRIES_MAX).then_some(ConnectionEnd::Said("nothing that it showed was good"))
    }

    /// Starts TLS.
    async fn secure(&mut self) -> Option<ConnectionEnd> {
        if let Err(end) = self.flush().await {
            return Some(end);
        }
        // Bytes sent ahead of TLS may come from an attacker on the way.
        if self.decoder.waiting() > 0 {
            return Some(ConnectionEnd::Said("something was sent ahead of TLS"));
        }
        let Stream::Plain(stream) = std::mem::replace(&mut self.stream, Stream::Gone) else {
            return Some(ConnectionEnd::Closed);
        };
        let left = self.face.service.limits.handshake_time.saturating_sub(self.opened.elapsed());
        let Some(stream) = handshake(left, &self.face.acceptor, stream, &self.peer).await else {
            return Some(ConnectionEnd::Closed);
        };
        self.stream = Stream::Secure(Box::new(stream));
        None
    }

    /// Admits clients that need no credentials; tells others the accepted kinds.
    async fn login(
        &mut self,
        stream: StreamId,
        user: String,
        about: String,
        put: &mpsc::Sender<ResponsePart>,
    ) -> Option<ConnectionEnd> {
        let peer = self.peer.ip();
        let place = match KnownClient::by_place(&self.face, peer).await {
            Ok(place) => place,
            Err(error) => return self.not_let_in(stream, error),
        };
        let trusted = is_trusted(&self.face, peer);
        let Ok(session) = randomness::bytes() else { return Some(ConnectionEnd::Said(randomness::NONE)) };
        let mut protocols = String::new();
        if self.stream.is_secure() {
            protocols.push_str(TOKENS);
        }
        if trusted {
            protocols.push_str(ACCOUNTS);
        }
        match place {
            Some(known) if protocols.is_empty() => {
                response::write_login(&mut self.out, stream, session, "");
                self.log_in(known, &user, &about, put);
                return None;
            }
            Some(_) => protocols.push_str(PLACES),
            None => {}
        }
        if protocols.is_empty() {
            count(&self.face.service.instruments.counts.authentications_refused);
            let refusal = Refusal::new(
                error::TLS_REQUIRED,
                "a token is needed, and is taken over TLS only: use roots://",
            );
            refuse(&mut self.out, stream, &refusal);
            return Some(ConnectionEnd::Said("a token is needed, and the client has no TLS"));
        }
        response::write_login(&mut self.out, stream, session, &protocols);
        self.stage = Stage::Auth { user, about };
        None
    }

    fn log_in(&mut self, known: KnownClient, user: &str, about: &str, put: &mpsc::Sender<ResponsePart>) {
        let secure = self.stream.is_secure();
        tracing::debug!(peer = %self.peer, user = known.name(), says = user, program = about, secure, "client authenticated");
        self.decoder.known();
        if let (Entrance::Taken(slot), true) = (&mut self.entrance, known.requester.caller.user().is_some()) {
            slot.known();
        }
        let conversation = Conversation {
            face: Arc::clone(&self.face),
            requester: known.requester.clone(),
            peer: self.peer.ip(),
            local: self.local,
            site: self.face.places.site_of(self.peer.ip()),
            source: source_of(user),
            is_private: secure || self.peer.ip().to_canonical().is_loopback(),
            cancel: Arc::clone(&self.cancel),
            listings: Arc::clone(&self.listings),
            unread: self.unread.clone(),
            put: put.clone(),
        };
        self.stage = Stage::Authenticated(Arc::new(conversation), known);
    }
}

/// Offer of tokens: not before a time, of so many bytes at most.
const TOKENS: &str = "&P=ztn,0:4096:";
/// Offer of the client's account name.
const ACCOUNTS: &str = "&P=unix";
/// Offer of the client's address.
const PLACES: &str = "&P=host";
