//! Content of files over HTTP: ranges, digests, redirects to the service that has a file, and the parts that
//! services read from each other.

use std::sync::Arc;

use exacat_http::Query;
use exacat_http::answers::{AnswerPlace, BYTES, Body, answer, problem_as, redirect, set};
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::{ByteRange, FileId};
use exacat_writer::PartKey;
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, IF_RANGE, RANGE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::{Access, credential_of};
use crate::catalogue::{Credential, Readable};
use crate::content::{Content, FileView};
use crate::elsewhere::Elsewhere;
use crate::hub::Hub;
use crate::limits::{CONTENT_ANSWERS_MAX, PART_ANSWERS_MAX};
use crate::shapes::{API, REDIRECTED, file_id_of};

/// Header with the id of the file.
const FILE: HeaderName = HeaderName::from_static("exacat-file");
/// Header with the checksum of the whole file (RFC 3230).
const DIGEST: HeaderName = HeaderName::from_static("digest");

/// Place of an answer with content, which counts.
struct ContentPlace {
    hub: Arc<Hub>,
    _permit: OwnedSemaphorePermit,
}

impl ContentPlace {
    fn new(hub: Arc<Hub>, permit: OwnedSemaphorePermit) -> Self {
        hub.measures().http.content_answers.add(1);
        ContentPlace { hub, _permit: permit }
    }
}

impl AnswerPlace for ContentPlace {
    fn sent(&self, bytes: u64) {
        self.hub.measures().http.content_bytes.add(bytes);
    }
}

impl Drop for ContentPlace {
    fn drop(&mut self) {
        self.hub.measures().http.content_answers.sub(1);
    }
}

/// Files over HTTP.
pub(crate) struct Files {
    content: Arc<Content>,
    elsewhere: Elsewhere,
    answers: Arc<Semaphore>,
    parts: Arc<Semaphore>,
}

/// File that a caller may read.
enum Judged {
    Here(FileView),
    /// This service cannot answer for the certified file, for this reason.
    NotHere(FileId, Error),
}

/// Range of a request.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Some(ByteRange),
    Nothing,
}

/// Reads the header `Range`. Several ranges, and units other than bytes, stand for everything.
fn wanted(text: Option<&str>, length: u64) -> Wanted {
    let Some((first, last)) = text.and_then(|text| text.strip_prefix("bytes=")?.split_once('-')) else {
        return Wanted::All;
    };
    let number =
        |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let range = match (first, last) {
        ("", last) => match number(last) {
            Some(count) => ByteRange { from: length.saturating_sub(count), to: length },
            None => return Wanted::All,
        },
        (first, "") => match number(first) {
            Some(from) => ByteRange { from, to: length },
            None => return Wanted::All,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(from), Some(last)) if from <= last => {
                ByteRange { from, to: last.saturating_add(1).min(length) }
            }
            _ => return Wanted::All,
        },
    };
    if range.from < range.to { Wanted::Some(range) } else { Wanted::Nothing }
}

fn busy() -> Error {
    Error::new(ErrorKind::Busy, "too many answers with the content of files: come again")
}

impl Files {
    pub(crate) fn new(content: Arc<Content>) -> Self {
        let (answers, parts) = (Semaphore::new(CONTENT_ANSWERS_MAX), Semaphore::new(PART_ANSWERS_MAX));
        let elsewhere = Elsewhere::new(Arc::clone(&content));
        Files { content, elsewhere, answers: Arc::new(answers), parts: Arc::new(parts) }
    }

    fn found(&self, file: FileId) -> Result<FileView> {
        let found = self.content.find(file);
        let none = || Error::new(ErrorKind::NotFound, format!("the service has nothing of the file {file}"));
        found.ok_or_else(none)
    }

    /// Finds a certified file whose bytes this service can put together.
    fn certified(&self, file: FileId) -> Result<FileView> {
        let found = self.found(file)?;
        if !found.is_certified {
            let what = "the file is not certified: open=true reads its durable beginning";
            return Err(Error::new(ErrorKind::Conflict, what));
        }
        // Redirected elsewhere if that service answers.
        let what =
            "only the service that certified the file knows the places of its bytes, and it does not answer";
        if found.is_known() { Ok(found) } else { Err(Error::new(ErrorKind::Unavailable, what)) }
    }

