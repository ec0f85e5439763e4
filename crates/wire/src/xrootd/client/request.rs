//! Requests of a client: greeting, login, and requests for files.

use exacat_model::{Error, Result};

use crate::xrootd::limits::{PATH_BYTES_MAX, SEGMENT_HEADER_BYTES, SEGMENTS_MAX, TOKEN_BYTES_MAX};
use crate::xrootd::numbers::{PROTOCOL_VERSION, expect, login_ability, query, request as id};
use crate::xrootd::request::{TOKEN_AT, TOKEN_FOLLOWS, TOKEN_LENGTH_AT, write_request};
use crate::xrootd::{FileHandle, FileRange, StreamId};

/// Description of a client in its login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login<'a> {
    /// Number of the process.
    pub process: u32,
    /// Name of the user, of which 8 bytes count.
    pub user: &'a str,
    /// Fields about the client, such as `xrd.appname`.
    pub about: &'a str,
}

/// Credentials that a client shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Proof<'a> {
    /// A bearer token. The connection must be protected.
    Token(&'a str),
    /// Account that the client claims to run as.
    Unix(&'a str),
    /// Host of the client, which the server sees itself.
    Host,
}

/// Writes the request that agrees on the protocol; a login follows. `abilities` are bits of
/// [`ability`](crate::xrootd::numbers::ability).
pub fn write_protocol(out: &mut Vec<u8>, stream: StreamId, abilities: u8) {
    let mut body = [0; 16];
    body[..4].copy_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    body[4] = abilities;
    body[5] = expect::LOGIN;
    write_request(out, stream, id::PROTOCOL, body, b"");
}

/// Writes a login.
pub fn write_login(out: &mut Vec<u8>, stream: StreamId, login: &Login<'_>) {
    let mut body = [0; 16];
    body[..4].copy_from_slice(&login.process.to_be_bytes());
    for (place, byte) in body[4..12].iter_mut().zip(login.user.bytes()) {
        *place = byte;
    }
    body[13] = login_ability::FULL_URL | login_ability::BOTH_ADDRESSES;
    body[14] = login_ability::LATE_ANSWERS;
    write_request(out, stream, id::LOGIN, body, login.about.as_bytes());
}

/// Writes credentials.
///
/// # Errors
/// The token or the name is too long or has a NUL.
pub fn write_auth(out: &mut Vec<u8>, stream: StreamId, proof: &Proof<'_>) -> Result<()> {
    let (kind, carried) = match proof {
        Proof::Token(token) => (*b"ztn\0", token_bytes(token)?),
        Proof::Unix(user) => {
            let is_bad = user.len() > PATH_BYTES_MAX || user.bytes().any(|byte| byte <= b' ');
            if is_bad || user.is_empty() {
                return Err(Error::invalid("the name of an account is empty, too long, or has blanks"));
            }
            (*b"unix", format!("unix\0{user} {user}\0").into_bytes())
        }
        Proof::Host => (*b"host", b"host\0".to_vec()),
    };
    let mut body = [0; 16];
    body[12..].copy_from_slice(&kind);
    write_request(out, stream, id::AUTH, body, &carried);
    Ok(())
}

/// Returns a token in the form of the protocol ztn: its length counts a NUL at its end.
fn token_bytes(token: &str) -> Result<Vec<u8>> {
    if token.is_empty() || token.len() >= TOKEN_BYTES_MAX {
        return Err(Error::limit("the length of a token in bytes", token.len(), TOKEN_BYTES_MAX - 1));
    }
    if token.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(Error::invalid("the token has blanks or control characters in it"));
    }
    let mut carried = vec![0; TOKEN_AT];
    carried[..3].copy_from_slice(b"ztn");
    carried[5] = TOKEN_FOLLOWS;
    let length = u16::try_from(token.len() + 1).unwrap_or(u16::MAX);
    carried[TOKEN_LENGTH_AT..].copy_from_slice(&length.to_be_bytes());
    carried.extend_from_slice(token.as_bytes());
    carried.push(0);
    Ok(carried)
}

