//! The REST API: finds the endpoint of a request, runs its operation, and answers JSON.

mod arguments;
mod conditions;
mod element_endpoints;
mod endpoints;
mod feed_endpoints;
mod openapi;
mod render;
mod schemas;
mod streams;
mod table;
mod tables;

pub(crate) use openapi::document;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use exacat_feed::Kinds;
use exacat_model::{Answer, Error, ErrorKind, Guid, HasRevision, Operation, Result, Revision};
use exacat_wire::json::{NewIdOut, SeNames};
use exacat_wire::percent;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH, LINK,
    TRANSFER_ENCODING, VARY,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};

use self::tables::TableForm;
use super::Conversation;
use super::answers::{
    Body, EVENTS, JSON, LINES, answer as whole_answer, empty, in_room, not_allowed, problem, problem_as, set,
};
use super::call::{BODY_BYTES_MAX, BodyRoom, Call, REVISION, decoded, text_of, whole_in};
use super::finding::find_operation;
use super::query::cursor_text;
use crate::admission::limit_of;
use arguments::Arguments;
use conditions::{Conditions, content_tag, does_not_apply, entity_tag, is_unchanged, revision_of, tagged};
use endpoints::{Endpoint, Run, Shape, View, limit, position};
use render::{Failures, Names, Objects, Renderer};
use streams::{Bulk, Changes};
use table::endpoints;

/// Start of the paths of this API.
pub(super) const PREFIX: &str = "/api/v1";
/// Path that also a drained server has.
pub(super) const DRAIN: &str = "/api/v1/drain";
/// Items of a page, if the request gives no limit.
const PAGE_ITEMS: u32 = 1000;
/// Most items of a page.
const PAGE_ITEMS_MAX: u32 = 10_000;
/// Rucio's name for JSON lines, which its clients accept.
const STREAM: &str = "application/x-json-stream";
/// Header with the last event that a client of server-sent events saw.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The endpoints by the first component of their path.
static ROUTES: LazyLock<BTreeMap<&'static str, Vec<Endpoint>>> = LazyLock::new(|| {
    let mut routes: BTreeMap<&'static str, Vec<Endpoint>> = BTreeMap::new();
    for endpoint in endpoints() {
        let first = endpoint.path.split('/').nth(1).unwrap_or_default();
        routes.entry(first).or_default().push(endpoint);
    }
    routes
});
static DOCUMENT: LazyLock<String> = LazyLock::new(document);

/// Returns the names of the variable parts of an endpoint's path.
fn variables(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The variable parts of a path, still encoded.
#[derive(Default)]
struct Matched<'a> {
    lfn: Option<&'a str>,
    name: Option<&'a str>,
}

/// Compares a path with that of an endpoint.
fn matches<'a>(endpoint: &Endpoint, path: &'a str) -> Option<Matched<'a>> {
    let mut matched = Matched::default();
    let mut rest = Some(path.strip_prefix('/')?);
    for part in endpoint.path.split('/').skip(1) {
        let left = rest?;
        if part == "{lfn}" {
            matched.lfn = Some(left);
            return Some(matched);
        }
        let (component, after) = match left.split_once('/') {
            Some((component, after)) => (component, Some(after)),
            None => (left, None),
        };
        if part.starts_with('{') {
            if component.is_empty() {
                return None;
            }
            matched.name = Some(component);
        } else if part != component {
            return None;
        }
        rest = after;
    }
    rest.is_none().then_some(matched)
}

/// Finds the endpoint of a request, or answers that there is none.
fn find<'a>(
    method: &str,
    path: &'a str,
) -> std::result::Result<(&'static Endpoint, Matched<'a>), Box<Response<Body>>> {
    let first = path.split('/').nth(1).unwrap_or_default();
    let candidates = ROUTES.get(first).map(Vec::as_slice).unwrap_or_default();
    let mut methods: Vec<&str> = Vec::new();
    for endpoint in candidates {
        if let Some(matched) = matches(endpoint, path) {
            if endpoint.method == method {
                return Ok((endpoint, matched));
            }
            methods.push(endpoint.method);
        }
    }
    if methods.is_empty() {
        let error = Error::not_found("no such path in this API; GET /api/v1/openapi.json lists all");
        return Err(Box::new(problem(&error, Some(path.to_owned()))));
    }
    methods.sort_unstable();
    methods.dedup();
    Err(Box::new(not_allowed(&methods.join(", "))))
}

