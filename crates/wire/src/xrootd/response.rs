//! Responses: what a server sends, written; and read, as we ask storage elements ourselves.

use super::limits::{ERROR_BYTES_MAX, RESPONSE_HEADER_BYTES};
use super::numbers::{PROTOCOL_VERSION, status};
use super::request::StreamId;

/// What stands before what a response carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// Whose response it is.
    pub stream: StreamId,
    /// One of [`status`].
    pub status: u16,
    /// Bytes that follow.
    pub bytes: u32,
}

impl ResponseHeader {
    /// Reads one.
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

/// Writes a response that carries something.
pub fn write(out: &mut Vec<u8>, stream: StreamId, status: u16, carried: &[u8]) {
    out.extend_from_slice(&stream.0);
    out.extend_from_slice(&status.to_be_bytes());
    out.extend_from_slice(&u32::try_from(carried.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(carried);
}

/// It was done.
pub fn write_ok(out: &mut Vec<u8>, stream: StreamId, carried: &[u8]) {
    write(out, stream, status::OK, carried);
}

/// It was done, and here is a text, which ends with a NUL.
pub fn write_text(out: &mut Vec<u8>, stream: StreamId, text: &str) {
    let mut carried = Vec::with_capacity(text.len() + 1);
    carried.extend_from_slice(text.as_bytes());
    carried.push(0);
    write(out, stream, status::OK, &carried);
}

/// The answer to the handshake.
pub fn write_handshake(out: &mut Vec<u8>) {
    let mut carried = [0; 8];
    carried[..4].copy_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    // What follows would be 1 of a server that has files.
    write(out, StreamId::default(), status::OK, &carried);
}

/// What is spoken, and what the server is.
pub fn write_protocol(out: &mut Vec<u8>, stream: StreamId, roles: u32) {
    let mut carried = [0; 8];
    carried[..4].copy_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    carried[4..].copy_from_slice(&roles.to_be_bytes());
    write(out, stream, status::OK, &carried);
}

/// The client is logged in; if `protocols` says something, it has to show who it is by one of them.
pub fn write_login(out: &mut Vec<u8>, stream: StreamId, session: [u8; 16], protocols: &str) {
    let mut carried = session.to_vec();
    if !protocols.is_empty() {
        carried.extend_from_slice(protocols.as_bytes());
        carried.push(0);
    }
    write(out, stream, status::OK, &carried);
}

/// It was not done, and why: a number of [`numbers::error`](super::numbers::error) and a sentence.
pub fn write_error(out: &mut Vec<u8>, stream: StreamId, number: u32, sentence: &str) {
    let sentence = &sentence[..sentence.floor_char_boundary(ERROR_BYTES_MAX)];
    let mut carried = number.to_be_bytes().to_vec();
    // A NUL ends it for the client.
    carried.extend(sentence.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
    carried.push(0);
    write(out, stream, status::ERROR, &carried);
}

/// It is to be asked again after so many seconds.
pub fn write_wait(out: &mut Vec<u8>, stream: StreamId, seconds: u32, sentence: &str) {
    let sentence = &sentence[..sentence.floor_char_boundary(ERROR_BYTES_MAX)];
    let mut carried = seconds.to_be_bytes().to_vec();
    carried.extend_from_slice(sentence.as_bytes());
    write(out, stream, status::WAIT, &carried);
}

/// It is to be asked of a host: the same path, with `fields` behind its `?`.
pub fn write_redirect_host(out: &mut Vec<u8>, stream: StreamId, host: &str, port: u16, fields: &str) {
    let text = if fields.is_empty() { host.to_owned() } else { format!("{host}?{fields}") };
    write_redirect(out, stream, i32::from(port), &text);
}

/// It is to be asked under another URL.
pub fn write_redirect_url(out: &mut Vec<u8>, stream: StreamId, url: &str) {
    write_redirect(out, stream, -1, url);
}

fn write_redirect(out: &mut Vec<u8>, stream: StreamId, port: i32, text: &str) {
    let mut carried = port.to_be_bytes().to_vec();
    carried.extend_from_slice(text.as_bytes());
    write(out, stream, status::REDIRECT, &carried);
}

/// The text of an answer, without the NUL at its end; none if it is no text.
pub fn read_text(carried: &[u8]) -> Option<&str> {
    let end = carried.iter().position(|byte| *byte == 0).unwrap_or(carried.len());
    std::str::from_utf8(&carried[..end]).ok()
}

/// The number in front of what an error, a redirection or a wait carries, and the text behind it.
pub fn read_numbered(carried: &[u8]) -> Option<(u32, &str)> {
    let (number, rest) = carried.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), read_text(rest)?))
}

/// The number of what is said unasked that says it is the answer to something asked before.
const DEFERRED: u32 = 5008;

/// The answer that came later, of what an unasked-for response carries: its header, and what it carries. None if it is something else.
pub fn read_deferred(carried: &[u8]) -> Option<(ResponseHeader, &[u8])> {
    let (number, rest) = carried.split_first_chunk()?;
    let (_reserved, rest) = rest.split_first_chunk::<4>()?;
    let (header, rest) = rest.split_first_chunk::<RESPONSE_HEADER_BYTES>()?;
    let header = ResponseHeader::read(header);
    let bytes = usize::try_from(header.bytes).ok()?;
    (u32::from_be_bytes(*number) == DEFERRED && rest.len() == bytes).then_some((header, rest))
}

/// What a stat of a file says: bytes, [`numbers::flag`](super::numbers::flag), and when it changed last, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Bytes.
    pub size: u64,
    /// Flags.
    pub flags: u32,
    /// When it changed last.
    pub modified: u64,
}

