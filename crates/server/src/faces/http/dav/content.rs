//! Content of files: GET redirects to a replica, PUT writes a new file. The server relays small files
//! between clients that follow no redirection and storage elements that speak root://.

use std::sync::Arc;
use std::time::Duration;

use exacat_model::answer::{ReplicaAt, Stat, Upload, Whereis};
use exacat_model::operation::{FileRef, SeChoice};
use exacat_model::{
    Answer, Checksum, ChecksumAlgorithm, Checksums, Error, ErrorKind, Kind, Lfn, Operation, Result, Se,
    SeName, SeStatus,
};
use exacat_wire::webdav::headers::{digest_header, repr_digest_header, want_digest, want_repr_digest};
use exacat_wire::webdav::metalink::{MEDIA_TYPE, Metalink};
use exacat_wire::webdav::{http_date, path};
use hyper::header::{
    ACCEPT, ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH,
    LAST_MODIFIED, LINK, LOCATION,
};
use hyper::{Method, Response, StatusCode};
use md5::{Digest, Md5};

use super::super::answers::{Body, answer, empty, set};
use super::listing::revision_text;
use super::{Outcome, PREFIX, Refused, Request};
use crate::access::Peer;
use crate::data_server::{self, Target};
use crate::envelopes::{Access, Subject, is_own_place};

/// Most bytes of a file that the server relays.
const RELAY_BYTES_MAX: u64 = 16 << 20;
/// Longest time to read or write such a file.
const RELAY_TIME: Duration = Duration::from_secs(60);
/// Header for checksums, as grid tools read it (RFC 3230).
const DIGEST: HeaderName = HeaderName::from_static("digest");
/// Header for checksums of RFC 9530.
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
/// Content type of files.
const BYTES: &str = "application/octet-stream";
/// Query of the URL of a file's metalink.
const METALINK_QUERY: &str = "metalink";

/// Answers GET and HEAD.
pub(super) async fn get(mut request: Request<'_>) -> Outcome {
    let lfn = request.lfn.clone();
    let stat = request.stat(&lfn, true).await?;
    if stat.entry.kind() == Kind::Directory {
        let mut response = empty(StatusCode::OK);
        set(&mut response, CONTENT_TYPE, "httpd/unix-directory");
        set(&mut response, LAST_MODIFIED, &http_date(stat.entry.modified));
        return Ok(response);
    }
    let Some(file) = stat.entry.file() else {
        let kind = stat.entry.kind().name();
        return Err(Refused::new(StatusCode::CONFLICT, format!("{lfn} is a {kind}, which has no content")));
    };
    let tag = format!("\"{}\"", revision_text(&stat.entry));
    if let Some(wanted) = request.header(IF_NONE_MATCH.as_str())?
        && wanted.split(',').any(|one| one.trim() == tag)
    {
        let mut response = empty(StatusCode::NOT_MODIFIED);
        set(&mut response, ETAG, &tag);
        return Ok(response);
    }
    let wants_metalink = request.head.uri.query() == Some(METALINK_QUERY)
        || request.header(ACCEPT.as_str())?.is_some_and(|accept| accept.contains(MEDIA_TYPE));
    let is_head = request.head.method == Method::HEAD;
    let whereis = places(&mut request, &stat.lfn).await?;
    let mut response = if wants_metalink && (!is_head || request.head.uri.query() == Some(METALINK_QUERY)) {
        metalink(&request, &stat, &whereis)?
    } else if is_head {
        let mut response = empty(StatusCode::OK);
        set(&mut response, CONTENT_TYPE, BYTES);
        if let Some(size) = file.size {
            set(&mut response, CONTENT_LENGTH, &size.to_string());
        }
        set(&mut response, ACCEPT_RANGES, "bytes");
        response
    } else {
        content(&mut request, &stat, &whereis).await?
    };
    set(&mut response, ETAG, &tag);
    set(&mut response, LAST_MODIFIED, &http_date(stat.entry.modified));
    let link = path::encode(&stat.lfn, PREFIX, false);
    let link = format!("<{link}?{METALINK_QUERY}>; rel=describedby; type=\"{MEDIA_TYPE}\"");
    set(&mut response, LINK, &link);
    if let Some(wanted) = request.header("want-digest")?
        && let Some(digest) = digest_header(&file.checksums, &want_digest(wanted))
    {
        set(&mut response, DIGEST, &digest);
    }
    if let Some(wanted) = request.header("want-repr-digest")?
        && let Some(digest) = repr_digest_header(&file.checksums, &want_repr_digest(wanted))
    {
        set(&mut response, REPR_DIGEST, &digest);
    }
    Ok(response)
}

