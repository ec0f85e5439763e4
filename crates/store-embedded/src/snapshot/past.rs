//! The state after any kept change: the nearest files before it, and the changes of the log after them.
//!
//! The reading starts from one of three places:
//!
//! - the runs of a snapshot, with the log that it has, and the catalogue's log after that;
//! - the runs of the present state, which lack the last changes;
//! - nothing, if the log is kept from its first change on.
//!
//! The start with the fewest changes to read is taken. Its runs and the segments after them are linked into
//! a hidden directory first. A dropped snapshot, compaction, archiving or retention then takes away names
//! only. Rows beyond a memtable become runs in the same directory. It is removed once the state is made,
//! whose files stay as long as they are open.

use std::sync::Arc;

use exacat_disk::Disk;
use exacat_log::{Form, Segment};
use exacat_model::{Error, ErrorKind, LogPosition, PastPoint, Result, Revision, SnapshotName, TimeMs};
use exacat_store::{PastRoute, PastStart};

use super::label::Label;
use super::line::{line, link_segment};
use super::view::{BuildMemory, ReadEnd, build};
use super::{layout_of, take};
use crate::history::History;
use crate::identity::{Identity, Layout};
use crate::manifest::Manifest;
use crate::settings::{PAST_CHANGES_MAX, SNAPSHOT_CACHE_BYTES};
use crate::state::State;
use crate::table::RunSet;

/// Files of a catalogue that is open, and its present end.
pub(crate) struct PastFiles {
    pub disk: Arc<dyn Disk>,
    pub data: Layout,
    pub identity: Identity,
    pub history: Arc<History>,
    /// Last durable change.
    pub present: Revision,
    /// Time by the catalogue's clock.
    pub now: TimeMs,
}

/// A snapshot of the present timeline.
struct KeptSnapshot {
    name: SnapshotName,
    layout: Layout,
    label: Label,
    manifest: Manifest,
}

impl KeptSnapshot {
    /// Lists the segments that it has.
    fn segments(&self, disk: &dyn Disk) -> Result<Vec<Arc<Segment>>> {
        exacat_log::replay::list_segments(disk, &self.layout.log(), false)
    }
}

/// Returns the last of the changes after `runs` and up to `revision` that must be in the list, and the
/// segment behind it: reading an archived segment needs to know where the next one begins.
fn needed(segments: &[Arc<Segment>], runs: Revision, revision: Revision) -> &[Arc<Segment>] {
    let next = Revision(runs.0.saturating_add(1));
    let from = segments.partition_point(|segment| segment.first_revision <= next).saturating_sub(1);
    let behind = segments.partition_point(|segment| segment.first_revision <= revision);
    &segments[from..(behind + 1).min(segments.len()).max(from)]
}

impl PastFiles {
    /// Returns the snapshots that the present history goes through. One that is damaged, or on a replaced
    /// timeline, is of no use.
    fn snapshots(&self) -> Result<Vec<KeptSnapshot>> {
        let disk = &*self.disk;
        let mut kept = Vec::new();
        for name in take::names(disk, &self.data)? {
            let layout = layout_of(&self.data, &name);
            let label = Label::load(disk, layout.root());
            let manifest = Manifest::load(disk, &layout.runs(), self.identity.id);
            let (label, manifest) = match (label, manifest) {
                (Ok(label), Ok(manifest)) => (label, manifest.unwrap_or_default()),
                (Err(error), _) | (_, Err(error)) => {
                    tracing::debug!(%name, %error, "a snapshot is passed over on the way to a past state");
                    continue;
                }
            };
            let timeline = label.timeline.whole();
            if label.catalogue == self.identity.id
                && self.identity.timelines.check(label.revision, timeline).is_ok()
            {
                kept.push(KeptSnapshot { name, layout, label, manifest });
            }
        }
        Ok(kept)
    }

    /// Finds the state at a point, and the work to make it.
    pub(crate) fn route(&self, point: PastPoint) -> Result<PastRoute> {
        let snapshots = self.snapshots()?;
        let revision = match point {
            PastPoint::Revision(position) => self.checked(position)?,
            PastPoint::Time(time) => self.revision_at(time, &snapshots)?,
        };
        Ok(self.start(revision, &snapshots)?.0)
    }

