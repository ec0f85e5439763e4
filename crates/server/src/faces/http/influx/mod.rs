//! InfluxDB's interface: values of elements, written and read by the clients that exist.
//!
//! Answers are those of InfluxDB 1.8, with its words in errors, because clients search them. An overload
//! and an outcome that nobody knows are 503 with Retry-After: a client that gets another refusal throws
//! its values away.

mod query;
mod reading;
mod select;
mod show;
mod sums;
mod write;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exacat_history::{Group, History};
use exacat_model::{Error, ErrorKind, GroupName, Guid, Result};
use exacat_wire::influx::{Format, error_body};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};

use super::Conversation;
use super::answers::{Body, JSON, TEXT, answer as made, empty};
use super::call::Call;
use super::query::pairs;
use crate::activity::Facts;
use crate::admission::Share;
use crate::instruments::{Ended, OperationIndex};

/// Version that clients are told: that of the interface.
const VERSION: &str = "1.8.10";
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-influxdb-version");
const BUILD_HEADER: HeaderName = HeaderName::from_static("x-influxdb-build");
const ERROR_HEADER: HeaderName = HeaderName::from_static("x-influxdb-error");
/// Headers with the id of a request, in a request and in its answer. The first one wins.
const ID_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-request-id"), HeaderName::from_static("request-id")];
/// Bytes of an id that a client chose; a longer one is replaced.
const ID_BYTES_MAX: usize = 256;
/// Bytes of an error in its header.
const ERROR_HEADER_BYTES_MAX: usize = 1024;
/// Seconds after which a refused client sends its values again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("1");

/// Parameters of a request, in its URL.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Returns a parameter; none if it is missing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A refusal: status, text, and the kind of error that the metrics have.
pub(super) struct Refusal {
    status: StatusCode,
    kind: ErrorKind,
    text: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let kind = match status {
            StatusCode::NOT_FOUND => ErrorKind::NotFound,
            StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::Limit,
            _ => ErrorKind::Invalid,
        };
        Refusal { status, kind, text: text.into() }
    }

    /// Refuses with the status that makes clients do the right thing.
    pub(super) fn of(error: &Error) -> Self {
        let status = match error.kind {
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::Denied => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Limit => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::Unknown => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Corrupt | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Refusal { status, kind: error.kind, text: error.message.clone() }
    }

    fn response(self) -> Response<Body> {
        let mut response = made(self.status, JSON, error_body(Format::Json { is_pretty: false }, &self.text));
        let headers = response.headers_mut();
        // A header has no line ends and no bytes beyond ASCII.
        let short: String =
            self.text.chars().map(|letter| if letter.is_ascii_graphic() { letter } else { ' ' }).collect();
        let short = &short[..short.len().min(ERROR_HEADER_BYTES_MAX)];
        if let Ok(value) = HeaderValue::from_str(short) {
            headers.insert(ERROR_HEADER, value);
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, RETRY_SECONDS);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"InfluxDB\""));
        }
        response
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::of(&error)
    }
}

/// Answers a request for a path of InfluxDB; none for any other path, and on a server without history.
pub(super) async fn answer(
    conversation: &Arc<Conversation>,
    head: &Parts,
    body: &mut Option<Incoming>,
) -> Option<Response<Body>> {
    let history = Arc::clone(conversation.face.service.elements.get()?);
    let request = Asked { conversation, head, history };
    let outcome = match head.uri.path() {
        "/ping" => request.ping(),
        "/health" => Ok(health()),
        "/write" => request.write(body, write::Form::V1).await,
        "/api/v2/write" => request.write(body, write::Form::V2).await,
        "/query" => request.query(body).await,
        path if path.starts_with("/api/v2/") => Ok(made(StatusCode::NOT_FOUND, TEXT, "404 page not found\n")),
        _ => return None,
    };
    let mut response = outcome.unwrap_or_else(Refusal::response);
    let headers = response.headers_mut();
    headers.insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
    headers.insert(BUILD_HEADER, HeaderValue::from_static("OSS"));
    if let Some(id) = request_id(conversation, &head.headers) {
        ID_HEADERS.into_iter().for_each(|name| drop(headers.insert(name, id.clone())));
    }
    Some(response)
}

/// Returns the id of a request: the one that the client chose, else a new one.
fn request_id(conversation: &Conversation, headers: &HeaderMap) -> Option<HeaderValue> {
    let given = ID_HEADERS.iter().find_map(|name| headers.get(name).filter(|value| !value.is_empty()));
    if let Some(given) = given.filter(|value| value.len() <= ID_BYTES_MAX) {
        return Some(given.clone());
    }
    let id = conversation.face.service.catalogue.new_operation_id().ok()?;
    HeaderValue::from_str(&Guid(id.0).to_string()).ok()
}

