//! Reads the file with the secret of a sink.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use exacat_model::{Error, Result};

use crate::cursor::failed;
use crate::limits::SECRET_BYTES;

/// Returns the secret in a file, without the line break at its end.
pub(crate) fn secret_bytes(path: &Path) -> Result<Vec<u8>> {
    let metadata = std::fs::metadata(path).map_err(|error| failed("read", path, &error))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(Error::denied(format!(
            "{} can be read by others: restrict it with chmod 600",
            path.display()
        )));
    }
    if !metadata.is_file() || metadata.len() > *SECRET_BYTES.end() as u64 + 1 {
        return Err(Error::invalid(format!("{} is no file with a secret", path.display())));
    }
    let mut bytes = std::fs::read(path).map_err(|error| failed("read", path, &error))?;
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    if !SECRET_BYTES.contains(&bytes.len()) {
        return Err(Error::invalid(format!(
            "{} has {} bytes: a secret has {} to {}",
            path.display(),
            bytes.len(),
            SECRET_BYTES.start(),
            SECRET_BYTES.end()
        )));
    }
    Ok(bytes)
}
