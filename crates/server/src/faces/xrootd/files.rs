//! Requests about files: locations, checksums, and opening, which redirects the client to one of
//! the locations.

use std::sync::Arc;

use exacat_model::answer::Whereis;
use exacat_model::operation::FileRef;
use exacat_model::{
    Answer, ChecksumAlgorithm, Checksums, ErrorKind, Guid, Kind, Lfn, Operation, Se, SeNumber, SeStatus,
};
use exacat_wire::xrootd::RawPath;
use exacat_wire::xrootd::numbers::error;
use exacat_wire::xrootd::path::escaped;

use super::names::stat_of;
use super::request::{Outcome, Refusal, RequestContext, Response, unexpected};
use crate::data_server::Target;
use crate::envelopes::{Access, Subject, is_own_place};
use crate::instruments::count;
use crate::visits::SentBy;

/// Field with the file's LFN: a client that comes back may send the PFN's path in place of it.
const LFN_FIELD: &str = "exacat.lfn";
/// Field with the numbers of the storage elements that a client was redirected to.
const SES_FIELD: &str = "exacat.ses";
/// Field with the storage element that a client wants to read from, or write to.
pub(super) const SE_FIELD: &str = "exacat.se";
/// Field with the wanted kind of checksum.
const CHECKSUM_FIELD: &str = "cks.type";
/// Prefix of the user name with which a multi-source client logs in for one replica; the storage
/// element's number follows. A login has room for 8 bytes.
const SOURCE_USER: &str = "se.";
/// A client's reason in `triedrc` for a host without the file: it implies nothing about other files
/// there.
const NOT_THERE: &str = "enoent";
/// Separator of a PFN and the member of its archive.
const MEMBER_MARK: &str = "?ZIP=";

/// Returns the kind of checksum that a request wants.
pub(super) fn wanted(asked: &RawPath<'_>) -> Outcome<ChecksumAlgorithm> {
    let Some(name) = asked.fields.get(CHECKSUM_FIELD) else { return Ok(ChecksumAlgorithm::Adler32) };
    named(name).ok_or_else(|| {
        let known = ChecksumAlgorithm::ALL.map(ChecksumAlgorithm::name).join(", ");
        Refusal::new(error::UNSUPPORTED, format!("no checksums of the kind {name:.20?} are kept ({known})"))
    })
}

fn named(name: &str) -> Option<ChecksumAlgorithm> {
    ChecksumAlgorithm::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(name))
}

/// Returns a checksum of a file: the requested kind, or without a request any known one.
pub(super) async fn checksum(context: &RequestContext, lfn: Lfn, asked: &RawPath<'_>) -> Outcome {
    let algorithm = wanted(asked)?;
    let is_named = asked.fields.get(CHECKSUM_FIELD).is_some();
    let found = |known: &Checksums| -> Option<Response> {
        let checksum = known.get(algorithm).or_else(|| known.iter().next().filter(|_| !is_named))?;
        let text = checksum.to_string();
        let (name, digits) = text.split_once(':').unwrap_or((algorithm.name(), &text));
        Some(Response::Text(format!("{name} {digits}")))
    };
    // The writer may refuse an upload because of this answer; the commit waits for that decision.
    if let Some(answer) = own_upload(context, &lfn).await.as_ref().and_then(found) {
        return Ok(answer);
    }
    context.written(&lfn).await;
    let stat = stat_of(context, lfn, true).await?;
    let Some(file) = stat.entry.file() else {
        return Err(not_a_file(&stat.lfn, stat.entry.kind()));
    };
    found(&file.checksums).ok_or_else(|| {
        let kind = if is_named { algorithm.name() } else { "checksum" };
        Refusal::new(error::UNSUPPORTED, format!("no {kind} is known of {}", stat.lfn))
    })
}

/// Returns the checksums of the caller's latest upload of a name, if it is complete and not
/// committed.
async fn own_upload(context: &RequestContext, lfn: &Lfn) -> Option<Checksums> {
    let uploads = context.uploads()?;
    let mut own = uploads.named(lfn).into_iter().rev();
    let pending = own.find(|pending| pending.written.owner.as_str() == context.user())?;
    uploads.checksums_of(&pending).await
}

fn not_a_file(lfn: &Lfn, kind: Kind) -> Refusal {
    let number = if kind == Kind::Directory { error::IS_DIRECTORY } else { error::NOT_FILE };
    Refusal::new(number, format!("{lfn} is a {}, not a file", kind.name()))
}

