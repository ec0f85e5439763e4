//! Session with a server of XRootD: greeting, TLS, login; requests and answers.

use std::io;
use std::sync::Arc;

use exacat_replay::run::outcome::Outcome;
use exacat_wire::xrootd::client::answer::{LoginAnswer, ProtocolAnswer};
use exacat_wire::xrootd::client::request::{Login, Proof, write_auth, write_login, write_protocol};
use exacat_wire::xrootd::client::{Answer, Answers};
use exacat_wire::xrootd::limits::SHORT_ANSWER_BYTES_MAX;
use exacat_wire::xrootd::numbers::{SERVER_VERSION, ability, role};
use exacat_wire::xrootd::{HANDSHAKE, StreamId};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::agent::access::Failure;
use crate::agent::dial::{Both, secured, tcp};
use crate::agent::limits::{CONNECT_TIME_MAX, RECEIVE_BYTES_MAX, RECEIVE_BYTES_MIN, WAIT_MIN};
use crate::agent::place::{Server, TokenPolicy};

/// Name of the user, where a server wants one.
const USER: &str = "exacat";
/// Kinds of credentials that an error names.
const METHODS_SHOWN: usize = 4;

/// Session with a server.
pub(crate) struct Session {
    stream: Box<dyn Both>,
    answers: Answers,
    out: Vec<u8>,
    last: u16,
    /// Bytes that are expected beside short answers: the room of a receive follows them.
    expected: u64,
    /// Roles of the server.
    pub roles: u32,
    is_protected: bool,
    /// True if the session was used before, and the server may have ended it since.
    pub is_used: bool,
    /// True if an answer came since the session was taken into use.
    pub has_answered: bool,
    /// Time since when nobody uses it.
    pub idle_since: Instant,
}

/// Trust and credentials of a client.
#[derive(Clone)]
pub(crate) struct Identity {
    /// Trust in certificates; without it nothing is protected.
    pub tls: Option<Arc<ClientConfig>>,
    /// The token.
    pub token: TokenPolicy,
}

/// Answer to a short request: its body; or the place to which the server redirects.
#[derive(Debug)]
pub(crate) enum Short {
    Body(Vec<u8>),
    Redirect { port: i32, place: String },
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Outcome::Connection, format!("the connection broke: {error}"))
}

/// Makes the failure of bytes that are not of the protocol.
pub(crate) fn nonsense(why: impl std::fmt::Display) -> Failure {
    Failure::new(Outcome::Protocol, format!("not an answer of XRootD: {why}"))
}

impl Session {
    /// Connects, and logs in.
    pub(crate) async fn begin(server: &Server, identity: &Identity) -> Result<Session, Failure> {
        let late =
            |_| Failure::new(Outcome::Connection, format!("{server}: no login within {CONNECT_TIME_MAX:?}"));
        tokio::time::timeout(CONNECT_TIME_MAX, greet(server, identity)).await.map_err(late)?
    }

    fn new(stream: Box<dyn Both>) -> Self {
        Session {
            stream,
            answers: Answers::new(),
            out: Vec::new(),
            last: 0,
            expected: 0,
            roles: 0,
            is_protected: false,
            is_used: false,
            has_answered: false,
            idle_since: Instant::now(),
        }
    }

    /// Returns the id of a new request, and the buffer that it is written into.
    pub(crate) fn request(&mut self) -> (StreamId, &mut Vec<u8>) {
        self.last = self.last.wrapping_add(1);
        (StreamId(self.last.to_be_bytes()), &mut self.out)
    }

    /// Notes bytes of data that a request asks for.
    pub(crate) fn expect(&mut self, bytes: u64) {
        self.expected = self.expected.saturating_add(bytes);
    }

