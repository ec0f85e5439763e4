//! Refuses a log that ends before a change which was durable once: by the file END, by runs that no
//! manifest names, by snapshots, and by the length of the last segment.

use std::path::PathBuf;

use exacat_disk::Disk;
use exacat_log::log_end::{LogEnd, check_length, check_witness, ends_early};
use exacat_log::segment::CatalogueId;
use exacat_model::{Result, Revision};

use crate::identity::Layout;
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
    let early = |witness: String, known| ends_early(&directory, end, revision, &witness, known);
    check_witness(disk, &directory, catalogue, end, revision)?;
    if let Some((file, known)) = unnamed_run
        && known > revision
    {
        return Err(early(format!("the run {}, which no manifest names,", file.display()), known));
    }
    let last = end.map(|end| (end.position.segment, end.header.salt));
    if let Some((name, known)) = snapshot::later_than(disk, layout, catalogue, last, revision)? {
        return Err(early(format!("the snapshot {name}"), known));
    }
    check_length(&directory, end)
}
