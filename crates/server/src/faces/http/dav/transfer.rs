//! Third-party copies (HTTP-TPC): one storage element copies a file from or to another one, as the
//! catalogue tells it. The client gets performance markers. The new copy is registered in one commit,
//! after its storage element confirmed size and checksum.

use std::sync::Arc;
use std::time::Duration;

use exacat_model::answer::{Stat, Upload};
use exacat_model::{ChecksumAlgorithm, Checksums, Error, ErrorKind, Kind, Lfn, SeName, TimeMs};
use exacat_wire::webdav::Destination;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

use super::super::Conversation;
use super::super::answers::{Body, BodyPart, CancelOnDrop, answer, empty};
use super::super::call::{Call, decoded};
use super::content::{Content, FileCopy, places, with_proof};
use super::upload::{Wish, commit, give_up, is_web, written};
use super::{Outcome, PREFIX, Refused, Request};
use crate::data_server::{WebFile, unavailable};
use crate::envelopes::Access;

/// Content type of performance markers.
const MARKERS: &str = "text/perf-marker-stream";
/// Interval of markers while the new copy is checked.
const MARKER_TIME: Duration = Duration::from_secs(5);
/// Markers between the copy and the connection.
const MARKERS_AHEAD: usize = 8;
/// Start of headers that are for the other storage element.
const TRANSFER_HEADER: &str = "transferheader";
/// Header of XRootD for headers that are for the other storage element.
const COPY_HEADER: HeaderName = HeaderName::from_static("copy-header");
/// Field of a URL with a storage element.
const SE_FIELD: &str = "se";

/// The side that the catalogue tells to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The new copy's storage element reads from the other one.
    Pull,
    /// The old copy's storage element writes to the other one.
    Push,
}

/// A copy to be made.
pub(super) struct Plan {
    mode: Mode,
    from: WebFile,
    /// Headers for the old copy's storage element, of a client that brought its own access.
    headers: HeaderMap,
    upload: Upload,
    place: FileCopy,
    to: WebFile,
    /// Directory of the new copy.
    directory: WebFile,
}

/// True if the client of a request understands performance markers.
pub(super) fn wants_markers(request: &Request<'_>) -> bool {
    let is_mark = |name: &HeaderName| {
        let name = name.as_str();
        matches!(name, "source" | "credential" | "x-number-of-streams") || name.starts_with(TRANSFER_HEADER)
    };
    request.head.headers.keys().any(is_mark)
        || request.head.headers.get("accept").is_some_and(|accept| accept.as_bytes() == MARKERS.as_bytes())
}

/// Returns the storage element that the query of a URL names.
pub(super) fn se_of(url: &str) -> exacat_model::Result<Option<SeName>> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let mut fields = query.split('&').filter_map(|field| field.split_once('='));
    let named = fields.find(|(name, _)| *name == SE_FIELD);
    named.map(|(_, name)| SeName::parse(&decoded(name, false)?)).transpose()
}

/// Answers COPY with the header `Source`.
pub(super) async fn pull(mut request: Request<'_>) -> Outcome {
    if request.head.headers.contains_key("destination") {
        return Err(Refused::new(StatusCode::BAD_REQUEST, "COPY takes Source or Destination, not both"));
    }
    let source = request.header("source")?.unwrap_or_default().to_owned();
    let target = request.lfn.clone().of_anything();
    let se = se_of(&request.head.uri.to_string())?;
    match Destination::parse(&source, &request.host()?, PREFIX)? {
        Destination::Here(from) => {
            let from = from.of_anything();
            let stat = request.stat(&from, true).await?;
            let plan = plan(&mut request, &stat, &target, se, Mode::Pull).await?;
            run(request, plan).await
        }
        Destination::Elsewhere => {
            let plan = plan_from_elsewhere(&mut request, source, &target, se).await?;
            run(request, plan).await
        }
    }
}

/// Sends a client that copies a file to another server to a storage element with it: the client repeats
/// its request there.
pub(super) async fn push(mut request: Request<'_>) -> Outcome {
    let lfn = request.lfn.clone().of_anything();
    let stat = request.stat(&lfn, true).await?;
    let whereis = file_places(&mut request, &stat).await?;
    let storage = request.storage();
    for place in storage.places(&whereis) {
        if let Some(url) = place.location(&storage, Access::Read, &Content::of(&stat.lfn, &whereis))? {
            return Ok(storage.redirect(&place, &url));
        }
    }
    Err(no_web(&stat.lfn))
}

