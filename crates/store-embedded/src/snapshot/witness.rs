//! Snapshots as evidence of how far the log of their catalogue went.

use exacat_model::{Result, Revision, SnapshotName};

use super::label::Label;
use super::{header_of_file, layout_of, take};
use crate::disk::Disk;
use crate::identity::Layout;
use crate::record::Salt;
use crate::segment::CatalogueId;

/// Looks for a snapshot of a later revision than this one, on the timeline of the log. `last` is
/// the first revision and salt of the log's last segment. Snapshots of a timeline that a restore
/// left have other segments, and prove nothing.
pub(crate) fn later_than(
    disk: &dyn Disk,
    data: &Layout,
    catalogue: CatalogueId,
    last: Option<(Revision, Salt)>,
    revision: Revision,
) -> Result<Option<(SnapshotName, Revision)>> {
    for name in take::names(disk, data)? {
        let layout = layout_of(data, &name);
        // A damaged label proves nothing; a check of the snapshot reports it.
        let Ok(label) = Label::load(disk, layout.root()) else { continue };
        let is_later = label.catalogue == catalogue && label.revision > revision;
        if is_later && last.is_none_or(|last| has_segment(disk, &layout, last)) {
            return Ok(Some((name, label.revision)));
        }
    }
    Ok(None)
}

/// Says whether a snapshot has the segment with this first revision and salt.
fn has_segment(disk: &dyn Disk, layout: &Layout, (first, salt): (Revision, Salt)) -> bool {
    let log = layout.log();
    let files = take::log_files(disk, &log).unwrap_or_default();
    files
        .iter()
        .filter(|(other, _)| *other == first)
        .any(|(_, name)| header_of_file(disk, &log.join(name)).is_ok_and(|header| header.salt == salt))
}
