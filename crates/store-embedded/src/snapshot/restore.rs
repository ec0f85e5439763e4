//! Restoring: the catalogue as it was at a snapshot, or at a point of its log after it.
//!
//! Offline: nobody else may have the directory. What the catalogue is to be is made beside what it is (`switch` says how
//! that comes to count): hard links of the snapshot's runs, further runs with what the log has up to the point, a log that
//! has all that is kept up to the point - the segment that the point lies in written anew, up to it, for the old one may
//! be a snapshot's too - and an empty segment for what comes next. What came after the point is set aside, with all else.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result, Revision, SnapshotName, TimeMs};
use exacat_store::Clock;

use super::cut::cut;
use super::label::Label;
use super::line::{Line, line, link_segment};
use super::take::{self, cannot_link, link_runs};
use super::view::{End, build, flush_built};
use super::{existing, switch};
use crate::disk::{Disk, RealDisk, list_if_there, write_small};
use crate::history::{Segment, cannot_read};
use crate::identity::{Identity, Layout};
use crate::log::{self, Log, cannot_write};
use crate::manifest::Manifest;
use crate::run::Cache;
use crate::segment;
use crate::settings::{EmbeddedSettings, SNAPSHOT_CACHE_BYTES};
use crate::store::EmbeddedStore;
use crate::table::Shelf;

/// Up to which point to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePoint {
    /// The snapshot's, or the backup's, own.
    AsTaken,
    /// Up to this change.
    Revision(Revision),
    /// Up to the last change at or before this time.
    Time(TimeMs),
}

/// How far a restore is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreProgress {
    /// Files of a backup are being copied.
    Copying {
        /// Bytes that are there.
        bytes_done: u64,
        /// Bytes of all.
        bytes: u64,
    },
    /// The log is being read.
    Reading {
        /// Up to this change so far.
        revision: Revision,
    },
}

/// A restore that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The last change there is now, and when it was.
    pub revision: Revision,
    /// When that was.
    pub time: TimeMs,
    /// Entries in the tree and the trash, the root not counted.
    pub entries: u64,
    /// Of the state.
    pub digest: u128,
    /// The oldest change that the history has now.
    pub oldest: Revision,
    /// Where what was there before is now, laid out as a data directory; none if nothing was.
    pub set_aside: Option<PathBuf>,
}

impl EmbeddedStore {
    /// Restores the catalogue in the settings' directory, which no process may have open, from one of its snapshots. The
    /// changes after the snapshot are taken from its log, or from that in another directory, as one that was set aside.
    pub fn restore(
        settings: &EmbeddedSettings,
        name: &SnapshotName,
        point: RestorePoint,
        log_of: Option<&Path>,
        clock: &dyn Clock,
        tell: &mut dyn FnMut(&RestoreProgress),
    ) -> Result<Restored> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        restore(&disk, settings, name, point, log_of, clock, tell)
    }
}

pub(crate) fn restore(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    name: &SnapshotName,
    point: RestorePoint,
    log_of: Option<&Path>,
    clock: &dyn Clock,
    tell: &mut dyn FnMut(&RestoreProgress),
) -> Result<Restored> {
    let data = Layout::new(&settings.directory);
    let there_is_none =
        || Error::new(ErrorKind::NotFound, format!("there is no catalogue in {}", data.root().display()));
    data.read_identity(&**disk)?.ok_or_else(there_is_none)?;
    let _lock = data.lock(&**disk)?;
    switch::settle(&**disk, &data)?;
    let identity = data.read_identity(&**disk)?.ok_or_else(there_is_none)?;
    let from = existing(&**disk, &data, name)?;
    let label = Label::load(&**disk, from.root())?;
    if label.catalogue != identity.id {
        return Err(Error::new(ErrorKind::Corrupt, format!("the snapshot {name} is another catalogue's")));
    }
    let on = Layout::new(log_of.unwrap_or(data.root()));
    let work = Work { disk, settings, data: &data, identity: &identity, from: &from, label: &label, on: &on };
    let restored =
        work.prepare(point, clock, tell).inspect_err(|_| take::discard(&**disk, &data.prepared()))?;
    let number = switch::next_aside(&**disk, &data)?;
    switch::switch(&**disk, &data, number, Some(&identity))?;
    Ok(Restored { set_aside: Some(switch::aside(&data, number)), ..restored })
}

/// What a restore works with.
pub(super) struct Work<'w> {
    pub disk: &'w Arc<dyn Disk>,
    pub settings: &'w EmbeddedSettings,
    pub data: &'w Layout,
    pub identity: &'w Identity,
    /// The snapshot.
    pub from: &'w Layout,
    pub label: &'w Label,
    /// Holder of the log that may go on from it.
    pub on: &'w Layout,
}

