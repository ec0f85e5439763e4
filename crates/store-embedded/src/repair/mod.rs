//! Repair: makes a damaged catalogue whole again, offline, from everything available.
//!
//! ```text
//!   survey:   reads every file: which runs, which segments, the manifest, CATALOGUE are intact
//!   runs:     an intact copy elsewhere ► else written anew, if all rows are readable ► else …
//!   rebuild:  … an older state (older runs, a snapshot, a backup, nothing) and the log after it ► else …
//!   rows:     … the readable rows, every counter and index recomputed; losses are listed
//! ```
//! The first way that gives the whole state is taken. Its result is prepared beside the catalogue
//! and audited. It replaces the catalogue as a restore does (`snapshot::switch`): atomically, even
//! if it is interrupted. The old files stay in the replaced copy. A repair that loses anything runs
//! only if the operator accepts the loss; the losses are listed before and after.
//!
//! * `sources`: places of good copies and older states
//! * `runs`: the runs of the manifest, and ways to recover each
//! * `history`: the log, recovered from all sources
//! * `prepare`: the replacement, made beside and audited
//! * `recover_rows`: a state from the readable rows

mod context;
mod history;
mod opened;
mod plan;
mod prepare;
mod recover_rows;
mod runs;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, cannot_write, exists, list_if_there, remove_tree};
use exacat_log::replay::list_segments;
use exacat_model::{Error, ErrorKind, Finding, Result, Revision, TimeMs};
use exacat_store::Clock;

use self::context::RepairContext;
use self::history::RecoveredLog;
use self::plan::Plan;
use self::prepare::Made;
use self::runs::Runs;
use self::sources::Sources;
use crate::identity::{Identity, Layout};
use crate::settings::{EmbeddedSettings, LOSSES_LISTED_MAX};
use crate::snapshot::switch;

/// Options of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// Directory of backups, or another data directory, that may have intact copies.
    pub from: Option<PathBuf>,
    /// Accepts the loss of entries that cannot be recovered.
    pub accept_loss: bool,
}

/// Progress of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairProgress {
    /// The repair reads and checks this file.
    Checking {
        /// Name of the file.
        file: String,
    },
    /// The repair builds a state from an older one and the log.
    Reading {
        /// Last change read so far.
        revision: Revision,
    },
    /// The repair gathers the readable rows.
    Gathering {
        /// Rows gathered so far.
        rows: u64,
    },
}

/// Progress callback of a repair.
pub(crate) type ProgressCallback<'t> = dyn FnMut(&RepairProgress) + 't;

/// Result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// Problems found, each with file and place; empty if there are none.
    pub problems: Vec<String>,
    /// Ways in which the problems were repaired, or would be.
    pub repairs: Vec<String>,
    /// Losses, as far as they are listed.
    pub losses: Vec<Finding>,
    /// Number of all losses.
    pub losses_total: u64,
    /// True if the repair was done. Otherwise nothing was changed: there is no problem, or the
    /// repair would lose something.
    pub done: bool,
    /// Last change of the state after the repair.
    pub revision: Revision,
    /// Time of that change.
    pub time: TimeMs,
    /// Entries in the state.
    pub entries: u64,
    /// Digest of the state.
    pub digest: u128,
    /// Oldest change in the history after the repair.
    pub oldest: Revision,
    /// Replaced copy: the files before the repair.
    pub replaced_copy: Option<PathBuf>,
}

/// Losses, listed up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    listed: Vec<Finding>,
    total: u64,
}

impl Losses {
    fn add(&mut self, what: &str, which: impl ToString, detail: impl ToString) {
        self.total += 1;
        if self.listed.len() < LOSSES_LISTED_MAX {
            let (which, detail) = (which.to_string(), detail.to_string());
            self.listed.push(Finding { what: what.to_owned(), which, detail });
        }
    }
}

