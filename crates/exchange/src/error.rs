//! Errors that stop an import, verification or export as a whole; a bad row stops nothing.

use std::path::{Path, PathBuf};

/// Reason why a run stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options do not suit this listing.
    #[error("{0}")]
    Options(String),
    /// A file could not be opened, read or written.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    File {
        /// Attempted action.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The catalogue refused, or was unreachable.
    #[error("{0}")]
    Catalogue(#[from] exacat_model::Error),
    /// A thread of this program ended early.
    #[error("{0} ended before its work was done: report this")]
    Broken(&'static str),
}

impl Error {
    /// Makes an error for options that do not suit the listing.
    pub fn options(message: impl Into<String>) -> Self {
        Error::Options(message.into())
    }

    /// Makes an error for an unusable file.
    pub fn file(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        Error::File { what, path: path.to_owned(), source }
    }

    /// Returns the catalogue's kind of error, if it came from there.
    pub fn kind(&self) -> Option<exacat_model::ErrorKind> {
        match self {
            Error::Catalogue(error) => Some(error.kind),
            _ => None,
        }
    }
}

/// Shorthand for a result with this error.
pub type Result<T> = std::result::Result<T, Error>;