fn no_web(lfn: &Lfn) -> Refused {
    Refused::new(StatusCode::CONFLICT, format!("{lfn}: no replica is reached by https: use root://"))
}

async fn file_places(
    request: &mut Request<'_>,
    stat: &Stat,
) -> Result<exacat_model::answer::Whereis, Refused> {
    if stat.entry.kind() != Kind::File {
        let (lfn, kind) = (&stat.lfn, stat.entry.kind().name());
        return Err(Refused::new(
            StatusCode::CONFLICT,
            format!("{lfn} is a {kind}: files are copied between servers"),
        ));
    }
    Ok(places(request, &stat.lfn).await?)
}

/// Plans the copy of a file of the catalogue: to a new file, or to another storage element if `target`
/// is the file itself.
pub(super) async fn plan(
    request: &mut Request<'_>,
    stat: &Stat,
    target: &Lfn,
    se: Option<SeName>,
    mode: Mode,
) -> Result<Plan, Refused> {
    let whereis = file_places(request, stat).await?;
    let size = whereis.size.ok_or_else(|| {
        Refused::new(
            StatusCode::CONFLICT,
            format!("{}: the size is unknown, so no copy can be checked", stat.lfn),
        )
    })?;
    let of = Content::of(&stat.lfn, &whereis);
    let storage = request.storage();
    let mut from = None;
    for place in storage.places(&whereis) {
        if let Some(file) = place.web(&storage, Access::Read, &of)? {
            from = Some(file);
            break;
        }
    }
    let from = from.ok_or_else(|| no_web(&stat.lfn))?;
    let guid = (stat.lfn == *target).then_some(whereis.guid);
    let wish = Wish { lfn: target.clone(), guid, size, checksums: whereis.checksums.clone(), se };
    reserve(request, wish, mode, from, HeaderMap::new()).await
}

