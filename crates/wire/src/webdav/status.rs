//! Bodies with outcomes: entries that an operation could not change, properties that PROPPATCH set or
//! did not set, and violated preconditions.

use super::multistatus::{push_empty, push_root};
use super::property::PropertyName;
use super::xml::{DECLARATION, push_number, push_text};

/// Status of an update that was not tried, because another update of the request failed.
const FAILED_DEPENDENCY: u16 = 424;

/// Precondition that RFC 4918 names, for the body of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// PROPFIND covers a bounded depth only (403).
    PropfindFiniteDepth,
    /// A property of the server cannot be set (403).
    CannotModifyProtectedProperty,
    /// The body must not refer to external entities (403).
    NoExternalEntities,
}

impl Precondition {
    /// Returns the name of its element in the namespace `DAV:`.
    pub fn name(self) -> &'static str {
        match self {
            Precondition::PropfindFiniteDepth => "propfind-finite-depth",
            Precondition::CannotModifyProtectedProperty => "cannot-modify-protected-property",
            Precondition::NoExternalEntities => "no-external-entities",
        }
    }
}

/// Writes the body of a refusal for a violated precondition.
pub fn error(out: &mut Vec<u8>, precondition: Precondition) {
    out.extend_from_slice(DECLARATION);
    out.extend_from_slice(b"<D:error xmlns:D=\"DAV:\"><D:");
    out.extend_from_slice(precondition.name().as_bytes());
    out.extend_from_slice(b"/></D:error>\n");
}

/// Returns the reason phrase of a status; empty if it has none here.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        507 => "Insufficient Storage",
        _ => "",
    }
}

fn push_status(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"<D:status>HTTP/1.1 ");
    push_number(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"</D:status>");
}

/// Appends one response of a multistatus: an entry, by its encoded path, and its status. Also ends a
/// listing that fails halfway.
pub fn push_failure(out: &mut Vec<u8>, href: &str, status: u16) {
    out.extend_from_slice(b"<D:response><D:href>");
    push_text(out, href);
    out.extend_from_slice(b"</D:href>");
    push_status(out, status);
    out.extend_from_slice(b"</D:response>");
}

/// Writes a multistatus with the entries that DELETE, MOVE or COPY could not change, by their encoded
/// paths.
pub fn failures(out: &mut Vec<u8>, failed: &[(String, u16)]) {
    push_root(out, &[]);
    for (href, status) in failed {
        push_failure(out, href, *status);
    }
    out.extend_from_slice(b"</D:multistatus>\n");
}

/// Writes the answer to PROPPATCH: each property with its status. If one failed, none was changed: those
/// with a success get 424.
pub fn proppatch(out: &mut Vec<u8>, href: &str, outcomes: &[(PropertyName, u16)]) {
    push_root(out, &[]);
    out.extend_from_slice(b"<D:response><D:href>");
    push_text(out, href);
    out.extend_from_slice(b"</D:href>");
    let has_failed = outcomes.iter().any(|(_, status)| *status >= 300);
    let group = |(name, status): &(PropertyName, u16)| match *status {
        ..300 if has_failed => (FAILED_DEPENDENCY, false),
        status => (status, status == 403 && name.is_protected()),
    };
    let mut groups: Vec<(u16, bool)> = Vec::new();
    for outcome in outcomes {
        if !groups.contains(&group(outcome)) {
            groups.push(group(outcome));
        }
    }
    for (status, is_protected) in groups {
        out.extend_from_slice(b"<D:propstat><D:prop>");
        for outcome in outcomes.iter().filter(|outcome| group(outcome) == (status, is_protected)) {
            push_empty(out, &outcome.0);
        }
        out.extend_from_slice(b"</D:prop>");
        push_status(out, status);
        if is_protected {
            out.extend_from_slice(b"<D:error><D:");
            out.extend_from_slice(Precondition::CannotModifyProtectedProperty.name().as_bytes());
            out.extend_from_slice(b"/></D:error>");
        }
        out.extend_from_slice(b"</D:propstat>");
    }
    if outcomes.is_empty() {
        push_status(out, 200);
    }
    out.extend_from_slice(b"</D:response></D:multistatus>\n");
}
