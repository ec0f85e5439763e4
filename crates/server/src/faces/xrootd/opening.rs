//! Opening a file for writing: reserves the upload, and redirects the client to the chosen storage
//! element.

use std::collections::BTreeSet;
use std::sync::Arc;

use exacat_model::answer::{Upload, UploadTarget};
use exacat_model::operation::SeChoice;
use exacat_model::{
    AccountName, Answer, Checksum, Checksums, ErrorKind, Guid, Lfn, Operation, SeName, SeNumber,
};
use exacat_wire::xrootd::RawPath;
use exacat_wire::xrootd::numbers::{error, open as options};

use super::files::{self, SE_FIELD};
use super::request::{Outcome, Refusal, RequestContext, Response, unexpected};
use crate::data_server::Target;
use crate::envelopes::{Access, Subject, is_own_place};
use crate::instruments::count;
use crate::uploads::Written;
use crate::visits::SentBy;

/// Field with the size of the file in bytes, as clients send it.
const SIZE_FIELD: &str = "oss.asize";
/// Field with the file's GUID. It names an existing file, to add a replica, or a reservation, to
/// move it elsewhere. Otherwise the client chose it.
const GUID_FIELD: &str = "exacat.guid";
/// Field with checksums of the file.
const CHECKSUM_FIELD: &str = "exacat.checksum";
/// Field with storage elements to avoid.
const NOT_SE_FIELD: &str = "exacat.not";
/// Field with the wanted quality of service.
const QOS_FIELD: &str = "exacat.qos";
/// Field with the site that the storage element should be near.
const SITE_FIELD: &str = "exacat.site";
/// Most storage elements tried to find one that clients of this protocol can write to.
const CHOICES_MAX: usize = 16;

/// A client's wishes for an upload.
struct Wish {
    lfn: Lfn,
    size: u64,
    guid: Option<Guid>,
    checksums: Checksums,
    choice: SeChoice,
    /// Storage elements that the client was redirected to and came back from.
    tried: Vec<SeNumber>,
}

impl Wish {
    fn of(context: &RequestContext, how: u16, asked: &RawPath<'_>) -> Outcome<Self> {
        if how & (options::NEW | options::DELETE) == 0 {
            return Err(Refusal::new(
                error::UNSUPPORTED,
                "the content of a file never changes: write a new file, as xrdcp does",
            ));
        }
        let (lfn, tried) = files::returning(context, asked)?;
        let fields = asked.fields;
        let names = |field: &str| -> Outcome<Vec<SeName>> {
            Ok(fields.values(field).map(|name| SeName::parse(&name)).collect::<Result<_, _>>()?)
        };
        let size = fields.values(SIZE_FIELD).next().and_then(|size| size.parse().ok()).ok_or_else(|| {
            Refusal::new(
                error::ARG_MISSING,
                format!(
                    "say how many bytes it will have, as xrdcp and gfal-copy do: {lfn}?{SIZE_FIELD}=BYTES"
                ),
            )
        })?;
        let mut checksums = Checksums::none();
        for text in fields.values(CHECKSUM_FIELD) {
            checksums.add(Checksum::parse(&text)?)?;
        }
        let guid = fields.values(GUID_FIELD).next().map(|guid| Guid::parse(&guid)).transpose()?;
        let qos = fields.values(QOS_FIELD).next().map(|label| AccountName::parse(&label)).transpose()?;
        let choice = SeChoice {
            wanted: names(SE_FIELD)?.into_iter().take(1).collect(),
            qos: qos.map(|label| (label, 1)).into_iter().collect(),
            excluded: names(NOT_SE_FIELD)?,
            site: match fields.values(SITE_FIELD).next() {
                Some(site) => Some(AccountName::parse(&site)?),
                None => context.with.site.clone(),
            },
        };
        let choice =
            SeChoice { qos: if choice.wanted.is_empty() { choice.qos } else { Vec::new() }, ..choice };
        Ok(Wish { lfn, size, guid, checksums, choice, tried })
    }
}

