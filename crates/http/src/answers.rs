//! Answers: whole bodies, bodies in pieces, and errors as problem documents.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use exacat_model::{Error, ErrorKind};
use hyper::body::{Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::problem::{ServiceProblem, status_of};

/// Content type of metrics.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Content type of text.
pub const TEXT: &str = "text/plain; charset=utf-8";
/// Content type of bytes.
pub const BYTES: &str = "application/octet-stream";
/// Seconds after which a refused client may come again.
const RETRY_SECONDS: &str = "1";

/// Body of an answer.
pub enum Body {
    /// All of it.
    Whole(Option<Bytes>),
    /// Pieces as they come. An error breaks the connection, so that the client notices.
    Pieces {
        /// The pieces.
        pieces: mpsc::Receiver<io::Result<Bytes>>,
        /// Bytes that are still to come.
        left: u64,
        /// Held until the body ends.
        place: Box<dyn AnswerPlace>,
    },
}

/// Place of an answer with content, one of a bounded number. It is left when it is dropped.
pub trait AnswerPlace: Send + Sync {
    /// Counts bytes of the answer.
    fn sent(&self, bytes: u64);
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Pieces { left: 0, .. } => Poll::Ready(None),
            Body::Pieces { pieces, left, place } => match pieces.poll_recv(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some(Ok(piece))) => {
                    *left = left.saturating_sub(piece.len() as u64);
                    place.sent(piece.len() as u64);
                    Poll::Ready(Some(Ok(Frame::data(piece))))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => Poll::Ready(Some(Err(io::Error::other("the answer broke off")))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Whole(None) | Body::Pieces { left: 0, .. })
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Pieces { left, .. } => SizeHint::with_exact(*left),
        }
    }
}

/// Makes an answer that nobody may cache.
pub fn answer(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Makes an answer of text.
pub fn text(status: StatusCode, text: String) -> Response<Body> {
    answer(status, TEXT, Body::Whole(Some(text.into())))
}

/// Makes an answer of metrics for Prometheus.
pub fn metrics_answer(text: String) -> Response<Body> {
    answer(StatusCode::OK, METRICS, Body::Whole(Some(text.into())))
}

/// Makes an answer that names the URL of another service.
pub fn redirect(url: &str) -> Response<Body> {
    let mut response = text(StatusCode::TEMPORARY_REDIRECT, format!("the file is at {url}\n"));
    set(&mut response, LOCATION, url);
    response
}

/// Makes an answer of JSON.
pub fn json(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => answer(StatusCode::OK, "application/json", Body::Whole(Some(bytes.into()))),
        Err(error) => problem(&Error::new(ErrorKind::Internal, format!("internal error: {error}"))),
    }
}

/// Makes the answer of an error.
pub fn problem(error: &Error) -> Response<Body> {
    problem_as(status_of(error.kind).0, error)
}

/// Makes the answer of an error with another status than its kind has.
pub fn problem_as(status: u16, error: &Error) -> Response<Body> {
    let document = ServiceProblem::of(error, status);
    let mut response = json(&document);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    match status {
        401 => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"exacat\""));
        }
        429 | 503 => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        _ => {}
    }
    response
}

/// Makes the answer to a method that a path does not have.
pub fn not_allowed(methods: &str) -> Response<Body> {
    let mut response = problem_as(405, &Error::invalid(format!("this path takes {methods}")));
    set(&mut response, ALLOW, methods);
    response
}

/// Sets a header, unless its value cannot be one.
pub fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
