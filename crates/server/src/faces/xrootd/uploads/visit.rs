//! A visit to a storage element: is a file there, is it whole, has whoever wrote it closed it, and what is its checksum?
//!
//! That nobody writes it any more is known by opening it for reading, which a server of XRootD denies as long as somebody has it
//! open for writing. What the file was before that and is after its checksum was told has to be the same.
//!
//! A checksum that was asked for is waited for. A server keeps one that nobody took away for a quarter of an hour, and meanwhile
//! makes one less at a time: visits that leave early would soon have it make none.

use std::time::Duration;

use exacat_model::{Checksum, ChecksumAlgorithm};
use exacat_wire::xrootd::limits::RESPONSE_HEADER_BYTES;
use exacat_wire::xrootd::numbers::{error, flag, open, query, request, status};
use exacat_wire::xrootd::response::{FileStat, ResponseHeader, read_deferred, read_numbered, read_text};
use exacat_wire::xrootd::{HANDSHAKE, StreamId, write_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::faces::xrootd::targets::Target;

/// An answer takes no longer,
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// but for a checksum, for which the whole file is read.
const CHECKSUM_TIME: Duration = Duration::from_secs(600);
/// So long it is asked again where it is said to wait. Nothing is kept for who was told so.
const BUSY_TIME: Duration = Duration::from_secs(10);
/// Bytes of one response; none of those that are asked for is as long.
const RESPONSE_BYTES_MAX: u32 = 16 << 10;
/// Responses that are not the one that is waited for.
const STRAY_RESPONSES_MAX: u32 = 16;
/// Servers that a storage element sends on to, one after the other.
const REDIRECTS_MAX: u32 = 4;
/// What is to be asked again is, after so long, whatever the server says: who asks for the file waits less than most servers say.
const WAIT: Duration = Duration::from_millis(500);
/// Where a login says what who logs in understands: that answers come later, as of version 5 of the protocol. Who does not say so has to come
/// back for a checksum, and a server keeps what nobody came back for.
const CAPABILITIES_AT: usize = 14;
/// See there.
const CAPABILITIES: u8 = 0x80 | 5;
/// The version of the protocol, and what is said of oneself.
const ABOUT: &[u8] = b"xrd.appname=exacat&xrd.rn=v5.5.3";

/// What is looked at.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// Where.
    pub pfn: String,
    /// What to show there, as a field of a URL; nothing if it is empty.
    pub shown: String,
    /// Bytes that the file has when it is whole.
    pub size: u64,
    /// Kinds of checksums that were booked: one of them has to be told.
    pub booked: Vec<ChecksumAlgorithm>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is whole; these are its checksums.
    Whole(Vec<Checksum>),
    /// It is not, or not yet, and why.
    NotYet(String),
    /// It never will be, and why.
    Never(String),
}

/// Why a visit came to nothing.
enum Trouble {
    /// It could not be asked.
    Failed(String),
    /// It is to be asked elsewhere: at a port of a host, or under a URL.
    Elsewhere(u32, String),
}

type Outcome<T> = Result<T, Trouble>;

fn failed(why: impl Into<String>) -> Trouble {
    Trouble::Failed(why.into())
}

async fn in_time<T>(time: Duration, work: impl Future<Output = T>) -> Outcome<T> {
    tokio::time::timeout(time, work).await.map_err(|_| failed(format!("no answer within {time:?}")))
}

/// Looks at a file. What cannot be asked is not there yet.
pub(super) async fn look(question: &Question) -> Found {
    let mut question = question.clone();
    for _ in 0..=REDIRECTS_MAX {
        match visit(&question).await {
            Ok(found) => return found,
            Err(Trouble::Failed(why)) => return Found::NotYet(why),
            Err(Trouble::Elsewhere(port, place)) => match sent_on(&question.pfn, port, &place) {
                Some(pfn) => question.pfn = pfn,
                None => return Found::NotYet("it sends on to no place that can be understood".to_owned()),
            },
        }
    }
    Found::NotYet(format!("it sends on more than {REDIRECTS_MAX} times"))
}