/// Refuses a path that no server can understand. It has its fields behind a `?`.
fn checked(path: &str) -> Result<&[u8]> {
    if path.len() > PATH_BYTES_MAX {
        let what = "the length of a path and its fields in bytes";
        return Err(Error::limit(what, path.len(), PATH_BYTES_MAX));
    }
    if !path.starts_with('/') {
        return Err(Error::invalid("a path begins with a slash"));
    }
    if path.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(Error::invalid("a path has control characters in it"));
    }
    Ok(path.as_bytes())
}

/// Writes a request to open a file. `options` are bits of [`open`](crate::xrootd::numbers::open).
///
/// # Errors
/// No server can understand the path.
pub fn write_open(out: &mut Vec<u8>, stream: StreamId, options: u16, path: &str) -> Result<()> {
    let mut body = [0; 16];
    body[2..4].copy_from_slice(&options.to_be_bytes());
    write_request(out, stream, id::OPEN, body, checked(path)?);
    Ok(())
}

/// Writes a request to read some bytes.
pub fn write_read(out: &mut Vec<u8>, stream: StreamId, piece: &FileRange) {
    write_request(out, stream, id::READ, body_of(piece), b"");
}

/// Writes a request to read some bytes as pages, each with a checksum.
pub fn write_page_read(out: &mut Vec<u8>, stream: StreamId, piece: &FileRange) {
    write_request(out, stream, id::PGREAD, body_of(piece), b"");
}

/// Returns the arguments of a read: handle, place, length.
fn body_of(piece: &FileRange) -> [u8; 16] {
    let mut body = [0; 16];
    body[..4].copy_from_slice(&piece.handle.0);
    body[4..12].copy_from_slice(&piece.offset.to_be_bytes());
    body[12..].copy_from_slice(&piece.length.to_be_bytes());
    body
}

/// Writes a request to read several segments, at most [`SEGMENTS_MAX`].
///
/// # Errors
/// There are none, or too many.
pub fn write_vector_read(out: &mut Vec<u8>, stream: StreamId, segments: &[FileRange]) -> Result<()> {
    if segments.is_empty() || segments.len() > SEGMENTS_MAX {
        return Err(Error::limit("the number of segments of a vector read", segments.len(), SEGMENTS_MAX));
    }
    let mut carried = Vec::with_capacity(segments.len() * SEGMENT_HEADER_BYTES);
    for segment in segments {
        segment.write(&mut carried);
    }
    write_request(out, stream, id::READV, [0; 16], &carried);
    Ok(())
}

/// Writes a request to close a file.
pub fn write_close(out: &mut Vec<u8>, stream: StreamId, handle: FileHandle) {
    let mut body = [0; 16];
    body[..4].copy_from_slice(&handle.0);
    write_request(out, stream, id::CLOSE, body, b"");
}

/// Writes a request for the stat of a path.
///
/// # Errors
/// No server can understand the path.
pub fn write_stat(out: &mut Vec<u8>, stream: StreamId, path: &str) -> Result<()> {
    write_request(out, stream, id::STAT, [0; 16], checked(path)?);
    Ok(())
}

/// Writes a request for the checksum of a file.
///
/// # Errors
/// No server can understand the path.
pub fn write_checksum(out: &mut Vec<u8>, stream: StreamId, path: &str) -> Result<()> {
    let mut carried = checked(path)?.to_vec();
    carried.push(0);
    write_request(out, stream, id::QUERY, query_of(query::CHECKSUM), &carried);
    Ok(())
}

/// Writes a request for the values of settings, by their names.
///
/// # Errors
/// The names are too long or no text of one line.
pub fn write_config(out: &mut Vec<u8>, stream: StreamId, names: &str) -> Result<()> {
    if names.len() > PATH_BYTES_MAX || names.bytes().any(|byte| byte < b' ') {
        return Err(Error::invalid("names of settings are too long, or have control characters in them"));
    }
    write_request(out, stream, id::QUERY, query_of(query::CONFIG), names.as_bytes());
    Ok(())
}

fn query_of(kind: u16) -> [u8; 16] {
    let mut body = [0; 16];
    body[..2].copy_from_slice(&kind.to_be_bytes());
    body
}
