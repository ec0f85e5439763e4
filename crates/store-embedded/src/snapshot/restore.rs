//! Restores the catalogue as it was at a snapshot, or at a point of its log after it.
//!
//! The restore is offline: no process may have the directory open. It makes the new state beside
//! the old one; `switch` makes it count. The new state has:
//!
//! - hard links of the snapshot's runs;
//! - further runs with the changes of the log up to the point;
//! - a log with everything that is kept up to the point. The segment of the point is written anew,
//!   up to the point, because a snapshot may share the old one;
//! - an empty segment for the next changes.
//!
//! Changes after the point stay in the replaced copy, with everything else.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, cannot_write, list_if_there, write_small};
use exacat_log::moment::Moment;
use exacat_log::{Log, LogSettings, Segment, segment};
use exacat_model::{Error, ErrorKind, Result, Revision, SnapshotName, TimeMs};
use exacat_store::Clock;

use super::cut::cut;
use super::label::Label;
use super::line::{Line, line, link_segment};
use super::take::{self, cannot_link, link_runs};
use super::view::{BuildMemory, ReadEnd, build, flush_built};
use super::{existing, switch};
use crate::companion::{COMPANION, CompanionRestore};
use crate::identity::{Identity, Layout};
use crate::manifest::Manifest;
use crate::settings::{EmbeddedSettings, SNAPSHOT_CACHE_BYTES};
use crate::table::RunSet;

/// Point to which a catalogue is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePoint {
    /// The snapshot's, or the backup's, own last change.
    AsTaken,
    /// The state after this change.
    Revision(Revision),
    /// The last change at or before this time.
    Time(TimeMs),
}

/// Progress of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreProgress {
    /// The restore copies files of a backup.
    Copying {
        /// Bytes copied so far.
        bytes_done: u64,
        /// Total bytes.
        bytes: u64,
    },
    /// The restore reads the log.
    Reading {
        /// Last change read so far.
        revision: Revision,
    },
}

/// Result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Last change of the restored state.
    pub revision: Revision,
    /// Time of that change.
    pub time: TimeMs,
    /// Entries in the tree and the trash, without the root.
    pub entries: u64,
    /// Digest of the state.
    pub digest: u128,
    /// Oldest change in the history now.
    pub oldest: Revision,
    /// Values of elements, restored to the same moment; none if the snapshot has none. Then those of the
    /// data directory stay as they are.
    pub elements: Option<Moment>,
    /// Replaced copy: the catalogue before the restore, laid out as a data directory; none if there
    /// was no catalogue.
    pub replaced_copy: Option<PathBuf>,
}

/// Source and end of a restore.
pub(crate) struct RestoreRequest<'r> {
    /// Snapshot to begin with.
    pub name: &'r SnapshotName,
    pub point: RestorePoint,
    /// Data directory whose log continues the snapshot; none for that of the catalogue itself.
    pub log_of: Option<&'r Path>,
}

pub(crate) fn restore(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    request: &RestoreRequest<'_>,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(&RestoreProgress),
) -> Result<Restored> {
    let RestoreRequest { name, point, log_of } = *request;
    let data = Layout::new(&settings.directory);
    let there_is_none =
        || Error::new(ErrorKind::NotFound, format!("there is no catalogue in {}", data.root().display()));
    data.read_identity(&**disk)?.ok_or_else(there_is_none)?;
    let _lock = data.lock(&**disk)?;
    switch::finish_or_undo(&**disk, &data)?;
    let identity = data.read_identity(&**disk)?.ok_or_else(there_is_none)?;
    let from = existing(&**disk, &data, name)?;
    let label = Label::load(&**disk, from.root())?;
    if label.catalogue != identity.id {
        return Err(Error::new(ErrorKind::Corrupt, format!("the snapshot {name} is another catalogue's")));
    }
    let on = Layout::new(log_of.unwrap_or(data.root()));
    let work =
        RestoreWork { disk, settings, data: &data, identity: &identity, from: &from, label: &label, on: &on };
    let restored = work.prepare(point, clock, progress).and_then(|restored| {
        let elements = work.prepare_companion(point, restored.time)?;
        Ok(Restored { elements, ..restored })
    });
    let restored = restored.inspect_err(|_| take::discard(&**disk, &data.prepared()))?;
    let number = switch::next_replaced(&**disk, &data)?;
    switch::switch(&**disk, &data, number, Some(&identity))?;
    Ok(Restored { replaced_copy: Some(switch::replaced_copy(&data, number)), ..restored })
}

