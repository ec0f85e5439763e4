//! One websocket: requests in, answers out, in order. The connection keeps reading while a command
//! runs, so that it answers pings. Pending requests and unread answers are bounded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use super::Face;
use super::messages::{AnswerPart, ShellRequest};
use super::repeats::{Client, Resumed, Said, Unsure};
use super::shell::Shell;
use crate::admission::Bounded;
use crate::instruments::count;
use crate::randomness;

/// Bytes read at once.
pub(super) const READ_BYTES: usize = 8 << 10;
/// Bytes gathered before they are written.
pub(super) const WRITE_BYTES: usize = 16 << 10;
/// Most bytes of one frame. The codec's buffer holds a whole one, and never shrinks.
const FRAME_BYTES: usize = 16 << 10;
/// Most bytes of written answers that the client has not taken. The connection makes further frames
/// only as far as they fit into the buffer.
pub(super) const WRITE_BYTES_MAX: usize = 1 << 20;
/// Most parts of answers that wait to be written.
const PARTS_WAITING_MAX: usize = 2;
/// Time for the client to confirm the end of the connection.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The way a connection ends.
enum ConnectionEnd {
    /// The client closed it.
    Closed,
    /// The connection broke.
    Broken,
    /// The server closes it, with a reason.
    Say(CloseCode, &'static str),
}

/// One websocket connection.
pub(super) struct Connection {
    face: Arc<Face>,
    websocket: WebSocketStream<TlsStream<TcpStream>>,
    client: Client,
    peer: SocketAddr,
    opened: Instant,
    last_request: Instant,
    unsure: Unsure,
    resumed: Option<Resumed>,
    begun: bool,
    waiting: usize,
}

impl Connection {
    pub(crate) fn new(
        face: Arc<Face>,
        websocket: WebSocketStream<TlsStream<TcpStream>>,
        client: Client,
        peer: SocketAddr,
        opened: Instant,
    ) -> Self {
        Connection {
            face,
            websocket,
            client,
            peer,
            opened,
            last_request: Instant::now(),
            unsure: Unsure::default(),
            resumed: None,
            begun: false,
            waiting: 0,
        }
    }

    /// Serves the connection to its end.
    pub(crate) async fn run(mut self, mut shell: Shell) {
        let limits = Arc::clone(&self.face.service.limits);
        let (ask, asked) = mpsc::channel(limits.jalien_requests_max);
        let (put, parts) = mpsc::channel(PARTS_WAITING_MAX);
        let standing = shell.standing_shared();
        let cancel = shell.cancel();
        let until = self.opened + limits.jalien_session_time.min(shell.valid_for());
        let work = shell.work(asked, put);
        tokio::pin!(work);
        let end = tokio::select! {
            // The work ends when `ask` is dropped, not before.
            () = &mut work => ConnectionEnd::Broken,
            end = self.converse(ask, parts, until) => end,
        };
        match &end {
            ConnectionEnd::Broken => {
                let (client, unsure) = (self.client.clone(), std::mem::take(&mut self.unsure));
                let standing = standing.lock().clone();
                self.face.repeats.broke(client, unsure, standing);
            }
            ConnectionEnd::Say(code, why) => {
                let frame = CloseFrame { code: *code, reason: (*why).into() };
                let _ = tokio::time::timeout(LAST_WORDS, async {
                    let _ = self.websocket.close(Some(frame)).await;
                    while let Some(Ok(_)) = self.websocket.next().await {}
                    // The rest of a request that was too long still arrives. Closing with unread
                    // bytes would make the system discard the last message.
                    let stream = self.websocket.get_mut();
                    let _ = stream.shutdown().await;
                    let mut rest = [0u8; 4096];
                    while matches!(stream.read(&mut rest).await, Ok(read) if read > 0) {}
                })
                .await;
            }
            ConnectionEnd::Closed => {
                let _ = tokio::time::timeout(LAST_WORDS, self.websocket.close(None)).await;
            }
        }
        let how = match end {
            ConnectionEnd::Closed => "closed by the client",
            ConnectionEnd::Broken => "broken",
            ConnectionEnd::Say(_, why) => why,
        };
        tracing::debug!(peer = %self.peer, how, "connection ended");
        drop(self);
        // Reads stop; a write that started is awaited to its end.
        cancel.cancel();
        work.await;
    }