/// Answers a request.
pub(super) async fn answer(
    conversation: &Arc<Conversation>,
    head: &Parts,
    body: &mut Option<Incoming>,
) -> Response<Body> {
    let path = head.uri.path();
    let method = if head.method == Method::HEAD { "GET" } else { head.method.as_str() };
    let below = path.strip_prefix(PREFIX).unwrap_or_default();
    let (endpoint, matched) = match find(method, below) {
        Ok((endpoint, Matched { lfn, name })) => {
            (endpoint, (lfn.map(str::to_owned), name.map(str::to_owned)))
        }
        Err(response) => return *response,
    };
    if matches!(endpoint.run, Run::Document) {
        return whole_answer(StatusCode::OK, JSON, DOCUMENT.as_bytes());
    }
    let refused = match run(conversation, endpoint, matched, head, body).await {
        Ok(response) => return response,
        Err(refused) => refused,
    };
    let Refused { error, subject, status } = refused;
    let is_known = error.kind != ErrorKind::Unauthenticated;
    let mut response = match status {
        Some(status) => problem_as(status, &error),
        None => problem(&error, subject),
    };
    if is_known && let Ok(revision) = conversation.face.service.catalogue.store().revision().await {
        set(&mut response, REVISION, &revision.0.to_string());
    }
    response
}

/// The reason why a request got no answer.
struct Refused {
    error: Error,
    subject: Option<String>,
    /// The status, if it is not that of the error's kind.
    status: Option<StatusCode>,
}

impl Refused {
    /// Makes the refusal of an operation.
    fn about(error: Error, names: &Names, conditions: Conditions) -> Self {
        let status = conditions.failed(&error).then_some(StatusCode::PRECONDITION_FAILED);
        Refused { error, subject: Some(names.text(0)), status }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused { error, subject: None, status: None }
    }
}

