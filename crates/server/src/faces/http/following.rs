//! Answers to followers, and the lag that a follower adds to each of its answers.
//! `exacat_follower::protocol` has the paths.

use std::sync::Arc;
use std::time::Duration;

use exacat_follower::limits::{CHANGES_MAX, FILE_PIECE_BYTES, PIECE_BYTES, WAIT_MAX};
use exacat_follower::protocol::{
    AGE, ChangesQuery, CopyFile, CopyInfo, DIGEST, DURABLE, IDENTITY, LogQuery, PREFIX, SourceInfo,
    Superseded, SupersededAnswer, UP_TO, hash_of,
};
use exacat_follower::rows::{ChangesHeard, RowsQuery, changes_of, rows_of};
use exacat_model::codec::{Decode, Encode};
use exacat_model::limits::PAGE_ITEMS_MAX;
use exacat_model::{Error, ErrorKind, Result, Revision};
use exacat_store::{FixedFiles, Followed, LogPiece, Store};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;
use xxhash_rust::xxh3::Xxh3;

use super::Conversation;
use super::answers::{self, Body, BodyPart, CancelOnDrop, JSON, empty, not_allowed, problem, set};
use super::call::{BODY_BYTES_MAX, Call, REVISION, whole};
use crate::peer::Peer;
use crate::service::Service;

/// Content type of a file, and of a piece of the log.
const OCTETS: &str = "application/octet-stream";
/// Header with the changes that a follower lacks.
const BEHIND: HeaderName = HeaderName::from_static("exacat-behind");
/// Header with the time for which a follower may be out of date.
const BEHIND_MS: HeaderName = HeaderName::from_static("exacat-behind-ms");
/// Pieces of a file between the disk and the connection.
const PIECES_AHEAD: usize = 1;

/// Adds to an answer of a follower how far it is behind.
pub(super) fn show_lag(service: &Service, response: &mut Response<Body>) {
    let Some(behind) = service.behind() else { return };
    if !response.headers().contains_key(&REVISION) {
        set(response, REVISION, &behind.revision.0.to_string());
    }
    set(response, BEHIND, &behind.changes.to_string());
    set(response, BEHIND_MS, &behind.ms.to_string());
}

/// Answers a request of a follower; none for any other path.
pub(super) async fn answer(
    conversation: &Arc<Conversation>,
    head: &Parts,
    body: &mut Option<Incoming>,
) -> Option<Response<Body>> {
    let below = head.uri.path().strip_prefix(PREFIX)?;
    let answered = answered(conversation, head, body, below).await;
    Some(answered.unwrap_or_else(|error| problem(&error, None)))
}

fn followed(store: &dyn Store) -> Result<&dyn Followed> {
    store.as_followed().ok_or_else(|| {
        if let Some(under) = store.under() {
            let source = store.following().unwrap_or_default();
            return Error::invalid(format!("this server has only {under}: follow its source {source}"));
        }
        let what = "this server cannot be followed: it shares a cluster, or serves a snapshot; follow a server \
                    with an embedded store";
        Error::invalid(what)
    })
}

async fn answered(
    conversation: &Arc<Conversation>,
    head: &Parts,
    body: &mut Option<Incoming>,
    below: &str,
) -> Result<Response<Body>> {
    let call = Call::open(conversation, &head.headers).await?;
    call.caller().check_may_follow()?;
    let service = Arc::clone(&conversation.face.service);
    let store = Arc::clone(service.catalogue.store());
    let parts: Vec<&str> = below.split('/').collect();
    let number = |text: &str| text.parse::<u64>().map_err(|_| Error::not_found("there is no such copy"));
    match (&head.method, parts.as_slice()) {
        (&Method::GET, ["source"]) => {
            let followed = followed(&*store)?;
            json(&SourceInfo {
                catalogue: service.catalogue_id.to_string(),
                identity: followed.identity(),
                revision: store.seen_revision().0,
                follows: store.following(),
            })
        }
        (&Method::POST, ["copies"]) => {
            let files = followed(&*store)?.fix_files().await?;
            let copy = service.followers.hold(Arc::clone(&files))?;
            let revision = files.revision().0;
            json(&CopyInfo { copy, revision, files: files.files().iter().map(CopyFile::of).collect() })
        }
        (&Method::DELETE, ["copies", copy]) => {
            let copy = number(copy)?;
            let dropping = tokio::task::spawn_blocking(move || service.followers.drop_copy(copy));
            dropping.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (&Method::GET, ["copies", copy, file]) => {
            let (files, file) = (service.followers.copy(number(copy)?)?, number(file)?);
            stream(call, &service, number(copy)?, files, usize::try_from(file).unwrap_or(usize::MAX))
        }
        (&Method::POST, ["superseded"]) => {
            let body = body.take().ok_or_else(|| Error::invalid("the request has no body"))?;
            let (bytes, _room) = whole(&service, body, BODY_BYTES_MAX).await?;
            let told: Superseded = serde_json::from_slice(&bytes)
                .map_err(|error| Error::invalid(format!("the body is not as it must be: {error}")))?;
            let superseded = followed(&*store)?.supersede(&told.identity, &told.by).await?;
            json(&SupersededAnswer { superseded })
        }
        (&Method::GET, ["log"]) => log(conversation, &service, &*store, head.uri.query()).await,
        (&Method::GET, ["changes"]) => changes(conversation, &service, &*store, head.uri.query()).await,
        (&Method::POST, ["rows"]) => {
            followed(&*store)?;
            let body = body.take().ok_or_else(|| Error::invalid("the request has no body"))?;
            let (bytes, _room) = whole(&service, body, BODY_BYTES_MAX).await?;
            let query = RowsQuery::from_bytes(&bytes)
                .map_err(|error| Error::invalid(format!("the body is no request for rows: {error}")))?;
            let rows = rows_of(&*store, &query, PAGE_ITEMS_MAX).await?;
            Ok(answers::answer(StatusCode::OK, OCTETS, rows.to_bytes()))
        }
        (_, ["source" | "log" | "changes"] | ["copies", _, _]) => Ok(not_allowed("GET")),
        (_, ["copies" | "superseded" | "rows"]) => Ok(not_allowed("POST")),
        (_, ["copies", _]) => Ok(not_allowed("DELETE")),
        _ => Err(Error::not_found("no such path of followers")),
    }
}

fn json(value: &impl Serialize) -> Result<Response<Body>> {
    let bytes = serde_json::to_vec(value);
    let bytes = bytes.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    Ok(answers::answer(StatusCode::OK, JSON, bytes))
}

fn host_of(conversation: &Conversation) -> String {
    match &conversation.peer {
        Peer::Network(address) => address.ip().to_string(),
        _ => "this machine".to_owned(),
    }
}

/// Waits for work, unless the server stops meanwhile.
async fn unless_stopping<T>(service: &Service, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = work => done,
        () = service.closing_to_network() => Err(Error::new(ErrorKind::Unavailable, "the server stops")),
    }
}

