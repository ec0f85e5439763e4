//! Repair: a damaged catalogue made whole again, offline, by what there is.
//!
//! ```text
//!   survey:   every file is read: which runs, which segments, the manifest, CATALOGUE are good
//!   runs:     a good copy elsewhere ► else written anew, if all its rows can be read ► else …
//!   rebuild:  … an older state (older runs, a snapshot, a backup, nothing) and the log after it ► else …
//!   salvage:  … what can be read, every counter and index made anew; what is lost is listed
//! ```
//! The first way that gives the whole state is taken. What comes of it is prepared beside, audited, and takes the place of
//! what was there as a restore does (`snapshot::switch`): at once, whatever is interrupted; what was there is set aside
//! whole. Nothing that would lose anything is done unless that was accepted; what is lost is listed then, and before.
//!
//! * `sources`: where good copies and older states may be
//! * `runs`: the runs of the manifest, and how each can be had again
//! * `history`: the log, put together from what is good
//! * `prepare`: what is to take the place, made beside and audited
//! * `salvage`: a state from the rows that can be read

mod history;
mod prepare;
mod runs;
mod salvage;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Finding, Result, Revision, TimeMs};
use exacat_store::Clock;

use self::history::MendedLog;
use self::prepare::{Made, Plan};
use self::runs::Runs;
use self::sources::Sources;
use crate::disk::{Disk, RealDisk, exists, list_if_there, remove_tree};
use crate::identity::{Identity, Layout};
use crate::log::{cannot_write, list_segments};
use crate::segment::CatalogueId;
use crate::settings::{EmbeddedSettings, LOSSES_LISTED_MAX};
use crate::snapshot::switch;
use crate::store::EmbeddedStore;

/// How to repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairOptions {
    /// A directory of backups, or another data directory, that may have what is damaged.
    pub from: Option<PathBuf>,
    /// What cannot be had again may be lost.
    pub accept_loss: bool,
}

/// How far a repair is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairProgress {
    /// Files are read and checked: this one now.
    Checking {
        /// Its name.
        file: String,
    },
    /// A state is made of an older one and the log.
    Reading {
        /// Up to this change so far.
        revision: Revision,
    },
    /// What can be read is gathered.
    Gathering {
        /// So many rows so far.
        rows: u64,
    },
}

/// What a repair is told by.
pub(crate) type Tell<'t> = dyn FnMut(&RepairProgress) + 't;

/// What a repair found and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// What is wrong, each with file and place; empty if nothing is.
    pub problems: Vec<String>,
    /// How each was mended, or would be.
    pub mended: Vec<String>,
    /// What is lost by that, as far as it is listed.
    pub losses: Vec<Finding>,
    /// How many losses there are.
    pub losses_total: u64,
    /// It was done; otherwise nothing was changed: for nothing is wrong, or because something would be lost.
    pub done: bool,
    /// The last change of the state as it is, or would be, afterwards.
    pub revision: Revision,
    /// When that was.
    pub time: TimeMs,
    /// Entries in it.
    pub entries: u64,
    /// Its digest.
    pub digest: u128,
    /// The oldest change that the history has then.
    pub oldest: Revision,
    /// Where what was there before is now.
    pub set_aside: Option<PathBuf>,
}

/// What is lost, listed up to a bound.
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

impl EmbeddedStore {
    /// Repairs the catalogue in the settings' directory, which no process may have open.
    pub fn repair(
        settings: &EmbeddedSettings,
        options: &RepairOptions,
        clock: &dyn Clock,
        tell: &mut dyn FnMut(&RepairProgress),
    ) -> Result<Repaired> {
        repair(&(Arc::new(RealDisk) as Arc<dyn Disk>), settings, options, clock, tell)
    }
}

/// What a repair works on.
pub(crate) struct Ground<'g> {
    pub disk: &'g Arc<dyn Disk>,
    pub settings: &'g EmbeddedSettings,
    pub data: &'g Layout,
    pub identity: Identity,
}

impl Ground<'_> {
    fn catalogue(&self) -> CatalogueId {
        self.identity.id
    }
}

