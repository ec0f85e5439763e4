//! PUT: reserves an upload. A client that waits for `100 Continue` is redirected to the storage element
//! before it sends a byte; the body of any other is relayed, up to a bound.

use std::sync::Arc;

use bytes::Bytes;
use exacat_model::answer::Upload;
use exacat_model::operation::SeChoice;
use exacat_model::{Answer, Checksums, Error, ErrorKind, Guid, Kind, Lfn, Operation, Result, Se, SeName};
use exacat_wire::webdav::headers::{read_digest, read_repr_digest};
use hyper::StatusCode;
use hyper::header::{CONNECTION, CONTENT_LENGTH, ETAG, EXPECT, HeaderValue, IF_MATCH, IF_NONE_MATCH};

use super::super::Conversation;
use super::super::answers::{empty, problem_as, set};
use super::super::call::Call;
use super::content::{Content, FileCopy, RELAY_BYTES_MAX, Storage, checksums_of};
use super::listing::revision_text;
use super::{Outcome, Refused, Request};
use crate::data_server::Target;
use crate::envelopes::Access;
use crate::uploads::Written;

/// Answers PUT.
pub(super) async fn put(mut request: Request<'_>) -> Outcome {
    let outcome = put_new(&mut request).await;
    let is_good = |answer: &hyper::Response<super::Body>| !answer.status().is_client_error();
    if !outcome.as_ref().is_ok_and(is_good) {
        let user = request.call.caller().name().map_or("", |name| name.as_str());
        request.conversation.face.failed_puts.add(user, request.lfn.clone().of_anything());
    }
    outcome
}

async fn put_new(request: &mut Request<'_>) -> Outcome {
    if request.lfn.must_be_directory() {
        return Err(Refused::new(StatusCode::CONFLICT, "the name of a file ends without a slash"));
    }
    if request.head.headers.contains_key("content-range") {
        return Err(Refused::new(StatusCode::BAD_REQUEST, "PUT writes whole files only"));
    }
    let lfn = request.lfn.clone();
    match request.stat(&lfn, false).await {
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(stat) => {
            let is_condition = request.header(IF_NONE_MATCH.as_str())? == Some("*");
            let status = if stat.entry.kind() == Kind::Directory {
                StatusCode::METHOD_NOT_ALLOWED
            } else if is_condition {
                StatusCode::PRECONDITION_FAILED
            } else {
                StatusCode::CONFLICT
            };
            return Err(Refused::new(
                status,
                format!("{lfn} exists, and nothing is written over: remove it first"),
            ));
        }
    }
    if request.header(IF_MATCH.as_str())?.is_some() {
        return Err(Refused::new(StatusCode::PRECONDITION_FAILED, format!("{lfn} does not exist")));
    }
    let parent = lfn.parent().unwrap_or_else(Lfn::root);
    if let Err(error) = request.stat(&parent, true).await {
        return Err(Refused::with(error, ErrorKind::NotFound, StatusCode::CONFLICT));
    }
    let announced = announced(request)?;
    let length = request.header(CONTENT_LENGTH.as_str())?.and_then(|length| length.parse::<u64>().ok());
    let waits =
        request.header(EXPECT.as_str())?.is_some_and(|wish| wish.eq_ignore_ascii_case("100-continue"));
    let ses = request.call.service.catalogue.storage_elements();
    if let (true, Some(size)) = (waits, length)
        && ses.iter().any(is_web)
    {
        match redirect(request, &lfn, size, announced.clone()).await {
            // Only storage elements that the server itself reaches can take it.
            Err(Refused { error, .. }) if error.kind == ErrorKind::Unavailable && size <= RELAY_BYTES_MAX => {
            }
            outcome => return outcome,
        }
    }
    if length.is_some_and(|length| length > RELAY_BYTES_MAX) {
        return Ok(too_large(length));
    }
    let most = usize::try_from(RELAY_BYTES_MAX).unwrap_or(usize::MAX);
    let (content, _held) = match request.whole(most).await {
        Err(error) if error.kind == ErrorKind::Limit => return Ok(too_large(None)),
        whole => whole?,
    };
    let checksums = checksums_of(&content)?;
    if checksums.contradicts(&announced) {
        return Err(Refused::new(
            StatusCode::BAD_REQUEST,
            "the body has another checksum than its header says",
        ));
    }
    store(request, &lfn, content, checksums).await?;
    let stat = request.stat(&lfn, false).await?;
    let mut response = empty(StatusCode::CREATED);
    set(&mut response, ETAG, &format!("\"{}\"", revision_text(&stat.entry)));
    Ok(response)
}

