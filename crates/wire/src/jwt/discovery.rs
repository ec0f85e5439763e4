//! Discovery of an issuer's keys: URLs of its description (openid-configuration), and the
//! description's content.

use std::net::{Ipv4Addr, Ipv6Addr};

use exacat_model::{Error, Result};
use serde_json::{Map, Value};

use super::json;
use super::limits::{DISCOVERY_BYTES_MAX, ISSUER_BYTES_MAX, URL_BYTES_MAX};

/// Path of an issuer's description.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// Checks the URL of an issuer: https, without user, query and fragment. `loopback_http` also
/// permits http to this machine, for tests.
pub fn check_issuer(issuer: &str, loopback_http: bool) -> Result<()> {
    if issuer.len() > ISSUER_BYTES_MAX {
        return Err(Error::limit("the length of an issuer's URL in bytes", issuer.len(), ISSUER_BYTES_MAX));
    }
    if issuer.contains(['?', '#']) {
        return Err(Error::invalid(format!("the issuer {issuer:?} has a query or a fragment; remove it")));
    }
    check_url(issuer, loopback_http)
}

/// Returns the URLs at which an issuer may publish its description, the preferred one first. An
/// issuer with a path has two. The caller checked it with [`check_issuer`].
pub fn discovery_urls(issuer: &str) -> Vec<String> {
    let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
    let Some((scheme, rest)) = issuer.split_once("://") else { return Vec::new() };
    let behind = format!("{issuer}{WELL_KNOWN}");
    match rest.split_once('/') {
        Some((host, path)) => vec![format!("{scheme}://{host}{WELL_KNOWN}/{path}"), behind],
        None => vec![behind],
    }
}

/// Returns the description of an issuer. It must be about exactly this issuer: otherwise one issuer could
/// hand out the keys of another.
fn described(document: &[u8], issuer: &str) -> Result<Map<String, Value>> {
    if document.len() > DISCOVERY_BYTES_MAX {
        let what = "the length of an issuer's description in bytes";
        return Err(Error::limit(what, document.len(), DISCOVERY_BYTES_MAX));
    }
    let Some(document) = json::object(document) else {
        return Err(Error::invalid(format!(
            "the description of the issuer {issuer} is no JSON object, or repeats a name; check its URL"
        )));
    };
    if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
        return Err(Error::invalid(format!(
            "the description of the issuer {issuer} is about another one; configure the exact URL"
        )));
    }
    Ok(document)
}

/// Returns a URL in an issuer's description.
fn url_in(document: &Map<String, Value>, name: &str, issuer: &str, loopback_http: bool) -> Result<String> {
    let Some(url) = document.get(name).and_then(Value::as_str) else {
        return Err(Error::invalid(format!("the description of the issuer {issuer} has no {name}")));
    };
    if url.len() > URL_BYTES_MAX {
        return Err(Error::limit(&format!("the length of a {name} in bytes"), url.len(), URL_BYTES_MAX));
    }
    if url.contains('#') {
        return Err(Error::invalid(format!("the {name} {url:?} has a fragment")));
    }
    check_url(url, loopback_http)?;
    Ok(url.to_owned())
}

/// Returns the URL of the JWKS in an issuer's description.
pub fn jwks_uri(document: &[u8], issuer: &str, loopback_http: bool) -> Result<String> {
    url_in(&described(document, issuer)?, "jwks_uri", issuer, loopback_http)
}

/// Places of an issuer where people sign in (OpenID Connect).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// URL where a browser goes to.
    pub authorization: String,
    /// URL where a code becomes tokens.
    pub token: String,
}

/// Returns the places of an issuer where people sign in, as its description has them.
pub fn endpoints(document: &[u8], issuer: &str) -> Result<Endpoints> {
    let document = described(document, issuer)?;
    Ok(Endpoints {
        authorization: url_in(&document, "authorization_endpoint", issuer, false)?,
        token: url_in(&document, "token_endpoint", issuer, false)?,
    })
}

/// Checks scheme, host, port and characters of a URL.
fn check_url(url: &str, loopback_http: bool) -> Result<()> {
    let bad = |why: &str| Err(Error::invalid(format!("the URL {url:?} {why}")));
    // Readers of URLs take a backslash for a slash, or drop control characters.
    if !url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\\"<>^`{|}".contains(&byte)) {
        return bad("has characters that must be escaped");
    }
    let (secure, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return bad("has another scheme than https"),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return bad("names a user; remove the part before '@'");
    }
    let Some((host, port)) = split_port(authority) else { return bad("has no host") };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|number| number > 0)
    };
    if !port.is_none_or(is_port) {
        return bad("has a port that is no number from 1 to 65535");
    }
    match host_kind(host) {
        None => bad("has a malformed host"),
        Some(_) if secure => Ok(()),
        Some(HostKind::Loopback) if loopback_http => Ok(()),
        Some(_) => bad("is not secure; use https"),
    }
}

/// Splits host and port; none without a host.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let port = match authority.rsplit_once(':') {
        // The colons of an IPv6 address are before its bracket.
        Some((_, port)) if !port.contains(']') => Some(port),
        _ => None,
    };
    let host = match port {
        Some(port) => authority.strip_suffix(port)?.strip_suffix(':')?,
        None => authority,
    };
    (!host.is_empty()).then_some((host, port))
}

enum HostKind {
    Loopback,
    Other,
}

/// Returns the kind of a host; none if it is malformed.
fn host_kind(host: &str) -> Option<HostKind> {
    let loopback = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().ok()?.is_loopback(),
        None => {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
            if !host.bytes().all(is_plain) {
                return None;
            }
            host.eq_ignore_ascii_case("localhost")
                || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        }
    };
    Some(if loopback { HostKind::Loopback } else { HostKind::Other })
}