pub(crate) fn repair(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    options: &RepairOptions,
    clock: &dyn Clock,
    tell: &mut Tell<'_>,
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
    let mut mended = Vec::new();
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
            mended.push(format!("CATALOGUE: {how}"));
            (identity, false)
        }
    };
    sources.keep_of(&identity);
    let ground = Ground { disk, settings, data: &data, identity };
    let log = MendedLog::put_together(&ground, &sources, tell)?;
    problems.extend(log.problems.iter().cloned());
    let runs = Runs::survey(&ground, &sources, tell)?;
    problems.extend(runs.problems.iter().cloned());
    if problems.is_empty() {
        // Every file is whole; is what they say?
        let inspected = crate::inspect::state_of(&ground)?;
        problems.extend(inspected.problems);
        if problems.is_empty() {
            return Ok(Repaired {
                problems,
                mended,
                losses: Vec::new(),
                losses_total: 0,
                done: false,
                revision: inspected.revision,
                time: inspected.time,
                entries: inspected.entries,
                digest: inspected.digest,
                oldest: log.oldest(),
                set_aside: None,
            });
        }
    }
    let plan = Plan { ground: &ground, sources: &sources, log: &log, runs: &runs, clock };
    let made = plan.make(tell).inspect_err(|_| discard(&**disk, &data))?;
    let Made { state, identity, oldest, how, losses } = made;
    mended.extend(log.mended.iter().cloned());
    mended.extend(how);
    let mut repaired = Repaired {
        problems,
        mended,
        losses: losses.listed,
        losses_total: losses.total,
        done: false,
        revision: state.revision,
        time: state.time,
        entries: state.entries,
        digest: state.digest,
        oldest,
        set_aside: None,
    };
    if repaired.losses_total > 0 && !options.accept_loss {
        discard(&**disk, &data);
        return Ok(repaired);
    }
    if !identity_is_good || identity != ground.identity {
        Layout::new(&data.prepared()).write_identity(&**disk, &identity)?;
    }
    let number = switch::next_aside(&**disk, &data)?;
    switch::switch(&**disk, &data, number, identity_is_good.then_some(&ground.identity))?;
    repaired.done = true;
    repaired.set_aside = Some(switch::aside(&data, number));
    Ok(repaired)
}

/// Completes a restore that was interrupted, and removes what one left that was not done.
fn clear(disk: &dyn Disk, data: &Layout) -> Result<()> {
    if switch::check_settled(disk, data).is_err() || data.read_identity(disk).is_ok_and(|one| one.is_some()) {
        return switch::settle(disk, data);
    }
    // Whose it is nobody knows yet; what was being prepared is no part of it.
    remove_tree(disk, &data.prepared()).map_err(|error| cannot_write(data.root(), &error))
}

/// Removes what was prepared and is not to be.
fn discard(disk: &dyn Disk, data: &Layout) {
    if let Err(error) = remove_tree(disk, &data.prepared()) {
        tracing::warn!(%error, "cannot remove what a repair prepared; the next opening does");
    }
}

/// What is wrong with a data directory's files that opening it would not say in full: for an inspection.
pub(crate) fn problems_of(
    disk: &Arc<dyn Disk>,
    settings: &EmbeddedSettings,
    identity: Identity,
) -> Result<Vec<String>> {
    let data = Layout::new(&settings.directory);
    let sources = Sources::none();
    let ground = Ground { disk, settings, data: &data, identity };
    Ok(Runs::survey(&ground, &sources, &mut |_| ())?.problems)
}

/// The file names in a directory, in order.
fn names_in(disk: &dyn Disk, directory: &Path) -> Result<Vec<String>> {
    let names = list_if_there(disk, directory);
    let mut names =
        names.map_err(|error| crate::history::cannot_read(&directory.display().to_string(), &error))?;
    names.sort();
    Ok(names)
}

/// The segments of a log's directory; none if there is no such directory.
fn segments_in(disk: &dyn Disk, directory: &Path) -> Result<Vec<Arc<crate::history::Segment>>> {
    if names_in(disk, directory)?.is_empty() { Ok(Vec::new()) } else { list_segments(disk, directory, false) }
}
