//! A volume of the writer that no service has open.

use std::fs::File;
use std::path::Path;

use exacat_writer::LOCK_FILE;

use crate::failure::Failure;
use crate::offline::locked;

/// Takes the lock of a volume, without writing: a failing disk may be mounted read-only. None if it has no
/// lock, so no service ever had it open.
pub(super) fn lock(volume: &Path) -> Result<Option<File>, Failure> {
    let path = volume.join(LOCK_FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::local(format!("cannot open {}: {error}", path.display()))),
    };
    let busy = "a writer service has this volume open: stop it, or ask it with 'exacat writer status'";
    locked(file, volume, busy).map(Some)
}
