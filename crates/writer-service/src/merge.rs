//! Merge: one local file from the parts of a file, verified.

use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, exists};
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::FileId;

use crate::carrier::{Carrier, DirectoryCarrier, Load};
use crate::catalogue::Readable;
use crate::remote::Remote;

/// File that was merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The file.
    pub file: FileId,
    /// Bytes.
    pub size: u64,
    /// Adler-32 of all bytes, as the producer counted it.
    pub adler32: u32,
}

/// Writes a certified file to a new local file. It has its name only once everything is there, durable and
/// read back.
pub async fn merge(remote: &Remote, what: &Readable, to: &Path, disk: Arc<dyn Disk>) -> Result<Merged> {
    let shown = to.display().to_string();
    let to = std::path::absolute(to).map_err(|error| Error::invalid(format!("{shown}: {error}")))?;
    match exists(&*disk, &to) {
        Ok(false) => {}
        Ok(true) => return Err(Error::new(ErrorKind::Exists, format!("{shown}: the file exists"))),
        Err(error) => return Err(Error::new(ErrorKind::Unavailable, format!("{shown}: {error}"))),
    }
    let target = to.to_str().ok_or_else(|| Error::invalid(format!("{shown}: the path is not UTF-8")))?;
    let content = remote.content(what, 0, false).await?;
    let unknown = || Error::new(ErrorKind::Conflict, "the file is not certified");
    let (file, size, adler32) = (content.file, content.length, content.adler32.ok_or_else(unknown)?);
    let load = Load { file, size, adler32, pieces: content.into_pieces() };
    DirectoryCarrier::new(disk).put(load, target).await?;
    Ok(Merged { file, size, adler32 })
}
