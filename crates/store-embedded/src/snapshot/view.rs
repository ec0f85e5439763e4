//! Opens a snapshot as a state: from its runs, and its part of the log up to its revision.
//!
//! The last segment is the catalogue's own, and may be written to meanwhile. Reading therefore ends
//! with the snapshot's last change, and never looks behind it.

use std::sync::Arc;

use exacat_disk::{Disk, cannot_read, random_u64};
use exacat_log::Segment;
use exacat_log::record::Head;
use exacat_log::segment::{CatalogueId, Header};
use exacat_model::limits::OPERATIONS_REMEMBERED;
use exacat_model::{Change, Error, ErrorKind, Result, Revision, SnapshotCheck, TimeMs};

use super::label::Label;
use super::{header_of_file, take};
use crate::identity::{Identity, Layout};
use crate::recovery::{Builder, flush};
use crate::replay;
use crate::replay::Replay;
use crate::run::Cache;
use crate::settings::SNAPSHOT_CACHE_BYTES;
use crate::state::{Operations, State};
use crate::table::RunSet;

/// Point at which reading a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// This change.
    Revision(Revision),
    /// The last change up to this time.
    Time(TimeMs),
}

/// Memory for a state that is built.
pub(crate) struct BuildMemory {
    pub cache: Arc<Cache>,
    /// Rows in memory; more are written into runs.
    pub rows_max: usize,
    /// True for the state of a filtered follower.
    pub is_filtered: bool,
}

impl BuildMemory {
    /// Returns the memory for a state of a whole catalogue, with a page cache of its own.
    pub(crate) fn of(cache_bytes: u64, rows_max: usize) -> Self {
        BuildMemory { cache: Arc::new(Cache::new(cache_bytes)), rows_max, is_filtered: false }
    }
}

/// Receiver that reads up to a point, then no further.
struct Until<'r> {
    end: ReadEnd,
    ended: bool,
    into: &'r mut Builder,
    /// Progress callback, called after every record with its last change. Its error ends the reading.
    progress: &'r mut dyn FnMut(Revision) -> Result<()>,
}

impl Until<'_> {
    /// Returns the pseudo error that ends the reading.
    fn enough(&mut self) -> Error {
        self.ended = true;
        Error::new(ErrorKind::Internal, "enough of the log was read")
    }

    fn is_after(&self, revision: Revision) -> bool {
        matches!(self.end, ReadEnd::Revision(end) if revision > end)
    }
}

impl Replay for Until<'_> {
    fn segment(&mut self, file: &str, header: &Header) -> Result<()> {
        if self.is_after(header.first_revision) {
            return Err(self.enough());
        }
        self.into.segment(file, header)
    }

    fn record(&mut self, file: &str, offset: u64, head: Head, bytes: usize) -> Result<()> {
        if self.is_after(head.first_revision) || matches!(self.end, ReadEnd::Time(end) if head.time > end) {
            return Err(self.enough());
        }
        (self.progress)(self.into.state.revision)?;
        self.into.record(file, offset, head, bytes)
    }

    fn change(&mut self, file: &str, offset: u64, change: Change) -> Result<()> {
        let revision = change.revision;
        self.into.change(file, offset, change)?;
        // Bytes behind the last change may be written at this moment, so they are not read.
        if self.end == ReadEnd::Revision(revision) { Err(self.enough()) } else { Ok(()) }
    }
}

/// Builds the state of runs and a log, up to a point.
pub(crate) fn build(
    disk: &dyn Disk,
    run_set: RunSet,
    (log_of, segments): (CatalogueId, &[Arc<Segment>]),
    end: ReadEnd,
    memory: BuildMemory,
    progress: &mut dyn FnMut(Revision) -> Result<()>,
) -> Result<Builder> {
    let BuildMemory { cache, rows_max, is_filtered } = memory;
    let seed = random_u64()?;
    let mut operations = Operations::new(OPERATIONS_REMEMBERED);
    let mut state = match run_set.version().runs.is_empty() {
        true => State::new(seed, cache)?,
        false => State::load(seed, Arc::clone(run_set.version()), cache, &mut operations)?,
    };
    state.is_filtered = is_filtered;
    let from = state.revision;
    let mut into = Builder { state, operations, run_set, rows_max };
    let is_there = match end {
        ReadEnd::Revision(end) => end <= from,
        ReadEnd::Time(end) => end < into.state.time,
    };
    if !is_there {
        let mut until = Until { end, ended: false, into: &mut into, progress };
        match replay::replay(disk, log_of, segments, from, &mut until) {
            Err(_) if until.ended => {}
            other => drop(other?),
        }
    }
    Ok(into)
}

