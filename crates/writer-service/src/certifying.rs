//! The catalogue over its native protocol: bookings with the rights of producers, commits with those of the
//! service.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use exacat_client::{Client, ClientSettings, Credentials, Target};
use exacat_model::operation::{Existing, NewFile, NewReplica, ReplicaEdit, SeChoice};
use exacat_model::{
    AccountName, Answer, Checksum, ChecksumAlgorithm, Checksums, Error, ErrorKind, FileRef, Guid, Operation,
    Pfn, ReplicaState, Result, Role, SeName, Tag, TagKey, TagValue,
};
use exacat_wire::writer::{FileId, Open, RefusalClass};
use exacat_writer::Certificate;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::catalogue::{Booking, Catalogue, CommitFailure, Credential, Readable, StagedReplica};
use crate::clock::wall_time;
use crate::limits::{CALLER_KEPT, CALLERS_MAX};
use crate::subjects::Subjects;

/// Settings of the way to the catalogue.
#[derive(Clone, Debug)]
pub struct CatalogueSettings {
    /// Servers of the catalogue.
    pub target: Target,
    /// Storage element of the files that the services have.
    pub se: SeName,
    /// Beginning of the PFN of such a file; its id follows.
    pub pfn_prefix: String,
    /// Time for an answer.
    pub deadline: Duration,
    /// Lifetime of a booking in seconds; none for the default of the catalogue.
    pub booking_seconds: Option<u64>,
}

/// A producer as the catalogue knows it.
#[derive(Clone, Debug)]
struct Caller {
    client: Client,
    account: AccountName,
    /// True for an administrator or operator.
    is_operator: bool,
    /// Time at which the catalogue said so.
    asked: Instant,
}

/// A producer by its credential. Kinds stay apart: no token can name a subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CallerKey {
    /// SHA-256 of its token.
    Token([u8; 32]),
    /// Subject of its certificate.
    Subject(String),
}

impl CallerKey {
    fn of(credential: &Credential) -> Result<CallerKey> {
        let refused = |what: String| Err(Error::new(ErrorKind::Unauthenticated, what));
        match credential {
            Credential::None => {
                let what = "the caller showed no token, and no certificate that counts: set a token, or let \
                            the service accept the authority of its certificate (--client-ca)";
                refused(what.to_owned())
            }
            Credential::Token(secret) => Ok(CallerKey::Token(Sha256::digest(secret.as_bytes()).into())),
            // A connection may outlive the certificate.
            Credential::Certificate(holder) if holder.expires <= wall_time() => refused(format!(
                "the certificate of {} has expired: renew it, and connect again",
                holder.subject
            )),
            Credential::Certificate(holder) => Ok(CallerKey::Subject(holder.subject.clone())),
        }
    }
}

/// The catalogue by its client.
#[derive(Debug)]
pub struct ClientCatalogue {
    settings: CatalogueSettings,
    /// Connection with the rights of the service.
    own: Mutex<Option<Client>>,
    credentials: Credentials,
    callers: Mutex<HashMap<CallerKey, (u64, Caller)>>,
    subjects: Subjects,
    /// Token of the service, to read parts on other services; none over a socket of this machine.
    token: Option<String>,
    /// Counts uses, to find the caller that was used longest ago.
    uses: std::sync::atomic::AtomicU64,
}

/// Returns the GUID of a file.
fn guid_of(file: FileId) -> Guid {
    Guid(file.0)
}

/// Returns the GUID of a file's booking: the same on every service. It is not that of the file, which must
/// be free when the file is registered.
fn booking_of(file: FileId) -> Guid {
    let mut digest = Sha256::new();
    digest.update(b"exacat writer booking");
    digest.update(file.0);
    let mut guid = [0; 16];
    guid.copy_from_slice(&digest.finalize()[..16]);
    Guid(guid)
}

fn tag(key: &str, value: TagValue) -> Result<Tag> {
    Ok(Tag { key: TagKey::parse(key)?, value })
}

impl ClientCatalogue {
    /// Makes the way to the catalogue, with the credentials of the service, which must be those of an
    /// administrator. A catalogue that is away now is no failure: the disks of the service are needed more.
    pub async fn connect(settings: CatalogueSettings, credentials: Credentials) -> Result<Self> {
        let uses = std::sync::atomic::AtomicU64::new(0);
        let (own, callers, subjects) = (Mutex::default(), Mutex::default(), Subjects::default());
        let catalogue = ClientCatalogue { settings, own, credentials, token: None, callers, subjects, uses };
        match catalogue.own().await {
            Err(error) if error.kind.is_retryable() => {
                tracing::warn!(%error, "the catalogue is away: no file begins or becomes visible before it is back");
            }
            other => drop(other?),
        }
        Ok(catalogue)
    }