    /// Judges whether a caller may read a file, and finds it.
    async fn judged(
        &self,
        access: &Access,
        credential: &Credential,
        what: Readable,
        open: bool,
    ) -> Result<Judged> {
        let of_open = match (&what, open) {
            (Readable::File(file), true) => self.found(*file).ok().filter(|found| !found.is_certified),
            (Readable::Name(lfn), true) => self.content.find_uncertified(lfn),
            _ => None,
        };
        let of_open = match of_open {
            Some(found) => match access.is_owner(credential, &found.owner).await {
                Ok(()) => Some(found),
                // Told as the catalogue tells it: others do not learn which names are being written.
                Err(error) if error.kind == ErrorKind::Denied => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        if let Some(found) = of_open {
            return Ok(Judged::Here(found));
        }
        // The rights come first: nobody else learns whether any service has the file.
        let file = access.may_read(credential, what).await?;
        Ok(match self.certified(file) {
            Ok(found) => Judged::Here(found),
            Err(reason) => Judged::NotHere(file, reason),
        })
    }

    /// Answers a request for a file: by its id in the path, or by its name.
    pub(crate) async fn file(
        &self,
        access: &Access,
        request: &Parts,
        id: Option<&str>,
    ) -> Result<Response<Body>> {
        let fields: &[&str] = if id.is_some() { &["open", REDIRECTED] } else { &["lfn", "open", REDIRECTED] };
        let query = Query::read(request.uri.query(), fields)?;
        let what = match (id, query.get("lfn")) {
            (Some(id), _) => Readable::File(file_id_of(id)?),
            (None, Some(lfn)) => Readable::Name(exacat_model::Lfn::parse(lfn)?),
            (None, None) => return Err(Error::invalid("name a file: content/FILE-ID, or content?lfn=")),
        };
        let credential = credential_of(&request.headers)?;
        let is_redirected = query.is_true(REDIRECTED)?;
        let found = match self.judged(access, &credential, what, query.is_true("open")?).await? {
            Judged::Here(found) => found,
            // One hop: whoever sent the reader here has asked all services.
            Judged::NotHere(_, reason) if is_redirected => return Err(reason),
            Judged::NotHere(file, reason) => {
                let url = self.elsewhere.find(file, &credential).await?.ok_or(reason)?;
                return Ok(redirect(&format!("{url}{API}content/{file}?{REDIRECTED}=true")));
            }
        };
        let length = found.length;
        let tag = found.adler32.map(|adler32| format!("\"{}-{adler32:08x}\"", found.file));
        let range = match range_of(&request.headers, tag.as_deref(), length) {
            Wanted::All => ByteRange { from: 0, to: length },
            Wanted::Some(range) => range,
            Wanted::Nothing => {
                let mut response = problem_as(416, &Error::invalid(format!("the file has {length} bytes")));
                set(&mut response, CONTENT_RANGE, &format!("bytes */{length}"));
                return Ok(response);
            }
        };
        let is_part = range.from > 0 || range.to < length;
        let (file, adler32, wanted) = (found.file, found.adler32, range.to - range.from);
        let body = match request.method {
            // Headers only: no byte is read, and no place is taken.
            Method::HEAD => Body::Whole(None),
            _ => {
                let place = self.place(&self.answers)?;
                let pieces = self.content.open(found, range, credential);
                Body::Pieces { pieces, left: wanted, place }
            }
        };
        let mut response = answer(StatusCode::OK, BYTES, body);
        set(&mut response, CONTENT_LENGTH, &wanted.to_string());
        set(&mut response, FILE, &file.to_string());
        set(&mut response, ACCEPT_RANGES, "bytes");
        if is_part {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let text = format!("bytes {}-{}/{length}", range.from, range.to - 1);
            set(&mut response, CONTENT_RANGE, &text);
        }
        if let (Some(tag), Some(adler32)) = (tag, adler32) {
            set(&mut response, ETAG, &tag);
            set(&mut response, DIGEST, &format!("adler32={adler32:08x}"));
        }
        Ok(response)
    }

    /// Answers another service that wants chunks of a part.
    pub(crate) async fn part(
        &self,
        access: &Access,
        request: &Parts,
        id: &str,
        epoch: &str,
    ) -> Result<Response<Body>> {
        let query = Query::read(request.uri.query(), &["from", "to"])?;
        let from = query.number("from")?.unwrap_or(0);
        let to = query.number("to")?.unwrap_or(u64::MAX);
        let epoch: u32 = epoch.parse().map_err(|_| Error::invalid("an epoch is a whole number"))?;
        if from > to {
            return Err(Error::invalid("from is at most to"));
        }
        let file = file_id_of(id)?;
        let credential = credential_of(&request.headers)?;
        access.may_read(&credential, Readable::File(file)).await?;
        let key = PartKey { file, epoch };
        let part = self.content.find_part(key);
        let none = || Error::new(ErrorKind::NotFound, format!("part {epoch} of the file is not here"));
        let part = part.ok_or_else(none)?;
        let place = self.place(&self.parts)?;
        let (length, pieces) = self.content.open_part(key, part, ByteRange { from, to }).await?;
        let mut response = answer(StatusCode::OK, BYTES, Body::Pieces { pieces, left: length, place });
        set(&mut response, CONTENT_LENGTH, &length.to_string());
        set(&mut response, FILE, &file.to_string());
        Ok(response)
    }

    /// Takes one of the places for answers.
    fn place(&self, of: &Arc<Semaphore>) -> Result<Box<dyn AnswerPlace>> {
        let permit = Arc::clone(of).try_acquire_owned().map_err(|_| busy())?;
        Ok(Box::new(ContentPlace::new(Arc::clone(self.content.hub()), permit)))
    }
}

/// Returns the range of a request; all, if it names another version of the file.
fn range_of(headers: &HeaderMap, tag: Option<&str>, length: u64) -> Wanted {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let is_other = text(IF_RANGE).is_some_and(|known| Some(known) != tag);
    if is_other { Wanted::All } else { wanted(text(RANGE), length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        let some = |from, to| Wanted::Some(ByteRange { from, to });
        for (text, expected) in [
            ("bytes=0-0", some(0, 1)),
            ("bytes=5-", some(5, 10)),
            ("bytes=-3", some(7, 10)),
            ("bytes=-99", some(0, 10)),
            ("bytes=2-99", some(2, 10)),
            ("bytes=10-", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=3-2", Wanted::All),
            ("bytes=0-1,4-5", Wanted::All),
            ("bytes=+1-2", Wanted::All),
            ("bytes=x-", Wanted::All),
            ("lines=0-1", Wanted::All),
            ("bytes=18446744073709551615-18446744073709551615", Wanted::Nothing),
        ] {
            assert_eq!(wanted(Some(text), 10), expected, "{text}");
        }
        assert_eq!(wanted(None, 10), Wanted::All);
        assert_eq!(wanted(Some("bytes=0-"), 0), Wanted::Nothing);
    }
}
