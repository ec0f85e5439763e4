//! Responses of XRootD's protocol: written for clients, and read from storage elements.

use super::limits::{ERROR_BYTES_MAX, RESPONSE_HEADER_BYTES};
use super::numbers::{PROTOCOL_VERSION, status};
use super::request::StreamId;

/// Header of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// Id of the request.
    pub stream: StreamId,
    /// Kind of the response, one of [`status`].
    pub status: u16,
    /// Bytes that follow.
    pub bytes: u32,
}

impl ResponseHeader {
    /// Reads a header.
    pub fn read(bytes: &[u8; RESPONSE_HEADER_BYTES]) -> Self {
        ResponseHeader {
            stream: StreamId([bytes[0], bytes[1]]),
            status: u16::from_be_bytes([bytes[2], bytes[3]]),
            bytes: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }
}

/// Returns the length of the first response in `bytes`, header included; all of `bytes` if it is
/// cut short.
pub fn first_bytes(bytes: &[u8]) -> usize {
    let Some(header) = bytes.first_chunk() else { return bytes.len() };
    let carried = usize::try_from(ResponseHeader::read(header).bytes).unwrap_or(usize::MAX);
    carried.saturating_add(RESPONSE_HEADER_BYTES).min(bytes.len())
}

/// Writes a response with a body.
pub fn write(out: &mut Vec<u8>, stream: StreamId, status: u16, carried: &[u8]) {
    out.extend_from_slice(&stream.0);
    out.extend_from_slice(&status.to_be_bytes());
    out.extend_from_slice(&u32::try_from(carried.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(carried);
}

/// Writes a success.
pub fn write_ok(out: &mut Vec<u8>, stream: StreamId, carried: &[u8]) {
    write(out, stream, status::OK, carried);
}

/// Writes a success with a text, which ends with a NUL.
pub fn write_text(out: &mut Vec<u8>, stream: StreamId, text: &str) {
    let mut carried = Vec::with_capacity(text.len() + 1);
    carried.extend_from_slice(text.as_bytes());
    carried.push(0);
    write(out, stream, status::OK, &carried);
}

/// Writes the answer to the handshake.
pub fn write_handshake(out: &mut Vec<u8>) {
    let mut carried = [0; 8];
    carried[..4].copy_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    // The next number would be 1 for a server that holds files.
    write(out, StreamId::default(), status::OK, &carried);
}

/// Writes the version of the protocol and the roles of the server.
pub fn write_protocol(out: &mut Vec<u8>, stream: StreamId, roles: u32) {
    let mut carried = [0; 8];
    carried[..4].copy_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    carried[4..].copy_from_slice(&roles.to_be_bytes());
    write(out, stream, status::OK, &carried);
}

/// Writes a successful login. If `protocols` is not empty, the client must authenticate by one of
/// them.
pub fn write_login(out: &mut Vec<u8>, stream: StreamId, session: [u8; 16], protocols: &str) {
    let mut carried = session.to_vec();
    if !protocols.is_empty() {
        carried.extend_from_slice(protocols.as_bytes());
        carried.push(0);
    }
    write(out, stream, status::OK, &carried);
}

/// Writes a failure: a number of [`numbers::error`](super::numbers::error) and a sentence.
pub fn write_error(out: &mut Vec<u8>, stream: StreamId, number: u32, sentence: &str) {
    let sentence = &sentence[..sentence.floor_char_boundary(ERROR_BYTES_MAX)];
    let mut carried = number.to_be_bytes().to_vec();
    // A NUL would end the sentence for the client.
    carried.extend(sentence.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
    carried.push(0);
    write(out, stream, status::ERROR, &carried);
}

/// Writes a wait: the client retries after so many seconds.
pub fn write_wait(out: &mut Vec<u8>, stream: StreamId, seconds: u32, sentence: &str) {
    let sentence = &sentence[..sentence.floor_char_boundary(ERROR_BYTES_MAX)];
    let mut carried = seconds.to_be_bytes().to_vec();
    carried.extend_from_slice(sentence.as_bytes());
    write(out, stream, status::WAIT, &carried);
}

/// Writes a redirection to a host: the same path, with `fields` after its `?`.
pub fn write_redirect_host(out: &mut Vec<u8>, stream: StreamId, host: &str, port: u16, fields: &str) {
    let text = if fields.is_empty() { host.to_owned() } else { format!("{host}?{fields}") };
    write_redirect(out, stream, i32::from(port), &text);
}

/// Writes a redirection to another URL.
pub fn write_redirect_url(out: &mut Vec<u8>, stream: StreamId, url: &str) {
    write_redirect(out, stream, -1, url);
}

fn write_redirect(out: &mut Vec<u8>, stream: StreamId, port: i32, text: &str) {
    let mut carried = port.to_be_bytes().to_vec();
    carried.extend_from_slice(text.as_bytes());
    write(out, stream, status::REDIRECT, &carried);
}

/// Returns the text of an answer, without the NUL at its end; none if it is no text.
pub fn read_text(carried: &[u8]) -> Option<&str> {
    let end = carried.iter().position(|byte| *byte == 0).unwrap_or(carried.len());
    std::str::from_utf8(&carried[..end]).ok()
}

/// Returns the number in front of the body of an error, a redirection or a wait, and the text
/// behind it.
pub fn read_numbered(carried: &[u8]) -> Option<(u32, &str)> {
    let (number, rest) = carried.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), read_text(rest)?))
}

/// Number of an unsolicited response that carries the answer to an earlier request.
pub(super) const DEFERRED: u32 = 5008;

/// Reads a deferred answer in an unsolicited response: its header, and its body. None for any other
/// body.
pub fn read_deferred(carried: &[u8]) -> Option<(ResponseHeader, &[u8])> {
    let (number, rest) = carried.split_first_chunk()?;
    let (_reserved, rest) = rest.split_first_chunk::<4>()?;
    let (header, rest) = rest.split_first_chunk::<RESPONSE_HEADER_BYTES>()?;
    let header = ResponseHeader::read(header);
    let bytes = usize::try_from(header.bytes).ok()?;
    (u32::from_be_bytes(*number) == DEFERRED && rest.len() == bytes).then_some((header, rest))
}

/// Stat of a file: bytes, [`numbers::flag`](super::numbers::flag), and the time of the last change
/// in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Bytes.
    pub size: u64,
    /// Flags.
    pub flags: u32,
    /// Time of the last change.
    pub modified: u64,
}

