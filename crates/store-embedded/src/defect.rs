//! Defects: everything that can be wrong in a look-up or in applying a change.

use std::fmt;

use exacat_model::codec::DecodeError;
use exacat_model::{Error, ErrorKind};
use exacat_store::rules::Misfit;

/// Reasons why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The state contradicts itself, or a change does not fit it: a defect of the engine, or the
    /// log of another catalogue.
    Contradiction(String),
    /// A page is not in memory, and the caller does not wait for the disk. The page is noted, so
    /// that the caller can read it and retry.
    NotInMemory,
    /// A page is unreadable, or not what was written; or the answer exceeds a limit.
    Unreadable(Error),
}

impl Defect {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Defect::Contradiction(what.into())
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::Contradiction(what) => f.write_str(what),
            Defect::NotInMemory => f.write_str("a page is not in memory"),
            Defect::Unreadable(error) => error.fmt(f),
        }
    }
}

impl From<DecodeError> for Defect {
    fn from(error: DecodeError) -> Self {
        Defect::Contradiction(format!("a row is damaged: {error}"))
    }
}

impl From<Misfit> for Defect {
    fn from(misfit: Misfit) -> Self {
        Defect::Contradiction(misfit.0)
    }
}

impl From<Error> for Defect {
    fn from(error: Error) -> Self {
        Defect::Unreadable(error)
    }
}

impl From<Defect> for Error {
    fn from(defect: Defect) -> Self {
        match defect {
            Defect::Unreadable(error) => error,
            other => Error::new(ErrorKind::Internal, other.to_string()),
        }
    }
}