/// Plans the copy of a file of another server, which the client has access to.
async fn plan_from_elsewhere(
    request: &mut Request<'_>,
    url: String,
    target: &Lfn,
    se: Option<SeName>,
) -> Result<Plan, Refused> {
    let rest = url.split_once("://").filter(|(scheme, _)| matches!(*scheme, "https" | "davs"));
    let (_, rest) =
        rest.ok_or_else(|| Refused::new(StatusCode::BAD_REQUEST, "the source is no https:// URL"))?;
    if request.call.caller().name().is_none() {
        let error = Error::new(ErrorKind::Unauthenticated, "third-party copies are for known users");
        return Err(error.into());
    }
    let from = WebFile { url: format!("https://{rest}"), token: String::new() };
    match request.stat(target, false).await {
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(Refused::new(StatusCode::CONFLICT, format!("{target} exists: remove it first"))),
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &request.head.headers {
        let name = name.as_str().strip_prefix(TRANSFER_HEADER).filter(|name| !name.is_empty());
        if let Some(name) = name.and_then(|name| HeaderName::from_bytes(name.as_bytes()).ok()) {
            headers.insert(name, value.clone());
        }
    }
    // The cause stays in the log: it would tell strangers about servers that only this one reaches.
    let failed = |why: String| {
        tracing::debug!(why, "the source of a third-party copy cannot be asked");
        let message = "the source tells neither size nor checksum to this server";
        Refused { error: unavailable(message.to_owned()), status: Some(StatusCode::BAD_GATEWAY) }
    };
    let web = Arc::clone(&request.conversation.face.web);
    let stat = web.stat(&from, &headers).await.map_err(failed)?;
    let stat = stat.ok_or_else(|| failed("no such file".to_owned()))?;
    let checksum = web.checksum(&from, &headers, ChecksumAlgorithm::Adler32).await.map_err(failed)?;
    let checksum = checksum.ok_or_else(|| failed("no checksum".to_owned()))?;
    let checksums = Checksums::one(checksum);
    let wish = Wish { lfn: target.clone(), guid: None, size: stat.size, checksums, se };
    reserve(request, wish, Mode::Pull, from, headers).await
}

async fn reserve(
    request: &mut Request<'_>,
    wish: Wish,
    mode: Mode,
    from: WebFile,
    headers: HeaderMap,
) -> Result<Plan, Refused> {
    let (upload, place) = super::upload::reserve(request, wish, is_web).await?;
    let to = place.web(&request.storage(), Access::Write, &Content::reserved(&upload.reservation))?;
    let to = to.ok_or_else(super::unfitting)?;
    let url = to.url.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned();
    let proof =
        place.proof(&request.storage(), Access::Write, &Content::reserved(&upload.reservation), &url)?;
    let directory = WebFile { url, token: proof.unwrap_or_default() };
    Ok(Plan { mode, from, headers, upload, place, to, directory })
}

/// Returns the headers of the request to the storage element that copies.
fn copy_headers(plan: &Plan) -> Result<HeaderMap, String> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| "a URL that is no header".to_owned());
    let mut headers = HeaderMap::new();
    let (name, other) = match plan.mode {
        Mode::Pull => ("source", &plan.from),
        Mode::Push => ("destination", &plan.to),
    };
    // XRootD 5 knows the header below in another case than this client sends, so the URL has the proof too.
    headers.insert(HeaderName::from_static(name), value(&with_proof(other.url.clone(), &other.token))?);
    headers.insert("credential", HeaderValue::from_static("none"));
    headers.insert("overwrite", HeaderValue::from_static("F"));
    headers.insert("requirechecksumverification", HeaderValue::from_static("false"));
    if !other.token.is_empty() {
        headers.insert("transferheaderauthorization", value(&format!("Bearer {}", other.token))?);
    }
    for (name, value) in &plan.headers {
        let copied = [title_case(name).as_bytes(), b": ", value.as_bytes()].concat();
        let copied =
            HeaderValue::from_bytes(&copied).map_err(|_| "a header that cannot be passed on".to_owned())?;
        headers.append(COPY_HEADER, copied);
        let name = HeaderName::from_bytes(format!("{TRANSFER_HEADER}{name}").as_bytes());
        headers.insert(name.map_err(|_| "a header that cannot be passed on".to_owned())?, value.clone());
    }
    Ok(headers)
}

/// Returns the name of a header as XRootD 5 compares it: `Authorization`.
fn title_case(name: &HeaderName) -> String {
    let mut first = true;
    let mut letters = String::new();
    for letter in name.as_str().chars() {
        letters.push(if first { letter.to_ascii_uppercase() } else { letter });
        first = letter == '-';
    }
    letters
}

/// Makes the copy, waits for its confirmation, and commits it. Ends the reservation if that fails.
async fn carry(
    conversation: &Conversation,
    call: &mut Call,
    plan: &Plan,
    markers: mpsc::Sender<String>,
) -> exacat_model::Result<()> {
    let made = async {
        let headers = copy_headers(plan)?;
        let at = if plan.mode == Mode::Pull { &plan.to } else { &plan.from };
        if plan.mode == Mode::Pull {
            // XRootD 5 makes missing directories for PUT, and not for COPY.
            conversation.face.web.make_directory(&plan.directory).await;
        }
        conversation.face.web.copy(at, &headers, &markers).await?;
        confirmed(conversation, plan, &markers).await
    };
    let made: Result<Checksums, String> = made.await;
    call.prolong();
    match made {
        Ok(checksums) => commit(call, &plan.upload, &plan.place, checksums).await,
        Err(why) => {
            give_up(call, plan.upload.reservation.guid, &plan.place.se.name).await;
            let (lfn, se) = (&plan.upload.reservation.lfn, &plan.place.se.name);
            Err(unavailable(format!("{lfn} was not copied to {se}: {why}; nothing was registered")))
        }
    }
}