    fn checked(&self, position: LogPosition) -> Result<Revision> {
        let revision = position.revision;
        if revision > self.present {
            return Err(Error::not_found(format!(
                "revision {} is still to come: the last one is {}",
                revision.0, self.present.0
            )));
        }
        self.identity.timelines.check_position(position)?;
        Ok(revision)
    }

    /// Returns the last change at or before a time.
    fn revision_at(&self, time: TimeMs, snapshots: &[KeptSnapshot]) -> Result<Revision> {
        if time > self.now {
            return Err(Error::not_found(format!("{time} is in the future: here it is {}", self.now)));
        }
        if let Some(revision) = self.history.last_until(time, self.present)? {
            return Ok(revision);
        }
        // Changes that are in the log no longer may be in a snapshot.
        for snapshot in snapshots.iter().filter(|snapshot| snapshot.label.time >= time) {
            let own = snapshot.segments(&*self.disk)?;
            let own = History::new(Arc::clone(&self.disk), self.identity.id, own);
            if let Some(revision) = own.last_until(time, snapshot.label.revision)? {
                return Ok(revision);
            }
            let manifest = &snapshot.manifest;
            if manifest.revision > Revision(0) && manifest.time <= time {
                return Ok(manifest.revision);
            }
        }
        Err(self.not_kept(&time.to_string(), snapshots))
    }

    /// Returns the error for a point whose state is not kept.
    fn not_kept(&self, point: &str, snapshots: &[KeptSnapshot]) -> Error {
        let of_snapshots = snapshots.iter().map(|snapshot| snapshot.manifest.revision);
        let oldest = match self.begins_at() {
            Revision(..=1) => Revision(0),
            _ => of_snapshots.chain(self.present_runs().ok()).min().unwrap_or(self.present),
        };
        Error::not_found(format!(
            "the state at {point} is not kept: the log begins with change {}, and no snapshot has the changes before; \
             the oldest state is that of revision {}",
            self.begins_at().0,
            oldest.0
        ))
    }

    fn begins_at(&self) -> Revision {
        self.history.oldest()
    }

    /// Returns the last change in the runs of the present state.
    fn present_runs(&self) -> Result<Revision> {
        let manifest = Manifest::load(&*self.disk, &self.data.runs(), self.identity.id)?;
        Ok(manifest.map_or(Revision(0), |manifest| manifest.revision))
    }

    /// Chooses the start with the fewest changes to read. Returns the place of a snapshot among them.
    fn start(&self, revision: Revision, snapshots: &[KeptSnapshot]) -> Result<(PastRoute, Option<usize>)> {
        let begins_at = self.begins_at();
        let mut best: Option<(Revision, Option<usize>, PastStart)> = None;
        let mut offer = |runs: Revision, at: Option<usize>, start: PastStart| {
            if runs <= revision && best.as_ref().is_none_or(|(other, ..)| runs > *other) {
                best = Some((runs, at, start));
            }
        };
        if begins_at <= Revision(1) {
            offer(Revision(0), None, PastStart::Beginning);
        }
        for (at, snapshot) in snapshots.iter().enumerate() {
            let taken = snapshot.label.revision;
            // Behind the snapshot's own log, that of the catalogue must go on.
            if revision <= taken || begins_at.0 <= taken.0.saturating_add(1) {
                offer(snapshot.manifest.revision, Some(at), PastStart::Snapshot(snapshot.name.clone()));
            }
        }
        // Last, because only the writer can fix these files: of two equal starts the other one is taken.
        let present = self.present_runs()?;
        if present > Revision(0) {
            offer(present, None, PastStart::Present);
        }
        let Some((runs, at, start)) = best else {
            return Err(self.not_kept(&format!("revision {}", revision.0), snapshots));
        };
        let changes = revision.0 - runs.0;
        if changes > PAST_CHANGES_MAX {
            return Err(Error::new(
                ErrorKind::Limit,
                format!(
                    "the state after revision {} is {changes} changes after {start}, and at most {PAST_CHANGES_MAX} are read",
                    revision.0
                ),
            ));
        }
        Ok((PastRoute { revision, start, changes }, at))
    }