/// Context of a restore.
pub(super) struct RestoreWork<'w> {
    pub disk: &'w Arc<dyn Disk>,
    pub settings: &'w EmbeddedSettings,
    pub data: &'w Layout,
    pub identity: &'w Identity,
    /// Layout of the snapshot.
    pub from: &'w Layout,
    pub label: &'w Label,
    /// Layout whose log may continue the snapshot.
    pub on: &'w Layout,
}

impl RestoreWork<'_> {
    /// Prepares the new log and runs, completely and durably.
    pub(crate) fn prepare(
        &self,
        point: RestorePoint,
        clock: &dyn Clock,
        progress: &mut dyn FnMut(&RestoreProgress),
    ) -> Result<Restored> {
        let disk = &**self.disk;
        let (runs, log) = (self.data.prepared().join("runs"), self.data.prepared().join("log"));
        for directory in [&runs, &log] {
            disk.create_directory(directory).map_err(|error| cannot_write(directory, &error))?;
        }
        let own = exacat_log::replay::list_segments(disk, &self.from.log(), false)?;
        let on = match list_if_there(disk, &self.on.log()) {
            Ok(_) => exacat_log::replay::list_segments(disk, &self.on.log(), false).unwrap_or_default(),
            Err(error) => return Err(cannot_read(&self.on.log().display().to_string(), &error)),
        };
        let line = line(disk, self.identity.id, &own, self.label.revision, &on);
        let Line { segments, goes_on, gap_after } = match line {
            // The snapshot has everything needed, whatever is wrong with the catalogue's log.
            Err(error) if point == RestorePoint::AsTaken && !own.is_empty() => {
                tracing::warn!(%error, "the history before the snapshot is lost: it is unreadable");
                Line { segments: own.clone(), goes_on: false, gap_after: None }
            }
            other => other?,
        };
        let end = self.end(point, goes_on)?;
        let manifest = Manifest::load(disk, &self.from.runs(), self.identity.id)?.unwrap_or_default();
        let linked = link_runs(disk, &self.from.runs(), &runs, &manifest);
        if !linked.map_err(|error| cannot_link(&runs, &error))? {
            return Err(self.damaged("a run is missing"));
        }
        // No two runs may ever have one number, in any snapshot.
        let next_run = self.next_run(&manifest);
        Manifest { next_run, ..manifest }.save(disk, &runs, self.identity.id)?;
        let run_set = RunSet::open(Arc::clone(self.disk), &runs, self.identity.clone())?;
        let memory = BuildMemory::of(SNAPSHOT_CACHE_BYTES, self.settings.memtable_rows);
        let mut report = |revision: Revision| {
            progress(&RestoreProgress::Reading { revision });
            Ok(())
        };
        let mut built = build(disk, run_set, (self.identity.id, &segments), end, memory, &mut report)?;
        self.check_reached(&built.state, end)?;
        if let (ReadEnd::Time(time), Some(last)) = (end, gap_after)
            && built.state.revision >= last
        {
            // The changes in the gap are unknown.
            return Err(Error::invalid(format!(
                "the changes after revision {}, of {}, are no longer in the log, so the state at {time} is unknown: restore up to a revision, --until {} at most",
                last.0, built.state.time, last.0
            )));
        }
        if built.run_set.revision().0 < built.state.revision {
            flush_built(&mut built)?;
        }
        let state = &built.state;
        let oldest = self.keep_log(&segments, state.revision, &log)?;
        let next = Revision(state.revision.0 + 1);
        let created = clock.trusted().max(state.time);
        let identity = self.restored_identity(state.revision, goes_on)?;
        let settings = LogSettings {
            disk: Arc::clone(self.disk),
            directory: log.clone(),
            begun_for: identity.begun_for(),
            segment_bytes: self.settings.segment_bytes,
            preparation: crate::settings::PREPARATION,
        };
        Log::create(settings, next, created, state.digest())?;
        Layout::new(&self.data.prepared()).write_identity(disk, &identity)?;
        for directory in [&runs, &log] {
            disk.sync_directory(directory).map_err(|error| cannot_write(directory, &error))?;
        }
        Ok(Restored {
            revision: state.revision,
            time: state.time,
            entries: state.entries,
            digest: state.digest(),
            oldest: oldest.unwrap_or(next),
            elements: None,
            replaced_copy: None,
        })
    }

    /// Prepares the state beside the catalogue as it was at the same moment, if the snapshot has it.
    pub(super) fn prepare_companion(&self, point: RestorePoint, time: TimeMs) -> Result<Option<Moment>> {
        let from = self.from.root().join(COMPANION);
        if take::part_names(&**self.disk, &from)?.is_empty() {
            return Ok(None);
        }
        let Some(companion) = &self.settings.companion else {
            return Err(Error::new(
                ErrorKind::Internal,
                "the snapshot has values of elements, and nobody restores them",
            ));
        };
        let present = switch::place_of(self.data, COMPANION);
        // A replaced copy has its part inside, a data directory beside the catalogue.
        let inside = self.on.root().join(COMPANION);
        let log_of = match take::part_names(&**self.disk, &inside)?.is_empty() {
            true => switch::place_of(self.on, COMPANION),
            false => inside,
        };
        let until = match point {
            RestorePoint::AsTaken => None,
            RestorePoint::Revision(revision) if revision == self.label.revision => None,
            RestorePoint::Revision(_) => Some(time),
            RestorePoint::Time(time) => Some(time),
        };
        let into = self.data.prepared().join(COMPANION);
        companion.restore(&CompanionRestore { from, log_of, present, into, until }).map(Some)
    }

    /// Begins a timeline after the restored point, because revisions after it will be given a
    /// second time.
    fn restored_identity(&self, revision: Revision, goes_on: bool) -> Result<Identity> {
        let disk = &**self.disk;
        let of = |layout: &Layout| {
            let identity = layout.read_identity(disk).ok().flatten();
            identity.filter(|identity| identity.id == self.identity.id)
        };
        let (from, on) = (of(self.from), of(self.on));
        let line = on.as_ref().filter(|_| goes_on && revision > self.label.revision);
        let before = line.map_or(self.label.timeline, |on| on.timelines.at(revision));
        let mut identity = self.identity.clone();
        for other in [&from, &on].into_iter().flatten() {
            identity.timelines.remember(&other.timelines);
        }
        identity.begin_timeline(before, revision)?;
        Ok(identity)
    }

    fn damaged(&self, what: &str) -> Error {
        Error::new(ErrorKind::Corrupt, format!("the snapshot {} is damaged: {what}", self.label.name))
    }

    /// Returns the point at which reading the log ends.
    fn end(&self, point: RestorePoint, goes_on: bool) -> Result<ReadEnd> {
        let (name, taken) = (&self.label.name, self.label.revision);
        let end = match point {
            RestorePoint::AsTaken => return Ok(ReadEnd::Revision(taken)),
            RestorePoint::Revision(revision) if revision < taken => {
                return Err(Error::invalid(format!(
                    "revision {} is before the snapshot {name}, which is of revision {}: restore an earlier snapshot",
                    revision.0, taken.0
                )));
            }
            RestorePoint::Revision(revision) => ReadEnd::Revision(revision),
            RestorePoint::Time(time) => ReadEnd::Time(time),
        };
        if !goes_on && end != ReadEnd::Revision(taken) {
            return Err(Error::invalid(format!(
                "the log does not go on from the snapshot {name}, for the catalogue was restored to a point before it since: \
                 only the snapshot itself, revision {}, can be restored; or give the log of the replaced copy",
                taken.0
            )));
        }
        Ok(end)
    }

    /// Checks that the log led to the requested point.
    fn check_reached(&self, state: &crate::state::State, end: ReadEnd) -> Result<()> {
        let (name, taken) = (&self.label.name, self.label.revision);
        if state.revision < taken {
            return Err(match end {
                ReadEnd::Time(time) => Error::invalid(format!(
                    "{time} is before the last change in the snapshot {name}, which is of revision {} and was taken {}: \
                     restore an earlier snapshot",
                    taken.0, self.label.time
                )),
                _ => self.damaged(&format!("its log ends with change {}", state.revision.0)),
            });
        }
        if state.revision == taken && state.digest() != self.label.digest {
            return Err(self.damaged("its log gives another state than the one it was taken of"));
        }
        match end {
            ReadEnd::Revision(revision) if state.revision < revision => Err(Error::invalid(format!(
                "there is no revision {}: the snapshot {name} and the log reach from revision {} to {}, of {}",
                revision.0, taken.0, state.revision.0, state.time
            ))),
            _ => Ok(()),
        }
    }

    /// Returns a run number that no run has, here or in any snapshot.
    fn next_run(&self, manifest: &Manifest) -> u64 {
        let disk = &**self.disk;
        let snapshots = take::names(disk, self.data).unwrap_or_default();
        let directories = snapshots.iter().map(|name| super::layout_of(self.data, name).runs());
        let manifests = directories.chain([self.data.runs()]).filter_map(|directory| {
            // A damaged manifest has no number; the names of the files below make up for it.
            Manifest::load(disk, &directory, self.identity.id).ok().flatten()
        });
        let of_manifests = manifests.map(|manifest| manifest.next_run).max().unwrap_or(0);
        let files = list_if_there(disk, &self.data.runs()).unwrap_or_default();
        let numbers = files.iter().filter_map(|name| name.split('.').next()?.parse::<u64>().ok());
        let of_files = numbers.max().map_or(0, |number| number.saturating_add(1));
        manifest.next_run.max(of_manifests).max(of_files)
    }

    /// Writes the timeline's segments up to a change into a log; returns its oldest change, if
    /// there is any.
    fn keep_log(&self, segments: &[Arc<Segment>], up_to: Revision, into: &Path) -> Result<Option<Revision>> {
        let disk = &**self.disk;
        let kept = segments.partition_point(|segment| segment.first_revision <= up_to);
        for (at, segment) in segments[..kept].iter().enumerate() {
            let next = segments.get(at + 1).map(|next| next.first_revision);
            if next.is_some_and(|next| next.0 <= up_to.0 + 1) {
                link_segment(disk, segment, into)?;
            } else {
                self.cut(&segments[at..], up_to, into)?;
            }
        }
        Ok(segments[..kept].first().map(|segment| segment.first_revision))
    }

    /// Writes the first of these segments anew, up to a change in it.
    fn cut(&self, segments: &[Arc<Segment>], up_to: Revision, into: &Path) -> Result<()> {
        let disk = &**self.disk;
        let mut bytes = cut(disk, self.identity.id, segments, up_to)?;
        let salt = segment::Header::decode(&segments[0].name(), &bytes)?.salt;
        segment::put_seal(&mut bytes, salt, Revision(up_to.0 + 1));
        let path = into.join(segment::file_name(segments[0].first_revision));
        write_small(disk, &path, &bytes).map_err(|error| cannot_write(&path, &error))
    }
}
