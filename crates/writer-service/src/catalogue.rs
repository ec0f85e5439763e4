//! The catalogue as the service needs it: a booking when a file is opened, and its commit when it is whole.

use exacat_wire::writer::{Open, RefusalClass};
use exacat_writer::Certificate;
use futures::future::BoxFuture;

/// Evidence of the identity of a producer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// Nothing was shown.
    None,
    /// Secret of a token.
    Token(String),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credential::None => "no credential",
            Credential::Token(_) => "a token",
        })
    }
}

/// Outcome of a booking: the account that will own the file, or a refusal for the producer.
pub type Booking = Result<String, (RefusalClass, String)>;

/// Failure of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitFailure {
    /// True if another attempt will fail as well.
    pub is_final: bool,
    /// Reason, for a person.
    pub reason: String,
}

/// The catalogue. Both calls may come again for the same file, and then have the same effect as once.
pub trait Catalogue: Send + Sync + 'static {
    /// Books the name of a file, with the rights of its producer.
    fn book<'a>(&'a self, credential: &'a Credential, open: &'a Open) -> BoxFuture<'a, Booking>;

    /// Makes a whole file visible, with all its tags and its replica, in one change.
    fn commit<'a>(&'a self, certificate: &'a Certificate) -> BoxFuture<'a, Result<(), CommitFailure>>;
}
