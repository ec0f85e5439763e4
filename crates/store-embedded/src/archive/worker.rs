//! The thread that archives sealed segments and removes those beyond the retention. It works in
//! small steps with low priority, until the store closes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use exacat_disk::cannot_write;
use exacat_log::archive::BLOCK_BYTES;
use exacat_log::{Form, Segment};
use exacat_model::{Error, ErrorKind, Revision};
use exacat_store::Clock;

use super::notifier::Notifier;
use super::packer::Packer;
use super::retention;
use crate::identity::Layout;
use crate::metrics::Work;
use crate::settings::{EmbeddedSettings, HistoryKept};
use crate::shared::Shared;

/// Period of checks without a wake-up: a segment may be too old by now, and a failed step may
/// succeed.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// Niceness of the thread: a tenth of a busy processor, all of an idle one.
const NICENESS: i32 = 10;

const ARCHIVE: &str = "log archive";
const RETENTION: &str = "log retention";

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArchiveStep {
    /// The step did something, and there may be more to do.
    More,
    /// There was nothing to do.
    Idle,
}

/// State of the archive's work.
pub(crate) struct ArchiveWork {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    kept: HistoryKept,
    directory: PathBuf,
    /// Bytes of records after which a block ends.
    pub block_bytes: usize,
    packer: Option<Packer>,
    /// Damaged segments, which stay as they are.
    damaged: BTreeSet<Revision>,
    /// Segments whose archiving failed for now.
    failed: BTreeSet<Revision>,
    /// Set if a removal is not synced, so that the segment may come back after a power cut.
    unsynced: bool,
}

impl ArchiveWork {
    pub(crate) fn new(shared: &Arc<Shared>, clock: &Arc<dyn Clock>, settings: &EmbeddedSettings) -> Self {
        ArchiveWork {
            shared: Arc::clone(shared),
            clock: Arc::clone(clock),
            kept: settings.history,
            directory: Layout::new(&settings.directory).log(),
            block_bytes: BLOCK_BYTES,
            packer: None,
            damaged: BTreeSet::new(),
            failed: BTreeSet::new(),
            unsynced: false,
        }
    }

    /// Does one small step, if there is one to do.
    pub(crate) fn step(&mut self) -> ArchiveStep {
        if self.shared.durability.ended().is_some() {
            // After a failure of the log nothing is written any more.
            self.packer = None;
            return ArchiveStep::Idle;
        }
        if let Some(packer) = &mut self.packer {
            let shared = Arc::clone(&self.shared);
            let running = shared.metrics.begin(Work::Archive);
            match packer.step() {
                Ok(false) => {}
                Ok(true) => {
                    running.done(0, packer.segment().bytes(&*self.shared.disk, true));
                    self.packer = None;
                    if self.failed.is_empty() {
                        self.shared.metrics.clear(ARCHIVE);
                    }
                }
                Err(error) => {
                    let first_revision = packer.segment().first_revision;
                    self.packer = None;
                    self.pass_over(first_revision, &error);
                }
            }
            return ArchiveStep::More;
        }
        match self.remove() {
            Ok(true) => return ArchiveStep::More,
            Ok(false) => self.shared.metrics.clear(RETENTION),
            Err(error) => {
                tracing::warn!(%error, "cannot remove log segments beyond the retention");
                self.shared.metrics.warn(RETENTION, &error.message);
            }
        }
        let Some((segment, next)) = self.next_to_pack() else { return ArchiveStep::Idle };
        let first_revision = segment.first_revision;
        match Packer::begin(&self.shared.history, &self.directory, segment, next, self.block_bytes) {
            Ok(packer) => self.packer = packer,
            Err(error) => self.pass_over(first_revision, &error),
        }
        ArchiveStep::More
    }

    /// Makes failed segments candidates again: the cause may be gone.
    pub(crate) fn try_again(&mut self) {
        self.failed.clear();
    }

    fn pass_over(&mut self, first_revision: Revision, error: &Error) {
        tracing::warn!(%error, "cannot archive a log segment");
        if error.kind == ErrorKind::Corrupt {
            self.damaged.insert(first_revision);
            let topic = format!("damaged log segment {}", first_revision.0);
            self.shared.metrics.warn(&topic, &format!("{error}; it stays as it is"));
        } else {
            self.failed.insert(first_revision);
            self.shared.metrics.warn(ARCHIVE, &error.message);
        }
    }

    /// Says whether this plain segment will be archived.
    fn waits(&self, segment: &Segment) -> bool {
        let first_revision = segment.first_revision;
        !self.damaged.contains(&first_revision) && !self.failed.contains(&first_revision)
    }

    /// Returns the oldest sealed plain segment, and the first revision of the one after it.
    fn next_to_pack(&self) -> Option<(Arc<Segment>, Revision)> {
        let segments = self.shared.history.list();
        let sealed = segments.iter().zip(segments.iter().skip(1));
        let mut plain = sealed.filter(|(segment, _)| *segment.form() == Form::Plain && self.waits(segment));
        plain.next().map(|(segment, next)| (Arc::clone(segment), next.first_revision))
    }

    /// Removes one segment beyond the retention, if there is one.
    fn remove(&mut self) -> Result<bool, Error> {
        self.sync_removed()?;
        let history = &self.shared.history;
        let waits = |segment: &Segment| self.waits(segment);
        let Some(segment) = retention::next_to_go(history, self.kept, self.clock.trusted(), waits)? else {
            return Ok(false);
        };
        self.unsynced = true;
        retention::remove(history, &segment)?;
        self.sync_removed()?;
        Ok(true)
    }

    /// Makes the last removal durable, if it is not yet.
    fn sync_removed(&mut self) -> Result<(), Error> {
        if self.unsynced {
            let synced = self.shared.disk.sync_directory(&self.directory);
            synced.map_err(|error| cannot_write(&self.directory, &error))?;
            self.unsynced = false;
        }
        Ok(())
    }
}

/// Handle of the thread.
pub(crate) struct Archivist {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Archivist {
    /// Starts the thread; none if the settings disable it.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        clock: &Arc<dyn Clock>,
        settings: &EmbeddedSettings,
    ) -> Result<Option<Self>, Error> {
        if !settings.archive {
            return Ok(None);
        }
        let work = ArchiveWork::new(shared, clock, settings);
        let its_shared = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name("exacat-archive".to_owned())
            .spawn(move || run(work, &its_shared.history.notifier))
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("no thread for the archive: {error}"))
            })?;
        Ok(Some(Archivist { shared: Arc::clone(shared), thread: Some(thread) }))
    }
}

impl Drop for Archivist {
    /// Ends the thread after its current step. An unfinished segment is archived from the start
    /// another time.
    fn drop(&mut self) {
        self.shared.history.notifier.end();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the archive panicked");
        }
    }
}

fn run(mut work: ArchiveWork, notifier: &Notifier) {
    // On Linux each thread has a niceness of its own.
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), NICENESS) {
        tracing::debug!(%error, "cannot lower the priority of the archive thread");
    }
    // Reads the lengths of the files here once, so that no request for metrics waits for it.
    work.shared.history.metrics();
    while !notifier.is_ended() {
        if work.step() == ArchiveStep::Idle && !notifier.wait(LOOK_EVERY) {
            work.try_again();
        }
    }
}