/// Waits until the storage element confirms the copy; sends markers meanwhile.
async fn confirmed(
    conversation: &Conversation,
    plan: &Plan,
    markers: &mpsc::Sender<String>,
) -> Result<Checksums, String> {
    let uploads = conversation.face.uploads.as_ref().ok_or("this is a snapshot")?;
    let copy = written(&plan.upload, &plan.place);
    let confirming = uploads.confirm(&copy);
    tokio::pin!(confirming);
    loop {
        tokio::select! {
            confirmed = &mut confirming => return confirmed,
            () = tokio::time::sleep(MARKER_TIME) => {
                let now = conversation.face.service.catalogue.now();
                if markers.send(marker(now, plan.upload.reservation.size)).await.is_err() {
                    return Err("the client has gone".to_owned());
                }
            }
        }
    }
}

/// Returns a marker of a copy whose bytes are all there.
fn marker(now: TimeMs, bytes: u64) -> String {
    let now = now.0 / 1000;
    format!(
        "Perf Marker\nTimestamp: {now}\nStripe Index: 0\nStripe Bytes Transferred: {bytes}\nTotal Stripe Count: 1\nEnd\n"
    )
}

/// Runs a copy. The client gets markers if it understands them, or the status at the end.
pub(super) async fn run(request: Request<'_>, plan: Plan) -> Outcome {
    let wants_markers = wants_markers(&request);
    let conversation = Arc::clone(request.conversation);
    let mut call = request.call;
    let cancel = Arc::clone(&call.cancel);
    let (sender, mut markers) = mpsc::channel::<String>(MARKERS_AHEAD);
    if !wants_markers {
        // A task of its own: the reservation ends with it, also if the client goes away.
        let carrying = tokio::spawn(async move { carry(&conversation, &mut call, &plan, sender).await });
        while markers.recv().await.is_some() {}
        let lost = |error| Error::new(ErrorKind::Unknown, format!("the work on it was lost: {error}"));
        return match carrying.await.map_err(lost)? {
            Ok(()) => Ok(empty(StatusCode::CREATED)),
            Err(error) if error.kind == ErrorKind::Unavailable => {
                Err(Refused { error, status: Some(StatusCode::BAD_GATEWAY) })
            }
            Err(error) => Err(error.into()),
        };
    }
    let (parts_sender, parts) = mpsc::channel(MARKERS_AHEAD);
    let mut response = answer(StatusCode::ACCEPTED, MARKERS, bytes::Bytes::new());
    *response.body_mut() = Body::Parts { parts, _cancel: CancelOnDrop(cancel) };
    tokio::spawn(async move {
        let carrying = tokio::spawn(async move { carry(&conversation, &mut call, &plan, sender).await });
        loop {
            tokio::select! {
                marker = markers.recv() => {
                    let Some(marker) = marker else { break };
                    if parts_sender.send(BodyPart::Bytes(marker.into())).await.is_err() {
                        break;
                    }
                }
                () = parts_sender.closed() => break,
            }
        }
        // A copy without a reader ends: its storage element sees the connection close.
        drop(markers);
        let end = match carrying.await {
            Ok(Ok(())) => "success: Created\n".to_owned(),
            Ok(Err(error)) => format!("failure: {}\n", one_line(&error.message)),
            Err(error) => format!("failure: the outcome is unknown: {error}\n"),
        };
        if parts_sender.send(BodyPart::Bytes(end.into())).await.is_ok() {
            // The client may be gone.
            let _ = parts_sender.send(BodyPart::End).await;
        }
    });
    Ok(response)
}

fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_element_is_named_in_the_query() {
        let name = SeName::parse("A::B::C").unwrap();
        for url in ["/dav/f?se=A::B::C", "https://h/dav/f?x=1&se=A%3A%3AB::C&y", "?se=A::B::C"] {
            assert_eq!(se_of(url).unwrap(), Some(name.clone()), "{url}");
        }
        for url in ["/dav/f", "/dav/f?", "/dav/se=A", "/dav/f?xse=A", "/dav/f?se"] {
            assert_eq!(se_of(url).unwrap(), None, "{url}");
        }
        assert!(se_of("/dav/f?se=").is_err() && se_of("/dav/f?se=a%20b").is_err());
        assert_eq!(one_line("a\nb\x1bc"), "a b c");
        assert_eq!(title_case(&HeaderName::from_static("x-auth")), "X-Auth");
        assert!(
            marker(TimeMs(7000), 7).ends_with("\nStripe Bytes Transferred: 7\nTotal Stripe Count: 1\nEnd\n")
        );
    }
}
