//! Random numbers from the operating system.

use exacat_model::{Error, ErrorKind};

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no random numbers: {error}")))?;
    Ok(bytes)
}

/// Returns random bits from the operating system.
pub fn random_u64() -> Result<u64, Error> {
    Ok(u64::from_le_bytes(random()?))
}

/// Returns a random id.
pub fn random_id() -> Result<[u8; 16], Error> {
    random()
}
