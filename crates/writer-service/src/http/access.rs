//! Rights of clients: judged by the catalogue, kept for seconds.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::FileId;
use exacat_wire::writer::limits::TOKEN_BYTES_MAX;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::catalogue::{Catalogue, Credential, Readable};
use crate::limits::{RIGHTS_MAX, RIGHTS_TIME};

/// Question about a caller.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Question {
    Read(Readable),
    Own(String),
    Operate,
}

/// Answer of the catalogue: the file that may be read, for a question of reading.
type Verdict = std::result::Result<Option<FileId>, (ErrorKind, String)>;

/// Verdicts by the digest of a token and the question, each with its time.
type KnownRights = HashMap<([u8; 32], Question), (Instant, Verdict)>;

/// Judge of callers.
pub(crate) struct Access {
    catalogue: Arc<dyn Catalogue>,
    /// Networks that see the monitoring without a token.
    trusted: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    known: Mutex<KnownRights>,
}

/// Returns the credential of a request.
pub(crate) fn credential_of(headers: &HeaderMap) -> Result<Credential> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(Credential::None) };
    let bad = || Error::new(ErrorKind::Unauthenticated, "send Authorization: Bearer TOKEN");
    let (scheme, token) = value.to_str().map_err(|_| bad())?.split_once(' ').ok_or_else(bad)?;
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        return Err(bad());
    }
    Ok(Credential::Token(token.to_owned()))
}

impl Access {
    pub(crate) fn new(
        catalogue: Arc<dyn Catalogue>,
        trusted: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    ) -> Self {
        Access { catalogue, trusted, known: Mutex::default() }
    }

    /// Says whether a network sees the monitoring without a token, and may speak plain HTTP.
    pub(crate) fn is_trusted(&self, from: IpAddr) -> bool {
        let from = from.to_canonical();
        from.is_loopback() || (self.trusted)(from)
    }

    /// Judges a request for the state of the service.
    pub(crate) async fn may_monitor(&self, from: IpAddr, headers: &HeaderMap) -> Result<()> {
        if self.is_trusted(from) {
            return Ok(());
        }
        self.may_operate(headers).await
    }

    /// Judges a request that only operators may make.
    pub(crate) async fn may_operate(&self, headers: &HeaderMap) -> Result<()> {
        self.judge(&credential_of(headers)?, Question::Operate).await.map(|_| ())
    }

    /// Judges a request for the content of a certified file. Returns the file.
    pub(crate) async fn may_read(&self, credential: &Credential, what: Readable) -> Result<FileId> {
        let file = self.judge(credential, Question::Read(what)).await?;
        file.ok_or_else(|| Error::new(ErrorKind::Internal, "internal error: a right without its file"))
    }

    /// Judges a request for a file that is not certified.
    pub(crate) async fn is_owner(&self, credential: &Credential, owner: &str) -> Result<()> {
        self.judge(credential, Question::Own(owner.to_owned())).await.map(|_| ())
    }

    async fn judge(&self, credential: &Credential, question: Question) -> Result<Option<FileId>> {
        let Credential::Token(secret) = credential else {
            let what = "send Authorization: Bearer TOKEN; 'exacat token issue' makes one";
            return Err(Error::new(ErrorKind::Unauthenticated, what));
        };
        let key = (<[u8; 32]>::from(Sha256::digest(secret.as_bytes())), question);
        if let Some((since, verdict)) = self.known.lock().get(&key)
            && since.elapsed() < RIGHTS_TIME
        {
            return verdict.clone().map_err(|(kind, message)| Error::new(kind, message));
        }
        let verdict = match &key.1 {
            Question::Read(what) => self.catalogue.may_read(credential, what).await.map(Some),
            Question::Own(owner) => self.catalogue.is_owner(credential, owner).await.map(|()| None),
            Question::Operate => self.catalogue.may_operate(credential).await.map(|()| None),
        };
        let verdict = verdict.map_err(|error| (error.kind, error.message));
        // An outage is asked about again at once.
        if !matches!(&verdict, Err((kind, _)) if kind.is_retryable() || *kind == ErrorKind::Unknown) {
            let mut known = self.known.lock();
            if known.len() >= RIGHTS_MAX {
                known.retain(|_, (since, _)| since.elapsed() < RIGHTS_TIME);
            }
            // Too many callers at once: those beyond the bound are judged each time.
            if known.len() < RIGHTS_MAX {
                known.insert(key, (Instant::now(), verdict.clone()));
            }
        }
        verdict.map_err(|(kind, message)| Error::new(kind, message))
    }
}
