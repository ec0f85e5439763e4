//! What can be wrong when something is looked up or applied.

use std::fmt;

use exacat_model::codec::DecodeError;
use exacat_model::{Error, ErrorKind};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The state contradicts itself, or a change does not apply to it: a defect of the engine, or a log that is not
    /// this catalogue's.
    Contradiction(String),
    /// A page is not in memory, and whoever asks does not wait for the disk; it is noted, to be read and asked again.
    NotInMemory,
    /// A page cannot be read, or is not what was written.
    Unreadable(Error),
}

impl Defect {
    pub fn new(what: impl Into<String>) -> Self {
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