fn health() -> Response<Body> {
    let text = format!(
        "{{\"checks\":[],\"message\":\"ready for queries and writes\",\"name\":\"influxdb\",\"status\":\"pass\",\
         \"version\":\"{VERSION}\"}}"
    );
    made(StatusCode::OK, JSON, text)
}

/// A request for a path of InfluxDB.
pub(super) struct Asked<'a> {
    conversation: &'a Arc<Conversation>,
    head: &'a Parts,
    history: Arc<History>,
}

impl Asked<'_> {
    fn ping(&self) -> std::result::Result<Response<Body>, Refusal> {
        let parameters = self.parameters()?;
        if self.head.method != Method::GET && self.head.method != Method::HEAD {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "ping is GET or HEAD"));
        }
        Ok(match parameters.get("verbose") {
            Some("true" | "1") => made(StatusCode::OK, JSON, format!("{{\"version\":\"{VERSION}\"}}")),
            _ => empty(StatusCode::NO_CONTENT),
        })
    }

    /// Returns the parameters of the request.
    fn parameters(&self) -> Result<Parameters> {
        pairs(self.head.uri.query().unwrap_or_default()).map(Parameters)
    }

    /// Judges the credentials of the request, and admits it to a share.
    async fn call(&self, parameters: &Parameters, share: Share) -> Result<Call> {
        let mut headers = HeaderMap::new();
        let given = self.head.headers.get(AUTHORIZATION).map(token_of).transpose()?;
        if let Some(token) = given.or_else(|| parameters.get("p").map(str::to_owned)) {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| bad_credentials())?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Call::open_in(self.conversation, &headers, share).await
    }

    fn find(&self, name: &str) -> Option<Arc<Group>> {
        GroupName::parse(name).ok().and_then(|name| self.history.group(&name).ok())
    }

    /// Returns the group of a database's name.
    fn group(&self, name: &str) -> std::result::Result<Arc<Group>, Refusal> {
        self.find(name)
            .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, format!("database not found: \"{name}\"")))
    }
}

/// Operation that a write counts as.
const WRITE: &str = "element-write";
/// Operation that a query counts as.
const READ: &str = "element-rows";

/// Tracks and counts `work` as a request for an operation, with the items that it names.
async fn counted<T>(
    call: &Call,
    operation: &str,
    work: impl Future<Output = (u64, std::result::Result<T, Refusal>)>,
) -> std::result::Result<T, Refusal> {
    let facts =
        Facts { requester: Some(call.requester().clone()), is_long: operation == READ, ..Facts::default() };
    let work = async {
        let (items, outcome) = work.await;
        let ended = outcome.as_ref().map_or_else(|refusal| Ended::Failed(refusal.kind), |_| Ended::Well);
        (items, ended, outcome)
    };
    call.service.counted(call.requester(), OperationIndex::named(operation), facts, work).await.1
}

fn bad_credentials() -> Error {
    Error::new(ErrorKind::Unauthenticated, "unable to parse authentication credentials")
}

/// Returns the token in a header: `Bearer TOKEN`, `Token TOKEN`, `Token USER:TOKEN`, or the password of
/// basic authentication. The user is not looked at: the token proves it.
fn token_of(value: &HeaderValue) -> Result<String> {
    let text = value.to_str().map_err(|_| bad_credentials())?;
    let (scheme, rest) = text.split_once(' ').ok_or_else(bad_credentials)?;
    let rest = rest.trim();
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Ok(rest.to_owned()),
        "token" => Ok(rest.split_once(':').map_or(rest, |(_, token)| token).to_owned()),
        "basic" => {
            let bytes = STANDARD.decode(rest).map_err(|_| bad_credentials())?;
            let text = String::from_utf8(bytes).map_err(|_| bad_credentials())?;
            text.split_once(':').map(|(_, token)| token.to_owned()).ok_or_else(bad_credentials)
        }
        _ => Err(bad_credentials()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests count as operations that there are.
    #[test]
    fn requests_count_as_operations_of_the_list() {
        for name in [WRITE, READ] {
            assert_eq!(OperationIndex::named(name).name(), name);
        }
    }

    /// A token is taken from each form that clients of InfluxDB send.
    #[test]
    fn token_is_found_in_each_form() {
        let token = |text: &str| token_of(&HeaderValue::from_str(text).unwrap());
        for text in ["Bearer abc", "Token abc", "token user:abc", "Basic dXNlcjphYmM="] {
            assert_eq!(token(text).unwrap(), "abc", "{text}");
        }
        for text in ["abc", "Basic !", "Basic dXNlcg==", "Digest abc"] {
            assert_eq!(token(text).unwrap_err().kind, ErrorKind::Unauthenticated, "{text}");
        }
    }
}