    /// Returns the connection of the service.
    async fn own(&self) -> Result<Client> {
        if let Some(own) = &*self.own.lock() {
            return Ok(own.clone());
        }
        let own = self.client(self.credentials.clone()).await?;
        let caller = own.whoami().await?;
        if !caller.user.as_ref().is_some_and(|user| user.roles.contains(&Role::Admin)) {
            let what = "the writer service must be an administrator of the catalogue, because it makes \
                        files for others: give it such a token";
            return Err(Error::new(ErrorKind::Denied, what));
        }
        *self.own.lock() = Some(own.clone());
        Ok(own)
    }

    /// Sets the token that the service shows to other services when it reads their parts.
    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Self {
        ClientCatalogue { token, ..self }
    }

    /// Registers a copy. A repeat finds the replica, and changes nothing.
    async fn replica_added(&self, replica: &StagedReplica) -> Result<()> {
        let new = NewReplica {
            se: SeName::parse(&replica.se)?,
            pfn: Some(Pfn::parse(&replica.pfn)?),
            state: ReplicaState::Available,
        };
        let own = self.own().await?;
        let guid = guid_of(replica.file);
        let edits = vec![(FileRef::Guid(guid), vec![ReplicaEdit::Put(new)])];
        match own.call(Operation::SetReplicas { edits }).await? {
            Answer::EachDone(mut done) if done.len() == 1 => done.remove(0)?,
            _ => return Err(Error::new(ErrorKind::Internal, "the answer does not fit an edit of replicas")),
        }
        // Seen before anything here may be removed: a replica that was there may be at another place.
        let known = own.whereis(FileRef::Guid(guid), None).await?;
        let is_there = known.replicas.iter().any(|at| {
            let is_se = at.se.as_ref().is_some_and(|se| se.as_str() == replica.se);
            is_se && at.pfn == replica.pfn && at.state == ReplicaState::Available
        });
        let what = || format!("the catalogue has no available replica {} on {}", replica.pfn, replica.se);
        if is_there { Ok(()) } else { Err(Error::new(ErrorKind::Conflict, what())) }
    }

    async fn client(&self, credentials: Credentials) -> Result<Client> {
        Client::connect(self.settings.target.clone(), credentials, client_settings(&self.settings)).await
    }

    /// Returns the producer of a credential. Roles and subjects that were taken away end within
    /// [`CALLER_KEPT`].
    async fn caller(&self, credential: &Credential) -> Result<Caller> {
        let key = CallerKey::of(credential)?;
        let used = self.uses.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let known = self.callers.lock().get_mut(&key).map(|(last, caller)| {
            *last = used;
            caller.clone()
        });
        let known = match known {
            Some(caller) if caller.asked.elapsed() < CALLER_KEPT => return Ok(caller),
            other => other,
        };
        let (credentials, account, asked) = self.credentials_of(credential).await?;
        // The subject may be another account's by now, which needs a connection of its own.
        let is_same = |caller: &Caller| account.as_ref().is_none_or(|account| caller.account == *account);
        let client = match known.filter(is_same) {
            Some(caller) => caller.client,
            None => self.client(credentials).await?,
        };
        let user = client.whoami().await?.user.ok_or_else(|| {
            Error::new(ErrorKind::Unauthenticated, "the credential of the caller names no user")
        })?;
        let is_operator = !user.roles.is_empty();
        let caller = Caller { client, account: user.name, is_operator, asked };
        let mut callers = self.callers.lock();
        if callers.len() >= CALLERS_MAX
            && !callers.contains_key(&key)
            && let Some(oldest) =
                callers.iter().min_by_key(|(_, (last, _))| *last).map(|(key, _)| key.clone())
        {
            callers.remove(&oldest);
        }
        callers.insert(key, (used, caller.clone()));
        Ok(caller)
    }

    /// Returns the credentials for the catalogue of a caller with this credential, the account of its
    /// subject, and the time of that knowledge.
    async fn credentials_of(
        &self,
        credential: &Credential,
    ) -> Result<(Credentials, Option<AccountName>, Instant)> {
        match credential {
            Credential::None => Ok((Credentials::anonymous(), None, Instant::now())),
            Credential::Token(secret) => Ok((Credentials::token(secret.clone()), None, Instant::now())),
            Credential::Certificate(holder) => {
                let list = async { self.own().await?.call(Operation::AccountList).await };
                let (account, asked) = self.subjects.account_of(&holder.subject, list).await?;
                // The catalogue judges with the rights of the account, not with those of the service.
                let acting = self.credentials.clone().acting_as(account.clone());
                Ok((acting, Some(account), asked))
            }
        }
    }

