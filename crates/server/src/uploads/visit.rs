//! Visit to a storage element: checks that a file exists, is complete, is closed by its writer, and
//! returns its checksum.
//!
//! The visit opens the file for reading, which an XRootD server denies while a client has it open
//! for writing. The file's metadata must be the same before that and after the checksum.
//!
//! The visit waits for a checksum that it requested. A server keeps an unclaimed checksum for a
//! quarter of an hour, and meanwhile computes one less at a time. Visits that leave early would
//! soon stop it from computing any.

use std::time::Duration;

use exacat_model::{Checksum, ChecksumAlgorithm};
use exacat_wire::xrootd::numbers::{error, flag, open, query, request};
use exacat_wire::xrootd::response::{FileStat, read_text};

use crate::data_server::{Outcome, REDIRECTS_MAX, Session, Target, Trouble, WebFile, failed, sent_on};
use crate::settings::ChecksumServer;

/// Longest wait for a checksum, for which the data server reads the whole file.
const CHECKSUM_TIME: Duration = Duration::from_secs(600);

/// The subject of a visit.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// URL of the file.
    pub pfn: String,
    /// Field of the URL with the envelope; none if it is empty.
    pub envelope_field: String,
    /// The same over HTTPS, for a storage element that is not reached by root://.
    pub web: Option<WebFile>,
    /// Size of the complete file in bytes.
    pub size: u64,
    /// Kinds of checksums in the reservation; the server must report one of them.
    pub reserved: Vec<ChecksumAlgorithm>,
    /// Servers that report checksums in place of those with the files.
    pub checksums: Vec<ChecksumServer>,
}

/// Result of a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Visited {
    /// The file is complete, with these checksums.
    Whole(Vec<Checksum>),
    /// The file is not complete yet, for this reason.
    NotYet(String),
    /// The file never will be complete, for this reason.
    Never(String),
}

/// Checks a file. A storage element that cannot be reached counts as "not yet".
pub(super) async fn visit_all(question: &Question) -> Visited {
    let mut question = question.clone();
    for _ in 0..=REDIRECTS_MAX {
        match visit(&question).await {
            Ok(found) => return found,
            Err(Trouble::Failed(why)) => return Visited::NotYet(why),
            Err(Trouble::Elsewhere(port, place)) => match sent_on(&question.pfn, port, &place) {
                Some(pfn) => question.pfn = pfn,
                None => return Visited::NotYet("it sends on to no place that can be understood".to_owned()),
            },
        }
    }
    Visited::NotYet(format!("it sends on more than {REDIRECTS_MAX} times"))
}

async fn visit(question: &Question) -> Outcome<Visited> {
    let target = Target::parse(&question.pfn).ok_or_else(|| failed("no place that is reached by root://"))?;
    if target.secure {
        return Err(failed("it is reached by roots:// only, which is not asked"));
    }
    let mut there = Visit::begin(&target).await?;
    let path = |more: &str| {
        let fields = target.with(&question.envelope_field);
        let fields = [fields.as_str(), more].into_iter().filter(|one| !one.is_empty()).collect::<Vec<_>>();
        let mark = if fields.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", target.path, fields.join("&"))
    };
    let before = match there.stat(&path("")).await? {
        Ok(stat) => stat,
        Err(found) => return Ok(found),
    };
    if before.flags & flag::UNFINISHED != 0 {
        return Ok(Visited::NotYet("it is being written".to_owned()));
    }
    if before.size < question.size {
        return Ok(Visited::NotYet(format!("{} of {} bytes are there", before.size, question.size)));
    }
    if let Some(found) = there.closed(&path("")).await? {
        return Ok(found);
    }
    if before.size > question.size {
        return Ok(Visited::Never(format!(
            "{} bytes are there, {} were reserved",
            before.size, question.size
        )));
    }
    let checksum_server = question.checksums.iter().find(|server| server.is_for(target.host, target.port));
    let mut teller = match checksum_server {
        Some(ChecksumServer { at: (host, port), .. }) => {
            Some(Visit::begin(&Target { host, port: *port, ..target }).await?)
        }
        None => None,
    };
    let mut checksums = Vec::new();
    let algorithms: Vec<Option<ChecksumAlgorithm>> = match question.reserved.as_slice() {
        [] => vec![Some(ChecksumAlgorithm::Adler32), None],
        reserved => reserved.iter().copied().map(Some).collect(),
    };
    for algorithm in algorithms {
        let kind = algorithm.map_or_else(String::new, |kind| format!("cks.type={}", kind.name()));
        // One is enough: for each the storage element reads the whole file.
        if !checksums.is_empty() {
            break;
        }
        let teller = teller.as_mut().unwrap_or(&mut there);
        checksums.extend(teller.checksum(&path(&kind), algorithm).await?);
    }
    if checksums.is_empty() && !question.reserved.is_empty() {
        return Ok(Visited::NotYet(
            "the storage element tells none of the checksums that were reserved".to_owned(),
        ));
    }
    match there.stat(&path("")).await? {
        Ok(after) if after == before => Ok(Visited::Whole(checksums)),
        Ok(_) => Ok(Visited::NotYet("it changed while its checksum was made".to_owned())),
        Err(found) => Ok(found),
    }
}

