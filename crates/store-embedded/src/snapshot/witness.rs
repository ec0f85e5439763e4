//! Snapshots as evidence of how far the log of their catalogue went.

use exacat_disk::Disk;
use exacat_log::record::Salt;
use exacat_log::segment::CatalogueId;
use exacat_model::{Result, Revision, SnapshotName, Timelines};

use super::label::Label;
use super::{header_of_file, layout_of, take};
use crate::identity::Layout;

/// Looks for a snapshot of a later revision than this one, on the timeline of the log. `last` is
/// the first revision and salt of the log's last segment. Snapshots of a timeline that a restore
/// left have other segments, and prove nothing. Without any segment, the timeline in the label
/// tells them apart.
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
        if label.catalogue != catalogue || label.revision <= revision {
            continue;
        }
        let is_witness = match last {
            Some(last) => has_segment(disk, &layout, last),
            None => data.read_identity(disk)?.is_none_or(|own| is_in_history(&label, &own.timelines)),
        };
        if is_witness {
            return Ok(Some((name, label.revision)));
        }
    }
    Ok(None)
}

/// Says whether the snapshot's revision belongs to the current history. An unknown timeline may be
/// one that the identity has lost.
fn is_in_history(label: &Label, timelines: &Timelines) -> bool {
    timelines.parting_point(label.timeline.whole()).is_none_or(|point| label.revision <= point)
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
