//! Random numbers from the operating system.

use exacat_model::{Error, ErrorKind};

/// Returns random bits from the operating system.
pub fn random_u64() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no random numbers: {error}")))?;
    Ok(u64::from_le_bytes(bytes))
}