/// Writes the memtable into a run.
pub(crate) fn flush_built(built: &mut Builder) -> Result<()> {
    flush(&mut built.state, &built.operations, &mut built.run_set)
}

/// An open snapshot.
pub(crate) struct View {
    pub label: Label,
    pub identity: Identity,
    pub segments: Vec<Arc<Segment>>,
    pub state: State,
}

/// Opens a directory with the layout of a snapshot.
pub(crate) fn open(disk: &Arc<dyn Disk>, layout: &Layout, cache_bytes: u64) -> Result<View> {
    let label = Label::load(&**disk, layout.root())?;
    open_labelled(disk, layout, label, cache_bytes)
}

/// Opens a directory with the layout of a snapshot and this label.
pub(crate) fn open_labelled(
    disk: &Arc<dyn Disk>,
    layout: &Layout,
    label: Label,
    cache_bytes: u64,
) -> Result<View> {
    let corrupt = |what: String| {
        Error::new(ErrorKind::Corrupt, format!("the snapshot {} is damaged: {what}", label.name))
    };
    let identity = layout.read_identity(&**disk)?;
    let identity = identity.ok_or_else(|| corrupt("the file CATALOGUE is missing".to_owned()))?;
    if identity.id != label.catalogue {
        return Err(corrupt("it is another catalogue's".to_owned()));
    }
    let about = |error: Error| match error.kind {
        ErrorKind::Corrupt => corrupt(error.message),
        _ => error,
    };
    let run_set = RunSet::look_at(Arc::clone(disk), &layout.runs(), identity.clone()).map_err(about)?;
    let segments = exacat_log::replay::list_segments(&**disk, &layout.log(), false)?;
    let memory = BuildMemory::of(cache_bytes, usize::MAX);
    let end = ReadEnd::Revision(label.revision);
    let built =
        build(&**disk, run_set, (identity.id, &segments), end, memory, &mut |_| Ok(())).map_err(about)?;
    let state = built.state;
    if state.revision != label.revision {
        return Err(corrupt(format!(
            "its log ends with change {}, not {}",
            state.revision.0, label.revision.0
        )));
    }
    if (state.digest(), state.entries) != (label.digest, label.entries) {
        return Err(corrupt("its state is not the one that it was taken of".to_owned()));
    }
    Ok(View { label, identity, segments, state })
}

/// Reads everything in a directory with the layout of a snapshot, and compares it with the label.
pub(crate) fn verify(disk: &Arc<dyn Disk>, layout: &Layout) -> Result<SnapshotCheck> {
    let label = Label::load(&**disk, layout.root())?;
    let mut check = SnapshotCheck {
        revision: label.revision,
        runs: 0,
        rows: 0,
        changes: 0,
        entries: label.entries,
        problems: Vec::new(),
    };
    let view = match open_labelled(disk, layout, label, SNAPSHOT_CACHE_BYTES) {
        Ok(view) => view,
        Err(error) if error.kind == ErrorKind::Corrupt => {
            check.problems.push(error.message);
            return Ok(check);
        }
        Err(error) => return Err(error),
    };
    let runs = &view.state.table.version().runs;
    for run in runs {
        check.runs += 1;
        check.rows += run.rows().0;
        check.problems.extend(run.check());
    }
    // Reading stops at the revision of the snapshot, so no change leads to the segment that begins
    // behind it.
    let log = layout.log();
    let segments =
        take::log_files(&**disk, &log).map_err(|error| cannot_read(&log.display().to_string(), &error))?;
    for (_, name) in segments {
        match header_of_file(&**disk, &log.join(name)) {
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::Corrupt => check.problems.push(error.message),
            Err(error) => return Err(error),
        }
    }
    let in_runs = State::revision_in(runs).unwrap_or_default();
    check.changes = view.label.revision.0.saturating_sub(in_runs.0);
    if check.problems.is_empty() {
        match view.state.audit() {
            Ok(audit) => check.problems.extend(
                audit.findings.iter().map(|item| format!("{}: {}: {}", item.what, item.which, item.detail)),
            ),
            Err(defect) => check.problems.push(defect.to_string()),
        }
    }
    Ok(check)
}
