//! Opens a store: loads the runs, replays the log after them, starts the writer.

use std::sync::Arc;

use exacat_disk::{Disk, RealDisk};
use exacat_log::log_end::LogEnd;
use exacat_log::replay::list_segments;
use exacat_log::segment::{self, Ending};
use exacat_log::{Log, LogSettings};
use exacat_model::{Error, ErrorKind, Result, Revision, TimeMs};
use exacat_store::Clock;
use tokio::sync::mpsc;

use super::EmbeddedStore;
use crate::archive::Archivist;
use crate::committer::{CommitGroup, Committer, Marking};
use crate::compactor::Compactor;
use crate::filtered::{Filtered, FilteredMark, Positions};
use crate::follow;
use crate::history::History;
use crate::identity::{Identity, Layout};
use crate::load;
use crate::older::{self, Older};
use crate::recovery::{Recovered, recover};
use crate::settings::{EmbeddedSettings, MARK_IDLE};
use crate::shared::Shared;
use crate::snapshot::{self, SnapshotService};
use crate::standbys::Standbys;
use crate::state::State;
use crate::table::RunSet;
use crate::writer::Writer;

impl EmbeddedStore {
    /// Opens the catalogue in the settings' directory, or creates one if there is none. The time is
    /// that of reading the directories and the log after the last run.
    pub fn open(settings: EmbeddedSettings, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        Self::open_on(Arc::new(RealDisk), settings, clock)
    }

    /// Opens the catalogue like [`open`](Self::open), on another disk.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        settings: EmbeddedSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        settings.check()?;
        let layout = Layout::new(&settings.directory);
        layout.create_root(&*disk)?;
        let lock = layout.lock(&*disk)?;
        layout.make_private(&*disk)?;
        snapshot::switch::finish_or_undo(&*disk, &layout)?;
        layout.create(&*disk)?;
        follow::check(&*disk, &layout, &settings)?;
        snapshot::sweep(&*disk, &layout);
        load::sweep(&*disk, &layout);
        older::sweep(&*disk, &layout);
        let mut identity = identify(&*disk, &layout)?;
        let catalogue = identity.id;
        if settings.follows.is_some() {
            follow::cut_tail(&*disk, &layout, catalogue)?;
        }
        let run_set = RunSet::look_at(Arc::clone(&disk), &layout.runs(), identity.clone())?;
        let recovered = recover(&disk, &layout, catalogue, run_set, &settings, true)?;
        // Runs outside of the manifest are removed only now: without a manifest they would be all
        // there is.
        recovered.run_set.sweep()?;
        let is_torn = recovered.end.is_some_and(|end| matches!(end.ending, Ending::Torn(_)));
        if is_torn {
            // The timeline begins before the cut, because revisions after this one may be given a
            // second time.
            let revision = recovered.state.revision;
            identity.begin_timeline(identity.timelines.current(), revision)?;
            layout.write_identity(&*disk, &identity)?;
        }
        // A promotion began a timeline; the log goes on in a segment of it.
        let is_of_another = |end: &LogEnd| end.header.timeline != identity.timelines.current();
        let begins_anew =
            is_torn || (settings.follows.is_none() && recovered.end.is_some_and(|end| is_of_another(&end)));
        let is_marked = recovered.end.is_none_or(|end| end.is_marked);
        let log_settings = LogSettings {
            disk: Arc::clone(&disk),
            directory: layout.log(),
            begun_for: identity.begun_for(),
            segment_bytes: settings.segment_bytes,
            preparation: crate::settings::PREPARATION,
        };
        if recovered.state.revision > Revision(0) {
            // The clock must know the last change before anything gets a time.
            clock.opened(recovered.state.time);
        }
        let mut torn = None;
        let log = match (recovered.end, recovered.segments.last()) {
            (Some(end), Some(last)) => {
                let revision = recovered.state.revision;
                let (mut log, kept_as) = Log::open(log_settings, Arc::clone(last), end, revision)?;
                if let Some(kept_as) = kept_as {
                    torn = Some(torn_note(&end, revision, &kept_as));
                }
                if begins_anew {
                    log.begin_anew();
                }
                log
            }
            _ => {
                let (first, digest) = (Revision(1), recovered.state.digest());
                let created = clock.trusted();
                Log::create(log_settings, first, created, digest)?
            }
        };
        let Recovered { state, mut operations, run_set, mut segments, .. } = recovered;
        if segments.is_empty() {
            segments.push(Arc::clone(log.segment()));
        }
        let frozen = run_set.revision().0;
        let history = History::new(Arc::clone(&disk), catalogue, segments);
        history.set_floor(frozen);
        if !operations.are_all(state.revision) {
            operations.forgot_until(applied_by(&history, operations.oldest(), &state));
        }
        let older = Older::new(Arc::clone(&disk), layout.operations());
        let mut shared = Shared::new(state, history, older, disk);
        if settings.follows.is_none() {
            shared.standbys = Standbys::new(settings.standbys);
            *shared.superseded.get_mut() = follow::superseded(&*shared.disk, &layout)?;
        }
        let filtered = match &settings.under {
            None => None,
            Some(under) => {
                let mark = FilteredMark::read(&shared.history, shared.durability.revision())?;
                let positions = Arc::new(Positions::new(mark));
                shared.positions = Some(Arc::clone(&positions));
                Some(Filtered::new(under, positions))
            }
        };
        let shared = Arc::new(shared);
        shared.set_forgotten(operations.forgotten());
        if let Some((topic, what)) = torn {
            shared.metrics.warn(topic, &what);
        }
        shared.metrics.set_operations_from(operations.oldest().unwrap_or_default());
        let (sender, commands) = mpsc::channel(settings.queue_requests_max);
        let marking = Marking { idle: settings.mark_idle, writer: sender.downgrade() };
        let mut writer = Writer {
            shared: Arc::clone(&shared),
            commands,
            clock: Arc::clone(&clock),
            settings: settings.clone(),
            log,
            operations,
            frozen,
            compactor: Compactor::start(Arc::clone(&shared), run_set, &settings)?,
            group: CommitGroup::default(),
            effect: Vec::new(),
            committer: Committer::start(Arc::clone(&shared), settings.commit_at_once_bytes, marking)?,
            short_of_space: false,
            archivist: Archivist::start(&shared, &clock, &settings)?,
            is_standing_by: false,
            filtered,
            _lock: lock,
        };
        writer.renew_log();
        writer.committer.set_marked(is_marked || settings.repeats_log());
        let thread = std::thread::Builder::new().name("exacat-writer".to_owned()).spawn(move || {
            let closing = writer.run();
            // The directory must be free before the closing is answered.
            drop(writer);
            if let Some(reply) = closing {
                let _gone = reply.send(());
            }
        });
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot start the writer: {error}"))
        })?;
        let service = SnapshotService::new(layout, identity, clock).with(settings.companion.clone());
        Ok(Arc::new(EmbeddedStore::new(shared, settings, sender, thread, service)))
    }
}