/// Opens a file for writing.
pub(super) async fn open(context: &RequestContext, how: u16, asked: &RawPath<'_>) -> Outcome {
    let face = &context.with.face;
    let Some(uploads) = &face.uploads else {
        return Err(Refusal::new(error::READ_ONLY, "this is a snapshot: nothing can be written"));
    };
    let wish = Wish::of(context, how, asked)?;
    uploads.check_room()?;
    let (upload, target) = reserved(context, &wish).await?;
    let se = face.service.catalogue.storage_element(&target.se).ok_or_else(unexpected)?;
    let reservation = &upload.reservation;
    let subject = Subject {
        lfn: &reservation.lfn,
        guid: reservation.guid,
        se: &target.se,
        pfn: &target.pfn,
        size: reservation.size,
        md5: None,
    };
    let envelope = face.envelopes.seal(context.user(), Access::Write, &subject)?;
    let written = Written {
        guid: reservation.guid,
        lfn: reservation.lfn.clone(),
        se: target.se.clone(),
        pfn: target.pfn.clone(),
        owner: upload.owner.clone(),
        size: reservation.size,
        checksums: reservation.checksums.clone(),
        expires: reservation.expires,
    };
    uploads.add(written).await?;
    count(&face.service.instruments.counts.xrootd_redirects);
    face.service.instruments.visits.redirected(se.number, SentBy::Xrootd);
    let mut tried = wish.tried;
    tried.push(se.number);
    let fields = format!(
        "{}&{GUID_FIELD}={}&authz=Bearer%20{envelope}",
        files::return_fields(&tried, &reservation.lfn),
        reservation.guid
    );
    let place = Target::parse(&target.pfn).ok_or_else(unexpected)?;
    Ok(Response::Url(place.url(&fields)))
}

/// Reserves the upload where clients of this protocol can write.
async fn reserved(context: &RequestContext, wish: &Wish) -> Outcome<(Upload, UploadTarget)> {
    let face = &context.with.face;
    let named = |number: &SeNumber| {
        face.service.catalogue.storage_element_numbered(*number).map(|se| se.name.clone())
    };
    let mut never: BTreeSet<SeName> = wish.choice.excluded.iter().cloned().collect();
    never.extend(wish.tried.iter().filter_map(named));
    let ses = face.service.catalogue.storage_elements();
    never.extend(
        ses.iter()
            .filter(|se| !se.prefix.is_empty() && Target::parse(&format!("{}/x", se.prefix)).is_none())
            .map(|se| se.name.clone()),
    );
    // A storage element with recent failures is better than none.
    let doubtful: BTreeSet<SeName> =
        ses.iter().filter(|se| face.places.is_doubtful(se.number)).map(|se| se.name.clone()).collect();
    let mut careful = wish.choice.wanted.is_empty() && !doubtful.is_empty();
    let mut guid = wish.guid;
    for _ in 0..CHOICES_MAX {
        let excluded =
            if careful { never.union(&doubtful).cloned().collect() } else { never.iter().cloned().collect() };
        // The client came back from a storage element that it wanted first.
        let wanted = wish.choice.wanted.iter().filter(|name| !never.contains(*name)).cloned().collect();
        let reserve = Operation::UploadReserve {
            lfn: wish.lfn.clone(),
            guid,
            size: wish.size,
            checksums: wish.checksums.clone(),
            job: None,
            choice: Box::new(SeChoice {
                wanted,
                qos: wish.choice.qos.clone(),
                excluded,
                site: wish.choice.site.clone(),
            }),
            lifetime_seconds: None,
        };
        let upload = match context.ask(reserve).await {
            Ok(Answer::Upload(upload)) => upload,
            Ok(_) => return Err(unexpected()),
            Err(error) if error.kind == ErrorKind::Unavailable && careful => {
                careful = false;
                continue;
            }
            Err(error) if error.kind == ErrorKind::Exists && guid.is_none() => {
                return Err(Refusal::new(
                    error::IT_EXISTS,
                    format!(
                        "{} exists, and nothing is written over: remove it first, or give its GUID \
                         (?{GUID_FIELD}=GUID) to add a replica to it",
                        wish.lfn
                    ),
                ));
            }
            Err(error) => return Err(error.into()),
        };
        let Some(target) = upload.targets.first().cloned() else { return Err(unexpected()) };
        let prefix = face.service.catalogue.storage_element(&target.se).map(|se| Arc::clone(&se));
        let own = prefix.is_some_and(|se| is_own_place(&target.pfn, &se.prefix, upload.reservation.guid));
        if own && Target::parse(&target.pfn).is_some() {
            return Ok((*upload, target));
        }
        guid = Some(upload.reservation.guid);
        never.insert(target.se);
    }
    Err(Refusal::new(error::NO_SERVER, "no storage element can be written to by root:// now"))
}