async fn places(request: &mut Request<'_>, lfn: &Lfn) -> Result<Whereis> {
    let site = match request.conversation.peer {
        Peer::Network(peer) => request.conversation.face.places.site_of(peer.ip()),
        Peer::Local { .. } => None,
    };
    match request.call.ask(Operation::Whereis { files: vec![FileRef::Lfn(lfn.clone())], site }).await? {
        Answer::Whereis(mut found) => found.pop().unwrap_or_else(|| Err(super::unfitting())),
        _ => Err(super::unfitting()),
    }
}

/// Returns the URL of a PFN that HTTP clients can read; none if it is of another protocol.
fn web_url(pfn: &str) -> Option<String> {
    let (scheme, rest) = pfn.split_once("://")?;
    let scheme = match scheme {
        "https" | "davs" => "https",
        "http" | "dav" => "http",
        _ => return None,
    };
    Some(format!("{scheme}://{rest}"))
}

/// Returns the storage element of a replica, unless it is offline.
fn element(request: &Request<'_>, replica: &ReplicaAt) -> Option<Arc<Se>> {
    let se = request.call.service.catalogue.storage_element(replica.se.as_ref()?)?;
    (se.status != SeStatus::Offline).then_some(se)
}

/// Returns the proof for a replica, which a storage element checks; none for a place that users
/// chose.
fn proof(
    request: &Request<'_>,
    access: Access,
    subject: &Subject<'_>,
    prefix: &str,
) -> Result<Option<String>> {
    if !is_own_place(subject.pfn, prefix, subject.guid) {
        return Ok(None);
    }
    let user = request.call.asker.caller.name().map_or("", |name| name.as_str());
    let envelope = request.conversation.face.envelopes.seal(user, access, subject)?;
    Ok(Some(format!("authz=Bearer%20{envelope}")))
}

fn subject<'a>(lfn: &'a Lfn, whereis: &'a Whereis, se: &'a SeName, replica: &'a ReplicaAt) -> Subject<'a> {
    Subject {
        lfn,
        guid: whereis.guid,
        se,
        pfn: &replica.pfn,
        size: whereis.size.unwrap_or(0),
        md5: whereis.checksums.get(ChecksumAlgorithm::Md5),
    }
}

/// Returns the URLs of all replicas that HTTP clients can read, the best first. Each has a proof
/// that is bound to the file and to time.
fn urls(request: &Request<'_>, lfn: &Lfn, whereis: &Whereis) -> Result<Vec<String>> {
    let mut urls = Vec::new();
    for replica in &whereis.replicas {
        let (Some(url), Some(se)) = (web_url(&replica.pfn), element(request, replica)) else { continue };
        let proof = proof(request, Access::Read, &subject(lfn, whereis, &se.name, replica), &se.prefix)?;
        urls.push(match proof {
            Some(proof) => format!("{url}{}{proof}", if url.contains('?') { '&' } else { '?' }),
            None => url,
        });
    }
    Ok(urls)
}

fn metalink(request: &Request<'_>, stat: &Stat, whereis: &Whereis) -> Result<Response<Body>> {
    let urls = urls(request, &stat.lfn, whereis)?;
    let name = stat.lfn.split_last().map_or("", |(_, name)| name);
    let mut out = Vec::new();
    Metalink { name, size: whereis.size, checksums: &whereis.checksums, urls: &urls }.write(&mut out);
    Ok(answer(StatusCode::OK, MEDIA_TYPE, out))
}

