//! Errors about files: the disk fails to read or write one, or its content is damaged.

use std::fmt::Display;
use std::io;
use std::path::Path;

use exacat_model::{Error, ErrorKind};

/// Returns the error for a file that the disk failed to read.
pub fn cannot_read(file: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot read {file}: {error}"))
}

/// Returns the error for a file that the disk failed to write.
pub fn cannot_write(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot write {}: {error}", path.display()))
}

/// Returns an error that names the place in a file.
pub fn corrupt(file: &str, offset: u64, what: impl Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{file} at byte {offset}: {what}"))
}
