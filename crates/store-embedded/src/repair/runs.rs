//! The runs of a damaged catalogue: which of them count, and ways to recover each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exacat_disk::{Disk, cannot_read};
use exacat_model::{ErrorKind, Result, Revision};

use super::context::RepairContext;
use super::sources::{Sources, has_manifest};
use super::{ProgressCallback, RepairProgress, names_in};
use crate::identity::Identity;
use crate::manifest::{Manifest, RunNamed};
use crate::run::{Run, Scanned};
use crate::state::State;
use crate::table::{number_of, run_file_name};

/// Way to recover a run.
pub(super) enum Way {
    /// Take this file. If `far`, it is foreign and must be copied.
    File { path: PathBuf, far: bool },
    /// Write its rows anew; all of them are readable.
    Anew(Scanned),
    /// Only some of its rows are readable.
    InPart(Scanned),
    /// Nothing of it is readable.
    Not,
}

/// A run of the manifest.
pub(super) struct RunSeen {
    pub named: RunNamed,
    pub way: Way,
}

impl RunSeen {
    /// Says whether all of its rows can be recovered.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.way, Way::File { .. } | Way::Anew(_))
    }
}

/// The runs of the manifest.
pub(super) struct Runs {
    pub problems: Vec<String>,
    /// Ways in which the damage is repaired, if the runs are used.
    pub repairs: Vec<String>,
    pub manifest: Manifest,
    /// True if the manifest was guessed: only an audit of its state shows whether it is right.
    pub is_guessed: bool,
    /// In the order of the manifest.
    pub runs: Vec<RunSeen>,
}

impl Runs {
    /// Reads every byte of every run in the manifest.
    pub(crate) fn survey(
        context: &RepairContext<'_>,
        sources: &Sources,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<Self> {
        let disk = &**context.disk;
        let directory = context.data.runs();
        let mut runs = Runs {
            problems: Vec::new(),
            repairs: Vec::new(),
            manifest: Manifest::default(),
            is_guessed: false,
            runs: Vec::new(),
        };
        match Manifest::load(disk, &directory, context.catalogue()) {
            Ok(Some(manifest)) => runs.manifest = manifest,
            Ok(None) if !any_run(disk, &directory)? => return Ok(runs),
            Err(error)
                if error.kind == ErrorKind::Invalid && !is_version_flipped(disk, &directory, context)? =>
            {
                return Err(error);
            }
            other => {
                let missing = || format!("{}: there are runs, but no manifest", directory.display());
                runs.problems.push(
                    other
                        .err()
                        .map_or_else(missing, |error| format!("{}: {}", directory.display(), error.message)),
                );
                runs.manifest = guess(disk, &directory, &context.identity, progress)?;
                runs.is_guessed = true;
                runs.repairs.push(format!(
                    "manifest: made anew of {} runs that are there, which have everything up to change {}",
                    runs.manifest.runs.len(),
                    runs.manifest.revision.0
                ));
            }
        }
        for named in runs.manifest.runs.clone() {
            let path = directory.join(run_file_name(named.number));
            progress(&RepairProgress::Checking { file: path.display().to_string() });
            let way = match check(disk, &path, &context.identity, named, None)? {
                Ok(()) => Way::File { path, far: false },
                Err(problems) => {
                    runs.problems.extend(problems);
                    let (way, how, also) = repair_run(disk, &path, context, sources, named)?;
                    runs.problems.extend(also);
                    runs.repairs.extend(how.map(|how| format!("{}: {how}", run_file_name(named.number))));
                    way
                }
            };
            runs.runs.push(RunSeen { named, way });
        }
        Ok(runs)
    }

    /// Returns how many of the oldest runs, one after the other, are whole.
    pub(crate) fn whole_from_the_oldest(&self) -> usize {
        self.runs.iter().rev().take_while(|run| run.is_whole()).count()
    }
}

/// Says whether a directory without a manifest has runs.
fn any_run(disk: &dyn Disk, directory: &Path) -> Result<bool> {
    Ok(names_in(disk, directory)?.iter().any(|name| number_of(name).is_some()))
}

fn is_version_flipped(disk: &dyn Disk, directory: &Path, context: &RepairContext<'_>) -> Result<bool> {
    if !has_manifest(disk, directory) {
        return Ok(false);
    }
    let path = directory.join(crate::manifest::NAME);
    let unreadable = |error: std::io::Error| cannot_read(&path.display().to_string(), &error);
    let file = disk.open_to_read(&path).map_err(unreadable)?;
    let bytes = exacat_disk::read_whole(&*file).map_err(unreadable)?;
    Ok(Manifest::is_of_this_version_but_for_its_number(&bytes, context.catalogue()))
}

/// Reads a whole run, and returns its damage, if there is any. A run with another `salt` is another
/// run.
pub(super) fn check(
    disk: &dyn Disk,
    path: &Path,
    identity: &Identity,
    named: RunNamed,
    salt: Option<u64>,
) -> Result<std::result::Result<(), Vec<String>>> {
    let name = path.display().to_string();
    let file = match disk.open_to_read(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Err(vec![format!("the run {name}, which the manifest names, is missing")]));
        }
        Err(error) => return Ok(Err(vec![cannot_read(&name, &error).message])),
    };
    let run = match Run::open_of(&name, Arc::from(file), |catalogue| identity.has_runs_of(catalogue)) {
        Ok(run) => run,
        Err(error) => return Ok(Err(vec![error.message])),
    };
    if run.number() != named.number
        || run.rows().0 != named.rows
        || salt.is_some_and(|salt| salt != run.salt())
    {
        return Ok(Err(vec![format!("{name} is another run than the manifest names")]));
    }
    let problems = run.check();
    Ok(if problems.is_empty() { Ok(()) } else { Err(problems) })
}

