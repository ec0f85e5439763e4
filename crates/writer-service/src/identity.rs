//! Identity of a service: that of its first volume, and a count of its starts.

use std::path::{Path, PathBuf};

use exacat_disk::{Disk, cannot_read, cannot_write, random_id, read_text, replace_small};
use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::ServiceId;
use exacat_writer::owner_of;

/// File beside a volume with the number of the service's starts.
const STARTS: &str = "STARTS";

/// Returns the service that the volumes belong to; a new one if all are empty.
pub(crate) fn service_of(disk: &dyn Disk, volumes: &[PathBuf]) -> Result<ServiceId> {
    for volume in volumes {
        if let Some(service) = owner_of(disk, volume)? {
            return Ok(service);
        }
    }
    Ok(ServiceId(random_id()?))
}

/// Counts a start, and returns its number. The clock of the machine may go back; this never does, also if
/// another volume comes first.
pub(crate) fn count_start(disk: &dyn Disk, volumes: &[PathBuf]) -> Result<u64> {
    let starts = starts_of(disk, volumes)?.saturating_add(1);
    if let Some(volume) = volumes.first() {
        replace_small(disk, volume, STARTS, format!("{starts}\n").as_bytes())
            .map_err(|error| cannot_write(&volume.join(STARTS), &error))?;
    }
    Ok(starts)
}

/// Returns the largest number of starts that a volume has.
pub(crate) fn starts_of(disk: &dyn Disk, volumes: &[PathBuf]) -> Result<u64> {
    let mut starts: u64 = 0;
    for volume in volumes {
        starts = starts.max(starts_at(disk, volume)?);
    }
    Ok(starts)
}

/// Returns the number of starts that a volume has; 0 if it has none.
fn starts_at(disk: &dyn Disk, volume: &Path) -> Result<u64> {
    let path = volume.join(STARTS);
    let text = read_text(disk, &path).map_err(|error| cannot_read(&path.display().to_string(), &error))?;
    match &text {
        None => Ok(0),
        Some(text) => text.trim().parse().map_err(|_| {
            let what = "not a number of starts: write one that is larger than all before";
            Error::new(ErrorKind::Corrupt, format!("{}: {what}", path.display()))
        }),
    }
}