    async fn booked(&self, credential: &Credential, open: &Open) -> Result<String> {
        let caller = self.caller(credential).await?;
        let choice = SeChoice { wanted: vec![self.settings.se.clone()], ..SeChoice::default() };
        let reservation = Operation::UploadReserve {
            lfn: open.description.lfn.clone(),
            guid: Some(booking_of(open.file)),
            size: 0,
            checksums: Checksums::none(),
            job: None,
            choice: Box::new(choice),
            lifetime_seconds: self.settings.booking_seconds,
        };
        // A repeat renews the booking: it has the same GUID.
        match caller.client.call(reservation).await {
            // Another service has committed this very file, and its news was lost: it is not refused now.
            Err(error) if error.kind == ErrorKind::Exists && self.is_there(open.file).await? => {}
            other => drop(other?),
        }
        // Made by the producer, which then owns the directories. The commit would make them for the service.
        if let Some(parent) = open.description.lfn.parent() {
            caller.client.mkdir(parent, true).await?;
        }
        Ok(caller.account.to_string())
    }

    /// Says whether the catalogue has a file already.
    async fn is_there(&self, file: FileId) -> Result<bool> {
        match self.own().await?.lfn(guid_of(file)).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn new_file(&self, certificate: &Certificate) -> Result<NewFile> {
        let description = &certificate.description;
        let mut tags: Vec<Tag> = vec![
            tag("run", TagValue::parse(&description.run)?)?,
            tag("stream", TagValue::Text(description.stream.clone()))?,
            tag("producer", TagValue::Text(certificate.writer.to_string()))?,
            tag("events", TagValue::Integer(i64::try_from(certificate.events).unwrap_or(i64::MAX)))?,
        ];
        for (key, value) in &description.tags {
            // The service counts the events and knows the producer: nobody else says it.
            if tags.iter().all(|known| known.key != *key) {
                tags.push(Tag { key: key.clone(), value: TagValue::parse(value)? });
            }
        }
        let adler32 = Checksum::new(ChecksumAlgorithm::Adler32, &certificate.adler32.to_be_bytes())?;
        let pfn = Pfn::parse(&format!("{}{}", self.settings.pfn_prefix, certificate.file))?;
        let replica =
            NewReplica { se: self.settings.se.clone(), pfn: Some(pfn), state: ReplicaState::Available };
        Ok(NewFile {
            lfn: description.lfn.clone(),
            guid: Some(guid_of(certificate.file)),
            size: Some(certificate.length),
            checksums: Checksums::one(adler32),
            owner: Some(AccountName::parse(&certificate.owner)?),
            group: None,
            mode: None,
            modified: None,
            expires: None,
            job: None,
            tags,
            replicas: vec![replica],
            member_of: None,
        })
    }

    async fn committed(&self, certificate: &Certificate) -> Result<()> {
        let file = self.new_file(certificate)?;
        // `Same`: an attempt whose answer was lost finds its own file.
        let register = Operation::Register { files: vec![file], parents: true, existing: Existing::Same };
        let registered = match self.own().await?.call(register).await? {
            Answer::Registered(mut answers) if answers.len() == 1 => answers.remove(0),
            _ => return Err(Error::new(ErrorKind::Internal, "the answer does not fit a registration")),
        };
        match registered {
            Ok(_) => {}
            // The file may be there since an earlier attempt, moved or with more tags.
            Err(error) if error.kind == ErrorKind::Exists => self.check_earlier(certificate, error).await?,
            Err(error) => return Err(error),
        }
        // The booking has done its work. If this fails it ends by itself.
        let release = Operation::UploadAbort { guid: booking_of(certificate.file), se: None };
        if let Err(error) = self.own().await?.call(release).await
            && error.kind != ErrorKind::NotFound
        {
            tracing::debug!(file = %certificate.file, %error, "a booking is left to expire");
        }
        Ok(())
    }

    /// Succeeds if an earlier attempt has committed this file: its GUID is there, with its content.
    async fn check_earlier(&self, certificate: &Certificate, refused: Error) -> Result<()> {
        let lfn = match self.own().await?.lfn(guid_of(certificate.file)).await {
            Ok(lfn) => lfn,
            Err(error) if error.kind == ErrorKind::NotFound => return Err(refused),
            Err(error) => return Err(error),
        };
        let entry = self.own().await?.stat(lfn, false).await?.entry;
        let digest = certificate.adler32.to_be_bytes();
        let is_same = entry.file().is_some_and(|file| {
            let adler32 = file.checksums.get(ChecksumAlgorithm::Adler32);
            file.size == Some(certificate.length) && adler32.is_some_and(|sum| sum.digest() == digest)
        });
        if is_same { Ok(()) } else { Err(refused) }
    }
}

fn client_settings(settings: &CatalogueSettings) -> ClientSettings {
    ClientSettings {
        name: concat!("exacat-writer/", env!("CARGO_PKG_VERSION")).to_owned(),
        deadline: settings.deadline,
        ..ClientSettings::default()
    }
}

/// Returns the remedy of a booking's failure.
fn refusal_of(error: &Error) -> RefusalClass {
    match error.kind {
        ErrorKind::Exists | ErrorKind::Conflict => RefusalClass::Conflict,
        kind if kind.is_retryable() || kind == ErrorKind::Unknown || kind == ErrorKind::Internal => {
            RefusalClass::RetryElsewhere
        }
        _ => RefusalClass::BadRequest,
    }
}

impl Catalogue for ClientCatalogue {
    fn book<'a>(&'a self, credential: &'a Credential, open: &'a Open) -> BoxFuture<'a, Booking> {
        async move {
            self.booked(credential, open).await.map_err(|error| (refusal_of(&error), error.to_string()))
        }
        .boxed()
    }

    fn commit<'a>(
        &'a self,
        certificate: &'a Certificate,
    ) -> BoxFuture<'a, std::result::Result<(), CommitFailure>> {
        async move {
            // No failure is final: an operator can make room, rename what is in the way, or raise a quota.
            self.committed(certificate)
                .await
                .map_err(|error| CommitFailure { is_final: false, reason: error.to_string() })
        }
        .boxed()
    }

    fn add_replica<'a>(
        &'a self,
        replica: &'a StagedReplica,
    ) -> BoxFuture<'a, std::result::Result<(), CommitFailure>> {
        async move {
            // No failure is final: an operator can add the storage element, or make room.
            self.replica_added(replica)
                .await
                .map_err(|error| CommitFailure { is_final: false, reason: error.to_string() })
        }
        .boxed()
    }

    fn prefix_of<'a>(&'a self, se: &'a SeName) -> BoxFuture<'a, Result<String>> {
        async move {
            let Answer::Ses(all) = self.own().await?.call(Operation::SeList).await? else {
                let what = "internal error: the answer does not fit a list of storage elements";
                return Err(Error::new(ErrorKind::Internal, what));
            };
            let found = all.into_iter().find(|of| of.se.name == *se);
            let none = || {
                let what = format!("{se}: no such storage element: 'exacat se add' makes it");
                Error::not_found(what)
            };
            Ok(found.ok_or_else(none)?.se.prefix)
        }
        .boxed()
    }

    fn own_credential(&self) -> Credential {
        self.token.clone().map_or(Credential::None, Credential::Token)
    }

    fn may_read<'a>(
        &'a self,
        credential: &'a Credential,
        what: &'a Readable,
    ) -> BoxFuture<'a, Result<FileId>> {
        async move {
            let caller = self.caller(credential).await?;
            let of = match what {
                Readable::File(file) => FileRef::Guid(guid_of(*file)),
                Readable::Name(lfn) => FileRef::Lfn(lfn.clone()),
            };
            // Judged with the rights of the caller: replicas are shown to those who may read the file.
            Ok(FileId(caller.client.whereis(of, None).await?.guid.0))
        }
        .boxed()
    }

    fn is_owner<'a>(&'a self, credential: &'a Credential, owner: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            let caller = self.caller(credential).await?;
            let is_allowed = caller.is_operator || caller.account.as_str() == owner;
            let what = "only its owner and operators read a file that is not certified";
            if is_allowed { Ok(()) } else { Err(Error::new(ErrorKind::Denied, what)) }
        }
        .boxed()
    }

    fn may_operate<'a>(&'a self, credential: &'a Credential) -> BoxFuture<'a, Result<()>> {
        async move {
            let caller = self.caller(credential).await?;
            let what = "only an administrator or operator of the catalogue may do this";
            if caller.is_operator { Ok(()) } else { Err(Error::new(ErrorKind::Denied, what)) }
        }
        .boxed()
    }
}
