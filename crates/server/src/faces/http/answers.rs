//! Answers: bodies at once or in parts, and errors as problem documents (RFC 9457).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use exacat_model::{Error, ErrorKind};
use hyper::body::{Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::admission::Room;
use crate::faces::errors::http_status;
use crate::service::Cancel;

/// Content type of JSON.
pub(super) const JSON: &str = "application/json";
/// Content type of a problem document.
pub(super) const PROBLEM: &str = "application/problem+json";
/// Content type of JSON lines.
pub(super) const LINES: &str = "application/x-ndjson";
/// Content type of server-sent events.
pub(super) const EVENTS: &str = "text/event-stream";
/// Content type of text.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
/// Seconds after which a refused client may come again.
const RETRY_SECONDS: &str = "1";
/// Start of the URI of a kind of error.
const KIND_URI: &str = "urn:exacat:error:";

/// Bytes of an answer, and the room that they take until the connection has sent them.
struct Unsent {
    bytes: Vec<u8>,
    _room: Room,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns bytes that keep their room until the connection has sent them.
pub(super) fn in_room(mut bytes: Vec<u8>, mut room: Room) -> Bytes {
    // Rows of many bytes may have doubled the memory with the last of them.
    if bytes.capacity() > bytes.len() + bytes.len() / 2 {
        bytes.shrink_to_fit();
    }
    room.turned_out(bytes.capacity());
    Bytes::from_owner(Unsent { bytes, _room: room })
}

/// A part of a long answer.
pub(super) enum BodyPart {
    /// Some bytes.
    Bytes(Bytes),
    /// The end. Without it the connection is broken off, so that the client notices.
    End,
}

/// The body of an answer.
pub(super) enum Body {
    /// The whole.
    Whole(Option<Bytes>),
    /// BodyPart after part.
    Parts {
        /// The parts.
        parts: mpsc::Receiver<BodyPart>,
        /// Stops the work if the client goes away.
        _cancel: CancelOnDrop,
    },
    /// After the last part.
    Ended,
}

/// Cancels work when it is dropped.
pub(super) struct CancelOnDrop(pub Arc<Cancel>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Parts { parts, .. } => match parts.poll_recv(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some(BodyPart::Bytes(bytes))) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Poll::Ready(Some(BodyPart::End)) => {
                    *self = Body::Ended;
                    Poll::Ready(None)
                }
                Poll::Ready(None) => {
                    *self = Body::Ended;
                    Poll::Ready(Some(Err(io::Error::other("the answer broke off"))))
                }
            },
            Body::Ended => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Whole(None) | Body::Ended)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Body::Whole(None) | Body::Ended => SizeHint::with_exact(0),
            Body::Parts { .. } => SizeHint::default(),
        }
    }
}

/// Makes an answer of one piece.
pub(super) fn answer(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Some(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Makes an answer without a body.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Whole(None));
    *response.status_mut() = status;
    response
}

/// Makes an answer of text that nobody may cache.
pub(super) fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    let mut response = answer(status, content_type, body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A problem document.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Problem {
    /// URI of the kind of error.
    #[schema(examples("urn:exacat:error:not-found"))]
    pub r#type: String,
    /// Kind of error, in words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// The message.
    pub detail: String,
    /// Kind of error: `not-found`, `denied`, ….
    pub kind: String,
    /// The name that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Advice: the next step.
    pub hint: &'static str,
}

impl Problem {
    /// Describes an error.
    pub(crate) fn of(error: &Error, subject: Option<String>) -> Self {
        let kind = error.kind.name();
        Problem {
            r#type: format!("{KIND_URI}{kind}"),
            title: title(error.kind).to_owned(),
            status: http_status(error.kind),
            detail: error.message.clone(),
            kind: kind.to_owned(),
            subject,
            hint: hint(error.kind),
        }
    }
}

fn title(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "Not found",
        ErrorKind::Exists => "Exists already",
        ErrorKind::NotDirectory => "Not a directory",
        ErrorKind::NotFile => "Not a file",
        ErrorKind::NotEmpty => "Not empty",
        ErrorKind::Denied => "Permission denied",
        ErrorKind::Unauthenticated => "Not authenticated",
        ErrorKind::Invalid => "Invalid request",
        ErrorKind::Conflict => "Conflict",
        ErrorKind::Quota => "Quota exceeded",
        ErrorKind::Limit => "Limit exceeded",
        ErrorKind::Busy => "Busy",
        ErrorKind::Unavailable => "Unavailable",
        ErrorKind::Unknown => "Unknown outcome",
        ErrorKind::Corrupt => "Damaged data",
        ErrorKind::Internal => "Internal error",
    }
}

fn hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "check the name; GET /api/v1/children/DIRECTORY lists names",
        ErrorKind::Exists => "take another name; a registration can take existing=same or existing=merge",
        ErrorKind::NotDirectory => "name a directory",
        ErrorKind::NotFile => "name a file",
        ErrorKind::NotEmpty => "remove its content first, or send recursive=true",
        ErrorKind::Denied => "GET /api/v1/whoami tells your rights; the owner or an operator can change them",
        ErrorKind::Unauthenticated => "send Authorization: Bearer TOKEN; 'exacat token issue' makes one",
        ErrorKind::Invalid => "correct the request; GET /api/v1/openapi.json describes it",
        ErrorKind::Conflict => "read the present state, then send a new request under a new Idempotency-Key",
        ErrorKind::Quota => "remove files, or ask an operator for a larger quota",
        ErrorKind::Limit => "send it in smaller parts",
        ErrorKind::Busy | ErrorKind::Unavailable => "send the request again after Retry-After seconds",
        ErrorKind::Unknown => "send the request again with the same Idempotency-Key",
        ErrorKind::Corrupt | ErrorKind::Internal => "tell the operator; the server's log has the detail",
    }
}

/// Makes the answer of an error.
pub(super) fn problem(error: &Error, subject: Option<String>) -> Response<Body> {
    let document = Problem::of(error, subject);
    let status = StatusCode::from_u16(document.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    refusal(status, &document)
}

/// Makes the answer of an error with another status than its kind has.
pub(super) fn problem_as(status: StatusCode, error: &Error) -> Response<Body> {
    refusal(status, &Problem { status: status.as_u16(), ..Problem::of(error, None) })
}

fn refusal(status: StatusCode, document: &Problem) -> Response<Body> {
    let mut response = answer(status, PROBLEM, serde_json::to_vec(document).unwrap_or_default());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"exacat\""));
    }
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
    }
    response
}

/// Makes the answer to a method that a path does not have.
pub(super) fn not_allowed(methods: &str) -> Response<Body> {
    let error = Error::invalid(format!("this path takes {methods}"));
    let mut response = problem_as(StatusCode::METHOD_NOT_ALLOWED, &error);
    set(&mut response, ALLOW, methods);
    response
}

/// Sets a header, unless its value cannot be one.
pub(super) fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