/// Finds a way to recover a damaged run. Without an intact copy it also finds the snapshots with
/// the same damage.
fn repair_run(
    disk: &dyn Disk,
    path: &Path,
    context: &RepairContext<'_>,
    sources: &Sources,
    named: RunNamed,
) -> Result<(Way, Option<String>, Vec<String>)> {
    let mut also = Vec::new();
    let scanned = match disk.open_to_read(path) {
        Ok(file) => match Scanned::read(&path.display().to_string(), Arc::from(file)) {
            Ok(scanned) => scanned,
            // A later release wrote this run.
            Err(error) if error.kind == ErrorKind::Invalid => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "a damaged run cannot be read page by page");
                None
            }
        },
        Err(_) => None,
    };
    // A file with another number or catalogue is not the named run, and is ignored.
    let scanned = scanned.filter(|scanned| {
        scanned.head.number == named.number && context.identity.has_runs_of(scanned.head.catalogue)
    });
    let salt = scanned.as_ref().map(|scanned| scanned.head.salt);
    for copy in sources.runs.iter().filter(|copy| copy.number == named.number) {
        if check(disk, &copy.path, &context.identity, named, salt)?.is_ok() {
            let how = format!("taken from {}", copy.path.display());
            return Ok((Way::File { path: copy.path.clone(), far: copy.far }, Some(how), also));
        }
        if !copy.far {
            also.push(format!(
                "{}: the snapshot has the same damaged file, and keeps it: take another one, and drop this",
                copy.path.display()
            ));
        }
    }
    let (way, how) = match scanned {
        Some(scanned) if scanned.has_all_of(named.rows) => {
            let how = format!("written anew, all its {} rows can be read", named.rows);
            (Way::Anew(scanned), Some(how))
        }
        Some(scanned) if scanned.rows > 0 => (Way::InPart(scanned), None),
        _ => (Way::Not, None),
    };
    Ok((way, how, also))
}

/// Guesses a manifest from the runs in the directory. Each run has the last change of its state. A
/// run with another's last change and a higher number is a compaction of it.
fn guess(
    disk: &dyn Disk,
    directory: &Path,
    identity: &Identity,
    progress: &mut ProgressCallback<'_>,
) -> Result<Manifest> {
    struct FoundRun {
        named: RunNamed,
        revision: Revision,
        time: exacat_model::TimeMs,
    }
    let mut found: Vec<FoundRun> = Vec::new();
    let mut next_run = 0;
    for name in names_in(disk, directory)? {
        let Some(number) = number_of(&name) else { continue };
        next_run = next_run.max(number + 1);
        let path = directory.join(&name);
        progress(&RepairProgress::Checking { file: path.display().to_string() });
        let file = disk.open_to_read(&path).map_err(|error| cannot_read(&name, &error))?;
        let run = Run::open_of(&name, Arc::from(file), |catalogue| identity.has_runs_of(catalogue));
        // A run that was being written does not count.
        let Ok(run) = run else { continue };
        let named = RunNamed { number, rows: run.rows().0 };
        let said = State::moment_in(&[Arc::new(run)]);
        if let Some((revision, time)) = said {
            found.push(FoundRun { named, revision, time });
        }
    }
    found.sort_by_key(|run| std::cmp::Reverse((run.revision, run.named.number)));
    found.dedup_by_key(|run| run.revision);
    let (revision, time) = found.first().map(|run| (run.revision, run.time)).unwrap_or_default();
    Ok(Manifest { revision, time, next_run, runs: found.into_iter().map(|run| run.named).collect() })
}
