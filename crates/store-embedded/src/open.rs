//! Opening: the last whole checkpoint, then the log after it, then the writer.

use std::sync::Arc;

use exacat_model::limits::OPERATIONS_REMEMBERED;
use exacat_model::{Change, Error, ErrorKind, Result, Revision};
use exacat_store::Clock;
use tokio::sync::mpsc;

use crate::archive::Archivist;
use crate::checkpoint;
use crate::committer::{Committer, Group};
use crate::disk::{Disk, RealDisk};
use crate::figures::CheckpointFigures;
use crate::history::{History, Segment};
use crate::identity::Layout;
use crate::log::{self, End, Log, Replay, Start};
use crate::record::Head;
use crate::segment::{CatalogueId, Ending, Header, corrupt};
use crate::settings::{EmbeddedSettings, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::state::{Operations, State};
use crate::store::{EmbeddedStore, Shared};
use crate::writer::Writer;

impl EmbeddedStore {
    /// Opens the catalogue in the settings' directory, or makes a new one if there is none. Takes as long as reading
    /// the last checkpoint and the log after it does.
    pub fn open(settings: EmbeddedSettings, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        Self::open_on(Arc::new(RealDisk), settings, clock)
    }

    /// As [`open`](Self::open), on another disk.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        settings: EmbeddedSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        check(&settings)?;
        let layout = Layout::new(&settings.directory);
        layout.create(&*disk)?;
        let lock = layout.lock(&*disk)?;
        let catalogue = identify(&*disk, &layout)?;
        let recovered = recover(&disk, &layout, catalogue, true)?;
        checkpoint::forget_older(&*disk, &layout.checkpoints());
        let Recovered { state, operations, end, segments, checkpoint, replayed_bytes, notes } = recovered;
        let bytes = settings.segment_bytes;
        let log = match (end, segments.last()) {
            (Some(end), Some(last)) => {
                Log::open(Arc::clone(&disk), &layout.log(), catalogue, bytes, Arc::clone(last), end)?
            }
            _ => {
                let created = clock.now();
                Log::create(Arc::clone(&disk), &layout.log(), catalogue, bytes, created, state.digest())?
            }
        };
        let history = History::new(Arc::clone(&disk), catalogue, segments);
        if history.segments() == 0 {
            history.push(Arc::clone(log.segment()));
        }
        history.set_floor(checkpoint::oldest(&*disk, &layout.checkpoints()));
        let shared = Arc::new(Shared::new(state, history, disk));
        for (topic, what) in notes {
            shared.figures.warn(topic, &what);
        }
        shared.figures.set_checkpoint(checkpoint);
        let (sender, commands) = mpsc::channel(settings.queue_requests_max);
        let mut writer = Writer {
            shared: Arc::clone(&shared),
            commands,
            clock: Arc::clone(&clock),
            settings: settings.clone(),
            layout,
            catalogue,
            log,
            operations,
            bytes_since_checkpoint: replayed_bytes,
            checkpoint_bytes: checkpoint.bytes,
            group: Group::default(),
            effect: Vec::new(),
            committer: Committer::start(Arc::clone(&shared), settings.commit_at_once_bytes)?,
            short_of_space: false,
            _archivist: Archivist::start(&shared, &clock, &settings)?,
            _lock: lock,
        };
        let thread = std::thread::Builder::new().name("exacat-writer".to_owned()).spawn(move || {
            let closing = writer.run();
            // The directory is free before the closing is answered.
            drop(writer);
            if let Some(reply) = closing {
                let _gone = reply.send(());
            }
        });
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot start the writer: {error}"))
        })?;
        Ok(Arc::new(EmbeddedStore::new(shared, clock, settings, sender, thread)))
    }
}

fn check(settings: &EmbeddedSettings) -> Result<()> {
    if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&settings.segment_bytes) {
        return Err(Error::invalid(format!(
            "segments of {} bytes: they have {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}",
            settings.segment_bytes
        )));
    }
    if settings.queue_requests_max == 0 || settings.queue_bytes_max == 0 {
        return Err(Error::invalid("the queue of requests has no place"));
    }
    settings.history.check(settings.segment_bytes)
}

