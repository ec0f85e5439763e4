//! Refuses a log that ends before a change which was durable once: by the file END, by runs that no
//! manifest names, by snapshots, and by the length of the last segment.

use std::path::PathBuf;

use exacat_model::{Error, ErrorKind, Result, Revision};

use crate::disk::Disk;
use crate::identity::Layout;
use crate::log_end::{FILE, HELP, LogEnd, read};
use crate::segment::{self, CatalogueId};
use crate::snapshot;

/// Refuses a log that ends before a change which was durable once.
pub(crate) fn check(
    disk: &dyn Disk,
    layout: &Layout,
    catalogue: CatalogueId,
    end: Option<&LogEnd>,
    revision: Revision,
    unnamed_run: Option<(PathBuf, Revision)>,
) -> Result<()> {
    let directory = layout.log();
    let place = end.map_or_else(
        || directory.display().to_string(),
        |end| {
            let file = directory.join(segment::file_name(end.position.segment));
            format!("{} at byte {}", file.display(), end.position.offset)
        },
    );
    let early = |witness: String, known: Revision| {
        let (last, known) = (revision.0, known.0);
        let what = format!(
            "{place}: the log ends with change {last}, but {witness} says that change {known} was durable: the end of the log \
             is missing or damaged; {HELP}"
        );
        Error::new(ErrorKind::Corrupt, what)
    };
    if let Some(witness) = read(disk, &directory, catalogue)?
        && witness.revision > revision
    {
        return Err(early(directory.join(FILE).display().to_string(), witness.revision));
    }
    if let Some((file, known)) = unnamed_run
        && known > revision
    {
        return Err(early(format!("the run {}, which no manifest names,", file.display()), known));
    }
    let last = end.map(|end| (end.position.segment, end.header.salt));
    if let Some((name, known)) = snapshot::later_than(disk, layout, catalogue, last, revision)? {
        return Err(early(format!("the snapshot {name}"), known));
    }
    match end {
        // A segment keeps its reserved length until it is sealed, so a shorter file was cut off.
        Some(end) if end.bytes < end.header.reserved => {
            let (bytes, reserved) = (end.bytes, end.header.reserved);
            let what = format!(
                "{place}: the file has {bytes} bytes, but {reserved} were reserved: its end was cut off; {HELP}"
            );
            Err(Error::new(ErrorKind::Corrupt, what))
        }
        _ => Ok(()),
    }
}
