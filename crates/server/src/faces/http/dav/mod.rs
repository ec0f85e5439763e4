//! WebDAV for grid tools: names and properties are answered here, content is elsewhere. There are no
//! locks (class 1).

mod content;
mod failed_puts;
mod listing;
mod naming;
mod transfer;
mod upload;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exacat_model::answer::Stat;
use exacat_model::{AccountName, Answer, Error, ErrorKind, Lfn, Operation, Result};
use exacat_wire::webdav::path::decode;
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response, StatusCode};

use super::Conversation;
use super::answers::{Body, empty, not_allowed, problem, problem_as, set};
use super::call::{BodyRoom, Call, whole};
use crate::peer::Peer;
use content::Storage;
pub(crate) use failed_puts::FailedPuts;

/// Start of the paths of WebDAV.
pub(super) const PREFIX: &str = "/dav";
/// Start of the paths of entries.
pub(super) const BELOW: &str = "/dav/";
/// The methods.
const METHODS: &str = "OPTIONS, GET, HEAD, PUT, DELETE, PROPFIND, PROPPATCH, MKCOL, MOVE, COPY";
/// Longest time for the body of a request, however steadily it comes.
const BODY_TIME: Duration = Duration::from_secs(600);
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

    /// Returns the server's name, as the client wrote it.
    fn host(&self) -> Result<String> {
        match self.head.uri.authority() {
            Some(authority) => Ok(authority.as_str().to_owned()),
            None => Ok(self.header(HOST.as_str())?.unwrap_or_default().to_owned()),
        }
    }

    /// Returns the site of the client, if its network is known.
    fn site(&self) -> Option<AccountName> {
        match self.conversation.peer {
            Peer::Network(peer) => self.conversation.face.places.site_of(peer.ip()),
            Peer::Local { .. } => None,
        }
    }

    fn storage(&self) -> Storage<'_> {
        Storage { conversation: self.conversation, call: &self.call }
    }

    /// Returns the body, of at most `most` bytes.
    async fn whole(&mut self, most: usize) -> Result<(bytes::Bytes, BodyRoom)> {
        match self.body.take() {
            None => Ok((bytes::Bytes::new(), BodyRoom::default())),
            Some(body) => {
                let late = |_| {
                    Error::new(ErrorKind::Unavailable, format!("the body did not come within {BODY_TIME:?}"))
                };
                tokio::time::timeout(BODY_TIME, whole(&self.call.service, body, most)).await.map_err(late)?
            }
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

/// Answers a page with the content of a file: see [`content::get`].
pub(super) async fn content(
    conversation: &Arc<Conversation>,
    head: &Parts,
    call: Call,
    lfn: Lfn,
) -> Result<Response<Body>> {
    let request = Request { conversation, call, head, lfn, body: &mut None };
    content::get(request).await.map_err(|refused| refused.error)
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
        Err(Refused { error, status: Some(status) }) => challenged(problem_as(status, &error)),
        Err(Refused { error, status: None }) => challenged(problem(&error, None)),
    }
}

/// Returns the headers with a token that a client without means for tokens sent as the password of Basic
/// authentication. Only WebDAV takes that: no page of another origin can make a browser send its methods.
fn with_bearer(headers: &HeaderMap) -> Result<Cow<'_, HeaderMap>> {
    let Some(encoded) = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Basic "))
    else {
        return Ok(Cow::Borrowed(headers));
    };
    let bad = || {
        Error::new(
            ErrorKind::Unauthenticated,
            "the header Authorization is not of the form 'Basic' with a token as the password",
        )
    };
    let decoded = STANDARD.decode(encoded.trim_ascii()).map_err(|_| bad())?;
    let text = std::str::from_utf8(&decoded).map_err(|_| bad())?;
    let (_, token) = text.split_once(':').ok_or_else(bad)?;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| bad())?;
    value.set_sensitive(true);
    let mut headers = headers.clone();
    headers.insert(AUTHORIZATION, value);
    Ok(Cow::Owned(headers))
}

/// Adds the challenge for clients without means for tokens.
fn challenged(mut response: Response<Body>) -> Response<Body> {
    if response.status() == StatusCode::UNAUTHORIZED {
        let basic = HeaderValue::from_static("Basic realm=\"exacat: any name, and a token as the password\"");
        response.headers_mut().append(WWW_AUTHENTICATE, basic);
    }
    response
}

async fn run(conversation: &Arc<Conversation>, head: &Parts, body: &mut Option<Incoming>) -> Outcome {
    let call = Call::open(conversation, &*with_bearer(&head.headers)?).await?;
    let lfn = decode(head.uri.path(), PREFIX)?;
    let request = Request { conversation, call, head, lfn, body };
    match head.method.as_str() {
        "PROPFIND" => listing::propfind(request).await,
        "PROPPATCH" => naming::proppatch(request).await,
        "MKCOL" => naming::make(request).await,
        "DELETE" => naming::remove(request).await,
        "MOVE" => naming::rename(request).await,
        "COPY" => naming::copy(request).await,
        "PUT" => upload::put(request).await,
        _ => content::get(request).await,
    }
}