async fn run(
    conversation: &Arc<Conversation>,
    endpoint: &'static Endpoint,
    (lfn, name): (Option<String>, Option<String>),
    head: &Parts,
    body: &mut Option<Incoming>,
) -> std::result::Result<Response<Body>, Refused> {
    let headers = &head.headers;
    let share = endpoint.share();
    let mut call = Call::open_in(conversation, headers, share).await?;
    let lfn = lfn.map(|lfn| percent::lfn(&format!("/{lfn}"))).transpose()?;
    let name = name.map(|name| decoded(&name, false)).transpose()?;
    let known = |key: &str| endpoint.query.iter().any(|parameter| parameter.name == key);
    let mut arguments =
        Arguments::new(endpoint.name, lfn, name, head.uri.query().unwrap_or_default(), known)?;
    let face = &conversation.face;
    if endpoint.has_past()
        && let Some(text) = arguments.given("at")?
    {
        // What it reads of the past is judged again, operation by operation.
        let reads = Operation::Stat { lfns: Vec::new(), follow: false };
        call.enter_past(text.parse()?, &reads).await?;
    }
    let ses = call.past_ses().unwrap_or_else(|| face.ses());
    let revision = call.revision().await?;
    let mut wants = wanted(headers);
    if wants == Wanted::Events && !matches!(endpoint.run, Run::Changes) {
        wants = Wanted::Page;
    }
    if let Run::Lines(lines) = endpoint.run {
        check_kind(headers, &[LINES, STREAM, JSON])?;
        for condition in [IF_MATCH, IF_NONE_MATCH] {
            if headers.contains_key(&condition) {
                return Err(does_not_apply(condition.as_str()).into());
            }
        }
        let bulk = Bulk::new(lines, &arguments)?;
        let body = body.take().ok_or_else(|| Error::invalid("the body was read before"))?;
        let frames = call.frames(body);
        let kind = if wants == Wanted::Stream { STREAM } else { LINES };
        let mut response = streams::bulk(call, bulk, frames, ses, kind);
        set(&mut response, REVISION, &revision.0.to_string());
        return Ok(response);
    }
    let mut _room = BodyRoom::default();
    if has_body(headers) {
        if endpoint.body.is_none() {
            return Err(Error::invalid("this request has no body").into());
        }
        check_kind(headers, &[JSON])?;
        if let Some(body) = body.take() {
            (arguments.body, _room) = whole_in(&face.service, share, body, BODY_BYTES_MAX).await?;
        }
    }
    let mut operation = match &endpoint.run {
        Run::Operation(make) => make(&arguments)?,
        Run::Find => {
            let (conditions, cursor) = (arguments.json()?, arguments.cursor()?);
            find_operation(&mut call, conditions, cursor, limit(&arguments)?).await?
        }
        Run::Changes => {
            let response = changes(conversation, call, &arguments, headers, wants).await;
            return response.map(|mut response| {
                set(&mut response, REVISION, &revision.0.to_string());
                response
            });
        }
        Run::NewId => {
            let catalogue = &face.service.catalogue;
            let mut random = [0; 10];
            random.copy_from_slice(&catalogue.new_operation_id()?.0[6..]);
            let id = NewIdOut { id: Guid::v7(catalogue.now(), random).to_string() };
            let id = serde_json::to_vec(&id).unwrap_or_default();
            let mut response = whole_answer(StatusCode::OK, JSON, id);
            set(&mut response, REVISION, &revision.0.to_string());
            return Ok(response);
        }
        Run::Lines(_) | Run::Document => return Err(Error::invalid("not here").into()),
    };
    let names = Names::of(&operation);
    let conditions = Conditions::require(&mut call, headers, &mut operation).await?;
    let about = |error: Error| Refused::about(error, &names, conditions);
    if matches!(endpoint.answer, Shape::Items(_) | Shape::Pages(_) | Shape::Tables(_)) {
        if let Wanted::Table(form) = wants {
            let (Shape::Tables(_), Some(history)) = (&endpoint.answer, face.service.elements.get()) else {
                let what = format!("only values of elements come as {}", form.content_type());
                return Err(Error::invalid(what).into());
            };
            let table = streams::table(call, operation.clone(), Arc::clone(history), form).await;
            let mut response = table.map_err(about)?;
            set(&mut response, REVISION, &revision.0.to_string());
            return Ok(response);
        }
        if wants != Wanted::Page {
            let kind = if wants == Wanted::Stream { STREAM } else { LINES };
            let lines = streams::lines(call, operation.clone(), endpoint.view, ses, kind);
            let mut response = lines.await.map_err(about)?;
            set(&mut response, REVISION, &revision.0.to_string());
            return Ok(response);
        }
        return page(call, endpoint, operation, &names, &ses, head).await.map_err(about);
    }
    match one(&mut call, headers, endpoint, operation, (&names, &ses), revision).await {
        // Nothing is as the client saw it, if there is no entry any more.
        Err(error) if conditions.is_as_seen && error.kind == ErrorKind::NotFound => {
            let lfn = exacat_model::Lfn::parse(&names.text(0))?;
            let is_gone = revision_of(&mut call, &lfn, false).await?.is_none();
            let status = is_gone.then_some(StatusCode::PRECONDITION_FAILED);
            Err(Refused { status, ..about(error) })
        }
        answered => answered.map_err(about),
    }
}

/// Answers with one object. The catalogue had the revision `before` already.
async fn one(
    call: &mut Call,
    headers: &HeaderMap,
    endpoint: &Endpoint,
    operation: Operation,
    (names, ses): (&Names, &SeNames),
    mut before: Revision,
) -> Result<Response<Body>> {
    let is_restore = matches!(operation, Operation::TrashRestore { .. } | Operation::TrashRestorePart { .. });
    let writes = operation.writes();
    let version = version_of(call, &operation).await?;
    let mut look_ups = call.look_up_lines(&operation);
    let answer = match operation {
        Operation::TrashPurge { .. } | Operation::Backup { .. } => steps(call, operation).await?,
        operation => call.ask(operation).await?,
    };
    look_ups.all(&answer);
    look_ups.write();
    let renderer = Renderer { names, view: endpoint.view, failures: Failures::Request, ses };
    let mut objects = Objects::with_commas();
    let mut tag = None;
    match &answer {
        Answer::Done { revision } => before = before.max(*revision),
        Answer::Stats(items) => {
            let stat = items.first().and_then(|item| item.as_ref().ok());
            tag = stat.map(|stat| entity_tag(stat.entry.revision));
        }
        Answer::EachDone(_) | Answer::Registered(_) | Answer::Removed { .. } | Answer::Upload(_) => {
            before = call.revision().await?;
        }
        _ => {}
    }
    match answer {
        Answer::Done { revision } if is_restore => renderer.restored(revision, &mut objects),
        answer => renderer.render(answer, &mut objects),
    }?;
    objects.bytes.push(b'\n');
    let tag = tag.or_else(|| version.map(|version| content_tag(version, &objects.bytes)));
    // The answer to a change is short, and must not be refused.
    let room = if writes { None } else { call.room_of_whole(objects.bytes.len())? };
    let body = match room {
        Some(room) => in_room(objects.bytes, room),
        None => objects.bytes.into(),
    };
    let mut response = tagged_answer(headers, tag, body);
    set(&mut response, REVISION, &before.0.to_string());
    Ok(response)
}

