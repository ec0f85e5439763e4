//! The catalogue as the service needs it: a booking when a file is opened, and its commit when it is whole.

use exacat_model::{Error, ErrorKind, Lfn, Result as ModelResult, SeName, TimeMs};
use exacat_wire::writer::{FileId, Open, RefusalClass};
use exacat_writer::Certificate;
use futures::FutureExt;
use futures::future::BoxFuture;

/// Evidence of the identity of a producer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// Nothing was shown.
    None,
    /// Secret of a token.
    Token(String),
    /// Certificate of an authority of producers.
    Certificate(CertificateHolder),
}

/// Holder of a certificate that was verified.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateHolder {
    /// Subject of the certificate, as accounts have it: `/DC=org/CN=Jane Doe`.
    pub subject: String,
    /// Time from which it is no longer valid.
    pub expires: TimeMs,
}

impl Credential {
    /// Says whether another credential proves the same producer: a renewed certificate does.
    pub(crate) fn is_same_as(&self, other: &Credential) -> bool {
        match (self, other) {
            (Credential::Certificate(one), Credential::Certificate(other)) => one.subject == other.subject,
            _ => self == other,
        }
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credential::None => "no credential",
            Credential::Token(_) => "a token",
            Credential::Certificate(_) => "a certificate",
        })
    }
}

/// Outcome of a booking: the account that will own the file, or a refusal for the producer.
pub type Booking = Result<String, (RefusalClass, String)>;

/// File that somebody wants to read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Readable {
    /// By its id, which is its GUID in the catalogue.
    File(FileId),
    /// By its name.
    Name(Lfn),
}

/// Failure of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitFailure {
    /// True if another attempt will fail as well.
    pub is_final: bool,
    /// Reason, for a person.
    pub reason: String,
}

/// Copy of a certified file on another storage element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedReplica {
    /// The file.
    pub file: FileId,
    /// Name of the storage element.
    pub se: String,
    /// PFN of the copy.
    pub pfn: String,
    /// Bytes.
    pub size: u64,
    /// Adler-32 of all bytes.
    pub adler32: u32,
}

/// The catalogue. All calls may come again for the same file, and then have the same effect as once.
pub trait Catalogue: Send + Sync + 'static {
    /// Books the name of a file, with the rights of its producer.
    fn book<'a>(&'a self, credential: &'a Credential, open: &'a Open) -> BoxFuture<'a, Booking>;

    /// Makes a whole file visible, with all its tags and its replica, in one change.
    fn commit<'a>(&'a self, certificate: &'a Certificate) -> BoxFuture<'a, Result<(), CommitFailure>>;

    /// Registers a copy of a certified file, in one change.
    fn add_replica<'a>(&'a self, replica: &'a StagedReplica) -> BoxFuture<'a, Result<(), CommitFailure>> {
        let _nowhere = replica;
        let reason = "this service does not register copies".to_owned();
        async move { Err(CommitFailure { is_final: true, reason }) }.boxed()
    }

    /// Returns the beginning of the PFNs of a storage element.
    fn prefix_of<'a>(&'a self, se: &'a SeName) -> BoxFuture<'a, ModelResult<String>> {
        let _unknown = se;
        refuse("this service does not know storage elements")
    }

    /// Returns the credential of the service itself, to read parts on other services.
    fn own_credential(&self) -> Credential {
        Credential::None
    }

    /// Returns the certified file if the caller may read it.
    fn may_read<'a>(
        &'a self,
        credential: &'a Credential,
        what: &'a Readable,
    ) -> BoxFuture<'a, ModelResult<FileId>> {
        let _nobody = (credential, what);
        refuse("this service does not know who may read")
    }

    /// Succeeds if the caller is the account, or runs the catalogue.
    fn is_owner<'a>(&'a self, credential: &'a Credential, owner: &'a str) -> BoxFuture<'a, ModelResult<()>> {
        let _nobody = (credential, owner);
        refuse("this service does not know its callers")
    }

    /// Succeeds if the caller is an administrator or operator of the catalogue.
    fn may_operate<'a>(&'a self, credential: &'a Credential) -> BoxFuture<'a, ModelResult<()>> {
        let _nobody = credential;
        refuse("this service does not know its operators")
    }
}

fn refuse<'a, T: Send + 'a>(what: &'static str) -> BoxFuture<'a, ModelResult<T>> {
    async move { Err(Error::new(ErrorKind::Denied, what)) }.boxed()
}
