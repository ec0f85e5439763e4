//! Random bytes of the system, for names that nobody can guess.

use exacat_model::{Error, ErrorKind, Result};

/// Message of the error when there are no random bytes.
pub(crate) const NONE: &str = "the system gives no random bytes";

/// Returns `N` random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(Error::new(ErrorKind::Unavailable, format!("{NONE}: {error}"))),
    }
}