    async fn converse(
        &mut self,
        ask: mpsc::Sender<ShellRequest>,
        mut parts: mpsc::Receiver<AnswerPart>,
        until: Instant,
    ) -> ConnectionEnd {
        let limits = Arc::clone(&self.face.service.limits);
        let own = Bounded::new(limits.jalien_request_bytes_max);
        let stopping = self.face.service.closing_to_network();
        tokio::pin!(stopping);
        loop {
            let idle = self.last_request + limits.jalien_idle_time;
            let is_open = self.face.service.closed_to_network().is_none();
            let room = ask.capacity() > 0 && own.now() < own.max() && is_open;
            if self.waiting == 0 && !is_open {
                return ConnectionEnd::Say(CloseCode::Restart, "the server stops or is drained");
            }
            tokio::select! {
                biased;
                () = &mut stopping, if is_open => {}
                Some(part) = parts.recv() => {
                    if let Some(end) = self.send(part, &mut parts).await {
                        return end;
                    }
                }
                message = self.websocket.next(), if room => match message {
                    Some(Ok(Message::Text(text))) => {
                        if let Some(end) = self.take(text.as_str(), &ask, &own) {
                            return end;
                        }
                    }
                    Some(Ok(Message::Binary(_))) => {
                        return ConnectionEnd::Say(CloseCode::Unsupported, "requests are texts");
                    }
                    // The codec answers pings.
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Close(_))) => return ConnectionEnd::Closed,
                    Some(Err(WebSocketError::Capacity(_))) => {
                        count(&self.face.service.instruments.counts.frames_refused);
                        return ConnectionEnd::Say(CloseCode::Size, "the request is too long");
                    }
                    Some(Err(WebSocketError::Utf8(_))) => {
                        count(&self.face.service.instruments.counts.frames_refused);
                        return ConnectionEnd::Say(CloseCode::Invalid, "a request is UTF-8");
                    }
                    Some(Err(WebSocketError::Protocol(error))) => {
                        tracing::debug!(peer = %self.peer, %error, "not a websocket any more");
                        count(&self.face.service.instruments.counts.frames_refused);
                        return ConnectionEnd::Broken;
                    }
                    Some(Err(_)) | None => return ConnectionEnd::Broken,
                },
                () = tokio::time::sleep_until(idle.into()), if self.waiting == 0 => {
                    count(&self.face.service.instruments.counts.idle);
                    return ConnectionEnd::Say(CloseCode::Again, "Session timed out");
                }
                () = tokio::time::sleep_until(until.into()), if self.waiting == 0 => {
                    return ConnectionEnd::Say(CloseCode::Again, "Session timed out");
                }
            }
        }
    }

    /// Registers a request and passes it on.
    fn take(
        &mut self,
        text: &str,
        ask: &mpsc::Sender<ShellRequest>,
        own: &Arc<Bounded>,
    ) -> Option<ConnectionEnd> {
        let counts = &self.face.service.instruments.counts;
        counts.bytes_in.fetch_add(text.len() as u64, Ordering::Relaxed);
        self.last_request = Instant::now();
        let said = Said::of(text);
        let mut standing = None;
        let mut id = None;
        let mut astray = false;
        if !std::mem::replace(&mut self.begun, true) {
            if begins_anew(text) {
                // A new program starts at home.
            } else if let Some(resumed) = self.face.repeats.resume(&self.client, said) {
                count(&counts.resumed);
                (id, standing) = (Some(resumed.id), Some(resumed.standing.clone()));
                self.resumed = Some(resumed);
            } else {
                astray = true;
            }
        } else if let Some(resumed) = &mut self.resumed {
            id = resumed.next(said);
            if id.is_none() {
                self.resumed = None;
            }
        }
        let id = match id {
            Some(id) => id,
            None => match self.face.service.catalogue.new_operation_id() {
                Ok(id) => id,
                Err(_) => return Some(ConnectionEnd::Say(CloseCode::Error, randomness::NONE)),
            },
        };
        self.unsure.ask(said, id);
        let bytes = text.len();
        // Within the bound before this request: one request, itself bounded, may exceed it.
        let Some(held_own) = own.take(bytes.min(own.max().saturating_sub(own.now()))) else {
            return Some(ConnectionEnd::Broken);
        };
        let held = self.face.service.admission.request_bytes.take(bytes);
        let asked = ShellRequest { text: text.to_owned(), id, standing, astray, held, _own: held_own };
        match ask.try_send(asked) {
            Ok(()) => {
                self.waiting += 1;
                None
            }
            // There was room when it was read, and nobody else sends.
            Err(_) => Some(ConnectionEnd::Broken),
        }
    }

    /// Sends a part, and those that wait behind it.
    async fn send(
        &mut self,
        part: AnswerPart,
        parts: &mut mpsc::Receiver<AnswerPart>,
    ) -> Option<ConnectionEnd> {
        let stall = self.face.service.limits.output_stall;
        let mut next = Some(part);
        let mut rooms = Vec::new();
        while let Some(part) = next.take() {
            if rooms.len() >= PARTS_WAITING_MAX {
                // A flush frees the room of parts that the client has read.
                if let Some(end) = self.flush().await {
                    return Some(end);
                }
                rooms.clear();
            }
            rooms.extend(part.room);
            let bytes = part.bytes.len() as u64;
            self.face.service.instruments.counts.bytes_out.fetch_add(bytes, Ordering::Relaxed);
            let mut code = if part.first { Data::Text } else { Data::Continue };
            let mut rest = Bytes::from(part.bytes);
            let until = Instant::now() + stall;
            loop {
                let some = rest.split_to(rest.len().min(FRAME_BYTES));
                let last = part.last && rest.is_empty();
                let frame = Message::Frame(Frame::message(some, OpCode::Data(code), last));
                match tokio::time::timeout_at(until.into(), self.websocket.feed(frame)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return Some(ConnectionEnd::Broken),
                    Err(_) => return Some(self.stalled()),
                }
                if rest.is_empty() {
                    break;
                }
                code = Data::Continue;
            }
            if part.last {
                self.waiting = self.waiting.saturating_sub(1);
                self.last_request = Instant::now();
                if let Some(before) = part.before {
                    self.unsure.answered(before);
                }
            }
            if part.closes {
                let _ = tokio::time::timeout(LAST_WORDS, self.websocket.flush()).await;
                return Some(ConnectionEnd::Say(
                    CloseCode::Policy,
                    "the certificate is not accepted any more",
                ));
            }
            next = parts.try_recv().ok();
        }
        self.flush().await
    }

    /// Flushes written bytes to the client, as long as it reads.
    async fn flush(&mut self) -> Option<ConnectionEnd> {
        let stall = self.face.service.limits.output_stall;
        match tokio::time::timeout(stall, self.websocket.flush()).await {
            Ok(Ok(())) => None,
            Ok(Err(_)) => Some(ConnectionEnd::Broken),
            Err(_) => Some(self.stalled()),
        }
    }

    fn stalled(&self) -> ConnectionEnd {
        count(&self.face.service.instruments.counts.stalled);
        ConnectionEnd::Broken
    }
}

/// True for the first request of a program that starts anew.
fn begins_anew(text: &str) -> bool {
    ["\"commandlist\"", "\"setSite\""].iter().any(|command| {
        text.split_once("\"command\"")
            .is_some_and(|(_, rest)| rest.trim_start_matches([' ', ':']).starts_with(command))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_start_anew_are_told_from_those_that_come_back() {
        assert!(begins_anew(r#"{"command": "commandlist", "options": []}"#));
        assert!(begins_anew(r#"{"command":"setSite","options":["CERN"]}"#));
        assert!(!begins_anew(r#"{"command": "rm", "options": ["commandlist"]}"#));
        assert!(!begins_anew(r#"{"command": "cd", "options": ["\"setSite\""]}"#));
    }
}