/// Returns the version of the entry that an answer is about, read before the answer: a change in
/// between makes the client read again.
async fn version_of(call: &mut Call, operation: &Operation) -> Result<Option<Revision>> {
    match tagged(operation) {
        Some(lfn) => revision_of(call, lfn, true).await,
        None => Ok(None),
    }
}

/// Makes an answer with its tag; without a body if the client has it already.
fn tagged_answer(headers: &HeaderMap, tag: Option<String>, body: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = match &tag {
        Some(tag) if is_unchanged(headers, tag) => empty(StatusCode::NOT_MODIFIED),
        _ => whole_answer(StatusCode::OK, JSON, body),
    };
    if let Some(tag) = tag {
        set(&mut response, ETAG, &tag);
    }
    response
}

/// Runs an operation of several steps to its end.
async fn steps(call: &mut Call, operation: Operation) -> Result<Answer> {
    let mut answer = call.ask(operation.clone()).await?;
    let mut total = 0;
    while let Some(next) = answer.next().cloned() {
        if let Answer::Purged { entries, .. } = &answer {
            total += entries;
        }
        let Some(operation) = operation.resumed(next) else { break };
        answer = call.ask(operation).await?;
    }
    if let Answer::Purged { entries, .. } = &mut answer {
        *entries += total;
    }
    Ok(answer)
}

/// Answers with one page.
async fn page(
    mut call: Call,
    endpoint: &Endpoint,
    operation: Operation,
    names: &Names,
    ses: &SeNames,
    head: &Parts,
) -> Result<Response<Body>> {
    let revision = call.revision().await?;
    let version = version_of(&mut call, &operation).await?;
    let items = match limit_of(&operation) {
        Some(0) => PAGE_ITEMS,
        _ => PAGE_ITEMS_MAX,
    };
    let (answer, room) = call.page(operation, items).await?;
    let next = answer.next().cloned();
    let renderer = Renderer { names, view: endpoint.view, failures: Failures::Request, ses };
    let mut objects = Objects::with_commas();
    objects.bytes.extend_from_slice(b"{\"items\":[");
    renderer.render_page(&call, answer, &mut objects).await?;
    objects.bytes.push(b']');
    let mut link = None;
    if let Some(next) = &next {
        let cursor = cursor_text(endpoint.name, next);
        link = Some(next_link(&head.uri, "cursor", &cursor));
        objects.bytes.extend_from_slice(format!(",\"next\":\"{cursor}\"").as_bytes());
    }
    objects.bytes.extend_from_slice(b"}\n");
    let tag = version.map(|version| content_tag(version, &objects.bytes));
    let mut response = tagged_answer(&head.headers, tag, in_room(objects.bytes, room));
    if let Some(link) = link {
        set(&mut response, LINK, &link);
    }
    set(&mut response, REVISION, &revision.0.to_string());
    set(&mut response, VARY, "Accept");
    Ok(response)
}

/// Returns the header that names the next page.
fn next_link(uri: &hyper::Uri, parameter: &str, value: &str) -> String {
    let others = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(parameter));
    let mut query: Vec<&str> = others.collect();
    let own = format!("{parameter}={value}");
    query.push(&own);
    format!("<{}?{}>; rel=\"next\"", uri.path(), query.join("&"))
}