/// Redirects to a replica that HTTP clients can read; relays a small file if there is none.
async fn content(request: &mut Request<'_>, stat: &Stat, whereis: &Whereis) -> Outcome {
    if let Some(url) = urls(request, &stat.lfn, whereis)?.first() {
        let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
        set(&mut response, LOCATION, url);
        return Ok(response);
    }
    let bytes = relayed(request, stat, whereis).await?;
    Ok(answer(StatusCode::OK, BYTES, bytes))
}

/// Reads a small file from a storage element that speaks root://.
async fn relayed(
    request: &mut Request<'_>,
    stat: &Stat,
    whereis: &Whereis,
) -> std::result::Result<Vec<u8>, Refused> {
    let lfn = &stat.lfn;
    let size = whereis.size.ok_or_else(|| {
        Refused::new(
            StatusCode::CONFLICT,
            format!("{lfn}: no replica is reached by https, and its size is unknown"),
        )
    })?;
    if size > RELAY_BYTES_MAX {
        return Err(Refused::new(
            StatusCode::CONFLICT,
            format!(
                "{lfn}: no replica is reached by https, and {size} bytes are too many to relay: use root://"
            ),
        ));
    }
    let length = usize::try_from(size).unwrap_or(usize::MAX);
    let room = request.call.service.admission.request_bytes.take(length);
    let _room = room.ok_or_else(|| crate::admission::busy("bytes of requests"))?;
    let mut why = "there is none".to_owned();
    for replica in &whereis.replicas {
        let Some(se) = element(request, replica) else { continue };
        if Target::parse(&replica.pfn).is_none() {
            continue;
        }
        let proof = proof(request, Access::Read, &subject(lfn, whereis, &se.name, replica), &se.prefix)?;
        let reading = data_server::read(&replica.pfn, proof.as_deref().unwrap_or_default(), size);
        why = match tokio::time::timeout(RELAY_TIME, reading).await {
            Ok(Ok(content)) if is_right(&content, &whereis.checksums) => return Ok(content),
            Ok(Ok(_)) => format!("{}: the checksum of the replica is wrong", se.name),
            Ok(Err(error)) => format!("{}: {error}", se.name),
            Err(_) => format!("{}: not read within {RELAY_TIME:?}", se.name),
        };
    }
    let error = Error::new(ErrorKind::Unavailable, format!("{lfn}: no replica can be read: {why}"));
    Err(Refused { error, status: Some(StatusCode::BAD_GATEWAY) })
}

/// Returns the checksums of content.
fn checksums_of(content: &[u8]) -> Result<Checksums> {
    let mut adler = simd_adler32::Adler32::new();
    adler.write(content);
    let mut checksums = Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &Md5::digest(content))?);
    checksums.add(Checksum::new(ChecksumAlgorithm::Adler32, &adler.finish().to_be_bytes())?)?;
    Ok(checksums)
}

/// True if content has the known checksums, as far as the server computes them.
fn is_right(content: &[u8], known: &Checksums) -> bool {
    checksums_of(content).is_ok_and(|own| !own.contradicts(known))
}

/// Answers PUT: writes a new small file, and registers it after the storage element has it.
pub(super) async fn put(mut request: Request<'_>) -> Outcome {
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
    let length = request.header(CONTENT_LENGTH.as_str())?.and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > RELAY_BYTES_MAX) {
        return Err(Refused::with(
            Error::limit(
                "the length of a relayed file in bytes",
                u64_to_usize(length),
                u64_to_usize(Some(RELAY_BYTES_MAX)),
            ),
            ErrorKind::Limit,
            StatusCode::PAYLOAD_TOO_LARGE,
        ));
    }
    let (content, _held) = request.whole(u64_to_usize(Some(RELAY_BYTES_MAX))).await?;
    store(&mut request, &lfn, &content).await?;
    let stat = request.stat(&lfn, false).await?;
    let mut response = empty(StatusCode::CREATED);
    set(&mut response, ETAG, &format!("\"{}\"", revision_text(&stat.entry)));
    Ok(response)
}

fn u64_to_usize(number: Option<u64>) -> usize {
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(usize::MAX)
}