impl FileStat {
    /// Reads a stat; none for any other body.
    pub fn read(carried: &[u8]) -> Option<Self> {
        let mut words = read_text(carried)?.split_ascii_whitespace().skip(1);
        Some(FileStat {
            size: words.next()?.parse().ok()?,
            flags: words.next()?.parse().ok()?,
            modified: words.next()?.parse().ok()?,
        })
    }
}

/// Stat of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Identity, independent of its name.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    /// Bits of [`numbers::flag`](super::numbers::flag).
    pub flags: u32,
    /// Time its content was made, in seconds.
    pub modified: u64,
    /// Time it was added to the catalogue, in seconds.
    pub created: u64,
    /// Permission bits: nine.
    pub mode: u16,
    /// Its owner.
    pub owner: &'a str,
    /// Its group.
    pub group: &'a str,
}

impl std::fmt::Display for Stat<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Stat { id, size, flags, modified, created, mode, owner, group } = self;
        // Change time, then access time.
        write!(f, "{id} {size} {flags} {modified} {created} {modified} {mode:04o} {owner} {group}")
    }
}

/// Names of a directory as text, part by part: the sender takes the bytes collected so far.
#[derive(Debug)]
pub struct Listing {
    text: Vec<u8>,
    begun: bool,
}

impl Listing {
    /// Makes a listing with a stat of each name, or of names only.
    pub fn new(stats: bool) -> Self {
        // These two lines tell a client that every second line is a stat.
        let text = if stats { b".\n0 0 0 0".to_vec() } else { Vec::new() };
        Listing { begun: stats, text }
    }

    /// Adds a name. Refuses one with a line end, because clients would take the rest for other
    /// names.
    pub fn push(&mut self, name: &str) -> bool {
        if name.contains('\n') {
            return false;
        }
        if self.begun {
            self.text.push(b'\n');
        }
        self.begun = true;
        self.text.extend_from_slice(name.as_bytes());
        true
    }

    /// Adds the stat of the last name, and its checksum.
    pub fn push_stat(&mut self, stat: &Stat<'_>, checksum: Option<&str>) {
        use std::io::Write;
        // A write to memory cannot fail.
        let _ = write!(self.text, "\n{stat}");
        if let Some(checksum) = checksum {
            let _ = write!(self.text, " [ {checksum} ]");
        }
    }

    /// Returns the number of bytes that were not taken yet.
    pub fn waiting(&self) -> usize {
        self.text.len()
    }

    /// Takes a part, as a response that announces more.
    pub fn part(&mut self, stream: StreamId) -> Vec<u8> {
        // Takes the buffer, so that a sender that waits for its client does not hold the bytes
        // twice.
        let text = std::mem::take(&mut self.text);
        let mut out = Vec::with_capacity(text.len() + RESPONSE_HEADER_BYTES);
        write(&mut out, stream, status::OKSOFAR, &text);
        out
    }

    /// Returns the last part.
    pub fn finish(mut self, stream: StreamId) -> Vec<u8> {
        if self.begun {
            self.text.push(0);
        }
        let mut out = Vec::with_capacity(self.text.len() + RESPONSE_HEADER_BYTES);
        write(&mut out, stream, status::OK, &self.text);
        out
    }
}