/// Answers with a part of the history, and how far it and the server's are.
fn told(
    bytes: Vec<u8>,
    (up_to, durable, age): (Revision, Revision, Duration),
    identity: &str,
) -> Response<Body> {
    let mut response = answers::answer(StatusCode::OK, OCTETS, bytes);
    let header = |name: &'static str| HeaderName::from_static(name);
    set(&mut response, header(DURABLE), &durable.0.to_string());
    set(&mut response, header(UP_TO), &up_to.0.to_string());
    set(&mut response, header(AGE), &age.as_millis().to_string());
    set(&mut response, header(IDENTITY), identity);
    response
}

/// Answers a filtered follower with the changes after a position.
async fn changes(
    conversation: &Conversation,
    service: &Service,
    store: &dyn Store,
    query: Option<&str>,
) -> Result<Response<Body>> {
    let identity = hash_of(&followed(store)?.identity());
    let ChangesQuery { after, follower, wait_ms } = ChangesQuery::read(query)?;
    service.followers.note(follower, &host_of(conversation), after);
    let wait = Duration::from_millis(wait_ms).min(WAIT_MAX);
    let now = service.catalogue.now();
    let heard = unless_stopping(service, changes_of(store, (after, wait), CHANGES_MAX, now)).await?;
    let ChangesHeard { changes, up_to, durable, age, .. } = heard;
    Ok(told(changes.to_bytes(), (up_to, durable, age), &identity))
}

/// Answers with the log after a place.
async fn log(
    conversation: &Conversation,
    service: &Service,
    store: &dyn Store,
    query: Option<&str>,
) -> Result<Response<Body>> {
    let followed = followed(store)?;
    let query = LogQuery::read(query)?;
    service.followers.note(query.follower, &host_of(conversation), query.durable);
    let wait = Duration::from_millis(query.wait_ms).min(WAIT_MAX);
    let reader = Some((query.follower, query.durable));
    let piece = unless_stopping(service, followed.log_after(query.place, PIECE_BYTES, wait, reader)).await?;
    let LogPiece { frames, up_to, durable, age, digest } = piece;
    let mut response = told(frames, (up_to, durable, age), &hash_of(&followed.identity()));
    if let Some(digest) = digest {
        set(&mut response, HeaderName::from_static(DIGEST), &format!("{digest:032x}"));
    }
    Ok(response)
}

/// Answers with a file of a copy, and the hash of its bytes behind it.
fn stream(
    call: Call,
    service: &Arc<Service>,
    copy: u64,
    files: Arc<dyn FixedFiles>,
    number: usize,
) -> Result<Response<Body>> {
    let bytes = files.files().get(number).map(|file| file.bytes);
    let bytes = bytes.ok_or_else(|| Error::not_found("there is no such file in the copy"))?;
    let (sender, parts) = mpsc::channel(PIECES_AHEAD);
    let mut response = empty(StatusCode::OK);
    *response.body_mut() = Body::Parts { parts, _cancel: CancelOnDrop(Arc::clone(&call.cancel)) };
    set(&mut response, CONTENT_TYPE, OCTETS);
    let followers = Arc::clone(&service.followers);
    // A thread of its own: reading waits for the disk, and sending for the follower.
    tokio::task::spawn_blocking(move || {
        let _admitted = call;
        let mut hash = Xxh3::new();
        let mut at = 0;
        while at < bytes {
            let mut piece = vec![0; FILE_PIECE_BYTES];
            let read = match files.read(number, at, &mut piece) {
                Ok(0) => return tracing::error!("a fixed file is shorter than it was"),
                Ok(read) => read,
                Err(error) => return tracing::error!(%error, "a fixed file cannot be read"),
            };
            piece.truncate(read);
            hash.update(&piece);
            at += read as u64;
            // It is in use for as long as it is sent.
            let _held = followers.copy(copy);
            if sender.blocking_send(BodyPart::Bytes(piece.into())).is_err() {
                return;
            }
        }
        let digest = hash.digest128().to_be_bytes().to_vec();
        if sender.blocking_send(BodyPart::Bytes(digest.into())).is_ok() {
            let _gone = sender.blocking_send(BodyPart::End);
        }
    });
    Ok(response)
}
