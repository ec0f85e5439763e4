//! A run that is held: its rules under one lock, its journal, and its directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_disk::{
    Disk, TitledLines, cannot_read, cannot_write, corrupt, hex_of, random_id, read_text, titled_text,
    write_small,
};
use exacat_log::chain::RecordPlace;
use exacat_log::content_log::{ContentLog, ContentLogSettings, read_contents};
use exacat_log::replay::undecodable;
use exacat_log::segment::CatalogueId;
use exacat_model::{Error, Result, TimeMs};
use exacat_replay::run::entry::Entry;
use exacat_replay::run::live::LiveRun;
use exacat_replay::run::settings::RunSettings;
use exacat_replay::trace::Trace;
use parking_lot::Mutex;

use super::clock::ReplayClock;
use super::journal::Journal;
use crate::limits::JOURNAL_SEGMENT_BYTES;

/// File with the identity of a run, in its directory.
const IDENTITY: &str = "RUN";
/// First line of that file, before its version.
const IDENTITY_TITLE: &str = "exacat replay run, layout";
/// Version of the layout of a run's directory.
const LAYOUT_VERSION: u32 = 1;

/// See the module.
pub(crate) struct HeldRun {
    live: Mutex<LiveRun>,
    journal: Journal,
    clock: Arc<dyn ReplayClock>,
    /// Requests that failed because the journal could not be written.
    faults: AtomicU64,
    /// Directory of the run.
    pub directory: PathBuf,
}

/// Places of a run that is opened or created.
pub(crate) struct RunPlace<'p> {
    pub disk: &'p Arc<dyn Disk>,
    pub directory: &'p Path,
    pub clock: &'p Arc<dyn ReplayClock>,
}

impl RunPlace<'_> {
    fn log(&self, owner: CatalogueId) -> ContentLogSettings {
        ContentLogSettings {
            disk: Arc::clone(self.disk),
            directory: self.directory.join("log"),
            owner,
            segment_bytes: JOURNAL_SEGMENT_BYTES,
        }
    }

    fn now(&self) -> TimeMs {
        TimeMs(self.clock.now().date_us / 1000)
    }

    /// Creates a run in an empty directory. It counts once the directory has its name.
    pub(crate) fn create(&self, settings: &RunSettings, trace: u64) -> Result<()> {
        let wrong = |error: std::io::Error| cannot_write(self.directory, &error);
        self.disk.create_directory(self.directory).map_err(wrong)?;
        let owner = random_id()?;
        let log = self.log(owner);
        self.disk.create_directory(&log.directory).map_err(wrong)?;
        let read = read_contents(&log, RecordPlace::default(), true, &mut |_, _, _| Ok(()))?;
        let mut opened = ContentLog::open(&log, read, self.now())?;
        let settings = serde_json::to_string(settings).map_err(|error| Error::invalid(error.to_string()))?;
        let mut content = Vec::new();
        Entry::Created { settings, trace }.encode(&mut content);
        opened.append(&content, self.now())?;
        let text = titled_text(IDENTITY_TITLE, LAYOUT_VERSION, &[("id", &hex_of(owner))]);
        write_small(&**self.disk, &self.directory.join(IDENTITY), text.as_bytes()).map_err(wrong)?;
        self.disk.sync_directory(self.directory).map_err(wrong)
    }

    fn owner(&self) -> Result<CatalogueId> {
        let path = self.directory.join(IDENTITY);
        let name = path.display().to_string();
        let text = read_text(&**self.disk, &path).map_err(|error| cannot_read(&name, &error))?;
        let text =
            text.ok_or_else(|| corrupt(&name, 0, "the file is missing: this is no directory of a run"))?;
        let id = TitledLines::of(&text, IDENTITY_TITLE, LAYOUT_VERSION).and_then(|mut lines| lines.id("id"));
        id.map_err(|what| corrupt(&name, 0, what))
    }

    /// Opens a run. `trace_of` returns the trace with a fingerprint.
    pub(crate) fn open(&self, trace_of: &mut dyn FnMut(u64) -> Result<Arc<Trace>>) -> Result<HeldRun> {
        let log = self.log(self.owner()?);
        let mut run: Option<LiveRun> = None;
        let read = read_contents(&log, RecordPlace::default(), true, &mut |file, offset, content| {
            let wrong = |what: &str| corrupt(file, offset, what);
            let entries = Entry::read_all(content).map_err(|error| undecodable(file, offset, &error))?;
            for entry in entries {
                match (&mut run, entry) {
                    (None, Entry::Created { settings, trace }) => {
                        let settings: RunSettings =
                            serde_json::from_str(&settings).map_err(|error| wrong(&error.to_string()))?;
                        run = Some(LiveRun::new(trace_of(trace)?, settings)?);
                    }
                    (None, _) => {
                        return Err(wrong("the journal does not begin with the settings of the run"));
                    }
                    (Some(run), entry) => run.apply(entry).map_err(wrong)?,
                }
            }
            Ok(())
        })?;
        let directory = self.directory.display().to_string();
        let mut live = run.ok_or_else(|| corrupt(&directory, 0, "the journal of the run is empty"))?;
        live.resume_after_replay(self.clock.now());
        let journal = Journal::start(ContentLog::open(&log, read, self.now())?, Arc::clone(self.clock))?;
        Ok(HeldRun {
            live: Mutex::new(live),
            journal,
            clock: Arc::clone(self.clock),
            faults: AtomicU64::new(0),
            directory: self.directory.to_owned(),
        })
    }
}

impl HeldRun {
    /// Returns its name.
    pub(crate) fn name(&self) -> String {
        self.read(|live| live.settings().name.clone())
    }

    /// Reads the run.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&LiveRun) -> T) -> T {
        read(&self.live.lock())
    }

    /// Changes the window of the stop conditions.
    pub(crate) fn note<T>(&self, note: impl FnOnce(&mut LiveRun) -> T) -> T {
        note(&mut self.live.lock())
    }

    /// Returns the number of requests that failed because the journal could not be written.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Returns the clock of the service.
    pub(crate) fn clock(&self) -> &Arc<dyn ReplayClock> {
        &self.clock
    }

    /// Changes the run. The answer is given once everything up to it is durable.
    pub(crate) async fn change<T>(
        &self,
        change: impl FnOnce(&mut LiveRun, exacat_replay::run::live::Now, &mut Vec<u8>) -> Result<T>,
    ) -> Result<T> {
        let (answer, durable) = {
            let mut live = self.live.lock();
            let mut content = Vec::new();
            let answer = change(&mut live, self.clock.now(), &mut content);
            // A refusal may rest on what is not durable yet, and may have entries of its own.
            (answer, self.journal.append(content))
        };
        let written = match durable {
            Ok(durable) => durable.wait().await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        written?;
        answer
    }

    /// Does what time brings.
    pub(crate) async fn tick(&self) -> Result<()> {
        self.change(|live, now, journal| {
            live.tick(now, journal);
            Ok(())
        })
        .await
    }
}