/// Answers a request for changes, in one of its forms.
async fn changes(
    conversation: &Arc<Conversation>,
    mut call: Call,
    arguments: &Arguments,
    headers: &HeaderMap,
    wants: Wanted,
) -> std::result::Result<Response<Body>, Refused> {
    let under = arguments.parsed("under")?;
    let kinds = Kinds::parse(arguments.given("kinds")?.into_iter().flat_map(|kinds| kinds.split(',')))?;
    let wait = arguments.flag("wait")?;
    let after = match text_of(headers, &LAST_EVENT_ID)? {
        Some(seen) => position(Some(seen))?,
        None => position(arguments.given("after")?)?,
    };
    if wants == Wanted::Page {
        if wait {
            let under = under.clone();
            call.ask(Operation::Changes { after, under, limit: 1, wait: true }).await?;
        }
        let limit = limit_or(arguments, PAGE_ITEMS)?;
        let operation = Operation::Changes { after, under, limit, wait: false };
        let (mut answer, room) = call.page(operation, PAGE_ITEMS_MAX).await?;
        let Answer::Changes { items, next, up_to, timeline, .. } = &answer else {
            return Err(Error::new(ErrorKind::Internal, "an answer that does not fit the request").into());
        };
        let last = items.last().map(|item| item.change.revision);
        let place = if next.is_some() {
            last.unwrap_or(after.revision)
        } else {
            last.map_or(*up_to, |last| last.max(*up_to))
        };
        let place = place.on(timeline.tag()).to_string();
        let more = next.is_some();
        streams::keep(&mut answer, kinds);
        let ses = conversation.face.ses();
        let names = Names::Subject("changes".to_owned());
        let renderer = Renderer { names: &names, view: View::All, failures: Failures::Request, ses: &ses };
        let mut objects = Objects::with_commas();
        objects.bytes.extend_from_slice(b"{\"items\":[");
        renderer.render(answer, &mut objects)?;
        let next = if more { format!(",\"next\":\"{place}\"") } else { String::new() };
        objects.bytes.extend_from_slice(format!("],\"position\":\"{place}\"{next}}}\n").as_bytes());
        return Ok(whole_answer(StatusCode::OK, JSON, in_room(objects.bytes, room)));
    }
    let events = wants == Wanted::Events;
    let kind = match wants {
        Wanted::Events => EVENTS,
        Wanted::Stream => STREAM,
        _ => LINES,
    };
    let face = Arc::clone(&conversation.face);
    let changes = Changes { after, under, kinds, wait: wait || events, events };
    Ok(streams::changes(call, changes, move || face.ses(), kind).await?)
}

fn limit_or(arguments: &Arguments, other: u32) -> Result<u32> {
    Ok(match limit(arguments)? {
        0 => other,
        limit => limit,
    })
}

/// The form of an answer that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Page,
    Lines,
    Stream,
    Events,
    Table(TableForm),
}

fn wanted(headers: &HeaderMap) -> Wanted {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
    for kind in kinds {
        match kind {
            LINES => return Wanted::Lines,
            STREAM => return Wanted::Stream,
            EVENTS => return Wanted::Events,
            tables::CSV => return Wanted::Table(TableForm::Csv),
            tables::ARROW => return Wanted::Table(TableForm::Arrow),
            JSON => return Wanted::Page,
            _ => {}
        }
    }
    Wanted::Page
}

fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// Refuses a body of another kind.
fn check_kind(headers: &HeaderMap, kinds: &[&str]) -> std::result::Result<(), Refused> {
    let unsupported =
        |error| Refused { error, subject: None, status: Some(StatusCode::UNSUPPORTED_MEDIA_TYPE) };
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(unsupported(Error::invalid("the body is compressed: send it as it is")));
    }
    let Some(given) = text_of(headers, &CONTENT_TYPE)? else { return Ok(()) };
    let bare = given.split(';').next().unwrap_or_default().trim();
    // Clients like curl say this of every body.
    if bare == "application/x-www-form-urlencoded" || kinds.iter().any(|kind| bare.eq_ignore_ascii_case(kind))
    {
        return Ok(());
    }
    let error = Error::invalid(format!("the body is {bare:.60?}, expected {}", kinds.join(" or ")));
    Err(unsupported(error))
}
