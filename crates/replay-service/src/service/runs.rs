//! Runs of a service, in its directory: `traces/HASH` has each trace once, `runs/NAME` has each run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use exacat_disk::{Disk, RealDisk, cannot_read, cannot_write, corrupt, exists, list_if_there, remove_tree};
use exacat_exchange::input::BytesRead;
use exacat_model::{Error, ErrorKind, Result};
use exacat_replay::run::settings::RunSettings;
use exacat_replay::trace::{Trace, store};
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use super::clock::ReplayClock;
use super::held_run::{HeldRun, RunPlace};
use super::trace_files::{TraceFile, copy_trace, fingerprint};
use crate::limits::RUNS_MAX;

/// Begin of the name of a run that is being created.
const UNFINISHED: &str = ".new-";

/// See the module.
pub(crate) struct Runs {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    clock: Arc<dyn ReplayClock>,
    by_name: RwLock<BTreeMap<String, Arc<HeldRun>>>,
    /// Traces in memory, by their fingerprints.
    traces: Mutex<HashMap<u64, Weak<Trace>>>,
    /// Trace of new runs.
    default: Option<TraceFile>,
    creating: Mutex<()>,
    _lock: Box<dyn Send + Sync>,
}

impl Runs {
    /// Opens the runs of a directory; an empty one is a new one. `trace` is that of new runs.
    pub(crate) fn open(root: &Path, trace: Option<&Path>, clock: Arc<dyn ReplayClock>) -> Result<Self> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        for directory in [root.to_owned(), root.join("traces"), root.join("runs")] {
            disk.create_directory(&directory).map_err(|error| cannot_write(&directory, &error))?;
        }
        disk.make_private(root, false).map_err(|error| cannot_write(root, &error))?;
        let lock = disk.lock(&root.join("LOCK")).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => {
                let what = format!("{}: another replay service has this directory open", root.display());
                Error::new(ErrorKind::Unavailable, what)
            }
            _ => cannot_write(&root.join("LOCK"), &error),
        })?;
        let mut runs = Runs {
            disk,
            root: root.to_owned(),
            clock,
            by_name: RwLock::default(),
            traces: Mutex::default(),
            default: None,
            creating: Mutex::default(),
            _lock: lock,
        };
        if let Some(trace) = trace {
            runs.default = Some(copy_trace(&*runs.disk, trace, &root.join("traces"))?);
        }
        runs.open_all()?;
        Ok(runs)
    }

    fn open_all(&self) -> Result<()> {
        let directory = self.root.join("runs");
        let names = list_if_there(&*self.disk, &directory)
            .map_err(|error| cannot_read(&directory.display().to_string(), &error))?;
        for name in names {
            let path = directory.join(&name);
            if name.starts_with(UNFINISHED) {
                // Its creation was interrupted: nobody has an answer for it.
                remove_tree(&*self.disk, &path).map_err(|error| cannot_write(&path, &error))?;
                continue;
            }
            let run = self.open_run(&path)?;
            self.by_name.write().insert(name, Arc::new(run));
        }
        Ok(())
    }

    fn open_run(&self, path: &Path) -> Result<HeldRun> {
        let place = RunPlace { disk: &self.disk, directory: path, clock: &self.clock };
        place.open(&mut |fingerprint| self.trace(fingerprint))
    }

    /// Returns the trace with a fingerprint, read once for all runs that have it.
    fn trace(&self, wanted: u64) -> Result<Arc<Trace>> {
        let mut traces = self.traces.lock();
        if let Some(trace) = traces.get(&wanted).and_then(Weak::upgrade) {
            return Ok(trace);
        }
        let path = TraceFile { fingerprint: wanted }.path(&self.root.join("traces"));
        if fingerprint(&path)? != wanted {
            return Err(corrupt(&path.display().to_string(), 0, "the trace is not the one of its name"));
        }
        let mut trace =
            store::read(&path, &BytesRead::default()).map_err(|error| Error::invalid(error.to_string()))?;
        trace.sort();
        let trace = Arc::new(trace);
        traces.insert(wanted, Arc::downgrade(&trace));
        Ok(trace)
    }

    /// Returns all runs.
    pub(crate) fn all(&self) -> Vec<(String, Arc<HeldRun>)> {
        self.by_name.read().iter().map(|(name, run)| (name.clone(), Arc::clone(run))).collect()
    }

    /// Returns a run.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<HeldRun>> {
        let found = self.by_name.read().get(name).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no run {name:.64}")))
    }

    /// Creates a run. The same settings again return the run that has them.
    pub(crate) fn create(&self, settings: &RunSettings) -> Result<Arc<HeldRun>> {
        settings.check()?;
        let _one_at_a_time = self.creating.lock();
        let name = settings.name.as_str();
        if let Ok(known) = self.get(name) {
            return match known.read(|live| live.settings() == settings) {
                true => Ok(known),
                false => {
                    let what = format!("there is a run {name} with other settings: choose another name");
                    Err(Error::new(ErrorKind::Exists, what))
                }
            };
        }
        if self.by_name.read().len() >= RUNS_MAX {
            return Err(Error::limit("the number of runs", RUNS_MAX + 1, RUNS_MAX));
        }
        let Some(trace) = &self.default else {
            return Err(Error::invalid("the service was started without a trace: give --trace FILE"));
        };
        // Refused before anything is written.
        exacat_replay::run::live::LiveRun::new(self.trace(trace.fingerprint)?, settings.clone())?;
        let directory = self.root.join("runs");
        let (unfinished, path) = (directory.join(format!("{UNFINISHED}{name}")), directory.join(name));
        let wrong = |error: std::io::Error| cannot_write(&path, &error);
        if exists(&*self.disk, &unfinished).map_err(wrong)? {
            remove_tree(&*self.disk, &unfinished).map_err(wrong)?;
        }
        let place = RunPlace { disk: &self.disk, directory: &unfinished, clock: &self.clock };
        place.create(settings, trace.fingerprint)?;
        self.disk.rename(&unfinished, &path).map_err(wrong)?;
        self.disk.sync_directory(&directory).map_err(wrong)?;
        let run = Arc::new(self.open_run(&path)?);
        self.by_name.write().insert(name.to_owned(), Arc::clone(&run));
        Ok(run)
    }
}