/// The catalogue's number; a new one if the directory holds nothing.
fn identify(disk: &dyn Disk, layout: &Layout) -> Result<CatalogueId> {
    if let Some(id) = layout.read_id(disk)? {
        return Ok(id);
    }
    let segments = log::list_segments(disk, &layout.log(), false)?;
    if !segments.is_empty() || !checkpoint::list(disk, &layout.checkpoints())?.is_empty() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "there is a log or a checkpoint, but no CATALOGUE file that says whose: restore it",
        ));
    }
    layout.create_id(disk)
}

/// What opening found.
pub(crate) struct Recovered {
    pub state: State,
    pub operations: Operations,
    /// None if there is no log yet.
    pub end: Option<End>,
    pub segments: Vec<Arc<Segment>>,
    pub checkpoint: CheckpointFigures,
    pub replayed_bytes: u64,
    /// What an operator should know.
    pub notes: Vec<(&'static str, String)>,
}

/// Builds the state from the newest checkpoint that is whole, and the log after it.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    layout: &Layout,
    catalogue: CatalogueId,
    clean: bool,
) -> Result<Recovered> {
    let mut notes = Vec::new();
    let seed = log::random_u64()?;
    let segments = log::list_segments(&**disk, &layout.log(), clean)?;
    let mut start = Start::Beginning;
    let mut into =
        Builder { state: State::new(seed)?, operations: Operations::new(OPERATIONS_REMEMBERED), bytes: 0 };
    let mut figures = CheckpointFigures::default();
    for (revision, path) in checkpoint::list(&**disk, &layout.checkpoints())? {
        match checkpoint::load(&**disk, &path, catalogue, seed) {
            Ok(loaded) => {
                start = Start::going_on(&segments, loaded.position, loaded.state.revision);
                into.state = loaded.state;
                loaded
                    .operations
                    .iter()
                    .for_each(|(operation, first)| into.operations.remember(*operation, *first));
                figures = CheckpointFigures { revision, bytes: loaded.bytes, ..Default::default() };
                break;
            }
            // A version of the future is no damage: replaying past it would be as wrong as reading it.
            Err(error) if error.kind == ErrorKind::Invalid => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "a checkpoint is passed over");
                notes.push(("damaged checkpoint", format!("{error}; the one before it or the log was used")));
            }
        }
    }
    if segments.is_empty() && start != Start::Beginning {
        return Err(Error::new(ErrorKind::Corrupt, "there is a checkpoint, but no log"));
    }
    if start == Start::Beginning && segments.first().is_some_and(|first| first.first_revision > Revision(1)) {
        return Err(log::begins_too_late(&segments, Revision(0)));
    }
    let end = log::replay(&**disk, catalogue, &segments, start, &mut into)?;
    if let Some(End { position, ending: Ending::Torn, .. }) = end {
        let what = format!(
            "the end of {} was torn at byte {} and cut off there: it was being written when the machine stopped, \
             and was not answered",
            crate::segment::file_name(position.segment),
            position.offset
        );
        tracing::warn!("{what}");
        notes.push(("torn log", what));
    }
    let Builder { state, operations, bytes } = into;
    Ok(Recovered { state, operations, end, segments, checkpoint: figures, replayed_bytes: bytes, notes })
}

/// Builds a state from the log.
struct Builder {
    state: State,
    operations: Operations,
    bytes: u64,
}

impl Replay for Builder {
    fn segment(&mut self, file: &str, header: &Header) -> Result<()> {
        check_segment(&self.state, file, header)
    }

    fn record(&mut self, file: &str, offset: u64, head: Head, bytes: usize) -> Result<()> {
        check_record(&self.state, file, offset, head)?;
        self.operations.remember(head.operation, head.first_revision);
        self.bytes += bytes as u64;
        Ok(())
    }

    fn change(&mut self, file: &str, offset: u64, change: Change) -> Result<()> {
        apply_replayed(&mut self.state, file, offset, &change)
    }
}

/// A segment goes on from the state that was replayed so far.
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

/// A record goes on from the state that was replayed so far.
pub(crate) fn check_record(state: &State, file: &str, offset: u64, head: Head) -> Result<()> {
    let next = state.revision.0 + 1;
    if head.first_revision.0 != next || head.count == 0 {
        let got = head.first_revision.0;
        return Err(corrupt(file, offset, format!("change {got} follows where {next} should")));
    }
    Ok(())
}

/// Applies a change of the log.
pub(crate) fn apply_replayed(state: &mut State, file: &str, offset: u64, change: &Change) -> Result<()> {
    state
        .apply_change(change)
        .map_err(|defect| corrupt(file, offset, format!("change {}: {defect}", change.revision.0)))
}
