//! WebDAV for grid tools: names and properties are answered here, content is elsewhere. There are no
//! locks (class 1).

mod content;
mod listing;
mod naming;

use std::sync::Arc;

use exacat_model::answer::Stat;
use exacat_model::{Answer, Error, ErrorKind, Lfn, Operation, Result};
use exacat_wire::webdav::path::decode;
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderName};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::Conversation;
use super::answers::{Body, empty, not_allowed, problem, problem_as, set};
use super::call::{Call, whole};

/// Start of the paths of WebDAV.
pub(super) const PREFIX: &str = "/dav";
/// Start of the paths of entries.
pub(super) const BELOW: &str = "/dav/";
/// The methods.
const METHODS: &str = "OPTIONS, GET, HEAD, PUT, DELETE, PROPFIND, PROPPATCH, MKCOL, MOVE, COPY";
/// Header with the class of the server.
const DAV: HeaderName = HeaderName::from_static("dav");
/// Header by which Windows recognises a server of this kind.
const AUTHOR_VIA: HeaderName = HeaderName::from_static("ms-author-via");

/// A refusal: an error, and its status if its kind has another one.
pub(super) struct Refused {
    error: Error,
    status: Option<StatusCode>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused { error, status: None }
    }
}

impl Refused {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Refused { error: Error::invalid(message), status: Some(status) }
    }

    /// Sets the status for an error of this kind.
    fn with(error: Error, kind: ErrorKind, status: StatusCode) -> Self {
        let status = (error.kind == kind).then_some(status);
        Refused { error, status }
    }
}

type Outcome = std::result::Result<Response<Body>, Refused>;

/// A request under way.
struct Request<'a> {
    conversation: &'a Arc<Conversation>,
    call: Call,
    head: &'a Parts,
    lfn: Lfn,
    body: &'a mut Option<Incoming>,
}

impl Request<'_> {
    fn header(&self, name: &str) -> Result<Option<&str>> {
        let Some(value) = self.head.headers.get(name) else { return Ok(None) };
        value.to_str().map(Some).map_err(|_| Error::invalid(format!("the header {name} is not plain text")))
    }

    /// Returns the body, of at most `most` bytes.
    async fn whole(&mut self, most: usize) -> Result<(bytes::Bytes, Vec<crate::admission::Held>)> {
        match self.body.take() {
            None => Ok((bytes::Bytes::new(), Vec::new())),
            Some(body) => whole(&self.call.service, body, most).await,
        }
    }

    async fn stat(&mut self, lfn: &Lfn, follow: bool) -> Result<Stat> {
        match self.call.ask(Operation::Stat { lfns: vec![lfn.clone()], follow }).await? {
            Answer::Stats(mut found) => found.pop().unwrap_or_else(|| Err(unfitting())),
            _ => Err(unfitting()),
        }
    }

    /// Runs an operation whose answer has a result for its one entry.
    async fn change(&mut self, operation: Operation) -> Result<()> {
        match self.call.ask(operation).await? {
            Answer::EachDone(mut done) => done.pop().unwrap_or_else(|| Err(unfitting())),
            _ => Ok(()),
        }
    }
}

fn unfitting() -> Error {
    Error::new(ErrorKind::Internal, "an answer that does not fit the request")
}

/// Answers a request.
pub(super) async fn answer(
    conversation: &Arc<Conversation>,
    head: &Parts,
    body: &mut Option<Incoming>,
) -> Response<Body> {
    let method = head.method.as_str();
    if method == "OPTIONS" {
        let mut response = empty(StatusCode::OK);
        set(&mut response, DAV, "1");
        set(&mut response, ALLOW, METHODS);
        set(&mut response, AUTHOR_VIA, "DAV");
        return response;
    }
    if !METHODS.split(", ").any(|known| known == method) {
        return not_allowed(METHODS);
    }
    match run(conversation, head, body).await {
        Ok(response) => response,
        Err(Refused { error, status: Some(status) }) => problem_as(status, &error),
        Err(Refused { error, status: None }) => problem(&error, None),
    }
}

async fn run(conversation: &Arc<Conversation>, head: &Parts, body: &mut Option<Incoming>) -> Outcome {
    let call = Call::open(conversation, &head.headers).await?;
    let lfn = decode(head.uri.path(), PREFIX)?;
    let request = Request { conversation, call, head, lfn, body };
    match head.method.as_str() {
        "PROPFIND" => listing::propfind(request).await,
        "PROPPATCH" => naming::proppatch(request).await,
        "MKCOL" => naming::make(request).await,
        "DELETE" => naming::remove(request).await,
        "MOVE" => naming::rename(request).await,
        "COPY" => naming::copy(request).await,
        "PUT" => content::put(request).await,
        _ => content::get(request).await,
    }
}