async fn visit(question: &Question) -> Outcome<Found> {
    let target = Target::parse(&question.pfn).ok_or_else(|| failed("no place that is reached by root://"))?;
    if target.secure {
        return Err(failed("it is reached by roots:// only, which is not asked"));
    }
    let mut there = Visit::begin(&target).await?;
    let path = |more: &str| {
        let fields = target.with(&question.shown);
        let fields = [fields.as_str(), more].into_iter().filter(|one| !one.is_empty()).collect::<Vec<_>>();
        let mark = if fields.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", target.path, fields.join("&"))
    };
    let before = match there.stat(&path("")).await? {
        Ok(stat) => stat,
        Err(found) => return Ok(found),
    };
    if before.flags & flag::UNFINISHED != 0 {
        return Ok(Found::NotYet("it is being written".to_owned()));
    }
    if before.size < question.size {
        return Ok(Found::NotYet(format!("{} of {} bytes are there", before.size, question.size)));
    }
    if let Some(found) = there.closed(&path("")).await? {
        return Ok(found);
    }
    if before.size > question.size {
        return Ok(Found::Never(format!("{} bytes are there, {} were booked", before.size, question.size)));
    }
    let mut checksums = Vec::new();
    let asked: Vec<Option<ChecksumAlgorithm>> = match question.booked.as_slice() {
        [] => vec![Some(ChecksumAlgorithm::Adler32), None],
        booked => booked.iter().copied().map(Some).collect(),
    };
    for algorithm in asked {
        let kind = algorithm.map_or_else(String::new, |kind| format!("cks.type={}", kind.name()));
        // One is enough: for each the storage element reads the whole file.
        if !checksums.is_empty() {
            break;
        }
        checksums.extend(there.checksum(&path(&kind), algorithm).await?);
    }
    if checksums.is_empty() && !question.booked.is_empty() {
        return Ok(Found::NotYet(
            "the storage element tells none of the checksums that were booked".to_owned(),
        ));
    }
    match there.stat(&path("")).await? {
        Ok(after) if after == before => Ok(Found::Whole(checksums)),
        Ok(_) => Ok(Found::NotYet("it changed while its checksum was made".to_owned())),
        Err(found) => Ok(found),
    }
}

/// A conversation with a storage element.
struct Visit {
    stream: TcpStream,
}

/// An answer: what it carries, or the number and the sentence of an error.
type Reply = Result<Vec<u8>, (u32, String)>;