/// Writes a new file to a storage element, reads it back, and registers it.
async fn store(request: &mut Request<'_>, lfn: &Lfn, content: &[u8]) -> std::result::Result<(), Refused> {
    let checksums = checksums_of(content)?;
    let ses = request.call.service.catalogue.storage_elements();
    let is_reached =
        |se: &Se| Target::parse(&format!("{}/x", se.prefix)).is_some_and(|target| !target.secure);
    let excluded = ses.iter().filter(|se| !is_reached(se)).map(|se| se.name.clone()).collect();
    let book = Operation::UploadBook {
        lfn: lfn.clone(),
        guid: None,
        size: content.len() as u64,
        checksums: checksums.clone(),
        job: None,
        choice: Box::new(SeChoice { excluded, ..SeChoice::default() }),
        lifetime_seconds: None,
    };
    let upload = match request.call.ask(book).await? {
        Answer::Upload(upload) => upload,
        _ => return Err(super::unfitting().into()),
    };
    let guid = upload.booking.guid;
    let written = write(request, &upload, content).await;
    let se = match written {
        Ok(se) => se,
        Err(refused) => {
            // The reservation goes, and with it the copy that may have been written.
            if let Err(error) = request.call.ask(Operation::UploadAbort { guid, se: None }).await {
                tracing::warn!(%error, %guid, "the reservation of a failed upload stays until it expires");
            }
            return Err(refused);
        }
    };
    let commit = Operation::UploadCommit { guid, se, size: content.len() as u64, checksums };
    request.call.ask(commit).await?;
    Ok(())
}

/// Writes content to the first place of a reservation, and checks what is there.
async fn write(
    request: &Request<'_>,
    upload: &Upload,
    content: &[u8],
) -> std::result::Result<SeName, Refused> {
    let booking = &upload.booking;
    let target = upload.targets.first().ok_or_else(super::unfitting)?;
    let se = request.call.service.catalogue.storage_element(&target.se).ok_or_else(super::unfitting)?;
    let subject = Subject {
        lfn: &booking.lfn,
        guid: booking.guid,
        se: &target.se,
        pfn: &target.pfn,
        size: booking.size,
        md5: booking.checksums.get(ChecksumAlgorithm::Md5),
    };
    let failed = |why: String| {
        let message =
            format!("{} cannot be stored on {}: {why}; nothing was registered", booking.lfn, target.se);
        let error = Error::new(ErrorKind::Unavailable, message);
        Refused { error, status: Some(StatusCode::BAD_GATEWAY) }
    };
    let late = |_| failed(format!("not done within {RELAY_TIME:?}"));
    let shown = proof(request, Access::Write, &subject, &se.prefix)?.unwrap_or_default();
    let writing = data_server::write(&target.pfn, &shown, content);
    tokio::time::timeout(RELAY_TIME, writing).await.map_err(late)?.map_err(failed)?;
    let shown = proof(request, Access::Read, &subject, &se.prefix)?.unwrap_or_default();
    let reading = data_server::read(&target.pfn, &shown, booking.size);
    let there = tokio::time::timeout(RELAY_TIME, reading).await.map_err(late)?.map_err(failed)?;
    if there != content {
        return Err(failed("it has other bytes than were sent".to_owned()));
    }
    Ok(target.se.clone())
}

/// Refuses the copy of a file that is too large to be read and written again.
pub(super) fn check_copy(stat: &Stat) -> std::result::Result<(), Refused> {
    let Some(file) = stat.entry.file() else { return Ok(()) };
    if file.size.is_some_and(|size| size <= RELAY_BYTES_MAX) {
        return Ok(());
    }
    Err(Refused::new(
        StatusCode::INSUFFICIENT_STORAGE,
        format!(
            "{}: files of more than {RELAY_BYTES_MAX} bytes are not copied here: use a third-party copy",
            stat.lfn
        ),
    ))
}

/// Copies a file: reads it, and writes it as a new one.
pub(super) async fn copy(
    request: &mut Request<'_>,
    stat: &Stat,
    to: &Lfn,
) -> std::result::Result<(), Refused> {
    let whereis = places(request, &stat.lfn).await?;
    let content = relayed(request, stat, &whereis).await?;
    store(request, to, &content).await
}