    /// Sends the requests that were written.
    pub(crate) async fn send(&mut self) -> Result<(), Failure> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).await.map_err(|error| broken(&error))?;
            self.stream.flush().await.map_err(|error| broken(&error))?;
            self.out.clear();
        }
        Ok(())
    }

    /// Returns the next answer, or part of one.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Failure> {
        loop {
            if let Some(answer) = self.answers.answer().map_err(nonsense)? {
                self.has_answered = true;
                if let Answer::Body { bytes, .. } | Answer::Page { bytes, .. } = &answer {
                    self.expected = self.expected.saturating_sub(bytes.len() as u64);
                }
                return Ok(answer);
            }
            let wanted = usize::try_from(self.expected).unwrap_or(usize::MAX);
            let room = wanted.saturating_add(RECEIVE_BYTES_MIN).min(RECEIVE_BYTES_MAX);
            let buffer = self.answers.buffer();
            if buffer.capacity() - buffer.len() < room.min(RECEIVE_BYTES_MAX / 2) {
                buffer.reserve(room);
            }
            let count = self.stream.read_buf(self.answers.buffer()).await.map_err(|error| broken(&error))?;
            if count == 0 {
                return Err(Failure::new(Outcome::Connection, "the server closed the connection"));
            }
        }
    }

    /// Takes the session out of use.
    pub(super) fn rest(&mut self) {
        (self.expected, self.is_used, self.has_answered) = (0, true, false);
        self.idle_since = Instant::now();
    }

    /// Says whether nothing is left of earlier requests, so that the session can be used again.
    pub(crate) fn is_clean(&self) -> bool {
        self.out.is_empty() && self.answers.is_between_answers()
    }

    /// Sends a request with a short answer, and sends it again while the server asks to wait.
    pub(crate) async fn short(
        &mut self,
        write: impl Fn(&mut Vec<u8>, StreamId) -> exacat_model::Result<()>,
    ) -> Result<Short, Failure> {
        loop {
            let (stream, out) = self.request();
            write(out, stream).map_err(|error| Failure::new(Outcome::Agent, error.message))?;
            self.send().await?;
            let mut body = Vec::new();
            let seconds = loop {
                let answer = self.answer().await?;
                if answer.stream() != stream {
                    return Err(nonsense("an answer to no request"));
                }
                match answer {
                    Answer::Body { bytes, .. } if body.len() + bytes.len() <= SHORT_ANSWER_BYTES_MAX => {
                        body.extend_from_slice(&bytes);
                    }
                    Answer::Done { .. } => return Ok(Short::Body(body)),
                    Answer::Redirect { port, place, .. } => return Ok(Short::Redirect { port, place }),
                    Answer::Error { number, text, .. } => return Err(Failure::of_xrootd(number, &text)),
                    Answer::Wait { seconds, .. } => break seconds,
                    Answer::Later { .. } => {}
                    _ => return Err(nonsense("an answer of another kind than the request")),
                }
            };
            pause(seconds).await;
        }
    }

    /// Sends a request whose answer is no redirection.
    async fn body(
        &mut self,
        write: impl Fn(&mut Vec<u8>, StreamId) -> exacat_model::Result<()>,
    ) -> Result<Vec<u8>, Failure> {
        match self.short(write).await? {
            Short::Body(body) => Ok(body),
            Short::Redirect { .. } => Err(nonsense("a redirection of a login")),
        }
    }
}

/// Waits as long as a server asked for.
pub(crate) async fn pause(seconds: u32) {
    let time = std::time::Duration::from_secs(u64::from(seconds));
    tokio::time::sleep(time.max(WAIT_MIN)).await;
}

/// Gives a failure of the greeting its class: whatever a server answers there, no file is concerned.
fn of_handshake(server: &Server, failure: Failure) -> Failure {
    let outcome = match failure.outcome {
        Outcome::Denied | Outcome::Expired | Outcome::Connection | Outcome::Protocol => failure.outcome,
        _ => Outcome::Handshake,
    };
    Failure { outcome, why: format!("{server}: {}", failure.why), ..failure }
}

/// Connects, agrees on the protocol, protects the connection if one side wants that, and logs in.
async fn greet(server: &Server, identity: &Identity) -> Result<Session, Failure> {
    let refused = |error: io::Error| Failure::new(Outcome::Connection, format!("{server}: {error}"));
    let stream = tcp(&server.host, server.port).await.map_err(refused)?;
    let mut session = Session::new(Box::new(stream));
    let greeted = async {
        session.agree(server, identity).await?;
        let is_early = session.roles & (role::GO_TO_TLS | role::TLS_LOGIN) != 0;
        if is_early {
            session.protect(server, identity).await?;
        }
        if server.secure && !session.is_protected {
            return Err(Failure::new(Outcome::Handshake, "it has no TLS, and the address asks for it"));
        }
        session.log_in(server, identity).await?;
        if !is_early && session.roles & role::TLS_SESSION != 0 {
            session.protect(server, identity).await?;
        }
        Ok(())
    };
    greeted.await.map_err(|failure| of_handshake(server, failure))?;
    session.has_answered = false;
    Ok(session)
}