/// Returns the locations of a file, the best first.
async fn places(context: &RequestContext, lfn: Lfn) -> Outcome<exacat_model::Result<Whereis>> {
    let site = context.with.site.clone();
    match context.ask(Operation::Whereis { files: vec![FileRef::Lfn(lfn)], site }).await? {
        Answer::Whereis(mut found) => found.pop().ok_or_else(unexpected),
        _ => Err(unexpected()),
    }
}

/// A replica to which the server can redirect a client of this protocol.
struct Offer<'a> {
    se: Arc<Se>,
    pfn: &'a str,
    target: Target<'a>,
}

/// Returns the replicas that this protocol can read: in the order of the catalogue, those with
/// recent failures last.
fn offers<'a>(context: &RequestContext, whereis: &'a Whereis) -> Vec<Offer<'a>> {
    let face = &context.with.face;
    let mut offers: Vec<Offer<'a>> = whereis
        .replicas
        .iter()
        .filter_map(|replica| {
            let se = face.service.catalogue.storage_element(replica.se.as_ref()?)?;
            let target = Target::parse(&replica.pfn)?;
            (se.status != SeStatus::Offline).then_some(Offer { se, pfn: &replica.pfn, target })
        })
        .collect();
    offers.sort_by_cached_key(|offer| face.places.is_doubtful(offer.se.number));
    offers
}

fn none_left(whereis: &Whereis, lfn: &Lfn) -> Refusal {
    let why = match whereis.replicas.is_empty() {
        true => "no replica of it can be read",
        false => {
            "each of its replicas was tried, is on an offline storage element, or cannot be read over root://"
        }
    };
    Refusal::new(error::NO_REPLICAS, format!("{lfn}: {why}"))
}

/// Returns the requested file, and the storage elements that the client comes back from.
pub(super) fn returning(context: &RequestContext, asked: &RawPath<'_>) -> Outcome<(Lfn, Vec<SeNumber>)> {
    let with = &context.with;
    let came_back = asked.fields.tried().next().is_some();
    let given = asked.fields.values(LFN_FIELD).next().filter(|_| came_back);
    let lfn = match given {
        Some(given) => Lfn::parse(&given)?,
        None => asked.lfn()?,
    };
    let mut tried: Vec<SeNumber> = Vec::new();
    if came_back {
        count(&with.face.service.instruments.counts.xrootd_retried);
        let numbers = asked.fields.values(SES_FIELD).filter_map(|number| number.parse().ok());
        tried.extend(numbers.map(SeNumber));
        let why = asked.fields.values("triedrc").last();
        if let (Some(last), false) = (tried.last(), why.is_some_and(|why| why == NOT_THERE))
            && with.face.service.catalogue.storage_element_numbered(*last).is_some()
        {
            with.face.places.failed(*last, with.peer);
            with.face.service.instruments.visits.failed(*last);
        }
    }
    Ok((lfn, tried))
}

/// Returns the fields by which the server recognises a client that comes back.
pub(super) fn return_fields(tried: &[SeNumber], lfn: &Lfn) -> String {
    format!("{}&{LFN_FIELD}={}", ses_field(tried), escaped(lfn.as_str()))
}

fn ses_field(tried: &[SeNumber]) -> String {
    let tried: Vec<String> = tried.iter().map(|number| number.0.to_string()).collect();
    format!("{SES_FIELD}={}", tried.join(","))
}

/// Opens a file for reading: redirects the client to the best replica that it has not tried.
pub(super) async fn open(context: &RequestContext, asked: &RawPath<'_>) -> Outcome {
    let with = &context.with;
    let counts = &with.face.service.instruments.counts;
    let came_back = asked.fields.tried().next().is_some();
    let (lfn, mut tried) = returning(context, asked)?;
    context.written(&lfn).await;
    let whereis = match places(context, lfn.clone()).await? {
        Ok(whereis) => whereis,
        Err(error) if error.kind == ErrorKind::NotFile => {
            return Err(Refusal::new(error::IS_DIRECTORY, error.message));
        }
        Err(error) => return Err(error.into()),
    };
    if whereis.replicas.iter().any(|replica| replica.pfn.contains(MEMBER_MARK))
        && let Some(refusal) = in_archive(context, lfn.clone()).await?
    {
        return Err(refusal);
    }
    // Without the field, a client that comes back still names the hosts it tried.
    let was_tried = |offer: &Offer<'_>| match came_back && tried.is_empty() {
        true => asked.fields.tried().any(|host| host == offer.target.host),
        false => tried.contains(&offer.se.number),
    };
    // A client that names a storage element gets that one or none.
    let only = asked.fields.values(SE_FIELD).next();
    let is_meant = |offer: &Offer<'_>| match &only {
        Some(name) => offer.se.name.as_str() == name,
        None => with.source.is_none_or(|source| offer.se.number == source),
    };
    let offers = offers(context, &whereis);
    let Some(offer) = offers.into_iter().find(|offer| is_meant(offer) && !was_tried(offer)) else {
        return Err(none_left(&whereis, &lfn));
    };
    // Another try is no other look-up.
    if !came_back && tried.is_empty() {
        with.face.service.looked_up(&lfn, &whereis, with.site.as_ref());
    }
    tried.push(offer.se.number);
    count(&counts.xrootd_redirects);
    with.face.service.instruments.visits.redirected(offer.se.number, SentBy::Xrootd);
    redirect(context, &lfn, &whereis, &offer, &tried)
}