pub(crate) fn repair(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    options: &RepairOptions,
    clock: &dyn Clock,
    progress: &mut ProgressCallback<'_>,
) -> Result<Repaired> {
    let data = Layout::new(&settings.directory);
    let nothing = || Error::not_found(format!("there is no catalogue in {}", data.root().display()));
    if !exists(&**disk, &data.log()).unwrap_or(false)
        && data.read_identity(&**disk).is_ok_and(|one| one.is_none())
    {
        return Err(nothing());
    }
    let _lock = data.lock(&**disk)?;
    clear(&**disk, &data)?;
    let mut problems = Vec::new();
    let mut repairs = Vec::new();
    let mut sources = Sources::find(&**disk, &data, options.from.as_deref())?;
    let (identity, identity_is_good) = match data.read_identity(&**disk) {
        Ok(Some(identity)) => (identity, true),
        Err(error) if error.kind == ErrorKind::Invalid && !sources::is_version_flipped(&**disk, &data) => {
            return Err(error);
        }
        found => {
            let what =
                found.err().map_or_else(|| "the file CATALOGUE is missing".to_owned(), |error| error.message);
            problems.push(what);
            let (identity, how) = sources.identity(&**disk, &data)?;
            repairs.push(format!("CATALOGUE: {how}"));
            (identity, false)
        }
    };
    sources.keep_of(&identity);
    let context = RepairContext { disk, settings, data: &data, identity };
    let log = RecoveredLog::put_together(&context, &sources, progress)?;
    problems.extend(log.problems.iter().cloned());
    let runs = Runs::survey(&context, &sources, progress)?;
    problems.extend(runs.problems.iter().cloned());
    if problems.is_empty() {
        // Every file is intact. The inspection checks whether the state in them is consistent.
        let inspected = opened::state_of(&context)?;
        problems.extend(inspected.problems);
        if problems.is_empty() {
            return Ok(Repaired {
                problems,
                repairs,
                losses: Vec::new(),
                losses_total: 0,
                done: false,
                revision: inspected.revision,
                time: inspected.time,
                entries: inspected.entries,
                digest: inspected.digest,
                oldest: log.oldest(),
                replaced_copy: None,
            });
        }
    }
    let plan = Plan { context: &context, sources: &sources, log: &log, runs: &runs, clock };
    let made = plan.make(progress).inspect_err(|_| discard(&**disk, &data))?;
    let Made { state, identity, oldest, how, losses } = made;
    repairs.extend(log.repairs.iter().cloned());
    repairs.extend(how);
    let mut repaired = Repaired {
        problems,
        repairs,
        losses: losses.listed,
        losses_total: losses.total,
        done: false,
        revision: state.revision,
        time: state.time,
        entries: state.entries,
        digest: state.digest,
        oldest,
        replaced_copy: None,
    };
    if repaired.losses_total > 0 && !options.accept_loss {
        discard(&**disk, &data);
        return Ok(repaired);
    }
    if !identity_is_good || identity != context.identity {
        Layout::new(&data.prepared()).write_identity(&**disk, &identity)?;
    }
    let number = switch::next_replaced(&**disk, &data)?;
    switch::switch(&**disk, &data, number, identity_is_good.then_some(&context.identity))?;
    repaired.done = true;
    repaired.replaced_copy = Some(switch::replaced_copy(&data, number));
    Ok(repaired)
}

/// Completes an interrupted restore, or removes the leftovers of one that was not done.
fn clear(disk: &dyn Disk, data: &Layout) -> Result<()> {
    if switch::check_finished(disk, data).is_err() || data.read_identity(disk).is_ok_and(|one| one.is_some())
    {
        return switch::finish_or_undo(disk, data);
    }
    // The catalogue's identity is unknown, but the prepared files are certainly no part of it.
    remove_tree(disk, &data.prepared()).map_err(|error| cannot_write(data.root(), &error))
}

/// Removes prepared files that will not be used.
fn discard(disk: &dyn Disk, data: &Layout) {
    if let Err(error) = remove_tree(disk, &data.prepared()) {
        tracing::warn!(%error, "cannot remove the files that a repair prepared; the next opening removes them");
    }
}

/// Returns the problems of a data directory's files in full, for an inspection. Opening would
/// report only the first.
pub(crate) fn problems_of(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    identity: Identity,
) -> Result<Vec<String>> {
    let data = Layout::new(&settings.directory);
    let sources = Sources::none();
    let context = RepairContext { disk, settings, data: &data, identity };
    Ok(Runs::survey(&context, &sources, &mut |_| ())?.problems)
}

/// Returns the file names in a directory, in order.
fn names_in(disk: &dyn Disk, directory: &Path) -> Result<Vec<String>> {
    let names = list_if_there(disk, directory);
    let mut names =
        names.map_err(|error| exacat_disk::cannot_read(&directory.display().to_string(), &error))?;
    names.sort();
    Ok(names)
}

/// Returns the segments in a log's directory; none if the directory does not exist.
fn segments_in(disk: &dyn Disk, directory: &Path) -> Result<Vec<Arc<exacat_log::Segment>>> {
    if names_in(disk, directory)?.is_empty() { Ok(Vec::new()) } else { list_segments(disk, directory, false) }
}
