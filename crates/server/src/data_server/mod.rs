//! Client of data servers: the server's own requests to storage elements, over root:// and HTTPS.

mod content;
mod web;

use std::time::Duration;

use exacat_wire::xrootd::limits::RESPONSE_HEADER_BYTES;
use exacat_wire::xrootd::numbers::{error, request, status};
use exacat_wire::xrootd::response::{ResponseHeader, read_deferred, read_numbered, read_text};
use exacat_wire::xrootd::{HANDSHAKE, StreamId, write_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

pub(crate) use content::{read, write};
pub(crate) use exacat_wire::xrootd::RootUrl as Target;
pub(crate) use web::{WebClient, WebFile, unavailable, web_url};

/// Longest wait for an answer that takes no work.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// Pause before a request is sent again whose answer the data server promised for later; it doubles
/// up to [`REMIND_MAX`]. XRootD servers, at least up to 6.1, lose waiting checksum jobs when another
/// one ends, and start a lost one if it is requested again.
const REMIND_FIRST: Duration = Duration::from_secs(1);
/// Longest such pause.
const REMIND_MAX: Duration = Duration::from_secs(60);
/// Longest time to repeat a request that the data server asks to wait.
const BUSY_TIME: Duration = Duration::from_secs(10);
/// Pause before such a request is repeated, even if the data server suggests a longer one. Clients
/// that wait for the file have less patience than most servers suggest.
const WAIT: Duration = Duration::from_millis(500);
/// Most bytes of one response; requests for parts of a file fit into it.
const RESPONSE_BYTES_MAX: u32 = CONTENT_PART_BYTES + (16 << 10);
/// Bytes of a file in one read or write request.
const CONTENT_PART_BYTES: u32 = 256 << 10;
/// Most responses to other requests before the expected one.
const STRAY_RESPONSES_MAX: u32 = 16;
/// Most redirections of a storage element in a row.
pub(crate) const REDIRECTS_MAX: u32 = 4;
/// Byte of a login with the client's abilities: late answers, as of version 5 of the protocol.
/// Without it a client must come back for a checksum, and the server keeps unclaimed ones.
const CAPABILITIES_AT: usize = 14;
/// Value of [`CAPABILITIES_AT`].
const CAPABILITIES: u8 = 0x80 | 5;
/// Version of the protocol, and this client's name for itself.
const ABOUT: &[u8] = b"xrd.appname=exacat&xrd.rn=v5.5.3";
/// Bytes of the session id in the answer to a login.
const SESSION_BYTES: usize = 16;

/// Reason why a session failed.
pub(crate) enum Trouble {
    /// The data server could not be reached or gave no valid answer.
    Failed(String),
    /// A redirection: to a port of a host, or to a URL.
    Elsewhere(u32, String),
}

pub(crate) type Outcome<T> = Result<T, Trouble>;

pub(crate) fn failed(why: impl Into<String>) -> Trouble {
    Trouble::Failed(why.into())
}

async fn in_time<T>(time: Duration, work: impl Future<Output = T>) -> Outcome<T> {
    tokio::time::timeout(time, work).await.map_err(|_| failed(format!("no answer within {time:?}")))
}

/// An answer: its data, or the number and text of an error.
pub(crate) type Reply = Result<Vec<u8>, (u32, String)>;

/// Session with a data server.
pub(crate) struct Session {
    stream: TcpStream,
    /// Number of the last request. Answers to earlier requests are dropped: a request that was sent
    /// twice may be answered twice.
    last: u16,
}

impl Session {
    /// Connects and logs in.
    pub(crate) async fn begin(target: &Target<'_>) -> Outcome<Self> {
        let host = target.host.trim_start_matches('[').trim_end_matches(']');
        let refused = |error: std::io::Error| failed(format!("{}: {error}", target.address()));
        let connecting = in_time(ANSWER_TIME, TcpStream::connect((host, target.port)));
        let stream = connecting.await?.map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        let mut there = Session { stream, last: 0 };
        there.send(&HANDSHAKE).await?;
        in_time(ANSWER_TIME, there.response()).await??;
        let mut login = [0; 16];
        login[..4].copy_from_slice(&std::process::id().to_be_bytes());
        login[4..10].copy_from_slice(b"exacat");
        login[CAPABILITIES_AT] = CAPABILITIES;
        let response = there.done(request::LOGIN, login, ABOUT).await?;
        let protocols = response.get(SESSION_BYTES..).and_then(read_text).unwrap_or_default();
        if protocols.is_empty() {
            return Ok(there);
        }
        // These kinds of login need no proof; the envelope grants the rights.
        let methods: [(&str, [u8; 4], &[u8]); 2] =
            [("&P=unix", *b"unix", b"unix\0exacat exacat\0"), ("&P=host", *b"host", b"host\0")];
        let Some((_, kind, shown)) = methods.into_iter().find(|(name, ..)| protocols.contains(name)) else {
            return Err(failed(format!("it requires authentication by {protocols:.100}")));
        };
        let mut body = [0; 16];
        body[12..].copy_from_slice(&kind);
        there.done(request::AUTH, body, shown).await?;
        Ok(there)
    }

    async fn send(&mut self, bytes: &[u8]) -> Outcome<()> {
        let sent = in_time(ANSWER_TIME, self.stream.write_all(bytes)).await?;
        sent.map_err(|error| failed(format!("the connection broke: {error}")))
    }

    /// Returns the stream id of the next request.
    fn next(&mut self) -> StreamId {
        self.last = self.last.wrapping_add(1);
        StreamId(self.last.to_be_bytes())
    }

    /// Returns the next response to the last request: its status and data. Drops unsolicited
    /// responses and answers to earlier requests.
    async fn answer(&mut self, strays: &mut u32) -> Outcome<Option<(u16, Vec<u8>)>> {
        let (mut header, mut carried) = self.response().await?;
        if let (status::ATTN, Some((deferred, answer))) = (header.status, read_deferred(&carried)) {
            (header, carried) = (deferred, answer.to_vec());
        }
        if header.status != status::ATTN && header.stream == StreamId(self.last.to_be_bytes()) {
            return Ok(Some((header.status, carried)));
        }
        *strays += 1;
        if *strays > STRAY_RESPONSES_MAX { Err(failed("too many unsolicited answers")) } else { Ok(None) }
    }

    /// Returns the next response.
    async fn response(&mut self) -> Outcome<(ResponseHeader, Vec<u8>)> {
        let broke = |error: std::io::Error| failed(format!("the connection broke: {error}"));
        let mut header = [0; RESPONSE_HEADER_BYTES];
        self.stream.read_exact(&mut header).await.map_err(broke)?;
        let header = ResponseHeader::read(&header);
        if header.bytes > RESPONSE_BYTES_MAX {
            return Err(failed(format!("an answer of {} bytes", header.bytes)));
        }
        let mut carried = vec![0; usize::try_from(header.bytes).unwrap_or_default()];
        self.stream.read_exact(&mut carried).await.map_err(broke)?;
        Ok((header, carried))
    }

    /// Returns the next part of an answer, and whether another follows.
    async fn part(&mut self) -> Outcome<(bool, Vec<u8>)> {
        let mut strays = 0;
        let (status, carried) = loop {
            if let Some(answer) = self.answer(&mut strays).await? {
                break answer;
            }
        };
        match status {
            status::OK => Ok((false, carried)),
            status::OKSOFAR => Ok((true, carried)),
            status::ERROR => {
                let (number, why) = read_numbered(&carried).unwrap_or((error::SERVER_ERROR, ""));
                Err(failed(format!("{why} ({number})")))
            }
            other => Err(failed(format!("an answer of the kind {other}"))),
        }
    }

    /// Sends a request, and repeats it while the data server asks to wait.
    pub(crate) async fn ask(&mut self, kind: u16, body: [u8; 16], carried: &[u8]) -> Outcome<Reply> {
        self.ask_for(ANSWER_TIME, kind, body, carried).await
    }

    /// Sends a request whose answer may take `time`, and reminds the data server of it meanwhile.
    pub(crate) async fn ask_for(
        &mut self,
        time: Duration,
        kind: u16,
        body: [u8; 16],
        carried: &[u8],
    ) -> Outcome<Reply> {
        let begun = Instant::now();
        let (end, busy_until) = (begun + time, begun + BUSY_TIME);
        let (mut remind, mut pause, mut strays) = (None, REMIND_FIRST, 0);
        let mut bytes = Vec::new();
        write_request(&mut bytes, self.next(), kind, body, carried);
        self.send(&bytes).await?;
        loop {
            if let Some(at) = remind.filter(|at| *at < end)
                && tokio::time::timeout_at(at, self.stream.peek(&mut [0])).await.is_err()
            {
                self.send(&bytes).await?;
                pause = (pause * 2).min(REMIND_MAX);
                remind = Some(Instant::now() + pause);
                continue;
            }
            let left = end.saturating_duration_since(Instant::now());
            let Some((status, carried)) = in_time(left, self.answer(&mut strays)).await?? else { continue };
            match status {
                status::OK => return Ok(Ok(carried)),
                status::ERROR => {
                    let (number, why) = read_numbered(&carried).unwrap_or((error::SERVER_ERROR, ""));
                    return Ok(Err((number, why.to_owned())));
                }
                status::WAIT if Instant::now() < busy_until => {
                    tokio::time::sleep(WAIT).await;
                    self.send(&bytes).await?;
                }
                status::WAIT => return Err(failed("it is overloaded")),
                // The answer follows later.
                status::WAITRESP => remind = remind.or_else(|| Some(Instant::now() + pause)),
                status::REDIRECT => {
                    let response = read_numbered(&carried);
                    let (port, place) =
                        response.ok_or_else(|| failed("a redirection that cannot be read"))?;
                    return Err(Trouble::Elsewhere(port, place.to_owned()));
                }
                other => {
                    let name = status::name(other).unwrap_or("unknown");
                    return Err(failed(format!("an answer of the kind {name}, {other}")));
                }
            }
        }
    }

    pub(crate) async fn done(&mut self, kind: u16, body: [u8; 16], carried: &[u8]) -> Outcome<Vec<u8>> {
        self.ask(kind, body, carried).await?.map_err(|(number, why)| failed(format!("{why} ({number})")))
    }
}

/// Returns the target of a redirection for a request about a PFN.
pub(crate) fn sent_on(pfn: &str, port: u32, place: &str) -> Option<String> {
    let Ok(port) = u16::try_from(port) else {
        return Target::parse(place).map(|_| place.to_owned());
    };
    // The same path on another host. A first `?` precedes its fields, a second one those of the
    // login.
    let mut parts = place.split('?');
    let host = parts.next().filter(|host| !host.is_empty())?;
    let was = Target::parse(pfn)?;
    let url = Target { secure: false, host, port, ..was }.url(parts.next().unwrap_or_default());
    Target::parse(&url).map(|_| url.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_storage_element_sends_on_to_is_understood() {
        let on = |port, place| sent_on("root://a:1//d/f?x=1", port, place);
        assert_eq!(on(7, "b").as_deref(), Some("root://b:7//d/f?x=1"));
        assert_eq!(on(7, "[::1]?y=2?login").as_deref(), Some("root://[::1]:7//d/f?x=1&y=2"));
        assert_eq!(on(u32::MAX, "root://b:8//e?z=3").as_deref(), Some("root://b:8//e?z=3"));
        for (port, place) in [(7, ""), (0, "b"), (7, "a b"), (u32::MAX, "https://b/e"), (u32::MAX, "")] {
            assert_eq!(on(port, place), None, "{port} {place}");
        }
    }
}