impl Work<'_> {
    /// Makes what is to be in the place of log and runs, wholly and durably.
    pub fn prepare(
        &self,
        point: RestorePoint,
        clock: &dyn Clock,
        tell: &mut dyn FnMut(&RestoreProgress),
    ) -> Result<Restored> {
        let disk = &**self.disk;
        let (runs, log) = (self.data.prepared().join("runs"), self.data.prepared().join("log"));
        for directory in [&runs, &log] {
            disk.create_directory(directory).map_err(|error| cannot_write(directory, &error))?;
        }
        let own = log::list_segments(disk, &self.from.log(), false)?;
        let on = match list_if_there(disk, &self.on.log()) {
            Ok(_) => log::list_segments(disk, &self.on.log(), false).unwrap_or_default(),
            Err(error) => return Err(cannot_read(&self.on.log().display().to_string(), &error)),
        };
        let line = line(disk, self.identity.id, &own, self.label.revision, &on);
        let Line { segments, goes_on, gap_after } = match line {
            // The snapshot has all that is needed, whatever is wrong with the catalogue's log.
            Err(error) if point == RestorePoint::AsTaken && !own.is_empty() => {
                tracing::warn!(%error, "the history before the snapshot is not kept, for it cannot be read");
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
        // No run that any snapshot has may have the number of another.
        let next_run = self.next_run(&manifest);
        Manifest { next_run, ..manifest }.save(disk, &runs, self.identity.id)?;
        let shelf = Shelf::open(Arc::clone(self.disk), &runs, self.identity.clone())?;
        let settings = (Arc::new(Cache::new(SNAPSHOT_CACHE_BYTES)), self.settings.memtable_rows);
        let mut told = |revision: Revision| tell(&RestoreProgress::Reading { revision });
        let mut built = build(disk, shelf, (self.identity.id, &segments), end, settings, &mut told)?;
        self.check_reached(&built.state, end)?;
        if let (End::Time(time), Some(last)) = (end, gap_after)
            && built.state.revision >= last
        {
            // What came between is not known.
            return Err(Error::invalid(format!(
                "what followed revision {}, of {}, is not in the log any more, so nobody can say what was at {time}: \
                 restore up to a revision, --until {} at most",
                last.0, built.state.time, last.0
            )));
        }
        if built.shelf.revision().0 < built.state.revision {
            flush_built(&mut built)?;
        }
        let state = &built.state;
        let oldest = self.keep_log(&segments, state.revision, &log)?;
        let next = Revision(state.revision.0 + 1);
        let (bytes, created) = (self.settings.segment_bytes, clock.trusted().max(state.time));
        let identity = self.restored_identity(state.revision, goes_on)?;
        let disk_again = Arc::clone(self.disk);
        Log::create(disk_again, &log, identity.begun_for(), bytes, next, created, state.digest())?;
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
            set_aside: None,
        })
    }

    /// Begins a timeline after the point that is restored: revisions after it are given a second time.
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

    /// Where reading the log ends.
    fn end(&self, point: RestorePoint, goes_on: bool) -> Result<End> {
        let (name, taken) = (&self.label.name, self.label.revision);
        let end = match point {
            RestorePoint::AsTaken => return Ok(End::Revision(taken)),
            RestorePoint::Revision(revision) if revision < taken => {
                return Err(Error::invalid(format!(
                    "revision {} is before the snapshot {name}, which is of revision {}: restore an earlier snapshot",
                    revision.0, taken.0
                )));
            }
            RestorePoint::Revision(revision) => End::Revision(revision),
            RestorePoint::Time(time) => End::Time(time),
        };
        if !goes_on && end != End::Revision(taken) {
            return Err(Error::invalid(format!(
                "the log does not go on from the snapshot {name}, for the catalogue was restored to a point before it since: \
                 only the snapshot itself, revision {}, can be restored; or give the log that was set aside then",
                taken.0
            )));
        }
        Ok(end)
    }

    /// Did the log lead where it should?
    fn check_reached(&self, state: &crate::state::State, end: End) -> Result<()> {
        let (name, taken) = (&self.label.name, self.label.revision);
        if state.revision < taken {
            return Err(match end {
                End::Time(time) => Error::invalid(format!(
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
            End::Revision(revision) if state.revision < revision => Err(Error::invalid(format!(
                "there is no revision {}: the snapshot {name} and the log reach from revision {} to {}, of {}",
                revision.0, taken.0, state.revision.0, state.time
            ))),
            _ => Ok(()),
        }
    }

    /// A number that no run has, here or in any snapshot.
    fn next_run(&self, manifest: &Manifest) -> u64 {
        let disk = &**self.disk;
        let snapshots = take::names(disk, self.data).unwrap_or_default();
        let directories = snapshots.iter().map(|name| super::layout_of(self.data, name).runs());
        let manifests = directories.chain([self.data.runs()]).filter_map(|directory| {
            // One that is damaged says nothing; then it is the files that do, below.
            Manifest::load(disk, &directory, self.identity.id).ok().flatten()
        });
        let of_manifests = manifests.map(|manifest| manifest.next_run).max().unwrap_or(0);
        let files = list_if_there(disk, &self.data.runs()).unwrap_or_default();
        let numbers = files.iter().filter_map(|name| name.split('.').next()?.parse::<u64>().ok());
        let of_files = numbers.max().map_or(0, |number| number.saturating_add(1));
        manifest.next_run.max(of_manifests).max(of_files)
    }

    /// Puts what the line has up to a change into a log; gives its oldest change, if there is any.
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