/// Returns the checksums that the headers of a PUT announce.
fn announced(request: &Request<'_>) -> Result<Checksums> {
    let mut found = request.header("digest")?.map(read_digest).unwrap_or_default();
    found.extend(request.header("repr-digest")?.map(read_repr_digest).unwrap_or_default());
    if let Some(md5) = request.header("content-md5")? {
        found.extend(read_digest(&format!("md5={md5}")));
    }
    let mut checksums = Checksums::none();
    found.into_iter().try_for_each(|checksum| checksums.add(checksum))?;
    Ok(checksums)
}

/// Refuses a body that is too large. The connection ends, because the rest of the body is not read.
fn too_large(length: Option<u64>) -> hyper::Response<super::Body> {
    let is = length.map_or_else(String::new, |length| format!(", and it has {length}"));
    let error = Error::new(
        ErrorKind::Limit,
        format!(
            "a body of at most {RELAY_BYTES_MAX} bytes is relayed{is}: send Expect: 100-continue and \
             Content-Length, as curl, davix and gfal-copy do"
        ),
    );
    let mut response = problem_as(StatusCode::PAYLOAD_TOO_LARGE, &error);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// True if HTTP clients can write to a storage element.
pub(super) fn is_web(se: &Arc<Se>) -> bool {
    !se.prefix.is_empty() && FileCopy::new(Arc::clone(se), &format!("{}/x", se.prefix)).url.is_some()
}

/// True if this server can write to a storage element.
fn is_reached(se: &Arc<Se>) -> bool {
    Target::parse(&format!("{}/x", se.prefix)).is_some_and(|target| !target.secure) || is_web(se)
}

/// A wish for an upload reservation.
pub(super) struct Wish {
    pub lfn: Lfn,
    /// GUID of an existing file, to add a replica.
    pub guid: Option<Guid>,
    pub size: u64,
    pub checksums: Checksums,
    /// Storage element that the client chose.
    pub se: Option<SeName>,
}

/// Reserves an upload on one of the storage elements that are `usable`, near the client.
pub(super) async fn reserve(
    request: &mut Request<'_>,
    wish: Wish,
    usable: fn(&Arc<Se>) -> bool,
) -> Result<(Upload, FileCopy)> {
    let ses = request.call.service.catalogue.storage_elements();
    let excluded = ses.iter().filter(|se| !usable(se)).map(|se| se.name.clone()).collect();
    let choice = SeChoice {
        wanted: wish.se.into_iter().collect(),
        excluded,
        site: request.site(),
        ..SeChoice::default()
    };
    let reserve = Operation::UploadReserve {
        lfn: wish.lfn,
        guid: wish.guid,
        size: wish.size,
        checksums: wish.checksums,
        job: None,
        choice: Box::new(choice),
        lifetime_seconds: None,
    };
    let Answer::Upload(upload) = request.call.ask(reserve).await? else { return Err(super::unfitting()) };
    let target = upload.targets.first().ok_or_else(super::unfitting)?;
    let se = request.call.service.catalogue.storage_element(&target.se).ok_or_else(super::unfitting)?;
    let place = FileCopy::new(se, &target.pfn);
    Ok((*upload, place))
}

/// Ends a reservation, and with it the copy that may have been written.
pub(super) async fn give_up(call: &mut Call, guid: Guid, se: &SeName) {
    let abort = Operation::UploadAbort { guid, se: Some(se.clone()) };
    if let Err(error) = call.ask(abort).await {
        tracing::warn!(%error, %guid, "the reservation of a failed upload stays until it expires");
    }
}

/// Describes a reserved copy, for the tracker of uploads.
pub(super) fn written(upload: &Upload, place: &FileCopy) -> Written {
    let reservation = &upload.reservation;
    Written {
        guid: reservation.guid,
        lfn: reservation.lfn.clone(),
        se: place.se.name.clone(),
        pfn: place.pfn.clone(),
        owner: upload.owner.clone(),
        size: reservation.size,
        checksums: reservation.checksums.clone(),
        expires: reservation.expires,
    }
}

/// Redirects a client that has not sent its body. The server commits the upload once the storage
/// element confirms it.
async fn redirect(request: &mut Request<'_>, lfn: &Lfn, size: u64, checksums: Checksums) -> Outcome {
    let uploads = request.conversation.face.uploads.clone();
    let uploads = uploads.ok_or_else(|| Error::denied("this is a snapshot: nothing can be written"))?;
    uploads.check_room()?;
    let wish = Wish { lfn: lfn.clone(), guid: None, size, checksums, se: None };
    let (upload, place) = reserve(request, wish, is_web).await?;
    let location =
        place.location(&request.storage(), Access::Write, &Content::reserved(&upload.reservation))?;
    let location = location.ok_or_else(super::unfitting)?;
    uploads.add(written(&upload, &place)).await?;
    Ok(request.storage().redirect(&place, &location))
}

/// Writes a new file to a storage element, reads it back, and registers it. Goes on if the client goes
/// away, so that no reservation is left behind.
pub(super) async fn store(
    request: &mut Request<'_>,
    lfn: &Lfn,
    content: Bytes,
    checksums: Checksums,
) -> std::result::Result<(), Refused> {
    let size = content.len() as u64;
    let wish = Wish { lfn: lfn.clone(), guid: None, size, checksums, se: None };
    let (upload, place) = reserve(request, wish, is_reached).await?;
    let (conversation, mut call) = (Arc::clone(request.conversation), request.call.again());
    let storing = tokio::spawn(async move {
        if let Err(why) = write(&conversation, &call, &upload, &place, &content).await {
            give_up(&mut call, upload.reservation.guid, &place.se.name).await;
            return Err(why);
        }
        Ok(commit(&mut call, &upload, &place, upload.reservation.checksums.clone()).await?)
    });
    let lost = |error| Error::new(ErrorKind::Unknown, format!("the work on it was lost: {error}"));
    storing.await.map_err(lost)?
}

/// Commits an upload that was confirmed. A refused one ends; one of an unknown outcome stays.
pub(super) async fn commit(
    call: &mut Call,
    upload: &Upload,
    place: &FileCopy,
    checksums: Checksums,
) -> Result<()> {
    let (guid, size, se) = (upload.reservation.guid, upload.reservation.size, place.se.name.clone());
    let commit = Operation::UploadCommit { guid, se, size, checksums };
    match call.ask(commit).await {
        Ok(_) => Ok(()),
        Err(error) => {
            if !error.kind.is_retryable() && error.kind != ErrorKind::Unknown {
                give_up(call, guid, &place.se.name).await;
            }
            Err(error)
        }
    }
}

/// Writes content to the place of a reservation, and checks what is there.
async fn write(
    conversation: &Conversation,
    call: &Call,
    upload: &Upload,
    place: &FileCopy,
    content: &Bytes,
) -> std::result::Result<(), Refused> {
    let reservation = &upload.reservation;
    let (storage, of) = (Storage { conversation, call }, Content::reserved(reservation));
    let failed = |why: String| {
        let (lfn, se) = (&reservation.lfn, &place.se.name);
        let message = format!("{lfn} cannot be stored on {se}: {why}; nothing was registered");
        Refused { error: Error::new(ErrorKind::Unavailable, message), status: Some(StatusCode::BAD_GATEWAY) }
    };
    storage.write(place, &of, content).await.map_err(failed)?;
    let there = storage.read(place, &of).await.map_err(failed)?;
    if there != *content {
        return Err(failed("it has other bytes than were sent".to_owned()));
    }
    Ok(())
}

/// Ends the client's uploads of a name that are not committed; false if there was none.
pub(super) async fn end_all(request: &mut Request<'_>, lfn: &Lfn) -> Result<bool> {
    let Some(uploads) = request.conversation.face.uploads.clone() else { return Ok(false) };
    let mut any = false;
    for pending in uploads.named(lfn) {
        let (guid, se) = (pending.written.guid, Some(pending.written.se.clone()));
        match request.call.ask(Operation::UploadAbort { guid, se }).await {
            Ok(_) => {
                any = true;
                uploads.given_up(&pending).await;
            }
            // It was committed meanwhile, or belongs to another user.
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Denied) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(any)
}