impl Session {
    /// Exchanges greetings, and agrees on the protocol.
    async fn agree(&mut self, server: &Server, identity: &Identity) -> Result<(), Failure> {
        let abilities = match (&identity.tls, server.secure) {
            (None, true) => {
                let why = "the address asks for TLS: name the authorities to trust";
                return Err(Failure::new(Outcome::Handshake, why));
            }
            (None, false) => 0,
            (Some(_), false) => ability::TLS,
            (Some(_), true) => ability::TLS | ability::WANT_TLS,
        };
        self.out.extend_from_slice(&HANDSHAKE);
        let (stream, out) = self.request();
        write_protocol(out, stream, abilities);
        self.send().await?;
        // The greeting has no id; the agreement has one.
        self.collect(StreamId::default()).await?;
        let agreed = self.collect(stream).await?;
        let agreed = ProtocolAnswer::read(&agreed).ok_or_else(|| nonsense("an agreement without roles"))?;
        self.roles = agreed.roles;
        Ok(())
    }

    /// Returns the body of a success.
    async fn collect(&mut self, stream: StreamId) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        loop {
            match self.answer().await? {
                Answer::Body { stream: of, bytes }
                    if of == stream && body.len() + bytes.len() <= SHORT_ANSWER_BYTES_MAX =>
                {
                    body.extend_from_slice(&bytes);
                }
                Answer::Done { stream: of } if of == stream => return Ok(body),
                Answer::Error { number, text, .. } => return Err(Failure::of_xrootd(number, &text)),
                _ => return Err(nonsense("another answer than to the greeting")),
            }
        }
    }

    /// Continues in TLS.
    async fn protect(&mut self, server: &Server, identity: &Identity) -> Result<(), Failure> {
        let failed = |why: String| Failure::new(Outcome::Handshake, why);
        let untrusted = || failed("it requires TLS: name the authorities to trust".to_owned());
        let config = identity.tls.as_ref().ok_or_else(untrusted)?;
        if !self.is_clean() {
            // Unprotected bytes behind the agreement would count as protected ones.
            return Err(nonsense("bytes before the beginning of TLS"));
        }
        let plain = std::mem::replace(&mut self.stream, Box::new(tokio::io::empty()));
        let stream = secured(config, &server.host, plain).await;
        self.stream = Box::new(stream.map_err(|error| failed(format!("TLS: {error}")))?);
        self.is_protected = true;
        Ok(())
    }

    /// Logs in, and shows the credentials that the server accepts.
    async fn log_in(&mut self, server: &Server, identity: &Identity) -> Result<(), Failure> {
        let about = format!("xrd.appname=exacat&xrd.rn={SERVER_VERSION}");
        let login = Login { process: std::process::id(), user: USER, about: &about };
        let answer = self
            .body(|out, stream| {
                write_login(out, stream, &login);
                Ok(())
            })
            .await?;
        let answer = LoginAnswer::read(&answer).ok_or_else(|| nonsense("an answer to no login"))?;
        if answer.is_complete() {
            return Ok(());
        }
        let token = identity.token.for_login(server).filter(|_| self.is_protected);
        let proofs = answer.methods().filter_map(|method| match method {
            "ztn" => token.map(Proof::Token),
            "unix" => Some(Proof::Unix(USER)),
            "host" => Some(Proof::Host),
            _ => None,
        });
        // A token says more than the others, whatever the order in which the server names them.
        let proof = proofs.min_by_key(|proof| !matches!(proof, Proof::Token(_))).ok_or_else(|| {
            let methods: Vec<&str> = answer.methods().take(METHODS_SHOWN).collect();
            let why = format!("it requires one of {methods:.20?}, and the agent has none of them");
            Failure::new(Outcome::Handshake, why)
        })?;
        self.body(|out, stream| write_auth(out, stream, &proof)).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;
    use crate::agent::settings::CacheSettings;

    /// Property: a server that accepts connections and says nothing is given up after its time.
    #[tokio::test(start_paused = true)]
    async fn server_that_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Server { secure: false, host: "127.0.0.1".to_owned(), port };
        let token = TokenPolicy::new(&CacheSettings::new(""), "", false);
        let begun = Instant::now();
        let failure = Session::begin(&server, &Identity { tls: None, token }).await.err().unwrap();
        assert_eq!(failure.outcome, Outcome::Connection);
        let waited = begun.elapsed();
        assert!(waited >= CONNECT_TIME_MAX && waited < CONNECT_TIME_MAX + Duration::from_secs(1));
    }
}
