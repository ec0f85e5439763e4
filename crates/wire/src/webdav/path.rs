//! Paths of URLs: an LFN below a prefix, percent-encoded. The header `Destination` names one too.

use exacat_model::{Error, Lfn, Result};

use super::shown;
use crate::percent::{self, push_encoded};

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
    let text = percent::decode(path, false).map_err(|why| bad(path, why))?;
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
