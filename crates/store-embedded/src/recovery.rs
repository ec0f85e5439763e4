//! Recovers the state at opening: loads the runs, and replays the log after them.

use std::sync::Arc;

use exacat_disk::{Disk, corrupt, random_u64};
use exacat_log::Segment;
use exacat_log::log_end::{self, LogEnd};
use exacat_log::record::Head;
use exacat_log::segment::{CatalogueId, Header};
use exacat_model::{Change, Error, ErrorKind, Result, Revision};

use crate::identity::Layout;
use crate::log_end_check;
use crate::replay::{self, Replay};
use crate::run::Cache;
use crate::settings::EmbeddedSettings;
use crate::state::{Operations, State};
use crate::table::{RunSet, write_memtable};

/// Result of a recovery.
pub(crate) struct Recovered {
    pub state: State,
    pub operations: Operations,
    pub run_set: RunSet,
    /// None if there is no log yet.
    pub end: Option<LogEnd>,
    pub segments: Vec<Arc<Segment>>,
}

/// Writes the memtable into a run.
pub(crate) fn flush(state: &mut State, operations: &Operations, run_set: &mut RunSet) -> Result<()> {
    let frozen = state.freeze(operations, run_set.revision().0);
    let begun = run_set.begin(frozen.rows() as u64)?;
    let rows = write_memtable(&frozen.memtable, frozen.resident(), begun.writer)?;
    run_set.add(begun.number, rows, frozen.revision, frozen.time)?;
    state.table.install(Arc::clone(run_set.version()), true);
    Ok(())
}

/// Builds the state from the runs and the log after them.
///
/// With `clean`, it also removes leftover files, and writes replayed rows into runs as normal work
/// does. So it takes no more memory than that.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    layout: &Layout,
    catalogue: CatalogueId,
    run_set: RunSet,
    settings: &EmbeddedSettings,
    clean: bool,
) -> Result<Recovered> {
    let (seed, cache) = (random_u64()?, Arc::new(Cache::new(settings.cache_bytes)));
    let segments = exacat_log::replay::list_segments(&**disk, &layout.log(), clean)?;
    let mut operations = Operations::new(settings.operations_remembered);
    let mut state = if run_set.version().runs.is_empty() {
        State::new(seed, cache)?
    } else {
        State::load(seed, Arc::clone(run_set.version()), cache, &mut operations)?
    };
    state.is_filtered = settings.under.is_some();
    let from = state.revision;
    if segments.is_empty() && from > Revision(0) {
        return Err(Error::new(ErrorKind::Corrupt, "there are runs, but no log: restore it"));
    }
    if let (true, Some(last)) = (clean, segments.last()) {
        last.make_durable(&**disk)?;
    }
    let rows_max = if clean { settings.memtable_rows } else { usize::MAX };
    let mut into = Builder { state, operations, run_set, rows_max };
    // Read now, because the replay adds runs of its own.
    let unnamed = into.run_set.newest_unnamed();
    let end = replay::replay(&**disk, catalogue, &segments, from, &mut into)?;
    if into.state.revision < from {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("the log ends before the runs do: a part of it is missing; {}", log_end::HELP),
        ));
    }
    log_end::check_followed(end.as_ref(), into.state.revision)?;
    log_end_check::check(&**disk, layout, catalogue, end.as_ref(), into.state.revision, unnamed)?;
    let Builder { state, operations, run_set, .. } = into;
    Ok(Recovered { state, operations, run_set, end, segments })
}

/// Builds a state from the log.
pub(crate) struct Builder {
    pub state: State,
    pub operations: Operations,
    pub run_set: RunSet,
    /// Rows after which a memtable is written to a run.
    pub rows_max: usize,
}

impl Replay for Builder {
    fn segment(&mut self, file: &str, header: &Header) -> Result<()> {
        check_segment(&self.state, file, header)
    }

    fn record(&mut self, file: &str, offset: u64, head: Head, _: usize) -> Result<()> {
        if self.state.table.active().rows() + self.state.resident_changed() >= self.rows_max {
            flush(&mut self.state, &self.operations, &mut self.run_set)?;
        }
        check_record(&self.state, file, offset, head)?;
        self.operations.remember(head.operation, head.first_revision, head.time);
        Ok(())
    }

    fn change(&mut self, file: &str, offset: u64, change: Change) -> Result<()> {
        apply_replayed(&mut self.state, file, offset, &change)
    }
}

/// Checks that a segment continues the state replayed so far.
pub(crate) fn check_segment(state: &State, file: &str, header: &Header) -> Result<()> {
    let next = state.revision.0 + 1;
    if header.first_revision.0 != next {
        return Err(corrupt(file, 32, format!("the segment begins with another change than {next}")));
    }
    if header.digest != state.digest() {
        return Err(corrupt(
            file,
            56,
            "replaying the log gave another state than the one it was written from",
        ));
    }
    Ok(())
}

/// Checks that a record continues the state replayed so far.
pub(crate) fn check_record(state: &State, file: &str, offset: u64, head: Head) -> Result<()> {
    let next = state.revision.0 + 1;
    if head.first_revision.0 != next || head.count == 0 {
        let got = head.first_revision.0;
        return Err(corrupt(file, offset, format!("change {got} follows where {next} should")));
    }
    Ok(())
}

/// Applies a change from the log.
pub(crate) fn apply_replayed(state: &mut State, file: &str, offset: u64, change: &Change) -> Result<()> {
    state
        .apply_change(change)
        .map_err(|defect| corrupt(file, offset, format!("change {}: {defect}", change.revision.0)))
}