/// Returns a refusal if the file is a member of an archive: the client would get the whole archive
/// instead.
async fn in_archive(context: &RequestContext, lfn: Lfn) -> Outcome<Option<Refusal>> {
    let stat = stat_of(context, lfn, true).await?;
    let inside = stat.entry.file().and_then(|file| {
        file.replicas.iter().find_map(|replica| match &replica.location {
            exacat_model::Location::Member { archive, member } => Some((*archive, member.as_str())),
            _ => None,
        })
    });
    let Some((archive, member)) = inside else { return Ok(None) };
    let archive = match name_of(context, archive).await? {
        Some(lfn) => lfn.to_string(),
        None => archive.to_string(),
    };
    Ok(Some(Refusal::new(
        error::UNSUPPORTED,
        format!("{} is inside the archive {archive}: read it as {archive}?xrdcl.unzip={member}", stat.lfn),
    )))
}

async fn name_of(context: &RequestContext, guid: Guid) -> Outcome<Option<Lfn>> {
    match context.ask(Operation::Lfns { guids: vec![guid] }).await? {
        Answer::Lfns(mut found) => Ok(found.pop().and_then(Result::ok)),
        _ => Err(unexpected()),
    }
}

fn redirect(
    context: &RequestContext,
    lfn: &Lfn,
    whereis: &Whereis,
    offer: &Offer<'_>,
    tried: &[SeNumber],
) -> Outcome {
    let mut fields = ses_field(tried);
    if is_own_place(offer.pfn, &offer.se.prefix, whereis.guid) {
        let subject = Subject {
            lfn,
            guid: whereis.guid,
            se: &offer.se.name,
            pfn: offer.pfn,
            size: whereis.size.unwrap_or(0),
            md5: whereis.checksums.get(ChecksumAlgorithm::Md5),
        };
        let envelope = context.with.face.envelopes.seal(context.user(), Access::Read, &subject)?;
        fields.push_str("&authz=Bearer%20");
        fields.push_str(&envelope);
    }
    if offer.target.is_at(lfn) {
        let (host, port) = (offer.target.host.to_owned(), offer.target.port);
        return Ok(Response::Host(host, port, offer.target.with(&fields)));
    }
    fields.push_str(&format!("&{LFN_FIELD}={}", escaped(lfn.as_str())));
    Ok(Response::Url(offer.target.url(&fields)))
}

/// Returns the storage element that a login's user name stands for.
pub(super) fn source_of(user: &str) -> Option<SeNumber> {
    user.strip_prefix(SOURCE_USER)?.parse().ok().map(SeNumber)
}

/// Returns the locations of a file; for other entries, this server. A multi-source client opens the
/// LFN at each location. If the path of the PFN differs, the client opens it here, and names the
/// replica by its user name.
pub(super) async fn locate(context: &RequestContext, lfn: Lfn, any: bool, sources: bool) -> Outcome {
    let this = || Ok(Response::Text(format!("Sw{}", here(context))));
    if any {
        return this();
    }
    context.written(&lfn).await;
    let whereis = match places(context, lfn.clone()).await? {
        Ok(whereis) => whereis,
        Err(error) if error.kind == ErrorKind::NotFile => return this(),
        Err(error) => return Err(error.into()),
    };
    let mut found: Vec<String> = Vec::new();
    for offer in offers(context, &whereis) {
        let place = match sources && !offer.target.is_at(&lfn) {
            true => format!("Sr{SOURCE_USER}{}@{}", offer.se.number.0, here(context)),
            false => format!("Sr{}", offer.target.address()),
        };
        if !found.contains(&place) {
            found.push(place);
        }
    }
    if found.is_empty() {
        return Err(none_left(&whereis, &lfn));
    }
    Ok(Response::Text(found.join(" ")))
}

/// Returns the address of this server, as the client reached it.
pub(super) fn here(context: &RequestContext) -> String {
    let local = context.with.local;
    match &context.with.face.settings.name {
        Some(name) => format!("{name}:{}", local.port()),
        None => std::net::SocketAddr::new(local.ip().to_canonical(), local.port()).to_string(),
    }
}