/// A session of a visit.
struct Visit {
    session: Session,
}

impl Visit {
    async fn begin(target: &Target<'_>) -> Outcome<Self> {
        Ok(Visit { session: Session::begin(target).await? })
    }

    /// Returns the file's metadata, or the result that there is none.
    async fn stat(&mut self, path: &str) -> Outcome<Result<FileStat, Visited>> {
        match self.session.ask(request::STAT, [0; 16], path.as_bytes()).await? {
            Ok(response) => match FileStat::read(&response) {
                Some(stat) => Ok(Ok(stat)),
                None => Err(failed("a stat that cannot be read")),
            },
            Err((error::NOT_FOUND, _)) => Ok(Err(Visited::NotYet("nothing is there".to_owned()))),
            Err((number, why)) => Err(failed(format!("{why} ({number})"))),
        }
    }

    /// Returns none if no client writes the file, or the result instead.
    async fn closed(&mut self, path: &str) -> Outcome<Option<Visited>> {
        let mut body = [0; 16];
        body[2..4].copy_from_slice(&open::READ.to_be_bytes());
        match self.session.ask(request::OPEN, body, path.as_bytes()).await? {
            Ok(response) => {
                let mut body = [0; 16];
                match response.get(..4) {
                    Some(handle) => body[..4].copy_from_slice(handle),
                    None => return Err(failed("a file was opened without a handle")),
                }
                self.session.done(request::CLOSE, body, b"").await?;
                Ok(None)
            }
            Err((error::FILE_LOCKED, _)) => Ok(Some(Visited::NotYet("it is being written".to_owned()))),
            Err((error::NOT_FOUND, _)) => Ok(Some(Visited::NotYet("nothing is there".to_owned()))),
            Err((number, why)) => Err(failed(format!("{why} ({number})"))),
        }
    }

    /// Returns its checksum; none if the storage element computes none of that kind.
    async fn checksum(&mut self, path: &str, wanted: Option<ChecksumAlgorithm>) -> Outcome<Option<Checksum>> {
        let mut body = [0; 16];
        body[..2].copy_from_slice(&query::CHECKSUM.to_be_bytes());
        let response = match self.session.ask_for(CHECKSUM_TIME, request::QUERY, body, path.as_bytes()).await
        {
            // Some storage elements redirect only checksum requests to the catalogue: that is this
            // server.
            Err(Trouble::Elsewhere(..)) => {
                tracing::warn!(
                    path = path.split('?').next(),
                    "a storage element sends questions for checksums elsewhere: name its second server by --xrootd-checksums"
                );
                return Ok(None);
            }
            response => response?,
        };
        match response {
            Ok(response) => {
                let text = read_text(&response).unwrap_or_default().trim().replacen(' ', ":", 1);
                let checksum = Checksum::parse(&text).ok();
                // A server may return another kind than requested.
                Ok(checksum.filter(|response| wanted.is_none_or(|wanted| response.algorithm() == wanted)))
            }
            Err((error::UNSUPPORTED | error::ARG_INVALID | error::INVALID_REQUEST, _)) => Ok(None),
            Err((number, why)) => Err(failed(format!("{why} ({number})"))),
        }
    }
}
