//! Content of files: GET redirects to a replica, HEAD has size and checksums. The server relays small
//! files of storage elements that HTTP clients cannot reach.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exacat_model::answer::{ReplicaAt, Stat, Whereis};
use exacat_model::operation::FileRef;
use exacat_model::{
    Answer, Checksum, ChecksumAlgorithm, Checksums, Error, ErrorKind, Guid, Kind, Lfn, Operation,
    Reservation, Result, Se, SeStatus,
};
use exacat_wire::webdav::headers::{digest_header, repr_digest_header, want_digest, want_repr_digest};
use exacat_wire::webdav::metalink::{MEDIA_TYPE, Metalink};
use exacat_wire::webdav::{http_date, path};
use hyper::header::{
    ACCEPT, ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, LAST_MODIFIED,
    LINK, LOCATION,
};
use hyper::{Method, Response, StatusCode};
use md5::{Digest, Md5};

use super::super::Conversation;
use super::super::answers::{Body, answer, empty, set};
use super::super::call::Call;
use super::listing::revision_text;
use super::{Outcome, PREFIX, Refused, Request};
use crate::data_server::{self, Target, WebFile};
use crate::envelopes::{Access, Subject, is_own_place};
use crate::visits::SentBy;

/// Most bytes of a file that the server relays.
pub(super) const RELAY_BYTES_MAX: u64 = 16 << 20;
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
        // The storage element serves ranges. A relayed file comes whole.
        if request.storage().places(&whereis).iter().any(|place| place.url.is_some()) {
            set(&mut response, ACCEPT_RANGES, "bytes");
        }
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

/// Returns the places of a file, those near the client first.
pub(super) async fn places(request: &mut Request<'_>, lfn: &Lfn) -> Result<Whereis> {
    let site = request.site();
    match request.call.ask(Operation::Whereis { files: vec![FileRef::Lfn(lfn.clone())], site }).await? {
        Answer::Whereis(mut found) => found.pop().unwrap_or_else(|| Err(super::unfitting())),
        _ => Err(super::unfitting()),
    }
}

/// One physical copy of a file, and the ways to it.
pub(super) struct FileCopy {
    pub se: Arc<Se>,
    pub pfn: String,
    /// URL for HTTP clients, if they can reach it.
    pub url: Option<String>,
}

impl FileCopy {
    pub(crate) fn new(se: Arc<Se>, pfn: &str) -> Self {
        let url = data_server::web_url(&se, pfn);
        FileCopy { se, pfn: pfn.to_owned(), url }
    }

    /// True if the server reaches it by root://, without TLS.
    pub(crate) fn speaks_root(&self) -> bool {
        Target::parse(&self.pfn).is_some_and(|target| !target.secure)
    }

    /// Returns a proof for one way to it (its PFN or URL), which the storage element checks; none for
    /// a place that users chose.
    pub(crate) fn proof(
        &self,
        request: &Storage<'_>,
        access: Access,
        of: &Content<'_>,
        way: &str,
    ) -> Result<Option<String>> {
        if !is_own_place(&self.pfn, &self.se.prefix, of.guid) {
            return Ok(None);
        }
        let user = request.call.caller().name().map_or("", |name| name.as_str());
        let subject = Subject {
            lfn: of.lfn,
            guid: of.guid,
            se: &self.se.name,
            pfn: way,
            size: of.size,
            md5: of.checksums.get(ChecksumAlgorithm::Md5),
        };
        request.conversation.face.envelopes.seal(user, access, &subject).map(Some)
    }

    /// Returns the URL for HTTP clients, with its proof as a header's token; none if they cannot
    /// reach it.
    pub(crate) fn web(
        &self,
        storage: &Storage<'_>,
        access: Access,
        of: &Content<'_>,
    ) -> Result<Option<WebFile>> {
        let Some(url) = &self.url else { return Ok(None) };
        let token = self.proof(storage, access, of, url)?.unwrap_or_default();
        Ok(Some(WebFile { url: url.clone(), token }))
    }

    /// Returns the same with the proof in the URL, for a client that is sent there.
    pub(crate) fn location(
        &self,
        storage: &Storage<'_>,
        access: Access,
        of: &Content<'_>,
    ) -> Result<Option<String>> {
        Ok(self.web(storage, access, of)?.map(|WebFile { url, token }| with_proof(url, &token)))
    }

    /// Returns the field with the proof for root://.
    pub(crate) fn field(&self, storage: &Storage<'_>, access: Access, of: &Content<'_>) -> Result<String> {
        let proof = self.proof(storage, access, of, &self.pfn)?;
        Ok(proof.map_or_else(String::new, |proof| format!("{PROOF}{proof}")))
    }
}

/// Start of the field of a URL with a proof.
const PROOF: &str = "authz=Bearer%20";

/// Returns a URL with a proof in it.
pub(super) fn with_proof(url: String, token: &str) -> String {
    if token.is_empty() {
        return url;
    }
    format!("{url}{}{PROOF}{token}", if url.contains('?') { '&' } else { '?' })
}

/// A file's content, as the catalogue describes it.
#[derive(Clone, Copy)]
pub(super) struct Content<'a> {
    pub lfn: &'a Lfn,
    pub guid: Guid,
    pub size: u64,
    pub checksums: &'a Checksums,
}

impl<'a> Content<'a> {
    pub(crate) fn of(lfn: &'a Lfn, whereis: &'a Whereis) -> Self {
        let size = whereis.size.unwrap_or(0);
        Content { lfn, guid: whereis.guid, size, checksums: &whereis.checksums }
    }

    pub(crate) fn reserved(reservation: &'a Reservation) -> Self {
        let Reservation { lfn, guid, size, checksums, .. } = reservation;
        Content { lfn, guid: *guid, size: *size, checksums }
    }
}