    /// Links the files that lead to the state after a change into an empty directory. False if the
    /// present files are the start, which only the writer can fix.
    pub(crate) fn fix(&self, revision: Revision, into: &Layout) -> Result<bool> {
        let snapshots = self.snapshots()?;
        let (route, at) = self.start(revision, &snapshots)?;
        if route.start == PastStart::Present {
            return Ok(false);
        }
        let disk = &*self.disk;
        take::make_empty(disk, into)?;
        let live = self.history.list();
        let Some(snapshot) = at.and_then(|at| snapshots.get(at)) else {
            self.link_log(needed(&live, Revision(0), revision), into)?;
            return Ok(true);
        };
        let KeptSnapshot { layout, label, manifest, .. } = snapshot;
        let linked = take::link_runs(disk, &layout.runs(), &into.runs(), manifest);
        if !linked.map_err(|error| take::cannot_link(into.root(), &error))? {
            return Err(gone());
        }
        manifest.save(disk, &into.runs(), self.identity.id)?;
        let own = snapshot.segments(disk)?;
        let segments = match revision <= label.revision {
            true => own,
            false => line(disk, self.identity.id, &own, label.revision, &live)?.segments,
        };
        self.link_log(needed(&segments, manifest.revision, revision), into)?;
        Ok(true)
    }

    fn link_log(&self, segments: &[Arc<Segment>], into: &Layout) -> Result<()> {
        for segment in segments {
            // Held while the name is in use: archiving and retention wait.
            let form = segment.form();
            if *form == Form::Gone {
                return Err(gone());
            }
            link_segment(&*self.disk, segment, &into.log())?;
            drop(form);
        }
        Ok(())
    }

    /// Makes the state after a change from the files in a directory. Ends early with the error of `goes_on`.
    pub(crate) fn build(
        &self,
        revision: Revision,
        from: &Layout,
        rows_max: usize,
        goes_on: &dyn Fn() -> Result<()>,
    ) -> Result<State> {
        let disk = &*self.disk;
        let run_set = RunSet::open(Arc::clone(&self.disk), &from.runs(), self.identity.clone())?;
        let segments = exacat_log::replay::list_segments(disk, &from.log(), false)?;
        let memory = BuildMemory::of(SNAPSHOT_CACHE_BYTES, rows_max);
        let log = (self.identity.id, segments.as_slice());
        let state = build(disk, run_set, log, ReadEnd::Revision(revision), memory, &mut |_| goes_on())?.state;
        if state.revision != revision {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("the log leads to change {}, not to {}", state.revision.0, revision.0),
            ));
        }
        Ok(state)
    }
}

/// Returns the error for files that went away while they were linked. The caller tries again.
fn gone() -> Error {
    Error::new(ErrorKind::Unavailable, "the files changed each time they were linked: try again")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The segments from that with the first change to read on, and one behind the last.
    #[test]
    fn needed_segments_are_those_with_the_changes_and_one_behind() {
        let all: Vec<Arc<Segment>> =
            [1, 11, 21, 31].map(|first| Arc::new(Segment::new(Path::new("/log"), Revision(first)))).into();
        let firsts = |runs, revision| -> Vec<u64> {
            let needed = needed(&all, Revision(runs), Revision(revision));
            needed.iter().map(|segment| segment.first_revision.0).collect()
        };
        assert_eq!(firsts(0, 5), [1, 11]);
        assert_eq!(firsts(0, 0), [1]);
        assert_eq!(firsts(9, 10), [1, 11]);
        assert_eq!(firsts(10, 10), [11], "nothing is to be read");
        assert_eq!(firsts(10, 21), [11, 21, 31]);
        assert_eq!(firsts(15, 99), [11, 21, 31]);
        assert!(needed(&[], Revision(3), Revision(9)).is_empty());
    }
}
