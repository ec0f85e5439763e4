//! Requests from web pages: those of this server, and those of configured origins. A page of any
//! other origin is refused, because a browser may add the certificate of its user by itself.

use exacat_model::{Error, Result};
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderName,
    HeaderValue, ORIGIN, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::answers::{Body, empty, set};

/// Header in which a browser says from where a request comes.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Methods that a page may use.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
/// Headers that a page may send.
const HEADERS: &str = "Authorization, Content-Type, Accept, If-Match, If-None-Match, Idempotency-Key, \
    Last-Event-ID, Exacat-At-Least, Exacat-Act-As, Exacat-Consistency";
/// Headers of answers that a page may read.
const EXPOSED: &str = "ETag, Link, Location, Retry-After, Exacat-Revision";
/// Seconds for which a browser may remember a permission.
const PERMISSION_SECONDS: &str = "600";

/// Returns the configured origin that a request is from; none for a request of no other origin.
pub(super) fn judge<'a>(configured: &'a [String], head: &Parts) -> Result<Option<&'a str>> {
    let text = |name: &HeaderName| head.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let Some(origin) = text(&ORIGIN) else {
        // Browsers leave the origin out of requests whose answers a page cannot read.
        return match text(&FETCH_SITE) {
            None | Some("none" | "same-origin") => Ok(None),
            Some(_) => Err(denied()),
        };
    };
    if let Some(known) = configured.iter().find(|known| known.eq_ignore_ascii_case(origin)) {
        return Ok(Some(known));
    }
    let host = head.uri.authority().map(|authority| authority.as_str()).or_else(|| text(&HOST));
    match (origin.split_once("://"), host) {
        (Some(("http" | "https", from)), Some(host)) if from.eq_ignore_ascii_case(host) => Ok(None),
        _ => Err(denied()),
    }
}

fn denied() -> Error {
    Error::denied("a web page of another origin sent this request: 'exacat serve --http-origin' permits one")
}

/// Answers a browser that asks before a request of a permitted page.
pub(super) fn preflight(origin: Option<&str>, head: &Parts) -> Option<Response<Body>> {
    origin?;
    if head.method != Method::OPTIONS || !head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut response = empty(StatusCode::NO_CONTENT);
    set(&mut response, ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    set(&mut response, ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    set(&mut response, ACCESS_CONTROL_MAX_AGE, PERMISSION_SECONDS);
    Some(response)
}

/// Lets a permitted page read an answer.
pub(super) fn permit(origin: Option<&str>, response: &mut Response<Body>) {
    let Some(origin) = origin else { return };
    set(response, ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    set(response, ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    response.headers_mut().append(VARY, HeaderValue::from_static("Origin"));
}