/// Returns a time by which all requests outside of memory were applied. `first` is the oldest
/// change that memory has.
fn applied_by(history: &History, first: Option<Revision>, state: &State) -> TimeMs {
    let mut applied = state.time;
    let Some(first) = first else { return applied };
    let from = first.max(history.oldest());
    if from <= state.revision {
        let read = history.heads(from, from, |head| {
            applied = head.time;
            false
        });
        if let Err(error) = read {
            // Without the exact time more ids are searched in the log than necessary.
            tracing::warn!(%error, "the oldest remembered request cannot be read");
        }
    }
    applied
}

/// Returns the note to the operator that an end of the log was cut off.
fn torn_note(end: &LogEnd, last: Revision, kept_as: &str) -> (&'static str, String) {
    let Ending::Torn(bytes) = end.ending else { return ("torn log", kept_as.to_owned()) };
    let what = format!(
        "{}: {bytes} bytes at byte {}, after change {}, form no whole commit group, by a torn write or by damage; they were \
         copied to log/{kept_as} and cut off. Operations answered in the last {} ms before the stop may be among them",
        segment::file_name(end.position.segment),
        end.position.offset,
        last.0,
        MARK_IDLE.as_millis(),
    );
    tracing::warn!("{what}");
    ("torn log", what)
}

/// Returns the identity of the catalogue; a new one if the directory is empty.
fn identify(disk: &dyn Disk, layout: &Layout) -> Result<Identity> {
    if let Some(identity) = layout.read_identity(disk)? {
        return Ok(identity);
    }
    let segments = list_segments(disk, &layout.log(), false)?;
    let names = disk.list(&layout.runs()).unwrap_or_default();
    if !segments.is_empty() || !names.is_empty() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "there is a log, or there are runs, but no CATALOGUE file that says whose: restore it",
        ));
    }
    let identity = Identity::new(Vec::new())?;
    layout.write_identity(disk, &identity)?;
    Ok(identity)
}
