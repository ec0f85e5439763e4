//! Reads the catalogue on a timeline that a restore replaced, from the replaced copies in the directory.
//!
//! Nothing is written there. Somebody may remove a copy at any time, for the engine needs none.

use std::path::Path;
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, exists, list_if_there};
use exacat_log::Segment;
use exacat_log::replay::list_segments;
use exacat_model::{Result, Revision, TimelineId};

use super::switch::replaced_copy;
use super::view::{BuildMemory, ReadEnd, build};
use crate::identity::{Identity, Layout};
use crate::settings::SNAPSHOT_CACHE_BYTES;
use crate::state::State;
use crate::table::RunSet;

/// A replaced copy that has changes of a timeline.
pub(crate) struct ReplacedCopy {
    pub layout: Layout,
    pub identity: Identity,
    /// Point after which the copy is on another timeline.
    pub up_to: Revision,
}

/// Finds the copy of a catalogue that has most of a timeline, and the newest of several.
pub(crate) fn find(
    disk: &dyn Disk,
    data: &Layout,
    own: &Identity,
    timeline: TimelineId,
) -> Result<Option<ReplacedCopy>> {
    let directory = data.replaced();
    let names = list_if_there(disk, &directory);
    let names = names.map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let mut best: Option<ReplacedCopy> = None;
    for number in numbers {
        let layout = Layout::new(&replaced_copy(data, number));
        let identity = match layout.read_identity(disk) {
            // Somebody may be removing the copy.
            Ok(Some(identity)) if identity.id == own.id && is_there(disk, &layout.log()) => identity,
            Ok(_) => continue,
            Err(error) => {
                tracing::warn!(number, %error, "a replaced copy is passed over");
                continue;
            }
        };
        let Some(up_to) = identity.timelines.parting_point(timeline.whole()) else { continue };
        if best.as_ref().is_none_or(|best| up_to >= best.up_to) {
            best = Some(ReplacedCopy { layout, identity, up_to });
        }
    }
    Ok(best)
}

fn is_there(disk: &dyn Disk, directory: &Path) -> bool {
    exists(disk, directory).unwrap_or(true)
}

impl ReplacedCopy {
    /// Reads its last state, and lists its log. Ends early with the error of `goes_on`.
    pub(crate) fn open(
        &self,
        disk: &Arc<dyn Disk>,
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<(State, Vec<Arc<Segment>>)> {
        let run_set = RunSet::look_at(Arc::clone(disk), &self.layout.runs(), self.identity.clone())?;
        let segments = list_segments(&**disk, &self.layout.log(), false)?;
        let memory = BuildMemory::of(SNAPSHOT_CACHE_BYTES, usize::MAX);
        let (log, end) = ((self.identity.id, segments.as_slice()), ReadEnd::Revision(Revision(u64::MAX)));
        let built = build(&**disk, run_set, log, end, memory, &mut |_| goes_on())?;
        Ok((built.state, segments))
    }
}