/// The storage elements, as the client of a request may use them.
#[derive(Clone, Copy)]
pub(super) struct Storage<'a> {
    pub conversation: &'a Conversation,
    pub call: &'a Call,
}

impl Storage<'_> {
    /// Returns the places of a file, the best first.
    pub(crate) fn places(&self, whereis: &Whereis) -> Vec<FileCopy> {
        let catalogue = &self.call.service.catalogue;
        let online = |replica: &ReplicaAt| {
            let se = catalogue.storage_element(replica.se.as_ref()?)?;
            (se.status != SeStatus::Offline).then(|| FileCopy::new(se, &replica.pfn))
        };
        whereis.replicas.iter().filter_map(online).collect()
    }

    /// Sends a client to a copy, by a URL of it.
    pub(crate) fn redirect(&self, to: &FileCopy, url: &str) -> Response<Body> {
        self.call.service.instruments.visits.redirected(to.se.number, SentBy::Http);
        let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
        set(&mut response, LOCATION, url);
        response
    }

    /// Reads a small file whole.
    pub(crate) async fn read(
        &self,
        place: &FileCopy,
        of: &Content<'_>,
    ) -> std::result::Result<Vec<u8>, String> {
        let text = |error: Error| error.message;
        let reading = async {
            if place.speaks_root() {
                let field = place.field(self, Access::Read, of).map_err(text)?;
                return data_server::read(&place.pfn, &field, of.size).await;
            }
            let file = place.web(self, Access::Read, of).map_err(text)?;
            let file = file.ok_or("it is reached neither by root:// nor by https")?;
            self.conversation.face.web.read(&file, of.size).await
        };
        let late = |_| Err(format!("not read within {RELAY_TIME:?}"));
        tokio::time::timeout(RELAY_TIME, reading).await.unwrap_or_else(late)
    }

    /// Writes a new small file.
    pub(crate) async fn write(
        &self,
        place: &FileCopy,
        of: &Content<'_>,
        content: &Bytes,
    ) -> std::result::Result<(), String> {
        let text = |error: Error| error.message;
        let writing = async {
            if place.speaks_root() {
                let field = place.field(self, Access::Write, of).map_err(text)?;
                return data_server::write(&place.pfn, &field, content).await;
            }
            let file = place.web(self, Access::Write, of).map_err(text)?;
            let file = file.ok_or("it is reached neither by root:// nor by https")?;
            self.conversation.face.web.write(&file, content.clone()).await
        };
        let late = |_| Err(format!("not written within {RELAY_TIME:?}"));
        tokio::time::timeout(RELAY_TIME, writing).await.unwrap_or_else(late)
    }
}

/// Returns the URLs of all replicas: those that HTTP clients can read first, then those of XRootD.
/// Each has a proof that is bound to the file and to time.
fn urls(storage: &Storage<'_>, of: &Content<'_>, whereis: &Whereis) -> Result<Vec<String>> {
    let places = storage.places(whereis);
    let mut urls = Vec::new();
    for place in &places {
        urls.extend(place.location(storage, Access::Read, of)?);
    }
    for place in &places {
        if let Some(target) = Target::parse(&place.pfn) {
            urls.push(target.url(&place.field(storage, Access::Read, of)?));
        }
    }
    Ok(urls)
}

fn metalink(request: &Request<'_>, stat: &Stat, whereis: &Whereis) -> Result<Response<Body>> {
    let urls = urls(&request.storage(), &Content::of(&stat.lfn, whereis), whereis)?;
    let name = stat.lfn.split_last().map_or("", |(_, name)| name);
    let mut out = Vec::new();
    Metalink { name, size: whereis.size, checksums: &whereis.checksums, urls: &urls }.write(&mut out);
    Ok(answer(StatusCode::OK, MEDIA_TYPE, out))
}

/// Redirects to a replica that HTTP clients can read; relays a small file if there is none.
async fn content(request: &mut Request<'_>, stat: &Stat, whereis: &Whereis) -> Outcome {
    let (storage, of) = (request.storage(), Content::of(&stat.lfn, whereis));
    for place in storage.places(whereis) {
        if let Some(url) = place.location(&storage, Access::Read, &of)? {
            storage.call.service.looked_up(&stat.lfn, whereis, request.site().as_ref());
            return Ok(storage.redirect(&place, &url));
        }
    }
    let bytes = relayed(&storage, &stat.lfn, whereis).await?;
    Ok(answer(StatusCode::OK, BYTES, bytes))
}

/// Reads a small file from a storage element.
pub(super) async fn relayed(
    storage: &Storage<'_>,
    lfn: &Lfn,
    whereis: &Whereis,
) -> std::result::Result<Vec<u8>, Refused> {
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
    let room = storage.call.service.admission.request_bytes.take(length);
    let _room = room.ok_or_else(|| crate::admission::busy("bytes of requests"))?;
    let mut why = "there is none".to_owned();
    let of = Content::of(lfn, whereis);
    for place in storage.places(whereis) {
        why = match storage.read(&place, &of).await {
            Ok(content) if is_right(&content, &whereis.checksums) => return Ok(content),
            Ok(_) => format!("{}: the checksum of the replica is wrong", place.se.name),
            Err(error) => format!("{}: {error}", place.se.name),
        };
    }
    let error = Error::new(ErrorKind::Unavailable, format!("{lfn}: no replica can be read: {why}"));
    Err(Refused { error, status: Some(StatusCode::BAD_GATEWAY) })
}

/// Returns the checksums of content.
pub(super) fn checksums_of(content: &[u8]) -> Result<Checksums> {
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