impl Visit {
    /// Connects and logs in.
    async fn begin(target: &Target<'_>) -> Outcome<Self> {
        let host = target.host.trim_start_matches('[').trim_end_matches(']');
        let refused = |error: std::io::Error| failed(format!("{}: {error}", target.address()));
        let connecting = in_time(ANSWER_TIME, TcpStream::connect((host, target.port)));
        let stream = connecting.await?.map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        let mut there = Visit { stream };
        there.send(&HANDSHAKE).await?;
        in_time(ANSWER_TIME, there.response()).await??;
        let mut login = [0; 16];
        login[..4].copy_from_slice(&std::process::id().to_be_bytes());
        login[4..10].copy_from_slice(b"exacat");
        login[CAPABILITIES_AT] = CAPABILITIES;
        let told = there.done(request::LOGIN, login, ABOUT).await?;
        let protocols = told.get(SESSION_BYTES..).and_then(read_text).unwrap_or_default();
        if protocols.is_empty() {
            return Ok(there);
        }
        // Who comes by these shows nothing that it would have to prove; what it may do is said by the envelope.
        let known: [(&str, [u8; 4], &[u8]); 2] =
            [("&P=unix", *b"unix", b"unix\0exacat exacat\0"), ("&P=host", *b"host", b"host\0")];
        let Some((_, kind, shown)) = known.into_iter().find(|(name, ..)| protocols.contains(name)) else {
            return Err(failed(format!("it wants to know who asks, by {protocols:.100}")));
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

    /// The next response.
    async fn response(&mut self) -> Outcome<(u16, Vec<u8>)> {
        let broke = |error: std::io::Error| failed(format!("the connection broke: {error}"));
        let mut header = [0; RESPONSE_HEADER_BYTES];
        self.stream.read_exact(&mut header).await.map_err(broke)?;
        let header = ResponseHeader::read(&header);
        if header.bytes > RESPONSE_BYTES_MAX {
            return Err(failed(format!("an answer of {} bytes", header.bytes)));
        }
        let mut carried = vec![0; usize::try_from(header.bytes).unwrap_or_default()];
        self.stream.read_exact(&mut carried).await.map_err(broke)?;
        Ok((header.status, carried))
    }

    /// Asks, and again as long as it is told to wait.
    async fn ask(&mut self, kind: u16, body: [u8; 16], carried: &[u8]) -> Outcome<Reply> {
        self.ask_for(ANSWER_TIME, kind, body, carried).await
    }

    /// The same, for an answer that may take so long.
    async fn ask_for(&mut self, time: Duration, kind: u16, body: [u8; 16], carried: &[u8]) -> Outcome<Reply> {
        let busy_until = Instant::now() + BUSY_TIME;
        let mut strays = 0;
        let mut bytes = Vec::new();
        write_request(&mut bytes, StreamId([0, 1]), kind, body, carried);
        self.send(&bytes).await?;
        loop {
            let (mut status, mut carried) = in_time(time, self.response()).await??;
            if status == status::ATTN {
                match read_deferred(&carried) {
                    Some((header, answer)) => (status, carried) = (header.status, answer.to_vec()),
                    // Something is said that nobody asked for.
                    None if strays < STRAY_RESPONSES_MAX => {
                        strays += 1;
                        continue;
                    }
                    None => {}
                }
            }
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
                status::WAIT => return Err(failed("it has too much to do")),
                // The answer comes when there is one.
                status::WAITRESP => {}
                status::REDIRECT => {
                    let told = read_numbered(&carried);
                    let (port, place) = told.ok_or_else(|| failed("a redirection that cannot be read"))?;
                    return Err(Trouble::Elsewhere(port, place.to_owned()));
                }
                other => {
                    let name = status::name(other).unwrap_or("unknown");
                    return Err(failed(format!("an answer of the kind {name}, {other}")));
                }
            }
        }
    }

    async fn done(&mut self, kind: u16, body: [u8; 16], carried: &[u8]) -> Outcome<Vec<u8>> {
        self.ask(kind, body, carried).await?.map_err(|(number, why)| failed(format!("{why} ({number})")))
    }

    /// What is there; or that nothing is.
    async fn stat(&mut self, path: &str) -> Outcome<Result<FileStat, Found>> {
        match self.ask(request::STAT, [0; 16], path.as_bytes()).await? {
            Ok(told) => match FileStat::read(&told) {
                Some(stat) => Ok(Ok(stat)),
                None => Err(failed("a stat that cannot be read")),
            },
            Err((error::NOT_FOUND, _)) => Ok(Err(Found::NotYet("nothing is there".to_owned()))),
            Err((number, why)) => Err(failed(format!("{why} ({number})"))),
        }
    }

    /// Does nobody write it? None, or what was found instead.
    async fn closed(&mut self, path: &str) -> Outcome<Option<Found>> {
        let mut body = [0; 16];
        body[2..4].copy_from_slice(&open::READ.to_be_bytes());
        match self.ask(request::OPEN, body, path.as_bytes()).await? {
            Ok(told) => {
                let mut body = [0; 16];
                match told.get(..4) {
                    Some(handle) => body[..4].copy_from_slice(handle),
                    None => return Err(failed("a file was opened without a handle")),
                }
                self.done(request::CLOSE, body, b"").await?;
                Ok(None)
            }
            Err((error::FILE_LOCKED, _)) => Ok(Some(Found::NotYet("it is being written".to_owned()))),
            Err((error::NOT_FOUND, _)) => Ok(Some(Found::NotYet("nothing is there".to_owned()))),
            Err((number, why)) => Err(failed(format!("{why} ({number})"))),
        }
    }

    /// Its checksum; none if the storage element makes none of that kind.
    async fn checksum(&mut self, path: &str, wanted: Option<ChecksumAlgorithm>) -> Outcome<Option<Checksum>> {
        let mut body = [0; 16];
        body[..2].copy_from_slice(&query::CHECKSUM.to_be_bytes());
        let told = match self.ask_for(CHECKSUM_TIME, request::QUERY, body, path.as_bytes()).await {
            // Some send those who ask for a checksum, and only those, to the catalogue: that is who asks.
            Err(Trouble::Elsewhere(..)) => return Ok(None),
            told => told?,
        };
        match told {
            Ok(told) => {
                let text = read_text(&told).unwrap_or_default().trim().replacen(' ', ":", 1);
                let checksum = Checksum::parse(&text).ok();
                // A server may tell another kind than it was asked for.
                Ok(checksum.filter(|told| wanted.is_none_or(|wanted| told.algorithm() == wanted)))
            }
            Err((error::UNSUPPORTED | error::ARG_INVALID | error::INVALID_REQUEST, _)) => Ok(None),
            Err((number, why)) => Err(failed(format!("{why} ({number})"))),
        }
    }
}

/// Bytes of the session in the answer to a login.
const SESSION_BYTES: usize = 16;

/// Where a redirection of what is asked about a PFN sends to.
fn sent_on(pfn: &str, port: u32, place: &str) -> Option<String> {
    let Ok(port) = u16::try_from(port) else {
        return Target::parse(place).map(|_| place.to_owned());
    };
    // The same path on another host, with fields for it behind a `?`, and what is for the login behind another.
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
