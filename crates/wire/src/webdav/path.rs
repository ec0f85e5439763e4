//! Paths of URLs: an LFN below a prefix, percent-encoded. The header `Destination` names one too.

use exacat_model::{Error, Lfn, Result};

use super::shown;

/// Bytes that a path has unescaped: the unreserved ones of RFC 3986, and the separator.
const PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] =
            (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'-' | b'.' | b'_' | b'~' | b'/');
        byte += 1;
    }
    table
};

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Appends a path or name, percent-encoded. Slashes stay.
pub fn push_encoded(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| !PLAIN[usize::from(*byte)]) {
        let (plain, behind) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, behind)) = behind.split_first() else { return };
        out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        rest = behind;
    }
    out.extend_from_slice(rest);
}

/// Returns the path of an LFN below a prefix; a directory's ends in a slash.
pub fn encode(lfn: &Lfn, prefix: &str, is_directory: bool) -> String {
    let mut out = Vec::new();
    push_encoded(&mut out, prefix.trim_end_matches('/'));
    push_encoded(&mut out, lfn.as_str());
    if is_directory && !out.ends_with(b"/") {
        out.push(b'/');
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Decodes `%XX`, once.
fn decoded(path: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = behind;
            continue;
        }
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let [high, low, after @ ..] = behind else { return Err(bad(path, "ends in an incomplete escape")) };
        let (Some(high), Some(low)) = (digit(high), digit(low)) else {
            return Err(bad(path, "has '%' without two hex digits: encode '%' as %25"));
        };
        bytes.push(high << 4 | low);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| bad(path, "is not UTF-8 after decoding"))
}

fn bad(path: &str, why: &str) -> Error {
    Error::invalid(format!("the URL path {:?} {why}", shown(path)))
}

/// Returns the part of a decoded path below the prefix; none if it is elsewhere.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    match path.strip_prefix(prefix.trim_end_matches('/'))? {
        "" => Some("/"),
        rest if rest.starts_with('/') => Some(rest),
        _ => None,
    }
}

/// Reads the path of a URL, without query and fragment, as an LFN below a prefix. `%2F` separates
/// components too. A slash at the end requires a directory ([`Lfn::must_be_directory`]).
pub fn decode(path: &str, prefix: &str) -> Result<Lfn> {
    lfn(path, prefix)?.ok_or_else(|| bad(path, &format!("is not below {prefix:?}")))
}

fn lfn(path: &str, prefix: &str) -> Result<Option<Lfn>> {
    if path.contains(['?', '#']) {
        return Err(bad(path, "has a query or fragment: encode '?' as %3F and '#' as %23"));
    }
    let text = decoded(path)?;
    let Some(rest) = below(&text, prefix) else { return Ok(None) };
    if rest.contains("//") {
        return Err(bad(path, "has an empty component ('//'): send single slashes"));
    }
    Lfn::parse(rest).map(Some)
}

/// Target of COPY or MOVE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A path of this catalogue.
    Here(Lfn),
    /// A URL of another server or of another part of this one, as in third-party copies.
    Elsewhere,
}

impl Destination {
    /// Reads the header `Destination` or `Source`: a URL, or an absolute path. `host` is the header
    /// `Host` of the request. Ports that schemes imply count as given.
    pub fn parse(header: &str, host: &str, prefix: &str) -> Result<Destination> {
        let header = header.trim();
        let refused = |why: &str| Error::invalid(format!("the destination {:?} {why}", shown(header)));
        let path = match header.split_once("://") {
            _ if header.starts_with('/') && !header.starts_with("//") => header,
            Some((scheme, rest)) if is_scheme(scheme) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (authority, path) = rest.split_at(end);
                if authority.is_empty() {
                    return Err(refused("has no host"));
                }
                if authority.contains('@') {
                    return Err(refused("has a user name: authenticate by headers"));
                }
                let Some(port) = implied_port(scheme) else { return Ok(Destination::Elsewhere) };
                if !same_authority(authority, host.trim(), port) {
                    return Ok(Destination::Elsewhere);
                }
                if path.starts_with('/') { path } else { return Err(refused("has no path")) }
            }
            _ => return Err(refused("is neither a URL nor an absolute path")),
        };
        if path.contains('#') {
            return Err(refused("has a fragment: encode '#' as %23"));
        }
        // A query carries tokens of third-party copies, never a part of the name.
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        Ok(lfn(path, prefix)?.map_or(Destination::Elsewhere, Destination::Here))
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Returns the port of a scheme of HTTP, under the names that grid clients use too.
fn implied_port(scheme: &str) -> Option<&'static str> {
    let is = |names: [&str; 2]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name));
    if is(["https", "davs"]) {
        return Some("443");
    }
    is(["http", "dav"]).then_some("80")
}

/// Compares two authorities; the port is the one for either that names none.
fn same_authority(one: &str, other: &str, port: &str) -> bool {
    let split = |text: &str| -> (String, String) {
        // The address of IPv6 has colons too, inside of brackets.
        let (host, given) = match text.rsplit_once(':') {
            Some((host, given)) if !given.contains(']') => (host, given),
            _ => (text, ""),
        };
        (host.to_ascii_lowercase(), if given.is_empty() { port } else { given }.to_owned())
    };
    split(one) == split(other)
}
