//! What stops an import, verification or export as a whole; a bad row stops nothing.

use std::path::{Path, PathBuf};

/// Why it stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options make no sense for this listing.
    #[error("{0}")]
    Options(String),
    /// A file could not be opened, read or written.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The catalogue refused, or could not be asked.
    #[error("{0}")]
    Catalogue(#[from] exacat_model::Error),
    /// A thread of this program ended early.
    #[error("{0} ended before its work was done: report this")]
    Broken(&'static str),
}

impl Error {
    /// The options make no sense.
    pub fn options(message: impl Into<String>) -> Self {
        Error::Options(message.into())
    }

    /// A file could not be used.
    pub fn file(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        Error::File { what, path: path.to_owned(), source }
    }

    /// The catalogue's kind of error, if it came from there.
    pub fn kind(&self) -> Option<exacat_model::ErrorKind> {
        match self {
            Error::Catalogue(error) => Some(error.kind),
            _ => None,
        }
    }
}

/// Shorthand for a result with this error.
pub type Result<T> = std::result::Result<T, Error>;