impl FileStat {
    /// Reads one; none if it is something else.
    pub fn read(carried: &[u8]) -> Option<Self> {
        let mut words = read_text(carried)?.split_ascii_whitespace().skip(1);
        Some(FileStat {
            size: words.next()?.parse().ok()?,
            flags: words.next()?.parse().ok()?,
            modified: words.next()?.parse().ok()?,
        })
    }
}

/// What stands under a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Which it is, whatever it is called.
    pub id: u64,
    /// Bytes.
    pub size: u64,
    /// Of [`numbers::flag`](super::numbers::flag).
    pub flags: u32,
    /// When its content was made, in seconds.
    pub modified: u64,
    /// When it came into the catalogue, in seconds.
    pub created: u64,
    /// Its nine bits.
    pub mode: u16,
    /// Its owner.
    pub owner: &'a str,
    /// Its group.
    pub group: &'a str,
}

impl std::fmt::Display for Stat<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Stat { id, size, flags, modified, created, mode, owner, group } = self;
        // Change, then access.
        write!(f, "{id} {size} {flags} {modified} {created} {modified} {mode:04o} {owner} {group}")
    }
}

/// The names of a directory as text, part by part: whoever sends them takes what has come together.
#[derive(Debug)]
pub struct Listing {
    text: Vec<u8>,
    begun: bool,
}

impl Listing {
    /// A listing; with what each name stands for, or with names only.
    pub fn new(stats: bool) -> Self {
        // By these two lines a client knows that every second line is a stat.
        let text = if stats { b".\n0 0 0 0".to_vec() } else { Vec::new() };
        Listing { begun: stats, text }
    }

    /// Adds a name. One with a line end in it cannot be told, and is not: what follows it would be taken for other names.
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

    /// Adds what the last name stands for, and its checksum.
    pub fn push_stat(&mut self, stat: &Stat<'_>, checksum: Option<&str>) {
        use std::io::Write;
        // Writing to memory does not fail.
        let _ = write!(self.text, "\n{stat}");
        if let Some(checksum) = checksum {
            let _ = write!(self.text, " [ {checksum} ]");
        }
    }

    /// Bytes that were not taken yet.
    pub fn waiting(&self) -> usize {
        self.text.len()
    }

    /// Takes a part, as a response of which more follows.
    pub fn part(&mut self, stream: StreamId) -> Vec<u8> {
        // Whoever waits until the part is read is not to hold as much once more.
        let text = std::mem::take(&mut self.text);
        let mut out = Vec::with_capacity(text.len() + RESPONSE_HEADER_BYTES);
        write(&mut out, stream, status::OKSOFAR, &text);
        out
    }

    /// The end.
    pub fn finish(mut self, stream: StreamId) -> Vec<u8> {
        if self.begun {
            self.text.push(0);
        }
        let mut out = Vec::with_capacity(self.text.len() + RESPONSE_HEADER_BYTES);
        write(&mut out, stream, status::OK, &self.text);
        out
    }
}
