//! Finds the segments of a log that continue a snapshot.
//!
//! A snapshot has its own part of the log; the catalogue's log has the changes after it. A
//! catalogue that was restored to an earlier point continues from there on another timeline.
//! Changes in its log after that point never followed the snapshot. A segment is the same on two
//! timelines if its first revision and its salt are equal; it may be cut on one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, cannot_write, exists};
use exacat_log::Segment;
use exacat_log::archive::{Archive, is_archived};
use exacat_log::record::Head;
use exacat_log::segment::{CatalogueId, HEADER_BYTES, Header};
use exacat_model::{Change, Error, ErrorKind, Result, Revision};

use crate::replay;
use crate::replay::Replay;

/// Returns the path of a segment's file, plain or archived.
pub(super) fn file_of(disk: &dyn Disk, segment: &Segment) -> Result<PathBuf> {
    let plain = exists(disk, &segment.path);
    let plain = plain.map_err(|error| cannot_read(&segment.path.display().to_string(), &error))?;
    Ok(if plain { segment.path.clone() } else { segment.archived_path() })
}

/// Returns the header with which a segment was begun.
pub(super) fn header_of(disk: &dyn Disk, segment: &Segment) -> Result<Header> {
    header_of_file(disk, &file_of(disk, segment)?)
}

/// Returns the header of the segment in this file, plain or archived.
pub(crate) fn header_of_file(disk: &dyn Disk, path: &Path) -> Result<Header> {
    let name = path.display().to_string();
    let file = disk.open_to_read(path).map_err(|error| cannot_read(&name, &error))?;
    let mut bytes = [0; HEADER_BYTES];
    let read = file.read_at(&mut bytes, 0).map_err(|error| cannot_read(&name, &error))?;
    if is_archived(&bytes) {
        return Ok(*Archive::open(file, name)?.header());
    }
    Header::decode(&name, &bytes[..read])
}

/// Receiver that notes the last change of some segments.
struct Last(Revision);

impl Replay for Last {
    fn segment(&mut self, _: &str, header: &Header) -> Result<()> {
        self.0 = Revision(header.first_revision.0.saturating_sub(1));
        Ok(())
    }

    fn record(&mut self, _: &str, _: u64, head: Head, _: usize) -> Result<()> {
        self.0 = head.last_revision();
        Ok(())
    }

    fn change(&mut self, _: &str, _: u64, _: Change) -> Result<()> {
        Ok(())
    }
}

fn last_change(disk: &dyn Disk, log_of: CatalogueId, segment: &Arc<Segment>) -> Result<Revision> {
    let before = Revision(segment.first_revision.0.saturating_sub(1));
    let mut last = Last(before);
    replay::replay(disk, log_of, std::slice::from_ref(segment), before, &mut last)?;
    Ok(last.0)
}

fn is_same(disk: &dyn Disk, one: &Segment, other: &Segment) -> Result<bool> {
    Ok(one.first_revision == other.first_revision
        && header_of(disk, one)?.salt == header_of(disk, other)?.salt)
}

/// Segments of one timeline: the kept ones before a snapshot, its own, and those after it.
pub(super) struct Line {
    pub segments: Vec<Arc<Segment>>,
    /// True if the catalogue's log continues the snapshot.
    pub goes_on: bool,
    /// Last change before a gap: the changes after it are no longer kept, or are lost.
    pub gap_after: Option<Revision>,
}

/// Assembles the timeline of a snapshot at `revision` with its `own` segments.
pub(super) fn line(
    disk: &dyn Disk,
    log_of: CatalogueId,
    own: &[Arc<Segment>],
    revision: Revision,
    on: &[Arc<Segment>],
) -> Result<Line> {
    let (Some(first), Some(last)) = (own.first(), own.last()) else {
        return Err(Error::new(ErrorKind::Corrupt, "the snapshot has no part of the log"));
    };
    let mut segments: Vec<Arc<Segment>> = Vec::new();
    let at = on.partition_point(|segment| segment.first_revision < first.first_revision);
    if let Some(segment) = on.get(at)
        && is_same(disk, segment, first)?
    {
        segments.extend_from_slice(&on[..at]);
    }
    // The covering segment of the catalogue's log has the snapshot's last change, or was begun
    // after it.
    let up_to = revision.max(last.first_revision);
    let covering = on.partition_point(|segment| segment.first_revision <= up_to).checked_sub(1);
    let mut gap_after = None;
    let goes_on = match covering {
        Some(covering) if is_same(disk, &on[covering], last)? => {
            segments.extend_from_slice(&own[..own.len() - 1]);
            segments.extend_from_slice(&on[covering..]);
            true
        }
        Some(_) => {
            segments.extend_from_slice(own);
            false
        }
        // The kept log begins later.
        None => {
            segments.extend_from_slice(own);
            let last = last_change(disk, log_of, last)?;
            match on.first() {
                Some(next) if next.first_revision.0 == last.0 + 1 => segments.extend_from_slice(on),
                _ => gap_after = Some(last),
            }
            true
        }
    };
    Ok(Line { segments, goes_on, gap_after })
}

/// Links a segment's file into another directory.
pub(super) fn link_segment(disk: &dyn Disk, segment: &Segment, into: &Path) -> Result<()> {
    let path = file_of(disk, segment)?;
    let name = path.file_name().unwrap_or_default();
    disk.hard_link(&path, &into.join(name)).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => cannot_read(&path.display().to_string(), &error),
        _ => cannot_write(&into.join(name), &error),
    })
}
